"""Kernels bound to basis vectors: tiles of K and products with a tile, for one block of rows.

Binding computes everything that depends on the basis vectors alone. The engine chooses the blocks and sums over them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self, final

import torch
from torch import Tensor

from mercer.codegen.cpu import FusedForm
from mercer.parts import require


class Columns(ABC):
    """K(·, Z) for fixed basis vectors Z; called on rows X it is the tile K(X, Z)."""

    #: The value of a constant kernel, None for all others.
    constant: Any = None

    @abstractmethod
    def __call__(self, X: Tensor) -> Tensor:
        """The tile K(X, Z), n × m."""

    def temporary_tile(self, X: Tensor) -> Tensor:
        """The tile for immediate use: it may lie in a buffer that the next tile overwrites."""
        return self(X)

    @abstractmethod
    def with_basis(self, Z: Tensor) -> Columns:
        """The same kernel for other basis vectors; it takes prepared rows if this one does."""

    def prepare(self, X: Tensor) -> tuple[Tensor, Columns]:
        """Work that is the same for all blocks of `X`: a tensor of as many rows, and the columns that take its rows."""
        return X, self

    def specialise(self, n: int) -> Columns:
        """The same columns for n rows: if they are many, faster code may be worth its preparation."""
        return self

    def is_matrix_free(self, p: int) -> bool:
        """Whether products with p columns write no tile, so that large blocks of rows are best."""
        return False

    def affine(self, variance: Any, bias: Any) -> Columns:
        """variance · K + bias."""
        return Affine(self, variance, bias)

    def fused_form(self) -> FusedForm | None:
        """The form that fused products take; None if there is none."""
        return None

    def product(self, X: Tensor, W: Tensor) -> Tensor:
        """K(X, Z) W, n × p."""
        return self.temporary_tile(X) @ W

    def product_of_few(self, X: Tensor, W: Tensor) -> Tensor:
        """The same for so few rows that every call counts."""
        return self.product(X, W)

    def transposed(self, X: Tensor, R: Tensor) -> Tensor:
        """K(X, Z)ᵀ R, m × p."""
        return self.temporary_tile(X).T @ R

    def normal(self, X: Tensor, W: Tensor, weight: Tensor) -> Tensor:
        """K(X, Z)ᵀ D K(X, Z) W, m × p; `weight` is the diagonal of D."""
        tile = self.temporary_tile(X)
        return tile.T @ (weight[:, None].to(tile.dtype) * (tile @ W))

    def column_scores(self, X: Tensor, g: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """k_jᵀ g (m × p) and k_jᵀ D k_j (m) for every column j; `weight` is the diagonal of D."""
        tile = self.temporary_tile(X)
        square = tile.square()
        return tile.T @ g, square.sum(0) if weight is None else square.T @ weight.to(tile.dtype)

    def slopes(self, X: Tensor, W: Tensor) -> Tensor:
        """The gradient of f(x) = Σ_j k(x, z_j) W_j at the rows of `X`, n × D × p; here by autograd."""
        with torch.enable_grad():
            at = X.detach().clone().requires_grad_()
            f = self(at) @ W
            require(f.requires_grad, "a kernel whose gradient is wanted", "made of torch's operations", self)
            each = [torch.autograd.grad(f[:, o].sum(), at, retain_graph=True)[0] for o in range(W.shape[1])]
        return torch.stack(each, 2) if each else at.detach().new_zeros(*X.shape, 0)


def affine_product(product: Tensor, V: Tensor, variance: float, bias: float) -> Tensor:
    """(variance · K + bias) V from K V."""
    product = product if variance == 1 else product * variance
    return product + (bias * V.sum(0, dtype=torch.float64)).to(product.dtype) if bias else product


def affine_scores(
    scores: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], g: Tensor, d: Tensor, variance: float, bias: float
) -> tuple[Tensor, Tensor]:
    """`Columns.column_scores` of variance · K + bias, from a function that gives Kᵀ R and the diagonal of KᵀDK."""
    sums, squares = scores(torch.cat([g, d[:, None]], 1) if bias else g, d)
    curvature = variance**2 * squares
    if bias:
        curvature += bias * (2 * variance * sums[:, -1] + bias * d.sum(dtype=torch.float64))
    return affine_product(sums[:, : g.shape[1]], g, variance, bias), curvature


@final
@dataclass(frozen=True)
class Tiles(Columns):
    """A function of two blocks of rows, without any work that depends on the basis vectors alone."""

    function: Callable[[Tensor, Tensor], Tensor]
    Z: Tensor

    def __call__(self, X: Tensor) -> Tensor:
        return self.function(X, self.Z)

    def with_basis(self, Z: Tensor) -> Tiles:
        return replace(self, Z=Z)


@final
@dataclass(frozen=True)
class Constant(Columns):
    """A constant kernel bound to m basis vectors."""

    m: int
    constant: Any = 1.0

    def __call__(self, X: Tensor) -> Tensor:
        return self.constant * X.new_ones(X.shape[0], self.m)

    def with_basis(self, Z: Tensor) -> Constant:
        return replace(self, m=Z.shape[0])

    def affine(self, variance: Any, bias: Any) -> Constant:
        return replace(self, constant=self.constant * variance + bias)

    def slopes(self, X: Tensor, W: Tensor) -> Tensor:
        return X.new_zeros(*X.shape, W.shape[1])


@final
@dataclass(frozen=True)
class Affine(Columns):
    """variance · K + bias, for a kernel that cannot apply them in its tile."""

    inner: Columns
    variance: Any
    bias: Any

    def __call__(self, X: Tensor) -> Tensor:
        tile = self.inner(X) * self.variance
        return tile + self.bias if isinstance(self.bias, Tensor) or self.bias else tile

    def with_basis(self, Z: Tensor) -> Affine:
        return replace(self, inner=self.inner.with_basis(Z))

    def specialise(self, n: int) -> Affine:
        return replace(self, inner=self.inner.specialise(n))

    def affine(self, variance: Any, bias: Any) -> Affine:
        return replace(self, variance=self.variance * variance, bias=self.bias * variance + bias)

    def fused_form(self) -> FusedForm | None:
        inner = self.inner.fused_form()
        if inner is None:
            return None
        variance, bias = float(self.variance), float(self.bias)
        return replace(inner, variance=inner.variance * variance, bias=inner.bias * variance + bias)

    def slopes(self, X: Tensor, W: Tensor) -> Tensor:
        return self.inner.slopes(X, W) * self.variance


@dataclass(frozen=True)
class Pair(Columns):
    """Two kernels on the same basis vectors."""

    left: Columns
    right: Columns

    def with_basis(self, Z: Tensor) -> Self:
        return replace(self, left=self.left.with_basis(Z), right=self.right.with_basis(Z))

    def specialise(self, n: int) -> Self:
        return replace(self, left=self.left.specialise(n), right=self.right.specialise(n))


@final
class Added(Pair):
    """Their sum."""

    def __call__(self, X: Tensor) -> Tensor:
        return self.left(X) + self.right(X)

    def slopes(self, X: Tensor, W: Tensor) -> Tensor:
        return self.left.slopes(X, W) + self.right.slopes(X, W)


@final
class Multiplied(Pair):
    """Their product, entry by entry."""

    def __call__(self, X: Tensor) -> Tensor:
        return self.left(X) * self.right(X)
