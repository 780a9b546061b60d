"""Learners that need no steps: all rows as basis vectors (kernel ridge), or random ones, solved at once.

Where n × n fits the device nothing cheaper beats the exact solution. As a learner it is the paper's
ensemble at its largest: S = N, in one step.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from mercer.data import TensorRows
from mercer.engine import KernelMatrix
from mercer.forward.absorb import Block
from mercer.forward.learners import Learner
from mercer.forward.problem import Problem
from mercer.forward.solve.ridge import sparse_ridge
from mercer.forward.span import Functions
from mercer.linalg import TiledCholesky, cholesky, conjugate_gradients
from mercer.parts import part


@part
class AllRows(Learner):
    """One learner that holds all rows of positive weight; it has nothing more to propose after that."""

    def next(self, block: Block, step: int, rng: np.random.Generator) -> Functions | None:
        index = block.open_rows()
        if len(index) == 0 or step > 0:
            return None
        A = kernel_ridge(block.problem, index)
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
    r"""Weights a = (K + λD⁻¹)⁻¹y of all rows `index` (n × p), D the rows' weights, to the digits of float64.

    K is formed in float64 too: it is as ill-conditioned as kernel matrices come, and λ may be small. Where that takes
    too much memory, a float32 factor made by panels guides conjugate gradients whose tiles are made again each time.
    """
    n, plan = len(index), replace(problem.plan, dtype=torch.float64)
    X, y = problem.rows.take(index).to(plan.device, torch.float64), problem.y[index].double()
    ridge = problem.lam / problem.weight[index].double()
    if problem.plan.holds_square(n):
        K = problem.kernel(X, X)
        K.diagonal().add_(ridge)
        return torch.cholesky_solve(y, cholesky(K)[0])

    def panel(start: int, stop: int) -> Tensor:
        made = problem.kernel(X[start:], X[start:stop])
        made[: stop - start].diagonal().add_(ridge[start:stop])
        return made

    factor, K_nn = TiledCholesky(n, panel), KernelMatrix(TensorRows(X), problem.kernel, X, plan)
    return conjugate_gradients(
        lambda v: K_nn.product(v) + ridge[:, None] * v, y, precondition=factor.solve, tol=1e-12, max_iter=50
    ).x
