"""Learners that need no steps: all rows as basis vectors (kernel ridge), or random ones, solved at once.

Where n × n fits the device nothing cheaper beats the exact solution. As a learner it is the paper's
ensemble at its largest: S = N, in one step.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mercer.component import part
from mercer.forward.block import Block
from mercer.forward.learners import Functions, Learner
from mercer.forward.problem import Problem
from mercer.forward.solve import sparse_ridge
from mercer.linalg import cholesky


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
    r"""Weights a = (K + λD⁻¹)⁻¹y of all rows `index` (n × p), D the rows' weights, by a float64 factor.

    K is formed in float64 too: it is as ill-conditioned as kernel matrices come, and λ may be small.
    """
    X = problem.rows.take(index).to(problem.plan.device, torch.float64)
    K = problem.kernel(X, X)
    weight = problem.weight[index].double()
    K.diagonal().add_(problem.lam / weight)
    factor, _ = cholesky(K)
    return torch.cholesky_solve(problem.y[index].double(), factor)
