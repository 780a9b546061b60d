"""Shapley values of Π_d exp(−s a_d), and of mixtures of such over s: the integral over t by Gauss' rule, s by s.

With ⌈D/2⌉ points the rule is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from math import factorial, log
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from mercer.codegen.compiled import machine_code
from mercer.codegen.cpu import over_rows
from mercer.explain.subsets import shapley_by_subsets
from mercer.explain.terms import INFINITE, ExponentialSum, Term

#: Inputs up to which subsets are faster than mixtures: where torch computes the mixtures, and where machine code does.
MAX_SUBSET_INPUTS, MAX_SUBSET_INPUTS_COMPILED = 10, 8
#: Factors, in all calls so far, from which on the loop is compiled: that takes 35 ms, and a factor 2 ns instead of 9.
MIN_FACTORS = 1 << 21
_seen = {"factors": 0}
#: Pairs at a time.
WIDTH = 16
#: (2^f − 1)/f = Σ c_k f^k for |f| ≤ ½: what is left out is below 2e-16.
POWER = tuple(log(2.0) ** k / factorial(k) for k in range(1, 14))
#: Adding it rounds to an integer, which then stands in the lowest bits. Below LOWEST a power of two is zero.
ROUNDING, LOWEST = 1.5 * 2.0**52, -1000.0


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
    compiled = is_worthwhile(exponents, 1 << n_inputs)
    most = MAX_SUBSET_INPUTS_COMPILED if compiled else MAX_SUBSET_INPUTS
    return n_inputs <= most


def restricted_mixture(mixture: ExponentialSum, exponents: Tensor) -> ExponentialSum:
    """The mixture for the exponents at hand."""
    least = exponents.masked_fill(exponents == 0, INFINITE).min()
    return mixture.restrict(float(least), float(exponents.sum(0).max()))


def sum_over_scales(exponents: Tensor, rule: ProductSum) -> Tensor:
    """Shapley values of a sum of products of exponents a (D × n × m), in the same shape."""
    if is_worthwhile(exponents, rule.factors):
        return compiled_sum_over_scales(exponents, rule)
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


@dataclass(frozen=True, eq=False)
class ProductSum:
    """Products of scaled exponents with their masses, and a quadrature rule on (0, 1) for Shapley values of each."""

    scales: np.ndarray
    masses: np.ndarray
    points: np.ndarray
    weights: np.ndarray

    @property
    def factors(self) -> int:
        """How often the factor of an input is computed."""
        return len(self.scales) * len(self.points)

    @cached_property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """Rates of powers of two, masses, points and weights, as machine code reads them."""
        return -self.scales / log(2.0), self.masses, self.points, self.weights


def is_worthwhile(exponents: Tensor, times: int) -> bool:
    """Whether the loop is compiled, or worth compiling where each exponent is used `times` times."""
    if exponents.device.type != "cpu" or exponents.dtype != torch.float64 or machine_code() is None:
        return False
    if compiled_loop.cache_info().currsize == 0:
        _seen["factors"] += exponents.numel() * times
    return compiled_loop.cache_info().currsize > 0 or _seen["factors"] >= MIN_FACTORS


def compiled_sum_over_scales(exponents: Tensor, rule: ProductSum) -> Tensor:
    """Σ over scales of the values of their products, as exponents D × n × m."""
    D, n, m = exponents.shape
    function = compiled_loop()
    pairs = exponents.reshape(D, n * m)
    pairs = pad(pairs, (0, -n * m % WIDTH)) if n * m % WIDTH else pairs.contiguous()
    out, length = torch.zeros_like(pairs), pairs.shape[1]
    addresses = [array.ctypes.data for array in rule.arrays]

    def work(where: slice) -> None:
        scratch = np.empty(3 * D * WIDTH)
        first = WIDTH * where.start * pairs.itemsize
        places = [*addresses, pairs.data_ptr() + first, out.data_ptr() + first, scratch.ctypes.data]
        function(*places, where.stop - where.start, D, len(rule.scales), len(rule.points), length)

    over_rows(length // WIDTH, 1, work)
    return out[:, : n * m].unflatten(1, (n, m))


def exp2m1(w: Any, x: Any) -> Any:
    """2^x − 1 for x ≤ 0, as `w` writes it."""
    from mercer.codegen.vector_code import DOUBLES, constant

    b, one, rounding = w.build, constant(1.0, DOUBLES), constant(ROUNDING, DOUBLES)
    x = w.call("maxnum", x, constant(LOWEST, DOUBLES))
    shifted = b.fadd(x, rounding)
    f = b.fsub(x, b.fsub(shifted, rounding))
    p = constant(POWER[-1], DOUBLES)
    for c in POWER[-2::-1]:
        p = w.times_plus(p, f, w.fresh(c, DOUBLES))
    whole = w.raised(one, shifted)
    return w.times_plus(whole, b.fmul(p, f), b.fsub(whole, one))


@cache
def compiled_loop() -> Any:
    """The loop: arrays of scales, masses, points, weights, pairs, values (to which is added) and scratch.

    For sixteen pairs of a row and a basis vector at a time, scale by scale and point by point of a `ProductSum`:
    forward over the inputs, the products of the factors before each; backward, those behind each. Their product is what
    all others make of it, without a division.

    Pairs and values are D × `length`, of which some strips of WIDTH pairs are worked on.
    """
    from mercer.codegen.vector_code import DOUBLE, DOUBLES, INT, Writer, constant

    w = Writer("shapley", "dddddddiiiii")
    b, (scales, masses, points, weights, pairs, out, scratch, strips, D, Q, T, length) = w.build, w.function.args
    one, zero = constant(1.0, DOUBLES), constant(0.0, DOUBLES)
    size = b.mul(D, INT(WIDTH))
    deviations, before, parts = scratch, w.place(scratch, size), w.place(scratch, (size, 2))

    def number(array: Any, place: Any) -> Any:
        return w.spread(w.load(w.place(array, place), DOUBLE), DOUBLES)

    def at(array: Any, d: Any) -> Any:
        return w.place(array, (d, WIDTH))

    def of(array: Any, strip: Any, d: Any) -> Any:
        return w.place(array, (strip, WIDTH), (d, length))

    with w.loop(strips) as (strip, _, _), w.loop(Q) as (q, _, _):
        scale, mass = number(scales, q), number(masses, q)
        with w.loop(D) as (d, _, _):
            w.store(exp2m1(w, b.fmul(scale, w.load(of(pairs, strip, d), DOUBLES))), at(deviations, d))
            w.store(zero, at(parts, d))
        with w.loop(T) as (k, _, _):
            t = number(points, k)
            with w.loop(D, (b.fmul(mass, number(weights, k)),)) as (d, (product,), following):
                w.store(product, at(before, d))
                following.append(w.times_plus(b.fmul(product, t), w.load(at(deviations, d), DOUBLES), product))
            with w.loop(D, (one,)) as (step, (product,), following):
                d = b.sub(b.sub(D, INT(1)), step)
                both = w.times_plus(product, w.load(at(before, d), DOUBLES), w.load(at(parts, d), DOUBLES))
                w.store(both, at(parts, d))
                following.append(w.times_plus(b.fmul(product, t), w.load(at(deviations, d), DOUBLES), product))
        with w.loop(D) as (d, _, _):
            u, part = (w.load(at(array, d), DOUBLES) for array in (deviations, parts))
            place = of(out, strip, d)
            w.store(w.times_plus(u, part, w.load(place, DOUBLES)), place)
    return w.compiled()
