"""Stationary kernels: functions of (x − z)/ℓ, with one length-scale ℓ or one per input.

What radial and separable kernels have in common: the length-scales, inputs centred and scaled once, and tiles from
which numbers too small to matter are kept out.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self, final

import numpy as np
import torch
from torch import Tensor

from mercer.codegen.compiled import OUTPUTS, Compiled, pays
from mercer.codegen.cpu import TILE
from mercer.codegen.forms import ClosedForm
from mercer.kernels.base import Kernel
from mercer.kernels.columns import Columns, affine_product, affine_scores
from mercer.parts import require

#: Length-scales outside this range would leave the range of float64 once they are squared.
LENGTHS = 1e-100, 1e100


class Stationary(Kernel):
    """A kernel k(x, z) of (x − z)/ℓ alone, one where x = z."""

    positive: ClassVar[tuple[str, ...]] = ("length_scale",)
    length_scale: Any

    @classmethod
    def typical_length(cls, n_inputs: int) -> float:
        """A length-scale at which the kernel tells standardised inputs apart: about their distance."""
        return n_inputs**0.5

    def check(self) -> None:
        require_lengths(self.length_scale)

    def diag(self, X: Tensor) -> Tensor:
        return X.new_ones(X.shape[0])

    def inverse_lengths(self, X: Tensor) -> Tensor:
        """1/ℓ, one number or one per column of `X`, beside `X`."""
        require_lengths(self.length_scale)
        lengths = torch.as_tensor(self.length_scale, dtype=X.dtype)
        shape, wanted = tuple(lengths.shape), f"one number or one per input ({X.shape[1]})"
        if shape not in ((), (1,), (X.shape[1],)):
            raise ValueError(f"length_scale must be {wanted}, got shape {shape}")
        return 1 / lengths.to(X.device)


def require_lengths(value: Any) -> None:
    """Refuse what is not a positive number or several of them; tensors on a GPU pass: only tuning puts them there."""
    if isinstance(value, Tensor):
        if value.device.type != "cpu":
            return
        value = value.detach().numpy()
    try:
        numbers = np.asarray(value)
    except ValueError:  # rows of different length
        numbers = np.empty(0)
    good = numbers.dtype.kind in "fiu" and numbers.size > 0
    if good:
        numbers = numbers.astype(float)  # the bounds are no numbers of single precision
        good = bool(((numbers >= LENGTHS[0]) & (numbers <= LENGTHS[1])).all())
    wanted = f"positive (from {LENGTHS[0]:g} to {LENGTHS[1]:g}), one number or one per input"
    require(good, "length_scale", wanted, value.tolist() if isinstance(value, np.ndarray) else value)


@dataclass(frozen=True, kw_only=True)
class StationaryColumns(Columns):
    """variance · k + bias bound to basis vectors, for inputs that enter as (x − shift) · scale."""

    shift: Tensor
    scale: Tensor
    right: Tensor
    variance: Any = 1.0
    bias: Any = 0.0
    #: Whether so many rows are to come that machine code is worth its making.
    many: bool = False

    @abstractmethod
    def left(self, X: Tensor) -> Tensor:
        """Rows as `tile` and `gradients` take them."""

    @abstractmethod
    def tile(self, left: Tensor, vanishing: bool) -> Tensor:
        """The tile of prepared rows; `vanishing` says that some values may be too small to be worth their digits."""

    def temporary_tile_of(self, left: Tensor, vanishing: bool) -> Tensor:
        """The same for one look at it."""
        return self.tile(left, vanishing)

    @abstractmethod
    def gradients(self, left: Tensor, W: Tensor, vanishing: bool) -> Tensor:
        """`slopes` of prepared rows."""

    @abstractmethod
    def with_basis(self, Z: Tensor) -> Self: ...

    @abstractmethod
    def longest(self, left: Tensor) -> Tensor:
        """The largest length of prepared rows, in the norm of the kernel."""

    @abstractmethod
    def lowest(self, longest: Tensor) -> Tensor:
        """A number that no value of the kernel is below, for rows at most that long."""

    def __call__(self, X: Tensor) -> Tensor:
        left, columns = self.prepare(X)
        return columns(left)

    def prepare(self, X: Tensor) -> tuple[Tensor, Prepared]:
        left = self.left(X)
        if left.device.type != "cpu" or not left.numel():
            return left, Prepared(self, None)
        with torch.no_grad():
            return left, Prepared(self, self.longest(left))

    def affine(self, variance: Any, bias: Any) -> Self:
        return replace(self, variance=self.variance * variance, bias=self.bias * variance + bias)

    def closed_form(self) -> ClosedForm | None:
        """The kernel as machine code takes it; None where it has no such form."""
        return None

    def sides(self) -> Tensor:
        """Basis vectors as machine code takes them, K × m."""
        return self.right

    def specialise(self, n: int) -> Self:
        right = self.sides()
        many = pays(n * right.shape[1], right, self.closed_form())
        return self if many == self.many else replace(self, many=many)

    def is_matrix_free(self, p: int) -> bool:
        return 0 < p <= OUTPUTS and self.compiled is not None

    @cached_property
    def compiled(self) -> Compiled | None:
        """The kernel in machine code; None where torch does it, and where basis vectors are no finite numbers."""
        form = self.closed_form() if self.many else None
        if form is None or any(isinstance(one, Tensor) for one in (self.variance, self.bias)):
            return None
        right = self.sides()
        return Compiled(form, right) if not right.requires_grad and bool(right.isfinite().all()) else None

    def slopes(self, X: Tensor, W: Tensor) -> Tensor:
        left, columns = self.prepare(X)
        return columns.slopes(left, W)

    def finished(self, tile: Tensor, vanishing: bool) -> Tensor:
        """variance · tile + bias, in the tile's own memory where no gradient is wanted."""
        if vanishing:  # neither a denormal number, which costs fifty times a normal one, nor its square
            torch.threshold_(tile, torch.finfo(tile.dtype).tiny ** 0.5, 0.0)
        if isinstance(self.variance, Tensor) or tile.requires_grad:
            return torch.addcmul(number_like(self.bias, tile), tile, number_like(self.variance, tile))
        if self.variance != 1.0:
            tile.mul_(self.variance)
        return tile.add_(self.bias) if isinstance(self.bias, Tensor) or self.bias else tile


@final
@dataclass(frozen=True)
class Prepared(Columns):
    """The same for rows that are prepared, the longest of them of length `longest`; None where that does not matter."""

    columns: StationaryColumns
    longest: Tensor | None

    @cached_property
    def vanishing(self) -> bool:
        """Whether values so small may occur that they or their squares are denormal: CPUs then crawl.

        Tiles whose values all stay above are spared the pass.
        """
        if self.longest is None or not self.columns.right.numel():
            return False
        with torch.no_grad():
            return bool(self.columns.lowest(self.longest) < torch.finfo(self.longest.dtype).tiny ** 0.5)

    @cached_property
    def compiled(self) -> Compiled | None:
        """Machine code for these rows: it takes no infinite numbers and none that are no numbers."""
        known = self.columns.compiled
        return known if known is not None and self.longest is not None and bool(self.longest.isfinite()) else None

    def __call__(self, X: Tensor) -> Tensor:
        code = self._writer(X)
        return self.columns.tile(X, self.vanishing) if code is None else code.tile(X, *self._numbers)

    def temporary_tile(self, X: Tensor) -> Tensor:
        code = self._writer(X)
        return (
            self.columns.temporary_tile_of(X, self.vanishing)
            if code is None
            else code.tile(X, *self._numbers, slot=TILE)
        )

    def _writer(self, X: Tensor) -> Compiled | None:
        """Machine code that writes a tile of these rows, where it does so faster than torch."""
        code = None if X.requires_grad else self.compiled
        return code if code is not None and code.writes_tiles else None

    def product(self, X: Tensor, W: Tensor) -> Tensor:
        if self.compiled is None or not self._plain(X, W):
            return super().product(X, W)
        return affine_product(self.compiled.product(X, W), W, *self._numbers)

    def transposed(self, X: Tensor, R: Tensor) -> Tensor:
        if self.compiled is None or not self._plain(X, R):
            return super().transposed(X, R)
        return affine_product(self.compiled.transposed(X, R), R, *self._numbers)

    def column_scores(self, X: Tensor, g: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
        compiled = self.compiled
        if compiled is None or not self._plain(X, g):
            return super().column_scores(X, g, weight)
        d = g.new_ones(len(X)) if weight is None else weight.to(g.dtype)
        return affine_scores(lambda R, d: compiled.scores(X, R, d), g, d, *self._numbers)

    @property
    def _numbers(self) -> tuple[float, float]:
        return self.columns.variance, self.columns.bias

    def _plain(self, X: Tensor, W: Tensor) -> bool:
        """Whether machine code takes it: no gradient is wanted, and columns are few."""
        traced, p = X.requires_grad or W.requires_grad, W.shape[1]
        return not traced and len(X) > 0 and self.columns.is_matrix_free(p) and W.dtype == X.dtype

    def with_basis(self, Z: Tensor) -> Prepared:
        return Prepared(self.columns.with_basis(Z), self.longest)

    def slopes(self, X: Tensor, W: Tensor) -> Tensor:
        return self.columns.gradients(X, W, self.vanishing)


def number_like(value: Any, tile: Tensor) -> Tensor:
    """A number as a tensor beside the tile; filled in there, since nothing may be copied into a recorded graph."""
    if isinstance(value, Tensor):
        return value.to(tile)
    return torch.full((), value, dtype=tile.dtype, device=tile.device)
