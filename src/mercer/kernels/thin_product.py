"""Products of a large matrix of single precision with a few columns, as steps of conjugate gradients ask for them.

Such a product reads the matrix once, which is nearly all it need take. BLAS without MKL copies the matrix into panels
first: of 12 000 rows and four columns 103 ms of a Neoverse N1, where machine code that reads four rows at a time
against four columns takes 58.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import pad

from mercer.kernels.compiled import FASTER, machine_code
from mercer.kernels.row_threads import over_rows

#: Numbers of a matrix from which on machine code is worth its making: some products with as many pay for it.
ENOUGH = 3 << 20
#: Rows and columns at a time; with vectors of as many numbers their sums fill the registers of NEON.
SIDE = 4
#: Numbers of a row for each turn of the innermost loop.
STRIP = 16
#: Numbers of a row whose products are summed in single precision: a multiple of `STRIP`.
SUMMED = 8192
#: Two threads must not make the function at once, and a process forked off finds the lock open.
_lock = threading.Lock()
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def thin_product(A: Tensor, V: Tensor) -> Tensor:
    """A V in double precision for a symmetric A (n × n, single precision) and few columns V (n × p, double).

    Columns are scaled before they are rounded, so that none overflows.

    >>> import torch
    >>> from mercer.kernels.thin_product import thin_product
    >>> thin_product(torch.eye(2), torch.tensor([[1.0], [2.0]], dtype=torch.float64)).tolist()
    [[1.0], [2.0]]
    """
    scale = V.abs().amax(0).clamp(min=1e-300)
    right = (V / scale).float().T.contiguous()  # p × n
    if not (FASTER and A.numel() >= ENOUGH and machine_code() is not None):
        return (right @ A).T.double() * scale
    return _by_machine_code(A, right).T * scale


def _by_machine_code(A: Tensor, right: Tensor) -> Tensor:
    """right Aᵀ, p × n, in double precision."""
    (n, length), p = A.shape, len(right)
    whole = length // STRIP * STRIP
    right = pad(right, (0, 0, 0, -p % SIDE))
    out, multiply = torch.zeros(len(right), n, dtype=torch.float64), _function()

    def work(where: slice) -> None:
        rows, count = A[where], (where.stop - where.start) // SIDE
        sums = A.new_empty(max(count, 1) * SIDE, SIDE)
        for first in range(0, len(right), SIDE):
            own = out[first : first + SIDE, where.start : where.start + count * SIDE]
            for start in range(0, whole if count else 0, SUMMED):
                size = min(SUMMED, whole - start)
                columns = right[first : first + SIDE, start : start + size].contiguous()
                multiply(rows[:, start:].data_ptr(), count, length, columns.data_ptr(), size // STRIP, sums.data_ptr())
                own += sums[: count * SIDE].T
        done = where.start + count * SIDE
        out[:, done : where.stop] = (right @ A[done : where.stop].T).double()
        if whole < length:
            out[:, where.start : done] += (right[:, whole:] @ rows[: count * SIDE, whole:].T).double()

    over_rows(n, SIDE, work)
    return out[:p]


@cache
def _made() -> Callable[..., None]:
    """Rows (groups · SIDE of them, each `length` numbers after the last), columns (SIDE × strips · SIDE), sums."""
    from mercer.kernels.vector_code import INT, SMALL, Writer, constant

    w = Writer("thin", "fiifif")
    b, (rows, groups, length, right, strips, out) = w.build, w.function.args
    width = b.mul(strips, INT(STRIP))
    with w.loop(groups) as (group, _, _):
        first = b.mul(group, INT(SIDE))
        here = [w.place(rows, (b.add(first, INT(r)), length)) for r in range(SIDE)]
        there = [w.place(right, (INT(c), width)) for c in range(SIDE)]
        with w.loop(strips, (constant(0.0, SMALL),) * SIDE**2) as (strip, following, after):
            at = b.mul(strip, INT(STRIP))
            for k in range(0, STRIP, SIDE):
                xs, vs = ([w.load(w.place(one, at, k), SMALL) for one in some] for some in (here, there))
                pairs = [(x, v) for x in xs for v in vs]
                following = [w.times_plus(x, v, total) for (x, v), total in zip(pairs, following, strict=True)]
            after += following
        for k, total in enumerate(after):
            w.store(w.total(total), w.place(out, (first, SIDE), k))
    return w.compiled()


def _function() -> Callable[..., None]:
    with _lock:
        return _made()
