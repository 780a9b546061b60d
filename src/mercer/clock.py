"""When work should end before it is done: the seconds of a fit are used up, or the user interrupted it.

There is one clock of a fit. It starts with the first line of `fit`, so that reading, tuning, growing, polishing and
calibrating all count; whoever loops asks it, and keeps what it has when the clock says why to end.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, TypeVar

from mercer.stop_reason import StopKind, StopReason

T = TypeVar("T")


class Clock:
    """Counts from its making; None is without end. A clock `within` another ends with it, and interrupts it too.

    >>> from mercer.clock import Clock
    >>> Clock().over() is None, Clock().left(), Clock(10.0).left(share=0.5) <= 5.0
    (True, inf, True)
    >>> Clock(1e-9).over()
    'the time budget of 1e-09 s was used up after 0.0 s'
    >>> whole = Clock(10.0)
    >>> half = whole.part(0.5)
    >>> half.interrupt()
    >>> half.left() <= 5.0, whole.over()
    (True, 'interrupted after 0.0 s')
    """

    def __init__(self, seconds: float | None = None, within: Clock | None = None, group: Any = None) -> None:
        self.began = time.perf_counter()
        #: Processes that end together (`mercer.data.group`): the first one looks at its watch for all.
        self.group: Any = group if within is None else within.group
        self.seconds, self.within = seconds, within
        self._interrupted = self._by_key = False

    @property
    def interrupted(self) -> bool:
        return self._interrupted or (self.within is not None and self.within.interrupted)

    def interrupt(self, by_key: bool = True) -> None:
        """Said by a loop that keeps what it has when the user interrupts it: what comes after it ends at once.

        `by_key` says that Ctrl-C was pressed; a callback may ask for the same without it.
        """
        self._interrupted, self._by_key = True, self._by_key or by_key
        if self.within is not None:
            self.within.interrupt(by_key)

    def raise_interrupt(self) -> None:
        """Raise the KeyboardInterrupt that a loop kept back, so that loops around the fit end, too."""
        if self._by_key:
            raise KeyboardInterrupt

    def spent(self) -> float:
        """Seconds since it was made, of the first process for all; where nobody counts, they decide nothing."""
        seconds = time.perf_counter() - self.began
        return seconds if self.endless else self._for_all(lambda: seconds)

    def _for_all(self, look: Callable[[], T]) -> T:
        return look() if self.group is None else self.group.first(look)

    def left(self, share: float = 1.0) -> float:
        """Seconds until `share` of them is spent: infinity where nobody counts, zero once interrupted."""
        return self._for_all(lambda: self._left(share))

    def _left(self, share: float) -> float:
        if self.interrupted:
            return 0.0
        own = math.inf if self.seconds is None else max(share * self.seconds - self.spent(), 0.0)
        return own if self.within is None else min(own, self.within.left())

    def over(self, ahead: float = 0.0, share: float = 1.0) -> StopReason | None:
        """Why a piece of work that takes `ahead` more seconds should not begin; `share` of them is its own."""
        return self._for_all(lambda: self._over(ahead, share))

    def _over(self, ahead: float, share: float) -> StopReason | None:
        if not self.interrupted and self.left(share) > ahead:
            return None
        whole = self
        while whole.within is not None:
            whole = whole.within
        if self.interrupted or whole.seconds is None:
            return StopReason(f"interrupted after {whole.spent():.1f} s", StopKind.INTERRUPTED)
        sentence = f"the time budget of {whole.seconds:g} s was used up after {whole.spent():.1f} s"
        return StopReason(sentence, StopKind.TIME_BUDGET)

    @property
    def endless(self) -> bool:
        """Whether nobody counts."""
        return self.seconds is None and (self.within is None or self.within.endless)

    def part(self, share: float) -> Clock:
        """A clock for this share of the time left."""
        return Clock(None if self.endless else share * self.left(), within=self)

    def reason(self, n_iter: int) -> StopReason:
        """Why a search of so many steps ended."""
        if self.interrupted:
            return StopReason(f"it was interrupted after {n_iter} steps", StopKind.INTERRUPTED)
        return StopReason(f"the time budget was spent after {n_iter} steps", StopKind.TIME_BUDGET)
