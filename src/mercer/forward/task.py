"""What is decided before the first step: the table and its codings, the rows to watch, the problem to solve."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.base.calibration import cross_fitted, fit_calibration
from mercer.base.intervals import CalibrationRows, Intervals
from mercer.data import ArrayRows, Runs, Shard, SparseRows
from mercer.data.shard import even_run
from mercer.engine import Plan
from mercer.forward.expansion import Expansion, StagedExpansion
from mercer.forward.held_out import HeldOutPredictions, rounding_errors, rounding_matters
from mercer.forward.kernel_metric import metric_matrix, sensitivity
from mercer.forward.loop import ForwardFit
from mercer.forward.model_selection import KernelMember, Selection, Unspecified, problem_of
from mercer.forward.path import ExpansionPath, FittedExpansion
from mercer.forward.problem import Problem
from mercer.forward.relevance import background_rows, effect_shares
from mercer.forward.stopping import joined
from mercer.kernels import Kernel
from mercer.kernels.sparse_rows import SparseRowKernel
from mercer.losses import Logistic, Loss, Softmax
from mercer.parts import require
from mercer.preprocessing.read import TableData, read_held_out
from mercer.preprocessing.targets import ClassTargets, clip_outliers
from mercer.progress import report_step
from mercer.stop_reason import StopReason

#: Rows held out where nothing is said: a tenth, and no more than this, or than a fiftieth of very many.
HELD_OUT_ROWS, HELD_OUT_SHARE, HELD_OUT_MOST = 2000, 0.02, 20_000
#: Rows whose quartiles tell how far out targets are.
REACH_ROWS = 10_000
#: The mean of weights up to which sums of them, times squares of targets, fit into single precision.
LARGEST_WEIGHT = 1e25
#: Numbers that calibration rows have chosen: a kernel, its length-scale, the penalty, and the calibration itself.
CHOSEN = 4
#: Rows below which probabilities are not judged.
JUDGING_ROWS = 20


@dataclass(frozen=True)
class Task:
    """A checked table with coded targets, the selected members, and rows held out for validation."""

    data: TableData
    targets: Any
    Y: np.ndarray
    plan: Plan
    loss: Loss
    selection: Selection
    held_out: Tensor | None
    pairwise: bool
    left_open: Unspecified
    checkpoint: Any = None  # the checkpoint that follows this fit, if any
    full_table: TableData | None = None  # the table of which `data` are some rows

    @property
    def single(self) -> np.ndarray:
        """Coded targets of single rows, where `Y` may hold means of several; given validation rows come last."""
        own = self.targets.encode(self.data.y)
        return np.concatenate([own, self.Y[len(own) :]])

    def problem(self, member: KernelMember) -> Problem:
        """What a member minimises."""
        return problem_of(member, self.data, self.Y, self.plan, self.loss, self.left_open, pairwise=self.pairwise)


@dataclass(frozen=True)
class FittedMember:
    """A member, or a stage of one, after its last step: the fit, the weights after any step, the model kept, its end.

    `held_out` are rows, values and weights from which probabilities are calibrated and intervals made. A stage begins
    after the `before` steps of those it builds on.
    """

    member: KernelMember
    fit: ForwardFit
    path: ExpansionPath
    final: FittedExpansion
    n_steps: int
    why: StopReason
    held_out: HeldOutPredictions
    before: int = 0


def fitted(task: Task, grown: list[FittedMember]) -> dict[str, Any]:
    """What all forward models keep: expansions, what users look at first in the user's units, and the history."""
    data, first = task.data, grown[0]
    members = [one.member for one in grown]
    fine = task.left_open.dtype and _rounding_shows(task, grown)
    expansions = tuple(_expansion(one, "float64" if fine else _dtype(one.fit.problem)) for one in grown)
    index, final = first.final.index.cpu().numpy(), first.final
    history = joined([one.fit.history for one in grown if one.member.place == first.member.place])
    if isinstance(data.rows, SparseRows):
        rows = data.rows.rows_of(index)
    else:
        rows = members[0].inputs.decode(final.basis) if final.moved else data.rows.fetch(index).cpu().numpy()
    classes = isinstance(task.targets, ClassTargets)
    return {
        **data.columns(),
        **final.kept,
        "classes_": task.targets.classes if classes else None,
        "calibration_": calibrated(task, grown) if classes else None,
        "intervals_": None if classes else residual_intervals(task, grown),
        "targets_": task.targets,
        "inputs_": members[0].inputs,
        "expansions_": expansions,
        "basis_": rows,
        "basis_indices_": data.original_indices(index),
        "dual_coef_": expansions[0].weights,
        "kernel_": expansions[0].kernel,
        "background_": None if _without_columns(task) else background_rows(data),
        "metric_": _metric(expansions[0], data.rows.n_columns),
        "relevance_": _relevance(task, expansions),
        "regularization_": final.lam,
        "dtype_": expansions[0].dtype,
        "tuning_seconds_": task.selection.seconds,
        "tuning_report_": [*task.selection.report, *(judged(task, grown) if classes else ())],
        "objective_path_": np.array(history.objective),
        "history_": history.as_arrays(),
        "n_steps_": max(one.before + one.n_steps for one in grown),
        "stop_reason_": StopReason.joined(one.why for one in grown),
        "_stages": [_stages(one, expansion) for one, expansion in zip(grown, expansions, strict=True)],
    }


def _dtype(problem: Problem) -> str:
    return str(problem.plan.dtype).removeprefix("torch.")


def _rounding_shows(task: Task, grown: list[FittedMember]) -> bool:
    """Whether predictions in the precision of the fit would be visibly worse than in float64."""
    coarse = [one for one in grown if one.fit.problem.plan.dtype == torch.float32]
    held_out = ensemble_predictions(grown)
    if not coarse or not len(held_out.weight):
        return False

    def measured() -> bool:
        changes = [rounding_errors(one.final, one.held_out, one.fit.problem.plan, one.member.share) for one in coarse]
        return rounding_matters(changes, held_out.targets - held_out.values, held_out.weight)

    return task.data.shard.group.first(measured)


def _expansion(one: FittedMember, dtype: str) -> Expansion:
    weights = one.member.share * one.final.weights.double().cpu().numpy()
    kernel, basis = _kept(one.final.kernel, one.final.basis.double().cpu().numpy())
    return Expansion(one.member.inputs, kernel, basis, weights, dtype)


def _metric(first: Expansion, n_inputs: int) -> np.ndarray | None:
    """The metric of the first kernel; None where it is a function, precomputed or one of products of sparse rows."""
    falls = sensitivity(first.kernel, n_inputs)
    return None if falls is None else metric_matrix(first.inputs.transform, falls)


def _relevance(task: Task, expansions: tuple[Expansion, ...]) -> np.ndarray | None:
    """The effect of each column on predictions; None where columns are kernel values, or far too many (sparse)."""
    return None if _without_columns(task) else effect_shares(expansions, task.data, task.plan)


def _without_columns(task: Task) -> bool:
    return task.pairwise or isinstance(task.data.rows, SparseRows)


def _kept(kernel: Kernel, basis: np.ndarray) -> tuple[Kernel, np.ndarray]:
    """Kernel and basis vectors as a model keeps them: of a sparse table no other rows."""
    return kernel.restrict(basis) if isinstance(kernel, SparseRowKernel) else (kernel, basis)


def _stages(one: FittedMember, expansion: Expansion) -> StagedExpansion:
    problem, rows = one.fit.problem, expansion.basis
    if one.final.moved or not np.array_equal(one.final.index.cpu().numpy(), one.path.rows):  # not those of the path
        rows = problem.rows.fetch(one.path.rows).double().cpu().numpy() if len(one.path.rows) else np.empty((0, 0))
    if isinstance(problem.kernel, SparseRowKernel):
        rows = one.path.rows[:, None].astype(np.float64)
    kernel, rows = _kept(problem.kernel, rows)
    at = Expansion(one.member.inputs, kernel, rows, np.empty(0), expansion.dtype)
    return StagedExpansion(at, one.path, one.member.share, one.n_steps, one.before)


def ensemble_predictions(grown: list[FittedMember]) -> HeldOutPredictions:
    """What all members together say of rows that none of them learned from, wherever there are such."""
    total = sum(one.member.share * one.held_out.values for one in grown)
    return replace(grown[0].held_out, values=np.asarray(total))


def calibrated(task: Task, grown: list[FittedMember]) -> Any:
    """From decision values to probabilities."""
    report_step("calibration")
    held_out = ensemble_predictions(grown)
    return fit_calibration(task.targets, held_out.values, held_out.targets, held_out.weight, CHOSEN)


def judged(task: Task, grown: list[FittedMember]) -> list[dict[str, Any]]:
    """The model's probabilities on rows it did not learn from, as the last line of the report; none without such."""
    held_out, began = ensemble_predictions(grown), time.perf_counter()
    if len(held_out.targets) < JUDGING_ROWS:
        return []
    loss, error = cross_fitted(task.targets, held_out.values, held_out.targets, held_out.weight)
    line = {"candidate": "the model", "rows": len(held_out.targets), "loss": loss, "calibration_error": error}
    return [line | {"seconds": time.perf_counter() - began}]


def residual_intervals(task: Task, grown: list[FittedMember]) -> Intervals:
    """From predictions to intervals, wider where residuals are larger: in any column, or near rows of the kernel."""
    held_out = ensemble_predictions(grown)
    residuals = held_out.targets - held_out.values
    if task.pairwise or isinstance(task.data.rows, SparseRows):
        return Intervals.of(residuals, held_out.weight)
    shown = CalibrationRows.of(held_out.rows, task.data.rows, held_out.index)
    return Intervals.fitted(residuals, 1.0, held_out.values, held_out.weight, shown)


def resolve_loss(choice: Any, n_outputs: int, *, classes: bool) -> Loss:
    """The loss as a part; the logistic one in its form for two classes or for more."""
    loss = Loss.resolve(choice, "loss")
    for_numbers = "'squared' or 'pinball' for regression: the others are for classes"
    require(classes or loss.for_numbers, "loss", for_numbers, choice)
    require(not classes or loss.quadratic or not loss.for_numbers, "loss", "one for classes", choice)
    if isinstance(loss, Logistic | Softmax):
        return Softmax() if n_outputs > 1 else Logistic()
    return loss


def clip_far_targets(data: TableData, loss: Loss) -> np.ndarray:
    """Targets as scales and kernels are found by: all of them, or, where a loss is robust, none from far out."""
    if loss.quadratic or not loss.for_numbers or data.y.dtype.kind != "f":
        return data.y
    return clip_outliers(data.y, data.pick(data.y, data.spaced(REACH_ROWS)))


def normalise_weights(data: TableData, noise: float, penalty: float | str) -> TableData:
    """The table with weights in the unit of a penalty: where that is free only their ratios matter."""
    mean = data.shard.total(data.weight.sum()) / data.n_alive
    if isinstance(penalty, str):
        return replace(data, weight=data.weight * (noise / mean))
    require(mean <= LARGEST_WEIGHT, "the mean of sample_weight", f"at most {LARGEST_WEIGHT:g}", mean)
    return data


def selection_targets(data: TableData, Y: np.ndarray, targets: Any, loss: Loss) -> np.ndarray:
    """Coded targets for the selection: `Y`, with far targets clipped for robust losses; validation rows come last."""
    own = clip_far_targets(data, loss)
    if own is data.y:
        return Y
    coded, shard = targets.encode(own), data.shard
    sums = shard.group.sum(torch.from_numpy(np.append(data.weight @ coded, data.weight.sum()))).numpy()
    return np.concatenate([coded, Y[len(own) :]]) - sums[:-1] / sums[-1]


def around_constant(targets: Any, data: TableData, loss: Loss) -> Any:
    """How numbers are coded, with the loss's own best constant in place of their mean: a model of nothing says that."""
    if loss.quadratic or isinstance(targets, ClassTargets):
        return targets
    some = data.spaced(REACH_ROWS)
    Y, weight = (torch.from_numpy(data.pick(part, some)) for part in (targets.encode(data.y), data.weight))
    constant = loss.constant(Y, weight / weight.max()).numpy()
    return replace(targets, mean=targets.mean + targets.scale * constant)


def append_validation_rows(
    data: TableData, Y: np.ndarray, X_val: np.ndarray, Y_val: np.ndarray
) -> tuple[TableData, np.ndarray, Tensor]:
    """Rows data for watching stand at the end, with weight zero; each counts as much as a training row on average."""
    assert isinstance(data.rows, ArrayRows)
    n, shard = data.rows.n_rows, data.shard
    if isinstance(shard, Runs):  # these rows are dealt out as well
        start, stop = even_run(shard.group, len(X_val))
        X_val, Y_val, shard = X_val[start:stop], Y_val[start:stop], shard.append(len(X_val))
    rows = ArrayRows(np.concatenate([data.rows.X, X_val]), shard)
    mean = data.shard.total(data.weight.sum()) / data.n_alive
    weight, watched = (np.append(data.weight, np.full(len(X_val), value)) for value in (0.0, mean))
    data = replace(data, rows=rows, weight=weight, validation_weight=watched)
    return data, np.concatenate([Y, Y_val]), torch.arange(n, n + len(X_val))


def hold_out(
    data: TableData, Y: np.ndarray, share: float | str, rng: np.random.Generator, *, classes: bool
) -> tuple[TableData, Tensor]:
    """A share of the rows gets weight zero, to be watched; of classes, an equal share of each.

    What comes back are their places on this process.
    """
    alive, shard = torch.as_tensor(data.weight > 0), data.shard
    total = shard.count(alive)
    require(total >= 4, "the number of rows", "at least 4 to hold some out for validation", total)
    most = min(max(HELD_OUT_ROWS, HELD_OUT_SHARE * total), HELD_OUT_MOST)
    wanted = min(total / 10, most) if isinstance(share, str) else share * total
    n = min(max(round(wanted), 1), total - 2)
    groups = _by_class(alive, Y) if classes else [alive]
    held = torch.cat(_shares(shard, groups, n, rng)) if classes else shard.draw(alive, n, rng)
    places = np.sort(np.asarray(shard.local(held)[1]))
    weight = data.weight.copy()
    weight[places] = 0.0
    return replace(data.with_weights(weight), validation_weight=data.weight), torch.as_tensor(places)


def _by_class(alive: Tensor, Y: np.ndarray) -> list[Tensor]:
    """A mask of the rows of each class."""
    label = torch.as_tensor((Y[:, 0] > 0).astype(int) if Y.shape[1] == 1 else Y.argmax(1))
    return [alive & (label == c) for c in range(max(Y.shape[1], 2))]


def _shares(shard: Shard, groups: list[Tensor], n: int, rng: np.random.Generator) -> list[Tensor]:
    """About `n` rows at random, each class in its share; one row of every class stays."""
    sizes = np.array([shard.count(mask) for mask in groups])
    ends = np.cumsum(sizes)
    evenly = np.searchsorted(ends, np.linspace(0, ends[-1], n, endpoint=False).astype(int), side="right")
    wanted = np.minimum(np.bincount(evenly, minlength=len(sizes)), np.maximum(sizes - 1, 0))
    if not wanted.any():
        wanted[sizes.argmax()] = 1
    return [shard.draw(mask, int(k), rng) for mask, k in zip(groups, wanted, strict=True)]


def validation_split(
    face: Any,
    data: TableData,
    targets: Any,
    Y: np.ndarray,
    X_val: Any,
    y_val: Any,
    watches: bool,
    rng: np.random.Generator,
) -> tuple[TableData, np.ndarray, Tensor | None]:
    """The rows to watch, if any: those data, or a share of the training rows."""
    if X_val is not None:
        X_val, y_val = read_held_out(face, data, X_val, y_val, numeric=not face._classes)
        if face._classes:
            targets.require_known(y_val, "y_val")
        return append_validation_rows(data, Y, X_val, targets.encode(y_val))
    share = face.validation_fraction
    if share is None or (isinstance(share, str) and not watches):
        return data, Y, None
    data, held = hold_out(data, Y, share, rng, classes=face._classes)
    return data, Y, held
