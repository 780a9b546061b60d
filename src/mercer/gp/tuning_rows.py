"""How many rows a kernel is tuned on where seconds are counted: the exact evidence costs the cube of them."""

from __future__ import annotations

import time

import numpy as np

from mercer.clock import Clock
from mercer.engine.sample import Sample
from mercer.evidence.exact import log_evidence
from mercer.kernels import as_kernel

#: Evaluations of the exact evidence that tuning takes, and the share of the time left that it may.
TUNING_EVALUATIONS, TUNING_SHARE = 120, 0.2
#: Rows on which evaluations are timed.
TIMED_ROWS = 200


def rows_for_tuning(data: Sample, most: int, clock: Clock, rng: np.random.Generator) -> np.ndarray:
    """At most `most` random rows of positive weight; fewer where their tuning would take too much of the time."""
    if not clock.endless and data.n_alive > TIMED_ROWS:
        some = data.part(data.spaced(TIMED_ROWS))
        X, Y, kernel = some.rows.take(np.arange(TIMED_ROWS)).double(), some.Y, as_kernel("gaussian")
        log_evidence(kernel, 0.1, X, Y)  # libraries load on first use
        began = time.perf_counter()
        log_evidence(kernel, 0.1, X, Y)
        each = TUNING_SHARE * clock.left() / TUNING_EVALUATIONS
        growth = (each / data.rows.shard.group.first(lambda: time.perf_counter() - began)) ** (1 / 3)
        most = int(min(most, max(TIMED_ROWS * growth, TIMED_ROWS / 2)))
    return data.draw(most, rng)
