"""Which columns of a stored table are inputs and which is the target; which rows an index means.

Shared by all sources that read files: a column is told by its name or its number, a row as NumPy would.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any, SupportsIndex

import numpy as np
from torch import Tensor

from mercer.parts import require

FilePath = str | os.PathLike[str]
Column = str | SupportsIndex

SHOWN_NAMES = 20  # of a long list of columns, in a sentence


def choose_columns(
    path: Any, names: Sequence[str] | None, n_stored: int, target: Column | None, columns: Iterable[Column] | None
) -> tuple[list[int], int | None]:
    """The positions of the input columns, and of the target, in a table of `n_stored` columns.

    >>> choose_columns("table.csv", ["a", "b", "y"], 3, "y", None)
    ([0, 1], 2)
    """
    at = None if target is None else _position(path, names, n_stored, target)
    if columns is None:
        kept = [j for j in range(n_stored) if j != at]
    else:
        several = isinstance(columns, Iterable) and not isinstance(columns, (str, bytes))
        require(several, "columns", "several names or numbers of columns", columns)
        kept = [_position(path, names, n_stored, column) for column in columns]
    if not kept:
        raise ValueError(f"{path} has no input columns besides the target")
    if at in kept:
        raise ValueError(f"{path}: the target {target!r} must not be one of the columns {columns!r}")
    if len(set(kept)) < len(kept):
        raise ValueError(f"{path}: each of the columns must be named once, got {columns!r}")
    return kept, at


def _position(path: Any, names: Sequence[str] | None, n_stored: int, column: Any) -> int:
    if isinstance(column, str):
        found = [j for j, name in enumerate(names or []) if name == column]
        if len(found) > 1:
            raise ValueError(f"{path} must have one column {column!r}, got {len(found)}")
        if not found:
            have = "no column names" if names is None else f"columns {_shown(names)}"
            raise ValueError(f"{path} must have a column {column!r}, got {have}")
        return found[0]
    is_number = isinstance(column, Integral) and not isinstance(column, (bool, np.bool_))
    require(is_number, f"{path}: a column", "a name or an integer", column)
    if not -n_stored <= column < n_stored:
        raise ValueError(f"{path} has {n_stored} columns, got column {column}")
    return int(column) % n_stored


def _shown(names: Sequence[str]) -> str:
    few = list(names)[:SHOWN_NAMES]
    return f"{few}" if len(few) == len(names) else f"{few} and {len(names) - len(few)} more"


def row_numbers(index: Any, n_rows: int) -> np.ndarray:
    """An index as NumPy understands it (negative numbers, a mask) as row numbers from 0 to `n_rows` - 1."""
    rows = np.atleast_1d(index.cpu().numpy() if isinstance(index, Tensor) else np.asarray(index))
    if rows.dtype == bool:
        require(len(rows) == n_rows, "a mask of rows", f"of length {n_rows}", len(rows))
        return np.flatnonzero(rows)
    if rows.size and rows.dtype.kind not in "iu":
        raise IndexError(f"rows must be integers, got {rows.dtype}")
    rows = rows.astype(np.int64)
    outside = (rows < -n_rows) | (rows >= n_rows)
    if outside.any():
        raise IndexError(f"rows must be from {-n_rows} to {n_rows - 1}, got {rows[outside][0]}")
    return np.where(rows < 0, rows + n_rows, rows)
