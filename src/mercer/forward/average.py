"""The mean of several models of one table, those left out that rows held out are better without."""

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
from mercer.preprocessing.targets import ClassTargets

#: Models that are grown at most where there is time for them; the time that must be left for one more, in units of what
#: one of its name took before; and, where there was none, the share of all time: a model that is cut short is judged
#: like any other.
MODELS, AHEAD, UNTRIED = 32, 1.2, 0.1
#: Rows held out that models are judged by, at most. Two thousand cannot tell 1.55 from 1.75 % of errors.
JUDGES = 10_000


def best_average(
    task: Task, first: list[FittedMember], grow: Callable[[KernelMember], list[FittedMember]], budget: Clock
) -> list[FittedMember]:
    """The mean of the best of several models, the first and as many further ones as there is time for.

    Every member has its turn, those to spare as well, then those again whose models the mean keeps; a member that there
    is no time for is passed over.
    """
    members, single = [*task.selection.members, *task.selection.runners_up], task.single
    models, said = [first], [judges(first, single)]
    took = {members[0].name: budget.elapsed() - task.selection.seconds}
    turns, best, n = members[1:] or members, [0], 0
    while n < len(models):  # as long as there was time for one more
        n = len(models)
        for member in turns:
            ahead = AHEAD * took[member.name] if member.name in took else UNTRIED * (budget.seconds or 0.0)
            if models[-1][-1].fit.interrupted or len(models) >= MODELS or budget.remaining(until=STAGES_SHARE) <= ahead:
                continue
            before, place = budget.elapsed(), len(task.selection.members) - 1 + len(models)
            models.append(grow(replace(member, share=1.0, place=place)))
            said.append(judges(models[-1], single))
            took[member.name] = budget.elapsed() - before
        if n < len(models):
            best = best_few(task, said)
            turns = [models[k][0].member for k in best]
    return models[0] if len(models) == 1 else averaged([models[k] for k in best])


def averaged(models: Sequence[list[FittedMember]]) -> list[FittedMember]:
    """The mean of several models; inside each, members keep the shares they have there."""
    share = 1 / len(models)
    return [
        replace(one, member=replace(one.member, share=share * one.member.share)) for model in models for one in model
    ]


def judges(model: list[FittedMember], single: np.ndarray) -> HeldOutPredictions:
    """What a model, all of its stages and members together, says of many of the rows held out, whose targets it has."""
    first = model[0]
    said = [validation_predictions(one.fit, one.final, single if one is first else None, JUDGES) for one in model]
    return ensemble_predictions([replace(one, held_out=part) for one, part in zip(model, said, strict=True)])


def best_few(task: Task, said: Sequence[HeldOutPredictions]) -> list[int]:
    """The numbers of the models whose mean rows held out want, by what each model said of them.

    That is the mean of the best few, as many as are best. Models have other length-scales and other kernels, and one
    that went wrong is not worth the variance it saves.
    """
    ranked = sorted(range(len(said)), key=lambda k: _loss(task, said[k]))

    def mean(n: int) -> HeldOutPredictions:
        return replace(said[0], values=np.mean([said[k].values for k in ranked[:n]], axis=0))

    return sorted(ranked[: min(range(1, len(said) + 1), key=lambda n: _loss(task, mean(n)))])


def _loss(task: Task, said: HeldOutPredictions) -> float:
    """The log loss of rows held out, or their mean square."""
    if isinstance(task.targets, ClassTargets):
        return cross_fitted(task.targets, said.values, said.targets, said.weight)[0]
    squares = np.square(said.targets - said.values).sum(1)
    return float(said.weight @ squares / said.weight.sum())
