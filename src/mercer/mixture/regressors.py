"""Radial basis function mixtures for numbers: `NRBFRegressor` and `ENRBFRegressor` (Thesis09, chapter 2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mercer.border.targets import RealTargets
from mercer.mixture.em import Mixture, Sample
from mercer.mixture.experts import Constant, Experts, Linear, NoExperts, NoisyExperts
from mercer.mixture.fit import Fitted, Setting
from mercer.mixture.gradient import fit_gradient
from mercer.mixture.penalised import PenalisedMixture, gated, mean_and_variance
from mercer.mixture.readout import least_squares, local_noise
from mercer.parts import require

TRAININGS = ("em", "two-step", "gradient")


class _MixtureRegressor(RegressorMixin, PenalisedMixture):
    """Targets are numbers, in one column or several."""

    #: Whether local models have slopes.
    _linear: ClassVar[bool]

    def __init__(
        self,
        n_components: Any = 5,
        *,
        covariance_type: str = "diagonal",
        training: str = "em",
        regularization: float = 1e-2,
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
        self.training = training

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _check(self) -> dict[str, Any]:
        return {"multi_output": True, "y_numeric": True}

    def _coded(self, y: np.ndarray, weight: np.ndarray) -> tuple[RealTargets, np.ndarray]:
        coding = RealTargets.of(y, weight)
        return coding, coding.encode(y)

    def _encoded(self, y: Any) -> np.ndarray:
        return self._coding.encode(np.asarray(y))

    def _score(self, answers: Tensor, y: Tensor, weight: Tensor) -> float:
        """Minus the root mean square error, in the targets' units."""
        squares = float(((answers - y).square().mean(0) * weight).sum() / weight.sum())
        return -self._coding.scale * squares**0.5

    def _require_parameters(self) -> None:
        super()._require_parameters()
        require(self.training in TRAININGS, "training", f"one of {list(TRAININGS)}", self.training)

    @property
    def _em_share(self) -> float:
        return {"em": 1.0, "two-step": 0.9, "gradient": 0.5}[self.training]

    def _start(self, k: int, sample: Sample, ridge: float) -> NoisyExperts:
        """Local models to start from."""
        variance, floor = _variance(sample), self.covariance_floor
        if self._linear:
            return Linear.start(k, sample.rows.n_columns, variance, floor, ridge)
        return Constant.start(k, variance, floor)

    def _experts(self, sample: Sample, setting: Setting) -> Callable[[int], Experts]:
        return lambda k: NoExperts() if self.training == "two-step" else self._start(k, sample, setting.ridge)

    def _train(
        self, sample: Sample, k: int, setting: Setting, rng: np.random.Generator, start: Mixture | None = None
    ) -> Fitted:
        if self.training == "two-step" and start is not None:
            start = replace(start, experts=NoExperts())
        fitted = super()._train(sample, k, setting, rng, start)
        if self.training == "em":
            return fitted
        result, ridge = fitted.result, setting.ridge
        if self.training == "gradient":
            limits = self.max_iter, self.tol, setting.clock
            result, weights = fit_gradient(sample, result.mixture, ridge, self._linear, *limits)
        else:
            weights = least_squares(sample, result.mixture, ridge, self._linear)
        experts = self._start(result.mixture.n_components, sample, ridge)
        noise = torch.maximum(local_noise(sample, result.mixture, weights), experts.floor)
        slopes = {"coef": weights[:, 1:].mT.contiguous()} if self._linear else {}
        experts = replace(experts, intercept=weights[:, 0], noise=noise, **slopes)
        return Fitted(replace(result, mixture=replace(result.mixture, experts=experts)))

    def _answers(self, mixture: Mixture, readout: Tensor | None) -> Callable[[Tensor], Tensor]:
        return gated(mixture)

    def _keep(self, mixture: Mixture, readout: Tensor | None) -> None:
        experts = mixture.experts
        assert isinstance(experts, NoisyExperts)
        scale, flat = self._coding.scale, self._coding.flat
        intercept = experts.intercept.numpy()
        if isinstance(experts, Linear):
            slopes = experts.coef.numpy() / self.input_scale_
            intercept = intercept - slopes @ self.input_mean_
            self.coef_ = scale * (slopes[:, 0] if flat else slopes)
        intercept = scale * intercept + self._coding.mean
        noise = scale**2 * experts.noise.numpy()
        self.intercept_ = intercept[:, 0] if flat else intercept
        self.noise_variances_ = noise[:, 0] if flat else noise

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predicted targets, of the shape `y` had in `fit`; with `return_std` also their standard deviations.

        The variance is the mixture's own, Σ_j p(j | x)(σ_j² + m_j(x)²) − f(x)²; of models whose weights are no local
        means (trained in two steps or by gradient) it is Σ_j p(j | x) σ_j², σ_j² the squared error near component j.
        """
        if not return_std:
            return self._coding_of_fit().decode(self._predicted(X))
        p = len(self._coding_of_fit().mean)
        both = self._each_row(X, lambda mixture: mean_and_variance(mixture, self.training == "em"))
        std = self._coding.scale * np.sqrt(both[:, p:])
        return self._coding.decode(both[:, :p]), std[:, 0] if self._coding.flat else std

    def _coding_of_fit(self) -> RealTargets:
        check_is_fitted(self)
        return self._coding


class ENRBFRegressor(_MixtureRegressor):
    r"""Extended normalised RBF network: local linear models, blended by the posterior of a Gaussian mixture.

    .. math:: f(x) = \sum_j p(j \mid x)\,(w_j^\top x + b_j), \qquad
        p(j \mid x) \propto p(j)\,\mathcal N(x; \mu_j, \Sigma_j).

    EM maximises the joint log-likelihood of the rows, with weights ω,

    .. math:: \sum_n \omega_n \log \sum_j p(j)\,\mathcal N(x_n; \mu_j, \Sigma_j)\,
        \mathcal N(y_n; w_j^\top x_n + b_j, \sigma_j^2) - \frac\lambda2 \sum_j \frac{\|w_j\|^2}{\sigma_j^2},

    subject to a floor on all variances. It never falls. With full covariances and λ = 0 the model is the conditional
    mean of a full Gaussian mixture over (x, y).

    Parameters
    ----------
    n_components : int or "auto"
        Local models. "auto" takes the smallest number whose cross-validated root mean square error is within one
        standard error of the best, among 1 … `max_components` (every one up to 10, then steps of a fifth).
    covariance_type : "full", "diagonal" (or "diag"), "spherical" or "tied"
        Shape of the gates' covariances; "tied" is one full matrix for all.
    training : "em", "two-step" or "gradient"
        "em" maximises the likelihood above. "two-step" fits the mixture to the inputs alone, then all local models by
        one ridge regression on the activations. "gradient" starts where EM ends and lowers the squared error over all
        parameters by L-BFGS.
    regularization : float
        λ, on inputs and targets of unit variance; of all output weights where training is not by EM. Weights of rows
        count against it as in scikit-learn's `Ridge`; without it their unit means nothing.
    max_components, n_folds : int
        Largest number tried and folds used by ``n_components="auto"``.
    n_init : int
        EM runs; partitions of k-means over the inputs, of k-means over inputs and targets, and of random rows take
        turns. The one ahead after 30 iterations (on 20 000 rows, where there are more) goes on to its end, over all.
    init : "k-means++" or "random"
        "random" starts every run from random rows.
    max_iter, tol : int, float
        EM iterations at most, and the rise of the log-likelihood per row below which they stop.
    covariance_floor : float
        No covariance is below this share of the inputs' variance in any direction, no noise variance below this
        share of the targets'.
    time_budget : float or None
        Seconds that `fit` may take in all; EM then ends where it stands. So it does where the user interrupts it.
    scale_inputs : bool
        Standardise each column; else all columns are divided by one number.
    device, dtype, memory_limit, random_state
        As in `KernelBoostingRegressor`; `dtype` is how rows are held, sums and densities are always float64.
    verbose, callbacks
        A progress bar; functions called with each state of EM, of which one may ask to stop by returning True.

    Attributes
    ----------
    weights_, means_, covariances_ : the gates, in the inputs' own units (covariances k × D × D, or k × D)
    coef_, intercept_, noise_variances_ : the local linear models, in the targets' own units
    n_components_, n_iter_, stop_reason_ : how many components are in use, iterations done, why they ended, in words
    log_likelihood_path_ : penalised log-likelihood per row after each iteration
    cv_results_ : scores behind ``n_components="auto"``

    References
    ----------
    L. Xu, "RBF nets, mixture experts, and Bayesian Ying-Yang learning", Neurocomputing 19 (1998).
    Ma Li, "Computationally efficient models for high-dimensional and large-scale classification problems", thesis
    (2009), sections 2.3 to 2.5, table 2-1.

    Examples
    --------
    >>> from mercer import ENRBFRegressor
    >>> from mercer.datasets import make_sin2
    >>> X, y = make_sin2(random_state=0)
    >>> model = ENRBFRegressor(n_components=5, random_state=0).fit(X, y)
    >>> f, std = model.predict(X, return_std=True)
    >>> bool(model.score(X, y) > 0.5), model.coef_.shape
    (True, (5, 1))
    """

    _linear = True


class NRBFRegressor(_MixtureRegressor):
    r"""Normalised RBF network: local constants, blended by the posterior of a Gaussian mixture.

    .. math:: f(x) = \sum_j w_j\, p(j \mid x), \qquad p(j \mid x) \propto p(j)\,\mathcal N(x; \mu_j, \Sigma_j).

    Parameters
    ----------
    n_components : int or "auto"
        Basis functions; see `ENRBFRegressor`.
    training : "em", "two-step" or "gradient"
        "em" maximises the joint likelihood of inputs and targets (table 2-1). "two-step" fits the mixture to the
        inputs alone, then the weights by least squares, (ΦᵀΦ + λI)⁻¹Φᵀy. "gradient" starts where EM ends and lowers
        the squared error over all parameters by L-BFGS: the slowest, and on targets without noise the most accurate.
    regularization : float
        λ of the output weights for "two-step" and "gradient", on targets of unit variance.
    covariance_type, max_components, n_folds, n_init, init, max_iter, tol, covariance_floor, time_budget
        As in `ENRBFRegressor`.
    scale_inputs, device, dtype, memory_limit, random_state, verbose, callbacks
        As in `ENRBFRegressor`.

    Attributes
    ----------
    weights_, means_, covariances_ : the gates, in the inputs' own units
    intercept_, noise_variances_ : the output weights w_j, and the noise near each component
    n_components_, n_iter_, stop_reason_, log_likelihood_path_, cv_results_ : as in `ENRBFRegressor`; of "gradient" the
        path holds minus half the mean squared error

    References
    ----------
    Ma Li, "Computationally efficient models for high-dimensional and large-scale classification problems", thesis
    (2009), section 2.2, table 2-1.

    Examples
    --------
    >>> from mercer import NRBFRegressor
    >>> from mercer.datasets import make_sin2
    >>> X, y = make_sin2(random_state=0)
    >>> model = NRBFRegressor(n_components=8, training="two-step", random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.5), model.intercept_.shape
    (True, (8,))
    """

    _linear = False


def _variance(sample: Sample) -> Tensor:
    """The variance of each output, one of no variance counting as of one."""
    share = sample.weight / sample.total
    mean = (sample.y * share).sum(1, keepdim=True)
    variance = ((sample.y - mean).square() * share).sum(1)
    return torch.where(variance > 1e-24, variance, 1.0)
