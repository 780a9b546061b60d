"""Which kernel grows fastest: the first learners of several, on all rows.

Some thousand rows tell which member is best at their density. How far it comes in the time of a fit they do not tell:
a rough kernel is ahead of a smooth one on few rows, and behind it after some learners on many. Of COVTYPE the
exponential kernel leaves 0.43 of the squares when 4300 rows are fitted exactly and the evidence's Gaussian 0.47, but
after a minute on 500 000 rows and two cores 0.41 and 0.22. So the best member and the best of every smoother kernel
grow some learners each, and the one that promises most goes on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import numpy as np

from mercer.clock import Clock
from mercer.forward.loop import ForwardFit
from mercer.forward.members import Choice, Member
from mercer.forward.stopping import History, MaxSteps, TimeBudget
from mercer.forward.task import Task
from mercer.kernels import Gaussian, Matern32, Matern52
from mercer.progress import report_step

#: Members that are grown beside each other at most, and learners of each: so many, and no fewer than tell anything.
CONTENDERS, LEARNERS, FEWEST = 3, 10, 3
#: Derivatives of a kernel's functions; those of other kernels have none, or do not race.
SMOOTHNESS: dict[type, float] = {Matern32: 1.0, Matern52: 2.0, Gaussian: math.inf}


def contenders(choice: Choice) -> list[Member]:
    """The best member, and the best of every smoother kernel, as some thousand rows rank them."""
    best: dict[type, Member] = {}
    least = _smoothness(choice.members[0])
    for one in (*choice.members, *choice.spare):
        if one is choice.members[0] or _smoothness(one) > least:
            best.setdefault(type(one.kernel), one)
    return list(best.values())[:CONTENDERS]


def _smoothness(one: Member) -> float:
    return SMOOTHNESS.get(type(one.kernel), 0.0)


def by_pace(task: Task, begin: Callable[[Member], ForwardFit], seconds: float) -> Choice:
    """The member whose first learners promise most in equal time, with these, and the others to spare.

    The choice is as it was where `seconds` are too few to tell.
    """
    choice, clock = task.choice, Clock(seconds, group=task.given.shard.group)
    running, report = contenders(choice), list(choice.report)
    if len(running) == 1:
        return choice
    histories: list[History] = []
    leader: tuple[int, ForwardFit] | None = None  # the only one that is held: its rows may take all the memory there is
    for k, one in enumerate(running):
        started, fit = time.perf_counter(), begin(one)
        fit.run([MaxSteps(LEARNERS), TimeBudget(clock.remaining() / (len(running) - k))])
        if fit.interrupted:
            raise KeyboardInterrupt
        if fit.n_steps < FEWEST:
            break
        histories.append(fit.history)
        leader = (k, fit) if promising(histories)[0] == k else leader
        line = {"candidate": f"{one.name}, first learners", "rows": task.given.n_alive}
        line |= {"loss": fit.history.validation[-1], "seconds": time.perf_counter() - started}
        report.append(line)
        report_step("race", state=line)
        del fit  # before the next one begins
    order = [*promising(histories), *range(len(histories), len(running))]
    ranked = [running[k] for k in order]
    ranked += [one for one in (*choice.members, *choice.spare) if not any(one is other for other in running)]
    begun = leader[1] if leader is not None and leader[0] == order[0] else None
    return Choice(ranked[:1], choice.seconds + clock.elapsed(), report, ranked[1:], begun)


def promising(histories: Sequence[History]) -> list[int]:
    """Numbers of fits, the one first that promises the least loss in the time in which the quickest has twice as many.

    A learner takes the median of all but the first, which may have to compile.
    """
    each = [float(np.median(np.diff(one.seconds))) for one in histories]
    ends = 2 * min((len(one.seconds) * took for one, took in zip(histories, each, strict=True)), default=0.0)
    losses = [promise(one.validation, ends / took) for one, took in zip(histories, each, strict=True)]
    return sorted(range(len(losses)), key=losses.__getitem__)


def promise(losses: Sequence[float], n_learners: float) -> float:
    """The loss after so many learners: between those seen, or further along the power law of their last half.

    >>> promise([8.0, 6.0, 5.0, 4.0], 3), round(promise([8.0, 6.0, 5.0, 4.0], 8), 9)
    (5.0, 2.666666667)
    """
    n, half = len(losses), (len(losses) + 1) // 2
    if n_learners <= n or min(losses) <= 0:
        return float(np.interp(n_learners, range(1, n + 1), losses))
    power = math.log(losses[-1] / losses[half - 1]) / math.log(n / half)
    return losses[-1] * (n_learners / n) ** power
