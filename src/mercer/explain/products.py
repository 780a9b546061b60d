r"""Shapley values of Π_d exp(−s a_d), and of mixtures of such over s: the integral over t by Gauss' rule, s by s.

With ⌈D/2⌉ points the rule is exact. The scales of a mixture need less where their weight is small, or where all factors
are near one: on the ellipse of Bernstein with parameter ρ around [0, 1] both \|t\| and \|1 − t\| are at most
:math:`M = \frac12 + (\rho + 1/\rho)/4`, so that the integrand is at most :math:`\min(M^{D-1}, e^{M s A})` there, and a
rule of T points is off by

.. math:: \tfrac83\, \frac{\rho^{-2T}}{1 - \rho^{-2}} \min(M^{D-1}, e^{M s A})

at most: it is exact for the first 2T Chebyshev polynomials, coefficients of the others are below :math:`2\rho^{-k}`
times that bound, and odd ones vanish.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from mercer.explain import product_code
from mercer.explain.mixtures import INFINITE, QUARTER, ExponentialSum
from mercer.explain.product_code import Quadrature
from mercer.explain.subsets import shapley_by_subsets
from mercer.explain.terms import Term

#: Inputs up to which subsets are faster than mixtures: where torch computes the mixtures, and where machine code does.
MAX_SUBSET_INPUTS, MAX_SUBSET_INPUTS_COMPILED = 10, 7


@lru_cache(maxsize=256)
def quadrature_for(mixture: ExponentialSum | None, n_inputs: int) -> Quadrature:
    """Scales and points for a mixture, or for one product."""
    exact = (n_inputs + 1) // 2
    if mixture is None:
        counts, scales, masses = np.array([exact]), np.ones(1), np.ones(1)
    else:
        scales, masses = mixture.scales, mixture.weights
        allowed = QUARTER / (len(scales) * np.maximum(masses, QUARTER))
        reach = scales * mixture.most
        counts = np.full(len(scales), exact)
        for T in range(exact - 1, 0, -1):
            counts[rule_error(T, n_inputs, reach) <= allowed] = T
    rules = [gauss(int(T)) for T in counts]
    points = tuple((nodes + 1) / 2 for nodes, _ in rules)
    return Quadrature(scales, points, tuple(w * mass / 2 for (_, w), mass in zip(rules, masses, strict=True)))


@lru_cache(maxsize=256)
def gauss(T: int) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights of Gauss' rule on [−1, 1]."""
    return np.polynomial.legendre.leggauss(T)


def rule_error(T: int, n_inputs: int, reach: np.ndarray) -> np.ndarray:
    """The bound of this module's head for T points, by the largest sA."""
    rho = np.geomspace(1.2, 200.0, 60)[:, None]
    M = 0.5 + (rho + 1 / rho) / 4
    log_size = np.minimum((n_inputs - 1) * np.log(M), M * reach)
    return np.exp(np.min(np.log(8 / 3) - 2 * T * np.log(rho) - np.log1p(-(rho**-2)) + log_size, 0))


def term_shapley(term: Term, exponents: Tensor, W: Tensor) -> Tensor:
    """Shapley values of a term's kernel times weights W (m × p), n × D × p, from exponents D × n × m."""
    if term.mixture is None:
        return (sum_over_scales(exponents, quadrature_for(None, len(exponents))) @ W).transpose(0, 1)
    if subsets_are_faster(exponents):
        return shapley_by_subsets(*term.profile(exponents), W)
    rule = quadrature_for(restricted_mixture(term.mixture, exponents), len(exponents))
    return (sum_over_scales(exponents, rule) @ W).transpose(0, 1)


def subsets_are_faster(exponents: Tensor) -> bool:
    """Whether a kernel's values along all sets of the inputs take less time than its mixture."""
    n_inputs = len(exponents)
    compiled = product_code.is_worthwhile(exponents, 1 << n_inputs)
    most = MAX_SUBSET_INPUTS_COMPILED if compiled else MAX_SUBSET_INPUTS
    return n_inputs <= most


def restricted_mixture(mixture: ExponentialSum, exponents: Tensor) -> ExponentialSum:
    """The mixture for the exponents at hand."""
    least = exponents.masked_fill(exponents == 0, INFINITE).min()
    return mixture.restrict(float(least), float(exponents.sum(0).max()))


def product_shapley(exponents: Tensor) -> Tensor:
    """Shapley values of Π_d exp(−a_d), n × D × m, from exponents a (D × n × m).

    >>> product_shapley(torch.tensor([0.0, 2.0], dtype=torch.float64).log().neg()[:, None, None]).flatten().tolist()
    [-1.5, 0.5]
    """
    return sum_over_scales(exponents, quadrature_for(None, len(exponents))).transpose(0, 1)


def sum_over_scales(exponents: Tensor, rule: Quadrature) -> Tensor:
    """Σ over scales of the values of their products, as exponents D × n × m."""
    if product_code.is_worthwhile(exponents, rule.factors):
        return product_code.sum_over_scales(exponents, rule)
    total, factors, unit = None, torch.empty_like(exponents), exponents.new_ones(1)
    for scale, points, weights in zip(rule.scales.tolist(), rule.points, rule.weights, strict=True):
        deviation = torch.mul(exponents, -scale)  # u − 1: of one product with all its digits where u is near one
        deviation = deviation.expm1_() if len(rule.scales) == 1 else deviation.exp_().sub_(1.0)
        parts = torch.zeros_like(deviation)
        for t, weight in zip(points.tolist(), weights.tolist(), strict=True):
            torch.add(unit, deviation, alpha=t, out=factors)
            parts.addcdiv_(factors.prod(0), factors, value=weight)
        total = parts.mul_(deviation) if total is None else total.addcmul_(parts, deviation)
    assert total is not None
    return total
