"""The task of a fit: a checked table with coded targets and validation rows, and its fitted ensemble members."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.base.calibration import class_indices
from mercer.clock import Clock, StopReason
from mercer.data import ArrayRows, Runs, Shard
from mercer.data.shard import even_run
from mercer.engine import Plan
from mercer.engine.plan import SAMPLE_ROWS
from mercer.forward.held_out import HeldOutPredictions
from mercer.forward.loop import ForwardFit
from mercer.forward.model_selection import KernelMember, Selection, sample_of
from mercer.forward.path import ExpansionPath, FittedExpansion
from mercer.forward.problem import Problem
from mercer.losses import Loss, class_likelihood
from mercer.parts import require
from mercer.preprocessing.inputs import (
    ClassTargets,
    LabelTargets,
    PositiveTargets,
    RealTargets,
    Targets,
    clip_outliers,
    code_targets,
)
from mercer.preprocessing.read import TableData
from mercer.selection import precise

#: Rows from which the rounding of float32 tiles is estimated.
PRECISION_ROWS = 1000
#: The largest penalty, in units of all weights together: beyond it no digit of a function is left.
LARGEST_PENALTY = 1e10
#: The largest mean weight for which sums of weights times squared targets fit into float32.
LARGEST_WEIGHT = 1e25
#: The most validation rows by default, or the share of a very large table, and the most for any table.
HELD_OUT_ROWS, HELD_OUT_SHARE, HELD_OUT_MOST = 2000, 0.02, 20_000


@dataclass(frozen=True)
class Task:
    """A checked table with coded targets, the selected ensemble members, and validation rows."""

    data: TableData
    targets: Any
    Y: np.ndarray
    plan: Plan
    loss: Loss
    selection: Selection
    validation_rows: Tensor | None
    pairwise: bool
    free_dtype: bool  # whether the user left the precision of tiles open
    free_penalty: bool
    checkpoint: Any = None  # the checkpoint of this fit, if any
    full_table: TableData | None = None  # the table, if `data` is a sample of it

    @property
    def has_classes(self) -> bool:
        """Whether each row has one class; several labels are fitted as numbers."""
        return isinstance(self.targets, ClassTargets)

    @property
    def size(self) -> tuple[int, int, int]:
        """Rows that count, outputs and columns."""
        return self.data.n_alive, self.Y.shape[1], self.data.rows.n_columns

    @property
    def row_targets(self) -> np.ndarray:
        """Coded targets of single rows; `Y` has means of duplicates. Validation rows of the user come last."""
        coded = self.targets.encode(self.data.y)
        return np.concatenate([coded, self.Y[len(coded) :]])

    def with_likelihood(self) -> Task:
        """The same task with classes fitted by their log likelihood: codes ±1, logistic or softmax loss."""
        codes = np.sign(self.Y + self.targets.offset)
        targets = ClassTargets(self.targets.classes)
        return replace(self, Y=codes, targets=targets, loss=class_likelihood(codes.shape[1]))

    def with_targets(self, selection: Selection) -> Task:
        """The same task with the targets of a selection, if that has replaced gross errors."""
        return self if selection.targets is None else replace(self, Y=selection.targets)

    def problem(self, member: KernelMember) -> Problem:
        """The problem that a member minimises, in tiles whose rounding does not show (`precise`)."""
        sample = sample_of(self.data, self.Y, member.inputs, self.plan, pairwise=self.pairwise)
        part = sample.part(sample.spaced(PRECISION_ROWS))
        X = part.rows.take(np.arange(part.n_rows))
        n_alive, group = sample.n_alive, sample.rows.shard.group

        def precision() -> tuple[torch.dtype, float]:
            fine, lam = precise(
                self.plan, member.kernel, member.lam, X, part.Y, part.weight, n_alive,
                free_dtype=self.free_dtype, free_penalty=self.free_penalty,
            )  # fmt: skip
            return fine.dtype, float(lam)

        dtype, lam = group.first(precision)
        fine = replace(self.plan, dtype=dtype)
        if dtype != self.plan.dtype:
            sample = sample_of(self.data, self.Y, member.inputs, fine, pairwise=self.pairwise)
        largest = LARGEST_PENALTY * sample.total_weight
        return Problem(sample.in_tiles(fine), member.kernel, min(lam, largest), self.loss)


@dataclass(frozen=True)
class FittedMember:
    """An ensemble member, or a stage of one, after its last step.

    `path` has the weights after any step and `final` the model kept. `held_out` are predictions from which
    probabilities and intervals are calibrated. A stage begins after the `before` steps of the stages before it.
    """

    member: KernelMember
    fit: ForwardFit
    path: ExpansionPath
    final: FittedExpansion
    n_steps: int
    stop_reason: StopReason
    held_out: HeldOutPredictions
    before: int = 0


def ensemble_predictions(parts: list[FittedMember]) -> HeldOutPredictions:
    """Held-out predictions of all ensemble members and stages together."""
    total = sum(part.member.share * part.held_out.values for part in parts)
    return replace(parts[0].held_out, values=np.asarray(total))


def time_for_another(fit: ForwardFit, budget: Clock, until: float) -> bool:
    """Whether there is time for another exact solution; models of several steps end at the deadline."""
    return not budget.interrupted and (fit.learner.resumable or not budget.expired(needing=fit.seconds, until=until))


def rescale_shares(members: list[KernelMember], fitted_members: list[FittedMember]) -> list[FittedMember]:
    """Divide the shares of members that an interrupt or the time budget left out among the fitted ones."""
    places = {part.member.place for part in fitted_members}
    if len(places) >= len(members):
        return fitted_members
    factor = sum(member.share for member in members) / sum(members[place].share for place in places)
    return [replace(part, member=replace(part.member, share=factor * part.member.share)) for part in fitted_members]


def resolve_loss(choice: Any, n_outputs: int, *, classes: bool) -> Loss:
    """The loss as an object; the logistic loss in its form for two classes or for more."""
    loss = Loss.resolve(choice, "loss")
    for_numbers = "one for regression, such as 'squared' or 'poisson': this one is for classes"
    require(classes or loss.for_numbers, "loss", for_numbers, choice)
    require(not classes or loss.quadratic or not loss.for_numbers, "loss", "one for classes", choice)
    return class_likelihood(n_outputs) if loss.likelihood else loss


def clip_far_targets(data: TableData, loss: Loss) -> np.ndarray:
    """Targets for scaling and model selection: outliers are clipped if the loss is robust."""
    if loss.quadratic or not loss.for_numbers or loss.link == "log" or data.y.dtype.kind != "f":
        return data.y
    return clip_outliers(data.y, data.pick(data.y, data.spaced(SAMPLE_ROWS)))


def normalise_weights(data: TableData, noise: float, penalty: float | str) -> TableData:
    """The table with weights of mean `noise` if the penalty is "auto"; with a given penalty weights stay."""
    mean = data.shard.total(data.weight.sum()) / data.n_alive
    if isinstance(penalty, str):
        return replace(data, weight=data.weight * (noise / mean), weight_unit=noise / mean)
    require(mean <= LARGEST_WEIGHT, "the mean of sample_weight", f"at most {LARGEST_WEIGHT:g}", mean)
    return data


def selection_targets(data: TableData, Y: np.ndarray, targets: Any, loss: Loss) -> np.ndarray:
    """Coded targets for the selection by squared error; validation rows come last.

    They are `Y`, with far targets clipped for robust losses, or on a scale of constant variance for positive targets.
    """
    if isinstance(targets, PositiveTargets):
        stable = targets.stabilised(Y)
        return RealTargets.of(stable, data.weight, data.shard).encode(stable)
    clipped = clip_far_targets(data, loss)
    if clipped is data.y:
        return Y
    coded, shard = np.concatenate([targets.encode(clipped), Y[len(clipped) :]]), data.shard
    sums = shard.group.sum(torch.from_numpy(np.append(data.weight @ coded, data.weight.sum()))).numpy()
    return coded - sums[:-1] / sums[-1]


def coded_targets(data: TableData, loss: Loss, *, classes: bool, centred: bool) -> Targets:
    """Coding of the targets: numbers are centred and scaled, or positive with mean one; classes become ±1."""
    if not classes and loss.link == "log":
        return PositiveTargets.of_power(data.y, data.weight, loss.variance_power(), data.shard)
    y = clip_far_targets(data, loss)
    targets = code_targets(y, data.weight, classes=classes, centred=centred, shard=data.shard)
    if isinstance(targets, LabelTargets):
        require(loss.quadratic, "loss", "'squared' where rows have several labels", loss)
    found: Targets = around_constant(targets, data, loss)
    return found


def around_constant(targets: Any, data: TableData, loss: Loss) -> Any:
    """The coding of numbers, centred at the constant of least loss instead of the mean."""
    if loss.quadratic or isinstance(targets, ClassTargets):
        return targets
    rows = data.spaced(SAMPLE_ROWS)
    Y, weight = (torch.from_numpy(data.pick(values, rows)) for values in (targets.encode(data.y), data.weight))
    constant = loss.constant(Y, weight / weight.max()).numpy()
    return replace(targets, mean=targets.mean + targets.scale * constant)


def append_validation_rows(
    data: TableData, Y: np.ndarray, X_val: np.ndarray, Y_val: np.ndarray
) -> tuple[TableData, np.ndarray, Tensor]:
    """Append the user's validation rows with weight zero.

    Each counts in the validation loss as much as a training row on average. Returns the table, its targets and the
    places of these rows.
    """
    assert isinstance(data.rows, ArrayRows)
    n, shard = data.rows.n_rows, data.shard
    if isinstance(shard, Runs):  # processes divide these rows, too
        start, stop = even_run(shard.group, len(X_val))
        X_val, Y_val, shard = X_val[start:stop], Y_val[start:stop], shard.append(len(X_val))
    rows = ArrayRows(np.concatenate([data.rows.X, X_val]), shard)
    mean = data.shard.total(data.weight.sum()) / data.n_alive
    weight = np.append(data.weight, np.zeros(len(X_val)))
    validation_weight = np.append(data.weight, np.full(len(X_val), mean))
    row_groups = None if data.row_groups is None else data.row_groups.appended(len(X_val))
    data = replace(data, rows=rows, weight=weight, validation_weight=validation_weight, row_groups=row_groups)
    return data, np.concatenate([Y, Y_val]), torch.arange(n, n + len(X_val))


def hold_out(
    data: TableData, Y: np.ndarray, fraction: float | str, rng: np.random.Generator, *, classes: bool
) -> tuple[TableData, Tensor]:
    """Hold out a fraction of the rows by setting their weights to zero; each class loses the same fraction.

    Whole groups, or the latest rows, are held out where rows stay together. Returns the table and the places of the
    held-out rows on this process.
    """
    alive, shard = torch.as_tensor(data.weight > 0), data.shard
    total = shard.count(alive)
    require(total >= 4, "the number of rows", "at least 4 to hold some out for validation", total)
    most = min(max(HELD_OUT_ROWS, HELD_OUT_SHARE * total), HELD_OUT_MOST)
    wanted = min(total / 10, most) if isinstance(fraction, str) else fraction * total
    n = min(max(round(wanted), 1), total - 2)
    weight = data.weight.copy()
    if data.row_groups is not None:
        left_out, scored = _whole_groups(data, Y, n, rng, classes=classes)
    else:
        drawn = torch.cat(_stratified(shard, _by_class(alive, Y), n, rng)) if classes else shard.draw(alive, n, rng)
        left_out = scored = np.sort(np.asarray(shard.local(drawn)[1]))
    weight[left_out] = 0.0
    return replace(data.with_weights(weight), validation_weight=data.weight), torch.as_tensor(scored)


def _whole_groups(
    data: TableData, Y: np.ndarray, n: int, rng: np.random.Generator, *, classes: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Rows to leave out and those of them that validate: about `n` rows of whole groups, or the latest `n` rows.

    Groups with all rows of a class stay.
    """
    assert data.row_groups is not None
    alive = data.alive
    groups = data.row_groups.take(alive)
    left_out, scored = groups.splits(1, most=n, seed=int(rng.integers(2**31)))[0]
    if classes and not groups.ordered:
        kept = np.zeros(len(alive), dtype=bool)
        for mask in _by_class(torch.as_tensor(data.weight > 0), Y):
            rows = mask.numpy()[alive]
            if rows.any() and rows.sum() == rows[left_out].sum():
                kept |= groups.beside(groups.key[rows])
        left_out = scored = left_out[~kept[left_out]]
        wanted = "such that some rows can be held out and each class is in a group that stays"
        require(len(scored) > 0, "groups", wanted, f"{len(np.unique(groups.key))} groups")
    return alive[left_out], alive[scored]


def _by_class(alive: Tensor, Y: np.ndarray) -> list[Tensor]:
    """A mask of the rows of each class."""
    label = torch.as_tensor(class_indices(Y))
    return [alive & (label == c) for c in range(max(Y.shape[1], 2))]


def _stratified(shard: Shard, classes: list[Tensor], n: int, rng: np.random.Generator) -> list[Tensor]:
    """About `n` random rows, in proportion to the classes; at least one row of every class stays."""
    sizes = np.array([shard.count(mask) for mask in classes])
    ends = np.cumsum(sizes)
    evenly = np.searchsorted(ends, np.linspace(0, ends[-1], n, endpoint=False).astype(int), side="right")
    wanted = np.minimum(np.bincount(evenly, minlength=len(sizes)), np.maximum(sizes - 1, 0))
    if not wanted.any():
        wanted[sizes.argmax()] = 1
    return [shard.draw(mask, int(k), rng) for mask, k in zip(classes, wanted, strict=True)]
