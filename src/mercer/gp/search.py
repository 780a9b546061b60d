"""A search for a sparse Gaussian process: from few inducing inputs to all of them, from one start or several."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mercer.clock import Clock
from mercer.engine.sample import Sample
from mercer.evidence.coordinates import Evidence, Point
from mercer.evidence.lbfgs import climb
from mercer.evidence.optimise import WORTHWHILE, explore, optimise
from mercer.evidence.starts import elsewhere
from mercer.gp.task import GPTask
from mercer.stop_reason import StopReason

#: Inducing inputs on which kernel and noise are looked for before all of them are placed, where more than twice as
#: many are asked for: a step costs a 25th of one on 500, and the surface has fewer bumps.
FEW_INDUCING = 100
#: Rows per inducing input from which on it pays to go on with Adam once all are there: they then have far to go, and
#: take this many times as many steps as the few. On KIN40K half as many steps as the few left a sixth more error.
MANY_ROWS, LONGER = 8, 3
#: Share of the time for those few.
FEW_SHARE = 0.6


@dataclass(frozen=True)
class SparseSearch:
    """How the model of a task is looked for: what moves, how many steps, until when.

    `near` says whether kernel and noise are nearly right from the start.
    """

    task: GPTask
    evidence: Callable[[Sample], Evidence]
    free: set[str]
    max_iter: int
    tol: float
    length_scale_prior: float | None
    clock: Clock
    callback: Callable[[Point], Any] | None = None
    near: bool = False

    def run(self, start: Point) -> tuple[np.ndarray, Point]:
        """The rows of the best start, and where it led: further starts have other rows and length-scales."""
        n_starts = 1 + (self.task.n_restarts if self.free else 0)
        found = [self._uphill(start, self.clock.part(1 / n_starts), self.near)]
        for left in range(n_starts - 1, 0, -1):
            if self.clock.expired():
                break
            other = replace(start, kernel=elsewhere(start.kernel, self.task.rng)) if "kernel" in self.free else start
            found.append(self._uphill(other, self.clock.part(1 / left)))
        return max(found, key=lambda one: one[1].value)

    def _uphill(self, start: Point, clock: Clock, near: bool = False) -> tuple[np.ndarray, Point]:
        """One search: where everything moves, on few inducing inputs first, then from there on all of them.

        Those few have the kernel and the noise nearly right, and the others are placed by its length-scales. Where
        there are few rows for each of them, L-BFGS goes on at once. On 3000 rows of friedman1 that takes a tenth of the
        time of hundreds of steps on 500 inducing inputs, and ends at lower errors and better densities: those steps
        fit the noise. A start that is `near` needs neither those few nor as many steps.
        """
        data, rng, steps = self.task.data, self.task.rng, self.max_iter
        shared: dict[str, Any] = {"free": self.free, "length_scale_prior": self.length_scale_prior}
        shared["callback"] = self.callback
        m, group = min(self.task.n_inducing, data.n_total), data.rows.shard.group
        many, whole = data.n_total > MANY_ROWS * m, shared | {"clock": clock, "tol": self.tol}
        moving = self.free >= {"kernel", "basis"}  # classes have no noise
        few_first = moving and m > 2 * FEW_INDUCING and self.task.draws and steps > 0
        if near and few_first:
            index, begun = self._placed(start, m)
            return index, climb(self.evidence(data), begun, max_iter=max(steps // (8 if many else 16), 1), **whole)
        if not few_first:
            index, begun = self._placed(start, m)
            return index, optimise(self.evidence, begun, data, rng=rng, max_iter=steps, **whole)
        _, begun = self._placed(start, FEW_INDUCING)
        began, part = time.perf_counter(), clock.part(FEW_SHARE)
        rough = explore(self.evidence, begun, data, rng=rng, n_steps=steps, clock=part, **shared)
        each = group.first(lambda: (time.perf_counter() - began) / max(rough.n_iter, 1))
        index, begun = self._placed(rough, m)
        n, plan = data.n_total, data.plan
        growth = min(n, plan.part_rows(m)) / min(n, plan.part_rows(FEW_INDUCING)) * (m / FEW_INDUCING) ** 2
        if clock.remaining() < WORTHWHILE * each * growth:
            why = part.reason(rough.n_iter)
            return index, replace(begun, why=StopReason(f"{why} on {FEW_INDUCING} inducing inputs", *why.kinds))
        if many:
            found = optimise(self.evidence, begun, data, rng=rng, max_iter=LONGER * steps, **whole)
        else:
            found = climb(self.evidence(data), begun, max_iter=max(steps // 8, 1), **whole)
        return index, replace(found, n_iter=rough.n_iter + found.n_iter)

    def _placed(self, point: Point, m: int) -> tuple[np.ndarray, Point]:
        index, Z = self.task.start(point.kernel, point.noise, m)
        self.task.data.plan.require_square(len(Z) * self.task.data.Y.shape[1])
        return index, replace(point, basis=Z)
