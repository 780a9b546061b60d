"""The rough part of a search: Adam, each step on another random part of the rows.

A part whose rows weigh n / |part| each has the sums over all rows right on average, so its evidence points where that
of all rows does, at a fraction of the cost. `mercer.evidence.lbfgs` finishes on all rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import numpy as np

from mercer.clock import Clock
from mercer.evidence.coordinates import EVERYTHING, LENGTH_SCALE_PRIOR, Coordinates, Evidence, Point

#: Length of a step along a logarithm, and along an inducing input in units of the inputs' spread.
RATE = 0.1
#: Adam's forgetting of slopes and of their squares (Kingma and Ba 2015); squares are forgotten faster than usual,
#: since there are few steps.
MOMENTUM, SQUARES = 0.9, 0.99
#: Parts at the end whose evidences are averaged.
AVERAGED = 10


def ascend(
    evidence: Callable[[], Evidence],
    start: Point,
    *,
    free: Collection[str] = EVERYTHING,
    noise_bounds: tuple[float, float] | None = None,
    length_scale_prior: float | None = LENGTH_SCALE_PRIOR,
    n_steps: int = 100,
    clock: Clock | None = None,
    callback: Callable[[Point], Any] | None = None,
) -> Point:
    """`n_steps` steps of Adam from `start`; `evidence()` gives the evidence of a fresh part of the rows.

    The step length falls to zero along a cosine over the second half. A part on which the evidence fails is skipped;
    it ends early where the clock is over, and an interrupt ends it where it stands. The value of the point returned is
    the mean of the last parts' evidences, which stands for that of all rows.
    """
    clock = Clock() if clock is None else clock
    at = Coordinates(start, free, noise_bounds, length_scale_prior)
    x = at.vector.copy()
    rate = np.full_like(x, RATE)
    rate[at.n_log :] /= math.sqrt(1 if start.basis is None else len(start.basis))  # their unit is √m times the spread
    first, second = np.zeros_like(x), np.zeros_like(x)
    taken, values = 0, [-math.inf]
    try:
        for step in range(n_steps):
            if clock.over():
                break
            seen = at.evaluated(evidence(), x)
            if seen is None:
                continue
            value, _, slope = seen
            values.append(value)
            taken += 1
            first = MOMENTUM * first + (1 - MOMENTUM) * slope
            second = SQUARES * second + (1 - SQUARES) * slope**2
            mean, size = first / (1 - MOMENTUM**taken), np.sqrt(second / (1 - SQUARES**taken))
            late = max(2 * (step + 1) / n_steps - 1, 0.0)
            x = x + rate * 0.5 * (1 + math.cos(math.pi * late)) * mean / (size + 1e-12)
            x = np.clip(x, at.low, at.high)
            if callback is not None:
                callback(at.point(x))
    except KeyboardInterrupt:
        clock.interrupt()
    why = clock.reason(taken) if clock.over() else f"after the {n_steps} steps allowed"
    late_values = values[1:][-AVERAGED:] or values
    return replace(at.point(x), value=float(np.mean(late_values)), n_iter=taken, why=why)
