"""Stationary kernels: functions of (x − z)/ℓ, with one length-scale ℓ or one per input.

Radial and separable kernels share the length-scales, inputs that are centred and scaled once, and tiles without
denormal numbers.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from mercer.codegen.compiled import OUTPUTS, Compiled, pays
from mercer.codegen.cpu import TILE, ClosedForm
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
        """A length-scale of the order of distances between standardised inputs."""
        return n_inputs**0.5

    def check(self) -> None:
        require_lengths(self.length_scale)

    def diag(self, X: Tensor) -> Tensor:
        return X.new_ones(X.shape[0])

    def inverse_lengths(self, X: Tensor) -> Tensor:
        """1/ℓ, one number or one per column of `X`, beside `X`."""
        require_lengths(self.length_scale)
        lengths = torch.as_tensor(self.length_scale, dtype=X.dtype)
        shape = tuple(lengths.shape)
        if shape not in ((), (1,), (X.shape[1],)):
            raise ValueError(f"length_scale must be one number or one per input ({X.shape[1]}), got shape {shape}")
        return lengths.to(X.device).reciprocal()


def require_lengths(value: Any) -> None:
    """Check that a value is one or several positive numbers; tensors on a GPU, which only tuning makes, pass."""
    if type(value) is float and LENGTHS[0] <= value <= LENGTHS[1]:  # most kernels, of which a fit binds hundreds
        return
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
        numbers = numbers.astype(float)  # single precision cannot represent the bounds
        good = bool(((numbers >= LENGTHS[0]) & (numbers <= LENGTHS[1])).all())
    if good:
        return
    wanted = f"positive (from {LENGTHS[0]:g} to {LENGTHS[1]:g}), one number or one per input"
    require(False, "length_scale", wanted, value.tolist() if isinstance(value, np.ndarray) else value)


@dataclass(frozen=True, kw_only=True)
class StationaryColumns(Columns):
    """variance · k + bias bound to basis vectors, for inputs that enter as (x − shift) · scale.

    Its methods take rows of inputs. Those of the columns that `prepare` returns take prepared rows, and only they
    multiply without a tile.
    """

    shift: Tensor
    scale: Tensor
    right: Tensor
    variance: Any = 1.0
    bias: Any = 0.0
    #: Machine code for these basis vectors, where enough rows are expected to pay for it (`specialise`).
    compiled: Compiled | None = None
    #: Whether rows come prepared, and their largest norm; None on a GPU and without rows.
    prepared: bool = False
    max_norm: Tensor | None = None

    @abstractmethod
    def scaled(self, X: Tensor) -> Tensor:
        """Prepared rows, as `tile` and `gradients` take them."""

    @abstractmethod
    def bind(self, Z: Tensor) -> Self:
        """The same kernel for other basis vectors, without regard to machine code."""

    @abstractmethod
    def tile(self, left: Tensor, temporary: bool) -> Tensor:
        """The tile of prepared rows, by torch; a temporary one may lie in a buffer of the thread."""

    @abstractmethod
    def gradients(self, left: Tensor, W: Tensor) -> Tensor:
        """`slopes` of prepared rows."""

    @abstractmethod
    def largest_norm(self, left: Tensor) -> Tensor:
        """The largest norm of prepared rows, in the geometry of the kernel."""

    @abstractmethod
    def lower_bound(self, max_norm: Tensor) -> Tensor | float:
        """A lower bound of the kernel's values for rows of at most this norm."""

    def closed_form(self) -> ClosedForm | None:
        """The formula that machine code evaluates; None where there is none."""
        return None

    def inputs_by_basis(self) -> Tensor:
        """Basis vectors as machine code takes them, K × m."""
        return self.right

    def prepare(self, X: Tensor) -> tuple[Tensor, Self]:
        if self.prepared:
            return X, self
        left = self.scaled(X)
        if left.device.type != "cpu" or not left.numel():
            return left, replace(self, prepared=True)
        with torch.no_grad():
            return left, replace(self, prepared=True, max_norm=self.largest_norm(left))

    def with_basis(self, Z: Tensor) -> Self:
        bound = self.bind(Z)
        return bound if self.compiled is None else replace(bound, compiled=bound._make_code())

    def affine(self, variance: Any, bias: Any) -> Self:
        return replace(self, variance=self.variance * variance, bias=self.bias * variance + bias, compiled=None)

    def specialise(self, n: int) -> Self:
        right = self.inputs_by_basis()
        code = self._make_code() if pays(n * right.shape[1], right, self.closed_form()) else None
        return self if code is self.compiled else replace(self, compiled=code)

    def _make_code(self) -> Compiled | None:
        """Machine code, which takes no gradients, no tensors as variance or bias, and finite basis vectors alone."""
        form, right = self.closed_form(), self.inputs_by_basis()
        traced = right.requires_grad or isinstance(self.variance, Tensor) or isinstance(self.bias, Tensor)
        return None if form is None or traced or not bool(right.isfinite().all()) else Compiled(form, right)

    def is_matrix_free(self, p: int) -> bool:
        return 0 < p <= OUTPUTS and self.compiled is not None

    @cached_property
    def code(self) -> Compiled | None:
        """Machine code for these prepared rows, which have to be finite."""
        finite = self.compiled is not None and self.max_norm is not None and bool(self.max_norm.isfinite())
        return self.compiled if finite else None

    @cached_property
    def underflows(self) -> bool:
        """Whether values of prepared rows, or their squares, may be denormal, which slows CPUs down fiftyfold.

        Tiles whose values all stay above need no pass that sets such values to zero.
        """
        if self.max_norm is None or not self.right.numel():
            return False
        with torch.no_grad():
            return bool(self.lower_bound(self.max_norm) < torch.finfo(self.max_norm.dtype).tiny ** 0.5)

    def __call__(self, X: Tensor) -> Tensor:
        left, columns = self.prepare(X)
        return columns._fastest_tile(left, temporary=False)

    def temporary_tile(self, X: Tensor) -> Tensor:
        left, columns = self.prepare(X)
        return columns._fastest_tile(left, temporary=True)

    def _fastest_tile(self, left: Tensor, temporary: bool) -> Tensor:
        """The tile of prepared rows, by machine code where that is faster than torch."""
        code = None if left.requires_grad else self.code
        if code is None or not code.writes_tiles:
            return self.tile(left, temporary)
        return code.tile(left, self.variance, self.bias, slot=TILE if temporary else None)

    def _code_for(self, left: Tensor, W: Tensor) -> Compiled | None:
        """Machine code for a product of prepared rows with few columns; None where it does not take them."""
        traced = left.requires_grad or W.requires_grad
        if traced or not len(left) or not self.is_matrix_free(W.shape[1]) or W.dtype != left.dtype:
            return None
        return self.code

    def product(self, X: Tensor, W: Tensor) -> Tensor:
        code = self._code_for(X, W)
        if code is None:
            return super().product(X, W)
        return affine_product(code.product(X, W), W, self.variance, self.bias)

    def product_of_few(self, X: Tensor, W: Tensor) -> Tensor:
        return self._for_few.tile(self.scaled(X), temporary=False) @ W

    @cached_property
    def _for_few(self) -> Self:
        """The columns of prepared rows of any norm: for few rows, norms take more time than passes for tiny values."""
        columns = replace(self, prepared=True)
        columns.__dict__["underflows"] = True
        return columns

    def transposed(self, X: Tensor, R: Tensor) -> Tensor:
        code = self._code_for(X, R)
        if code is None:
            return super().transposed(X, R)
        return affine_product(code.transposed(X, R), R, self.variance, self.bias)

    def column_scores(self, X: Tensor, g: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
        code = self._code_for(X, g)
        if code is None:
            return super().column_scores(X, g, weight)
        d = g.new_ones(len(X)) if weight is None else weight.to(g.dtype)
        return affine_scores(lambda R, d: code.scores(X, R, d), g, d, self.variance, self.bias)

    def slopes(self, X: Tensor, W: Tensor) -> Tensor:
        left, columns = self.prepare(X)
        return columns.gradients(left, W)

    def finished(self, tile: Tensor, underflows: bool) -> Tensor:
        """variance · tile + bias, in the tile's memory where no gradient is wanted; tiny values become zero."""
        if underflows:
            torch.threshold_(tile, torch.finfo(tile.dtype).tiny ** 0.5, 0.0)
        if isinstance(self.variance, Tensor) or tile.requires_grad:
            return torch.addcmul(number_like(self.bias, tile), tile, number_like(self.variance, tile))
        if self.variance != 1.0:
            tile.mul_(self.variance)
        return tile.add_(self.bias) if isinstance(self.bias, Tensor) or self.bias else tile


def number_like(value: Any, tile: Tensor) -> Tensor:
    """A number as a tensor on the tile's device, made there: a recorded CUDA graph forbids copies from the host."""
    if isinstance(value, Tensor):
        return value.to(tile)
    return torch.full((), value, dtype=tile.dtype, device=tile.device)
