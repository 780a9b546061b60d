"""What a page says of one printed number, and of one printed claim; all papers have the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from papers.judge import Verdict, judge
from papers.measure import CHECKED, OLD, Store


@dataclass(frozen=True)
class Row:
    """One printed number beside ours: by the printed protocol, and as the package is used today, a value a split.

    `runs` and `spread` are those of the printed number. `better` says which numbers are good: "higher", "lower", or
    "neither" (sizes). `cells` are the beginnings of the names of the cells behind ours.
    """

    where: str
    what: str
    printed: float
    ours: Sequence[float]
    cells: Sequence[str]
    today: Sequence[float] = ()
    spread: float | None = None
    runs: int = 1
    better: str = "higher"
    n_test: int | None = None

    @property
    def verdict(self) -> Verdict | None:
        """None where nothing is measured yet."""
        if not len(self.ours):
            return None
        given = {"n_test": self.n_test, "printed_spread": self.spread, "printed_runs": self.runs}
        return judge(self.ours, self.printed, higher=self.better != "lower", **given)

    @property
    def word(self) -> str:
        found = self.verdict
        word = "not measured" if found is None else found.word
        return {"better": "more", "worse": "fewer"}.get(word, word) if self.better == "neither" else word


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, and whether our numbers bear it out (None: not measured)."""

    where: str
    what: str
    holds: bool | None
    outcome: str
    cells: Sequence[str] = field(default=())

    @property
    def word(self) -> str:
        return {True: "so here", False: "differs", None: "not measured"}[self.holds]


@dataclass(frozen=True)
class Drift:
    """A cell that a test makes again: the number compared, how far it may move and why.

    `short` are further arguments by which the function makes only the beginning of the cell.
    """

    key: str
    within: float
    why: str
    short: tuple[int, ...] = ()


def mark(store: Store, line: Row | Claim) -> str:
    """The worst mark of the cells behind a line."""
    behind = {store.mark(name) for name in store.cells if line.cells and name.startswith(tuple(line.cells))}
    return OLD if OLD in behind else CHECKED if CHECKED in behind else ""


def per_split(cells: dict[str, dict], key: str) -> list[float]:
    """One number of every cell that has it."""
    return [float(cell[key]) for cell in cells.values() if cell.get(key) is not None]
