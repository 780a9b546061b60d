"""Absorption: fit the weights of a block of learners together.

FULL-UPDATE is one block without limit, ONE-UPDATE a block for each learner, and the paper's compromise is anything in
between (Boost10 section III-E). One class serves all, because ONE-UPDATE is a full update of a single function.

Novelty and posterior of rows, given the chosen basis vectors, are updated one vector at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.data import UNDIVIDED, Shard
from mercer.forward.problem import Problem
from mercer.forward.span import Functions, FunctionSpan

#: Halvings of a step at most, where the objective rises.
HALVINGS = 12


class KernelFactor:
    """Growing Cholesky factor Q_I = LLᵀ of the basis vectors' kernel matrix.

    A vector in the span of earlier ones, up to rounding, is skipped.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._begin()

    def _begin(self) -> None:
        wide: dict[str, Any] = {"device": self.problem.plan.device, "dtype": torch.float64}
        self.basis_index = torch.empty(0, dtype=torch.long, device=wide["device"])
        self.positions: list[int] = []  # of the vectors in the factor, within basis_index
        self.Z = torch.empty(0, self.problem.rows.n_columns, **wide)
        self.L = torch.zeros(64, 64, **wide)
        self.explained: Tensor | None = None  # Σ v² at all rows
        self.n_explained = 0  # vectors in that sum

    def extend_to(self, basis_index: Tensor) -> KernelFactor:
        """Add the vectors that entered since the last call; start again if one has left."""
        n = len(self.basis_index)
        if n > len(basis_index) or not torch.equal(self.basis_index, basis_index[:n]):
            self._begin()
        for position in range(len(self.basis_index), len(basis_index)):
            self._add(basis_index[position][None], position)
        self.basis_index = basis_index
        return self

    def _add(self, row: Tensor, position: int) -> None:
        z, m = self.problem.basis(row).double(), len(self.positions)
        v, k = self._whitened(z)[:, 0], self.problem.kernel.diag(z)[0]
        pivot = k - v.square().sum()
        if float(pivot) <= (m + 1) * torch.finfo(torch.float64).eps * float(k):
            return
        if m == len(self.L):
            self.L = torch.nn.functional.pad(self.L, (0, m, 0, m))
        self.L[m, :m], self.L[m, m] = v, pivot.sqrt()
        self.Z = torch.cat([self.Z, z])
        self.positions.append(position)

    def _whitened(self, X: Tensor) -> Tensor:
        """V = L⁻¹K(Z, X)."""
        m = len(self.positions)
        return torch.linalg.solve_triangular(self.L[:m, :m], self.problem.kernel(self.Z, X), upper=False)

    def novelty(self, X: Tensor) -> Tensor:
        """δ = k(x, x) − k_I(x)ᵀQ_I⁻¹k_I(x) of rows X, in O(m²) each."""
        return (self.problem.kernel.diag(X) - self._whitened(X).square().sum(0)).clamp(min=0)

    def novelty_of_all(self, span: FunctionSpan) -> Tensor:
        """δ of all rows, in O(nm) for each new vector.

        The whitened columns are the functions of `span` times R L⁻ᵀ, so one product with the span's values gives each
        of them. Their length is that of the functions, so rounding is not multiplied.
        """
        m = len(self.positions)
        if self.explained is None:
            self.explained, self.n_explained = torch.zeros(span.values.shape[1], **_like(self.L)), 0
        if self.n_explained < m:
            new = torch.eye(m, **_like(self.L))[:, self.n_explained :]
            weights = torch.linalg.solve_triangular(self.L[:m, :m].T, new, upper=True)
            along = span.R[: span.size, self.positions] @ weights
            values = along.T.to(span.values.dtype) @ span.values[: span.size]
            self.explained, self.n_explained = self.explained + values.double().square().sum(0), m
        rows = self.problem.basis(torch.arange(len(self.explained), device=self.L.device))
        return (self.problem.kernel.diag(rows.double()) - self.explained).clamp(min=0)


class SmallPosterior:
    """Posterior mean and variance at T rows of a model with noise σ².

    Both are updated for each basis vector.

    `functions` are orthonormal in Σ_t f(x_t) g(x_t) + σ²⟨f, g⟩_H, so the mean is Σφ(φᵀy) and its variance σ²Σφ².
    """

    def __init__(self, y: Tensor, noise: float, n_steps: int) -> None:
        self.y, self.noise, self.size = y, noise, 0
        self.innovation, self.leverage = y.clone(), y.new_zeros(len(y))
        self.functions, self.weights = y.new_zeros(n_steps, len(y)), y.new_zeros(n_steps, n_steps)

    def add(self, v: Tensor) -> None:
        """Add a function of unit norm in the RKHS, orthogonal to the earlier ones."""
        m = self.size
        P, G, g = self.functions[:m], self.weights[:m], self.weights.new_zeros(self.weights.shape[1])
        g[m] = 1.0
        for _ in range(2):
            along = P @ v + self.noise * (G @ g)
            v, g = v - along @ P, g - along @ G
        scale = (v @ v + self.noise * (g @ g)).clamp(min=torch.finfo(v.dtype).tiny).rsqrt()
        self.functions[m], self.weights[m] = scale * v, scale * g
        phi = self.functions[m]
        self.innovation = self.innovation - phi[:, None] * (phi @ self.y)
        self.leverage = self.leverage + phi.square()
        self.size = m + 1


def _like(tensor: Tensor) -> dict[str, Any]:
    return {"device": tensor.device, "dtype": tensor.dtype}


@dataclass(frozen=True)
class LearnerTerm:
    """The functions of one learner: rows of the whole problem, weights, and positions in the span."""

    index: Tensor
    A: Tensor
    where: slice


class Block:
    """Learners fitted together, on top of an earlier model `f`.

    They are fitted to all rows, or to a `subset` of them.

    `basis_index` are the basis vectors in order of entry. `coef_path` holds all coordinates after each step if steps
    change more than the newest ones; `snapshots` holds rows and weights after each step if functions also leave. With
    `gram_noise` = σ² the columns are those of K + σ²I, Greedy02's regularisation. With `own_penalty` the penalty is
    λ‖F‖² of the block's function F, as in Boost10, instead of the whole model's. A function that lies in the span up
    to a share `min_novelty` of its norm gets no weight.
    """

    def __init__(
        self,
        problem: Problem,
        f: Tensor,
        capacity: int,
        subset: Tensor | None = None,
        lam: float | None = None,
        gram_noise: float = 0.0,
        min_novelty: float = 0.0,
        own_penalty: bool = False,
    ) -> None:
        self.problem, self.subset, self.gram_noise, self.min_novelty = problem, subset, gram_noise, min_novelty
        self.full_shard: Shard = UNDIVIDED  # of the whole problem
        self.f = f.clone()
        self.metric = problem.loss.bound * problem.weight
        lam, before = problem.lam if lam is None else lam, torch.zeros_like(f) if own_penalty else f
        self.span = FunctionSpan(problem, capacity, self.metric, lam, offset=before)
        self.terms: list[LearnerTerm] = []
        self.basis_index = torch.empty(0, dtype=torch.long, device=f.device)
        self.factor = KernelFactor(problem)  # empty until a criterion needs the novelty of rows
        self.coef_path: list[Tensor] = []
        self.snapshots: list[tuple[Tensor, Tensor]] = []
        self.is_available = problem.distinct.clone()  # mask of this process's rows that may become basis vectors

    def gradient(self) -> Tensor:
        """w·(−∂V/∂f), n × p."""
        return self.problem.weight[:, None] * self.problem.loss.residual(self.problem.y, self.f)

    @property
    def n_available(self) -> int:
        """Number of rows that may still become basis vectors, on all processes."""
        return self.problem.rows.shard.count(self.is_available)

    def available_rows(self) -> Tensor:
        """Local indices of the rows that may still become basis vectors."""
        return self.is_available.nonzero()[:, 0]

    def draw_available(self, size: int, rng: np.random.Generator) -> Tensor:
        """Draw at most `size` rows that may still become basis vectors.

        At least half as many are drawn if they exist.
        """
        rows, shard = self.problem.rows, self.problem.rows.shard
        n = shard.length(len(self.is_available))
        if n >= 10 * size:  # most rows are available, and a scan of all rows would take longer than the learner
            draw = torch.from_numpy(rng.choice(n, size, replace=False, shuffle=False)).to(self.is_available.device)
            draw = draw[rows.pick(self.is_available, draw)]
            if 2 * len(draw) >= size:
                return draw
        n = self.n_available
        return shard.nth(self.is_available, np.arange(n) if n <= size else rng.choice(n, size, replace=False))

    def absorb(self, new: Functions, shrinkage: float = 1.0) -> None:
        """Extend the span and move to the best model in it.

        With the squared loss only the new coordinates change. With other losses all coordinates take a step of the
        loss's quadratic upper bound, lengthened by a Newton line search if that lowers the objective, and shortened
        while the objective rises: two passes instead of the factorisation of a full Newton step.
        """
        gradient = self._gradient_at_zero(new) if new.solved else None
        where = self.span.extend(self._with_gram_noise(new), new.index, new.A, self.min_novelty)
        self._append_term(new, where)
        if self.problem.loss.quadratic or gradient is not None:
            gradient = self.gradient() if gradient is None else gradient
            change = self.span.descent_slope(where, gradient) * shrinkage
            self.f += self.span.change_coef(where, change)
        else:
            self._line_search_step(shrinkage)
            self.coef_path.append(self.span.coef[: self.span.size].clone())

    def _gradient_at_zero(self, new: Functions) -> Tensor:
        """The gradient at zero of a quadratic objective that the new functions minimise: ωf + λα."""
        gradient = self.metric[:, None] * new.values.T
        gradient[new.index] += self.problem.lam * new.A.to(gradient)
        return gradient

    def _with_gram_noise(self, new: Functions) -> Tensor:
        """Values with Greedy02's σ² added: columns of K + σ²I instead of K."""
        if self.gram_noise:
            at, places = self.problem.rows.shard.local(new.index)
            new.values[:, places] += self.gram_noise * new.A.T[:, at].to(new.values.dtype)
        return new.values

    def _append_term(self, new: Functions, where: slice) -> None:
        shard = self.problem.rows.shard
        index = new.index if self.subset is None else self.full_shard.from_part(shard, self.subset, new.index)
        self.terms.append(LearnerTerm(index, new.A, where))
        self.basis_index = torch.cat([self.basis_index, new.index])
        self.is_available.index_fill_(0, shard.local(new.index)[1], False)  # an assignment would wait for the GPU

    def local_index(self, index: Tensor) -> Tensor:
        """Convert row numbers of the whole problem to those of this block."""
        return index if self.subset is None else self.full_shard.to_part(self.problem.rows.shard, self.subset, index)

    def _line_search_step(self, shrinkage: float) -> None:
        """Change all coordinates by a step of the quadratic bound of the loss.

        A longer Newton step is taken if it is lower, and a shorter one where the loss has no such bound.
        """
        span, loss, y = self.span, self.problem.loss, self.problem.y
        everything = slice(0, span.size)
        change = span.descent_slope(everything, self.gradient())
        values = (span.values[everything].T @ change.to(self.f.dtype)).double()
        slope = change.square().sum(0)
        w = self.problem.weight[:, None].double()
        total = self.problem.rows.total
        curvature = total((w * loss.curvature(y, self.f).double() * values.square()).sum(0))
        curvature = curvature + (change * (span.H[everything, everything] @ change)).sum(0)
        newton = torch.where(curvature > 0, slope / curvature.clamp(min=1e-300), 1.0).clamp(1.0, 100.0)

        def objective(length: Tensor) -> Tensor:
            data = total((w * loss.value(y.double(), self.f.double() + length * values)).sum())
            return data + 0.5 * span.norm2_at(length * change)

        one = torch.ones_like(newton)
        length = torch.where(objective(newton) < objective(one), newton, one)
        before = objective(0 * one)
        for _ in range(HALVINGS):
            if bool(objective(length) <= before):
                break
            length = length / 2
        self.f += span.change_coef(everything, shrinkage * length * change)

    def penalty(self) -> Tensor:
        """Contribution of this block to λ‖f‖² of the whole model."""
        return self.span.norm2()

    def release(self) -> None:
        """Free all arrays of the size of the rows."""
        del self.span.values, self.span.offset, self.span.metric, self.span.rows, self.span.basis
        del self.problem, self.subset, self.f, self.metric, self.is_available, self.factor
