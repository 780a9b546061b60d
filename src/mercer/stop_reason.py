"""Why an iteration ended: a sentence for users that carries a value for programs."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto


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
