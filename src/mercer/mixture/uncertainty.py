r"""Uncertainty of mixtures of local experts, in parts.

Given the gates, a mixture is linear in its output weights: :math:`f(x) = \phi(x)^\top w` with the activations
:math:`\phi_j = p(j \mid x)`, times 1 and every input where local models have slopes. Their posterior covariance is
:math:`\sigma^2 A^{-1}`, :math:`A = \Phi^\top\Omega\Phi + \lambda I`, and the function has the variance
:math:`\sigma^2 \phi^\top A^{-1} \phi`. For classes, the log odds have the variance :math:`\phi^\top A^{-1} \phi` with
the mean curvature p(1 − p) of the log loss in the weights :math:`\Omega` (Laplace's method). Noise is the mixture's own
predictive variance, :math:`\sum_j p(j \mid x)(\sigma_j^2 + m_j(x)^2) - f(x)^2` where weights are local means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from mercer.base.uncertainty import (
    WITHIN,
    ClassUncertaintyMixin,
    UncertainRegressor,
    normal_draws,
)
from mercer.data import RowSource
from mercer.engine import Sample
from mercer.linalg import cholesky
from mercer.mixture.em import FAR, Mixture, posterior
from mercer.mixture.features import all_columns
from mercer.mixture.output_weights import local_features, reduce_activations
from mercer.parts import require

#: Most output weights whose covariance is kept, 32 MB of numbers.
MAX_WEIGHTS = 2000
#: Most of the training rows that the reach is taken from.
REACH_ROWS = 2000


@dataclass(frozen=True)
class WeightPosterior:
    """A factor of the precision of the output weights (R × R, for noise of variance one) given the gates.

    `leverage` is the mean of φᵀA⁻¹φ over the training rows, `reach` the distance from the nearest gate within which
    99 % of them are. The factor is empty where there are more than `MAX_WEIGHTS` weights.
    """

    factor: np.ndarray
    leverage: float
    reach: float


def weight_posterior(
    sample: Sample, mixture: Mixture, ridge: float, linear: bool, curvature: float = 1.0
) -> WeightPosterior:
    """The posterior of output weights, from sums over all rows; weights of rows have mean one.

    A penalty of zero is replaced by that of one row for each weight (the unit information prior).
    """
    part = sample.part(sample.spaced(REACH_ROWS))
    x = all_columns(part)
    reach = float(torch.quantile(gate_distance(mixture)(x)[0], WITHIN)) if x.shape[1] else 0.0
    reach = float(sample.rows.shard.group.max(reach))  # the same on all processes
    R = mixture.n_components * (1 + sample.rows.n_columns if linear else 1)
    if R > MAX_WEIGHTS:
        return WeightPosterior(np.empty((0, 0)), 0.0, reach)

    def statistic(A: Tensor, x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor]:
        phi = local_features(A, x, linear)
        return ((phi * (curvature * w)) @ phi.T,)

    (G,) = reduce_activations(sample, mixture, statistic, width=2 * R)
    precision = G.clone()
    precision.diagonal().add_(ridge or curvature)
    factor = cholesky(precision)[0]
    used = torch.cholesky_solve(G, factor).diagonal().sum() / (curvature * max(sample.total_weight, 1.0))
    return WeightPosterior(factor.cpu().numpy(), float(used.clamp(0.0, 1.0 / curvature)), reach)


def gate_distance(mixture: Mixture) -> Callable[[Tensor], Tensor]:
    """Mahalanobis distance from the nearest gate, 1 × n."""
    return lambda x: mixture.gates.squared_distances(x.clamp(-FAR, FAR)).amin(0, keepdim=True).sqrt()


class _GateUncertainty:
    """The shared part of regressors and classifiers: distances from gates, and φᵀA⁻¹φ."""

    _weight_posterior: ClassVar[WeightPosterior]
    #: Whether local models have slopes.
    _linear: ClassVar[bool]
    _each_row: Callable[..., np.ndarray]
    _each_read_row: Callable[..., np.ndarray]

    def _known_posterior(self) -> WeightPosterior:
        known = hasattr(self, "_weight_posterior")
        require(known, "the model", "fitted again to have predict_uncertainty", "a file of an earlier version")
        return self._weight_posterior

    def _relative_distances(self, source: RowSource) -> np.ndarray:
        reach = max(self._known_posterior().reach, np.finfo(float).tiny)
        return self._each_read_row(source, gate_distance)[:, 0] / reach

    def _variance(self, X: Any) -> np.ndarray:
        """φᵀA⁻¹φ at rows, n × 1."""
        factor = self._known_posterior().factor
        wanted = f"of at most {MAX_WEIGHTS} output weights for predict_uncertainty"
        require(len(factor) > 0, "the model", wanted, "more: take a smaller n_components")

        def make(mixture: Mixture) -> Callable[[Tensor], Tensor]:
            log_gates, L = mixture.log_gates(), torch.as_tensor(factor, device=mixture.gates.weights.device)

            def answer(x: Tensor) -> Tensor:
                phi = local_features(posterior(log_gates(x))[0], x, self._linear)
                return torch.linalg.solve_triangular(L, phi, upper=False).square().sum(0, keepdim=True)

            return answer

        return self._each_row(X, make)


class UncertainMixture(_GateUncertainty, UncertainRegressor):
    """The parts of the uncertainty of a regressor."""

    mixture_: Any
    _local_means: ClassVar[bool]
    #: The root mean square of the scale at the centres of the gates, weighted by their shares, 1 × p.
    _typical_scale: Callable[[], np.ndarray]

    def _noise_and_model(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        h = min(self._known_posterior().leverage, 0.5)
        whole = 1 + h / (1 - h)  # of held-out residuals, in units of the noise
        deviation, variance = self._score_deviation(), self._variance(X)
        size = deviation * self._values_and_scale(X)[1]
        return size / np.sqrt(whole), np.sqrt(variance / whole) * deviation * self._typical_scale()


class UncertainClasses(_GateUncertainty, ClassUncertaintyMixin):
    """The parts of the uncertainty of a classifier; its `_log_probabilities(X)` are those of the mixture itself."""

    _calibration: Any
    _log_probabilities: Callable[[Any], np.ndarray]

    def _probability_draws(self, X: Any) -> Iterator[np.ndarray]:
        log_p, deviation = self._log_probabilities(X), np.sqrt(self._variance(X))
        two = log_p.shape[1] == 2
        for z in normal_draws(1 if two else log_p.shape[1]):
            yield self._calibration.probabilities(log_p + deviation * (np.append(0.0, z) if two else z))
