"""The task of a fit: a checked table with coded targets and validation rows, and its fitted ensemble members."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.clock import Clock
from mercer.engine import Plan
from mercer.forward.held_out import HeldOutPredictions
from mercer.forward.loop import ForwardFit
from mercer.forward.model_selection import KernelMember, Selection, Unspecified, problem_of
from mercer.forward.path import ExpansionPath, FittedExpansion
from mercer.forward.problem import Problem
from mercer.losses import Loss, class_likelihood
from mercer.parts import require
from mercer.preprocessing.read import TableData
from mercer.preprocessing.targets import ClassTargets, clip_outliers
from mercer.stop_reason import StopReason

#: Rows from which the range of targets without outliers, and the best constant of a loss, are estimated.
TARGET_ROWS = 10_000
#: The largest mean weight for which sums of weights times squared targets fit into float32.
LARGEST_WEIGHT = 1e25


@dataclass(frozen=True)
class Task:
    """A checked table with coded targets, the selected ensemble members, and validation rows."""

    data: TableData
    targets: Any
    Y: np.ndarray
    plan: Plan
    loss: Loss
    selection: Selection
    held_out: Tensor | None
    pairwise: bool
    left_open: Unspecified
    checkpoint: Any = None  # the checkpoint of this fit, if any
    full_table: TableData | None = None  # the table, if `data` is a sample of it

    @property
    def row_targets(self) -> np.ndarray:
        """Coded targets of single rows; `Y` has means of duplicates. Validation rows of the user come last."""
        coded = self.targets.encode(self.data.y)
        return np.concatenate([coded, self.Y[len(coded) :]])

    def by_likelihood(self) -> Task:
        """The same task with classes fitted by their log likelihood: codes ±1, logistic or softmax loss."""
        codes = np.sign(self.Y + self.targets.offset)
        targets = ClassTargets(self.targets.classes)
        return replace(self, Y=codes, targets=targets, loss=class_likelihood(codes.shape[1]))

    def problem(self, member: KernelMember) -> Problem:
        """The problem that an ensemble member minimises."""
        return problem_of(member, self.data, self.Y, self.plan, self.loss, self.left_open, pairwise=self.pairwise)


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


def time_for_another(fit: ForwardFit, budget: Clock, share: float) -> bool:
    """Whether there is time for another exact solution; models of several steps stop in time by themselves."""
    return not budget.interrupted and (fit.learner.resumable or not budget.expired(needing=fit.seconds, until=share))


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
    for_numbers = "'squared', 'huber', 'absolute' or 'pinball' for regression: the others are for classes"
    require(classes or loss.for_numbers, "loss", for_numbers, choice)
    require(not classes or loss.quadratic or not loss.for_numbers, "loss", "one for classes", choice)
    return class_likelihood(n_outputs) if loss.likelihood else loss


def clip_far_targets(data: TableData, loss: Loss) -> np.ndarray:
    """Targets for scaling and model selection: outliers are clipped if the loss is robust."""
    if loss.quadratic or not loss.for_numbers or data.y.dtype.kind != "f":
        return data.y
    return clip_outliers(data.y, data.pick(data.y, data.spaced(TARGET_ROWS)))


def normalise_weights(data: TableData, noise: float, penalty: float | str) -> TableData:
    """The table with weights of mean `noise` if the penalty is "auto"; with a given penalty weights stay."""
    mean = data.shard.total(data.weight.sum()) / data.n_alive
    if isinstance(penalty, str):
        return replace(data, weight=data.weight * (noise / mean), weight_unit=noise / mean)
    require(mean <= LARGEST_WEIGHT, "the mean of sample_weight", f"at most {LARGEST_WEIGHT:g}", mean)
    return data


def selection_targets(data: TableData, Y: np.ndarray, targets: Any, loss: Loss) -> np.ndarray:
    """Coded targets for the selection: `Y`, with far targets clipped for robust losses; validation rows come last."""
    clipped = clip_far_targets(data, loss)
    if clipped is data.y:
        return Y
    coded, shard = targets.encode(clipped), data.shard
    sums = shard.group.sum(torch.from_numpy(np.append(data.weight @ coded, data.weight.sum()))).numpy()
    return np.concatenate([coded, Y[len(clipped) :]]) - sums[:-1] / sums[-1]


def around_constant(targets: Any, data: TableData, loss: Loss) -> Any:
    """The coding of numbers, centred at the constant of least loss instead of the mean."""
    if loss.quadratic or isinstance(targets, ClassTargets):
        return targets
    rows = data.spaced(TARGET_ROWS)
    Y, weight = (torch.from_numpy(data.pick(values, rows)) for values in (targets.encode(data.y), data.weight))
    constant = loss.constant(Y, weight / weight.max()).numpy()
    return replace(targets, mean=targets.mean + targets.scale * constant)
