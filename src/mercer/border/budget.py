"""Seconds that a fit may take, counted from its first line: reading, tuning, growing, polishing, calibrating."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Budget:
    """A time budget that started when it was made; None is without end.

    >>> from mercer.border.budget import Budget
    >>> Budget(None).left(), Budget(10.0).left(share=0.5) <= 5.0
    (inf, True)
    """

    seconds: float | None = None
    began: float = field(default_factory=time.perf_counter)

    def spent(self) -> float:
        """Seconds since the fit began."""
        return time.perf_counter() - self.began

    def left(self, share: float = 1.0) -> float:
        """Seconds until `share` of the budget is spent, never negative."""
        return math.inf if self.seconds is None else max(share * self.seconds - self.spent(), 0.0)
