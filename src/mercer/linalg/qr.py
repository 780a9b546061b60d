"""A thin QR factorisation that gains and loses columns.

It keeps an orthonormal basis of the chosen columns in the tiles' precision and the triangle in
float64. Which column to take next is the business of whoever calls it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mercer.linalg.cholesky import Triangle, require_finite
from mercer.linalg.givens import rotate_rows
from mercer.parts import require


class GrowingQR:
    """Thin QR of an N×m matrix whose columns come and go, by classical Gram-Schmidt done twice.

    A column is projected again as long as a projection more than halves the square of its norm
    ("twice is enough"), so Q stays orthonormal to the rounding of `dtype`. A column whose reciprocal
    condition number is below `min_rcond` is refused; the default, 10 eps of `dtype`, is where what is
    left of a column after projection is rounding of its entries and nothing else.

    Parameters
    ----------
    n_rows : length N of the columns.
    capacity : columns to reserve, N·capacity numbers; doubled when exceeded.
    dtype : float32 or float64, precision of Q. The triangle R is always float64.

    >>> import torch
    >>> from mercer.linalg import GrowingQR
    >>> qr = GrowingQR(n_rows=3)
    >>> qr.append(torch.tensor([0.0, 2.0, 0.0])), qr.append(torch.tensor([3.0, 1.0, 0.0]))
    (1.0, 0.720...)
    >>> qr.solve(torch.tensor([3.0, 5.0, 7.0])).tolist()
    [2.0, 1.0]
    >>> qr.append(torch.tensor([1.0, 1.0, 0.0])), qr.size
    (0.0, 2)
    """

    def __init__(
        self,
        n_rows: int,
        capacity: int = 64,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        min_rcond: float | None = None,
    ) -> None:
        require(dtype in (torch.float32, torch.float64), "dtype", "torch.float32 or torch.float64", dtype)
        self._triangle = Triangle(capacity, device)
        self._rows = torch.empty(capacity, n_rows, dtype=dtype, device=device)  # Qᵀ: contiguous columns of Q
        self.min_rcond = 10 * torch.finfo(dtype).eps if min_rcond is None else min_rcond

    @property
    def size(self) -> int:
        """The number m of columns."""
        return self._triangle.size

    @property
    def Q(self) -> Tensor:
        """The N×m orthonormal factor, as a view of the storage that the next change overwrites."""
        return self._rows[: self.size].T

    @property
    def R(self) -> Tensor:
        """The m×m upper triangular factor in float64, as a view of the storage."""
        return self._triangle.R

    def append(self, k: Tensor) -> float:
        """Append the column `k`; return the reciprocal condition number of [Q, k/‖k‖].

        With ρ and s the norms of the parts of k/‖k‖ orthogonal to Q and along Q, ρ² + s² = 1, the
        extreme singular values are √(1 ± s) and their ratio is ρ / (1 + s), which has no cancellation.
        The column was refused where the value returned is below `min_rcond`.
        """
        return float(self.extend(k[:, None])[0])

    def extend(self, K: Tensor) -> Tensor:
        """Append the columns of `K` one after the other; return the value of `append` for each.

        The first projection, on the columns already there, is one matrix product for the whole block.
        """
        N = self._rows.shape[1]
        require(K.ndim == 2 and K.shape[0] == N, "the new columns", f"of shape ({N}, k)", tuple(K.shape))
        norms = torch.linalg.vector_norm(K, dim=0, dtype=torch.float64)
        require_finite(norms, "the block of new columns")
        W = (K / norms.where(norms > 0, 1.0)).T.to(self._rows)
        Q_old = self._rows[: self.size]
        H = W @ Q_old.T
        W = torch.addmm(W, H, Q_old, alpha=-1)
        rconds = [self._insert(w, h, float(norm)) for w, h, norm in zip(W, H, norms, strict=True)]
        return torch.tensor(rconds, dtype=torch.float64)

    def _insert(self, w: Tensor, h: Tensor, norm: float) -> float:
        """Take in the column norm · (Q h + w), whose rest `w` has seen one projection."""
        if norm == 0.0:
            return 0.0
        m = self.size
        Q = self._rows[:m].T
        r = torch.zeros(m + 1, dtype=torch.float64, device=w.device)
        r[: len(h)] = h
        rho = _norm(w)
        again = rho**2 < 0.5 or len(h) < m  # columns taken since that projection have not been seen
        while again:
            h, before = Q.T @ w, rho
            w = torch.addmv(w, Q, h, alpha=-1)
            r[:m] += h
            rho = _norm(w)
            again = rho**2 < before**2 / 2 and rho >= self.min_rcond  # below, it will be refused anyway
        rcond = rho / (1 + _norm(r))
        if rcond < self.min_rcond:
            return rcond
        if m == self._rows.shape[0]:
            grown = self._rows.new_empty(2 * m, self._rows.shape[1])
            grown[:m] = self._rows
            self._rows = grown
        r[m] = rho
        torch.div(w, rho, out=self._rows[m])
        self._triangle.push(norm * r[:, None])
        return rcond

    def remove(self, j: int) -> None:
        """Delete column j by Givens rotations of R and Q (Nair, Choudhury and Keane 2002, Algorithm 3).

        The rotations meet Q a few dozen at a time, gathered into one small orthogonal matrix.
        """
        rotations = self._triangle.drop(j)
        rotate_rows(self._rows[j : self.size + 1], rotations)

    def solve(self, y: Tensor) -> Tensor:
        """Least-squares coefficients R⁻¹Qᵀy in float64, for one target or several in columns."""
        target = y.to(self._rows)
        c = (self._rows[: self.size] @ (target if y.ndim == 2 else target[:, None])).double()
        x = torch.linalg.solve_triangular(self.R, c, upper=True)
        return x if y.ndim == 2 else x[:, 0]

    def residual(self, y: Tensor) -> Tensor:
        """The part y − QQᵀy of the target that the columns do not reach, in the precision of Q."""
        target = y.to(self._rows)
        return target - self.Q @ (self._rows[: self.size] @ target)


def _norm(w: Tensor) -> float:
    return float(torch.linalg.vector_norm(w, dtype=torch.float64))
