"""Radial basis function mixtures for numbers: `NRBFRegressor` and `ENRBFRegressor` (Thesis09, chapter 2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mercer.base.estimator import estimator_dataclass
from mercer.base.intervals import Intervals
from mercer.base.out_of_fold import FOLDED_ROWS, LEFT_OUT_ROWS
from mercer.base.parameters import AUTO, integer, literal, number
from mercer.engine import Sample
from mercer.mixture.closed_form import (
    LEAST_OF_SLOPES,
    PENALTIES,
    GateSearch,
    doubled_sizes,
    located_size,
    location_reason,
)
from mercer.mixture.em import EMResult, Mixture
from mercer.mixture.estimator import (
    MixtureEstimator,
    MixtureRefits,
    conditional_mean,
    leave_one_out_scale,
    mean_and_variance,
)
from mercer.mixture.experts import ConstantExperts, Experts, LinearExperts, NoExperts, NoisyExperts
from mercer.mixture.features import all_columns
from mercer.mixture.fit import MixtureSettings
from mercer.mixture.n_components import ChosenSize, Trials
from mercer.mixture.output_weights import fit_gradient, least_squares, local_noise, misleading
from mercer.mixture.uncertainty import UncertainMixture, weight_posterior
from mercer.parts import require
from mercer.preprocessing.inputs import InputMap, RealTargets
from mercer.preprocessing.read import TableData

#: Ways of training, each with EM's share of the time budget.
TRAININGS = {"leave-one-out": 1.0, "em": 1.0, "two-step": 0.9, "gradient": 0.5}


@dataclass(eq=False, repr=False)
class MixtureRegressor(UncertainMixture, MixtureEstimator):
    """Targets are numbers, in one column or several.

    Parameters
    ----------
    training : "leave-one-out", "em", "two-step" or "gradient", default "leave-one-out"
        "leave-one-out" takes centres by k-means and one covariance for all gates: of the shape `covariance_type`, where
        "diagonal" means one over the squared relevance of each column if relevances lower the error. Output weights are
        a ridge regression on the activations, (ΦᵀΦ + λI)⁻¹Φᵀy; the width of the gates, λ and the size have its least
        leave-one-out errors, in closed form on at most 1000 rows. The most accurate, but weights of wide gates are no
        local means: to read local models, take "em". It maximises the joint likelihood of inputs and targets.
        "two-step" fits the mixture to the inputs alone, then the same ridge regression. "gradient" starts where EM ends
        and lowers the squared error over all parameters by L-BFGS: the slowest.
    regularization : "auto" or float, default "auto"
        λ, on inputs and targets of unit variance: of the slopes of local models where training is by EM, else of all
        output weights. "auto" is found by leave-one-out errors, and 0.01 for the other trainings. Weights of rows count
        against a number as in scikit-learn's `Ridge`; without it their unit means nothing.

    Attributes
    ----------
    intercept_ : ndarray of shape (k,) or (k, p)
        The local models at the origin, in the targets' own units.
    noise_variances_ : ndarray of shape (k,) or (k, p)
        The noise of each.
    log_likelihood_path_ : ndarray
        Penalised log-likelihood per row after each iteration; of "gradient" minus half the mean squared error.
    """

    _: KW_ONLY
    training: Annotated[str, literal(*TRAININGS)] = "leave-one-out"
    regularization: Annotated[float | str, AUTO | number(0.0)] = "auto"

    _is_classifier: ClassVar[bool] = False
    #: Whether local models have slopes.
    _linear: ClassVar[bool]

    def _encode(self, targets: RealTargets, y: np.ndarray) -> np.ndarray:
        n_outputs = 1 if y.ndim == 1 else y.shape[1]
        require(n_outputs == len(targets.mean), "y", f"of {len(targets.mean)} columns, as in fit", n_outputs)
        return targets.encode(y)

    def _score(self, targets: RealTargets, predictions: Tensor, y: Tensor, weight: Tensor) -> float:
        """Minus the root mean square error, in the targets' units."""
        squares = float(((predictions - y).square().mean(0) * weight).sum() / weight.sum())
        return -float(targets.scale) * squares**0.5

    def _em_share(self) -> float:
        return TRAININGS[self.training]

    def _start(self, k: int, sample: Sample, ridge: float) -> NoisyExperts:
        """The local models before the first M step."""
        variance, floor = _variance(sample), self.covariance_floor
        if self._linear:
            return LinearExperts.start(k, sample.rows.n_columns, variance, floor, ridge)
        return ConstantExperts.start(k, variance, floor)

    def _experts(self, sample: Sample, setting: MixtureSettings) -> Callable[[int], Experts]:
        return lambda k: NoExperts() if self.training == "two-step" else self._start(k, sample, setting.ridge)

    def _size(self, sample: Sample, trials: Trials, rng: np.random.Generator) -> ChosenSize:
        if self.training != "leave-one-out":
            return super()._size(sample, trials, rng)
        given, k = self.regularization, self.n_components
        least = LEAST_OF_SLOPES if self._linear else 0.0
        penalties = [c for c in PENALTIES if c >= least] if isinstance(given, str) else [trials.setting.ridge]
        sizes = doubled_sizes(self.max_components) if isinstance(k, str) else [k]
        return located_size(sample, GateSearch(trials.setting, sizes, self._linear, penalties), rng)

    def _train(
        self, sample: Sample, k: int, setting: MixtureSettings, rng: np.random.Generator, start: Mixture | None = None
    ) -> EMResult:
        if self.training == "leave-one-out":
            assert start is not None
            found = location_reason(setting.clock, "gates, size and penalty")
            result = EMResult(start, [], found)
        else:
            start = replace(start, experts=NoExperts()) if self.training == "two-step" and start is not None else start
            result = super()._train(sample, k, setting, rng, start)
        if self.training == "em" and not misleading(sample, result.mixture):
            return result
        ridge = setting.ridge
        if self.training == "gradient":
            limits = self.max_iter, self.tol, setting.clock
            result, weights = fit_gradient(sample, result.mixture, ridge, self._linear, *limits)
        else:
            weights = least_squares(sample, result.mixture, ridge, self._linear)
        if self.training == "em":
            why = "output weights are least squares, since local means predicted these rows worse than one number does"
            result = replace(result, stop_reason=result.stop_reason.noting(why))
        experts = self._start(result.mixture.n_components, sample, ridge)
        noise = torch.maximum(local_noise(sample, result.mixture, weights), experts.floor)
        slopes = {"coef": weights[:, 1:].mT.contiguous()} if self._linear else {}
        experts = replace(experts, intercept=weights[:, 0], noise=noise, **slopes)
        if not result.path:
            result = replace(result, path=[-0.5 * float(noise.mean())])
        return replace(result, mixture=replace(result.mixture, experts=experts))

    def _described(self, fitted: EMResult, inputs: InputMap, targets: RealTargets, sample: Sample) -> dict[str, Any]:
        experts = fitted.mixture.experts
        assert isinstance(experts, NoisyExperts)
        intercept, noise, coef = experts.intercept.numpy(), experts.noise.numpy(), None
        with np.errstate(over="ignore", invalid="ignore"):  # in units of 1e200 a square is infinite, and so are slopes
            if isinstance(experts, LinearExperts):
                slopes = experts.coef.numpy() / inputs.scale
                intercept = intercept - slopes @ inputs.mean
                coef = targets.scale * (slopes[:, 0] if targets.flat else slopes)
            intercept = targets.scale * intercept + targets.mean
            noise = noise * targets.scale * targets.scale
        if targets.flat:
            intercept, noise = intercept[:, 0], noise[:, 0]
        local = self.training == "em"
        return {"coef_": coef, "intercept_": intercept, "noise_variances_": noise, "_local_means": local}

    def _calibrated(
        self, fitted: EMResult, targets: RealTargets, given: TableData, refits: MixtureRefits
    ) -> dict[str, Any]:
        sample, local = refits.sample, self.training == "em"
        folded = not sample.rows.shard.divided and sample.n_alive <= FOLDED_ROWS
        predict = partial(_mean_and_variance, disagree=local)
        index, found = (refits.out_of_fold(predict) if folded else None) or (sample.spaced(LEFT_OUT_ROWS), None)
        part, mixture = sample.part(index), fitted.mixture.to(sample.plan.device)
        if found is None:
            f, std, kept = leave_one_out_scale(mixture, sample, part, disagree=local)
        else:
            f, variance = np.hsplit(found, 2)
            std, kept = np.sqrt(variance), np.ones((len(f), 1))
        return {
            "intervals_": Intervals.calibrated(part, index, given, f, std, kept),
            "_weight_posterior": weight_posterior(sample, mixture, refits.trials.setting.ridge, self._linear),
        }

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predicted targets, of the shape `y` had in `fit`; with `return_std` also their standard deviations.

        The variance is the mixture's own, Σ_j p(j | x)(σ_j² + m_j(x)²) − f(x)²; of models whose weights are no local
        means (trained in two steps or by gradient) it is Σ_j p(j | x) σ_j², σ_j² the squared error near component j.
        """
        check_is_fitted(self)
        targets = self.targets_
        if not return_std:
            return targets.decode(self._each_row(X, conditional_mean))
        values, std = self._location_and_scale(X)
        std = targets.scale * std
        return targets.decode(values), std[:, 0] if targets.flat else std

    def _location_and_scale(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        both = self._each_row(X, lambda mixture: mean_and_variance(mixture, disagree=self._local_means))
        values, variance = np.hsplit(both, 2)
        return values, np.sqrt(variance)

    def _typical_scale(self) -> np.ndarray:
        mixture = self.mixture_.to("cpu")
        gates = mixture.gates
        f, variance = mean_and_variance(mixture, disagree=self._local_means)(gates.means.T).chunk(2)
        scale = variance.sqrt().T.numpy()
        if self.intervals_.local is not None:
            scale = scale * self.intervals_.local.at(gates.means.numpy(), f.T.numpy(), self.means_)
        return np.sqrt(gates.weights.numpy() @ scale**2)[None]


@estimator_dataclass
class ENRBFRegressor(MixtureRegressor):
    r"""Extended normalised RBF network: local linear models, blended by the posterior of a Gaussian mixture.

    .. math:: f(x) = \sum_j p(j \mid x)\,(w_j^\top x + b_j), \qquad
        p(j \mid x) \propto p(j)\,\mathcal N(x; \mu_j, \Sigma_j).

    EM maximises the joint log-likelihood of the rows, with weights ω,

    .. math:: \sum_n \omega_n \log \sum_j p(j)\,\mathcal N(x_n; \mu_j, \Sigma_j)\,
        \mathcal N(y_n; w_j^\top x_n + b_j, \sigma_j^2) - \frac\lambda2 \sum_j \frac{\|w_j\|^2}{\sigma_j^2},

    subject to a floor on all variances. It never falls. With full covariances and λ = 0 the model is the conditional
    mean of a full Gaussian mixture over (x, y).

    Attributes
    ----------
    coef_ : ndarray of shape (k, D) or (k, p, D)
        Slopes of the local linear models, in the inputs' and targets' own units.

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
    >>> print(f"R² = {model.score(X, y):.1f}")
    R² = 0.7
    >>> model.coef_.shape
    (5, 1)
    """

    _linear: ClassVar[bool] = True


@estimator_dataclass
class NRBFRegressor(MixtureRegressor):
    r"""Normalised RBF network: local constants, blended by the posterior of a Gaussian mixture.

    .. math:: f(x) = \sum_j w_j\, p(j \mid x), \qquad p(j \mid x) \propto p(j)\,\mathcal N(x; \mu_j, \Sigma_j).

    Attributes
    ----------
    intercept_ : ndarray of shape (k,) or (k, p)
        The output weights w_j, in the targets' own units.

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
    >>> print(f"R² = {model.score(X, y):.1f}")
    R² = 0.6
    >>> model.intercept_.shape
    (8,)
    """

    _: KW_ONLY
    max_components: Annotated[int, integer()] = 160

    _linear: ClassVar[bool] = False


def _mean_and_variance(fitted: EMResult, sample: Sample, disagree: bool) -> np.ndarray:
    x = all_columns(sample)
    return mean_and_variance(fitted.mixture.to(x.device), disagree)(x).T.double().cpu().numpy()


def _variance(sample: Sample) -> Tensor:
    """The variance of each output; 1 for a constant output."""
    share = sample.weight / sample.total_weight
    total = sample.rows.total
    mean = total((sample.Y.T * share).sum(1, keepdim=True))
    variance = total(((sample.Y.T - mean).square() * share).sum(1))
    return torch.where(variance > 1e-24, variance, 1.0)
