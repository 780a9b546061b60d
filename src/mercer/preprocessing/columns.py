"""Codes that turn the columns of a user's table into coordinates: frozen records, fitted once, applied to any rows.

`mercer.preprocessing.columns_fit` decides which codes a column gets. Coordinates that keep their unit are not scaled:
two different levels are at distance one. Coordinates of one code share a length-scale. Kernels see these coordinates
through the map of `mercer.preprocessing.inputs`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from tqdm.auto import tqdm

from mercer.data.raw import CATEGORICAL, RawColumn, as_levels, parse_dates
from mercer.parts import require

#: Integer codes of a missing level, and of a level that `fit` did not see.
MISSING, UNSEEN = -1, -2


@dataclass(frozen=True)
class Code(ABC):
    """A map from one column of the user's table to coordinates."""

    column: int
    keeps_unit: ClassVar[bool] = False

    @property
    def width(self) -> int:
        """Number of coordinates."""
        return 1

    @property
    def sources(self) -> tuple[int, ...]:
        """The columns that `encode` takes."""
        return (self.column,)

    @property
    def parts(self) -> tuple[tuple[int, bool], ...]:
        """Numbers of coordinates that share a length-scale, and whether these keep their unit."""
        return ((self.width, self.keeps_unit),)

    @abstractmethod
    def encode(self, column: RawColumn, *others: RawColumn) -> np.ndarray:
        """The coordinates of each row, n × width; `others` are further `sources`."""

    @property
    def description(self) -> str:
        """The code in words; empty where a description of the column says it."""
        return ""


@dataclass(frozen=True)
class Value(Code):
    """A number as it is; the median replaces missing values.

    Models of version 0.2.0 may have a `sentinel`, a number that stands for missing values.
    """

    fill: float
    sentinel: float = np.nan

    def encode(self, column: RawColumn, *others: RawColumn) -> np.ndarray:
        values = numbers(column)
        missing = np.isnan(values) | (values == self.sentinel)
        return np.where(missing, self.fill, values)[:, None]

    @property
    def description(self) -> str:
        also = "" if np.isnan(self.sentinel) else f" or {self.sentinel:.6g}"
        return f"number, {self.fill:.6g} where missing{also}"


@dataclass(frozen=True)
class BooleanCode(Value):
    """0 or 1, at distance one like two levels."""

    keeps_unit: ClassVar[bool] = True
    description = "0 or 1"


@dataclass(frozen=True)
class Rank(Code):
    """The rank of an ordered level among those that `fit` saw; the median replaces missing and unseen levels."""

    levels: tuple[str, ...]
    fill: float
    description = "rank"

    def encode(self, column: RawColumn, *others: RawColumn) -> np.ndarray:
        index = level_indices(column, self.levels)
        return np.where(index < 0, self.fill, index.astype(np.float64))[:, None]


@dataclass(frozen=True)
class Missing(Code):
    """1 where the value is missing or is the `sentinel` of a `Value`, 0 elsewhere."""

    sentinel: float = np.nan
    keeps_unit: ClassVar[bool] = True
    description = "missing or not"

    def encode(self, column: RawColumn, *others: RawColumn) -> np.ndarray:
        missing = column.missing
        missing = missing if np.isnan(self.sentinel) else missing | (numbers(column) == self.sentinel)
        return missing.astype(np.float64)[:, None]


@dataclass(frozen=True)
class ByLevel(Code):
    """Base of codes that depend on the level alone."""

    levels: tuple[str, ...]
    gap: bool  # whether "missing" is a level, the last one

    def level_index(self, column: RawColumn) -> np.ndarray:
        """The integer code of each row's level; negative where it has none."""
        index = level_indices(column, self.levels)
        return np.where(index == MISSING, len(self.levels), index) if self.gap else index


@dataclass(frozen=True)
class OneHot(ByLevel):
    """One-hot codes of 1/√2; rare and unseen levels are all zeros."""

    keeps_unit: ClassVar[bool] = True

    @property
    def width(self) -> int:
        return len(self.levels) + self.gap

    def encode(self, column: RawColumn, *others: RawColumn) -> np.ndarray:
        index = self.level_index(column)
        out = np.zeros((len(index), self.width))
        known = np.flatnonzero(index >= 0)
        out[known, index[known]] = np.sqrt(0.5)
        return out

    @property
    def description(self) -> str:
        return f"{self.width} levels"


@dataclass(frozen=True)
class TargetMean(ByLevel):
    """The mean target of each level, shrunk towards the mean of all rows, which replaces unseen levels."""

    means: np.ndarray = field(repr=False)  # levels (and missing) × p
    prior: np.ndarray  # p

    @property
    def width(self) -> int:
        return len(self.prior)

    def encode(self, column: RawColumn, *others: RawColumn) -> np.ndarray:
        index = self.level_index(column)
        return np.vstack([self.means, self.prior])[np.where(index < 0, len(self.means), index)]

    @property
    def description(self) -> str:
        return f"mean target of each of {len(self.means)}"


@dataclass(frozen=True)
class DayTargetMean(TargetMean):
    """The mean target of each day, or of each part of a day that is `days` long."""

    days: float = 1.0

    def level_index(self, column: RawColumn) -> np.ndarray:
        return super().level_index(RawColumn(column.name, "date", period_start(numbers(column, "date"), self.days)))

    @property
    def description(self) -> str:
        what = "days" if self.days == 1.0 else f"parts of a day of {24 * self.days:.3g} hours"
        return f"mean target of each of {len(self.means)} {what}"


@dataclass(frozen=True)
class Counts(ByLevel):
    """The logarithm of one plus the number of rows of a level."""

    counts: np.ndarray = field(repr=False)  # levels (and missing), as logarithms
    description = "frequency"

    def encode(self, column: RawColumn, *others: RawColumn) -> np.ndarray:
        index = self.level_index(column)
        return np.append(self.counts, 0.0)[np.where(index < 0, len(self.counts), index)][:, None]


@dataclass(frozen=True)
class Cyclic(Code):
    """Sine and cosine of the time of day, week or year; zeros where the date is missing."""

    days: float
    width = 2

    def encode(self, column: RawColumn, *others: RawColumn) -> np.ndarray:
        angle = 2 * np.pi * np.mod(numbers(column, "date"), self.days) / self.days
        return np.nan_to_num(np.column_stack([np.sin(angle), np.cos(angle)]))

    @property
    def description(self) -> str:
        return f"cycle of {self.days:.6g} days"


@dataclass(frozen=True)
class CyclicNumber(Code):
    """The place of a number on a circle of unit radius, which it goes round once in a `period`; zeros where missing.

    >>> hour = RawColumn("hour", "number", np.array([0.0, 6.0, 24.0]))
    >>> CyclicNumber(0, 24.0).encode(hour).round(6).tolist()
    [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
    """

    period: float
    keeps_unit: ClassVar[bool] = True
    width = 2

    def encode(self, column: RawColumn, *others: RawColumn) -> np.ndarray:
        angle = 2 * np.pi * np.mod(numbers(column), self.period) / self.period
        return np.nan_to_num(np.column_stack([np.sin(angle), np.cos(angle)]))

    @property
    def description(self) -> str:
        return f"cycle of {self.period:.6g}"


@dataclass(frozen=True)
class Place(Code):
    """The unit vector of a latitude and a longitude in degrees; zeros where one of them is missing.

    Distances between places are chords: short ones are those along the ground, everywhere on the sphere.

    >>> latitude = RawColumn("lat", "number", np.array([0.0, 90.0, 0.0]))
    >>> longitude = RawColumn("lon", "number", np.array([180.0, 17.0, -180.0]))
    >>> (Place(0, 1).encode(latitude, longitude).round(6) + 0.0).tolist()
    [[-1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [-1.0, 0.0, 0.0]]
    """

    longitude: int
    keeps_unit: ClassVar[bool] = True
    width = 3

    @property
    def sources(self) -> tuple[int, ...]:
        return self.column, self.longitude

    def encode(self, column: RawColumn, *others: RawColumn) -> np.ndarray:
        both = (column, *others)
        degrees = [numbers(angle) for angle in both]
        for column, values, most in zip(both, degrees, (90.0, 360.0), strict=True):
            far = values[np.abs(values) > most]
            wanted = f"of degrees between -{most:g} and {most:g}"
            require(not len(far), f"column {column.name!r} of X", wanted, float(far[0]) if len(far) else None)
        north, east = np.deg2rad(degrees)
        vectors = np.column_stack([np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)])
        return np.where(np.isnan(vectors).any(1, keepdims=True), 0.0, vectors)


@dataclass(frozen=True)
class DayNumber(Code):
    """Days since 1970 in the column's time zone; the median replaces missing dates."""

    fill: float
    description = "days"

    def encode(self, column: RawColumn, *others: RawColumn) -> np.ndarray:
        values = numbers(column, "date")
        return np.where(np.isnan(values), self.fill, values)[:, None]


def period_start(values: np.ndarray, days: float) -> np.ndarray:
    """The beginning of the period of length `days` that holds each time."""
    return np.floor(values / days) * days


def numbers(column: RawColumn, kind: str = "number") -> np.ndarray:
    """The values of a column that held numbers (or dates) in `fit`; NaN where all values are missing now."""
    if bool(column.missing.all()):
        return np.full(len(column.values), np.nan)
    column = parse_dates(column) if kind == "date" else column
    wanted = ("date",) if kind == "date" else ("number", "bool")
    words = f"{'dates' if kind == 'date' else 'numbers'} as in fit"
    require(column.kind in wanted, f"column {column.name!r} of X", words, column.example)
    return column.values


def level_indices(column: RawColumn, levels: tuple[str, ...]) -> np.ndarray:
    """The index of each row's level in `levels`, `MISSING` or `UNSEEN`; a number is the level of its name."""
    known = {level: index for index, level in enumerate(levels)}
    named = column if column.kind in CATEGORICAL else as_levels(column)
    return np.array([*(known.get(level, UNSEEN) for level in named.levels), MISSING])[named.values]


@dataclass(frozen=True)
class Layout:
    """For each coordinate: its column of the user's table, the group that shares its length-scale, its unit.

    `n_columns` is the number of columns of the user's table.
    """

    column: np.ndarray
    group: np.ndarray
    keeps_unit: np.ndarray
    n_columns: int
    #: The coordinates that each of several models sees, where columns are encoded twice.
    views: tuple[np.ndarray, ...] = ()

    def per_column(self, values: np.ndarray) -> np.ndarray:
        """Sums of non-negative numbers, one per coordinate (last axis), over each column of the user's table."""
        belongs = self.column[:, None] == np.arange(self.n_columns)
        return values @ belongs


@dataclass(frozen=True)
class ColumnDescription:
    """A column as `fit` found it, and its encoding."""

    name: str
    kind: str
    levels: int
    missing: float
    map: str
    zone: str = ""  # the time zone of dates that have one


@dataclass(frozen=True)
class TableMap:
    """The codes of all columns of a table, and their descriptions.

    >>> size = ColumnDescription("size", "number", 0, 0.0, "number")
    >>> kind = ColumnDescription("kind", "category", 2, 0.0, "2 levels")
    >>> table = TableMap((Value(0, 1.5), OneHot(1, ("ash", "oak"), False)), (size, kind))
    >>> rows = [RawColumn("size", "number", np.array([2.0])), RawColumn("kind", "category", np.array([0]), ("oak",))]
    >>> table.encode(rows).round(2).tolist(), table.layout.column.tolist()
    ([[2.0, 0.0, 0.71]], [0, 1, 1])
    """

    codes: tuple[Code, ...]
    described: tuple[ColumnDescription, ...]

    @property
    def n_columns(self) -> int:
        """Number of columns of the user's table."""
        return len(self.described)

    @property
    def layout(self) -> Layout:
        """Which coordinate belongs to which column."""
        widths = [code.width for code in self.codes]
        parts = [part for code in self.codes for part in code.parts]
        sizes = [size for size, _ in parts]
        return Layout(
            np.repeat([code.column for code in self.codes], widths).astype(int),
            np.repeat(np.arange(len(sizes)), sizes),
            np.repeat([keeps_unit for _, keeps_unit in parts], sizes).astype(bool),
            self.n_columns,
            tuple(np.repeat(view, widths) for view in self._views()),
        )

    def _views(self) -> list[list[bool]]:
        """For columns encoded twice, the codes of two models: without target means, and without one-hot codes."""
        one_hot = {code.column for code in self.codes if type(code) is OneHot}
        twice = one_hot & {code.column for code in self.codes if type(code) is TargetMean}
        if not twice:
            return []
        return [
            [code.column not in twice or not isinstance(code, hidden) for code in self.codes]
            for hidden in (TargetMean | Counts, OneHot)
        ]

    def encode(self, columns: Sequence[RawColumn]) -> np.ndarray:
        """The coordinates of rows given by the user's columns, in the order of `fit`; n × D."""
        return np.concatenate([code.encode(*(columns[k] for k in code.sources)) for code in self.codes], axis=1)

    def print_codes(self) -> None:
        """Print the codes of each column above the progress bar."""
        for column in self.described:
            missing = f", {100 * column.missing:.3g} % missing" if column.missing else ""
            tqdm.write(f"column {column.name!r} ({column.kind}{missing}): {column.map}")


def column_table(model: Any) -> list[dict[str, Any]]:
    """The attribute `columns_` of a fitted model: a list of dictionaries, one per column, which any frame takes."""
    table: TableMap | None = getattr(model, "table_", None)
    if table is None:
        names = getattr(model, "feature_names_in_", [f"x{j}" for j in range(model.n_features_in_)])
        constants = getattr(model, "constants_", None)
        constant = np.zeros(len(names), dtype=bool) if constants is None else constants.mask(len(names))
        maps = np.where(constant, "left out: constant", "number").tolist()
        described = [ColumnDescription(str(name), "number", 0, 0.0, map) for name, map in zip(names, maps, strict=True)]
    else:
        described = list(table.described)
    lengths = _length_scales(model, table, len(described))
    unknown = np.full(len(described), np.nan)
    relevance = np.asarray(getattr(model, "relevance_", unknown))
    relevance = relevance if relevance.shape == unknown.shape else unknown
    return [
        {**vars(column), "length_scale": float(length), "relevance": float(share)}
        for column, length, share in zip(described, lengths, relevance, strict=True)
    ]


def _length_scales(model: Any, table: TableMap | None, n: int) -> np.ndarray:
    """The shortest length-scale among the coordinates of each column, by the metric of the first kernel.

    It is infinite for columns left out, and NaN where the model has no metric.
    """
    M = getattr(model, "metric_", None)
    if M is None:
        return np.full(n, np.nan)
    column = np.arange(n) if table is None else table.layout.column
    constants = getattr(model, "constants_", None)
    steepest = np.zeros(n)
    np.maximum.at(steepest, column, np.diag(M))
    steepest[[] if constants is None else constants.columns] = 0.0
    with np.errstate(divide="ignore"):
        return 1 / np.sqrt(steepest)
