"""Average of several models of one table, chosen by their loss on validation rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from mercer.base.calibration import cross_fitted
from mercer.clock import Clock
from mercer.forward.held_out import HeldOutPredictions, validation_predictions
from mercer.forward.model_selection import KernelMember
from mercer.forward.refinement_stages import STAGES_SHARE
from mercer.forward.task import FittedMember, Task, ensemble_predictions
from mercer.kernels.partitioned import Partitioned
from mercer.preprocessing.targets import ClassTargets

#: Time that must remain for one more model: in units of the last model of the same candidate, or as a share of the
#: budget for a candidate that was not fitted yet. A model that is cut short is scored like any other.
TIME_FACTOR, UNTRIED_SHARE = 1.2, 0.1
#: The most validation rows that score models: 2000 rows do not separate error rates of 1.55 and 1.75 %.
SCORING_ROWS = 10_000


def best_average(
    task: Task,
    first: list[FittedMember],
    fit_model: Callable[[KernelMember], list[FittedMember]],
    budget: Clock,
    max_models: int,
) -> list[FittedMember]:
    """Average the best of several models: the first one, and further ones while time allows, at most `max_models`.

    Each candidate of the selection is fitted once, runners-up too. Then the candidates whose models the average keeps
    are fitted again, with other random numbers. A candidate that would take too long is skipped.
    """
    candidates = [*task.selection.members, *task.selection.runners_up]
    targets = task.row_targets
    models, predictions = [first], [model_predictions(first, targets)]
    seconds = {candidates[0].name: budget.elapsed() - task.selection.seconds}

    def has_time(member: KernelMember) -> bool:
        needed = UNTRIED_SHARE * (budget.seconds or 0.0)
        if isinstance(first[-1].member.kernel, Partitioned):  # a local stage cannot be cut short
            needed = max(needed, TIME_FACTOR * min(seconds.values()))
        if member.name in seconds:
            needed = TIME_FACTOR * seconds[member.name]
        interrupted = models[-1][-1].fit.interrupted
        return not interrupted and len(models) < max_models and budget.remaining(until=STAGES_SHARE) > needed

    queue, best, n_scored = candidates[1:] or candidates, [0], 0
    while n_scored < len(models):  # the last round added a model
        n_scored = len(models)
        for member in queue:
            if not has_time(member):
                continue
            began, place = budget.elapsed(), len(task.selection.members) - 1 + len(models)
            models.append(fit_model(replace(member, share=1.0, place=place)))
            predictions.append(model_predictions(models[-1], targets))
            seconds[member.name] = budget.elapsed() - began
        if n_scored < len(models):
            best = best_subset(task, predictions)
            queue = [models[k][0].member for k in best]
    return models[0] if len(models) == 1 else averaged([models[k] for k in best])


def averaged(models: Sequence[list[FittedMember]]) -> list[FittedMember]:
    """The mean of several models; ensemble members of each keep their shares in it."""
    factor = 1 / len(models)
    return [
        replace(part, member=replace(part.member, share=factor * part.member.share))
        for model in models
        for part in model
    ]


def model_predictions(model: list[FittedMember], row_targets: np.ndarray) -> HeldOutPredictions:
    """Predictions of a model, all of its stages and members together, at validation rows with their targets."""
    targets = [row_targets, *[None] * (len(model) - 1)]
    parts = [
        replace(part, held_out=validation_predictions(part.fit, part.final, y, SCORING_ROWS))
        for part, y in zip(model, targets, strict=True)
    ]
    return ensemble_predictions(parts)


def best_subset(task: Task, predictions: Sequence[HeldOutPredictions]) -> list[int]:
    """Indices of the models whose mean has the least validation loss: the best `n`, for the best `n`.

    Models differ in length-scales and kernels. A poor model adds more error than it saves variance.
    """
    ranked = sorted(range(len(predictions)), key=lambda k: _loss(task, predictions[k]))

    def loss_of_mean(n: int) -> float:
        values = np.mean([predictions[k].values for k in ranked[:n]], axis=0)
        return _loss(task, replace(predictions[0], values=values))

    n_best = min(range(1, len(predictions) + 1), key=loss_of_mean)
    return sorted(ranked[:n_best])


def _loss(task: Task, held_out: HeldOutPredictions) -> float:
    """The log loss of validation rows for classes, their mean squared error for numbers."""
    if isinstance(task.targets, ClassTargets):
        return cross_fitted(task.targets, held_out.values, held_out.targets, held_out.weight)[0]
    squares = np.square(held_out.targets - held_out.values).sum(1)
    return float(held_out.weight @ squares / held_out.weight.sum())
