"""A growing span of functions, orthonormal in the metric of the problem, and the best model in it.

This is the papers' recursive factor (Boost10 eq. 12 and 32; Greedy02 eq. 6 to 9 for λ = 0), kept as
orthonormal functions instead of the inverse of normal equations: the same two passes over the chosen
columns a step, without squaring the condition number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from mercer.forward.problem import Problem
from mercer.linalg import cholesky, drop_column, rotate_rows

#: Functions taken out of a new one together, and the share of it that must be left for one sweep to be enough.
SWEEP_WIDTH, ONCE = 128, {torch.float32: 1e-3, torch.float64: 0.1}


class FunctionSpan:
    r"""Functions φ orthonormal in ⟨f, g⟩ = Σ_n ω_n f(x_n) g(x_n) + λ⟨f, g⟩_H.

    Each new function is f = Σ_s A_s k(x̃_s, ·) with basis vectors x̃_s among the rows, so its RKHS product
    with φ_j is Σ_s A_s φ_j(x̃_s): numbers already held. Where the loss is squared and ω are the rows'
    weights, new functions leave the coordinates of the best model in the span as they are.

    `values` holds φ_j at all rows (capacity × n), `R` turns them back into the functions as they came
    (F = Φ R), `H` their RKHS products times λ. `before` is the model that stands outside the span.
    """

    def __init__(self, problem: Problem, capacity: int, metric: Tensor, lam: float, before: Tensor) -> None:
        wide: dict[str, Any] = {"device": problem.plan.device, "dtype": torch.float64}
        n, p = problem.y.shape
        self.rows, self.metric, self.lam, self.before = problem.rows, metric, lam, before
        self.plan = problem.plan
        self.plan.require_functions(n, capacity)
        self.values = torch.empty(capacity, n, device=problem.plan.device, dtype=problem.plan.dtype)
        self.R, self.H = torch.zeros(2, capacity, capacity, **wide)
        self.prior, self.coef = torch.zeros(2, capacity, p, **wide)  # prior: λ⟨φ_j, before⟩_H
        self.novelty = torch.ones((), **wide)  # share of the newest functions that was not in the span
        self.captured: tuple[int, Tensor] | None = None  # kept by `RowCandidates`: functions seen, their sum
        self.size = 0

    def extend(self, F: Tensor, index: Tensor, A: Tensor, tol: float | None = None) -> slice:
        """Take in b functions with values `F` (b × n, overwritten) and weights `A` (S × b) on rows `index`.

        A function that lies in the span, to within `tol` of its norm, is kept as zero: it gets no weight.
        Returns where the new functions stand.
        """
        m, b, A = self.size, F.shape[0], A.double()
        self._reserve(m + b)
        old, H, new = self.values[:m], self.H[:m, :m], slice(m, m + b)
        eps = torch.finfo(F.dtype).eps
        own = self.lam * (A.T @ self.rows.pick(F, index).double().T)  # λ⟨f, f'⟩_H
        h = self.lam * (self.rows.pick(old, index).double() @ A)  # λ⟨φ, f⟩_H
        cross = torch.zeros_like(h)
        gram = self._data(F, F) + own
        norms = left = gram.diagonal().clamp(min=0).sqrt()
        rkhs, within = own, h
        for _ in range(2 if m else 0):  # Gram-Schmidt: "twice is enough"
            for some in self._sweep(m):
                step = self._data(old[some], F) + (h[some] - H[some] @ cross)
                _subtract(F, step.to(F.dtype), old[some])
                cross[some] += step
            within = h - H @ cross
            rkhs = own - h.T @ cross - cross.T @ within
            gram = self._data(F, F) + rkhs
            before, left = left, gram.diagonal().clamp(min=0).sqrt()
            if F.device.type == "cpu" and bool((left > ONCE[F.dtype] * before).all()):
                break

        # what is left of the penalty is a difference: rounding of a share eps of what it was taken from
        floor = ((10 * eps if tol is None else tol) * norms).square() + 10 * eps * own.diagonal().clamp(min=0)
        fresh = left.square() > floor
        self.novelty = torch.where(norms > 0, left / norms.clamp(min=1e-300), 0.0).min()
        C, fresh = self._factor(gram, left, fresh, eps)
        inverse = torch.linalg.solve_triangular(C, torch.eye(b, dtype=C.dtype, device=C.device), upper=False)
        inverse = torch.where(fresh[:, None], inverse, 0.0)
        torch.mm(inverse.to(F.dtype), F, out=self.values[new])
        self.R[:m, new], self.R[new, new] = cross, C.T
        self.H[new, :m] = inverse @ within.T
        self.H[:m, new] = self.H[new, :m].T
        self.H[new, new] = inverse @ rkhs @ inverse.T
        outside = self.lam * (A.T @ self.rows.pick(self.before.T, index).double().T)
        self.prior[new] = inverse @ (outside - cross.T @ self.prior[:m])
        self.size = m + b
        return new

    def _sweep(self, m: int) -> Iterator[slice]:
        """Groups of functions that a projection takes out one after the other.

        What one group leaves is what the next one sees, so functions that are a little wrong are not multiplied as
        they are when all are taken out at once: one sweep over a thousand kernel columns of KIN40K in float32 is as
        good as two such projections.
        """
        width = SWEEP_WIDTH if self.plan.device.type == "cpu" else max(m, 1)
        return (slice(at, min(at + width, m)) for at in range(0, m, width))

    def append(self, F: Tensor) -> slice:
        """Take in functions as they are, without making them orthonormal."""
        new = slice(self.size, self.size + F.shape[0])
        self._reserve(new.stop)
        self.values[new] = F
        self.R[new, new] = torch.eye(F.shape[0], dtype=self.R.dtype, device=self.R.device)
        self.size = new.stop
        return new

    def pull(self, new: slice, residual: Tensor) -> Tensor:
        """The decrease of the objective along the new functions, b × p: data slope minus penalty slope."""
        slope = self.rows.total((self.values[new] @ residual).double())
        return slope - self.prior[new] - self.H[new, : self.size] @ self.coef[: self.size]

    def move(self, where: slice, change: Tensor) -> Tensor:
        """Change coordinates; returns the change of the model's values, n × p."""
        self.coef[where] += change
        return self.values[where].T @ change.to(self.values.dtype)

    def norm2(self) -> Tensor:
        """λ‖f‖² of the span's part of the model, with its cross term with the model before it."""
        return self.norm2_at(0.0)

    def norm2_at(self, change: Tensor | float) -> Tensor:
        """`norm2` as it would be after a change of all coordinates."""
        c, m = self.coef[: self.size] + change, self.size
        return (c * (self.H[:m, :m] @ c)).sum() + 2 * (c * self.prior[:m]).sum()

    def remove(self, j: int) -> Tensor:
        """Take function j out again by a QR downdate; returns the change of the model's values, n × p.

        The functions after it are rotated so that one of them, the last, carries what only function j
        brought; that one goes (Greedy02 Algorithm 3).
        """
        m, self.captured = self.size, None
        self.R[: m - 1, : m - 1], rotations = drop_column(self.R[:m, :m], j)
        for rows in (self.values, self.prior, self.coef, self.H, self.H.T):
            rotate_rows(rows[j:m], rotations)
        change = self.values[m - 1, :, None] * -self.coef[m - 1].to(self.values.dtype)
        for square in (self.R, self.H):
            square[m - 1 : m], square[:, m - 1 : m] = 0.0, 0.0
        self.coef[m - 1], self.prior[m - 1] = 0.0, 0.0
        self.size = m - 1
        return change

    def _data(self, F: Tensor, G: Tensor) -> Tensor:
        return self.rows.total((F @ (G * self.metric).T).double())

    def _factor(self, gram: Tensor, left: Tensor, fresh: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """Lower factor of the Gram matrix of what is new; identity rows for functions that are not.

        Functions that come together may also depend on each other, as the classes of the softmax do: a pivot that
        is rounding of the unit diagonal belongs to such a function.
        """
        scale = torch.where(fresh, left, 1.0)
        eye = torch.eye(len(scale), dtype=gram.dtype, device=gram.device)
        if len(scale) == 1:
            return eye * scale, fresh
        unit = torch.where(fresh[:, None] & fresh, gram / scale[:, None] / scale, eye)
        factor = cholesky(unit)[0]
        new = fresh & (factor.diagonal().square() > 100 * eps)
        if not torch.equal(new, fresh):
            return self._factor(gram, left, new, eps)
        return factor * scale[:, None], fresh

    def _reserve(self, needed: int) -> None:
        capacity = self.values.shape[0]
        if needed <= capacity:
            return
        extra = max(needed, 2 * capacity) - capacity
        self.plan.require_functions(self.values.shape[1], capacity + extra)
        self.values = torch.cat([self.values, self.values.new_empty(extra, self.values.shape[1])])
        pad = torch.nn.functional.pad
        self.R, self.H = (pad(M, (0, extra, 0, extra)) for M in (self.R, self.H))
        self.prior, self.coef = (pad(M, (0, 0, 0, extra)) for M in (self.prior, self.coef))


def _subtract(F: Tensor, coef: Tensor, functions: Tensor) -> None:
    """F ← F − coefᵀ·functions in place; a single row as a matrix-vector product, which is what it is."""
    if F.shape[0] == 1:
        F[0].addmv_(functions.T, coef[:, 0], alpha=-1)
    else:
        F.addmm_(coef.T, functions, alpha=-1)
