"""Fused products on a GPU: K_nm is made and multiplied on the chip, and no tile of it is written to memory.

This module launches the programs of `fused_kernels` and `hopper_kernels` on operands from `packing`. `fused_columns` is
None, and products are torch's, without Triton, on other devices than CUDA, in float64, where a gradient is wanted, and
for kernels without a `FusedForm`.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from threading import Thread
from types import ModuleType
from typing import Any, final

import torch
from torch import Tensor
from torch.nn.functional import pad

from mercer.codegen.cpu import FEW_INPUTS
from mercer.engine.packing import PADDING, PROFILES, Packed, chunks, in_powers_of_two, pack, packed_width, split_columns
from mercer.engine.plan import Plan
from mercer.kernels import Columns, FusedForm, Kernel
from mercer.kernels.columns import affine_product, affine_scores
from mercer.kernels.radial import radial_gradients

#: Programs per launch, where the work allows: several waves over the chip, so that the last one matters little.
PROGRAMS = 4096
#: Columns of V that one program holds.
LARGEST_P = 64
#: The largest norm, squared and in units of length-scales, that products are good for: 2⁻²² of it, by which exponents
#: are off, is seven, so that values are noise. Differences take three times as long, and boosting corrects smaller
#: noise (land and sea, ten million rows: 0.349 % of errors in 33.5 s without differences, 0.342 % in 48 s with them
#: from 4e4 on; all rows 0.295 % in 195 s from 1e6 on).
LONGEST = 3e7


@dataclass(frozen=True)
class Blocks:
    """Rows and columns of a program's block, its warps, and its loads in flight."""

    rows: int = 128
    columns: int = 64
    warps: int = 4
    stages: int = 3


def choose_blocks(width: int, p: int) -> Blocks:
    """The block for packed inputs of `width` columns and p columns of V, as measured."""
    if width > 176:  # a third block in flight would leave no room for a second program beside the first
        return Blocks(128, 64, 4, 2)
    if p > 16:
        return Blocks(128, 64, 8, 2)
    if p == 1 and width <= 32:
        return Blocks(64, 128, 4, 3)
    return Blocks(128, 64, 4, 3)


def divide(n: int, m: int, rows: int, columns: int) -> tuple[int, int, int]:
    """Blocks of rows, parts of the columns, and columns of a part: enough programs, of sixteen blocks or more."""
    row_blocks, column_blocks = max(-(-n // rows), 1), m // columns
    parts = max(min(-(-PROGRAMS // row_blocks), column_blocks // 16), 1)
    span = max(-(-column_blocks // parts), 1) * columns
    return row_blocks, max(-(-m // span), 1), span


def slope_form(form: FusedForm) -> FusedForm | None:
    """The derivative p'(s) of a profile, where that is a profile too; None where it is not."""
    if form.profile == "rational-quadratic":
        return replace(form, exponent=form.exponent + 1, variance=form.variance * form.exponent, bias=0.0)
    found = None if form.formula is None else form.formula.slope()
    if found is None:
        return None
    divisor, derivative = found
    return replace(form, formula=derivative, variance=form.variance / divisor, bias=0.0)


def fused_columns(kernel: Kernel, basis: Tensor, plan: Plan) -> FusedColumns | None:
    """The kernel bound to `basis` for fused products, or None where they do not apply."""
    if plan.device.type != "cuda" or plan.dtype != torch.float32:
        return None
    return bind(kernel, basis)


def bind(kernel: Kernel, basis: Tensor) -> FusedColumns | None:
    """The kernel bound to `basis`, wherever that is; None where kernel, gradients or a missing Triton forbid it."""
    traced = any(isinstance(value, Tensor) and value.requires_grad for value in (basis, *kernel.tunable().values()))
    if traced or basis.dtype != torch.float32 or _programs() is None:
        return None
    plain = kernel.columns(basis)
    form = plain.fused_form()
    if form is None or form.profile not in PROFILES or basis.shape[0] * packed_width(form, basis.shape[1]) >= 2**31:
        return None
    return FusedColumns(choose_geometry(form, basis), basis, plain=plain)


def choose_geometry(form: FusedForm, basis: Tensor) -> FusedForm:
    """The form by squared differences, if inputs are few and norms so large that products would lose the distances."""
    if form.geometry != "distance" or basis.shape[1] > FEW_INPUTS or not len(basis):
        return form
    longest = ((basis - form.shift) * form.scale).square().sum(1).max()
    return replace(form, geometry="differences") if float(longest) > LONGEST else form


def compiled_ahead(kernel: Kernel, n_columns: int, plan: Plan) -> Thread | None:
    """A thread that compiles the programs of this kernel's products while other work is done; None without programs.

    Compiling them one after the other on first use takes five seconds where Triton's cache is empty.
    """
    row = torch.zeros(1, n_columns, device=plan.device)
    columns = fused_columns(kernel, row, plan)
    V = row.new_ones(1, 1)
    if columns is None:
        return None

    def compiled() -> None:
        with suppress(Exception), ThreadPoolExecutor(3) as pool:  # an error shows when a product is needed
            pack(columns.form, row, row)  # the first step of all of them
            pool.submit(columns.product, row, V)
            pool.submit(columns.column_scores, row, V)
            pool.submit(columns, row)

    thread = Thread(target=compiled, daemon=True)
    thread.start()
    return thread


def _programs() -> ModuleType | None:
    try:
        from mercer.engine import fused_kernels
    except ImportError:  # no Triton
        return None
    return fused_kernels


@cache
def _hopper_programs() -> ModuleType | None:
    """The Gluon programs; None where importing them fails."""
    try:
        from mercer.engine import hopper_kernels
    except (ImportError, AttributeError):
        return None
    return hopper_kernels


@final
@dataclass(frozen=True)
class FusedColumns(Columns):
    """A kernel bound to m basis vectors whose products write no tile; called on rows it writes the tile.

    `blocks` overrides the choice of block, for measurements. `plain` are the same columns by torch, for slopes that
    have no program.
    """

    form: FusedForm
    basis: Tensor
    blocks: Blocks | None = None
    plain: Columns | None = None

    @property
    def width(self) -> int:
        """Packed float16 numbers a row."""
        return packed_width(self.form, self.basis.shape[1])

    def __call__(self, X: Tensor) -> Tensor:
        """The tile K(X, basis)."""
        n, m = X.shape[0], self.basis.shape[0]
        out = torch.empty(n, m, device=X.device)
        if n and m:
            packed, b = pack(self.form, X, self.basis), Blocks(128, 128, 8, 2)
            grid = (-(-n // b.rows), -(-m // b.columns))
            self._launch("tile_program", grid, b, packed, (out, n, m), variance=self.form.variance, bias=self.form.bias)
        return out

    def with_basis(self, Z: Tensor) -> FusedColumns:
        return replace(self, basis=Z, plain=None if self.plain is None else self.plain.with_basis(Z))

    def product(self, X: Tensor, V: Tensor) -> Tensor:
        """K(X, basis) V, n × p, in float32."""
        out = self._sums(X, self.basis, V)[0].sum(0)
        return affine_product(out, V, self.form.variance, self.form.bias)

    def normal(self, X: Tensor, W: Tensor, weight: Tensor) -> Tensor:
        return self.transposed(X, weight[:, None].to(W.dtype) * self.product(X, W))

    def slopes(self, X: Tensor, W: Tensor) -> Tensor:
        slope = slope_form(self.form)
        if slope is None:
            assert self.plain is not None
            return self.plain.slopes(X, W)
        u, w = ((rows - self.form.shift) * self.form.scale for rows in (X, self.basis))
        derivative = replace(self, form=slope, plain=None)
        return radial_gradients(u, w, self.form.scale, W, lambda V: derivative.product(X, V))

    def transposed(self, X: Tensor, R: Tensor) -> Tensor:
        """K(X, basis)ᵀ R, m × p, in float64: the kernel is symmetric, so rows and basis change places."""
        out = self._sums(self.basis, X, R)[0].sum(0, dtype=torch.float64)
        return affine_product(out, R, self.form.variance, self.form.bias)

    def column_scores(self, X: Tensor, g: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """k_jᵀ g and k_jᵀ D k_j for every column j, in float64, in one pass."""
        d = g.new_ones(X.shape[0]) if weight is None else weight.to(g.dtype)

        def scores(R: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
            sums, squares = (part.sum(0, dtype=torch.float64) for part in self._sums(self.basis, X, R, d))
            return sums, squares

        return affine_scores(scores, g, d, self.form.variance, self.form.bias)

    def _sums(self, X: Tensor, Z: Tensor, V: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """p(s) V and p(s)² weight in float32: (parts, n, p) and (parts, n), to be summed over the parts.

        Without a weight the second is zero.
        """
        n, m, p = X.shape[0], -(-Z.shape[0] // PADDING) * PADDING, V.shape[1]
        hopper = self._faster_on_hopper(V.device) if p == 1 and weight is None and n and m else None
        if hopper is not None:
            return self._vector_sums(hopper, X, Z, V), V.new_zeros(1, n)
        b = self.blocks or choose_blocks(self.width, min(p, LARGEST_P))
        row_blocks, parts, span = divide(n, m, b.rows, b.columns)
        out, squares = V.new_zeros(parts, n, p, dtype=torch.float32), V.new_zeros(parts, n, dtype=torch.float32)
        if not n or not m:
            return out, squares
        packed = pack(self.form, X, Z)
        d = squares if weight is None else pad(weight.float(), (0, m - weight.shape[0]))
        for begin in range(0, max(p, 1 if weight is not None else 0), LARGEST_P):
            held = out[:, :, begin : begin + LARGEST_P]
            split = held.shape[2] > 1 and self.form.profile != "power"  # values of a power may exceed one
            values, unit = split_columns(V[:, begin : begin + LARGEST_P].float(), m, split)
            P = values.shape[-2]
            piece = out if p == P else out.new_empty(parts, n, P)
            self._launch(
                "product_program", (row_blocks, parts), b, packed, (values, d, piece, squares, n, m, span),
                P=P, SPLIT=split,
                SQUARES=weight is not None and begin == 0,
            )  # fmt: skip
            if P > 1 or piece is not out:
                held.copy_(piece[:, :, : held.shape[2]] * unit)
        return out, squares

    def _faster_on_hopper(self, device: torch.device) -> ModuleType | None:
        """The program for Hopper GPUs, if the device is one, the kernel is Gaussian and the program is faster."""
        formula = self.form.formula if self.form.geometry == "distance" else None
        gaussian = formula is not None and not formula.root and formula.polynomial == (1,)
        if device.type != "cuda" or self.blocks is not None or not gaussian:
            return None
        programs = _hopper_programs()
        return programs if programs is not None and programs.supports(self.width, device) else None

    def _vector_sums(self, hopper: ModuleType, X: Tensor, Z: Tensor, v: Tensor) -> Tensor:
        """p(s) v in float32, (parts, n, 1), by the program for Hopper GPUs."""
        packed, n = pack(self.form, X, Z), X.shape[0]
        m = packed.right.shape[0]
        row_blocks, parts, span = divide(n, m, hopper.ROWS, hopper.COLUMNS)
        out = v.new_empty(parts, n, 1, dtype=torch.float32)
        big, tail, tip, _ = chunks(packed.left.shape[1])
        described = hopper.descriptors(packed.right, split_columns(v.float(), m, split=False)[0], (big, tail, tip))
        hopper.vector_product_program[row_blocks, parts](
            packed.left, *described, packed.unscale, out, n, m, span, BIG=big, TAIL=tail, TIP=tip,
            COLUMNS=hopper.COLUMNS, STAGES=hopper.STAGES, num_warps=4, enable_fp_fusion=True,
        )  # fmt: skip
        return out

    def _launch(
        self, name: str, grid: tuple[int, int], b: Blocks, packed: Packed, rest: tuple[Any, ...], **options: Any
    ) -> None:
        separable, D = self.form.geometry == "separable", self.basis.shape[1]
        formula = in_powers_of_two(self.form)
        big, tail, tip, streamed = chunks(packed.left.shape[1]) if self.form.multiplies else (0, 0, 0, D)
        getattr(_programs(), name)[grid](
            packed.left, packed.right, packed.unscale, *rest,
            left_length=packed.left.shape[1], right_length=packed.right.shape[1],
            exponent=float(self.form.exponent), offset=self.form.offset, norm=float(self.form.norm),
            PROFILE=self.form.profile, DEGREE=int(self.form.exponent) if self.form.profile == "power" else 1,
            ROOT=formula.root, LINEAR=formula.linear, QUADRATIC=formula.quadratic,
            PLAIN=separable and self.form.norm == self.form.exponent == 1,
            SQUARED=self.form.geometry == "differences",
            BIG=big, TAIL=tail, TIP=tip, REST=streamed,
            ROWS=b.rows, COLUMNS=b.columns, num_warps=b.warps, num_stages=b.stages, enable_fp_fusion=True, **options,
        )  # fmt: skip
