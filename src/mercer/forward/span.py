"""A growing span of orthonormal functions, and the best model in it.

This is the papers' recursive factor (Boost10 eq. 12 and 32; Greedy02 eq. 6 to 9 for λ = 0), stored as orthonormal
functions instead of the inverse of the normal equations: the same two passes over the chosen columns a step, without
squaring the condition number.
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

#: Functions projected out together at most.
SWEEP_WIDTH = 128
#: Share of a new function that one sweep must leave for a second sweep to be unnecessary. A sweep that leaves a share s
#: leaves the function orthogonal to eps/s only, and the new part of every later column of share t then has an error of
#: eps/(s t): 1 % in float32 at this s and a t thirty times smaller. Columns that agree to a few digits are far below.
ONE_SWEEP_SHARE = 0.02
#: A unit function of which a second sweep leaves a smaller share was rounding of the first.
SECOND_SWEEP_SHARE = 0.3


@dataclass(frozen=True)
class Functions:
    """b functions Σ_s A[s] k(x_index[s], ·) and their values at all rows (b × n).

    Functions that are `solved` minimise the objective together: each is the change of one output, taken as it is.
    """

    index: Tensor
    A: Tensor
    values: Tensor
    solved: bool = False


class FunctionSpan:
    r"""Functions φ orthonormal in ⟨f, g⟩ = Σ_n ω_n f(x_n) g(x_n) + λ⟨f, g⟩_H.

    Each new function is f = Σ_s A_s k(x̃_s, ·) with basis vectors x̃_s among the rows, so its RKHS product with φ_j is
    Σ_s A_s φ_j(x̃_s), from values that are stored. If the loss is squared and ω are the rows' weights, new functions do
    not change the coordinates of the best model in the span.

    `values` holds φ_j at all rows (capacity × n), `R` the factor of the original functions (F = Φ R), `H` the RKHS
    products of the φ times λ. `offset` is the model before this span. While every function is one kernel column,
    `points` are their basis vectors, `W` the RKHS products of the original functions times λ, and `T` is R⁻¹.
    Functions that are not `nonzero` depend on earlier ones.
    """

    def __init__(self, problem: Problem, capacity: int, metric: Tensor, lam: float, offset: Tensor) -> None:
        wide: dict[str, Any] = {"device": problem.plan.device, "dtype": torch.float64}
        n, p = problem.y.shape
        self.rows, self.metric, self.lam, self.offset = problem.rows, metric, lam, offset
        self.kernel, self.basis = problem.kernel, problem.basis
        self.plan = problem.plan
        self.plan.require_functions(n, capacity)
        self.values = torch.empty(capacity, n, device=problem.plan.device, dtype=problem.plan.dtype)
        self.R, self.H, self.W, self.T = torch.zeros(4, capacity, capacity, **wide)
        self._point_weights = torch.empty(0, **wide)
        self.nonzero = torch.zeros(capacity, dtype=torch.bool, device=problem.plan.device)
        self.points: Tensor | None = torch.empty(0, problem.rows.n_columns, **wide)
        self.prior, self.coef = torch.zeros(2, capacity, p, **wide)  # prior: λ⟨φ_j, offset⟩_H
        self.novelty = torch.ones(1, **wide)  # shares of the newest functions outside the span before them
        self.captured: tuple[int, Tensor] | None = None  # set by `RowCandidates`: functions counted, their sum
        self.orthonormal = True
        self.size = 0

    def extend(self, F: Tensor, index: Tensor, A: Tensor, tol: float = 0.0) -> slice:
        """Append b functions of values `F` (b × n, overwritten) and weights `A` (S × b) on rows `index`.

        They are made orthonormal. A function that lies in the span of earlier ones, to within `tol` of its norm or
        rounding, is stored as zero and gets no weight. Returns the positions of the new functions.
        """
        m, b, A = self.size, F.shape[0], A.double()
        self._reserve(m + b)
        new, eps = slice(m, m + b), torch.finfo(F.dtype).eps
        penalties, products = self._penalties(F, index, A)
        own = self.data_products(F, F) + penalties
        norms = own.diagonal().clamp(min=0).sqrt()
        cross, gram, rkhs, rest = self._project(F, penalties, products) if m else (products, own, penalties, products)
        lengths = gram.diagonal().clamp(min=0).sqrt()
        floor = ((max(10 * eps, tol) * norms).square() + 10 * eps * penalties.diagonal().clamp(min=0)).sqrt()
        C, fresh, new_lengths = self._factor(gram, lengths, floor, eps)
        self.novelty = new_lengths / norms.clamp(min=1e-300)
        inverse = _inverse(C, fresh)
        F = _rotated(inverse, F)
        one_sweep = F.device.type == "cpu" and bool((C.diagonal() > ONE_SWEEP_SHARE * norms)[fresh].all())
        if (m or b > 1) and not one_sweep:
            # a second sweep at unit length removes the rounding of the first, and functions that were only rounding
            again, gram, rkhs, rest = self._project(F, inverse @ rkhs @ inverse.T, rest @ inverse.T)
            lengths = gram.diagonal().clamp(min=0).sqrt()
            D, real, _ = self._factor(gram, lengths, torch.where(fresh, SECOND_SWEEP_SHARE, torch.inf), eps)
            self.novelty, fresh = torch.where(fresh & ~real, 0.0, self.novelty), real
            inverse = _inverse(D, fresh)
            F = _rotated(inverse, F)
            cross, C = cross + again @ C.T, C @ D
        self.values[new] = F
        self.R[:m, new], self.R[new, new] = cross, C.T
        if self.points is not None:
            self.W[:m, new], self.W[new, :m], self.W[new, new] = products, products.T, penalties
            inner = _inverse(C, torch.ones_like(fresh)).T
            self.T[:m, new], self.T[new, new] = -(self.T[:m, :m] @ cross) @ inner, inner
        self.nonzero[new] = fresh
        self.H[new, :m] = inverse @ self._orthonormal_products(rest).T
        self.H[:m, new] = self.H[new, :m].T
        self.H[new, new] = inverse @ rkhs @ inverse.T
        prior = self.lam * (A.T @ self.rows.pick(self.offset.T, index).double().T)
        self.prior[new] = _inverse(C, fresh) @ (prior - cross.T @ self.prior[:m])
        self.size = m + b
        return new

    def _penalties(self, F: Tensor, index: Tensor, A: Tensor) -> tuple[Tensor, Tensor]:
        """λ⟨f, f'⟩_H of the new functions (b × b), and λ⟨·, f⟩_H with those in the span (m × b).

        Kernel columns of different rows may agree to the last digit of float32; their new part is then mostly penalty.
        So while functions are single columns the penalty is computed from the kernel in float64, and the products are
        with the original functions (`_orthonormal_products` converts them).
        """
        m, b = self.size, F.shape[0]
        if self.lam and self.points is not None and A.shape[0] == b and (b == 1 or bool((A.diag().diag() == A).all())):
            Z, size = self.basis(index).double(), A.diagonal()
            self.points, self._point_weights = torch.cat([self.points, Z]), torch.cat([self._point_weights, size])
            K = self.lam * self.kernel(self.points, Z) * self._point_weights[:, None] * size
            return K[m:], K[:m]
        self.points = None
        penalties = self.lam * (A.T @ self.rows.pick(F, index).double().T)
        return penalties, self.lam * (self.rows.pick(self.values[:m], index).double() @ A)

    def _orthonormal_products(self, products: Tensor) -> Tensor:
        """Products with the orthonormal functions: R⁻ᵀ times the products with the original functions."""
        m = self.size
        if self.points is None or not m:
            return products
        return torch.where(self.nonzero[:m, None], self.T[:m, :m].T @ products, 0.0)

    def _project(self, F: Tensor, penalties: Tensor, products: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Project the span out of functions `F`, in place; `penalties` and `products` come from `_penalties`.

        Returns the coordinates of `F` in the span and, for the remainder, its Gram matrix, the penalty's part of it,
        and the penalty's products with the span, in the form of `products`.
        """
        m = self.size
        old, H, h = self.values[:m], self.H[:m, :m], self._orthonormal_products(products)
        cross = torch.zeros_like(h)
        for group in self._sweep(m):
            penalty = h[group] - H[group, : group.start] @ cross[: group.start]
            step = (self.data_products(old[group], F) + penalty).to(F.dtype)
            _subtract(F, step, old[group])
            cross[group] += step
        weights, square = cross, H
        if self.points is not None and m:
            weights, square = self.T[:m, :m] @ cross, self.W[:m, :m]
        rest = products - square @ weights
        rkhs = penalties - products.T @ weights - weights.T @ rest
        return cross, self.data_products(F, F) + rkhs, rkhs, rest

    def _sweep(self, m: int) -> Iterator[slice]:
        """Groups of functions for modified Gram-Schmidt.

        Small errors of orthogonality are not multiplied as they are if all functions are projected out at once: one
        sweep over a thousand kernel columns of KIN40K in float32 is as accurate as two such projections.
        """
        width = min(max(m // 4, 8), SWEEP_WIDTH) if self.plan.device.type == "cpu" else max(m, 1)
        return (slice(at, min(at + width, m)) for at in range(0, m, width))

    def append(self, F: Tensor) -> slice:
        """Append functions without making them orthonormal."""
        self.orthonormal = False
        new = slice(self.size, self.size + F.shape[0])
        self._reserve(new.stop)
        self.values[new] = F
        self.R[new, new] = torch.eye(F.shape[0], dtype=self.R.dtype, device=self.R.device)
        self.size = new.stop
        return new

    def descent_slope(self, new: slice, residual: Tensor) -> Tensor:
        """Negative slope of the objective along the new functions, b × p."""
        slope = self.rows.total((self.values[new] @ residual).double())
        return slope - self.prior[new] - self.H[new, : self.size] @ self.coef[: self.size]

    def change_coef(self, where: slice, change: Tensor) -> Tensor:
        """Add `change` to coordinates; returns the change of the model's values, n × p."""
        self.coef[where] += change
        return _rotated(change.T, self.values[where]).T

    def weights(self) -> Tensor:
        """Weights of the original functions."""
        m = self.size
        return torch.linalg.solve_triangular(self.R[:m, :m], self.coef[:m], upper=True)

    def norm2(self) -> Tensor:
        """λ‖f‖² of the span's part of the model, with its cross term with the offset."""
        return self.norm2_at(0.0)

    def norm2_at(self, change: Tensor | float) -> Tensor:
        """`norm2` after a change of all coordinates."""
        c, m = self.coef[: self.size] + change, self.size
        return (c * (self.H[:m, :m] @ c)).sum() + 2 * (c * self.prior[:m]).sum()

    def remove(self, j: int) -> Tensor:
        """Remove function j by a QR downdate; returns the change of the model's values, n × p.

        The later functions are rotated so that the last one carries all that only function j contributed; that one is
        dropped (Greedy02 Algorithm 3).
        """
        m, self.captured = self.size, None
        self.R[: m - 1, : m - 1], rotations = drop_column(self.R[:m, :m], j)
        for rows in (self.values, self.prior, self.coef, self.H, self.H.T):
            rotate_rows(rows[j:m], rotations)
        change = self.values[m - 1, :, None] * -self.coef[m - 1].to(self.values.dtype)
        for square in (self.R, self.H):
            square[m - 1 : m], square[:, m - 1 : m] = 0.0, 0.0
        self.coef[m - 1], self.prior[m - 1] = 0.0, 0.0
        self._drop_function(j)
        self.size = m - 1
        return change

    def _drop_function(self, j: int) -> None:
        """Drop function j from the records of the original functions."""
        m, keep = self.size, torch.arange(self.size, device=self.W.device)
        keep = torch.cat([keep[:j], keep[j + 1 :]])
        self.W[: m - 1, : m - 1] = self.W[keep[:, None], keep]
        self.W[m - 1 : m], self.W[:, m - 1 : m] = 0.0, 0.0
        n_nonzero = self.rows.total(self.values[j : m - 1].any(1).to(torch.uint8))  # a process may have no rows
        self.nonzero[j : m - 1], self.nonzero[m - 1] = n_nonzero > 0, False
        if self.points is not None and len(self.points) == m:
            self.points, self._point_weights = self.points[keep], self._point_weights[keep]
            R = self.R[: m - 1, : m - 1]
            self.T[: m - 1, : m - 1] = torch.linalg.solve_triangular(R, torch.eye(m - 1).to(R), upper=True)
            self.T[m - 1 : m], self.T[:, m - 1 : m] = 0.0, 0.0

    def data_products(self, F: Tensor, G: Tensor) -> Tensor:
        """Σ_n ω_n f(x_n) g(x_n) of all pairs of functions, given by their values."""
        return self.rows.total((F @ (G * self.metric).T).double())

    def _factor(self, gram: Tensor, lengths: Tensor, floor: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        """Lower Cholesky factor of the Gram matrix of the new parts; dependent functions have identity rows.

        A function is new if its remainder is longer than `floor`. Functions that enter together may also depend on
        each other, as the classes of the softmax do: their pivot is rounding of the unit diagonal, and they are
        skipped. Also returns which functions are new, and the length of the new part of each: zero if it is at most
        `floor`, a bound if the pivot is rounding.
        """
        fresh = lengths > floor
        scale = torch.where(fresh, lengths, 1.0)
        if len(scale) == 1:
            return scale[:, None], fresh, torch.where(fresh, lengths, 0.0)
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
        new_lengths = torch.as_tensor(rest).to(scale) * scale
        return torch.as_tensor(factor).to(scale) * scale[:, None], torch.as_tensor(new).to(fresh), new_lengths

    def _reserve(self, needed: int) -> None:
        """Grow all arrays to hold `needed` functions, at least twofold."""
        capacity = self.values.shape[0]
        if needed <= capacity:
            return
        extra = max(needed, 2 * capacity) - capacity
        self.plan.require_functions(self.values.shape[1], capacity + extra)
        self.values = torch.cat([self.values, self.values.new_empty(extra, self.values.shape[1])])
        pad = torch.nn.functional.pad
        self.R, self.H, self.W, self.T = (pad(M, (0, extra, 0, extra)) for M in (self.R, self.H, self.W, self.T))
        self.prior, self.coef = (pad(M, (0, 0, 0, extra)) for M in (self.prior, self.coef))
        self.nonzero = pad(self.nonzero, (0, extra))


def novel(residual: Tensor, squared_norm: Tensor, least: float) -> Tensor:
    """Places of functions of which neither a span nor those before them hold a share above 1 − `least`.

    `residual` is the Gram matrix of what the span leaves of them. The largest share left comes first.

    >>> novel(torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.001]]), torch.ones(3), 0.01).tolist()
    [0]
    """
    found: list[int] = []
    while len(found) < len(residual) and float((share := residual.diagonal() / squared_norm).max()) > least:
        k = int(share.argmax())
        residual = residual - torch.outer(residual[k], residual[k]) / residual[k, k]
        found.append(k)
    return torch.tensor(found, dtype=torch.long)


def _inverse(C: Tensor, fresh: Tensor) -> Tensor:
    """C⁻¹ of a lower factor, with zero rows for dependent functions."""
    if len(C) == 1:
        return torch.where(fresh[:, None], C.reciprocal(), 0.0)
    eye = torch.eye(len(C), dtype=C.dtype, device=C.device)
    return torch.where(fresh[:, None], torch.linalg.solve_triangular(C, eye, upper=False), 0.0)


def _rotated(weights: Tensor, F: Tensor) -> Tensor:
    """weights · F for functions by rows; of one row a matrix product takes ten times as long as a multiplication."""
    weights = weights.to(F.dtype)
    return weights * F if len(F) == 1 else weights @ F


def _subtract(F: Tensor, coef: Tensor, functions: Tensor) -> None:
    """F ← F − coefᵀ·functions in place; a matrix-vector product for a single row."""
    if F.shape[0] == 1:
        F[0].addmv_(functions.T, coef[:, 0], alpha=-1)
    else:
        F.addmm_(coef.T, functions, alpha=-1)
