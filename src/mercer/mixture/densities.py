"""Classes by densities: Bayes' rule on Gaussian mixtures of their own, or on one common basis (Thesis09, chapter 3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.mixture.class_experts import Categorical, ClassTable
from mercer.mixture.classifiers import MixtureClassifier
from mercer.mixture.em import Mixture, Sample
from mercer.mixture.experts import Experts, NoExperts
from mercer.mixture.fit import Fitted, Setting, fit_classes
from mercer.mixture.readout import class_shares


class GaussianMixtureClassifier(MixtureClassifier):
    r"""Bayes' rule on a Gaussian mixture per class (GMC).

    .. math:: P(y = c \mid x) \propto p(c) \sum_{j \in c} p(j \mid c)\, \mathcal N(x; \mu_j, \Sigma_j).

    All classes are fitted by one EM run over components that each belong to one class, which is EM within every class;
    "tied" covariances are shared within a class.

    Parameters
    ----------
    n_components : int or "auto"
        Components of each class (the thesis counts those of all classes together); see `ENRBFClassifier`.
    covariance_type, max_components, n_folds, n_init, init, max_iter, tol, covariance_floor, time_budget
        As in `ENRBFRegressor`.
    scale_inputs, device, dtype, memory_limit, random_state, verbose, callbacks
        As in `ENRBFRegressor`.

    Attributes
    ----------
    classes_ : the classes
    component_classes_ : the class of each component
    weights_, means_, covariances_ : all components, in the inputs' own units; weights are p(c) p(j | c)
    n_components_, n_iter_, stop_reason_, log_likelihood_path_, cv_results_ : as in `ENRBFRegressor`

    References
    ----------
    Ma Li, "Computationally efficient models for high-dimensional and large-scale classification problems", thesis
    (2009), section 3.2.1, eq. 3.15.

    Examples
    --------
    >>> from mercer import GaussianMixtureClassifier
    >>> from mercer.datasets import make_three_gaussians
    >>> X, y = make_three_gaussians(random_state=0)
    >>> model = GaussianMixtureClassifier(n_components=2, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.78), model.component_classes_.tolist()
    (True, [-1, -1, 1, 1])
    """

    _grows = False

    def _mixtures(self) -> int:
        return len(self.classes_)

    def _train(
        self, sample: Sample, k: int, setting: Setting, rng: np.random.Generator, start: Mixture | None = None
    ) -> Fitted:
        return Fitted(fit_classes(sample, k, len(self.classes_), setting, rng))

    def _keep(self, mixture: Mixture, readout: Tensor | None) -> None:
        experts = mixture.experts
        assert isinstance(experts, ClassTable)
        self.component_classes_ = self.classes_[experts.table.argmax(1).numpy()]


class CommonBasisMixtureClassifier(MixtureClassifier):
    r"""One Gaussian mixture for all classes, with the share of each class in every component.

    .. math:: P(y = c \mid x) = \sum_j p(j \mid x)\, P(c \mid j).

    Parameters
    ----------
    n_components : int or "auto"
        Components; see `ENRBFClassifier`.
    supervised : bool
        Whether EM maximises the likelihood of inputs and classes together, or the mixture is fitted to the inputs
        alone and the shares are counted afterwards.
    covariance_type, max_components, n_folds, n_init, init, max_iter, tol, covariance_floor, time_budget
        As in `ENRBFRegressor`.
    scale_inputs, device, dtype, memory_limit, random_state, verbose, callbacks
        As in `ENRBFRegressor`.

    Attributes
    ----------
    classes_ : the classes
    class_shares_ : P(c | j), k × C
    weights_, means_, covariances_ : the gates, in the inputs' own units
    n_components_, n_iter_, stop_reason_, log_likelihood_path_, cv_results_ : as in `ENRBFRegressor`

    References
    ----------
    Ma Li, "Computationally efficient models for high-dimensional and large-scale classification problems", thesis
    (2009), section 3.2.2, eq. 3.16 and 3.17.

    Examples
    --------
    >>> from mercer import CommonBasisMixtureClassifier
    >>> from mercer.datasets import make_three_gaussians
    >>> X, y = make_three_gaussians(random_state=0)
    >>> model = CommonBasisMixtureClassifier(n_components=3, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.75), model.class_shares_.shape
    (True, (3, 2))
    """

    def __init__(
        self,
        n_components: Any = 5,
        *,
        covariance_type: str = "diagonal",
        supervised: bool = True,
        max_components: int = 20,
        n_folds: int = 3,
        n_init: int = 3,
        init: str = "k-means++",
        max_iter: int = 200,
        tol: float = 1e-5,
        covariance_floor: float = 1e-4,
        time_budget: float | None = None,
        scale_inputs: bool = True,
        device: Any = "auto",
        dtype: Any = "auto",
        memory_limit: Any = None,
        random_state: Any = None,
        verbose: bool = False,
        callbacks: Any = None,
    ) -> None:
        super().__init__(
            n_components,
            covariance_type=covariance_type,
            max_components=max_components,
            n_folds=n_folds,
            n_init=n_init,
            init=init,
            max_iter=max_iter,
            tol=tol,
            covariance_floor=covariance_floor,
            time_budget=time_budget,
            scale_inputs=scale_inputs,
            device=device,
            dtype=dtype,
            memory_limit=memory_limit,
            random_state=random_state,
            verbose=verbose,
            callbacks=callbacks,
        )
        self.supervised = supervised

    def _experts(self, sample: Sample, setting: Setting) -> Callable[[int], Experts]:
        if not self.supervised:
            return lambda k: NoExperts()
        C = len(self.classes_)
        return lambda k: Categorical(torch.full((k, C), 1 / C, dtype=torch.float64, device=sample.plan.device))

    def _train(
        self, sample: Sample, k: int, setting: Setting, rng: np.random.Generator, start: Mixture | None = None
    ) -> Fitted:
        if self.supervised:
            return super()._train(sample, k, setting, rng, start)
        start = None if start is None else replace(start, experts=NoExperts())
        result = super()._train(sample, k, setting, rng, start).result
        shares = class_shares(sample, result.mixture, len(self.classes_))
        return Fitted(replace(result, mixture=replace(result.mixture, experts=Categorical(shares))))

    def _keep(self, mixture: Mixture, readout: Tensor | None) -> None:
        experts = mixture.experts
        assert isinstance(experts, ClassTable)
        self.class_shares_ = experts.table.numpy()
