"""Kernels as sums of products over the inputs, which is what makes exact explanations affordable.

A product kernel is variance · Π_d exp(−a_d(x_d, z_d)): one factor for each input. Sums, products and multiples of such
kernels are sums of them again. A linear kernel is a sum over the inputs instead, which is simpler still. Other kernels
(Matérn, polynomial, any function) tie their inputs together and are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import torch
from torch import Tensor

from mercer.kernels import Bias, Gaussian, Kernel, Laplacian, Linear, Product, Scaled, Separable, Sum
from mercer.parts import require

#: What to do about models that have no such form.
ELSEWHERE = (
    "for other models take `sklearn.inspection.permutation_importance`, or fit with kernel='gaussian' or 'laplacian'"
)


@dataclass(frozen=True)
class Power:
    """The exponents |(x_d − z_d) · rate_d|^power of one factor for each input."""

    rate: np.ndarray
    power: float


@dataclass(frozen=True)
class Term:
    """variance · Π_d exp(−Σ_powers |…|), or with `additive` variance · Σ_d x_d z_d."""

    variance: float
    powers: tuple[Power, ...] = ()
    additive: bool = False

    def exponents(self, X: Tensor, Z: Tensor, columns: Sequence[int]) -> Tensor:
        """Σ of a_d over some columns d, between the rows of `X` and of `Z`: n × m."""
        out = X.new_zeros(len(X), len(Z))
        for d in columns:
            apart = X[:, d, None] - Z[:, d]
            for one in self.powers:
                scaled = (apart * float(one.rate[d])).abs_()
                out += scaled if one.power == 1 else scaled.pow_(one.power)
        return out


def terms_of(kernel: Kernel, n_inputs: int) -> list[Term]:
    """The kernel as a sum of terms; one that is none gets a sentence.

    >>> from mercer.explain.terms import terms_of
    >>> from mercer.kernels import Bias, Gaussian, Matern32
    >>> [(term.variance, len(term.powers)) for term in terms_of(2 * Gaussian([1.0, 3.0]) + Bias(0.5), 2)]
    [(2.0, 1), (0.5, 0)]
    >>> terms_of(Matern32(), 2)
    Traceback (most recent call last):
    ...
    ValueError: the kernel must be a product over its inputs (Gaussian, Laplacian, ...
    """
    if isinstance(kernel, Sum):
        return [*terms_of(kernel.left, n_inputs), *terms_of(kernel.right, n_inputs)]
    if isinstance(kernel, Scaled):
        return [_scaled(one, float(kernel.variance)) for one in terms_of(kernel.kernel, n_inputs)]
    if isinstance(kernel, Product):
        both = product(terms_of(kernel.left, n_inputs), terms_of(kernel.right, n_inputs))
        return [_multiplied(one, other, kernel) for one, other in both]
    if isinstance(kernel, Bias):
        return [Term(float(kernel.variance))]
    if isinstance(kernel, Linear):
        return [Term(1.0, additive=True)]
    if isinstance(kernel, Gaussian):
        return [Term(1.0, (_power(0.5**0.5, kernel, n_inputs, 2.0),))]
    if isinstance(kernel, Laplacian):
        return [Term(1.0, (_power(1.0, kernel, n_inputs, 1.0),))]
    if isinstance(kernel, Separable) and kernel.p == kernel.q:
        return [Term(1.0, (_power(1.0, kernel, n_inputs, float(kernel.p)),))]
    raise _refusal(kernel)


def diagonal_of(transform: np.ndarray | None) -> bool:
    """Whether a transform of the inputs leaves each column by itself."""
    return transform is None or transform.ndim == 1 or bool((transform == np.diag(np.diag(transform))).all())


def require_columns_apart(transform: np.ndarray | None) -> None:
    """Refuse a full metric: its kernel is a product over turned inputs, not over the user's."""
    wanted = f"one in which each input stands by itself (metric='diagonal' or None; {ELSEWHERE})"
    require(diagonal_of(transform), "the metric of the model", wanted, "a full one")


def _refusal(kernel: Kernel) -> ValueError:
    wanted = "a product over its inputs (Gaussian, Laplacian, their sums, products and multiples)"
    return ValueError(f"the kernel must be {wanted}, got {kernel!r}; {ELSEWHERE}")


def _scaled(term: Term, variance: float) -> Term:
    return replace(term, variance=term.variance * variance)


def _multiplied(one: Term, other: Term, kernel: Kernel) -> Term:
    variance = one.variance * other.variance
    if one.additive or other.additive:
        rest = other if one.additive else one
        if rest.additive or rest.powers:
            raise _refusal(kernel)
        return Term(variance, additive=True)
    return Term(variance, one.powers + other.powers)


def _power(factor: float, kernel: Gaussian | Laplacian | Separable, n_inputs: int, power: float) -> Power:
    lengths = torch.as_tensor(kernel.length_scale, dtype=torch.float64).cpu().numpy()
    return Power(np.broadcast_to(factor / lengths, (n_inputs,)).copy(), power)
