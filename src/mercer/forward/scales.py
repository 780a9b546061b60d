"""Several length-scales in one model: coarse first, finer where rows held out gain by it.

What a stage leaves unexplained is the target of the next one, whose kernel has the same length-scales or shorter ones.
Every few learners one of the finer kernel is tried on what is left at that point; held-out rows say whether the model
goes on as it is, goes finer, or is done. Short length-scales make learners of different places independent, which is
what boosting needs; long ones carry what few rows can say. The stages' spaces of functions are summed, each with the
penalty of its own norm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from torch import Tensor

from mercer.forward.loop import ForwardFit
from mercer.forward.outside import outside_values
from mercer.forward.problem import Problem
from mercer.forward.stages import Final
from mercer.forward.task import Grown
from mercer.tuning.more_rows import scaled

#: The next length-scales in units of those at hand.
FINER = 0.6
#: Learners between two trials of a finer kernel, and what its first learner must bring in units of one of those at
#: hand: the first learner of a kernel gains more than the next ones, and what is gone finer too early is not smooth any
#: more. Chosen on COVTYPE, by a tenth of its training rows (`covtype.py --choosing`): 1.87 % wrong at 2, 1.85 at 4,
#: 1.84 at 10, 1.83 at 20. Where every stage has other rows, there are enough of them to go finer at once.
CHECKED, WORTH, WORTH_ANEW = 5, 10.0, 2.0
#: The share of the held-out loss that a learner has to bring, over two checks, for the model to go on growing; less
#: where the user gave it time. Of a model that is one of several in an average it is divided by the model's share,
#: since the average gains no more than that: a sixth of the fit's time for errors 0.15 % higher (cal_housing, pol,
#: house_16H, elevators, 12 000 rows, two splits each); 2e-3 instead loses 12 and 20 % on pol.
LITTLE, LITTLE_IN_BUDGET = 5e-4, 2e-4

#: How a fit begins: the problem, and its rows that are watched.
Make = Callable[[Problem, Tensor | None], ForwardFit]


def further_stages(
    problem: Problem,
    f: Tensor,
    watched: Tensor | None,
    make: Make,
    on: Callable[[ForwardFit, int], bool],
    little: float = LITTLE,
    anew: Callable[[list[ForwardFit], ForwardFit], ForwardFit] | None = None,
) -> list[ForwardFit]:
    """Stages on what a model of values `f` leaves of a problem, until none gains any more.

    `make` begins a fit to a problem whose rows `watched` are held out, `on` adds a number of learners to one and says
    whether there is time for more. `little` is the share of the held-out loss below which a learner is not worth its
    time. `anew` is given stages and how the next one begins, and may begin it on other rows (`mercer.forward.draws`).
    """
    worth = WORTH if anew is None else WORTH_ANEW
    anew = anew or (lambda stages, begun: begun)
    current = _best_start(problem, f, watched, make, little)
    if current is None:
        return []
    current = anew([], current)
    stages, idle = [current], 0
    while on(current, CHECKED):
        losses = current.history.validation
        seen = min(CHECKED, len(losses) - 1)
        gain, least = (losses[-1 - seen] - losses[-1]) / seen, little * losses[-1]
        finer = current.problem.after(current.f, scaled(current.problem.kernel, FINER))
        trial, brought = _begun(make(finer, current.validation))
        if trial is not None and brought > max(worth * gain, least):
            current, idle = anew(stages, trial), 0
            stages.append(current)
            continue
        idle = idle + 1 if gain <= least else 0  # both are zero where nothing is wrong any more
        if idle == 2:
            break
    return stages


def _best_start(problem: Problem, f: Tensor, watched: Tensor | None, make: Make, little: float) -> ForwardFit | None:
    """One learner of the kernel at hand, or one of a finer one, whichever gains more; None where neither does."""
    tried = [_begun(make(problem.after(f, scaled(problem.kernel, factor)), watched)) for factor in (1.0, FINER)]
    fit, gain = max(tried, key=lambda one: one[1])
    return None if fit is None or gain <= little * fit.history.validation[-1] else fit


def _begun(fit: ForwardFit) -> tuple[ForwardFit | None, float]:
    """A fit after its first learner, and what that took off the held-out loss."""
    before = float(fit.held_out_loss())
    if not fit.step():
        return None, 0.0
    fit.flush()
    return fit, before - fit.history.validation[-1]


def finished(first: Grown, fits: list[ForwardFit]) -> list[Grown]:
    """Stages cut back to the learner after which rows held out were predicted best."""
    stages, before = [], first.n_steps
    for fit in fits:
        n_steps = int(np.argmin(fit.history.validation)) + 1 if fit is fits[-1] else fit.n_steps
        path = fit.path()
        final = Final.at(path, n_steps, fit.problem)
        why = f"learners of {len(fits)} further stages gained ever less on rows held out"
        outside = outside_values(fit, final, numbers=False)  # of rows held out, which stages always have
        member = replace(first.member, kernel=fit.problem.kernel, name=f"{first.member.name}, finer")
        stages.append(Grown(member, fit, path, final, n_steps, why, outside, before))
        before += n_steps
    return stages
