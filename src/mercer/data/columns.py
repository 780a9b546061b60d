"""Choice of input and target columns of a file, and row indices.

Shared by all sources that read files: columns are given by name or number, rows by any index that NumPy accepts.
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

SHOWN_NAMES = 20  # of a long list of columns, in an error message


def choose_columns(
    path: Any, names: Sequence[str] | None, n_stored: int, target: Column | None, columns: Iterable[Column] | None
) -> tuple[list[int], int | None]:
    """Return the positions of the input columns, and of the target, in a table of `n_stored` columns.

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


def row_indices(index: Any, n_rows: int) -> np.ndarray:
    """Convert an index as NumPy accepts it (negative numbers, a mask) to row indices from 0 to `n_rows` - 1."""
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
