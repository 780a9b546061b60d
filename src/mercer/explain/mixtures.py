r"""Radial kernels as mixtures of Gaussians: what makes them sums of products over the inputs.

With :math:`A = c\,\|(x - z)/\ell\|^2` (`Radial.coefficient`) and τ of a gamma distribution of shape ν,

.. math:: M_\nu(\sqrt A) = \mathbb{E}\, e^{-A/4\tau}, \qquad (1 + A)^{-\alpha} = \mathbb{E}\, e^{-A\tau}

for Matérn kernels of smoothness ν and the rational quadratic one (ν = α). The mean is taken by the trapezoidal rule in
x = log τ, of step h. Its integrand is analytic for \|Im x\| < π/2 and at most that of A = 0 there, whose integral along
Im x = y is (cos y)^{−ν}; hence for every A ≥ 0 the rule is off by at most

.. math:: \min_y \frac{2 (\cos y)^{-\nu}}{e^{2\pi y/h} - 1}

(L. N. Trefethen, J. A. C. Weideman, "The exponentially convergent trapezoidal rule", SIAM Review 56, 2014, theorem
5.1), and h is chosen by that. What lies beyond the last nodes has little of the mass.

Half as many nodes do if Gauss' rule is made for this sum of exponentials, in a variable z of which exp(−sA) is nearly a
polynomial for all A that occur: z = s^p/(s^p + c^p), for a few p and c. Its error is checked on a grid of
log A. The difference of two such sums is analytic for \|Im log A\| < π/2 and at most 2 there, so all but 1e-14 of it
has frequencies below 21, and its largest value is at most that on a grid of step g over cos(21g/2) (S. Bernstein).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.linalg import eigh_tridiagonal
from scipy.special import gammaln
from scipy.stats import gamma as gamma_distribution

#: By how much a kernel of unit variance is off; a quarter of it by the step, by what lies beyond the last nodes, by
#: scales left out for the distances at hand, and by Gauss' rule.
TOLERANCE = 5e-11
QUARTER = TOLERANCE / 4
#: A factor exp(−sa) with sa above FAR is zero to 13 digits. Scales that stand for infinity and for zero.
FAR, INFINITE, LEAST = 30.0, 1e60, 1e-30
#: Powers p and scales c of the variables that Gauss' rule is made in, and the step of the grid its error is checked on.
POWERS, CENTRES, GRID = (1 / 3, 1 / 2), (1.0, np.exp(2.0)), 0.1


@dataclass(frozen=True, eq=False)
class ExponentialSum:
    """φ(A) = Σ_q weights_q exp(−scales_q A); the last scale stands for infinity, where only A = 0 counts.

    >>> found = matern(1.5)
    >>> bool(abs(found.weights @ np.exp(-found.scales * 4.0) - 3 * np.exp(-2.0)) < 5e-11)
    True
    """

    scales: np.ndarray
    weights: np.ndarray
    most: float = np.inf  # the largest A it is for

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
    kept = ~far & (effect > QUARTER)
    scales, weights = shortest_sum(whole.scales[kept], whole.weights[kept], least, most)
    return ExponentialSum(np.append(scales, INFINITE), np.append(weights, whole.weights[far].sum()), most)


def shortest_sum(scales: np.ndarray, weights: np.ndarray, least: float, most: float) -> tuple[np.ndarray, np.ndarray]:
    """The shortest sum of exponentials found that is this one at 0 and from `least` to `most`."""
    best = scales, weights
    if len(scales) < 3 or least >= most:
        return best
    first = max(least, 1e-3 * QUARTER / scales.max())  # below, A times the largest scale is nothing
    A = np.exp(np.arange(np.log(first), np.log(most) + GRID, GRID))
    truth = np.exp(-np.outer(A, scales)) @ weights
    allowed = QUARTER * np.cos(21 * GRID / 2)
    for p in POWERS:
        for c in CENTRES:
            ratio = (scales / c) ** p
            diagonal, off_diagonal = lanczos(ratio / (1 + ratio), weights, len(best[0]) - 1)
            fewer, n = 0, len(diagonal)  # too few, and what is tried: first one less than the best
            while fewer < n:
                z, vectors = eigh_tridiagonal(diagonal[:n], off_diagonal[: n - 1])
                z = np.clip(z, 1e-300, 1 - 1e-16)
                few = c * (z / (1 - z)) ** (1 / p), vectors[0] ** 2 * weights.sum()
                if np.abs(np.exp(-np.outer(A, few[0])) @ few[1] - truth).max() <= allowed:
                    best = few
                elif n == len(diagonal):
                    break
                else:
                    fewer = n
                n = (fewer + min(len(best[0]), len(diagonal))) // 2
    return best


def lanczos(z: np.ndarray, weights: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """The recurrence of the polynomials that are orthogonal for weights at z: diagonal and off-diagonal."""
    basis = np.empty((most, len(z)))
    diagonal, off_diagonal = np.empty(most), np.empty(most)
    q = np.sqrt(weights / weights.sum())
    for k in range(most):
        basis[k] = q
        rest = z * q
        diagonal[k] = rest @ q
        for _ in range(2):  # twice is enough
            rest = rest - basis[: k + 1].T @ (basis[: k + 1] @ rest)
        off_diagonal[k] = np.linalg.norm(rest)
        if off_diagonal[k] < 1e-14:
            return diagonal[: k + 1], off_diagonal[: k + 1]
        q = rest / off_diagonal[k]
    return diagonal, off_diagonal


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
    while step_error(h, shape) > QUARTER:
        h *= 0.97
    lowest = max((np.log(0.5 * QUARTER) + gammaln(shape + 1)) / shape, np.log(LEAST))
    highest = np.log(gamma_distribution.isf(0.5 * QUARTER, shape))
    x = h * np.arange(np.floor(lowest / h), np.ceil(highest / h) + 1)
    return np.exp(x), h * np.exp(shape * x - np.exp(x) - gammaln(shape))
