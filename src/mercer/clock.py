"""The time budget of a fit, and interruptions by the user.

A fit has one clock. It starts with the first line of `fit`, so reading, model selection, growing, polishing and
calibration all count. A loop asks whether the clock has expired and, if so, keeps what it has.

An iteration says why it ended by a `StopReason`: a sentence for users that carries a value for programs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Any, TypeVar

T = TypeVar("T")


class StopKind(Enum):
    """The kinds of ends that an iteration may come to."""

    TIME_BUDGET = auto()  #: the seconds of the fit are used up
    INTERRUPTED = auto()  #: the user pressed Ctrl-C
    CALLBACK = auto()  #: a callback asked for it
    MAX_ITER = auto()  #: the largest number of iterations was made before convergence
    SIZE = auto()  #: the model has as many learners as were asked for
    CONVERGED = auto()  #: an iteration changes less than the tolerance
    MINIMUM = auto()  #: a curve, such as the validation error, has passed its minimum
    EXHAUSTED = auto()  #: no candidate or step improves the model any more
    EXACT = auto()  #: the solution is exact


class StopReason(str):
    """A sentence, with the kinds of ends that it tells of.

    It is a `str`: users print it, search it and save it. Code asks `kinds_of`, never the words.

    >>> reason = StopReason("the time budget of 2 s was used up", StopKind.TIME_BUDGET)
    >>> reason.noting("the last pass saw 9 rows")
    'the time budget of 2 s was used up; the last pass saw 9 rows'
    >>> StopKind.TIME_BUDGET in kinds_of(reason.noting("more")), kinds_of("words of a file")
    (True, frozenset())
    """

    kinds: frozenset[StopKind]

    def __new__(cls, sentence: str, *kinds: StopKind) -> StopReason:
        made = super().__new__(cls, sentence)
        made.kinds = frozenset(kinds)
        return made

    @classmethod
    def joined(cls, reasons: Iterable[str]) -> StopReason:
        """Join the reasons of several iterations, each distinct sentence once."""
        reasons = list(reasons)
        return cls("; ".join(dict.fromkeys(reasons)), *(kind for reason in reasons for kind in kinds_of(reason)))

    def noting(self, note: str) -> StopReason:
        """Append a clause to the sentence."""
        return StopReason(f"{self}; {note}", *self.kinds)


def kinds_of(reason: str) -> frozenset[StopKind]:
    """Return the kinds of a reason; a plain string, as older model files have, has none."""
    return reason.kinds if isinstance(reason, StopReason) else frozenset()


#: The reason of an iteration that still goes on.
RUNNING = StopReason("")


class Clock:
    """Counts seconds from its creation; a budget of None is unlimited.

    A clock with a `parent` expires no later than the parent, and an interruption of one interrupts the other.

    >>> from mercer.clock import Clock
    >>> Clock().expired(), Clock().remaining(), Clock(10.0).remaining(until=0.5) <= 5.0
    (False, inf, True)
    >>> Clock(1e-9).expired(), Clock(1e-9).stop_reason()
    (True, 'the time budget of 1e-09 s was used up after 0.0 s')
    >>> clock = Clock(10.0)
    >>> half = clock.part(0.5)
    >>> half.interrupt()
    >>> half.remaining() <= 5.0, clock.stop_reason()
    (True, 'interrupted after 0.0 s')
    """

    def __init__(self, seconds: float | None = None, parent: Clock | None = None, group: Any = None) -> None:
        self.began = time.perf_counter()
        #: Processes that end together (`mercer.data.shard`): the first one measures the time for all.
        self.group: Any = group if parent is None else parent.group
        self.seconds = seconds
        self.parent = parent
        self._interrupted = self._by_key = False

    @property
    def interrupted(self) -> bool:
        return self._interrupted or (self.parent is not None and self.parent.interrupted)

    def interrupt(self, by_key: bool = True) -> None:
        """Expire at once, and the parent too: called by a loop that keeps what it has when the user interrupts it.

        `by_key` says that Ctrl-C was pressed; a callback may ask for the same without it.
        """
        self._interrupted = True
        self._by_key = self._by_key or by_key
        if self.parent is not None:
            self.parent.interrupt(by_key)

    def raise_interrupt(self) -> None:
        """Raise the KeyboardInterrupt that a loop held back, so that loops around the fit end, too."""
        if self._by_key:
            raise KeyboardInterrupt

    def elapsed(self) -> float:
        """Seconds since creation; with a budget, as measured by the first process."""
        seconds = time.perf_counter() - self.began
        return seconds if self.unlimited else self._on_first(lambda: seconds)

    def remaining(self, until: float = 1.0) -> float:
        """Seconds until a share `until` of the budget is used: infinity without a budget, zero once interrupted."""
        return self._on_first(lambda: self._remaining(until))

    def expired(self, needing: float = 0.0, until: float = 1.0) -> bool:
        """Whether work that takes `needing` more seconds would end after a share `until` of the budget."""
        return self._on_first(lambda: self.interrupted or self.remaining(until) <= needing)

    def stop_reason(self) -> StopReason:
        """Why work ended after the clock expired, as a sentence about the whole fit."""
        return self._on_first(self._stop_reason)

    @property
    def unlimited(self) -> bool:
        """Whether neither this clock nor a parent has a budget."""
        return self.seconds is None and (self.parent is None or self.parent.unlimited)

    def part(self, share: float) -> Clock:
        """A clock for this share of the remaining time."""
        return Clock(None if self.unlimited else share * self.remaining(), parent=self)

    def reason(self, n_iter: int) -> StopReason:
        """Why a search ended after `n_iter` steps."""
        if self.interrupted:
            return StopReason(f"it was interrupted after {n_iter} steps", StopKind.INTERRUPTED)
        return StopReason(f"the time budget was spent after {n_iter} steps", StopKind.TIME_BUDGET)

    def _on_first(self, measure: Callable[[], T]) -> T:
        return measure() if self.group is None else self.group.first(measure)

    def _remaining(self, until: float) -> float:
        if self.interrupted:
            return 0.0
        seconds = math.inf if self.seconds is None else max(until * self.seconds - self.elapsed(), 0.0)
        return seconds if self.parent is None else min(seconds, self.parent.remaining())

    def _stop_reason(self) -> StopReason:
        root = self
        while root.parent is not None:
            root = root.parent
        if self.interrupted or root.seconds is None:
            return StopReason(f"interrupted after {root.elapsed():.1f} s", StopKind.INTERRUPTED)
        sentence = f"the time budget of {root.seconds:g} s was used up after {root.elapsed():.1f} s"
        return StopReason(sentence, StopKind.TIME_BUDGET)
