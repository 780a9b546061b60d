"""Cholesky factors in float64: with a jitter ladder, growing row by row, and refined from float32.

Matrices are symmetric and only their lower triangle counts. Whether a large jitter deserves a
warning is the caller's business: the functions here return it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from mercer.linalg.givens import drop_column
from mercer.parts import require

EPS = torch.finfo(torch.float64).eps
# m·eps of float32 at m = 10⁵ rows: what is still not positive then is not rounding.
LARGEST_JITTER = 1e-2


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

    >>> import torch
    >>> from mercer.linalg import cholesky
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


def inverse_diagonal(L: Tensor, panel: int = 1024) -> Tensor:
    """The diagonal of (LLᵀ)⁻¹: sums of squares of the columns of L⁻¹, which are made panel by panel.

    >>> import torch
    >>> from mercer.linalg import inverse_diagonal
    >>> inverse_diagonal(torch.tensor([[2.0, 0.0], [1.0, 2.0]])).tolist()
    [0.3125, 0.25]
    """
    out = L.new_empty(len(L))
    for start in range(0, len(L), panel):
        rest = L[start:, start:]  # what stands above is zero in these columns of L⁻¹
        columns = torch.eye(len(rest), min(panel, len(rest)), dtype=L.dtype, device=L.device)
        out[start : start + panel] = torch.linalg.solve_triangular(rest, columns, upper=False).square().sum(0)
    return out


class Triangle:
    """Upper triangular float64 matrix that gains and loses columns, in storage that doubles.

    >>> import torch
    >>> from mercer.linalg.cholesky import Triangle
    >>> triangle = Triangle(capacity=1)
    >>> triangle.push(torch.tensor([[1.0, 3.0], [0.0, 4.0]]))
    >>> _ = triangle.drop(0)
    >>> triangle.R.tolist()
    [[5.0]]
    """

    def __init__(self, capacity: int, device: torch.device | str | None = None) -> None:
        require(capacity >= 1, "capacity", "at least 1", capacity)
        self._store = torch.zeros(capacity, capacity, dtype=torch.float64, device=device)
        self.size = 0

    @property
    def R(self) -> Tensor:
        """The matrix, as a view of the storage."""
        return self._store[: self.size, : self.size]

    def push(self, columns: Tensor) -> None:
        """Append k columns of length size + k."""
        old, new = self.size, columns.shape[0]
        if new > self._store.shape[0]:
            capacity = max(new, 2 * self._store.shape[0])
            grown = self._store.new_zeros(capacity, capacity)
            grown[:old, :old] = self.R
            self._store = grown
        self._store[:new, old:new] = columns.to(self._store)
        self.size = new

    def drop(self, j: int) -> np.ndarray:
        """Delete column j and rotate back to triangular form; return the cosines and sines (`drop_column`)."""
        require(0 <= j < self.size, "j", f"between 0 and {self.size - 1}", j)
        m = self.size
        R, rotations = drop_column(self.R, j)
        self._store[:m, :m] = 0.0
        self._store[: m - 1, : m - 1] = R
        self.size = m - 1
        return rotations


class GrowingCholesky:
    """Factor of a positive definite matrix that gains and loses rows and columns.

    A row is numerically dependent on the earlier ones where its squared pivot is at most `tol` · size
    times its diagonal entry. Rounding alone moves that pivot by up to size · eps times the entry, so
    the default of 4 eps refuses what cannot be told from zero, and the factor never turns NaN.

    >>> import torch
    >>> from mercer.linalg import GrowingCholesky
    >>> grown = GrowingCholesky()
    >>> grown.append([], 4.0), grown.append([2.0], 5.0), grown.append([4.0, 2.0], 4.0)
    (True, True, False)
    >>> grown.solve(torch.tensor([8.0, 12.0])).tolist()
    [1.0, 2.0]
    """

    def __init__(self, capacity: int = 64, device: torch.device | str | None = None, tol: float = 4 * EPS) -> None:
        self._triangle = Triangle(capacity, device)
        self.tol = tol

    @property
    def size(self) -> int:
        """The number of rows of the matrix."""
        return self._triangle.size

    @property
    def factor(self) -> Tensor:
        """The lower factor, as a view of the storage that the next change overwrites."""
        return self._triangle.R.T

    def append(self, cross: Tensor | list, block: Tensor | float) -> bool:
        """Append k rows: `cross` is k×size (new against old), `block` k×k (new against new).

        Returns False, and appends none of the rows, where one of them is numerically dependent.
        """
        m, R = self.size, self._triangle.R
        block = torch.as_tensor(block).to(R)
        k = block.shape[0] if block.ndim else 1
        block = block.reshape(k, k)
        cross = torch.as_tensor(cross).to(R).reshape(k, m)
        require_finite(cross, "the block of new rows against old ones")
        require_finite(block, "the block of new rows against new ones")
        top = torch.linalg.solve_triangular(R.T, cross.T, upper=False)
        corner, info = torch.linalg.cholesky_ex(block - top.T @ top)
        independent = corner.diagonal().square() > self.tol * (m + k) * block.diagonal()
        if int(info) or not bool(independent.all()):
            return False
        self._triangle.push(torch.cat([top, corner.T]))
        return True

    def remove(self, j: int) -> None:
        """Delete row and column j by Givens rotations, in about size² operations."""
        self._triangle.drop(j)

    def solve(self, b: Tensor) -> Tensor:
        """Solution of A x = b in float64, for one right-hand side or several in columns."""
        b = b.to(self._triangle.R)
        x = torch.cholesky_solve(b if b.ndim == 2 else b[:, None], self._triangle.R, upper=True)
        return x if b.ndim == 2 else x[:, 0]


def refined_solve(A: Tensor, b: Tensor, tol: float = 1e-12, max_refinements: int = 12) -> Tensor:
    """Solve the positive definite A x = b: factor in float32, refine in float64.

    Each column is refined until ‖b − A x‖ ≤ tol ‖b‖, or until the residual is as small as float64 can
    make it, 4 eps ‖A‖ ‖x‖. Where refinement does not halve the residual at each step (a condition
    number beyond about 10⁶) the factor is computed again in float64, with its jitter ladder.

    >>> import torch
    >>> from mercer.linalg import refined_solve
    >>> A = torch.tensor([[2.0, 1.0], [1.0, 3.0]], dtype=torch.float64)
    >>> refined_solve(A, A @ torch.tensor([1.0, -1.0], dtype=torch.float64)).round(decimals=12).tolist()
    [1.0, -1.0]
    """
    require(A.ndim == 2 and A.shape[0] == A.shape[1], "the matrix to factor", "square", tuple(A.shape))
    require_finite(A, "the matrix to factor")
    A, rhs = A.double(), b.to(A.device, torch.float64)
    rhs = rhs if rhs.ndim == 2 else rhs[:, None]
    d = A.diagonal()[:, None]
    d = d.rsqrt() if bool((d > 0).all()) else torch.ones_like(d)
    scaled = d * A * d.T  # a unit diagonal keeps any scale inside float32's range
    factor, info = torch.linalg.cholesky_ex(scaled.float())
    x, done = rhs, False
    if not int(info):
        x, done = _refine(A, rhs, lambda r: d * solve_lower(factor, d * r), tol, max_refinements)
    if not done:
        exact, _ = cholesky(scaled)
        x, _ = _refine(A, rhs, lambda r: d * solve_lower(exact, d * r), tol, max_refinements)
    return x if b.ndim == 2 else x[:, 0]


def solve_lower(factor: Tensor, r: Tensor) -> Tensor:
    """L⁻ᵀL⁻¹ r in the precision of the lower factor L; unit columns keep float32 from underflow."""
    scale = r.abs().amax(0).clamp(min=torch.finfo(r.dtype).tiny)
    return torch.cholesky_solve((r / scale).to(factor.dtype), factor).double() * scale


def _refine(
    A: Tensor, b: Tensor, solve: Callable[[Tensor], Tensor], tol: float, max_refinements: int
) -> tuple[Tensor, bool]:
    """Iterative refinement from zero; False where some column's residual stopped halving too early."""
    norm_A, norm_b = torch.linalg.matrix_norm(A), torch.linalg.vector_norm(b, dim=0)
    x, r, size = torch.zeros_like(b), b, norm_b
    for _ in range(max_refinements + 1):
        wanted = torch.maximum(tol * norm_b, 4 * EPS * norm_A * torch.linalg.vector_norm(x, dim=0))
        done = size <= wanted
        if bool(done.all()):
            return x, True
        trial = x + solve(r)
        r_trial = b - A @ trial
        size_trial = torch.linalg.vector_norm(r_trial, dim=0)
        better = size_trial < size
        x, r = torch.where(better, trial, x), torch.where(better, r_trial, r)
        halved = size_trial <= size / 2
        size = torch.where(better, size_trial, size)
        if not bool((done | halved | (size <= wanted)).all()):
            return x, False
    return x, False
