"""When a fit should end before its work is done: its time is used up, or the user interrupted it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass
class Clock:
    """Started with the fit, so that everything counts: reading, choosing, training.

    >>> clock = Clock(time_budget=1e-9)
    >>> clock.over()
    'the time budget of 1e-09 s was used up after 0.0 s'
    >>> Clock().over() is None
    True
    """

    time_budget: float | None = None
    began: float = field(default_factory=time.perf_counter)
    #: Set by a loop that kept what it had when the user interrupted it: what comes after it ends at once.
    interrupted: bool = False

    @property
    def spent(self) -> float:
        """Seconds since the fit began."""
        return time.perf_counter() - self.began

    @property
    def left(self) -> float:
        """Seconds left of the budget, infinitely many where there is none."""
        return float("inf") if self.time_budget is None else self.time_budget - self.spent

    def over(self, ahead: float = 0.0, share: float = 1.0) -> str | None:
        """Why a piece of work that takes `ahead` more seconds should not begin; `share` of the budget is its own."""
        if self.interrupted:
            return f"interrupted after {self.spent:.1f} s"
        if self.time_budget is None or self.spent + ahead < share * self.time_budget:
            return None
        return f"the time budget of {self.time_budget:g} s was used up after {self.spent:.1f} s"
