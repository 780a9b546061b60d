"""The rough part of a climb: Adam, each step on another random part of the rows.

A part whose rows weigh n / |part| each has the sums over all rows right on average, so its evidence points where that
of all rows does, at a fraction of the cost. `mercer.evidence.climb` finishes on all rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from mercer.engine import Plan
from mercer.evidence.climb import Coordinates, Evidence, Point

#: Length of a step along a logarithm, and along an inducing input in units of the inputs' spread.
RATE = 0.1
#: Adam's forgetting of slopes and of their squares (Kingma and Ba 2015); squares are forgotten faster than usual,
#: since there are few steps.
MOMENTUM, SQUARES = 0.9, 0.99


def ascend(
    evidence: Callable[[], Evidence],
    start: Point,
    plan: Plan,
    *,
    free: Iterable[str] = ("kernel", "noise", "basis"),
    n_steps: int = 100,
    callback: Callable[[Point], Any] | None = None,
    over: Callable[[], bool] = lambda: False,
) -> Point:
    """`n_steps` steps of Adam from `start`; `evidence()` gives the evidence of a fresh part of the rows.

    The step length falls to zero along a cosine over the second half. A part on which the evidence fails is skipped;
    it ends early where `over()` says so.
    """
    at = Coordinates(start, plan, free)
    x = at.vector.copy()
    rate = np.full_like(x, RATE)
    rate[at.n_log :] /= math.sqrt(len(start.basis))  # the unit of these coordinates is √m times the spread
    low, high = (np.array([pick if pick is not None else end for pick in side]) for side, end in zip(
        zip(*at.bounds, strict=True), (-np.inf, np.inf), strict=True
    ))  # fmt: skip
    first, second = np.zeros_like(x), np.zeros_like(x)
    taken, here = 0, at.point(x)
    for step in range(n_steps):
        if over():
            break
        try:
            slope = at.slope(x, evidence()(here.kernel, here.noise, here.basis)) + at.prior(x)[1]
        except ValueError:
            continue
        if not np.isfinite(slope).all():
            continue
        taken += 1
        first = MOMENTUM * first + (1 - MOMENTUM) * slope
        second = SQUARES * second + (1 - SQUARES) * slope**2
        mean, size = first / (1 - MOMENTUM**taken), np.sqrt(second / (1 - SQUARES**taken))
        late = max(2 * (step + 1) / n_steps - 1, 0.0)
        x = np.clip(x + rate * 0.5 * (1 + math.cos(math.pi * late)) * mean / (size + 1e-12), low, high)
        here = at.point(x)
        if callback is not None:
            callback(here)
    return Point(here.kernel, here.noise, here.basis, n_iter=taken)
