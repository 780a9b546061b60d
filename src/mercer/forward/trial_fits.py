"""A stage for large tables: fit the first learners of several kernels to all rows and keep the most promising.

Some thousand rows tell which kernel is best at their density, but not how far it comes in the time of a fit. A rough
kernel is ahead of a smooth one on few rows, and behind it after some learners on many. On COVTYPE the exponential
kernel leaves 0.43 of the squared error when 4300 rows are fitted exactly and the Gaussian kernel of the evidence 0.47,
but after a minute on 500 000 rows and two cores 0.41 and 0.22. So the best kernel and the best of every smoother kernel
are fitted with some learners each.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import numpy as np

from mercer.clock import Clock
from mercer.forward.loop import ForwardFit
from mercer.forward.model_selection import KernelMember, Selection
from mercer.forward.stopping import History, MaxSteps, TimeBudget
from mercer.forward.task import Task
from mercer.progress import report_step

#: Kernels that are tried at most, learners of each, and the fewest learners that tell anything.
SHORTLIST, LEARNERS, FEWEST_LEARNERS = 3, 10, 3


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

    The selection stays as it is where `seconds` are too few to tell.
    """
    selection, clock = task.selection, Clock(seconds, group=task.data.shard.group)
    tried, report = shortlist(selection), list(selection.report)
    if len(tried) == 1:
        return selection
    histories: list[History] = []
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
        report_step("selection", state=line)
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
    """The loss after this many learners: interpolated, or along the power law of the last half.

    >>> extrapolate_loss([8.0, 6.0, 5.0, 4.0], 3), round(extrapolate_loss([8.0, 6.0, 5.0, 4.0], 8), 9)
    (5.0, 2.666666667)
    """
    n, half = len(losses), (len(losses) + 1) // 2
    if n_learners <= n or min(losses) <= 0:
        return float(np.interp(n_learners, range(1, n + 1), losses))
    power = math.log(losses[-1] / losses[half - 1]) / math.log(n / half)
    return losses[-1] * (n_learners / n) ** power
