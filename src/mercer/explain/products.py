"""Shapley values of Π_d exp(−s a_d), and of mixtures of such over s: the integral over t by Gauss' rule, s by s.

With ⌈D/2⌉ points the rule is exact.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from mercer.explain import product_code
from mercer.explain.product_code import ProductSum
from mercer.explain.subsets import shapley_by_subsets
from mercer.explain.terms import INFINITE, ExponentialSum, Term

#: Inputs up to which subsets are faster than mixtures: where torch computes the mixtures, and where machine code does.
MAX_SUBSET_INPUTS, MAX_SUBSET_INPUTS_COMPILED = 10, 8


@lru_cache(maxsize=256)
def product_sum(mixture: ExponentialSum | None, n_inputs: int) -> ProductSum:
    """The products of a mixture, or the one product without it, with the exact rule for this many inputs."""
    scales, masses = (np.ones(1), np.ones(1)) if mixture is None else (mixture.scales, mixture.weights)
    nodes, weights = np.polynomial.legendre.leggauss((n_inputs + 1) // 2)
    return ProductSum(scales, masses, (nodes + 1) / 2, weights / 2)


def term_shapley(term: Term, exponents: Tensor, W: Tensor) -> Tensor:
    """Shapley values of a term's kernel times weights W (m × p), n × D × p, from exponents D × n × m."""
    if term.mixture is None:
        return (sum_over_scales(exponents, product_sum(None, len(exponents))) @ W).transpose(0, 1)
    if subsets_are_faster(exponents):
        return shapley_by_subsets(*term.profile(exponents), W)
    rule = product_sum(restricted_mixture(term.mixture, exponents), len(exponents))
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


def sum_over_scales(exponents: Tensor, rule: ProductSum) -> Tensor:
    """Shapley values of a sum of products of exponents a (D × n × m), in the same shape.

    >>> a = torch.tensor([0.0, 2.0], dtype=torch.float64).log().neg()[:, None, None]
    >>> sum_over_scales(a, product_sum(None, 2)).flatten().tolist()
    [-1.5, 0.5]
    """
    if product_code.is_worthwhile(exponents, rule.factors):
        return product_code.sum_over_scales(exponents, rule)
    total, factors, unit = None, torch.empty_like(exponents), exponents.new_ones(1)
    for scale, mass in zip(rule.scales.tolist(), rule.masses.tolist(), strict=True):
        deviation = torch.mul(exponents, -scale)  # u − 1: of one product with all its digits where u is near one
        deviation = deviation.expm1_() if len(rule.scales) == 1 else deviation.exp_().sub_(1.0)
        parts = torch.zeros_like(deviation)
        for t, weight in zip(rule.points.tolist(), rule.weights.tolist(), strict=True):
            torch.add(unit, deviation, alpha=t, out=factors)
            parts.addcdiv_(factors.prod(0), factors, value=weight * mass)
        total = parts.mul_(deviation) if total is None else total.addcmul_(parts, deviation)
    assert total is not None
    return total
