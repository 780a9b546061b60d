"""Absorption: new functions join a block of at most L learners whose weights are fitted together.

`full` is one endless block, `one` a block per learner, and the paper's compromise anything between
(Boost10 section III-E): one piece of code, because ONE-UPDATE is a full update of a single function.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mercer.data import WHOLE, Shard
from mercer.forward.posterior import KernelFactor
from mercer.forward.problem import Problem
from mercer.forward.span import Functions, FunctionSpan


@dataclass(frozen=True)
class LearnerTerm:
    """The functions one learner brought: rows (of the whole problem), weights, and where they stand."""

    index: Tensor
    A: Tensor
    where: slice


class Block:
    """Learners fitted together on (part of) the rows, on top of the model `f` that stands before them.

    Where steps change more than the newest coordinates, `coef_path` holds them after each step; where
    functions also leave, `snapshots` holds rows and weights after each step. `members` are the basis vectors in
    order. With `gram_noise` = σ² the columns are those of K + σ²I, Greedy02's regularisation. A function that lies in
    the span up to a share `min_novelty` of its norm gets no weight.
    """

    def __init__(
        self,
        problem: Problem,
        f: Tensor,
        capacity: int,
        pool: Tensor | None = None,
        lam: float | None = None,
        gram_noise: float = 0.0,
        min_novelty: float = 0.0,
    ) -> None:
        self.problem, self.pool, self.gram_noise, self.min_novelty = problem, pool, gram_noise, min_novelty
        self.whole: Shard = WHOLE  # by which rows are known where the block looks at a `pool` of them
        self.f = f.clone()
        self.metric = problem.loss.bound * problem.weight
        self.span = FunctionSpan(problem, capacity, self.metric, problem.lam if lam is None else lam, before=f)
        self.terms: list[LearnerTerm] = []
        self.members = torch.empty(0, dtype=torch.long, device=f.device)
        self.factor = KernelFactor(problem)  # empty until a criterion asks how new rows are
        self.coef_path: list[Tensor] = []
        self.snapshots: list[tuple[Tensor, Tensor]] = []
        self._open = problem.distinct.clone()

    def gradient(self) -> Tensor:
        """w·(−∂V/∂f), n × p."""
        return self.problem.weight[:, None] * self.problem.loss.residual(self.problem.y, self.f)

    @property
    def is_open(self) -> Tensor:
        """Which rows of this process may still become basis vectors."""
        return self._open

    @property
    def n_open(self) -> int:
        """How many rows may still become basis vectors, on all processes."""
        return self.problem.rows.shard.count(self._open)

    def open_rows(self) -> Tensor:
        """Rows of this block that may still become basis vectors, by their places on this process."""
        return self._open.nonzero()[:, 0]

    def drawn(self, size: int, rng: np.random.Generator) -> Tensor:
        """At most `size` random rows that may still become basis vectors; at least half as many where there are."""
        rows, shard = self.problem.rows, self.problem.rows.shard
        n = shard.length(len(self._open))
        if n >= 10 * size:  # most rows are open, and looking through all of them would take longer than the learner
            draw = torch.from_numpy(rng.choice(n, size, replace=False, shuffle=False)).to(self._open.device)
            draw = draw[rows.pick(self._open, draw)]
            if 2 * len(draw) >= size:
                return draw
        n = self.n_open
        return shard.nth(self._open, np.arange(n) if n <= size else rng.choice(n, size, replace=False))

    def absorb(self, new: Functions, shrinkage: float = 1.0) -> None:
        """Extend the span and move to the best model in it.

        For the squared loss the new coordinates are all that changes. For others all coordinates take a
        step of the quadratic upper bound of the loss, lengthened by a Newton line search that is used only
        if it lowers the objective: two passes, where a full Newton step would take a factorisation.
        """
        where = self.span.extend(self._noisy(new), new.index, new.A, self.min_novelty)
        self._enter(new, where)
        if self.problem.loss.quadratic:
            change = self.span.pull(where, self.gradient()) * shrinkage
            self.f += self.span.move(where, change)
        else:
            self._descend(shrinkage)
            self.coef_path.append(self.span.coef[: self.span.size].clone())

    def _noisy(self, new: Functions) -> Tensor:
        """Values with Greedy02's σ² added: the columns of K + σ²I instead of those of K."""
        if self.gram_noise:
            at, places = self.problem.rows.shard.local(new.index)
            new.values[:, places] += self.gram_noise * new.A.T[:, at].to(new.values.dtype)
        return new.values

    def _enter(self, new: Functions, where: slice) -> None:
        part = self.problem.rows.shard
        index = new.index if self.pool is None else self.whole.from_part(part, self.pool, new.index)
        self.terms.append(LearnerTerm(index, new.A, where))
        self.members = torch.cat([self.members, new.index])
        self._open[self.problem.rows.shard.local(new.index)[1]] = False

    def inside(self, index: Tensor) -> Tensor:
        """Rows of the whole problem by their numbers in this block: `_enter` the other way round."""
        return index if self.pool is None else self.whole.to_part(self.problem.rows.shard, self.pool, index)

    def _descend(self, shrinkage: float) -> None:
        span, loss, y = self.span, self.problem.loss, self.problem.y
        everything = slice(0, span.size)
        change = span.pull(everything, self.gradient())
        values = (span.values[everything].T @ change.to(self.f.dtype)).double()
        slope = change.square().sum(0)
        w = self.problem.weight[:, None].double()
        total = self.problem.rows.total
        bend = total((w * loss.curvature(y, self.f).double() * values.square()).sum(0))
        bend = bend + (change * (span.H[everything, everything] @ change)).sum(0)
        newton = torch.where(bend > 0, slope / bend.clamp(min=1e-300), 1.0).clamp(1.0, 100.0)
        f_far = self.f.double() + newton * values
        f_near = self.f.double() + values
        far = total((w * loss.value(y.double(), f_far)).sum()) + 0.5 * span.norm2_at(newton * change)
        near = total((w * loss.value(y.double(), f_near)).sum()) + 0.5 * span.norm2_at(change)
        length = torch.where(far < near, newton, 1.0) * shrinkage
        self.f += span.move(everything, length * change)

    def penalty(self) -> Tensor:
        """What this block adds to λ‖f‖² of the whole model."""
        return self.span.norm2()

    def expansion(self, n_terms: int | None = None) -> list[tuple[Tensor, Tensor]]:
        """Rows and weights (S × p) of the first `n_terms` learners, fitted as they were at that step."""
        terms = self.terms if n_terms is None else self.terms[:n_terms]
        if not terms:
            return []
        if self.snapshots:
            return [self.snapshots[len(terms) - 1]]
        m = terms[-1].where.stop
        coef = self.coef_path[len(terms) - 1] if self.coef_path else self.span.coef[:m]
        x = torch.linalg.solve_triangular(self.span.R[:m, :m], coef, upper=True)
        return [(term.index, term.A.double() @ x[term.where]) for term in terms]

    def close(self) -> None:
        """Let go of everything of the size of the rows."""
        del self.span.values, self.span.before, self.span.metric, self.span.rows, self.span.basis
        del self.problem, self.pool, self.f, self.metric, self._open, self.factor
