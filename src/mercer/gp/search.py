"""Search for kernel, noise and inducing inputs, and the numbers of rows that a time budget allows.

A search goes from one start or several. `best_family` selects the family of
kernels for classes, `rows_for_tuning` the rows on which a kernel is tuned before, and `FinalPass` those of the pass
that follows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from mercer.clock import Clock
from mercer.engine.plan import Sample
from mercer.evidence.coordinates import Evidence, Point
from mercer.evidence.exact import log_evidence
from mercer.evidence.optimise import BOUND_STEPS, LARGE_BOUND_STEPS, PLAIN_STEPS, explore, optimise
from mercer.evidence.starts import elsewhere, plain_start, spread_rows
from mercer.gp.svgp import StochasticEvidence
from mercer.gp.task import GPTask, choose_rows
from mercer.kernels import Kernel, as_kernel
from mercer.selection.tune import FAMILIES

#: Inducing inputs and steps for each family of kernels, and the share of the remaining time for all families.
FAMILY_INDUCING, FAMILY_STEPS, FAMILY_SHARE = 32, 25, 0.25
#: Evaluations of the exact evidence that tuning takes, and its share of the remaining time.
TUNING_EVALUATIONS, TUNING_SHARE = 120, 0.2
#: Rows on which an evaluation of the exact evidence is timed.
TUNED_ROWS = 200
#: Rows on which the final pass is timed, and the largest share of the remaining time that is reserved for it.
TIMED_ROWS, RESERVED_SHARE = 2000, 0.4


@dataclass(frozen=True)
class SparseSearch:
    """Maximise the evidence of a task over its `free` parts."""

    task: GPTask
    evidence: Callable[[Sample], Evidence]
    free: set[str]
    max_iter: int
    tol: float
    length_scale_prior: float | None
    clock: Clock
    callback: Callable[[Point], Any] | None = None

    def run(self, start: Point) -> tuple[np.ndarray, Point]:
        """Return the rows and the end of the best start; further starts have other rows and length-scales."""
        n_starts = 1 + (self.task.n_restarts if self.free else 0)
        found = [self._from(start, self.clock.part(1 / n_starts))]
        for n_left in range(n_starts - 1, 0, -1):
            if self.clock.expired():
                break
            other = replace(start, kernel=elsewhere(start.kernel, self.task.rng)) if "kernel" in self.free else start
            found.append(self._from(other, self.clock.part(1 / n_left)))
        return max(found, key=lambda rows_and_point: rows_and_point[1].value)

    def _from(self, start: Point, clock: Clock) -> tuple[np.ndarray, Point]:
        """Place the inducing inputs by the kernel of the start, and search from there.

        Only Titsias' bound is maximised to its end where inducing inputs move. Other evidences then fit the noise: on
        three problems of two classes all steps of L-BFGS instead of a quarter raised SPGP's log loss by 0.4 to 4 %.
        """
        index, Z = self.task.start(start.kernel, start.noise, self.task.n_inducing)
        self.task.data.plan.require_square(len(Z) * self.task.data.Y.shape[1])
        moves: dict[str, Any] = {
            "rng": self.task.rng,
            "free": self.free,
            "tol": self.tol,
            "length_scale_prior": self.length_scale_prior,
            "clock": clock,
            "callback": self.callback,
        }
        if isinstance(self.evidence, StochasticEvidence):
            return index, self.evidence.search(replace(start, basis=Z), self.task.data, max_iter=self.max_iter, **moves)
        bound = self.task.approximation.bound
        ends = "basis" not in self.free or bound or self.max_iter == 0
        bound_steps = LARGE_BOUND_STEPS if self.task.has_many_rows else BOUND_STEPS
        return index, optimise(
            self.evidence,
            replace(start, basis=Z),
            self.task.data,
            n_rough=self.max_iter,
            max_iter=self.max_iter if ends else max(self.max_iter // 4, 1),
            adam=bound_steps if bound else PLAIN_STEPS,
            **moves,
        )


def best_family(
    task: GPTask,
    evidence: Callable[[Sample], Evidence],
    first_kernel: Callable[[Kernel], Kernel],
    ard: bool | str,
    n_rows: int,
    free: set[str],
    length_scale_prior: float | None,
) -> Kernel:
    """Select the family of kernels for classes by its evidence after a few steps; return the kernel they led to.

    Families are tried from the smoothest on, all on the same rows (at most `n_rows`, which stand for all), until one
    has less evidence than the one before. `first_kernel` makes a plain kernel the first of a search. The exact
    evidence of ±1 codes as numbers, which other estimators use, takes the jumps of the codes for roughness: on
    friedman1's two halves it prefers Matérn 1/2 (log loss 0.21) to the Gaussian (0.15).
    """
    data, rng, n = task.data, task.rng, task.data.n_alive
    X, group = spread_rows(data), data.rows.shard.group
    if n > n_rows or data.rows.shard.divided:
        part = data.part(data.draw(n_rows, rng))
        data = replace(part, weight=part.weight * (n / part.n_rows))
    seed, clock = int(rng.integers(2**31)), task.clock.part(FAMILY_SHARE)

    def found() -> Kernel:
        best = Point(first_kernel(plain_start(FAMILIES[0], X, ard)))
        for family in FAMILIES:
            kernel = first_kernel(plain_start(family, X, ard))
            same_rng = np.random.default_rng(seed)
            index = choose_rows("k-means++", data, kernel, 0.1, FAMILY_INDUCING, same_rng)
            Z = data.rows.take(index).to(data.plan.device, data.plan.dtype)
            trial = explore(
                evidence,
                Point(kernel, basis=Z, groups=data.column_groups),
                data,
                rng=same_rng,
                n_steps=FAMILY_STEPS,
                clock=clock,
                free=free,
                length_scale_prior=length_scale_prior,
            )
            if trial.value <= best.value:
                break
            best = trial
        return best.kernel

    return group.first(found)


def rows_for_tuning(data: Sample, most: int, clock: Clock, rng: np.random.Generator) -> np.ndarray:
    """Draw at most `most` rows of positive weight; fewer if tuning, which costs their cube, would take too long."""
    if not clock.unlimited and data.n_alive > TUNED_ROWS:
        part = data.part(data.spaced(TUNED_ROWS))
        X, Y, kernel = part.rows.take(np.arange(TUNED_ROWS)).double(), part.Y, as_kernel("gaussian")
        log_evidence(kernel, 0.1, X, Y)  # libraries load on first use
        began = time.perf_counter()
        log_evidence(kernel, 0.1, X, Y)
        affordable = TUNING_SHARE * clock.remaining() / TUNING_EVALUATIONS
        growth = (affordable / data.rows.shard.group.first(lambda: time.perf_counter() - began)) ** (1 / 3)
        most = int(min(most, max(TUNED_ROWS * growth, TUNED_ROWS / 2)))
    return data.draw(most, rng)


@dataclass(frozen=True)
class FinalPass:
    """The pass over the rows after a search, and the seconds that it takes per row; zero without a time budget."""

    seconds_per_row: float = 0.0

    @classmethod
    def timed(cls, fit: Callable[[Sample, Tensor], Any], m: int, data: Sample, clock: Clock) -> FinalPass:
        """Time ``fit(rows, inducing inputs)`` on some of the rows, with as many inducing inputs as there will be."""
        if clock.unlimited or data.n_total <= 2 * TIMED_ROWS:
            return cls()
        part = data.part(data.spaced(TIMED_ROWS))
        Z = part.rows.take(np.arange(min(m, part.rows.n_rows))).to(data.plan.device, data.plan.dtype)
        began = time.perf_counter()
        fit(part, Z)
        return cls(data.rows.shard.group.first(lambda: (time.perf_counter() - began) / part.rows.n_rows))

    def before(self, clock: Clock, n_rows: int) -> Clock:
        """The clock of the search before the final pass."""
        if clock.unlimited:
            return clock
        remaining = clock.remaining()
        return Clock(remaining - min(self.seconds_per_row * n_rows, RESERVED_SHARE * remaining), parent=clock)

    def rows(self, data: Sample, clock: Clock, rng: np.random.Generator) -> Sample:
        """All rows, or as many random ones as the remaining time allows."""
        n = data.n_total
        if self.seconds_per_row * n <= clock.remaining() or clock.interrupted:
            return data
        affordable = max(int(clock.remaining() / self.seconds_per_row), TIMED_ROWS)
        return data if affordable >= n else data.part(np.sort(rng.choice(n, affordable, replace=False)))
