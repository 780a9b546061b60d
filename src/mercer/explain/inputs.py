"""Inputs of an explanation: the columns of the user's table, each with the coordinates it was encoded as."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mercer.data import ArrayRows, RowSource
from mercer.data.raw import CATEGORICAL, RawColumn
from mercer.preprocessing.columns import TableMap
from mercer.preprocessing.columns_read import Constants, HeldRows
from mercer.preprocessing.read import new_table, read_new


@dataclass(frozen=True)
class Inputs:
    """Rows as the model reads them, and as the user wrote them."""

    source: RowSource  # n rows of coordinates
    columns: list[RawColumn] | None  # as they came, where they were not all numbers
    table: TableMap | None
    constants: Constants | None = None

    @classmethod
    def of(cls, model: Any, X: Any) -> Inputs:
        """New rows for a fitted model."""
        table = getattr(model, "table_", None)
        if table is None:
            return cls(read_new(model, X), None, None, getattr(model, "constants_", None))
        columns = new_table(model, X)
        assert isinstance(columns, list)
        return cls(read_new(model, columns), columns, table)

    def values(self, index: np.ndarray, columns: Sequence[int]) -> np.ndarray:
        """Values of some columns in some rows; those of levels are their places among `labels`, NaN is missing."""
        if self.columns is None:
            return self._as_given(index)[:, columns]
        chosen = [self.columns[c] for c in columns]
        return np.column_stack([np.where(column.missing, np.nan, column.values)[index] for column in chosen]).astype(
            np.float64
        )

    def named(self) -> np.ndarray:
        """All rows of the user's table: numbers, or where there are levels, objects with their names."""
        all_rows = np.arange(self.source.n_rows)
        if self.columns is None:
            return self._as_given(all_rows)
        places = range(len(self.columns))
        values = self.values(all_rows, places)
        if not any(self.labels(c) for c in places):
            return values
        out = values.astype(object)
        for c in places:
            if names := self.labels(c):
                known = np.array([*names, None], dtype=object)
                out[:, c] = known[np.nan_to_num(values[:, c], nan=-1).astype(int)]
        return out

    def _as_given(self, index: np.ndarray) -> np.ndarray:
        """Some rows of a table of numbers, with the values that constant columns have now."""
        source = self.source.rows if isinstance(self.source, HeldRows) else self.source
        return source.take(index).double().cpu().numpy()

    def labels(self, column: int) -> tuple[str, ...] | None:
        """The names of a column's levels."""
        if self.columns is None or self.columns[column].kind not in CATEGORICAL:
            return None
        return self.columns[column].levels

    def set_to(self, index: np.ndarray, columns: Sequence[int], values: np.ndarray) -> Any:
        """Some rows with these values in some of their columns, as a model takes them."""
        if self.columns is None:
            rows = self.source.take(index).double().cpu().numpy()
            rows[:, columns] = values
            return ArrayRows(rows)
        out = [replace(column, values=column.values[index]) for column in self.columns]
        for c, value in zip(columns, values, strict=True):
            kind = np.int64 if out[c].kind in CATEGORICAL else np.float64
            out[c] = replace(out[c], values=np.full(len(index), value).astype(kind))
        return out

    def in_a_pair(self, column: int) -> bool:
        """Whether a code takes this column together with another one."""
        codes = () if self.table is None else self.table.codes
        return any(len(code.sources) > 1 and column in code.sources for code in codes)

    def coordinates(self, column: int, values: np.ndarray) -> tuple[list[int], np.ndarray]:
        """Indices of the coordinates that a column is encoded as, and what they are for these values of it."""
        if self.table is None or self.columns is None:
            held = self.constants is not None and column in self.constants.columns
            return ([], np.empty((len(values), 0))) if held else ([column], values[:, None])
        raw = self.columns[column]
        kind = np.int64 if raw.kind in CATEGORICAL else np.float64
        varied = replace(raw, values=values.astype(kind))
        parts = [code.encode(varied) for code in self.table.codes if code.column == column]
        places = np.flatnonzero(self.table.layout.column == column).tolist()
        return places, np.concatenate(parts, 1) if parts else np.empty((len(values), 0))


def groups_of(table: TableMap | None, n_coordinates: int) -> list[list[int]]:
    """The coordinates of each of the user's columns; none for one that was left out."""
    if table is None:
        return [[d] for d in range(n_coordinates)]
    column = table.layout.column
    return [np.flatnonzero(column == c).tolist() for c in range(table.n_columns)]
