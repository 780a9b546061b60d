r"""Radial kernels as mixtures of Gaussians, which are sums of products over the inputs.

With :math:`A = c\,\|(x - z)/\ell\|^2` (`Radial.coefficient`) and τ of a gamma distribution of shape ν,

.. math:: M_\nu(\sqrt A) = \mathbb{E}\, e^{-A/4\tau}, \qquad (1 + A)^{-\alpha} = \mathbb{E}\, e^{-A\tau}

for Matérn kernels of smoothness ν and the rational quadratic one (ν = α). The mean is taken by the trapezoidal rule in
x = log τ, of step h. Its integrand is analytic for \|Im x\| < π/2 and at most that of A = 0 there, whose integral along
Im x = y is (cos y)^{−ν}; hence for every A ≥ 0 the rule is off by at most

.. math:: \min_y \frac{2 (\cos y)^{-\nu}}{e^{2\pi y/h} - 1}

(L. N. Trefethen, J. A. C. Weideman, "The exponentially convergent trapezoidal rule", SIAM Review 56, 2014, theorem
5.1), and h is chosen by that. The range beyond the last nodes has little of the mass.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import gammaln
from scipy.stats import gamma as gamma_distribution

#: By how much a kernel of unit variance is off; a third of it by the step, by what lies beyond the last nodes, and by
#: scales left out for the distances at hand.
TOLERANCE = 5e-11
THIRD = TOLERANCE / 3
#: A factor exp(−sa) with sa above FAR is zero to 13 digits. Scales that stand for infinity and for zero.
FAR, INFINITE, LEAST = 30.0, 1e60, 1e-30


@dataclass(frozen=True, eq=False)
class ExponentialSum:
    """φ(A) = Σ_q weights_q exp(−scales_q A); the last scale stands for infinity, where only A = 0 counts.

    >>> found = matern(1.5)
    >>> bool(abs(found.weights @ np.exp(-found.scales * 4.0) - 3 * np.exp(-2.0)) < 5e-11)
    True
    """

    scales: np.ndarray
    weights: np.ndarray

    def restrict(self, least: float, most: float) -> ExponentialSum:
        """A shorter sum for sums A of exponents none of which is between 0 and `least`, and no sum above `most`.

        `most` is taken to a power of four and `least` to one of 2^16, so that few are computed.
        """
        low, high = (np.log2(max(bound, LEAST)) for bound in (least, most))
        return _restrict(self, 16 * int(np.floor(low / 16)), 2 * int(np.ceil(high / 2)))


@lru_cache(maxsize=256)
def _restrict(whole: ExponentialSum, low: int, high: int) -> ExponentialSum:
    """Scales at which every exponent but 0 is far are one; those at which all are near tell nothing apart."""
    least, most = 2.0**low, 2.0**high
    far = whole.scales * least > FAR
    effect = np.cumsum(whole.weights * np.minimum(whole.scales * most, 1.0))
    kept = ~far & (effect > THIRD)
    weights = np.append(whole.weights[kept], whole.weights[far].sum())
    return ExponentialSum(np.append(whole.scales[kept], INFINITE), weights)


@lru_cache
def matern(smoothness: float) -> ExponentialSum:
    """The Matérn kernel of √A."""
    tau, weights = _nodes(smoothness)
    return ExponentialSum(np.append(0.25 / tau[::-1], INFINITE), np.append(weights[::-1], 1 - weights.sum()))


@lru_cache
def rational_quadratic(alpha: float) -> ExponentialSum:
    """(1 + A)^(−α)."""
    tau, weights = _nodes(alpha)
    return ExponentialSum(np.append(tau, INFINITE), np.append(weights, 0.0))


def step_error(h: float, shape: float) -> float:
    """The bound of this module's head."""
    y = np.linspace(0.05, 1.57, 400)
    log_bound = np.log(2.0) - shape * np.log(np.cos(y)) - np.log(np.expm1(2 * np.pi * y / h))
    return float(np.exp(np.min(log_bound)))


def _nodes(shape: float) -> tuple[np.ndarray, np.ndarray]:
    """Values of τ in rising order and their weights."""
    h = 1.0
    while step_error(h, shape) > THIRD:
        h *= 0.97
    lowest = max((np.log(0.5 * THIRD) + gammaln(shape + 1)) / shape, np.log(LEAST))
    highest = np.log(gamma_distribution.isf(0.5 * THIRD, shape))
    x = h * np.arange(np.floor(lowest / h), np.ceil(highest / h) + 1)
    return np.exp(x), h * np.exp(shape * x - np.exp(x) - gammaln(shape))
