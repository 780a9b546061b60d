"""Several length-scales in one model: coarse first, finer where rows held out gain by it.

What a stage leaves unexplained is the target of the next one, whose kernel has the same length-scales or shorter ones.
Every few learners one of the finer kernel is tried on what is left at that point; held-out rows say whether the model
goes on as it is, goes finer, or is done. Short length-scales make learners of different places independent, which is
what boosting needs; long ones carry what few rows can say. The stages' spaces of functions are summed, each with the
penalty of its own norm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from mercer.forward.held_out import held_out_predictions
from mercer.forward.loop import ForwardFit
from mercer.forward.path import FittedExpansion
from mercer.forward.problem import Problem
from mercer.forward.task import FittedMember
from mercer.selection.more_rows import scaled
from mercer.stop_reason import StopKind, StopReason

#: Length-scales of the kernel that is tried next, in units of those at hand, and of those that are tried as well where
#: the model would end: 711 learners of one kernel brought ten million drawn rows of the robot's arm to 0.069 % where
#: finer ones reach 0.012 %. Tried from the start, these leave to many short learners what few long ones would do:
#: COVTYPE on two cores in 600 s has 2.97 % then, 2.06 % without.
FINER, FINEST = 0.6, (0.36, 0.216)
#: Learners between two trials of a finer kernel, and what its first learner must bring in units of one at hand:
#: the first learner of a kernel gains more than the next ones. Chosen on COVTYPE, by tenths of its training rows: class
#: 2 against the rest 1.57 % wrong at 2, 1.60 at 4, 1.57 at 10; seven classes 2.09, 2.08 and 2.05 %, in twice the time
#: at 10. Of five learners in a row none may gain by chance, and a kernel left after those is missed (2.11 % where
#: others of its kind have 1.93).
CHECKED, WORTH = 10, 2.0
#: The share of the held-out loss that a learner has to bring, over two checks, for the model to go on growing.
#: Of a model that is one of several in an average it is divided by the model's share, since the average gains no more
#: than that: a sixth of the fit's time for errors 0.15 % higher (cal_housing, pol, house_16H, elevators, 12 000 rows,
#: two splits each); 2e-3 instead loses 12 and 20 % on pol. Where the user gave time it is the same: more models of the
#: average are worth more than longer ones (COVTYPE as above: 1.50 % at 5e-4, 1.51 at 2e-4).
LITTLE = 5e-4
#: Checks in a row without a gain after which a kernel is done. A finer one then only has to bring what makes a learner
#: worth its time: seven classes of COVTYPE ended at the first kernel instead, with 4.1 % wrong.
ENDING = 2

#: How a fit begins: the problem, and its rows that are watched.
Make = Callable[[Problem, Tensor | None], ForwardFit]


@dataclass(frozen=True)
class Staging:
    """How stages begin and grow.

    `make` begins a fit to a problem some rows of which are watched, `on` adds a number of learners to one and says
    whether there is time for more. `little` is the share of the held-out loss below which a learner is not worth its
    time, `checked` the learners between two trials of a finer kernel, `worth` what its first learner must bring, in
    units of one of the kernel at hand. `anew` is given stages and how the next one begins, and may begin it on other
    rows (`mercer.forward.draws`). `narrowed` says that fits look at fewer rows from now on: the same kernel then goes
    on in a stage of its own.
    """

    make: Make
    on: Callable[[ForwardFit, int], bool]
    little: float = LITTLE
    checked: int = CHECKED
    worth: float = WORTH
    anew: Callable[[list[ForwardFit], ForwardFit], ForwardFit] = lambda stages, begun: begun
    narrowed: Callable[[ForwardFit], bool] = lambda fit: False


def further_stages(problem: Problem, f: Tensor, watched: Tensor | None, how: Staging) -> list[ForwardFit]:
    """Stages on what a model of values `f` leaves of a problem, until none gains any more."""
    begun = _best_start(problem, f, watched, how)
    if begun is None:
        return []
    current = how.anew([], begun)
    stages = [current]
    try:
        _grow(stages, how)
    except KeyboardInterrupt:
        current = stages[-1]
        current.flush()
        current.interrupted = True
    return stages


def _grow(stages: list[ForwardFit], how: Staging) -> None:
    """Learners for the last of the stages, and further stages after it, until none gains any more."""
    current, idle = stages[-1], 0
    while how.on(current, how.checked):
        if how.narrowed(current):
            following, _ = _begun(_after(current, 1.0, how.make))
        else:
            losses = current.history.validation
            gain, least = _gain(losses, how.checked), how.little * losses[-1]
            idle = idle + 1 if gain <= least else 0  # both are zero where nothing is wrong any more
            done = idle == ENDING
            tried = (FINER, *FINEST) if done else (FINER,)
            following, brought = _best(_after(current, factor, how.make) for factor in tried)
            following = following if brought > (least if done else max(how.worth * gain, least)) else None
        if following is not None:
            current, idle = how.anew(stages, following), 0
            stages.append(current)
        elif idle == ENDING:
            break


def _after(fit: ForwardFit, factor: float, make: Make) -> ForwardFit:
    """The beginning of a fit to what another left, with length-scales times `factor`."""
    return make(fit.problem.residual_problem(fit.f, scaled(fit.problem.kernel, factor)), fit.validation)


def _gain(losses: list[float], n_learners: int) -> float:
    """What each of the last learners took off the held-out loss, on average."""
    seen = min(n_learners, len(losses) - 1)
    return (losses[-1 - seen] - losses[-1]) / seen


def _best_start(problem: Problem, f: Tensor, watched: Tensor | None, how: Staging) -> ForwardFit | None:
    """One learner of the kernel at hand or of a finer one, whichever gains more; None if none does."""
    for factors in ((1.0, FINER), FINEST):
        kernels = (scaled(problem.kernel, factor) for factor in factors)
        fit, gain = _best(how.make(problem.residual_problem(f, kernel), watched) for kernel in kernels)
        if fit is not None and gain > how.little * fit.history.validation[-1]:
            return fit
    return None


def _best(fits: Iterable[ForwardFit]) -> tuple[ForwardFit | None, float]:
    """The fit whose first learner gains most, after it, and that gain."""
    return max((_begun(fit) for fit in fits), key=lambda one: one[1])


def _begun(fit: ForwardFit) -> tuple[ForwardFit | None, float]:
    """A fit after its first learner, and what that took off the held-out loss."""
    before = float(fit.held_out_loss())
    if not fit.step():
        return None, 0.0
    fit.flush()
    return fit, before - fit.history.validation[-1]


def finished(first: FittedMember, fits: list[ForwardFit]) -> list[FittedMember]:
    """Stages cut back to the learner after which rows held out were predicted best."""
    stages, before = [], first.n_steps
    for fit in fits:
        n_steps = int(np.argmin(fit.history.validation)) + 1 if fit is fits[-1] else fit.n_steps
        path = fit.path()
        final = FittedExpansion.at(path, n_steps, fit.problem)
        stage = "stage" if len(fits) == 1 else "stages"
        sentence = f"learners of {len(fits)} further {stage} gained ever less on rows held out"
        why = StopReason(sentence, StopKind.MINIMUM)
        held_out = held_out_predictions(fit, final)  # of rows held out, which stages always have
        member = replace(first.member, kernel=fit.problem.kernel, name=f"{first.member.name}, finer")
        stages.append(FittedMember(member, fit, path, final, n_steps, why, held_out, before))
        before += n_steps
    return stages
