"""Radial basis function mixtures for classes (Thesis09, chapter 3): local logistic models, and normalised RBF nets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from torch import Tensor

from mercer.border.targets import ClassTargets
from mercer.mixture.class_experts import Logistic
from mercer.mixture.em import Mixture, Sample, posterior
from mercer.mixture.estimator import MixtureEstimator
from mercer.mixture.experts import Experts, NoExperts
from mercer.mixture.fit import Fitted, Setting
from mercer.mixture.penalised import PenalisedMixture, gated
from mercer.mixture.readout import logistic_weights


class MixtureClassifier(ClassifierMixin, MixtureEstimator):
    """Targets are classes."""

    def _coded(self, y: np.ndarray, weight: np.ndarray) -> tuple[ClassTargets, np.ndarray]:
        coding = ClassTargets.of(y, weight)
        self.classes_ = coding.classes
        return coding, coding.numbers(y).astype(np.float64)[:, None]

    def _encoded(self, y: Any) -> np.ndarray:
        self._coding.require_known(np.asarray(y), "y")
        return self._coding.numbers(np.asarray(y)).astype(np.float64)[:, None]

    def _fold_labels(self, y: np.ndarray) -> np.ndarray:
        return y

    def _score(self, answers: Tensor, y: Tensor, weight: Tensor) -> float:
        """The share of rows whose class is right."""
        return float(((answers.argmax(0) == y[0]) * weight).sum() / weight.sum())

    def _answers(self, mixture: Mixture, readout: Tensor | None) -> Callable[[Tensor], Tensor]:
        return gated(mixture)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities in the order of `classes_`."""
        p = self._predicted(X)
        return p / p.sum(1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """The class of each row."""
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]


class ENRBFClassifier(MixtureClassifier, PenalisedMixture):
    r"""Extended normalised RBF classifier: local logistic models, blended by the posterior of a Gaussian mixture.

    .. math:: P(y = c \mid x) = \sum_j p(j \mid x)\, \mathrm{softmax}_c(w_{jc}^\top x + b_{jc}),

    with one logistic function per component for two classes. EM maximises the joint log-likelihood
    :math:`\sum_n \omega_n \log \sum_j p(j)\,\mathcal N(x_n; \mu_j, \Sigma_j)\,P(y_n \mid x_n, j)` less
    :math:`(\lambda/2) \sum_j \|w_j\|^2`, subject to a floor on the covariances. It never falls. The M step of the
    experts is one Newton step of IRLS, shortened where needed; the thesis iterates it to its end each time, which
    takes many passes over the rows to the same fixed points. (Its eq. 3.6 prints "arg min" for the M step; the
    maximum is meant, and its likelihood below eq. 3.4 lacks the logarithm.)

    Parameters
    ----------
    n_components : int or "auto"
        Local models; "auto" takes the smallest number whose cross-validated share of right classes is within one
        standard error of the best.
    regularization : float
        λ, on inputs of unit variance; 1/C of scikit-learn's `LogisticRegression`, which one component is. Weights of
        rows count against it; without it their unit means nothing.
    covariance_type, max_components, n_folds, n_init, init, max_iter, tol, covariance_floor, time_budget
        As in `ENRBFRegressor`.
    scale_inputs, device, dtype, memory_limit, random_state, verbose, callbacks
        As in `ENRBFRegressor`.

    Attributes
    ----------
    classes_ : the classes
    weights_, means_, covariances_ : the gates, in the inputs' own units
    coef_, intercept_ : the local models, k × D and k for two classes (of the second one), else k × C × D and k × C
    n_components_, n_iter_, stop_reason_, log_likelihood_path_, cv_results_ : as in `ENRBFRegressor`

    References
    ----------
    Ma Li, "Computationally efficient models for high-dimensional and large-scale classification problems", thesis
    (2009), section 3.1, table 3-1.

    Examples
    --------
    >>> from mercer import ENRBFClassifier
    >>> from mercer.datasets import make_three_gaussians
    >>> X, y = make_three_gaussians(random_state=0)
    >>> model = ENRBFClassifier(n_components=3, random_state=0).fit(X, y)
    >>> bool(model.score(*make_three_gaussians(2000, random_state=1)) > 0.78), model.coef_.shape
    (True, (3, 2))
    """

    def __init__(
        self,
        n_components: Any = 5,
        *,
        covariance_type: str = "diagonal",
        regularization: float = 1.0,
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
            regularization=regularization,
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

    def _experts(self, sample: Sample, setting: Setting) -> Callable[[int], Experts]:
        D, C = sample.rows.n_columns, len(self.classes_)
        return lambda k: Logistic.start(k, D, C, setting.ridge, sample.total, sample.plan.device)

    def _keep(self, mixture: Mixture, readout: Tensor | None) -> None:
        experts = mixture.experts
        assert isinstance(experts, Logistic)
        slopes = experts.coef[:, :, 1:].numpy() / self.input_scale_
        intercept = experts.coef[:, :, 0].numpy() - slopes @ self.input_mean_
        two = slopes.shape[1] == 1
        self.coef_, self.intercept_ = (slopes[:, 0], intercept[:, 0]) if two else (slopes, intercept)


class NRBFClassifier(MixtureClassifier, PenalisedMixture):
    r"""Two-step normalised RBF classifier: a Gaussian mixture of the inputs, then a logistic model of its activations.

    .. math:: P(y = c \mid x) = \mathrm{softmax}_c\Big(\sum_j w_{jc}\, p(j \mid x)\Big),

    the weights by IRLS (by L-BFGS where they are very many) with the penalty :math:`(\lambda/2)\|w\|^2`.

    Parameters
    ----------
    n_components : int or "auto"
        Basis functions; see `ENRBFClassifier`.
    regularization : float
        λ; weights of rows count against it. At least 1e-9 for each row, so that weights of classes told apart perfectly
        are finite.
    covariance_type, max_components, n_folds, n_init, init, max_iter, tol, covariance_floor, time_budget
        As in `ENRBFRegressor`.
    scale_inputs, device, dtype, memory_limit, random_state, verbose, callbacks
        As in `ENRBFRegressor`.

    Attributes
    ----------
    classes_ : the classes
    weights_, means_, covariances_ : the gates, in the inputs' own units
    coef_ : the output weights, k for two classes, else k × C
    n_components_, n_iter_, stop_reason_, log_likelihood_path_, cv_results_ : as in `ENRBFRegressor`

    References
    ----------
    Ma Li, "Computationally efficient models for high-dimensional and large-scale classification problems", thesis
    (2009), section 3.2.3, eq. 3.18.

    Examples
    --------
    >>> from mercer import NRBFClassifier
    >>> from mercer.datasets import make_three_gaussians
    >>> X, y = make_three_gaussians(random_state=0)
    >>> bool(NRBFClassifier(random_state=0).fit(X, y).score(X, y) > 0.75)
    True
    """

    _em_share = 0.8

    def _experts(self, sample: Sample, setting: Setting) -> Callable[[int], Experts]:
        return lambda k: NoExperts()

    def _train(
        self, sample: Sample, k: int, setting: Setting, rng: np.random.Generator, start: Mixture | None = None
    ) -> Fitted:
        result = super()._train(sample, k, setting, rng, start).result
        readout, why = logistic_weights(sample, result.mixture, len(self.classes_), setting.ridge, setting.clock)
        return Fitted(replace(result, stop_reason=f"{result.stop_reason}; then {why}"), readout)

    def _answers(self, mixture: Mixture, readout: Tensor | None) -> Callable[[Tensor], Tensor]:
        log_gates = mixture.log_gates()
        assert readout is not None

        def answer(x: Tensor) -> Tensor:
            f = readout.T @ posterior(log_gates(x))[0]
            return torch.softmax(f, 0) if len(f) > 1 else torch.cat([torch.sigmoid(-f), torch.sigmoid(f)])

        return answer

    def _keep(self, mixture: Mixture, readout: Tensor | None) -> None:
        assert readout is not None
        W = readout.numpy()
        self.coef_ = W[:, 0] if W.shape[1] == 1 else W
