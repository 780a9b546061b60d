"""L-BFGS on the evidence of all rows, over the free parts of a point.

It serves exact evidences (kernel and noise) and sparse ones (inducing inputs too).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mercer.clock import Clock, StopKind, StopReason
from mercer.evidence.coordinates import EVERYTHING, LENGTH_SCALE_PRIOR, Coordinates, Evidence, Point
from mercer.linalg import minimize_lbfgs

#: Evaluations in a row that may raise the value by less than the `least_rise` of a search.
IDLE_EVALUATIONS = 8


class _Ended(Exception):
    """The search ends for this reason."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(reason)
        self.reason = reason


def climb(
    evidence: Evidence,
    start: Point,
    *,
    free: Collection[str] = EVERYTHING,
    noise_bounds: tuple[float, float] | None = None,
    length_scale_prior: float | None = LENGTH_SCALE_PRIOR,
    largest: Mapping[str, float] | None = None,
    max_iter: int = 50,
    tol: float = 1e-7,
    gain: float = 0.0,
    patience: int = 1,
    beaten: float = -math.inf,
    least_rise: float = 0.0,
    clock: Clock | None = None,
    callback: Callable[[Point], Any] | None = None,
) -> Point:
    """Maximise `evidence` from `start` by L-BFGS over the `free` parts of the point.

    The search ends when a step gains less than `tol` of the value, when the last `patience` steps gained less than
    `gain` each on average (a share means little for values near zero), after `max_iter` steps, when this average,
    repeated for all steps left, would not reach the value `beaten`, when `IDLE_EVALUATIONS` in a row raised the value
    by less than `least_rise` (line searches end slowly in rounding), or when the clock has expired (time or an
    interrupt). The point returned is the best so far; its `why` is the reason, and its value the evidence without the
    prior. `largest` bounds kernel parameters by name. A point with an evidence that is not finite, or a kernel matrix
    that cannot be factored, is rejected.
    """
    clock = clock or Clock()
    at = Coordinates(start, free, noise_bounds, length_scale_prior, largest)
    best: tuple[float, float, np.ndarray] = (-math.inf, -math.inf, at.vector)  # with the prior, without it, where
    n_iter, before = 0, [-math.inf] * patience  # the values of the last steps
    last_rise, n_idle = -math.inf, 0

    def negative(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best, last_rise, n_idle
        if clock.expired() and best[0] > -math.inf:
            raise _Ended(clock.reason(n_iter))
        seen = at.evaluated(evidence, x)
        if seen is None:
            return 1e25, np.zeros_like(x)
        value, with_prior, slope = seen
        if with_prior > best[0]:
            best = with_prior, value, x.copy()
        n_idle += 1
        if with_prior > last_rise + least_rise:
            last_rise, n_idle = with_prior, 0
        if least_rise and n_idle == IDLE_EVALUATIONS:
            sentence = f"{n_idle} evaluations raised the evidence by less than {least_rise:g} after {n_iter} steps"
            raise _Ended(StopReason(sentence, StopKind.CONVERGED))
        return -with_prior, -slope

    def stepped(x: np.ndarray, loss: float) -> None:
        nonlocal n_iter
        n_iter += 1
        if callback is not None:
            callback(at.point(x))
        gained = (best[0] - before.pop(0)) / patience
        if gained < gain or best[0] + (max_iter - n_iter) * gained < beaten:
            raise _Ended(StopReason(f"a step gained too little after {n_iter} steps", StopKind.CONVERGED))
        before.append(best[0])

    why = StopReason("nothing was left to optimise", StopKind.CONVERGED)
    try:
        if not at.vector.size or max_iter == 0:
            negative(at.vector)
        else:
            done = minimize_lbfgs(negative, at.vector, at.bounds, stepped, maxiter=max_iter, ftol=tol, maxcor=20)
            why = _reason(done.status, max_iter, tol, n_iter)
    except _Ended as ended:
        why = ended.reason
    except KeyboardInterrupt:
        if best[0] == -math.inf:  # nothing to keep
            raise
        clock.interrupt()
        why = clock.reason(n_iter)
    return replace(at.point(best[2]), value=best[1], n_iter=n_iter, why=why)


def _reason(status: int, max_iter: int, tol: float, n_iter: int) -> StopReason:
    """Why scipy's L-BFGS-B ended: 0 is convergence, 1 its limit of steps, 2 a line search that found nothing."""
    if status == 0:
        return StopReason(f"a step gained less than {tol:g} of the evidence after {n_iter} steps", StopKind.CONVERGED)
    if status == 1:
        return StopReason(f"after the {max_iter} steps allowed", StopKind.MAX_ITER)
    sentence = f"no step along the search direction raises the evidence any more after {n_iter} steps"
    return StopReason(sentence, StopKind.EXHAUSTED)
