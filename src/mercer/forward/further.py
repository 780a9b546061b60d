"""Stages after the first, as a boosted model asks for them: on which rows, with what focus, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.clock import Clock
from mercer.data import TensorRows
from mercer.forward.draws import RATE, Renewal
from mercer.forward.focus import Focus, HingeFocus
from mercer.forward.loop import ForwardFit
from mercer.forward.path import FittedExpansion
from mercer.forward.problem import Problem
from mercer.forward.scales import LITTLE, Make, Staging, finished, further_stages
from mercer.forward.stopping import MaxSteps, Stopping, TimeBudget
from mercer.forward.task import FittedMember, Task
from mercer.progress import step_callbacks

#: Share of the time budget after which nothing is added to further stages.
STAGING_SHARE = 0.95
#: Share of the time left that may go into looking through rows for the next stage.
LOOKING = 0.3
#: Where rows are drawn, a learner may bring less to be worth its time, by this power of the share that is learned from
#: at a time: a model of more rows may take longer, and is to be better by them.
LONGER = 0.25
#: The share of rows held out that may be wrong for further stages to look at rows of small margin alone.
SEPARABLE = 0.1


def further(face: Any, task: Task, first: FittedMember, budget: Clock, share: float) -> list[FittedMember]:
    """Learners of the same and of shorter length-scales on what the first stage left, as long as they gain.

    `face` is the estimator: how its fits begin and how long they may take. `share` of the `budget` may be spent.
    """
    problem = _coded(first.fit.problem, task) if face._classes else first.fit.problem
    f = problem.matrix(first.final.basis).product(first.final.weights)
    focus = _focus(face, problem, f, first.fit.validation)

    def make(left: Problem, watched: Tensor | None) -> ForwardFit:
        grown: ForwardFit = face._begin_fit(left, watched, first.fit.rng)
        grown.focus = focus
        if task.checkpoint is not None:
            task.checkpoint.follow(grown)
        return grown

    def narrowed(fit: ForwardFit) -> bool:
        nonlocal focus
        before = focus
        focus = focus or _focus(face, fit.problem, fit.f, fit.validation)
        return focus is not before

    staging = Staging(make, _within(face, budget, share), LITTLE / first.member.share, narrowed=narrowed)
    if task.full_table is not None:
        little = staging.little * (task.data.n_alive / task.full_table.n_alive) ** LONGER
        staging = replace(staging, little=little, anew=_anew(face, task, first, make, budget, share))
    stages = further_stages(problem, f, first.fit.validation, staging)
    if any(fit.interrupted for fit in stages):
        budget.interrupt()
    return finished(first, stages)


def _coded(problem: Problem, task: Task) -> Problem:
    """The problem with the codes of its classes, from which margins are counted."""
    return replace(problem, codes=problem.y + torch.as_tensor(task.targets.offset).to(problem.y))


def _focus(face: Any, problem: Problem, f: Tensor, watched: Any) -> Focus | None:
    """Where classes are told apart well already, further stages look at rows of small margin alone."""
    focus = None if face.focus is None else Focus.resolve(face.focus, "focus")
    if focus is not None or not face._classes:
        return focus
    wrong = float(problem.validation_mean((problem.margins(f, watched).amin(1) <= 0).double(), watched))
    at_hand = isinstance(problem.rows, TensorRows)  # else none are cheap
    return HingeFocus() if wrong < SEPARABLE and at_hand else None


def _anew(
    face: Any, task: Task, first: FittedMember, make: Make, budget: Clock, share: float
) -> Callable[[list[ForwardFit], ForwardFit], ForwardFit]:
    """How a stage begins on other rows of a table that is too large to learn from whole, where there is time for it."""
    fit, where = first.fit, first.fit.problem.plan.device.type
    assert task.full_table is not None
    assert fit.validation is not None
    n_rows = int(np.count_nonzero(task.data.weight))
    renewal = Renewal(
        task.full_table, task.data, task.targets, first.member.inputs, fit.problem, fit.validation, n_rows, fit.rng,
        classes=face._classes,
    )  # fmt: skip

    model = [first.final]  # and every stage that has ended since

    def anew(stages: list[ForwardFit], begun: ForwardFit) -> ForwardFit:
        model.extend(FittedExpansion.at(one.path(), one.n_steps, one.problem) for one in stages[len(model) - 1 :])
        drawn = renewal.problem(model, begun.problem.kernel, LOOKING * budget.remaining(until=share) * RATE[where])
        other = None if drawn is None else make(*drawn)
        if other is None or not other.step():
            return begun
        other.flush()
        return other

    return anew


def _within(face: Any, budget: Clock, share: float) -> Callable[[ForwardFit, int], bool]:
    """Adds learners to a fit and says whether there is time for more."""

    def on(fit: ForwardFit, count: int) -> bool:
        wanted = fit.n_steps + count
        rules: list[Stopping] = [MaxSteps(wanted)]
        if face.time_budget is not None:
            left = max(budget.remaining(until=share) - (1 - STAGING_SHARE) * face.time_budget, 0.0)
            rules.append(TimeBudget(fit.seconds + left, face.time_budget))
        fit.run(rules, step_callbacks("learners", wanted, lambda fit: fit.n_steps))
        return fit.n_steps == wanted and not fit.interrupted

    return on
