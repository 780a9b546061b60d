"""Products and tiles of stationary kernels by machine code (`machine_code`): when it pays, its operands, its threads.

Torch does everything if LLVM is missing or the work is too little to pay for compiling a function. The product of a
large matrix with a few columns (`thin_product`) is machine code, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from mercer.codegen.cpu import ClosedForm, over_rows, thread_buffer

MKL = torch.backends.mkl.is_available()
#: Number of values from which on machine code is made. Loading LLVM takes 0.1 s and compiling a function as long, once
#: in a process; a value is computed 2.6 ns sooner (ARM Neoverse N1, one thread, D = 8), and 0.8 ns where torch has MKL
#: (x86, AVX-512). So 25 passes over as many values pay for it. K·v of 40 000 × 2048 values with two such threads, by
#: machine code and by torch with MKL: Gaussian 33 and 72 ms at D = 8, 72 and 101 at 54, 274 and 253 at 200; Laplacian
#: 30 and 288, 120 and 2200.
ENOUGH = 3 << 20
ENOUGH_FOR_MKL = 4 * ENOUGH
#: Inputs up to which machine code sums products as fast as MKL does.
INPUTS_FOR_MKL = 128
#: Absolute differences of this many inputs save as much time as one kernel value does.
INPUTS = 4
#: Columns up to which a product writes no tile: for more, a tile and a matrix product are faster.
OUTPUTS = 16
#: Numbers of basis vectors that a loop over rows reads repeatedly: half of a second-level cache.
CACHE = 1 << 16
#: Rows whose products are summed in single precision: a multiple of six and of eight rows.
SUMMED = 384
#: Least number of multiplications of a thread's part, half a millisecond, and the number that takes as long as one
#: exponential.
HANDED, EXPONENTIAL = 12 << 20, 16
#: Numbers of a row whose products are summed in single precision.
NUMBERS_SUMMED = 8192


@cache
def machine_code() -> ModuleType | None:
    """The module that compiles functions; None if LLVM is missing or does not know this machine."""
    try:
        from mercer.codegen import machine_code as module
        from mercer.codegen import vector_code

        vector_code.Writer("nothing", "").compiled()
    except (ImportError, OSError, RuntimeError, AttributeError):
        return None
    return module


def pays(values: int, right: Tensor, form: ClosedForm | None) -> bool:
    """Whether compiling pays for this number of kernel values; `right` is K × m."""
    K, plain = len(right), right.device.type == "cpu" and right.dtype == torch.float32 and not right.requires_grad
    if form is None or not plain or K == 0:
        return False
    rival = MKL and not form.city_block
    enough, most = (ENOUGH_FOR_MKL, INPUTS_FOR_MKL) if rival else (ENOUGH, K)
    return values >= enough and most >= K and machine_code() is not None


def city_block(X: Tensor, Z: Tensor) -> Tensor:
    """Sums of absolute differences, n × m; torch takes 0.75 ns for each of them, machine code 0.1."""
    form = ClosedForm(polynomial=(), city_block=True)
    if X.requires_grad or X.dtype != Z.dtype or not pays(len(X) * Z.numel() // INPUTS, Z.T, form):
        return torch.cdist(X, Z, p=1.0)
    return Compiled(form, Z.T).tile(X)


@dataclass(frozen=True)
class Compiled:
    """A kernel bound to basis vectors `right` (K × m), for rows n × K, in single precision on the CPU."""

    form: ClosedForm
    right: Tensor

    @property
    def writes_tiles(self) -> bool:
        """Whether it writes a tile at least as fast as torch; MKL's threads start sooner."""
        return not MKL or self.form.city_block or self.form.differences

    @cached_property
    def strips(self) -> Tensor:
        """Basis vectors, a vector's width of them at a time: strips × K × WIDTH."""
        return self._in_strips(self.right).unflatten(1, (-1, self._width)).transpose(0, 1).contiguous()

    def tile(self, left: Tensor, variance: float = 1.0, bias: float = 0.0, slot: int | None = None) -> Tensor:
        """variance · K + bias, n × m; a temporary tile lies in the thread's buffer `slot`."""
        n, m, width, left = len(left), self.right.shape[1], self._width, self._padded(left)
        out = None if slot is None else thread_buffer(left, slot, (len(left), m))
        tile = left.new_empty(len(left), m) if out is None else out
        strips, (whole, rest) = self.strips, divmod(m, width)

        def work(where: slice) -> None:
            for block in self._blocks(whole):
                first = block.start * width
                self._run("tile", left[where], strips[block], tile[where, first:], m, variance, bias)
            if rest:
                last = left.new_empty(where.stop - where.start, width)
                self._run("tile", left[where], strips[whole:], last, width, variance, bias)
                tile[where, whole * width :] = last[:, :rest]

        over_rows(len(left), self._rows, work, self._least)
        return tile[:n]

    def product(self, left: Tensor, W: Tensor) -> Tensor:
        """K W, n × p."""
        n, p, V, left = len(left), W.shape[1], self._in_strips(W.T), self._padded(left)
        out = left.new_zeros(len(left), p)
        blocks = [(self.strips[b], self._columns(V, b).contiguous()) for b in self._blocks(len(self.strips))]

        def work(where: slice) -> None:
            room = left.new_empty(p * self._rows * self._width)
            for strips, v in blocks:
                self._run("product", left[where], strips, v, p, room, out[where])

        over_rows(len(left), self._rows, work, self._least)
        return out[:n]

    def transposed(self, left: Tensor, R: Tensor) -> Tensor:
        """KᵀR, m × p, in float64."""
        return self.scores(left, R, None)[0]

    def scores(self, left: Tensor, R: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
        """KᵀR (m × p) and Σ_i d_i k_ij² (m) in float64; `weight` is d, without it the second is zero."""
        left, R, p = self._padded(left), self._padded(R), R.shape[1]
        d = None if weight is None else self._padded(weight[:, None])
        name, m = "transposed" if d is None else "scores", len(self.strips) * self._width

        def work(where: slice) -> Tensor:
            total = torch.zeros(p + 1, m, dtype=torch.float64)
            for start in range(where.start, where.stop, SUMMED):
                rows = slice(start, min(start + SUMMED, where.stop))
                for block in self._blocks(len(self.strips)):
                    sums = left.new_zeros(p + 1, (block.stop - block.start) * self._width)
                    squares = () if d is None else (d[rows], sums[p])
                    self._run(name, left[rows], self.strips[block], R[rows], p, sums, *squares)
                    self._columns(total, block).add_(sums)
            return total

        found = over_rows(len(left), SUMMED, work, self._least)
        total = torch.stack(found).sum(0)[:, : self.right.shape[1]]
        return total[:p].T, total[p]

    @property
    def _width(self) -> int:
        return int(_code().WIDTH)

    @property
    def _rows(self) -> int:
        return int(_code().ROWS)

    @property
    def _least(self) -> int:
        """The least number of rows of a thread's part."""
        K, m = self.right.shape
        return HANDED // max((K + EXPONENTIAL) * m, 1)

    def _blocks(self, count: int) -> list[slice]:
        """Blocks of strips that fit into the cache."""
        size = max(CACHE // (self.right.shape[0] * self._width), 1)
        return [slice(start, min(start + size, count)) for start in range(0, count, size)]

    def _columns(self, V: Tensor, strips: slice) -> Tensor:
        return V[:, strips.start * self._width : strips.stop * self._width]

    def _in_strips(self, V: Tensor) -> Tensor:
        return pad(V, (0, -V.shape[1] % self._width))

    def _padded(self, X: Tensor) -> Tensor:
        """Rows padded by zeros to full groups."""
        missing = -len(X) % self._rows
        return (pad(X, (0, 0, 0, missing)) if missing else X).contiguous()

    def _run(self, name: str, left: Tensor, strips: Tensor, *arguments: Any) -> None:
        code, K = _code(), left.shape[1]
        room = left.new_empty(self._rows * (K * code.LANES + self._width))
        first = (left, len(left) // self._rows, K, strips, len(strips), room)
        code.function(self.form, name)(
            *(value.data_ptr() if isinstance(value, Tensor) else value for value in first + arguments)
        )


def _code() -> Any:
    module = machine_code()
    assert module is not None
    return module


def thin_product(A: Tensor, V: Tensor) -> Tensor:
    """A V in double precision for a symmetric A (n × n, single or double) and few columns V (n × p, double).

    Conjugate gradients use it. It reads A once, which is nearly all of its time. BLAS copies A into panels first: for
    12 000 rows and four columns it takes 103 ms on a Neoverse N1 and 62 on an x86 server, and machine code that reads
    four rows at a time takes 58 and 31. In double precision it takes 122 ms of an x86 core, BLAS 230.
    More columns are left to BLAS: machine code would read A once more for every four of them. Columns of zeros take no
    time. Others are scaled before they are rounded, so that none overflows.

    >>> thin_product(torch.eye(2), torch.tensor([[1.0], [2.0]], dtype=torch.float64)).tolist()
    [[1.0], [2.0]]
    """
    scale = V.abs().amax(0)
    used = scale != 0  # NaN counts as used
    if not bool(used.all()):
        out = torch.zeros_like(V)
        if bool(used.any()):
            out[:, used] = thin_product(A, V[:, used])
        return out
    scale = scale.clamp(min=1e-300)
    right = (V / scale).to(A.dtype).T.contiguous()  # p × n
    code = machine_code() if A.numel() >= ENOUGH else None
    if code is None or len(right) > code.LANES:
        return (right @ A).T.double() * scale
    return _by_machine_code(A.contiguous(), right, code).T * scale


def _by_machine_code(A: Tensor, right: Tensor, code: ModuleType) -> Tensor:
    """right Aᵀ, p × n, in double precision, for at most `code.LANES` rows of `right`."""
    (n, length), p, side, strip = A.shape, len(right), code.LANES, code.WIDTH
    whole, summed = length // strip * strip, max(NUMBERS_SUMMED // strip, 1) * strip
    right = pad(right, (0, 0, 0, side - p))
    out, multiply = torch.zeros(side, n, dtype=torch.float64), code.thin(A.dtype == torch.float64)

    def work(where: slice) -> None:
        rows, count = A[where], (where.stop - where.start) // side
        sums = A.new_empty(max(count, 1) * side, side)
        done = where.start + count * side
        for start in range(0, whole if count else 0, summed):
            size = min(summed, whole - start)
            columns = right[:, start : start + size].contiguous()
            multiply(rows[:, start:].data_ptr(), count, length, columns.data_ptr(), size // strip, sums.data_ptr())
            out[:, where.start : done] += sums[: count * side].T
        out[:, done : where.stop] = (right @ A[done : where.stop].T).double()
        if whole < length:
            out[:, where.start : done] += (right[:, whole:] @ rows[: count * side, whole:].T).double()

    over_rows(n, side, work)
    return out[:p]
