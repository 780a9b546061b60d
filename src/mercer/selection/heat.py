"""What the candidates of a race share: a book of what ran, side by side where there are cores, and where to start."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from mercer.clock import Clock
from mercer.progress import report_step
from mercer.selection import constants as c
from mercer.selection.parallel import side_by_side
from mercer.selection.race_rows import Rows
from mercer.selection.track import Rung, Track, Trial

T = TypeVar("T")


@dataclass
class Candidate:
    """A track of one column map and the best trial of one family on it."""

    kind: str
    track: Track
    best: Trial

    @property
    def name(self) -> str:
        return f"{self.kind}, {self.track.path}, {self.best.rung.family}"


def loss_of(one: Candidate) -> float:
    return one.best.loss


def best_of(found: dict[str, Candidate]) -> float:
    """The least loss of several families."""
    return min(map(loss_of, found.values()))


class Book:
    """The time a race may take, and its report; a branch keeps lines of its own."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.last = clock, clock.elapsed()
        self.report: list[dict[str, Any]] = []

    def branch(self) -> Book:
        return Book(self.clock)

    def over(self, share: float = 1.0) -> bool:
        return self.clock.expired(until=share)

    def note(self, name: str, rows: int, loss: float) -> None:
        now = self.clock.elapsed()
        self.report.append({"candidate": name, "rows": rows, "loss": loss, "seconds": now - self.last})
        self.last = now
        report_step("race", state=self.report[-1])


@dataclass
class Heat:
    """What candidates are tried with: the rows, the book, the metrics asked for, where families have ended, and the
    least loss so far."""

    rows: Rows
    book: Book
    metric: str | None
    ends: dict[tuple[str, str], Rung]
    best: float = math.inf

    def note(self, one: Candidate) -> None:
        """A line of the report: the candidate, the rows it was fitted to, and its loss."""
        self.book.note(one.name, sum(len(fold.X) for fold in one.track.folds), one.best.loss)

    def side_by_side(self, tasks: Sequence[Callable[[Heat], T]]) -> list[T]:
        """Tasks with a book and ends of their own, put together in the order given."""
        heats = [replace(self, book=self.book.branch(), ends=dict(self.ends)) for _ in tasks]

        def started(task: Callable[[Heat], T], heat: Heat) -> T:
            heat.book.last = heat.book.clock.elapsed()
            return task(heat)

        found = side_by_side([partial(started, *pair) for pair in zip(tasks, heats, strict=True)], self.rows.device)
        for heat in heats:
            self.book.report += heat.book.report
            self.ends, self.best = heat.ends | self.ends, min(self.best, heat.best)
        self.book.last = self.book.clock.elapsed()
        return found

    def tried(
        self, track: Track, kind: str, starts: dict[str, Rung], families: Sequence[str], most: int, wide: bool = False
    ) -> dict[str, Candidate]:
        """The best of each family near where it starts, or where it ended after the same steps of another map.

        Only the first of a `wide` search leaps along the penalties: a metric calls for the same change of all families.
        """
        out: dict[str, Candidate] = {}
        steps, leapt = track.path, 0
        for family in families:
            known = self.ends.get((steps, family))
            far = math.inf if self.rows.small else c.BEHIND * self.best  # small tables have no round after this one
            if known is None:
                start = starts[family].moved(leapt)
                trial = track.tuned(start, most, far, wide and not out)
                leapt = trial.rung.penalty - start.penalty if wide and not out else leapt
            else:
                trial = track.tuned(known, c.TRIALS_AGAIN, far)
            self.ends.setdefault((steps, family), trial.rung)
            self.best = min(self.best, trial.loss)
            out[family] = Candidate(kind, track, trial)
            self.note(out[family])
        return out
