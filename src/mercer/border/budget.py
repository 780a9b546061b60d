"""Seconds that a fit may take, counted from its first line: reading, tuning, growing, polishing, calibrating."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

from mercer.data import Group
from mercer.data.group import ALONE


@dataclass(frozen=True)
class Budget:
    """A time budget that started when it was made; None is without end.

    >>> from mercer.border.budget import Budget
    >>> Budget(None).left(), Budget(10.0).left(share=0.5) <= 5.0
    (inf, True)
    """

    seconds: float | None = None
    began: float = field(default_factory=time.perf_counter)
    #: Processes that fit together: the first one looks at its watch for all.
    group: Group = ALONE

    def spent(self) -> float:
        """Seconds since the fit began."""
        return self.group.first(lambda: time.perf_counter() - self.began)

    def left(self, share: float = 1.0) -> float:
        """Seconds until `share` of the budget is spent, never negative."""
        return math.inf if self.seconds is None else max(share * self.seconds - self.spent(), 0.0)
