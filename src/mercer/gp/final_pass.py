"""The last pass over the rows, and the time it needs: where seconds are counted, some are kept back for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from mercer.clock import Clock
from mercer.engine.sample import Sample

#: Rows on which a pass is timed, and the share of the time left that is kept back for the last one at most.
TIMED_ROWS, KEPT_BACK = 2000, 0.4


@dataclass(frozen=True)
class FinalPass:
    """Seconds that a row of the last pass takes; zero where nobody counts."""

    of_a_row: float = 0.0

    @classmethod
    def timed(cls, fit: Callable[[Sample, Tensor], Any], m: int, data: Sample, clock: Clock) -> FinalPass:
        """Time ``fit(rows, inducing inputs)`` on a few of the rows, with as many inducing inputs as there will be."""
        if clock.endless or data.n_total <= 2 * TIMED_ROWS:
            return cls()
        some = data.part(data.spaced(TIMED_ROWS))
        Z = some.rows.take(np.arange(min(m, some.rows.n_rows))).to(data.plan.device, data.plan.dtype)
        began = time.perf_counter()
        fit(some, Z)
        return cls(data.rows.shard.group.first(lambda: (time.perf_counter() - began) / some.rows.n_rows))

    def before(self, clock: Clock, n_rows: int) -> Clock:
        """The clock of what comes before the last pass."""
        if clock.endless:
            return clock
        left = clock.left()
        return Clock(left - min(self.of_a_row * n_rows, KEPT_BACK * left), within=clock)

    def rows(self, data: Sample, clock: Clock, rng: np.random.Generator) -> Sample:
        """All rows, or as many random ones as the time left allows."""
        n = data.n_total
        if self.of_a_row * n <= clock.left() or clock.interrupted:
            return data
        affordable = max(int(clock.left() / self.of_a_row), TIMED_ROWS)
        return data if affordable >= n else data.part(np.sort(rng.choice(n, affordable, replace=False)))


def in_words(why: str, seen: Sample, data: Sample) -> str:
    """Why a search ended, and on how many rows the last pass was made if not on all."""
    if seen is data:
        return why
    return f"{why}; the last pass saw {seen.rows.n_rows} of {data.n_total} rows"
