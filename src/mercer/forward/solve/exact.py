"""Learners that need no steps: all rows as basis vectors (kernel ridge), or random ones, solved at once.

Where n × n fits the device nothing cheaper beats the exact solution. As a learner it is the paper's
ensemble at its largest: S = N, in one step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from mercer.clock import Clock
from mercer.data import spaced_rows
from mercer.engine.plan import READ
from mercer.forward.absorb import Block
from mercer.forward.learners import Learner
from mercer.forward.problem import Problem
from mercer.forward.solve.guided import (
    folds_in_steps,
    ridge_by_steps,
    rows_of_folds,
    single_is_enough,
    single_is_made,
    single_steps,
    thin_is_made,
)
from mercer.forward.solve.polish import sparse_ridge
from mercer.forward.span import Functions
from mercer.kernels import Kernel
from mercer.linalg import TiledCholesky, cholesky, conjugate_gradients, inverse_diagonal, solve_factored
from mercer.linalg.cholesky import solve_lower
from mercer.parts import component

#: Rows left out, one at a time, at most.
LEFT_OUT_ROWS = 2000
#: From so many rows on a CPU a factor of single precision, where it is enough, guides conjugate gradients of double, in
#: half the time of a factor of double.
SINGLE_ROWS = 2500
#: From so many rows on the diagonal of the inverse is made in single precision, where that is enough.
FEW_ROWS = 1000
#: Rows of a panel of a symmetric kernel matrix.
PANEL_ROWS = 512


@component
class AllRows(Learner):
    """One learner that holds all rows of positive weight; it has nothing more to propose after that.

    It also finds what the other rows predict at each of some rows (`left_out`, n × p, NaN at all others): the solution
    nearly meets its own targets, so neither probabilities nor intervals can be made from the values it has there.
    """

    resumes: ClassVar[bool] = False  # one step, and all of it is found again by that step
    left_out: Tensor | None = field(default=None, init=False)
    end: tuple[Clock, float] = field(default_factory=lambda: (Clock(), 1.0), init=False)

    def end_by(self, clock: Clock, share: float) -> None:
        self.end = clock, share

    def expired(self) -> bool:
        clock, share = self.end
        return clock.expired(until=share)

    def next(self, block: Block, step: int, rng: np.random.Generator) -> Functions | None:
        index = block.problem.candidates()
        if len(index) == 0 or step > 0:
            return None
        A, others = exact_ridge(block.problem, index, leaves_out=True, expired=self.expired)
        if others is not None:
            self.left_out = torch.full_like(block.problem.y, torch.nan, dtype=torch.float64)
            self.left_out[index] = others
        return Functions(index, A, _values(block.problem, index, A))


@component
class RandomRows(Learner):
    """`size` random rows and the best weights on them, in one step."""

    size: int

    def next(self, block: Block, step: int, rng: np.random.Generator) -> Functions | None:
        n_open = block.n_open
        if n_open == 0 or step > 0:
            return None
        shard = block.problem.rows.shard
        index = shard.nth(block.is_open, rng.choice(n_open, min(self.size, n_open), replace=False))
        A = shard.group.same(sparse_ridge(block.problem, index))
        return Functions(index, A, block.problem.matrix(block.problem.basis(index)).product(A).T.contiguous())


def _values(problem: Problem, index: Tensor, A: Tensor) -> Tensor:
    """The solution at all rows (p × n): y − λa/w at those it was solved for, which needs no kernel values."""
    if len(index) < len(problem.y):
        return problem.matrix(problem.basis(index)).product(A).T.contiguous()
    f = problem.y.to(torch.float64, copy=True)
    f[index] -= (problem.lam / problem.weight[index].double())[:, None] * A
    return f.to(problem.plan.dtype).T.contiguous()


def exact_ridge(
    problem: Problem, index: Tensor, leaves_out: bool = False, expired: Callable[[], bool] = lambda: False
) -> tuple[Tensor, Tensor | None]:
    r"""Weights a = G⁻¹y of all rows `index` (n × p), and on demand what the others predict at some of them.

    Both come from one factor of G = K + λD⁻¹, D the rows' weights, to the digits of float64. Without row i kernel ridge
    has the value :math:`y_i - a_i/[G^{-1}]_{ii}` at that row. That is found
    for at most `LEFT_OUT_ROWS` rows, evenly spaced, and is NaN elsewhere: these rows come last, where
    :math:`[G^{-1}]_{ii}` asks for the last corner of the factor alone. K is formed in float64: it is as ill-conditioned
    as kernel matrices come, and λ may be small. Thousands of rows on a CPU need no factor (`guided`), and rows are left
    out some hundred at a time. Where n × n numbers of float64 take too much memory, the factor is made by panels and
    half of it is kept: the same numbers but for the order of sums. Steps end early once `expired` says that the time is
    over: fewer steps are a stronger regularisation.
    """
    n = len(index)
    X = problem.rows.take(index).to(problem.plan.device, torch.float64)
    y, ridge = problem.y[index].double(), problem.lam / problem.weight[index].double()
    folds = folds_in_steps(n, y.shape[1], leaves_out) if X.device.type == "cpu" else None
    if folds is not None and (found := _by_steps(problem, X, y, ridge, folds, expired)) is not None:
        return found
    some = torch.as_tensor(spaced_rows(ridge, LEFT_OUT_ROWS if leaves_out else 0), device=index.device)
    if folds:  # other members of an average may have got there by steps
        some = rows_of_folds(n, folds).to(index.device)
    first = torch.ones(n, dtype=torch.bool, device=index.device)
    first[some] = False
    order = torch.cat([first.nonzero()[:, 0], some])
    m = len(some)
    solution, corner = _factored(problem, X[order], y[order], ridge[order], m)
    a, others = torch.empty_like(y), torch.full_like(y, torch.nan)
    a[order] = solution
    if not leaves_out:
        return a, None
    if corner.device.type == "cpu" and m >= FEW_ROWS and single_is_enough(n, float(ridge.min())):
        corner = corner.float()  # what others predict is asked for a few digits, in two thirds of the time
    corner = inverse_diagonal(corner).double()
    others[some] = y[some] - solution[n - m :] / corner[:, None]
    return a, others


def _by_steps(
    problem: Problem, X: Tensor, y: Tensor, ridge: Tensor, folds: int, expired: Callable[[], bool]
) -> tuple[Tensor, Tensor | None] | None:
    """The same by steps; None where they do not end, or K does not fit.

    To the digits that folds ask for K is of single precision.
    """
    n, least, kernel = len(y), float(ridge.min()), problem.kernel
    made, kept = (
        torch.float32 if folds and enough(n, least) else torch.float64 for enough in (single_is_made, single_steps)
    )
    if READ * kept.itemsize * n**2 > problem.plan.memory_limit:
        return None
    thin = made == torch.float64 and kept == torch.float32 and thin_is_made(n, least)
    K = _symmetric(kernel.float32_tile if thin else kernel, X.to(made), kept)
    return ridge_by_steps(K, ridge, y, folds, lambda rows: kernel(X[rows], X), expired)


def _factored(problem: Problem, X: Tensor, y: Tensor, ridge: Tensor, m: int) -> tuple[Tensor, Tensor]:
    """G⁻¹y in float64, and the last m rows and columns of a factor of G, by panels where memory is short."""
    if problem.plan.holds_square(len(X)):
        try:
            return _solved(problem.kernel, X, y, ridge, m)
        except torch.OutOfMemoryError:
            pass  # memory that was free when the plan was made is taken, or in pieces
        torch.cuda.empty_cache()
    return _by_panels(problem.kernel, X, y, ridge, m)


def _by_panels(kernel: Kernel, X: Tensor, y: Tensor, ridge: Tensor, m: int) -> tuple[Tensor, Tensor]:
    """What `_solved` finds, from a factor of which half is kept.

    The kernel is bound once: equal rows of two panels then have equal values, to the last digit.
    """
    rows, columns = kernel.columns(X.mean(0, keepdim=True)).prepare(X)

    def panel(start: int, stop: int) -> Tensor:
        made = columns.with_basis(X[start:stop])(rows[start:])
        made[: stop - start].diagonal().add_(ridge[start:stop])
        return made

    factor = TiledCholesky(kernel.diag(X).double() + ridge, panel)
    return factor.solve(y), factor.corner(m)


def _symmetric(kernel: Callable[[Tensor, Tensor], Tensor], X: Tensor, kept: torch.dtype = torch.float64) -> Tensor:
    """K(X, X), half of it made by panels and the other half copied, kept in this precision."""
    n = len(X)
    if X.device.type != "cpu" or n <= PANEL_ROWS:
        return kernel(X, X).to(kept)
    G = X.new_empty(n, n, dtype=kept)
    for start in range(0, n, PANEL_ROWS):
        stop = min(start + PANEL_ROWS, n)
        G[start:stop, start:] = kernel(X[start:stop], X[start:])
        G[stop:, start:stop] = G[start:stop, stop:].T
    return G


def _solved(kernel: Kernel, X: Tensor, y: Tensor, ridge: Tensor, m: int) -> tuple[Tensor, Tensor]:
    """G⁻¹y in float64, and the last m rows and columns of a factor of G.

    The factor has single precision where that is enough to guide to the solution.
    """
    G = _symmetric(kernel, X)
    G.diagonal().add_(ridge)
    n, corner = len(G), slice(len(G) - m, len(G))
    if G.device.type == "cpu" and n >= SINGLE_ROWS and single_is_enough(n, float(ridge.min())):
        L, info = torch.linalg.cholesky_ex(G.float())
        if not int(info):
            found = conjugate_gradients(
                lambda v: G @ v, y, precondition=lambda r: solve_lower(L, r), tol=1e-11, max_iter=30
            )
            if found.n_iter < 30:
                return found.x, L[corner, corner]
    L = cholesky(G)[0]
    return solve_factored(L, y), L[corner, corner]
