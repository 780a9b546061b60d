"""Kernels as sums of products over the inputs, which is what makes exact explanations affordable.

A product kernel is variance · Π_d exp(−a_d(x_d, z_d)): one factor for each input. Sums, products and multiples of such
kernels are sums of them again. Matérn and rational quadratic kernels are mixtures of Gaussians, hence sums of products
too (`mercer.explain.mixtures`). A linear kernel is a sum over the inputs instead, which is simpler still. Other kernels
(polynomial, any function) tie their inputs together and are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np
import torch
from torch import Tensor

from mercer.explain.mixtures import ExponentialSum, matern, rational_quadratic
from mercer.kernels import (
    Bias,
    Gaussian,
    Kernel,
    Laplacian,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Product,
    RationalQuadratic,
    Scaled,
    Separable,
    Stationary,
    Sum,
)
from mercer.kernels.radial import Radial

#: Advice for models that have no such form.
ELSEWHERE = (
    "for other models take `sklearn.inspection.permutation_importance`, or fit with kernel='gaussian' or 'laplacian'"
)


@dataclass(frozen=True)
class Power:
    """The exponents |(x_d − z_d) · rate_d|^power of one factor for each input."""

    rate: np.ndarray
    power: float

    @cached_property
    def rates(self) -> Tensor:
        """D × 1 × 1."""
        return torch.as_tensor(self.rate)[:, None, None]


@dataclass(frozen=True)
class Term:
    """variance · Π_d exp(−Σ_powers |…|), a mixture of such products, or with `additive` variance · Σ_d x_d z_d."""

    variance: float
    powers: tuple[Power, ...] = ()
    additive: bool = False
    mixture: ExponentialSum | None = None
    radial: Radial | None = None  # the kernel that the mixture is

    def profile(self, exponents: Tensor) -> tuple[Callable[[Tensor], Tensor], Tensor]:
        """The mixture's value as a function of a sum, which it may overwrite, and what is to be summed."""
        assert self.radial is not None
        return self.radial.profile, exponents * -(self.radial.log_base_scale**2)

    def products(self) -> list[Term]:
        """The products that a mixture is the sum of."""
        if self.mixture is None:
            return [self]
        found = []
        for scale, weight in zip(self.mixture.scales, self.mixture.weights, strict=True):
            powers = tuple(Power(power.rate * scale ** (1 / power.power), power.power) for power in self.powers)
            found.append(Term(self.variance * float(weight), powers))
        return found

    def exponents(self, X: Tensor, Z: Tensor, columns: Sequence[int]) -> Tensor:
        """Σ of a_d over some columns d, between the rows of `X` and of `Z`: n × m."""
        out = X.new_zeros(len(X), len(Z))
        for d in columns:
            out += self._each(X.T[d : d + 1], Z.T[d : d + 1], slice(d, d + 1))[0]
        return out

    def by_group(self, X: Tensor, Z: Tensor, groups: Sequence[Sequence[int]]) -> Tensor:
        """The same for each of several groups of columns, groups × n × m; `Z` is D × m."""
        if self.powers and all(list(group) == [d] for d, group in enumerate(groups)):
            return self._each(X.T.contiguous(), Z, slice(None))  # else columns would lie side by side
        return torch.stack([self.exponents(X, Z.T, group) for group in groups])

    def _each(self, X: Tensor, Z: Tensor, columns: slice) -> Tensor:
        """a_d of each column, columns × n × m, of rows given by column."""
        apart = X[:, :, None] - Z[:, None]
        out: Tensor | None = None
        for factor in self.powers:
            rate = factor.rates[columns].to(X.device)
            scaled = apart.mul_(rate) if len(self.powers) == 1 else apart * rate
            scaled = scaled.square_() if factor.power == 2 else scaled.abs_()
            scaled = scaled if factor.power in (1, 2) else scaled.pow_(factor.power)
            out = scaled if out is None else out.add_(scaled)
        return torch.zeros_like(apart) if out is None else out


def terms_of(kernel: Kernel, n_inputs: int) -> list[Term]:
    """The kernel as a sum of terms; refuse, in a sentence, a kernel that is no such sum.

    >>> from mercer.kernels import Bias, Gaussian, Polynomial
    >>> [(term.variance, len(term.powers)) for term in terms_of(2 * Gaussian([1.0, 3.0]) + Bias(0.5), 2)]
    [(2.0, 1), (0.5, 0)]
    >>> terms_of(Polynomial(), 2)
    Traceback (most recent call last):
    ...
    ValueError: the kernel must be a product over its inputs or a mixture of such (Gaussian, Laplacian, Matérn, ...
    """
    if isinstance(kernel, Sum):
        return [*terms_of(kernel.left, n_inputs), *terms_of(kernel.right, n_inputs)]
    if isinstance(kernel, Scaled):
        return [_scaled(term, float(kernel.variance)) for term in terms_of(kernel.kernel, n_inputs)]
    if isinstance(kernel, Product):
        both = product(terms_of(kernel.left, n_inputs), terms_of(kernel.right, n_inputs))
        return [term for left, right in both for term in _multiplied(left, right, kernel)]
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
    if isinstance(kernel, Matern12 | Matern32 | Matern52 | RationalQuadratic):
        rates = _power(float(kernel.coefficient) ** 0.5, kernel, n_inputs, 2.0)
        rational = isinstance(kernel, RationalQuadratic)
        mixture = rational_quadratic(float(kernel.alpha)) if rational else matern(kernel.smoothness)
        return [Term(1.0, (rates,), mixture=mixture, radial=kernel)]
    raise _refusal(kernel)


def diagonal_of(transform: np.ndarray | None) -> bool:
    """Whether a transform of the inputs leaves each column by itself."""
    return transform is None or transform.ndim == 1 or bool((transform == np.diag(np.diag(transform))).all())


def _refusal(kernel: Kernel) -> ValueError:
    wanted = "a product over its inputs or a mixture of such (Gaussian, Laplacian, Matérn, their sums and products)"
    return ValueError(f"the kernel must be {wanted}, got {kernel!r}; {ELSEWHERE}")


def _scaled(term: Term, variance: float) -> Term:
    return replace(term, variance=term.variance * variance)


def _multiplied(left: Term, right: Term, kernel: Kernel) -> list[Term]:
    variance = left.variance * right.variance
    if left.additive or right.additive:
        rest = right if left.additive else left
        if rest.additive or rest.powers:
            raise _refusal(kernel)
        return [Term(variance, additive=True)]
    if not left.powers or not right.powers:  # a mixture stays one
        return [replace(left if left.powers else right, variance=variance)]
    return [Term(a.variance * b.variance, a.powers + b.powers) for a, b in product(left.products(), right.products())]


def _power(factor: float, kernel: Stationary, n_inputs: int, power: float) -> Power:
    given = kernel.length_scale
    lengths = given.detach().cpu().numpy() if isinstance(given, Tensor) else np.asarray(given, dtype=np.float64)
    return Power(np.full(n_inputs, factor / lengths), power)
