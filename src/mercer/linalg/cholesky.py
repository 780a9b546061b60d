"""Cholesky factors: in float64 with a jitter ladder, without a column (Givens rotations), and panel by panel.

Matrices are symmetric and only their lower triangle counts. Whether a large jitter deserves a
warning is the caller's business: the functions here return it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from mercer.parts import require

EPS = torch.finfo(torch.float64).eps
# m·eps of float32 at m = 10⁵ rows: what is still not positive then is not rounding.
LARGEST_JITTER = 1e-2
# Rotations gathered into one matrix product: enough to leave the memory-bound regime, while the
# product's cost (about twice this number per entry) stays small.
ROTATIONS_PER_PRODUCT = 32
#: Columns of a panel: wide enough for the speed of matrix products, and a sixteenth of the matrix at most.
PANEL = 1024


def require_finite(A: Tensor, name: str) -> None:
    """Refuse NaN and infinite values before they spread (a sum sees them, ten times faster than a mask)."""
    if not bool(A.sum(dtype=torch.float64).isfinite()):
        raise ValueError(f"{name} holds a NaN or infinite value, so no factor of it exists")


def cholesky(A: Tensor) -> tuple[Tensor, float]:
    """Lower factor of a positive semi-definite `A` in float64, and the jitter it needed.

    The jitter is relative to the mean of the diagonal: 0.0 where `A` could be factored as it is, else
    the first of 1e-15, 1e-14, … that succeeds; a matrix of zeros takes it as an absolute number.
    Gradients flow through the factor. While launches are recorded into a CUDA graph nobody can look at numbers: a
    factor that fails there is NaN.

    >>> factor, jitter = cholesky(torch.tensor([[4.0, 2.0], [2.0, 5.0]]))
    >>> factor.tolist(), jitter
    ([[2.0, 0.0], [1.0, 2.0]], 0.0)
    """
    require(A.ndim == 2 and A.shape[0] == A.shape[1], "the matrix to factor", "square", tuple(A.shape))
    if A.is_cuda and torch.cuda.is_current_stream_capturing():
        factor, info = torch.linalg.cholesky_ex(A.double())
        return torch.where(info == 0, factor, torch.nan), 0.0
    require_finite(A, "the matrix to factor")
    A = A.double()
    factor, info = torch.linalg.cholesky_ex(A)
    if not int(info):
        return factor, 0.0
    diagonal = A.detach().diagonal()
    mean, lowest = float(diagonal.mean()), float(diagonal.min())
    if lowest < -LARGEST_JITTER * max(mean, 0.0):
        raise ValueError(f"the matrix to factor has the negative value {lowest:.3g} on its diagonal")
    scale = mean if mean > 1e-290 else 1.0  # a smaller mean times the jitter would underflow
    identity = torch.eye(A.shape[0], dtype=A.dtype, device=A.device)
    jitter = 1e-15
    while jitter <= LARGEST_JITTER * 1.01:  # 1e-15 · 10ⁿ is rounded
        factor, info = torch.linalg.cholesky_ex(A + jitter * scale * identity)
        if not int(info):
            return factor, jitter
        jitter *= 10
    raise ValueError(
        f"the matrix to factor is not positive semi-definite up to rounding: adding {LARGEST_JITTER:g} "
        "of its mean diagonal to the diagonal does not make it so"
    )


def inverse_diagonal(L: Tensor, panel: int = 256) -> Tensor:
    """The diagonal of (LLᵀ)⁻¹: sums of squares of the columns of L⁻¹, which are made panel by panel.

    >>> inverse_diagonal(torch.tensor([[2.0, 0.0], [1.0, 2.0]])).tolist()
    [0.3125, 0.25]
    """
    out = L.new_empty(len(L))
    for start in range(0, len(L), panel):
        rest = L[start:, start:]  # what stands above is zero in these columns of L⁻¹
        columns = torch.eye(len(rest), min(panel, len(rest)), dtype=L.dtype, device=L.device)
        out[start : start + panel] = torch.linalg.solve_triangular(rest, columns, upper=False).square().sum(0)
    return out


def solve_factored(L: Tensor, R: Tensor) -> Tensor:
    """L⁻ᵀL⁻¹R: what `torch.cholesky_solve` gives, without its copy of the factor.

    >>> solve_factored(torch.tensor([[2.0, 0.0], [1.0, 2.0]]), torch.tensor([[4.0], [10.0]])).tolist()
    [[0.0], [2.0]]
    """
    return torch.linalg.solve_triangular(L.mT, torch.linalg.solve_triangular(L, R, upper=False), upper=True)


def solve_lower(factor: Tensor, r: Tensor) -> Tensor:
    """L⁻ᵀL⁻¹ r in the precision of the lower factor L; unit columns keep float32 from underflow."""
    scale = r.abs().amax(0).clamp(min=torch.finfo(r.dtype).tiny)
    return solve_factored(factor, (r / scale).to(factor.dtype)).double() * scale


def drop_column(R: Tensor, j: int) -> tuple[Tensor, np.ndarray]:
    """The m × m triangle `R` without column j, triangular again, and the cosines and sines that made it so.

    Without its column j the matrix has one entry below each diagonal from j on. The rotation of rows
    k and k + 1 removes it, for k = j, …, m − 2; the last row is then zero and is dropped. The diagonal stays
    positive where it was.

    >>> drop_column(torch.tensor([[1.0, 3.0], [0.0, 4.0]]), 0)[0].tolist()
    [[5.0]]
    """
    m = R.shape[0]
    kept = torch.cat([R[:, :j], R[:, j + 1 :]], 1)
    rest = kept.cpu().numpy()  # one small host loop; a launch per rotation would be slower on any device
    rotations = np.empty((m - 1 - j, 2))
    for k in range(j, m - 1):
        c, s = rotations[k - j] = rest[k : k + 2, k] / np.hypot(rest[k, k], rest[k + 1, k])
        rest[k : k + 2, k:] = np.array([[c, s], [-s, c]]) @ rest[k : k + 2, k:]
        rest[k + 1, k] = 0.0
    return torch.from_numpy(rest[:-1]).to(R), rotations


def rotate_rows(rows: Tensor, rotations: np.ndarray) -> None:
    """Apply the rotations of `drop_column` to the rows of a matrix in place, a few dozen at a time."""
    for first in range(0, len(rotations), ROTATIONS_PER_PRODUCT):
        batch = rotations[first : first + ROTATIONS_PER_PRODUCT]
        G = np.eye(len(batch) + 1)
        for i, (c, s) in enumerate(batch):
            G[i : i + 2] = np.array([[c, s], [-s, c]]) @ G[i : i + 2]
        some = rows[first : first + len(G)]
        some.copy_(torch.from_numpy(G).to(rows) @ some)


class TiledCholesky:
    """L with L Lᵀ ≈ A in float32, from `panel(start, stop)`, which gives A[start:, start:stop] in any precision.

    Left-looking: a panel is made, what the columns before it explain is subtracted in one product, and its first square
    is factored in float64. The diagonal is raised by what float32 cannot resolve, so a positive semi-definite A has a
    factor too. A itself never exists: the factor is the only n × n array, a quarter of what a float64 matrix, its
    factor and their copies take, and twice the rows fit. Its solutions have few digits; conjugate gradients around it,
    with products in float64, have all of them.

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
