"""Stages of large tables: local length-scales, and trial fits of several kernels to all rows.

Neighbourhoods propose length-scales, which correct a kernel's metric and penalty at the density of all rows. They are
kept where the nearest of all rows predict each other better with them (`mercer.selection.neighbourhoods`). Nearest rows
do not compare different kernels: they tell nothing of how fast a kernel learns. Trial fits do, so every kernel of their
shortlist is refined.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mercer.clock import Clock
from mercer.engine import Plan
from mercer.engine.plan import Sample
from mercer.forward.loop import ForwardFit
from mercer.forward.model_selection import KernelMember, Selection, sample_of
from mercer.forward.stopping import History, MaxSteps, TimeBudget
from mercer.forward.task import Task
from mercer.preprocessing.inputs import InputMap
from mercer.preprocessing.read import TableData
from mercer.progress import ValidationLoss, expect_steps, report_step
from mercer.selection.neighbourhoods import (
    LocalScales,
    geometric_mean,
    neighbourhood_scales,
    neighbours_error,
    query_rows,
)
from mercer.selection.settings import DEFAULT_SETTINGS, SelectionSettings

#: Proposals on a GPU with a time budget. The best of them, or their geometric mean, serves the first model; further
#: models take the others, since models of the same metric err alike and their average gains nothing.
PROPOSALS = 4
#: Share of the time for scores by nearest rows.
SCORING_SHARE = 0.2
#: The largest factor by which a penalty may fall.
LARGEST_PENALTY_DROP = 10.0
#: Kernels that are tried at most, learners of each, and the fewest learners that tell anything.
SHORTLIST, LEARNERS, FEWEST_LEARNERS = 3, 10, 3


@dataclass
class LocalLengthScales:
    """The stage's table, targets and clock. `free_penalty` lets penalties fall to the neighbourhoods' noise."""

    data: TableData
    Y: np.ndarray
    plan: Plan
    rng: np.random.Generator
    clock: Clock
    free_penalty: bool = True
    settings: SelectionSettings = DEFAULT_SETTINGS

    def refine(self, selection: Selection) -> Selection:
        """The selection with refined metrics, best first."""
        began = time.perf_counter()
        self.report = list(selection.report)
        compared = shortlist(selection)
        views = _by_view([*selection.members, *selection.runners_up])
        views.sort(key=lambda view: not any(member is other for member in view for other in compared))
        n_views = len(_by_view(compared))
        several = self.clock.seconds is not None and self.plan.device.type == "cuda"
        self.n_proposals = PROPOSALS if several else 1
        n_scores = n_views * (1 + self.n_proposals + several)  # the views at hand, and geometric means
        first = self._sample(views[0][0])  # made once: its rows may be mapped into memory
        seconds = None if self.clock.seconds is None else SCORING_SHARE * self.clock.seconds / n_scores
        self.queries = query_rows(first, self.rng, seconds)
        if not len(self.queries):
            return selection
        refined = [
            self._refined(view[0], self._sample(view[0]) if place else first)
            for place, view in enumerate(views[:n_views])
        ]
        ranked = [
            _with_metric_of(proposals[rank], view[0], member)
            for rank in range(max(map(len, refined)))
            for proposals, view in zip(refined, views, strict=False)
            if rank < len(proposals)
            for member in view
        ]
        ranked += [member for view in views[n_views:] for member in view]
        self.clock.raise_interrupt()  # there is no model yet that could be kept
        seconds_taken = selection.seconds + self._since(began)
        return replace(selection, members=ranked[:1], runners_up=ranked[1:], report=self.report, seconds=seconds_taken)

    def _refined(self, member: KernelMember, sample: Sample) -> list[KernelMember]:
        """A member with the metrics that neighbourhoods propose, best first; as it is where none is better."""
        found = []
        for _ in range(self.n_proposals):
            scales = neighbourhood_scales(sample, member.kernel, self.rng, self.clock, self.settings)
            if scales is not None:
                found.append(scales)
        found += [geometric_mean(found)] if len(found) > 1 else []
        proposed = [_rescaled(member, scales, self.free_penalty) for scales in found]
        if not proposed:
            return [member]
        before = self._error(member, sample)
        errors = [self._error(proposal, self._sample(proposal)) for proposal in proposed]
        better = [proposed[k] for k in np.argsort(errors) if errors[k] < before]
        return better or [replace(member, lam=proposed[0].lam)]

    def _error(self, member: KernelMember, sample: Sample) -> float:
        started, error = time.perf_counter(), neighbours_error(sample, self.queries)
        line = {"candidate": member.name, "stage": "nearest rows", "rows": self.data.n_alive, "loss": error}
        self.report.append(line | {"seconds": self._since(started)})
        return error

    def _sample(self, member: KernelMember) -> Sample:
        return sample_of(self.data, self.Y, member.inputs, self.plan, pairwise=False)

    def _since(self, began: float) -> float:
        """Seconds since then, as the first process measures them."""
        seconds: float = self.data.shard.group.first(lambda: time.perf_counter() - began)
        return seconds


def _by_view(members: list[KernelMember]) -> list[list[KernelMember]]:
    """Members grouped by their input map, the group of the best member first."""
    views: list[list[KernelMember]] = []
    for member in members:
        view = next((view for view in views if _same_inputs(member.inputs, view[0].inputs)), None)
        if view is None:
            views.append([member])
        else:
            view.append(member)
    return views


def _same_inputs(first: InputMap, second: InputMap) -> bool:
    assert first.transform is not None
    assert second.transform is not None
    return first.columns is second.columns and np.array_equal(first.transform, second.transform)


def _with_metric_of(refined: KernelMember, original: KernelMember, member: KernelMember) -> KernelMember:
    """A member with the metric, and at most the penalty, of another of its view that was refined."""
    name = member.name + refined.name.removeprefix(original.name)
    return replace(member, inputs=refined.inputs, lam=min(member.lam, refined.lam), name=name)


def _rescaled(member: KernelMember, scales: LocalScales, free_penalty: bool) -> KernelMember:
    """A member with the length-scales and the penalty of neighbourhoods."""
    T: Any = member.inputs.transform
    T = scales.factors * T if T.ndim == 1 else scales.factors[:, None] * T
    lam = min(member.lam, max(scales.penalty, member.lam / LARGEST_PENALTY_DROP)) if free_penalty else member.lam
    name = f"{member.name}, local length-scales"
    return replace(member, inputs=replace(member.inputs, transform=T), lam=lam, name=name)


def shortlist(selection: Selection) -> list[KernelMember]:
    """The best member, and the best of every smoother kernel."""
    best: dict[type, KernelMember] = {}
    first = selection.members[0]
    for member in (*selection.members, *selection.runners_up):
        if member is first or _derivatives(member) > _derivatives(first):
            best.setdefault(type(member.kernel), member)
    return list(best.values())[:SHORTLIST]


def _derivatives(member: KernelMember) -> float:
    """The derivatives of the kernel's functions: ν − ½ of a Matérn kernel."""
    return max(member.kernel.smoothness - 0.5, 0.0)


def select_by_learning_curve(task: Task, begin: Callable[[KernelMember], ForwardFit], seconds: float) -> Selection:
    """The kernel whose first learners promise the least loss in equal time, with its fit, and the others.

    Some thousand rows tell which kernel is best at their density, but not how far it comes in the time of a fit. A
    rough kernel is ahead of a smooth one on few rows, and behind it after some learners on many. On COVTYPE the
    exponential kernel leaves 0.43 of the squared error when 4300 rows are fitted exactly and the Gaussian kernel of the
    evidence 0.47, but after a minute on 500 000 rows and two cores 0.41 and 0.22.

    The selection stays as it is where `seconds` are too few to tell.
    """
    selection, clock = task.selection, Clock(seconds, group=task.data.shard.group)
    tried, report = shortlist(selection), list(selection.report)
    if len(tried) == 1:
        return selection
    histories: list[History] = []
    expect_steps("selection", len(tried))
    leader: tuple[int, ForwardFit] | None = None  # only the best fit keeps its rows, which may take all the memory
    for k, member in enumerate(tried):
        started, fit = time.perf_counter(), begin(member)
        fit.run([MaxSteps(LEARNERS), TimeBudget(clock.remaining() / (len(tried) - k))])
        if fit.interrupted:
            raise KeyboardInterrupt
        if fit.n_steps < FEWEST_LEARNERS:
            break
        histories.append(fit.history)
        leader = (k, fit) if ranked_by_promise(histories)[0] == k else leader
        line = {"candidate": member.name, "stage": "trial fits", "rows": task.data.n_alive}
        line |= {"loss": fit.history.validation[-1], "seconds": time.perf_counter() - started}
        report.append(line)
        losses = [history.validation[-1] for history in histories]
        report_step("selection", state=line, loss=ValidationLoss(losses[-1], min(losses)))
        del fit  # before the next one begins
    order = [*ranked_by_promise(histories), *range(len(histories), len(tried))]
    ranked = [tried[k] for k in order]
    ranked += [
        member for member in (*selection.members, *selection.runners_up) if not any(member is other for other in tried)
    ]
    started_fit = leader[1] if leader is not None and leader[0] == order[0] else None
    return Selection(ranked[:1], selection.seconds + clock.elapsed(), report, ranked[1:], started_fit)


def ranked_by_promise(histories: Sequence[History]) -> list[int]:
    """Indices of fits by the loss each would reach in the time in which the fastest doubles its learners.

    The time of a learner is the median of all but the first, which may have to compile.
    """
    each = [float(np.median(np.diff(history.seconds))) for history in histories]
    ends = 2 * min((len(history.seconds) * took for history, took in zip(histories, each, strict=True)), default=0.0)
    losses = [extrapolate_loss(history.validation, ends / took) for history, took in zip(histories, each, strict=True)]
    return sorted(range(len(losses)), key=losses.__getitem__)


def extrapolate_loss(losses: Sequence[float], n_learners: float) -> float:
    """The loss after this many learners: interpolated, or along the power law of the last half."""
    n, half = len(losses), (len(losses) + 1) // 2
    if n_learners <= n or min(losses) <= 0:
        return float(np.interp(n_learners, range(1, n + 1), losses))
    power = math.log(losses[-1] / losses[half - 1]) / math.log(n / half)
    return losses[-1] * (n_learners / n) ** power
