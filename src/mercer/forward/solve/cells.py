"""The exact solution within the cells of a partition, in a time that grows linearly with the number of rows."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from mercer.data import TensorRows
from mercer.forward.absorb import Block
from mercer.forward.learners import Learner
from mercer.forward.problem import Problem
from mercer.forward.span import Functions
from mercer.kernels.partitioned import Partitioned, rows_by_cell
from mercer.parts import component
from mercer.selection.parallel import run_parallel
from mercer.selection.ridge import dual_coefficients


@component
class ExactInCells(Learner):
    """All rows of positive weight as one learner of a partitioned kernel, in one step."""

    resumable: ClassVar[bool] = False  # one step, which a resumed fit repeats

    def next(self, block: Block, step: int, rng: np.random.Generator) -> Functions | None:
        problem = block.problem
        index = problem.candidates()
        if len(index) == 0 or step > 0:
            return None
        A = ridge_in_cells(problem, index)
        values = problem.y.to(torch.float64, copy=True)
        values[index] -= (problem.lam / problem.weight[index].double())[:, None] * A
        others = (problem.weight <= 0).nonzero()[:, 0]  # validation rows
        if len(others):
            K = problem.subset(others).matrix(problem.basis(index))
            values[others] = K.product(A).double()
        return Functions(index, A, values.to(problem.plan.dtype).T.contiguous())


def ridge_in_cells(problem: Problem, index: Tensor) -> Tensor:
    """Dual coefficients (m × p, float64) of rows `index`: kernel ridge regression within each cell.

    A cell whose kernel matrix is singular by rounding has none.
    """
    kernel, rows = problem.kernel, problem.rows
    assert isinstance(kernel, Partitioned)
    assert isinstance(rows, TensorRows)
    A = torch.zeros(len(index), problem.n_outputs, dtype=torch.float64, device=index.device)

    def solve(places: Tensor) -> None:
        here = index[places]
        X = rows.X[here]
        found = dual_coefficients(kernel.kernel(X, X), problem.y[here], problem.weight[here], problem.lam)
        if found is not None:
            A[places] = found.double()

    cells = rows_by_cell(kernel.cells.of(rows.X[index]))
    run_parallel([partial(solve, places) for _, places in cells], problem.plan.device)
    return A
