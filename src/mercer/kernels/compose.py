"""Kernels made of kernels: sums, products, scaling, a constant, normalisation to unit diagonal."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mercer.kernels.base import Columns, Kernel, checked_number
from mercer.kernels.columns import RadialColumns
from mercer.kernels.fused_form import FusedForm
from mercer.parts import part


@dataclass(frozen=True)
class _Constant:
    """A constant kernel bound to m basis vectors."""

    variance: Any
    m: int

    def __call__(self, X: Tensor) -> Tensor:
        return self.variance * X.new_ones(X.shape[0], self.m)


@part
class Sum(Kernel):
    """left + right.

    >>> import torch
    >>> from mercer.kernels import Gaussian, Linear
    >>> (Gaussian() + Linear())(torch.ones(1, 1), torch.ones(1, 1)).item()
    2.0
    """

    left: Kernel
    right: Kernel

    def columns(self, Z: Tensor) -> Columns:
        left, right = self.left.columns(Z), self.right.columns(Z)
        for one, other in ((left, right), (right, left)):
            if isinstance(one, RadialColumns) and isinstance(other, _Constant):  # a tile needs no second tile
                return replace(one, bias=one.bias + other.variance)
        return lambda X: left(X) + right(X)

    def form(self, Z: Tensor) -> FusedForm | None:
        left, right = self.left.form(Z), self.right.form(Z)
        if left is None or right is None:
            return None
        if left.profile == "constant":
            left, right = right, left
        return replace(left, bias=left.bias + right.bias) if right.profile == "constant" else None

    def diag(self, X: Tensor) -> Tensor:
        return self.left.diag(X) + self.right.diag(X)


@part
class Product(Kernel):
    """left · right.

    >>> import torch
    >>> from mercer.kernels import Gaussian, Linear
    >>> (Gaussian() * Linear())(2 * torch.ones(1, 1), 2 * torch.ones(1, 1)).item()
    4.0
    """

    left: Kernel
    right: Kernel

    def columns(self, Z: Tensor) -> Columns:
        left, right = self.left.columns(Z), self.right.columns(Z)
        return lambda X: left(X) * right(X)

    def diag(self, X: Tensor) -> Tensor:
        return self.left.diag(X) * self.right.diag(X)


@part
class Scaled(Kernel):
    """variance · kernel; the paper's θ₀ (Boost10 eq. 33).

    >>> import torch
    >>> from mercer.kernels import Gaussian
    >>> (3.0 * Gaussian()).diag(torch.zeros(2, 1)).tolist()
    [3.0, 3.0]
    """

    positive = ("variance",)
    kernel: Kernel
    variance: float = 1.0

    def columns(self, Z: Tensor) -> Columns:
        inner, variance = self.kernel.columns(Z), checked_number(self.variance, "variance")
        if isinstance(inner, RadialColumns):
            return replace(inner, variance=inner.variance * variance, bias=inner.bias * variance)
        return lambda X: inner(X) * variance

    def form(self, Z: Tensor) -> FusedForm | None:
        inner, variance = self.kernel.form(Z), float(checked_number(self.variance, "variance"))
        return inner and replace(inner, variance=inner.variance * variance, bias=inner.bias * variance)

    def diag(self, X: Tensor) -> Tensor:
        return self.kernel.diag(X) * self.variance


@part
class Bias(Kernel):
    """A constant kernel; the paper's θ_b (Boost10 eq. 33).

    >>> import torch
    >>> from mercer.kernels import Bias
    >>> Bias(0.5)(torch.zeros(1, 3), torch.zeros(2, 3)).tolist()
    [[0.5, 0.5]]
    """

    short_name = "bias"
    positive = ("variance",)
    variance: float = 1.0

    def columns(self, Z: Tensor) -> Columns:
        return _Constant(checked_number(self.variance, "variance"), Z.shape[0])

    def form(self, Z: Tensor) -> FusedForm:
        nothing, variance = Z.new_zeros(()), float(checked_number(self.variance, "variance"))
        return FusedForm("constant", nothing, nothing, variance=0.0, bias=variance)

    def diag(self, X: Tensor) -> Tensor:
        return self.variance * X.new_ones(X.shape[0])


@part
class Normalized(Kernel):
    """k(x, z) / √(k(x, x) k(z, z)): unit diagonal; zero where a row has no length.

    >>> import torch
    >>> from mercer.kernels import Linear, Normalized
    >>> Normalized(Linear())(torch.tensor([[2.0, 0.0]]), torch.tensor([[5.0, 0.0]])).item()
    1.0
    """

    kernel: Kernel

    def _inverse_norm(self, X: Tensor) -> Tensor:
        square = self.kernel.diag(X)
        return torch.where(square > 0, square.clamp(min=torch.finfo(X.dtype).tiny).rsqrt(), 0.0)

    def columns(self, Z: Tensor) -> Columns:
        inner, by_column = self.kernel.columns(Z), self._inverse_norm(Z)
        return lambda X: inner(X) * by_column * self._inverse_norm(X)[:, None]

    def diag(self, X: Tensor) -> Tensor:
        return (self.kernel.diag(X) > 0).to(X.dtype)
