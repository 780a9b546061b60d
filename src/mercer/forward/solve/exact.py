"""Learners that need no steps: all rows as basis vectors (kernel ridge), or random ones, solved at once.

Where n × n fits the device nothing cheaper beats the exact solution. As a learner it is the paper's
ensemble at its largest: S = N, in one step.
"""

from __future__ import annotations

from dataclasses import field, replace

import numpy as np
import torch
from torch import Tensor

from mercer.data import TensorRows, spread_rows
from mercer.engine import KernelMatrix
from mercer.forward.absorb import Block
from mercer.forward.learners import Learner
from mercer.forward.problem import Problem
from mercer.forward.solve.ridge import sparse_ridge
from mercer.forward.span import Functions
from mercer.linalg import TiledCholesky, cholesky, conjugate_gradients, inverse_diagonal
from mercer.parts import part

#: Rows left out, one at a time: all of at most so many; of more, as many evenly spaced ones as cost little beside the
#: factor; and where not even one n × n array of float64 fits.
ALL_LEFT_OUT, SPACED_LEFT_OUT, LEFT_OUT_ROWS = 2000, 1000, 500


@part
class AllRows(Learner):
    """One learner that holds all rows of positive weight; it has nothing more to propose after that.

    It also finds what the other rows predict at each of some rows (`left_out`, n × p, NaN at all others): the solution
    nearly meets its own targets, so neither probabilities nor intervals can be made from the values it has there.
    """

    left_out: Tensor | None = field(default=None, init=False)

    def next(self, block: Block, step: int, rng: np.random.Generator) -> Functions | None:
        index = block.open_rows()
        if len(index) == 0 or step > 0:
            return None
        A, others = exact_ridge(block.problem, index, leaves_out=True)
        if others is not None:
            self.left_out = torch.full_like(block.problem.y, torch.nan, dtype=torch.float64)
            self.left_out[index] = others
        return Functions(index, A, block.problem.matrix(block.problem.basis(index)).product(A).T.contiguous())


@part
class RandomRows(Learner):
    """`size` random rows and the best weights on them, in one step."""

    size: int

    def next(self, block: Block, step: int, rng: np.random.Generator) -> Functions | None:
        rows = block.open_rows()
        if len(rows) == 0 or step > 0:
            return None
        draw = rng.choice(len(rows), min(self.size, len(rows)), replace=False)
        index = rows[torch.from_numpy(draw).to(rows.device)]
        A = sparse_ridge(block.problem, index)
        return Functions(index, A, block.problem.matrix(block.problem.basis(index)).product(A).T.contiguous())


def kernel_ridge(problem: Problem, index: Tensor) -> Tensor:
    """Weights a = (K + λD⁻¹)⁻¹y of all rows `index` (n × p), D the rows' weights, to the digits of float64."""
    return exact_ridge(problem, index)[0]


def exact_ridge(problem: Problem, index: Tensor, leaves_out: bool = False) -> tuple[Tensor, Tensor | None]:
    r"""`kernel_ridge`, and on demand what the others predict at each row, both from one factor of G = K + λD⁻¹.

    Kernel ridge without row i has the value :math:`y_i - a_i/[G^{-1}]_{ii}` at that row. K is formed in float64: it is
    as ill-conditioned as kernel matrices come, and λ may be small. Where that takes too much memory, a float32 factor
    made by panels guides conjugate gradients whose tiles are made again each time. Of many rows only some, evenly
    spaced, are left out, and the others are NaN.
    """
    n, plan = len(index), replace(problem.plan, dtype=torch.float64)
    X, y = problem.rows.take(index).to(plan.device, torch.float64), problem.y[index].double()
    ridge = problem.lam / problem.weight[index].double()
    if problem.plan.holds_square(n):
        K = problem.kernel(X, X)
        K.diagonal().add_(ridge)
        L = cholesky(K)[0]
        a = torch.cholesky_solve(y, L)
        if not leaves_out:
            return a, None
        if n <= ALL_LEFT_OUT:
            return a, y - a / inverse_diagonal(L)[:, None]
        some = torch.as_tensor(spread_rows(ridge, SPACED_LEFT_OUT), device=a.device)
        return a, _without(y, a, some, torch.linalg.solve_triangular(L, _units(n, some), upper=False).square().sum(0))

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
    some = torch.as_tensor(spread_rows(ridge, LEFT_OUT_ROWS), device=a.device)
    return a, _without(y, a, some, solve(_units(n, some), 1e-6)[some].diagonal())


def _units(n: int, some: Tensor) -> Tensor:
    """The unit vectors of some rows, side by side."""
    units = torch.zeros(n, len(some), dtype=torch.float64, device=some.device)
    units[some, torch.arange(len(some), device=some.device)] = 1.0
    return units


def _without(y: Tensor, a: Tensor, some: Tensor, inverse: Tensor) -> Tensor:
    """What the others predict at some rows, whose diagonal of G⁻¹ is `inverse`; NaN elsewhere."""
    others = torch.full_like(y, torch.nan)
    others[some] = y[some] - a[some] / inverse[:, None]
    return others
