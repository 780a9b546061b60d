"""Products of a large matrix of single precision with a few columns, as steps of conjugate gradients ask for them.

Such a product reads the matrix once, which is nearly all it need take. BLAS without MKL copies the matrix into panels
first: of 12 000 rows and four columns 103 ms of a Neoverse N1, where machine code that reads four rows at a time
against four columns takes 58.
"""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor
from torch.nn.functional import pad

from mercer.kernels.compiled import ENOUGH, FASTER, machine_code
from mercer.kernels.row_threads import over_rows

#: Numbers of a row whose products are summed in single precision.
SUMMED = 8192


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
    code = machine_code() if FASTER and A.numel() >= ENOUGH else None
    if code is None:
        return (right @ A).T.double() * scale
    return _by_machine_code(A.contiguous(), right, code).T * scale


def _by_machine_code(A: Tensor, right: Tensor, code: ModuleType) -> Tensor:
    """right Aᵀ, p × n, in double precision."""
    (n, length), p, side, strip = A.shape, len(right), code.LANES, code.WIDTH
    whole, summed = length // strip * strip, max(SUMMED // strip, 1) * strip
    right = pad(right, (0, 0, 0, -p % side))
    out, multiply = torch.zeros(len(right), n, dtype=torch.float64), code.thin()

    def work(where: slice) -> None:
        rows, count = A[where], (where.stop - where.start) // side
        sums = A.new_empty(max(count, 1) * side, side)
        for first in range(0, len(right), side):
            own = out[first : first + side, where.start : where.start + count * side]
            for start in range(0, whole if count else 0, summed):
                size = min(summed, whole - start)
                columns = right[first : first + side, start : start + size].contiguous()
                multiply(rows[:, start:].data_ptr(), count, length, columns.data_ptr(), size // strip, sums.data_ptr())
                own += sums[: count * side].T
        done = where.start + count * side
        out[:, done : where.stop] = (right @ A[done : where.stop].T).double()
        if whole < length:
            out[:, where.start : done] += (right[:, whole:] @ rows[: count * side, whole:].T).double()

    over_rows(n, side, work)
    return out[:p]
