"""A last stage that is exact within cells of the inputs, fitted to the residuals of a model of all rows.

Boosting learns what varies over long distances from few basis vectors. Variation over short distances needs many, and
rows far apart tell nothing of one another there. So the residuals are fitted cell by cell, with all rows of a cell as
basis vectors (`mercer.kernels.partitioned`). Held-out rows of some cells choose the length-scale, and validation rows
tell what the stage gains. Liquid SVMs (Steinwart and Thomann 2017) and local Gaussian processes (Snelson and Ghahramani
2007, PIC) divide large tables in the same way.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from mercer.clock import Clock
from mercer.data import TensorRows
from mercer.forward.absorb import Block
from mercer.forward.loop import ForwardFit, Learner
from mercer.forward.problem import Problem
from mercer.forward.span import Functions
from mercer.kernels import Kernel
from mercer.kernels.partitioned import Cells, Partitioned, rows_by_cell
from mercer.parts import component
from mercer.progress import report_step
from mercer.selection.more_rows import scaled
from mercer.selection.score import dual_coefficients, mean_and_variance
from mercer.selection.search import run_on_one_core, run_parallel

#: The fewest cells that are worth a stage, and rows of a cell at most, in units of those wanted: duplicate rows stay
#: together.
FEWEST_CELLS, LARGEST_CELL = 3, 3
#: Rows whose cells compare length-scales, and the share of them that is held out beside validation rows, which are few
#: in these cells.
TRIED_ROWS, HELD_OUT = 40_000, 0.1


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


def local_stage(
    problem: Problem, f: Tensor, validation: Tensor, cell_rows: int, min_gain: float, clock: Clock, until: float
) -> ForwardFit | None:
    """The stage after its only step, on the residuals of values `f`, with at most `cell_rows` rows in a cell.

    None if rows are few, or not in the memory of one process, if time does not suffice, or if the validation loss does
    not fall by the share `min_gain` and more than chance explains.
    """
    rows, index = problem.rows, problem.candidates()
    if not isinstance(rows, TensorRows) or rows.shard.divided:
        return None
    in_memory = problem.plan.square_rows()
    cell_rows = min(cell_rows, in_memory)
    if len(index) < FEWEST_CELLS * cell_rows:
        return None
    report_step("local stage")
    cells = run_on_one_core(lambda: Cells.split(rows.X[index], cell_rows, np.random.default_rng(0)))
    cell = cells.of(rows.X)
    if int(torch.bincount(cell[index]).max()) > min(LARGEST_CELL * cell_rows, in_memory):
        return None
    n_tried = max(round(TRIED_ROWS * cells.n_cells / len(index)), 1)
    tried = torch.as_tensor(np.random.default_rng(1).permutation(cells.n_cells)[:n_tried], device=cell.device)
    part = torch.isin(cell, tried).nonzero()[:, 0]
    residuals = problem.residual_problem(f, problem.kernel)
    n_times = len(rows.X) / len(part)

    def expired(seconds: float) -> bool:  # these are what one trial takes
        return clock.expired(needing=seconds * n_times, until=until)

    kernel, seconds = _best_length(residuals.subset(part), torch.isin(part, validation), cells, min_gain, expired)
    if kernel is None or expired(seconds):
        return None
    fit = _fitted(replace(residuals, kernel=Partitioned(kernel, cells)), validation)
    return fit if _gains(fit, residuals, min_gain) else None


def _gains(fit: ForwardFit, residuals: Problem, min_gain: float) -> bool:
    """Whether the validation loss falls by the share `min_gain`, and by more than the standard error of its fall."""
    rows = fit.validation
    assert rows is not None
    before, after = _losses(residuals, rows, torch.zeros_like(fit.f)), _losses(residuals, rows, fit.f)
    fall, variance = mean_and_variance(before - after, residuals.validation_weight(rows))
    return bool(fall > variance.sqrt()) and float(fall) > min_gain * _mean(residuals, rows, before)


def _losses(residuals: Problem, rows: Tensor, f: Tensor) -> Tensor:
    """The loss of each of some rows for values `f` of the stage at all rows, in the mean over outputs."""
    return residuals.loss.value(residuals.y[rows], f[rows]).double().mean(1)


def _mean(residuals: Problem, rows: Tensor, losses: Tensor) -> float:
    return float(residuals.validation_mean(losses, rows)) if len(rows) else 0.0


def _best_length(
    problem: Problem, is_validation: Tensor, cells: Cells, min_gain: float, expired: Callable[[float], bool]
) -> tuple[Kernel | None, float]:
    """The kernel with its length-scale halved while the loss of held-out rows falls, and seconds of the shortest fit.

    None if no loss is below that of the residuals by the share `min_gain`. Halving ends early where time does not allow
    a fit of all cells after it.
    """
    problem, rows = _with_held_out_rows(problem, is_validation)
    best, factor, losses, seconds = None, 1.0, [np.inf], []
    least = (1 - min_gain) * _mean(problem, rows, _losses(problem, rows, torch.zeros_like(problem.y)))
    while len(rows):
        began, kernel = time.perf_counter(), scaled(problem.kernel, factor)
        fit = _fitted(replace(problem, kernel=Partitioned(kernel, cells)), rows)
        losses.append(fit.history.validation[-1])
        seconds.append(time.perf_counter() - began)  # the first one may have to compile
        if losses[-1] >= losses[-2]:
            break
        best = kernel if losses[-1] < least else None
        factor /= 2
        if expired(min(seconds)):
            break
    return best, min(seconds, default=0.0)


def _with_held_out_rows(problem: Problem, is_validation: Tensor) -> tuple[Problem, Tensor]:
    """The problem with further rows held out, and the places of all rows held out.

    Rows that stay together are not parted.
    """
    held_out = is_validation
    if problem.sample.row_groups is None:
        drawn = np.random.default_rng(2).random(len(held_out)) < HELD_OUT
        held_out = held_out | torch.as_tensor(drawn, device=held_out.device) & (problem.weight > 0)
    fitted = torch.where(held_out, torch.zeros_like(problem.weight), problem.weight)
    return problem.with_sample(weight=fitted, validation_weight=problem.row_weights()), held_out.nonzero()[:, 0]


def _fitted(problem: Problem, validation: Tensor) -> ForwardFit:
    """The fit of a partitioned kernel after its only step."""
    fit = ForwardFit(problem, ExactInCells(), np.random.default_rng(0), block_length=1, validation=validation)
    fit.step()
    return fit
