"""Learners that need no steps: all rows as basis vectors (kernel ridge), or random ones, solved at once.

Where n × n fits the device nothing cheaper beats the exact solution. As a learner it is the paper's
ensemble at its largest: S = N, in one step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from mercer.clock import Clock
from mercer.data import TensorRows, spaced_rows
from mercer.data.source import copies
from mercer.engine import KernelMatrix
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
from mercer.linalg import TiledCholesky, cholesky, conjugate_gradients, inverse_diagonal, solve_factored
from mercer.linalg.cholesky import solve_lower
from mercer.parts import part

#: Rows left out, one at a time, at most; and where not even one n × n array of float64 fits.
LEFT_OUT_ROWS, FEW_LEFT_OUT_ROWS = 2000, 500
#: From so many rows on a CPU a factor of single precision, where it is enough, guides conjugate gradients of double, in
#: half the time of a factor of double.
SINGLE_ROWS = 2500
#: From so many rows on the diagonal of the inverse is made in single precision, where that is enough.
FEW_ROWS = 1000
#: Rows of a panel of a symmetric kernel matrix.
PANEL_ROWS = 512


@part
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
        return clock.over(share=share) is not None

    def next(self, block: Block, step: int, rng: np.random.Generator) -> Functions | None:
        index = block.open_rows()
        if len(index) == 0 or step > 0:
            return None
        A, others = exact_ridge(block.problem, index, leaves_out=True, expired=self.expired)
        if others is not None:
            self.left_out = torch.full_like(block.problem.y, torch.nan, dtype=torch.float64)
            self.left_out[index] = others
        return Functions(index, A, _values(block.problem, index, A))


@part
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
    has the value :math:`y_i - a_i/[G^{-1}]_{ii}` at that row; of rows that were merged one is left out. That is found
    for at most `LEFT_OUT_ROWS` rows, evenly spaced, and is NaN elsewhere: these rows come last, where
    :math:`[G^{-1}]_{ii}` asks for the last corner of the factor alone. K is formed in float64: it is as ill-conditioned
    as kernel matrices come, and λ may be small. Thousands of rows on a CPU need no factor (`guided`), and rows are left
    out some hundred at a time. Where n × n numbers take too much memory, a float32 factor made by panels guides
    conjugate gradients whose tiles are made again each time; :math:`[G^{-1}]_{ii}` then is solved for, at
    `FEW_LEFT_OUT_ROWS` rows. Steps end early once `expired` says that the time is over: fewer steps are a
    stronger regularisation.
    """
    n = len(index)
    X = problem.rows.take(index).to(problem.plan.device, torch.float64)
    y, ridge = problem.y[index].double(), problem.lam / problem.weight[index].double()
    folds = folds_in_steps(n, y.shape[1], leaves_out) if X.device.type == "cpu" else None
    if folds is not None and (found := _by_steps(problem, X, y, ridge, folds, expired)) is not None:
        return found
    if not problem.plan.holds_square(n):
        return _by_panels(problem, X, y, ridge, leaves_out)
    some = torch.as_tensor(spaced_rows(ridge, LEFT_OUT_ROWS if leaves_out else 0), device=index.device)
    if folds:  # other members of an average may have got there by steps
        some = rows_of_folds(n, folds).to(index.device)
    first = torch.ones(n, dtype=torch.bool, device=index.device)
    first[some] = False
    order = torch.cat([first.nonzero()[:, 0], some])
    G = _symmetric(problem.kernel, X[order])
    G.diagonal().add_(ridge[order])
    solution, L = _solved(G, y[order], float(ridge.min()))
    a, others = torch.empty_like(y), torch.full_like(y, torch.nan)
    a[order] = solution
    if not leaves_out:
        return a, None
    m = len(some)
    corner = L[n - m :, n - m :]
    if corner.device.type == "cpu" and m >= FEW_ROWS and single_is_enough(n, float(ridge.min())):
        corner = corner.float()  # what others predict is asked for a few digits, in two thirds of the time
    corner = inverse_diagonal(corner).double()
    others[some] = y[some] - solution[n - m :] / _without_one(corner, ridge, some)
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
    K = _symmetric(kernel.thin if thin else kernel, X.to(made), kept)
    return ridge_by_steps(K, ridge, y, folds, lambda rows: kernel(X[rows], X), expired)


def _by_panels(problem: Problem, X: Tensor, y: Tensor, ridge: Tensor, leaves_out: bool) -> tuple[Tensor, Tensor | None]:
    """What `exact_ridge` finds, without an n × n array of float64."""
    n, plan = len(X), replace(problem.plan, dtype=torch.float64)

    def panel(start: int, stop: int) -> Tensor:
        made = problem.kernel(X[start:], X[start:stop])
        made[: stop - start].diagonal().add_(ridge[start:stop])
        return made

    factor, K_nn = TiledCholesky(n, panel), KernelMatrix(TensorRows(X), problem.kernel, X, plan)

    def solve(b: Tensor, tol: float) -> Tensor:
        system = lambda v: K_nn.product(v) + ridge[:, None] * v  # noqa: E731
        return conjugate_gradients(system, b, precondition=factor.solve, tol=tol, max_iter=50).x

    a = solve(y, 1e-12)
    if not leaves_out:
        return a, None
    some = torch.as_tensor(spaced_rows(ridge, FEW_LEFT_OUT_ROWS), device=a.device)
    units = torch.zeros(n, len(some), dtype=torch.float64, device=a.device)
    units[some, torch.arange(len(some), device=a.device)] = 1.0
    others = torch.full_like(y, torch.nan)
    others[some] = y[some] - a[some] / _without_one(solve(units, 1e-6)[some].diagonal(), ridge, some)
    return a, others


def _without_one(corner: Tensor, ridge: Tensor, some: Tensor) -> Tensor:
    """What a is divided by to give the error without one of the c equal rows of a weight: [G⁻¹]ᵢᵢ/c + (1 − 1/c)/ridge.

    Without one of them ridge becomes ridge·c/(c − 1), a change of rank one of G.
    """
    part = 1 / copies(1 / ridge)[some]
    return (corner * part + (1 - part) / ridge[some])[:, None]


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


def _solved(G: Tensor, y: Tensor, least: float) -> tuple[Tensor, Tensor]:
    """G⁻¹y in float64, and a factor of G: of single precision where that is enough to guide to the solution."""
    if G.device.type == "cpu" and len(G) >= SINGLE_ROWS and single_is_enough(len(G), least):
        L, info = torch.linalg.cholesky_ex(G.float())
        if not int(info):
            found = conjugate_gradients(
                lambda v: G @ v, y, precondition=lambda r: solve_lower(L, r), tol=1e-11, max_iter=30
            )
            if found.n_iter < 30:
                return found.x, L
    L = cholesky(G)[0]
    return solve_factored(L, y), L
