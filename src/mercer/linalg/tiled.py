"""A Cholesky factor of a matrix that never exists: panels of columns are made when the factor reaches them.

The factor is the only n × n array, in float32. Its solutions have few digits; conjugate gradients around it, with
products in float64, have all of them. It needs a quarter of what a float64 matrix, its factor and their copies take:
twice the rows fit.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from mercer.linalg.cholesky import cholesky, solve_lower

#: Columns of a panel: wide enough for the speed of matrix products, and a sixteenth of the matrix at most.
PANEL = 1024


class TiledCholesky:
    """L with L Lᵀ ≈ A in float32, from `panel(start, stop)`, which gives A[start:, start:stop] in any precision.

    Left-looking: a panel is made, what the columns before it explain is subtracted in one product, and its first square
    is factored in float64. The diagonal is raised by what float32 cannot resolve, so a positive semi-definite A has a
    factor too.

    >>> import torch
    >>> from mercer.linalg import TiledCholesky
    >>> A = torch.tensor([[4.0, 2.0], [2.0, 3.0]], dtype=torch.float64)
    >>> factor = TiledCholesky(2, lambda start, stop: A[start:, start:stop], width=1)
    >>> factor.solve(A @ torch.tensor([[1.0], [-1.0]], dtype=torch.float64)).round(decimals=5).tolist()
    [[1.0], [-1.0]]
    """

    def __init__(self, n: int, panel: Callable[[int, int], Tensor], width: int | None = None) -> None:
        width = width or min(PANEL, max(n // 16, 64))
        first = panel(0, min(width, n))
        L = torch.empty(n, n, dtype=torch.float32, device=first.device)
        unresolved = 10 * n**0.5 * torch.finfo(torch.float32).eps
        for start in range(0, n, width):
            stop = min(start + width, n)
            made = first if start == 0 else panel(start, stop)
            column = made.to(torch.float32, copy=True)
            column.diagonal().mul_(1 + unresolved)
            column.addmm_(L[start:, :start], L[start:stop, :start].T, alpha=-1)
            square = cholesky(column[: stop - start].double())[0].float()
            L[start:stop, start:stop] = square
            L[stop:, start:stop] = torch.linalg.solve_triangular(
                square.T, column[stop - start :], upper=True, left=False
            )
        self.L = L

    def solve(self, r: Tensor) -> Tensor:
        """About A⁻¹ r (n × p), in float64 of seven digits."""
        return solve_lower(self.L, r)
