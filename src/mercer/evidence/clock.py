"""When a search must end: its seconds are spent, or somebody interrupted it."""

from __future__ import annotations

import math
import time

from mercer.data import Group
from mercer.data.group import ALONE


class Clock:
    """Counts down from its making; whoever catches an interrupt tells it, and every later stage ends at once.

    >>> from mercer.evidence.clock import Clock
    >>> Clock().over(), Clock(1e-9).over()
    (False, True)
    """

    def __init__(self, seconds: float | None = None, within: Clock | None = None, group: Group = ALONE) -> None:
        end = math.inf if seconds is None else time.perf_counter() + seconds
        self.end: float = end if within is None else min(end, within.end)
        self.within: Clock | None = within
        self.interrupted = False
        #: Processes that end together: the first one looks at its watch for all.
        self.group: Group = group if within is None else within.group

    def left(self) -> float:
        """Seconds left; infinity where nobody counts, zero once interrupted."""
        return self.group.first(lambda: 0.0 if self._stopped() else max(self.end - time.perf_counter(), 0.0))

    def over(self) -> bool:
        return self.left() <= 0

    def part(self, share: float) -> Clock:
        """A clock for this share of the time left."""
        return Clock(None if math.isinf(self.end) else share * self.left(), within=self)

    def interrupt(self) -> None:
        self.interrupted = True
        if self.within is not None:
            self.within.interrupt()

    def _stopped(self) -> bool:
        return self.interrupted or (self.within is not None and self.within._stopped())

    def reason(self, n_iter: int) -> str:
        what = "it was interrupted" if self._stopped() else "the time budget was spent"
        return f"{what} after {n_iter} steps"
