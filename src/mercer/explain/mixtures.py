r"""Radial kernels as mixtures of Gaussians: what makes them sums of products over the inputs.

With :math:`A = c\,\|(x - z)/\ell\|^2` (`Radial.sharpness`) and τ of a gamma distribution of shape ν,

.. math:: M_\nu(\sqrt A) = \mathbb{E}\, e^{-A/4\tau}, \qquad (1 + A)^{-\alpha} = \mathbb{E}\, e^{-A\tau}

for Matérn kernels of smoothness ν and the rational quadratic one (ν = α). The mean is taken by the trapezoidal rule in
x = log τ, of step h. Its integrand is analytic for \|Im x\| < π/2 and at most that of A = 0 there, whose integral along
Im x = y is (cos y)^{−ν}; hence for every A ≥ 0 the rule is off by at most

.. math:: \min_y \frac{2 (\cos y)^{-\nu}}{e^{2\pi y/h} - 1}

(L. N. Trefethen, J. A. C. Weideman, "The exponentially convergent trapezoidal rule", SIAM Review 56, 2014, theorem
5.1), and h is chosen by that. What lies beyond the last nodes has no more than `TOLERANCE` of the mass.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import gammaln
from scipy.stats import gamma as gamma_distribution

#: By how much a kernel of unit variance is off: half of it by the step, half by what lies beyond the last nodes.
TOLERANCE = 5e-11
#: A factor exp(−sa) with sa above FAR is zero to 13 digits. Scales that stand for infinity and for zero.
FAR, INFINITE, LEAST = 30.0, 1e60, 1e-30


@dataclass(frozen=True)
class Mixture:
    """φ(A) = Σ_q weights_q exp(−scales_q A); the last scale stands for infinity, where only A = 0 counts.

    >>> import numpy as np
    >>> from mercer.explain.mixtures import matern
    >>> found = matern(1.5)
    >>> bool(abs(found.weights @ np.exp(-found.scales * 4.0) - 3 * np.exp(-2.0)) < 5e-11)
    True
    """

    scales: np.ndarray
    weights: np.ndarray

    def within(self, least: float, most: float) -> Mixture:
        """The same for sums A of exponents none of which is between 0 and `least`, and no sum above `most`.

        Scales at which every exponent but 0 is far are one; those at which all are near add nothing to what is
        told apart.
        """
        far = self.scales * least > FAR
        effect = np.cumsum(self.weights * np.minimum(self.scales * most, 1.0))
        kept = ~far & (effect > 0.5 * TOLERANCE)
        scales, weights = self.scales[kept], self.weights[kept]
        return Mixture(np.append(scales, INFINITE), np.append(weights, self.weights[far].sum()))


@lru_cache
def matern(smoothness: float) -> Mixture:
    """The Matérn kernel of √A."""
    tau, weights = _nodes(smoothness)
    return Mixture(np.append(0.25 / tau[::-1], INFINITE), np.append(weights[::-1], 1 - weights.sum()))


@lru_cache
def rational_quadratic(alpha: float) -> Mixture:
    """(1 + A)^(−α)."""
    tau, weights = _nodes(alpha)
    return Mixture(np.append(tau, INFINITE), np.append(weights, 0.0))


def step_error(h: float, shape: float) -> float:
    """The bound of this module's head."""
    y = np.linspace(0.05, 1.57, 400)
    log_bound = np.log(2.0) - shape * np.log(np.cos(y)) - np.log(np.expm1(2 * np.pi * y / h))
    return float(np.exp(np.min(log_bound)))


def _nodes(shape: float) -> tuple[np.ndarray, np.ndarray]:
    """Values of τ in rising order and their weights."""
    h = 1.0
    while step_error(h, shape) > 0.5 * TOLERANCE:
        h *= 0.97
    lowest = max((np.log(0.25 * TOLERANCE) + gammaln(shape + 1)) / shape, np.log(LEAST))
    highest = np.log(gamma_distribution.isf(0.25 * TOLERANCE, shape))
    x = h * np.arange(np.floor(lowest / h), np.ceil(highest / h) + 1)
    return np.exp(x), h * np.exp(shape * x - np.exp(x) - gammaln(shape))
