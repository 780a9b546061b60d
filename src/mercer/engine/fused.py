"""Fused products: K_nm meets what it is multiplied with on the chip, and no tile of it is written to memory.

This module packs the operands and launches the Triton programs of `fused_kernels`; without Triton, on another
device than CUDA, in float64, where a gradient is wanted or for a kernel without a `FusedForm`, `fused_columns`
is None and the products are torch's.

A scaled input u is the sum of two float16 numbers, u = u₁ + u₂, good to 2⁻²² of the longest row. One float16 matrix
product with float32 sums then gives s to float32 accuracy,

    [u₁, u₂, u₁ | ν₁, ν₂, ν₃ | c, c, c] · [2w₁, 2w₁, 2w₂ | −c, −c, −c | −ω₁, −ω₂, −ω₃] = −|u − w|²,

where ν₁ + ν₂ + ν₃ = |u|²/c and ω likewise of w: the norms cost six columns and no further arithmetic. Everything is
multiplied by a power of two beforehand, so that no input over- or underflows float16.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from mercer.engine.plan import Plan
from mercer.kernels import FusedForm, Kernel

LOG2E = math.log2(math.e)
#: The profiles that the programs know, and the factor on the inputs that makes their exponentials powers of two.
UNITS = {
    "gaussian": LOG2E**0.5,
    "laplacian": LOG2E,
    "matern32": LOG2E,
    "matern52": LOG2E,
    "rational-quadratic": 1.0,
    "power": 1.0,
}
#: Operands are padded to a multiple of every block size.
PADDING = 256
#: The longest row is scaled to at most 2¹⁰, its squared norm to 2²⁰ = 2⁵ · c: within float16 with room on both sides.
EXPONENT, CARRIER = 10, 2.0**15
#: Programs per launch, where the work allows: several waves over the chip, so that the last one matters little.
PROGRAMS = 4096
#: Columns of V that one program holds.
LARGEST_P = 64


@dataclass(frozen=True)
class Blocks:
    """Rows and columns of a program's block, its warps, and its loads in flight."""

    rows: int = 128
    columns: int = 64
    warps: int = 4
    stages: int = 3


def choose_blocks(width: int, p: int) -> Blocks:
    """The block for packed inputs of `width` columns and p columns of V: THE place for measured choices."""
    if width > 128:
        return Blocks(128, 64, 4, 2)
    if p > 16:
        return Blocks(128, 64, 8, 2)
    if p == 1 and width <= 32:
        return Blocks(64, 128, 4, 2)
    return Blocks(128, 64, 4, 3)


def fused_columns(kernel: Kernel, basis: Tensor, plan: Plan) -> FusedColumns | None:
    """The kernel bound to `basis` for fused products, or None where they do not apply."""
    if plan.device.type != "cuda" or plan.dtype != torch.float32:
        return None
    return bind(kernel, basis, plan.precision)


def bind(kernel: Kernel, basis: Tensor, precision: str = "accurate") -> FusedColumns | None:
    """The kernel bound to `basis`, wherever that is; None where kernel, gradients or a missing Triton forbid it."""
    traced = any(isinstance(value, Tensor) and value.requires_grad for value in (basis, *kernel.tunable().values()))
    if traced or basis.dtype != torch.float32 or _programs() is None:
        return None
    form = kernel.form(basis)
    if (
        form is None
        or form.profile not in UNITS
        or basis.shape[0] * packed_width(form, basis.shape[1], precision) >= 2**31
    ):
        return None
    return FusedColumns(form, basis, precision)


def _programs() -> ModuleType | None:
    try:
        from mercer.engine import fused_kernels
    except ImportError:  # no Triton
        return None
    return fused_kernels


@dataclass(frozen=True)
class FusedColumns:
    """A kernel bound to m basis vectors: called on rows it writes the tile, as any bound kernel does.

    `blocks` and `folded` override the choice of block and whether norms are packed, for measurements.
    """

    form: FusedForm
    basis: Tensor
    precision: str = "accurate"
    blocks: Blocks | None = None
    folded: bool = True

    @property
    def width(self) -> int:
        """Packed float16 numbers a row."""
        return packed_width(self.form, self.basis.shape[1], self.precision, self.folded)

    def __call__(self, X: Tensor) -> Tensor:
        """The tile K(X, basis)."""
        n, m = X.shape[0], self.basis.shape[0]
        out = torch.empty(n, m, device=X.device)
        if n and m:
            packed, b = self._pack(X, self.basis), Blocks(128, 128, 8, 2)
            grid = (-(-n // b.rows), -(-m // b.columns))
            self._launch("tile_program", grid, b, packed, (out, n, m), variance=self.form.variance, bias=self.form.bias)
        return out

    def product(self, X: Tensor, V: Tensor) -> Tensor:
        """K(X, basis) V, n × p, in float32."""
        out = self._sums(X, self.basis, V)[0].sum(0)
        return self._affine(out, V).float()

    def transposed(self, X: Tensor, R: Tensor) -> Tensor:
        """K(X, basis)ᵀ R, m × p, in float64: the kernel is symmetric, so rows and basis change places."""
        out = self._sums(self.basis, X, R)[0].sum(0, dtype=torch.float64)
        return self._affine(out, R)

    def column_scores(self, X: Tensor, g: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """k_jᵀ g and k_jᵀ D k_j for every column j, in float64, in one pass."""
        variance, bias = self.form.variance, self.form.bias
        d = g.new_ones(X.shape[0]) if weight is None else weight.to(g.dtype)
        R = torch.cat([g, d[:, None]], 1) if bias else g
        sums, squares = (part.sum(0, dtype=torch.float64) for part in self._sums(self.basis, X, R, d))
        curvature = variance**2 * squares
        if bias:
            curvature += bias * (2 * variance * sums[:, -1] + bias * d.sum(dtype=torch.float64))
        return self._affine(sums[:, : g.shape[1]], g), curvature

    def _affine(self, sums: Tensor, V: Tensor) -> Tensor:
        """(variance · K + bias) V from K V."""
        if self.form.variance != 1:
            sums = sums * self.form.variance
        return sums + self.form.bias * V.sum(0, dtype=torch.float64) if self.form.bias else sums

    def _pack(self, X: Tensor, Z: Tensor) -> Packed:
        return pack(self.form, X, Z, self.precision, self.folded)

    def _sums(self, X: Tensor, Z: Tensor, V: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """p(s) V and p(s)² weight in float32: (parts, n, p) and (parts, n), to be summed over the parts."""
        n, m, p = X.shape[0], -(-Z.shape[0] // PADDING) * PADDING, V.shape[1]
        b = self.blocks or choose_blocks(self.width, min(p, LARGEST_P))
        row_blocks, column_blocks = max(-(-n // b.rows), 1), m // b.columns
        parts = max(min(-(-PROGRAMS // row_blocks), column_blocks // 16), 1)
        span = max(-(-column_blocks // parts), 1) * b.columns
        parts = max(-(-m // span), 1)
        out, squares = V.new_zeros(parts, n, p, dtype=torch.float32), V.new_zeros(parts, n, dtype=torch.float32)
        if not n or not m:
            return out, squares
        packed = self._pack(X, Z)
        d = squares if weight is None else pad(weight.float(), (0, m - weight.shape[0]))
        for begin in range(0, max(p, 1 if weight is not None else 0), LARGEST_P):
            held = out[:, :, begin : begin + LARGEST_P]
            factor = self._split_factor(held.shape[2])
            values, unit = split_columns(V[:, begin : begin + LARGEST_P].float(), m, factor)
            P = values.shape[-2]
            piece = out if p == P else out.new_empty(parts, n, P)
            self._launch(
                "product_program", (row_blocks, parts), b, packed, (values, d, piece, squares, n, m, span),
                P=P, SPLIT=factor, PRECISION="tf32" if self.precision == "fast" else "tf32x3",
                SQUARES=weight is not None and begin == 0,
            )  # fmt: skip
            if P > 1 or piece is not out:
                held.copy_(piece[:, :, : held.shape[2]] * unit)
        return out, squares

    def _split_factor(self, p: int) -> int:
        """Float16 numbers per kernel value where it meets V: none for one column, or where values exceed one."""
        if p <= 1 or self.form.profile == "power":
            return 0
        return 1 if self.precision == "fast" else 2

    def _launch(
        self, name: str, grid: tuple[int, int], b: Blocks, packed: Packed, rest: tuple[Any, ...], **options: Any
    ) -> None:
        big, tail, streamed = chunks(packed.left.shape[1])
        getattr(_programs(), name)[grid](
            packed.left, packed.right, packed.left_norms, packed.right_norms, packed.unscale, *rest,
            exponent=float(self.form.exponent), offset=self.form.offset, PROFILE=self.form.profile,
            DEGREE=int(self.form.exponent) if self.form.profile == "power" else 1,
            FOLDED=self.folded or not self.form.radial, BIG=big, TAIL=tail, REST=streamed,
            ROWS=b.rows, COLUMNS=b.columns, num_warps=b.warps, num_stages=b.stages, enable_fp_fusion=True, **options,
        )  # fmt: skip


@dataclass(frozen=True)
class Packed:
    """Operands of one launch: float16 rows of both sides, their norms, and what undoes the power of two."""

    left: Tensor
    right: Tensor
    left_norms: Tensor
    right_norms: Tensor
    unscale: Tensor


def pack(form: FusedForm, X: Tensor, Z: Tensor, precision: str = "accurate", folded: bool = True) -> Packed:
    """Rows of `X` and of `Z` as the module's docstring lays them out."""
    unit, width = UNITS[form.profile], packed_width(form, X.shape[1], precision, folded)
    u, w = form.inputs(X.float(), unit), form.inputs(Z.float(), unit)
    scale = _fitting_scale(u, w)
    u1, u2 = _rounded(u * scale, precision)
    w1, w2 = _rounded(w * scale, precision)
    left, right = ([u1], [w1]) if u2 is None or w2 is None else ([u1, u2, u1], [w1, w1, w2])
    left_norms, right_norms = _squared_norms(u1, u2), _squared_norms(w1, w2)
    if form.radial:
        right = [2 * column for column in right]
    if form.radial and folded:
        nu, omega = (torch.cat(split(norms / CARRIER, 3), 1) for norms in (left_norms, right_norms))
        left += [nu, torch.full_like(nu, CARRIER)]
        right += [torch.full_like(omega, -CARRIER), -omega]
    unscale = scale.square().reciprocal()
    return Packed(
        _joined(left, width),
        _joined(right, width),
        _padded(left_norms * unscale),
        _padded(right_norms * unscale),
        unscale,
    )


def _fitting_scale(*sides: Tensor) -> Tensor:
    """The power of two that brings the longest row to a length between 2⁹ and 2¹⁰."""
    longest = torch.stack([a.square().sum(1).amax() for a in sides if a.shape[0]]).amax()
    return power_of_two(EXPONENT - (torch.frexp(longest).exponent + 1) // 2, limit=60)


def _rounded(a: Tensor, precision: str) -> tuple[Tensor, Tensor | None]:
    digits = split(a, 1 if precision == "fast" else 2)
    return digits[0], digits[1] if len(digits) > 1 else None


def _squared_norms(first: Tensor, second: Tensor | None) -> Tensor:
    """Of the rounded rows, n × 1: of what enters the product, so that s is the squared distance of real points."""
    a = first.float() if second is None else first.float() + second
    return a.square().sum(1, keepdim=True)


def _joined(columns: list[Tensor], width: int) -> Tensor:
    used = sum(column.shape[1] for column in columns)
    return _padded(torch.cat([*columns, columns[0].new_zeros(columns[0].shape[0], width - used)], 1))


def _padded(a: Tensor) -> Tensor:
    """`a` with rows of zeros up to a multiple of `PADDING`."""
    short = -a.shape[0] % PADDING
    return pad(a, (0, 0, 0, short)) if short else a


def split(a: Tensor, count: int) -> list[Tensor]:
    """`count` float16 tensors whose sum is `a`, to 11 bits each."""
    digits: list[Tensor] = []
    for _ in range(count):
        digits.append(a.half())
        a = a - digits[-1]
    return digits


def split_columns(V: Tensor, m: int, factor: int) -> tuple[Tensor, Tensor]:
    """V by columns of m entries, in float32 or as `factor` float16 numbers, and what undoes its scaling."""
    p, rows = V.shape[1], m - V.shape[0]
    one = V.new_ones(p)
    if p <= 1:
        return pad(V, (0, 1 - p, 0, rows)).reshape(1, m), one
    padding = (0, rows, 0, max(16, 1 << (p - 1).bit_length()) - p)
    if factor == 0:
        return pad(V.T, padding).contiguous(), one
    scale = power_of_two(EXPONENT - torch.frexp(V.abs().amax(0)).exponent, limit=120)
    return torch.stack([pad(half.T, padding) for half in split(V * scale, factor)]), scale.reciprocal()


def power_of_two(exponent: Tensor, limit: int) -> Tensor:
    """2 to these whole numbers, exactly: built from the bits of a float32 number."""
    return ((exponent.clamp(-limit, limit).int() + 127) << 23).view(torch.float32)


def packed_width(form: FusedForm, D: int, precision: str = "accurate", folded: bool = True) -> int:
    """Columns of a packed row of D inputs: as many as `chunks` can cut."""
    used = D * (1 if precision == "fast" else 3) + (6 if form.radial and folded else 0)
    return sum(chunks(used))


def chunks(width: int) -> tuple[int, int, int]:
    """At least `width` columns as two powers of two that stay on the chip, and a multiple of 64 that streams by.

    >>> from mercer.engine.fused import chunks
    >>> chunks(30), chunks(69), chunks(168), chunks(396)
    ((32, 0, 0), (64, 16, 0), (128, 64, 0), (128, 64, 256))
    """
    if width > 192:
        return 128, 64, -(-(width - 192) // 64) * 64
    big = 1 << max(min(width.bit_length() - 1, 7), 4)
    if width <= big:
        return big, 0, 0
    tail = max(1 << (width - big - 1).bit_length(), 16)
    return (big, tail, 0) if tail < big else (2 * big, 0, 0)
