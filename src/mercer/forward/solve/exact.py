"""Learners of one step: all rows (kernel ridge, kernel logistic regression), or random rows.

If n × n numbers fit into memory, no cheaper method beats the exact solution. As a learner it is the paper's ensemble
of largest size, S = N.

The time of solutions is predicted from small measured parts of their work: rates differ tenfold between machines. Rates
are measured once per kind of problem and process, so that all decisions of a fit agree.
"""

from __future__ import annotations

import math
import timeit
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import lru_cache, partial
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mercer.base.out_of_fold import LEFT_OUT_ROWS
from mercer.clock import Clock
from mercer.codegen.compiled import thin_product
from mercer.data import spaced_rows
from mercer.data.row_groups import Split
from mercer.engine.plan import READ, Plan
from mercer.forward import time_shares
from mercer.forward.absorb import Block
from mercer.forward.loop import Learner
from mercer.forward.problem import Problem
from mercer.forward.solve.iterative_ridge import (
    FOLDS,
    float32_kernel_suffices,
    float32_storage_suffices,
    fold_rows,
    iterative_folds,
    iterative_ridge,
)
from mercer.forward.solve.polish import sparse_ridge
from mercer.forward.span import Functions
from mercer.kernels import Kernel, Matern32
from mercer.linalg import (
    TiledCholesky,
    cholesky,
    conjugate_gradients,
    float32_factor,
    inverse_diagonal,
    solve_factored,
)
from mercer.linalg.cholesky import solve_lower
from mercer.parts import component
from mercer.selection.likelihood import KernelLikelihood
from mercer.selection.search import run_parallel

#: Folds of row groups that are left out.
GROUP_FOLDS = 10
#: Rows on a CPU from which a float32 factor, if it suffices, preconditions conjugate gradients in float64, in half the
#: time of a float64 factor.
FLOAT32_FACTOR_ROWS = 2500
#: Steps of conjugate gradients with a float32 factor, at most: with more of them the factor is too inexact for
#: leave-one-out predictions too, and is computed in float64.
FACTOR_STEPS = 12
#: Rows and columns of a tile of a symmetric kernel matrix: four megabytes in double precision. Panels of all columns
#: take up to twice as long.
TILE_ROWS, TILE_COLUMNS = 256, 2048
#: Rows of a timed kernel matrix.
TIMED_ROWS = 512
#: Rows at most of a timed matrix that conjugate gradients read, or of a factor.
READ_ROWS = 2500
#: Assumed number of conjugate gradient steps, with preparation and what follows in units of a step.
CG_STEPS = 40
#: A factor and what follows it (leave-one-out, values), in units of the factor; and the power of the rows by which its
#: time grows: less than three, since larger factors run at a higher rate (5, 9 and 15 GFLOP/s for 1000, 2500 and 6000
#: rows on two busy cores).
FACTORS, FACTOR_POWER = 1.5, 2.5
#: Multiplications of two Cholesky factors, two squares and a triangular solution, in units of the cube of their side.
POLISH_CUBES = 4.0
#: Passes over all rows before the first and after the last step of a polish, and passes of each step with its
#: validation rows.
POLISH_PASSES, STEP_PASSES = 5.0, 1.5


@component
class AllRows(Learner):
    """All rows of positive weight as one learner, in one step.

    It also finds leave-one-out predictions, or out-of-fold predictions of a likelihood (`left_out`, n × p, NaN at rows
    without one). The solution nearly interpolates its targets, so calibration and intervals cannot use its values at
    the training rows.
    """

    resumable: ClassVar[bool] = False  # one step, which a resumed fit repeats
    left_out: Tensor | None = field(default=None, init=False)
    n_folds: int = field(default=0, init=False)  # folds that were left out; 0 if each row by itself
    last_fold: Tensor | None = field(default=None, init=False)  # rows of the last fold, if row groups were left out
    clock: Clock = field(default_factory=Clock, init=False)  # of the fit, a share of which steps may take

    def expired(self) -> bool:
        return self.clock.expired(until=time_shares.SOLVING)

    def next(self, block: Block, step: int, rng: np.random.Generator) -> Functions | None:
        index = block.problem.candidates()
        if len(index) == 0 or step > 0:
            return None
        if not block.problem.loss.quadratic:
            found = exact_likelihood(block.problem, index, self.expired)
            self._keep_left_out(block.problem, index, found.left_out, found.splits)
            values = found.values.to(block.problem.plan.dtype)
            if len(index) < len(block.problem.y):  # validation rows, which have no weight
                values = block.problem.matrix(block.problem.basis(index)).product(found.A)
            return Functions(index, found.A, values.T.contiguous(), solved=True)
        splits = group_splits(block.problem, index, GROUP_FOLDS, LEFT_OUT_ROWS)
        A, left_out, self.n_folds = exact_ridge(block.problem, index, self.expired, splits)
        self._keep_left_out(block.problem, index, left_out, splits)
        return Functions(index, A, _values(block.problem, index, A))

    def _keep_left_out(self, problem: Problem, index: Tensor, values: Tensor, splits: Sequence[Split]) -> None:
        if splits:
            self.n_folds, self.last_fold = len(splits), index[torch.as_tensor(splits[-1].scored).to(index.device)]
        self.left_out = torch.full_like(problem.y, torch.nan, dtype=torch.float64)
        self.left_out[index] = values


@component
class RandomRows(Learner):
    """`size` random rows with their best weights, in one step."""

    size: int

    def next(self, block: Block, step: int, rng: np.random.Generator) -> Functions | None:
        n_available = block.n_available
        if n_available == 0 or step > 0:
            return None
        shard = block.problem.rows.shard
        index = shard.nth(block.is_available, rng.choice(n_available, min(self.size, n_available), replace=False))
        A = shard.group.broadcast(sparse_ridge(block.problem, index))
        return Functions(index, A, block.problem.matrix(block.problem.basis(index)).product(A).T.contiguous())


def _values(problem: Problem, index: Tensor, A: Tensor) -> Tensor:
    """Values of the solution at all rows (p × n): y − λa/w at the rows of `index`, without kernel values."""
    if len(index) < len(problem.y):
        return problem.matrix(problem.basis(index)).product(A).T.contiguous()
    f = problem.y.to(torch.float64, copy=True)
    f[index] -= (problem.lam / problem.weight[index].double())[:, None] * A
    return f.to(problem.plan.dtype).T.contiguous()


def exact_ridge(
    problem: Problem,
    index: Tensor,
    expired: Callable[[], bool] = lambda: False,
    splits: Sequence[Split] = (),
) -> tuple[Tensor, Tensor, int]:
    r"""Exact weights a = G⁻¹y, held-out predictions, and the folds of these: 0 if each row by itself.

    Both come from one factor of G = K + λD⁻¹ in float64, D the rows' weights. Without row i the prediction at that row
    is :math:`y_i - a_i/[G^{-1}]_{ii}`. It is computed for at most `LEFT_OUT_ROWS` evenly spaced rows and is NaN
    elsewhere: these rows come last, so that :math:`[G^{-1}]_{ii}` needs only the last corner of the factor. K is
    formed in float64, because it may be ill-conditioned and λ small. Thousands of rows on a CPU need no factor
    (`iterative_ridge`); folds of some hundred rows are then left out instead. If n × n numbers of float64 take too much
    memory, the factor is computed by panels and half of it is kept: the same numbers but for the order of sums.
    Conjugate gradients end early once `expired` returns true: fewer steps are a stronger regularisation.

    Rows F of each of `splits` are left out together: the predictions there are :math:`y_F - [G^{-1}]_{FF}^{-1} a_F`.
    """
    n = len(index)
    X = problem.rows.take(index).to(problem.plan.device, torch.float64)
    y, ridge = problem.y[index].double(), problem.lam / problem.weight[index].double()
    folds = iterative_folds(n, y.shape[1]) if X.device.type == "cpu" and not splits else None
    if folds is not None and (found := _by_conjugate_gradients(problem, X, y, ridge, folds, expired)) is not None:
        return *found, folds
    last = torch.as_tensor(spaced_rows(ridge, LEFT_OUT_ROWS), device=index.device)
    if splits:
        last = torch.as_tensor(np.unique(np.concatenate([split.left_out for split in splits])), device=index.device)
    if folds:  # the same rows as those ensemble members that were solved by conjugate gradients
        last = fold_rows(n, folds).to(index.device)
    first = torch.ones(n, dtype=torch.bool, device=index.device)
    first[last] = False
    order = torch.cat([first.nonzero()[:, 0], last])
    m = len(last)
    solution, corner = _by_factor(problem, X[order], y[order], ridge[order], m)
    a, left_out = torch.empty_like(y), torch.full_like(y, torch.nan)
    a[order] = solution
    if splits:
        places = torch.empty(n, dtype=torch.long, device=index.device)
        places[last] = torch.arange(m, device=index.device)
        inverse = torch.cholesky_inverse(corner.double())
        for out, scored in (map(torch.as_tensor, split) for split in splits):
            F = places[out.to(index.device)]
            errors = torch.zeros_like(solution)
            errors[n - m + F] = torch.linalg.solve(inverse[F[:, None], F], solution[n - m + F])
            left_out[scored] = y[scored] - errors[n - m + places[scored]]
        return a, left_out, len(splits)
    diagonal = inverse_diagonal(corner).double()
    left_out[last] = y[last] - solution[n - m :] / diagonal[:, None]
    return a, left_out, 0


def _by_conjugate_gradients(
    problem: Problem, X: Tensor, y: Tensor, ridge: Tensor, folds: int, expired: Callable[[], bool]
) -> tuple[Tensor, Tensor] | None:
    """The same by conjugate gradients; None if they do not converge or K does not fit into memory.

    K is in float32 if that suffices for the accuracy that folds need.
    """
    n, penalty, kernel = len(y), float(ridge.min()), problem.kernel
    computed = torch.float32 if float32_kernel_suffices(n, penalty) else torch.float64
    stored = torch.float32 if float32_storage_suffices(n, penalty) else torch.float64
    if READ * stored.itemsize * n**2 > problem.plan.memory_limit:
        return None
    K = _symmetric(kernel, X.to(computed), stored)
    return iterative_ridge(K, ridge, y, folds, lambda rows: kernel(X[rows], X), expired)


def _by_factor(problem: Problem, X: Tensor, y: Tensor, ridge: Tensor, m: int) -> tuple[Tensor, Tensor]:
    """G⁻¹y in float64, and the last m rows and columns of a factor of G.

    The factor is computed by panels if memory is short.
    """
    if problem.plan.holds_square(len(X)):
        try:
            return _by_square_factor(problem.kernel, X, y, ridge, m)
        except torch.OutOfMemoryError:
            pass  # memory that was free when the plan was made is in use now, or fragmented
        torch.cuda.empty_cache()
    return _by_panels(problem.kernel, X, y, ridge, m)


def _by_panels(kernel: Kernel, X: Tensor, y: Tensor, ridge: Tensor, m: int) -> tuple[Tensor, Tensor]:
    """The result of `_by_square_factor` from a factor of which half is kept.

    The kernel is bound once, so that equal rows of two panels have equal values to the last digit.
    """
    rows, columns = kernel.columns(X.mean(0, keepdim=True)).prepare(X)

    def panel(start: int, stop: int) -> Tensor:
        made = columns.with_basis(X[start:stop])(rows[start:])
        made[: stop - start].diagonal().add_(ridge[start:stop])
        return made

    factor = TiledCholesky(kernel.diag(X).double() + ridge, panel)
    return factor.solve(y), factor.corner(m)


def _symmetric(
    kernel: Kernel,
    X: Tensor,
    stored: torch.dtype = torch.float64,
    tile_rows: int = TILE_ROWS,
    tile_columns: int = TILE_COLUMNS,
) -> Tensor:
    """K(X, X): tiles of one half, which stay in the cache, computed in parallel, and the other half copied.

    Tiles have `tile_rows` rows and `tile_columns` columns, a multiple of them.
    """
    n = len(X)
    if X.device.type != "cpu" or n <= tile_rows:
        return kernel(X, X).to(stored)
    G = X.new_empty(n, n, dtype=stored)
    rows, columns = kernel.columns(X).prepare(X)
    tiles = [columns.with_basis(part).specialise(n) for part in X.split(tile_columns)]

    def fill(start: int) -> None:
        here, first = slice(start, start + tile_rows), start // tile_columns
        for place in range(first, len(tiles)):
            there = slice(place * tile_columns, (place + 1) * tile_columns)
            tile = tiles[place].temporary_tile(rows[here])
            G[here, there] = tile
            if place > first:
                G[there, here] = tile.T

    run_parallel([partial(fill, start) for start in range(0, n, tile_rows)])
    return G


def _by_square_factor(kernel: Kernel, X: Tensor, y: Tensor, ridge: Tensor, m: int) -> tuple[Tensor, Tensor]:
    """G⁻¹y in float64, and the last m rows and columns of a factor of G.

    A float32 factor is used as a preconditioner if it suffices.
    """
    G = _symmetric(kernel, X)
    G.diagonal().add_(ridge)
    corner = slice(len(G) - m, len(G))
    rough = float32_factor(G, float(ridge.min())) if len(G) >= FLOAT32_FACTOR_ROWS else None
    if rough is not None:
        found = conjugate_gradients(
            lambda v: G @ v, y, precondition=partial(solve_lower, rough), tol=1e-11, max_iter=FACTOR_STEPS
        )
        if found.n_iter < FACTOR_STEPS:
            return found.x, rough[corner, corner]
    L = cholesky(G)[0]
    return solve_factored(L, y), L[corner, corner]


class LikelihoodSolution(NamedTuple):
    """Dual coefficients, values, and out-of-fold values of all rows, n × p each.

    `splits` are those of row groups, where only the scored rows have out-of-fold values.
    """

    A: Tensor
    values: Tensor
    left_out: Tensor
    splits: list[Split]


def group_splits(problem: Problem, index: Tensor, n_folds: int, most: float = math.inf) -> list[Split]:
    """Splits of the rows `index` that keep their groups together, as places among them; none without groups."""
    row_groups = problem.sample.row_groups
    return [] if row_groups is None else row_groups.take(index.cpu().numpy()).splits(n_folds, most=most)


def exact_likelihood(
    problem: Problem, index: Tensor, expired: Callable[[], bool] = lambda: False
) -> LikelihoodSolution:
    """Minimise the penalised log likelihood over functions of all rows in `index`.

    Every fold is a problem of the other rows. It does not start from the solution of all rows: that would carry targets
    of left-out rows into their predictions.
    """
    X = problem.rows.take(index).to(problem.plan.device, torch.float64)
    Y, weight, K = problem.y[index].double(), problem.weight[index].double(), _symmetric(problem.kernel, X)
    splits = group_splits(problem, index, FOLDS)
    rows = torch.arange(len(index), device=X.device)
    folds = [(torch.as_tensor(split.left_out), torch.as_tensor(split.scored)) for split in splits]
    folds = folds or [(rows[k::FOLDS], rows[k::FOLDS]) for k in range(min(FOLDS, len(rows)))]
    fit = KernelLikelihood(K, Y, weight, problem.lam, problem.loss).fit(expired=expired)
    left_out = torch.full_like(Y, torch.nan)  # where no fold scores a row
    for out, scored in folds:
        kept = rows[~torch.isin(rows, out.to(rows))]
        if not len(kept):
            continue
        part = KernelLikelihood(K[kept][:, kept], Y[kept], weight[kept], problem.lam, problem.loss)
        left_out[scored] = K[scored.to(rows)][:, kept] @ part.fit(expired=expired).alpha
    return LikelihoodSolution(fit.alpha, fit.values, left_out, splits)


def exact_seconds(n: int, p: int, n_columns: int, plan: Plan) -> float:
    """Predict the seconds of `exact_ridge` for `n` rows, `p` targets and `n_columns` inputs."""
    device = str(plan.device)
    kernel_seconds = n**2 * _kernel_rate(device, n_columns)
    folds = iterative_folds(n, p) if plan.device.type == "cpu" else None
    if folds is None:
        rows = min(n, READ_ROWS)
        return kernel_seconds + FACTORS * (n / rows) ** FACTOR_POWER * _factor_seconds(device, rows)
    return kernel_seconds / 2 + CG_STEPS * n**2 * _read_rate(p * (1 + folds))


def affordable_polish_steps(problem: Problem, index: Tensor, seconds: float) -> int:
    """Steps of a polish of basis vectors `index` that take at most `seconds`, as the first process measures them."""
    basis, m = problem.basis(index).double(), len(index)
    rows = problem.basis(index[:TIMED_ROWS]).double()
    v = rows.new_ones(m, 1)
    square = rows.new_ones(min(m, TIMED_ROWS), min(m, TIMED_ROWS))
    a_pass = seconds_of(lambda: problem.kernel(rows, basis) @ v) * problem.n_candidates / len(rows)
    algebra = seconds_of(lambda: square @ square) * POLISH_CUBES * (m / len(square)) ** 3
    a_pass, algebra = problem.rows.shard.group.first(lambda: (a_pass, algebra))
    return int(max((seconds - algebra - POLISH_PASSES * a_pass) / max(STEP_PASSES * a_pass, 1e-9), 0))


@lru_cache
def _kernel_rate(device: str, n_columns: int) -> float:
    """Seconds per value of a kernel matrix."""
    X = torch.linspace(-1.0, 1.0, TIMED_ROWS * n_columns, dtype=torch.float64, device=device).reshape(TIMED_ROWS, -1)
    kernel = Matern32()
    return seconds_of(lambda: kernel(X, X)) / TIMED_ROWS**2


@lru_cache
def _read_rate(columns: int) -> float:
    """Seconds per entry of a matrix that is multiplied by this many columns."""
    A, V = torch.ones(READ_ROWS, READ_ROWS), torch.ones(READ_ROWS, columns, dtype=torch.float64)
    return seconds_of(lambda: thin_product(A, V)) / READ_ROWS**2


@lru_cache
def _factor_seconds(device: str, n: int) -> float:
    """Seconds of a Cholesky factor of n rows."""
    A = torch.eye(n, dtype=torch.float64, device=device)
    return seconds_of(lambda: torch.linalg.cholesky(A))


def seconds_of(work: Callable[[], Tensor]) -> float:
    """Time a piece of work, by the shorter of two runs: the first one may load libraries."""
    return min(timeit.repeat(lambda: float(work().reshape(-1)[0]), number=1, repeat=2))  # a number waits for a GPU
