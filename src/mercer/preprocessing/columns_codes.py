"""How one column of a user's table becomes coordinates: each way is a frozen record of plain data with `encode`.

Coordinates that are `keeps_unit` have a unit of their own and are not scaled: two different levels are at distance one.
Coordinates of one code share a length-scale. Which code a column gets is decided in `mercer.preprocessing.columns_fit`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from mercer.data.raw import LEVELLED, RawColumn, as_dates, as_levels
from mercer.parts import require

#: Places of levels that are missing, and that `fit` did not see.
MISSING, UNSEEN = -1, -2


@dataclass(frozen=True)
class Code(ABC):
    """A way from the column numbered `column` of the user's table to coordinates."""

    column: int
    keeps_unit: ClassVar[bool] = False
    #: What was done, in words, where that is the same for all columns.
    label: ClassVar[str] = ""

    @property
    def width(self) -> int:
        """How many coordinates it has."""
        return 1

    @abstractmethod
    def encode(self, column: RawColumn) -> np.ndarray:
        """The coordinates of each row, n × width."""

    @property
    def description(self) -> str:
        """What was done, in words."""
        return self.label


@dataclass(frozen=True)
class Value(Code):
    """A number as it is; the median where it is missing, or is the `sentinel` that says so."""

    fill: float
    sentinel: float = np.nan

    def encode(self, column: RawColumn) -> np.ndarray:
        values = numbers(column)
        gone = np.isnan(values) | (values == self.sentinel)
        return np.where(gone, self.fill, values)[:, None]

    @property
    def description(self) -> str:
        also = "" if np.isnan(self.sentinel) else f" or {self.sentinel:.6g}"
        return f"number, {self.fill:.6g} where missing{also}"


@dataclass(frozen=True)
class BooleanCode(Value):
    """0 or 1, at distance one as two levels are."""

    keeps_unit: ClassVar[bool] = True

    @property
    def description(self) -> str:
        return "0 or 1"


@dataclass(frozen=True)
class Rank(Code):
    """The place of an ordered level among those that `fit` saw; the median where it is missing or was never seen."""

    levels: tuple[str, ...]
    fill: float
    label: ClassVar[str] = "rank"

    def encode(self, column: RawColumn) -> np.ndarray:
        place = places(column, self.levels)
        return np.where(place < 0, self.fill, place.astype(np.float64))[:, None]


@dataclass(frozen=True)
class Missing(Code):
    """1 where the value is missing (or is the `sentinel` that says so), 0 elsewhere."""

    sentinel: float = np.nan
    keeps_unit: ClassVar[bool] = True
    label: ClassVar[str] = "missing or not"

    def encode(self, column: RawColumn) -> np.ndarray:
        gone = column.missing
        gone = gone if np.isnan(self.sentinel) else gone | (numbers(column) == self.sentinel)
        return gone.astype(np.float64)[:, None]


@dataclass(frozen=True)
class ByLevel(Code):
    """What depends on the level alone."""

    levels: tuple[str, ...]
    gap: bool  # whether a missing value is a level, the last one

    def place(self, column: RawColumn) -> np.ndarray:
        """The place of each row's level; negative where it has none."""
        place = places(column, self.levels)
        return np.where(place == MISSING, len(self.levels), place) if self.gap else place


@dataclass(frozen=True)
class OneHot(ByLevel):
    """One coordinate for each level, 1/√2 where it holds; a level without one (rare, unseen) is all zeros."""

    keeps_unit: ClassVar[bool] = True

    @property
    def width(self) -> int:
        return len(self.levels) + self.gap

    def encode(self, column: RawColumn) -> np.ndarray:
        place = self.place(column)
        out = np.zeros((len(place), self.width))
        known = np.flatnonzero(place >= 0)
        out[known, place[known]] = np.sqrt(0.5)
        return out

    @property
    def description(self) -> str:
        return f"{self.width} levels"


@dataclass(frozen=True)
class TargetMean(ByLevel):
    """The mean of the targets of each level, drawn towards that of all rows, which stands for levels unseen."""

    means: np.ndarray = field(repr=False)  # levels (and missing) × p
    prior: np.ndarray  # p

    @property
    def width(self) -> int:
        return len(self.prior)

    def encode(self, column: RawColumn) -> np.ndarray:
        place = self.place(column)
        return np.vstack([self.means, self.prior])[np.where(place < 0, len(self.means), place)]

    @property
    def description(self) -> str:
        return f"mean target of each of {len(self.means)}"


@dataclass(frozen=True)
class DayTargetMean(TargetMean):
    """The mean of the targets of each day, whatever the hour, or of each part of a day that is so long."""

    days: float = 1.0

    def place(self, column: RawColumn) -> np.ndarray:
        return super().place(RawColumn(column.name, "date", beginning(numbers(column, "date"), self.days)))

    @property
    def description(self) -> str:
        what = "days" if self.days == 1.0 else f"parts of a day of {24 * self.days:.3g} hours"
        return f"mean target of each of {len(self.means)} {what}"


@dataclass(frozen=True)
class Counts(ByLevel):
    """The logarithm of one and how often a level was seen."""

    counts: np.ndarray = field(repr=False)  # levels (and missing), as logarithms
    label: ClassVar[str] = "frequency"

    def encode(self, column: RawColumn) -> np.ndarray:
        place = self.place(column)
        return np.append(self.counts, 0.0)[np.where(place < 0, len(self.counts), place)][:, None]


@dataclass(frozen=True)
class Cyclic(Code):
    """Time on a circle, by sine and cosine: of day, week or year; its middle where the date is missing."""

    days: float

    @property
    def width(self) -> int:
        return 2

    def encode(self, column: RawColumn) -> np.ndarray:
        angle = 2 * np.pi * np.mod(numbers(column, "date"), self.days) / self.days
        return np.nan_to_num(np.column_stack([np.sin(angle), np.cos(angle)]))

    @property
    def description(self) -> str:
        return f"cycle of {self.days:.6g} days"


@dataclass(frozen=True)
class DayNumber(Code):
    """Days since 1970 by the clock of the column's time zone; the median where the date is missing."""

    fill: float
    label: ClassVar[str] = "days"

    def encode(self, column: RawColumn) -> np.ndarray:
        values = numbers(column, "date")
        return np.where(np.isnan(values), self.fill, values)[:, None]


def beginning(values: np.ndarray, days: float) -> np.ndarray:
    """When the day, or the part of it that is so long, began."""
    return np.floor(values / days) * days


def numbers(column: RawColumn, kind: str = "number") -> np.ndarray:
    """The values of a column that held numbers (or dates) in `fit`; one of nothing but missing values will do."""
    if bool(column.missing.all()):
        return np.full(len(column.values), np.nan)
    column = as_dates(column) if kind == "date" else column
    wanted = ("date",) if kind == "date" else ("number", "bool")
    words = f"{'dates' if kind == 'date' else 'numbers'} as in fit"
    require(column.kind in wanted, f"column {column.name!r} of X", words, f"a column of kind {column.kind!r}")
    return column.values


def places(column: RawColumn, levels: tuple[str, ...]) -> np.ndarray:
    """The place of each row's level among `levels`, `MISSING` or `UNSEEN`; a number is the level of its name."""
    known = {level: place for place, level in enumerate(levels)}
    named = column if column.kind in LEVELLED else as_levels(column)
    return np.array([*(known.get(level, UNSEEN) for level in named.levels), MISSING])[named.values]
