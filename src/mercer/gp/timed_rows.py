"""Where seconds are counted: how many rows a kernel is tuned on, and how many the last pass over them sees."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from mercer.clock import Clock
from mercer.engine.sample import Sample
from mercer.evidence.exact import log_evidence
from mercer.kernels import as_kernel
from mercer.stop_reason import StopReason

#: Rows on which a pass is timed, and the share of the time left that is kept back for the last one at most.
TIMED_ROWS, KEPT_BACK = 2000, 0.4
#: Evaluations of the exact evidence that tuning takes, and the share of the time left that it may.
TUNING_EVALUATIONS, TUNING_SHARE = 120, 0.2
#: Rows on which evaluations are timed.
TUNED_ROWS = 200


@dataclass(frozen=True)
class FinalPass:
    """Seconds that a row of the last pass takes; zero where nobody counts."""

    of_a_row: float = 0.0

    @classmethod
    def timed(cls, fit: Callable[[Sample, Tensor], Any], m: int, data: Sample, clock: Clock) -> FinalPass:
        """Time ``fit(rows, inducing inputs)`` on a few of the rows, with as many inducing inputs as there will be."""
        if clock.unlimited or data.n_total <= 2 * TIMED_ROWS:
            return cls()
        some = data.part(data.spaced(TIMED_ROWS))
        Z = some.rows.take(np.arange(min(m, some.rows.n_rows))).to(data.plan.device, data.plan.dtype)
        began = time.perf_counter()
        fit(some, Z)
        return cls(data.rows.shard.group.first(lambda: (time.perf_counter() - began) / some.rows.n_rows))

    def before(self, clock: Clock, n_rows: int) -> Clock:
        """The clock of what comes before the last pass."""
        if clock.unlimited:
            return clock
        left = clock.remaining()
        return Clock(left - min(self.of_a_row * n_rows, KEPT_BACK * left), parent=clock)

    def rows(self, data: Sample, clock: Clock, rng: np.random.Generator) -> Sample:
        """All rows, or as many random ones as the time left allows."""
        n = data.n_total
        if self.of_a_row * n <= clock.remaining() or clock.interrupted:
            return data
        affordable = max(int(clock.remaining() / self.of_a_row), TIMED_ROWS)
        return data if affordable >= n else data.part(np.sort(rng.choice(n, affordable, replace=False)))


def in_words(why: StopReason, seen: Sample, data: Sample) -> StopReason:
    """Why a search ended, and on how many rows the last pass was made if not on all."""
    if seen is data:
        return why
    return why.noting(f"the last pass saw {seen.rows.n_rows} of {data.n_total} rows")


def rows_for_tuning(data: Sample, most: int, clock: Clock, rng: np.random.Generator) -> np.ndarray:
    """At most `most` random rows of positive weight; fewer where tuning, which costs their cube, takes too long."""
    if not clock.unlimited and data.n_alive > TUNED_ROWS:
        some = data.part(data.spaced(TUNED_ROWS))
        X, Y, kernel = some.rows.take(np.arange(TUNED_ROWS)).double(), some.Y, as_kernel("gaussian")
        log_evidence(kernel, 0.1, X, Y)  # libraries load on first use
        began = time.perf_counter()
        log_evidence(kernel, 0.1, X, Y)
        each = TUNING_SHARE * clock.remaining() / TUNING_EVALUATIONS
        growth = (each / data.rows.shard.group.first(lambda: time.perf_counter() - began)) ** (1 / 3)
        most = int(min(most, max(TUNED_ROWS * growth, TUNED_ROWS / 2)))
    return data.draw(most, rng)
