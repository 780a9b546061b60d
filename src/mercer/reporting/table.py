"""The table of a report: named columns, each of numbers or of text, and the rows as the model takes them.

The model always predicts rows of the kind it was given; columns are read for pictures, tables and baselines only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from mercer.data import RowSource, as_source
from mercer.data.frames import raw_columns
from mercer.data.hashes import hash_rows
from mercer.data.raw import CATEGORICAL, RawColumn
from mercer.preprocessing.validate import host
from mercer.reporting.svg import date, short, shorten

#: The text of a missing level.
MISSING = "missing"


@dataclass(frozen=True)
class Table:
    """Rows as they came (array or pandas frame), and their columns by name, as models read them."""

    X: Any
    names: tuple[str, ...]
    raw: tuple[RawColumn, ...]

    @classmethod
    def of(cls, X: Any, names: Any = None) -> Table:
        """A table from an array, tensor, frame, file or source of rows.

        `names` are those of the model's columns: they order the columns of a frame and name those of an array, which
        are x0, x1, … without them.
        """
        if isinstance(X, str | Path | RowSource):
            X, names = _from_source(as_source(X), None if names is None else [str(name) for name in names])
        X = X.to_pandas() if hasattr(X, "to_pandas") else host(X)
        if hasattr(X, "iloc") and hasattr(X, "columns"):
            X = _in_order(X, names)
            return cls(X, tuple(str(name) for name in X.columns), tuple(raw_columns(X)))
        X = np.asarray(X)
        X = X[:, None] if X.ndim == 1 else X
        labels = tuple(str(name) for name in names) if names is not None else ()
        if len(labels) != X.shape[1]:
            labels = tuple(f"x{j}" for j in range(X.shape[1]))
        return cls(X, labels, tuple(raw_columns(X)))

    @property
    def n_rows(self) -> int:
        return len(self.X)

    @cached_property
    def columns(self) -> tuple[np.ndarray, ...]:
        """Each column as float64 (dates in days since 1970), or as the text of its levels."""
        return tuple(
            np.array([*column.levels, MISSING], dtype=object)[column.values]
            if column.kind in CATEGORICAL
            else column.values
            for column in self.raw
        )

    def is_numeric(self, j: int) -> bool:
        return self.raw[j].kind not in CATEGORICAL

    def part(self, index: np.ndarray) -> Table:
        """Some of the rows."""
        X = self.X.iloc[index] if hasattr(self.X, "iloc") else self.X[index]
        return Table(X, self.names, tuple(replace(column, values=column.values[index]) for column in self.raw))

    def with_value(self, j: int, value: Any) -> Any:
        """The rows with one value everywhere in column j, for the model."""
        X, value = self.X.copy(), self._as_date(j, value)
        if not hasattr(X, "iloc"):
            X = X.astype(np.float64) if X.dtype.kind in "iub" else X  # a grid lies between integers
            X[:, j] = value
            return X
        name = X.columns[j]
        X[name] = value if self.is_numeric(j) else X[name].mask(np.ones(len(X), dtype=bool), value)
        return X

    def mix_rows(self, index: np.ndarray) -> Any:
        """Rows whose cells come from several rows; `index` is the row of each cell."""
        if not hasattr(self.X, "iloc"):
            return self.X[index, np.arange(index.shape[1])]
        rows = self.X.iloc[index[:, 0]].reset_index(drop=True)
        for j in range(1, index.shape[1]):
            rows.isetitem(j, self.X.iloc[index[:, j], j].array)
        return rows

    def _as_date(self, j: int, value: Any) -> Any:
        """A number as a date where the column holds dates."""
        if not self.is_date(j):
            return value
        return np.datetime64(round(value * 86_400e6), "us").astype(object)

    def is_date(self, j: int) -> bool:
        """Whether the numbers of a column are days since 1970."""
        return self.raw[j].kind == "date"

    def format_value(self, j: int, value: Any) -> str:
        """A value of a column in at most 16 letters."""
        if not self.is_numeric(j):
            return shorten(str(value), 16)
        return date(value) if self.is_date(j) and np.isfinite(value) else short(value)

    def cell(self, i: int, j: int) -> Any:
        """One value, as it came."""
        return self.X.iloc[i, j] if hasattr(self.X, "iloc") else self.X[i, j]

    def digest(self) -> str:
        """A hash of all rows, in any order."""
        return f"{hash_rows(self.columns, self.n_rows).sum(dtype=np.uint64):016x}"


def _in_order(frame: Any, names: Any) -> Any:
    """A frame with its columns in the order of `names`, where it has just these."""
    if names is None or len(names) != len(frame.columns) or set(names) != set(frame.columns):
        return frame
    return frame[list(names)]


def _from_source(source: RowSource, names: list[str] | None) -> tuple[Any, Any]:
    """Rows of a source, as a frame where that is possible: models compare names of columns with those of `fit`."""
    if names is not None and source.names() is not None:
        source = source.select(names)  # a file may hold further columns, the targets among them
    found = names if source.names() is None else list(source.names() or ())
    if source.mixed:
        columns = [_column_values(column) for column in source.columns()]
    else:
        columns = list(source.take(np.arange(source.n_rows)).cpu().numpy().T)
    try:
        import pandas
    except ImportError:
        numbers = all(column.dtype.kind in "biuf" for column in columns)
        return np.column_stack(columns if numbers else [column.astype(object) for column in columns]), found
    labels = [f"x{j}" for j in range(len(columns))] if found is None else found
    frame = pandas.DataFrame(dict(enumerate(columns))).set_axis(labels, axis=1)
    return (frame if found is not None or source.mixed else frame.to_numpy()), found


def _column_values(column: RawColumn) -> np.ndarray:
    """The values of a column: numbers, dates, booleans, or the names of levels."""
    if column.kind in CATEGORICAL:
        return np.array([*column.levels, None], dtype=object)[column.values]
    if column.kind == "date":
        times = np.full(len(column.values), np.datetime64("NaT"), dtype="datetime64[us]")
        known = ~column.missing
        times[known] = (column.values[known] * 86_400e6).round().astype(np.int64).view("datetime64[us]")
        return times
    return column.values.astype(bool) if column.kind == "bool" and not column.missing.any() else column.values
