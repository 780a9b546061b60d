"""Cholesky factors: in float64 with a jitter ladder, without a column (Givens rotations), and panel by panel.

Matrices are symmetric and only their lower triangle counts. Whether a large jitter deserves a
warning is the caller's business: the functions here return it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from mercer.parts import require

T = TypeVar("T")
EPS = torch.finfo(torch.float64).eps
# m·eps of float32 at m = 10⁵ rows: what is still not positive then is not rounding.
LARGEST_JITTER = 1e-2
# Rotations gathered into one matrix product: enough to leave the memory-bound regime, while the
# product's cost (about twice this number per entry) stays small.
ROTATIONS_PER_PRODUCT = 32
#: Columns of a panel: wide enough for the speed of matrix products, and a sixteenth of the matrix at most.
PANEL = 1024
#: A float32 factor is used if its rounding is below this share of the penalty.
FLOAT32_SHARE = 0.03


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
        found, info = torch.linalg.cholesky_ex(A.double())
        return torch.where(info == 0, found, torch.nan), 0.0
    require_finite(A, "the matrix to factor")
    A = A.double()

    def attempt(added: float) -> Tensor | None:
        raised = A if added == 0 else A + added * torch.eye(len(A), dtype=A.dtype, device=A.device)
        found, info = torch.linalg.cholesky_ex(raised)
        return None if int(info) else found

    return raised_until(attempt, A.detach().diagonal())


def raised_until(factor: Callable[[float], T | None], diagonal: Tensor) -> tuple[T, float]:
    """The result of `factor` for the least jitter at which it succeeds, and that jitter.

    `factor` is called with the number to add to the diagonal of the matrix, which is the jitter times its mean.
    """
    found = factor(0.0)
    if found is not None:
        return found, 0.0
    mean, lowest = float(diagonal.mean()), float(diagonal.min())
    if lowest < -LARGEST_JITTER * max(mean, 0.0):
        raise ValueError(f"the matrix to factor has the negative value {lowest:.3g} on its diagonal")
    scale = mean if mean > 1e-290 else 1.0  # a smaller mean times the jitter would underflow
    jitter = 1e-15
    while jitter <= LARGEST_JITTER * 1.01:  # 1e-15 · 10ⁿ is rounded
        found = factor(jitter * scale)
        if found is not None:
            return found, jitter
        jitter *= 10
    raise ValueError(
        f"the matrix to factor is not positive semi-definite up to rounding: adding {LARGEST_JITTER:g} "
        "of its mean diagonal to the diagonal does not make it so"
    )


def inverse_diagonal(L: Tensor, panel: int = 256) -> Tensor:
    """The diagonal of (LLᵀ)⁻¹: sums of squares of the columns of L⁻¹, which are made panel by panel."""
    out = L.new_empty(len(L))
    for start in range(0, len(L), panel):
        rest = L[start:, start:]  # what stands above is zero in these columns of L⁻¹
        columns = torch.eye(len(rest), min(panel, len(rest)), dtype=L.dtype, device=L.device)
        out[start : start + panel] = torch.linalg.solve_triangular(rest, columns, upper=False).square().sum(0)
    return out


def float32_factor(G: Tensor, penalty: float) -> Tensor | None:
    """The lower factor of G = K + `penalty` I in float32, None where it is not near enough to correct, or on a GPU.

    `penalty` is in units of the largest value on the diagonal of K. The rounding errors of entries have random signs,
    so their matrix has a norm of about √n resolutions. Conjugate gradients with such a factor took at most 8 steps to a
    residual of 1e-11 on 4000 rows of three tables with nine kernels, up to 20 with a third of the penalty.
    """
    rounding = len(G) ** 0.5 * torch.finfo(torch.float32).eps
    if G.device.type != "cpu" or rounding >= FLOAT32_SHARE * penalty:
        return None
    found, failed = torch.linalg.cholesky_ex(G.float())
    return None if int(failed) else found


def solve_factored(L: Tensor, R: Tensor) -> Tensor:
    """L⁻ᵀL⁻¹R: what `torch.cholesky_solve` gives, without its copy of the factor."""
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
        rotated = rows[first : first + len(G)]
        rotated.copy_(torch.from_numpy(G).to(rows) @ rotated)


class TiledCholesky:
    """L with L Lᵀ = A in float64, from `panel(start, stop)`, which gives A[start:, start:stop], and the diagonal of A.

    Left-looking: a panel of columns is made, the part that the columns before it explain is subtracted, and its first
    square is factored. A itself never exists and the zeros of L are not kept, so the factor takes 4n² bytes, an eighth
    of what a matrix, its factor and their copies take. The rules for jitter are those of `cholesky`.

    >>> A = torch.tensor([[4.0, 2.0], [2.0, 3.0]], dtype=torch.float64)
    >>> factor = TiledCholesky(A.diagonal(), lambda start, stop: A[start:, start:stop], width=1)
    >>> factor.solve(A @ torch.tensor([[1.0], [-1.0]], dtype=torch.float64)).round(decimals=12).tolist(), factor.jitter
    ([[1.0], [-1.0]], 0.0)
    """

    def __init__(self, diagonal: Tensor, panel: Callable[[int, int], Tensor], width: int | None = None) -> None:
        self.n = len(diagonal)
        self.width = width or min(PANEL, max(self.n // 16, 64))
        self.panels, self.jitter = raised_until(lambda added: self._panels(panel, added), diagonal)

    def _panels(self, panel: Callable[[int, int], Tensor], added: float) -> list[Tensor] | None:
        """L[start:, start:stop] of each panel; None where A with so much on its diagonal has no factor."""
        panels: list[Tensor] = []
        for start in range(0, self.n, self.width):
            made = panel(start, min(start + self.width, self.n))
            require_finite(made, "the matrix to factor")
            column = made.to(torch.float64, copy=True)
            del made
            width = column.shape[1]
            column[:width].diagonal().add_(added)
            for before, L in enumerate(panels):
                rest = L[start - before * self.width :]
                column.addmm_(rest, rest[:width].T, alpha=-1)
            square, info = torch.linalg.cholesky_ex(column[:width])
            if int(info):
                return None
            column[:width] = square
            column[width:] = torch.linalg.solve_triangular(square.T, column[width:], upper=True, left=False)
            panels.append(column)
        return panels

    def solve(self, r: Tensor) -> Tensor:
        """A⁻¹ r (n × p)."""
        x = r.to(torch.float64, copy=True)
        for start, L in zip(range(0, self.n, self.width), self.panels, strict=True):
            stop = start + L.shape[1]
            x[start:stop] = torch.linalg.solve_triangular(L[: stop - start], x[start:stop], upper=False)
            x[stop:].addmm_(L[stop - start :], x[start:stop], alpha=-1)
        for start, L in zip(range(0, self.n, self.width)[::-1], self.panels[::-1], strict=True):
            stop = start + L.shape[1]
            x[start:stop].addmm_(L[stop - start :].T, x[stop:], alpha=-1)
            x[start:stop] = torch.linalg.solve_triangular(L[: stop - start].T, x[start:stop], upper=True)
        return x

    def corner(self, m: int) -> Tensor:
        """The last m rows and columns of L."""
        first = self.n - m
        out = self.panels[0].new_zeros(m, m)
        for start, L in zip(range(0, self.n, self.width), self.panels, strict=True):
            stop = start + L.shape[1]
            if stop > first:
                begin = max(start, first)
                out[begin - first :, begin - first : stop - first] = L[begin - start :, begin - start :]
        return out


def pivoted_rows(kernel: Callable[[Tensor, Tensor], Tensor], diagonal: Tensor, X: Tensor, m: int) -> np.ndarray:
    """Indices of m rows, each the one of largest variance given those before it.

    This is the greedy choice of inducing inputs of Burt, Rasmussen and van der Wilk (2020). It costs O(nm²). Fewer rows
    are returned if they determine all others.

    >>> X = torch.tensor([[0.0], [0.1], [3.0], [3.1], [5.0]])
    >>> gaussian = lambda X, Z: (-0.5 * (X - Z.T) ** 2).exp()
    >>> pivoted_rows(gaussian, torch.ones(5), X, 3).tolist()
    [0, 4, 2]
    """
    rest, least = diagonal.clone(), 10 * torch.finfo(diagonal.dtype).eps * float(diagonal.max())
    factor = diagonal.new_zeros(m, len(X))
    chosen: list[int] = []
    for j in range(m):
        i = int(rest.argmax())
        if not float(rest[i]) > least:
            break
        row = kernel(X[i : i + 1], X)[0] - factor[:j, i] @ factor[:j]
        factor[j] = row / rest[i].sqrt()
        rest = (rest - factor[j].square()).clamp(min=0)
        rest[i] = 0.0
        chosen.append(i)
    return np.array(chosen, dtype=int)
