"""A growing span of functions, orthonormal in the metric of the problem, and the best model in it.

This is the papers' recursive factor (Boost10 eq. 12 and 32; Greedy02 eq. 6 to 9 for λ = 0), kept as
orthonormal functions instead of the inverse of normal equations: the same two passes over the chosen
columns a step, without squaring the condition number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.forward.problem import Problem
from mercer.linalg import drop_column, rotate_rows

#: Functions taken out of a new one together at most.
SWEEP_WIDTH = 128
#: The share of a new function that must be left for one sweep to be enough. A sweep that leaves a share s leaves the
#: function orthogonal to eps/s only, and every later column of share t is then wrong by eps/(s t) of what is new in it:
#: with float32 and a t thirty times smaller, 1 % at this s. Columns alike to a few digits start far below it.
ONCE = 0.02
#: A unit function of which a second sweep leaves less was rounding of the first.
REAL = 0.3


@dataclass(frozen=True)
class Functions:
    """b functions Σ_s A[s] k(x_index[s], ·) and their values at all rows (b × n)."""

    index: Tensor
    A: Tensor
    values: Tensor


class FunctionSpan:
    r"""Functions φ orthonormal in ⟨f, g⟩ = Σ_n ω_n f(x_n) g(x_n) + λ⟨f, g⟩_H.

    Each new function is f = Σ_s A_s k(x̃_s, ·) with basis vectors x̃_s among the rows, so its RKHS product
    with φ_j is Σ_s A_s φ_j(x̃_s): numbers already held. Where the loss is squared and ω are the rows'
    weights, new functions leave the coordinates of the best model in the span as they are.

    `values` holds φ_j at all rows (capacity × n), `R` turns them back into the functions as they came
    (F = Φ R), `H` their RKHS products times λ. `before` is the model that stands outside the span. While every function
    is one kernel column, `points` are their basis vectors, `W` their RKHS products times λ as they came, `T` is R⁻¹.
    """

    def __init__(self, problem: Problem, capacity: int, metric: Tensor, lam: float, before: Tensor) -> None:
        wide: dict[str, Any] = {"device": problem.plan.device, "dtype": torch.float64}
        n, p = problem.y.shape
        self.rows, self.metric, self.lam, self.before = problem.rows, metric, lam, before
        self.kernel, self.basis = problem.kernel, problem.basis
        self._equal = problem.plan.device.type == "cpu" and bool((metric == 1).all())
        self.plan = problem.plan
        self.plan.require_functions(n, capacity)
        self.values = torch.empty(capacity, n, device=problem.plan.device, dtype=problem.plan.dtype)
        self.R, self.H, self.W, self.T = torch.zeros(4, capacity, capacity, **wide)
        self._sizes = torch.empty(0, **wide)
        self.alive = torch.zeros(capacity, dtype=torch.bool, device=problem.plan.device)  # others are kept as zero
        self.points: Tensor | None = torch.empty(0, problem.rows.n_columns, **wide)
        self.prior, self.coef = torch.zeros(2, capacity, p, **wide)  # prior: λ⟨φ_j, before⟩_H
        self.novelty = torch.ones(1, **wide)  # shares of the newest functions that those before them do not hold
        self.captured: tuple[int, Tensor] | None = None  # kept by `RowCandidates`: functions seen, their sum
        self.orthonormal = True
        self.size = 0

    def extend(self, F: Tensor, index: Tensor, A: Tensor, tol: float = 0.0) -> slice:
        """Take in b functions with values `F` (b × n, overwritten) and weights `A` (S × b) on rows `index`.

        A function that lies in the span of those before it, to within `tol` of its norm or to within rounding, is kept
        as zero and gets no weight. Returns where the new functions stand.
        """
        m, b, A = self.size, F.shape[0], A.double()
        self._reserve(m + b)
        new, eps = slice(m, m + b), torch.finfo(F.dtype).eps
        own, products = self._penalties(F, index, A)
        norms = (self._data(F, F) + own).diagonal().clamp(min=0).sqrt()
        cross, gram, rkhs, rest = self._project(F, own, products)
        left = gram.diagonal().clamp(min=0).sqrt()
        floor = ((max(10 * eps, tol) * norms).square() + 10 * eps * own.diagonal().clamp(min=0)).sqrt()
        C, fresh, rest_of_each = self._factor(gram, left, floor, eps)
        self.novelty = rest_of_each / norms.clamp(min=1e-300)
        inverse = _inverse(C, fresh)
        F = inverse.to(F.dtype) @ F
        if (m or b > 1) and not (F.device.type == "cpu" and bool((C.diagonal() > ONCE * norms)[fresh].all())):
            # once more, now of unit length: what the first sweep rounded, and functions that were nothing but rounding
            again, gram, rkhs, rest = self._project(F, inverse @ rkhs @ inverse.T, rest @ inverse.T)
            left = gram.diagonal().clamp(min=0).sqrt()
            D, real, _ = self._factor(gram, left, torch.where(fresh, REAL, torch.inf), eps)
            self.novelty, fresh = torch.where(fresh & ~real, 0.0, self.novelty), real
            inverse = _inverse(D, fresh)
            F = inverse.to(F.dtype) @ F
            cross, C = cross + again @ C.T, C @ D
        self.values[new] = F
        self.R[:m, new], self.R[new, new] = cross, C.T
        if self.points is not None:
            self.W[:m, new], self.W[new, :m], self.W[new, new] = products, products.T, own
            inner = _inverse(C, torch.ones_like(fresh)).T
            self.T[:m, new], self.T[new, new] = -(self.T[:m, :m] @ cross) @ inner, inner
        self.alive[new] = fresh
        self.H[new, :m] = inverse @ self._seen(rest).T
        self.H[:m, new] = self.H[new, :m].T
        self.H[new, new] = inverse @ rkhs @ inverse.T
        outside = self.lam * (A.T @ self.rows.pick(self.before.T, index).double().T)
        self.prior[new] = _inverse(C, fresh) @ (outside - cross.T @ self.prior[:m])
        self.size = m + b
        return new

    def _penalties(self, F: Tensor, index: Tensor, A: Tensor) -> tuple[Tensor, Tensor]:
        """λ⟨f, f'⟩_H of the new functions (b × b), and λ⟨·, f⟩_H of those in the span (m × b).

        Kernel columns of different rows may be alike to the last digit of float32, and then what is left of them is
        mostly penalty. So while functions are single columns it comes from the kernel in float64, and the products are
        with functions as they came (`_seen` turns them into those with the orthonormal ones).
        """
        m, b = self.size, F.shape[0]
        if self.lam and self.points is not None and A.shape[0] == b and bool((A.diag().diag() == A).all()):
            Z, size = self.basis(index).double(), A.diagonal()
            self.points, self._sizes = torch.cat([self.points, Z]), torch.cat([self._sizes, size])
            K = self.lam * self.kernel(self.points, Z) * self._sizes[:, None] * size
            return K[m:], K[:m]
        self.points = None
        own = self.lam * (A.T @ self.rows.pick(F, index).double().T)
        return own, self.lam * (self.rows.pick(self.values[:m], index).double() @ A)

    def _seen(self, products: Tensor) -> Tensor:
        """`products` as those with the orthonormal functions: R⁻ᵀ of products with functions as they came."""
        m = self.size
        if self.points is None or not m:
            return products
        return torch.where(self.alive[:m, None], self.T[:m, :m].T @ products, 0.0)

    def _project(self, F: Tensor, own: Tensor, products: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Take the span out of functions `F`, in place; `own` and `products` are what `_penalties` says.

        Returns their coordinates, and of what is left all products, the penalty's part of them, and the penalty's
        products with the span, in the form of `products`.
        """
        m = self.size
        old, H, h = self.values[:m], self.H[:m, :m], self._seen(products)
        cross = torch.zeros_like(h)
        for some in self._sweep(m):
            step = (self._data(old[some], F) + (h[some] - H[some, : some.start] @ cross[: some.start])).to(F.dtype)
            _subtract(F, step, old[some])
            cross[some] += step
        weights, square = cross, H
        if self.points is not None and m:
            weights, square = self.T[:m, :m] @ cross, self.W[:m, :m]
        rest = products - square @ weights
        rkhs = own - products.T @ weights - weights.T @ rest
        return cross, self._data(F, F) + rkhs, rkhs, rest

    def _sweep(self, m: int) -> Iterator[slice]:
        """Groups of functions that a projection takes out one after the other.

        What one group leaves is what the next one sees, so functions that are a little wrong are not multiplied as
        they are when all are taken out at once: one sweep over a thousand kernel columns of KIN40K in float32 is as
        good as two such projections.
        """
        width = min(max(m // 4, 8), SWEEP_WIDTH) if self.plan.device.type == "cpu" else max(m, 1)
        return (slice(at, min(at + width, m)) for at in range(0, m, width))

    def append(self, F: Tensor) -> slice:
        """Take in functions as they are, without making them orthonormal."""
        self.orthonormal = False
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
        self._forget(j)
        self.size = m - 1
        return change

    def _forget(self, j: int) -> None:
        """What is known of the functions as they came, without function j."""
        m, keep = self.size, torch.arange(self.size, device=self.W.device)
        keep = torch.cat([keep[:j], keep[j + 1 :]])
        self.W[: m - 1, : m - 1] = self.W[keep[:, None], keep]
        self.W[m - 1 : m], self.W[:, m - 1 : m] = 0.0, 0.0
        held = self.rows.total(self.values[j : m - 1].any(1).to(torch.uint8))  # a process may have no rows
        self.alive[j : m - 1], self.alive[m - 1] = held > 0, False
        if self.points is not None and len(self.points) == m:
            self.points, self._sizes = self.points[keep], self._sizes[keep]
            R = self.R[: m - 1, : m - 1]
            self.T[: m - 1, : m - 1] = torch.linalg.solve_triangular(R, torch.eye(m - 1).to(R), upper=True)
            self.T[m - 1 : m], self.T[:, m - 1 : m] = 0.0, 0.0

    def _data(self, F: Tensor, G: Tensor) -> Tensor:
        return self.rows.total((F @ (G if self._equal else G * self.metric).T).double())

    def _factor(self, gram: Tensor, left: Tensor, floor: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        """Lower factor of the Gram matrix of what is new; identity rows for functions that are not.

        A function is new if more than `floor` of its length `left` is orthogonal to the functions before it. Functions
        that come together may also depend on each other, as the classes of the softmax do: a pivot that is rounding of
        the unit diagonal belongs to such a function, and it is passed over. Also returns which functions are new, and
        the length of what is new in each: zero where that is at most `floor`, a bound where the pivot is rounding.
        """
        fresh = left > floor
        scale = torch.where(fresh, left, 1.0)
        if len(scale) == 1:
            return scale[:, None], fresh, torch.where(fresh, left, 0.0)
        unit = (gram / scale[:, None] / scale).cpu().numpy()
        least = (floor / scale).square().cpu().numpy()
        factor, new, rest = np.eye(len(unit)), fresh.cpu().numpy(), np.zeros(len(unit))
        for j in range(len(unit)):
            row = factor[j, :j]
            pivot = unit[j, j] - row @ row
            bound = max(pivot, 100 * eps)
            rest[j] = np.sqrt(bound) if new[j] and bound > least[j] else 0.0
            new[j] &= pivot > max(100 * eps, least[j])
            if new[j]:
                factor[j, j] = np.sqrt(pivot)
                factor[j + 1 :, j] = (unit[j + 1 :, j] - factor[j + 1 :, :j] @ row) / factor[j, j]
            else:
                factor[j, :j] = 0.0
        lengths = torch.as_tensor(rest).to(scale) * scale
        return torch.as_tensor(factor).to(scale) * scale[:, None], torch.as_tensor(new).to(fresh), lengths

    def _reserve(self, needed: int) -> None:
        capacity = self.values.shape[0]
        if needed <= capacity:
            return
        extra = max(needed, 2 * capacity) - capacity
        self.plan.require_functions(self.values.shape[1], capacity + extra)
        self.values = torch.cat([self.values, self.values.new_empty(extra, self.values.shape[1])])
        pad = torch.nn.functional.pad
        self.R, self.H, self.W, self.T = (pad(M, (0, extra, 0, extra)) for M in (self.R, self.H, self.W, self.T))
        self.prior, self.coef = (pad(M, (0, 0, 0, extra)) for M in (self.prior, self.coef))
        self.alive = pad(self.alive, (0, extra))


def _inverse(C: Tensor, fresh: Tensor) -> Tensor:
    """C⁻¹ of a lower factor, with zero rows for functions that are not new."""
    eye = torch.eye(len(C), dtype=C.dtype, device=C.device)
    return torch.where(fresh[:, None], torch.linalg.solve_triangular(C, eye, upper=False), 0.0)


def _subtract(F: Tensor, coef: Tensor, functions: Tensor) -> None:
    """F ← F − coefᵀ·functions in place; a single row as a matrix-vector product, which is what it is."""
    if F.shape[0] == 1:
        F[0].addmv_(functions.T, coef[:, 0], alpha=-1)
    else:
        F.addmm_(coef.T, functions, alpha=-1)
