"""Classification by densities: Bayes' rule on a Gaussian mixture per class, or on one for all (Thesis09, chapter 3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import torch

from mercer.base.estimator import estimator_dataclass
from mercer.base.parameters import AUTO, BOOL, integer, literal
from mercer.engine import Sample
from mercer.mixture.class_experts import Categorical, ClassTable
from mercer.mixture.classifiers import MixtureClassifier, fit_experts
from mercer.mixture.em import EMResult, Mixture
from mercer.mixture.experts import Experts, NoExperts
from mercer.mixture.fit import MixtureSettings, fit_classes
from mercer.mixture.output_weights import class_shares
from mercer.preprocessing.inputs import ClassTargets, InputMap


@estimator_dataclass
class GaussianMixtureClassifier(MixtureClassifier):
    r"""Bayes' rule on a Gaussian mixture per class (GMC).

    .. math:: P(y = c \mid x) \propto p(c) \sum_{j \in c} p(j \mid c)\, \mathcal N(x; \mu_j, \Sigma_j).

    All classes are fitted by one EM run over components that each belong to one class, which is EM within every class;
    "tied" covariances are shared within a class.

    Parameters
    ----------
    n_components : int or "auto", default 5
        Components of each class (the thesis counts those of all classes together). "auto" takes the smallest number
        whose cross-validated share of right classes is within one standard error of the best, among 1 …
        `max_components`: every one up to 10, then steps of a fifth.

    Attributes
    ----------
    component_classes_ : ndarray of shape (k,)
        The class of each component.
    weights_ : ndarray of shape (k,)
        p(c) p(j | c) of the components of all classes.

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

    n_components: Annotated[int | str, AUTO | integer()] = 5

    _grows: ClassVar[bool] = False

    def _wanted(self, k: int, n_classes: int) -> int:
        return k * n_classes

    def _train(
        self, sample: Sample, k: int, setting: MixtureSettings, rng: np.random.Generator, start: Mixture | None = None
    ) -> EMResult:
        return fit_classes(sample, k, setting.n_classes, setting, rng)

    def _described(self, fitted: EMResult, inputs: InputMap, targets: ClassTargets, sample: Sample) -> dict[str, Any]:
        experts = fitted.mixture.experts
        assert isinstance(experts, ClassTable)
        return {"component_classes_": targets.classes[experts.table.argmax(1).numpy()]}


@estimator_dataclass
class CommonBasisMixtureClassifier(MixtureClassifier):
    r"""One Gaussian mixture for all classes, with the share of each class in every component.

    .. math:: P(y = c \mid x) = \sum_j p(j \mid x)\, P(c \mid j).

    Parameters
    ----------
    training : "leave-one-out" or "em", default "leave-one-out"
        "leave-one-out" finds gates as `NRBFClassifier` does, by the errors of shares that are counted without each row,
        and EM fits the shares alone. "em" fits a Gaussian mixture.
    supervised : bool, default True
        For "em": whether the likelihood of inputs and classes is maximised, or the mixture is fitted to the inputs
        alone and the shares are counted afterwards.

    Attributes
    ----------
    class_shares_ : ndarray of shape (k, C)
        P(c | j).

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
    >>> print(f"accuracy {model.score(X, y):.1f}")
    accuracy 0.8
    >>> model.class_shares_.shape
    (3, 2)
    """

    _: KW_ONLY
    training: Annotated[str, literal("leave-one-out", "em")] = "leave-one-out"
    supervised: Annotated[bool, BOOL] = True
    max_components: Annotated[int, integer()] = 160

    _shares: ClassVar[bool] = True

    def _experts(self, sample: Sample, setting: MixtureSettings) -> Callable[[int], Experts]:
        if not self.supervised:
            return lambda k: NoExperts()
        C = setting.n_classes
        return lambda k: Categorical(torch.full((k, C), 1 / C, dtype=torch.float64, device=sample.plan.device))

    def _train(
        self, sample: Sample, k: int, setting: MixtureSettings, rng: np.random.Generator, start: Mixture | None = None
    ) -> EMResult:
        if self.training == "leave-one-out" and start is not None:
            counted = Categorical(class_shares(sample, start, setting.n_classes))
            return fit_experts(sample, replace(start, experts=counted), setting)
        if self.supervised:
            return super()._train(sample, k, setting, rng, start)
        start = None if start is None else replace(start, experts=NoExperts())
        result = super()._train(sample, k, setting, rng, start)
        shares = class_shares(sample, result.mixture, setting.n_classes)
        return replace(result, mixture=replace(result.mixture, experts=Categorical(shares)))

    def _described(self, fitted: EMResult, inputs: InputMap, targets: ClassTargets, sample: Sample) -> dict[str, Any]:
        experts = fitted.mixture.experts
        assert isinstance(experts, ClassTable)
        return {"class_shares_": experts.table.numpy()}
