"""Fitted attributes of forward models: expansions, calibration, intervals, history and report."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from mercer.base.calibration import cross_fitted, fit_label_links
from mercer.base.classifier import fit_probabilities
from mercer.base.intervals import CalibrationRows, Intervals
from mercer.clock import StopReason
from mercer.data import SparseRows
from mercer.data.row_groups import RowGroups
from mercer.forward.expansion import Expansion, Objective, StagedExpansion
from mercer.forward.held_out import HeldOutPredictions, rounding_errors, rounding_matters
from mercer.forward.kernel_metric import metric_matrix, sensitivity
from mercer.forward.relevance import background_rows, effect_shares
from mercer.forward.stopping import joined
from mercer.forward.task import FittedMember, Task, ensemble_predictions
from mercer.kernels import Kernel
from mercer.kernels.sparse_rows import SparseRowKernel
from mercer.preprocessing.inputs import LabelTargets, clip_outliers
from mercer.preprocessing.read import TableData
from mercer.progress import report_step

#: Parameters chosen on the calibration rows: kernel, length-scale, penalty, and the calibration itself.
N_CHOSEN = 4
#: Basis vectors from which on float32 predictions save time that is worth having.
MANY_VECTORS = 1000
#: The fewest held-out rows for which the report has a calibration error.
REPORT_ROWS = 20


def fitted_attributes(task: Task, parts: list[FittedMember]) -> dict[str, Any]:
    """Every fitted attribute of a model of these ensemble members and stages."""
    data, first = task.data, parts[0]
    expansions = tuple(_expansion(*pair) for pair in zip(parts, _dtypes(task, parts), strict=True))
    index, final = first.final.index.cpu().numpy(), first.final
    history = joined([part.fit.history for part in parts if part.member.place == first.member.place])
    classes, labels = task.has_classes, isinstance(task.targets, LabelTargets)
    return {
        **data.columns(),
        **final.kept,
        "classes_": task.targets.classes if classes or labels else None,
        **(_probabilities(task, parts) if classes or labels else {}),
        "intervals_": None if classes or labels else _intervals(task, parts),
        "targets_": task.targets,
        "inputs_": first.member.inputs,
        "expansions_": expansions,
        "basis_": _basis_rows(task, first),
        "basis_indices_": data.original_indices(index),
        "dual_coef_": expansions[0].weights,
        "kernel_": expansions[0].kernel,
        "background_": None if _without_columns(task) else background_rows(data),
        "metric_": _metric(expansions[0], data.rows.n_columns),
        "relevance_": None if _without_columns(task) else effect_shares(expansions, data, task.plan),
        "regularization_": final.lam,
        "dtype_": expansions[0].dtype,
        "tuning_seconds_": task.selection.seconds,
        "tuning_report_": [*task.selection.report, *(_calibration_line(task, parts) if classes else ())],
        "objective_path_": np.array(history.objective),
        "history_": history.as_arrays(),
        "n_steps_": max(part.before + part.n_steps for part in parts),
        "stop_reason_": StopReason.joined(part.stop_reason for part in parts),
        "_objectives": tuple(_objective(part, data) for part in parts),
        "_stages": [_staged(part, expansion) for part, expansion in zip(parts, expansions, strict=True)],
    }


def _dtypes(task: Task, parts: list[FittedMember]) -> list[str]:
    """The precision of each member's predictions: that of its fit, unless `dtype` is open.

    Members that were fitted in float32, and all members of models of `MANY_VECTORS`, predict in float32 if rounding
    does not show in the errors of held-out rows, else all predict in float64. Processes that share a table keep
    float64, since float32 sums would follow the placement of rows. So do models with limits of their inputs: these are
    monotone, and rounding is not.
    """
    if task.free_dtype and parts[0].member.inputs.limits is not None:
        return ["float64"] * len(parts)
    dtypes = [part.fit.problem.plan.dtype for part in parts]
    many = sum(len(part.final.index) for part in parts) >= MANY_VECTORS
    many = many and task.data.shard.group.size == 1 and not _without_columns(task)
    in_float32 = [many or dtype == torch.float32 for dtype in dtypes]
    held_out = ensemble_predictions(parts)
    if task.free_dtype and any(in_float32) and len(held_out.weight):

        def rounding_shows() -> bool:
            errors = [
                rounding_errors(part.final, part.held_out, part.fit.problem.plan, part.member.share)
                for part, rounded in zip(parts, in_float32, strict=True)
                if rounded
            ]
            residuals = _residuals(task, held_out)
            if task.loss.robust:  # gross errors would hide rounding
                residuals = clip_outliers(residuals, residuals)
            return rounding_matters(errors, residuals, held_out.weight)

        if task.data.shard.group.first(rounding_shows):
            dtypes = [torch.float64 for _ in parts]
        else:
            dtypes = [torch.float32 if rounded else torch.float64 for rounded in in_float32]
    return [str(dtype).removeprefix("torch.") for dtype in dtypes]


def _expansion(part: FittedMember, dtype: str) -> Expansion:
    weights = part.member.share * part.final.weights.double().cpu().numpy()
    kernel, basis = _restricted(part.final.kernel, part.final.basis.double().cpu().numpy())
    return Expansion(part.member.inputs, kernel, basis, weights, dtype)


def _objective(part: FittedMember, data: TableData) -> Objective:
    problem, unit = part.fit.problem, data.weight_unit
    weight = problem.sample.total_weight
    return Objective(problem.loss, float(part.final.lam), part.member.share, unit, weight, unit * data.row_weight)


def _restricted(kernel: Kernel, basis: np.ndarray) -> tuple[Kernel, np.ndarray]:
    """Kernel and basis vectors as a model keeps them; a kernel of sparse rows keeps its basis rows only."""
    return kernel.restrict(basis) if isinstance(kernel, SparseRowKernel) else (kernel, basis)


def _staged(part: FittedMember, expansion: Expansion) -> StagedExpansion:
    """The expansion after any number of steps."""
    problem, rows, path = part.fit.problem, expansion.basis, part.path
    if path.basis is not None:
        rows = path.basis
    elif part.final.moved or not np.array_equal(part.final.index.cpu().numpy(), path.rows):  # not those of the path
        rows = problem.rows.fetch(path.rows).double().cpu().numpy() if len(path.rows) else np.empty((0, 0))
    if isinstance(problem.kernel, SparseRowKernel):
        rows = path.rows[:, None].astype(np.float64)
    kernel, rows = _restricted(problem.kernel, rows)
    at = Expansion(part.member.inputs, kernel, rows, np.empty(0), expansion.dtype)
    return StagedExpansion(at, path, part.member.share, part.n_steps, part.before)


def _basis_rows(task: Task, first: FittedMember) -> Any:
    """Basis vectors of the first expansion in the units of the table."""
    rows, final = task.data.rows, first.final
    index = final.index.cpu().numpy()
    if isinstance(rows, SparseRows):
        return rows.rows_of(index)
    return first.member.inputs.decode(final.basis) if final.moved else rows.fetch(index).cpu().numpy()


def _metric(first: Expansion, n_inputs: int) -> np.ndarray | None:
    """The metric of the first kernel; None if it is a function, precomputed or a kernel of sparse rows."""
    falls = sensitivity(first.kernel, n_inputs)
    return None if falls is None else metric_matrix(first.inputs.transform, falls)


def _without_columns(task: Task) -> bool:
    """Whether columns are kernel values, or too many to describe one by one."""
    return task.pairwise or isinstance(task.data.rows, SparseRows)


def _probabilities(task: Task, parts: list[FittedMember]) -> dict[str, Any]:
    """The map from decision values to probabilities, and scores of prediction sets."""
    report_step("calibration")
    held_out = ensemble_predictions(parts)
    values, targets, weight = held_out.values, held_out.targets, held_out.weight
    if isinstance(task.targets, LabelTargets):
        return {"calibration_": fit_label_links(task.targets, values, targets, weight, N_CHOSEN)}
    likelihood, together = task.loss.likelihood, _row_groups(task, held_out)
    return fit_probabilities(task.targets, values, targets, weight, N_CHOSEN, log_odds=likelihood, row_groups=together)


def _row_groups(task: Task, held_out: HeldOutPredictions) -> RowGroups | None:
    """The groups of held-out rows."""
    together = task.data.row_groups
    return None if together is None else together.take(held_out.index.cpu().numpy())


def _calibration_line(task: Task, parts: list[FittedMember]) -> list[dict[str, Any]]:
    """The last line of the report: log loss and calibration error on held-out rows; none if they are few."""
    held_out, began = ensemble_predictions(parts), time.perf_counter()
    if len(held_out.targets) < REPORT_ROWS:
        return []
    values, targets, weight = held_out.values, held_out.targets, held_out.weight
    together = _row_groups(task, held_out)
    halves = None if together is None else together.folds(2) == 0
    loss, error = cross_fitted(task.targets, values, targets, weight, halves, log_odds=task.loss.likelihood)
    line = {"candidate": "the model", "rows": len(held_out.targets), "loss": loss, "calibration_error": error}
    return [line | {"seconds": time.perf_counter() - began}]


def _intervals(task: Task, parts: list[FittedMember]) -> Intervals:
    """Prediction intervals, wider where held-out residuals are larger: along a column, or near in the kernel."""
    held_out = ensemble_predictions(parts)
    residuals, scale = _residuals(task, held_out), task.targets.deviations(held_out.values)
    if _without_columns(task):
        return Intervals.of(residuals / scale, held_out.weight, None, _row_groups(task, held_out))
    rows = CalibrationRows.of(held_out.rows, task.data, held_out.index)
    return Intervals.fitted(residuals, scale, held_out.values, held_out.weight, rows)


def _residuals(task: Task, held_out: HeldOutPredictions) -> np.ndarray:
    """Coded targets of held-out rows less their predictions, n × p."""
    if task.has_classes:
        return held_out.targets - held_out.values
    return np.asarray(task.targets.residuals(held_out.targets, held_out.values))
