"""Read `groups` and `time_order` of `fit`: arrays, or names of columns of a frame."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np

from mercer.data.frames import column_names
from mercer.data.raw import is_missing
from mercer.data.row_groups import RowGroups
from mercer.parts import as_float, require
from mercer.preprocessing.validate import host

#: A day in microseconds: dates are counted in days.
DAY = 86_400_000_000


def read_row_groups(X: Any, groups: Any, time_order: Any, gap: Any) -> RowGroups | None:
    """The groups or times of the rows; None where neither is given.

    >>> read_row_groups(None, ["b", "a", "b"], None, None).key.tolist()
    [1, 0, 1]
    >>> read_row_groups(None, None, np.array(["2024-01-02", "2024-01-01"], dtype="datetime64[D]"), 7).gap
    7.0
    """
    require(groups is None or time_order is None, "groups", "None where time_order is given", type(groups))
    require(gap is None or time_order is not None, "gap", "None unless time_order is given", gap)
    if groups is None and time_order is None:
        return None
    if time_order is None:
        return RowGroups(_labels(_column(X, groups, "groups")))
    return RowGroups(_times(_column(X, time_order, "time_order")), ordered=True, gap=_length(gap))


def require_groups(found: RowGroups | None, n_rows: int) -> None:
    """Refuse another number of rows, and rows that cannot be split."""
    if found is None:
        return
    name = "time_order" if found.ordered else "groups"
    require(len(found.key) == n_rows, name, f"of {n_rows} values, one for each row", len(found.key))
    wanted = "two different times" if found.ordered else "two different groups"
    require(len(np.unique(found.key)) > 1, name, f"of at least {wanted}", found.key[0])


def _column(X: Any, values: Any, name: str) -> np.ndarray:
    """One value for each row, from an array or from the column of that name."""
    if isinstance(values, str):
        names = column_names(X) or []
        wanted = f"an array, or a column of X: {', '.join(names)}" if names else "an array where X is not a frame"
        require(values in names, name, wanted, values)
        values = X[values]
    values = np.asarray(host(values))
    require(values.ndim == 1, name, "of one dimension", values.shape)
    missing = np.flatnonzero(
        np.isnat(values) if values.dtype.kind in "Mm" else [is_missing(v) for v in values.tolist()]
    )
    require(not len(missing), name, "given for each row", f"a missing value in row {missing[:1]}")
    return values


def _labels(values: np.ndarray) -> np.ndarray:
    """Numbers of groups, in the order of their sorted labels."""
    try:
        return np.unique(values, return_inverse=True)[1].reshape(-1)
    except TypeError:
        kinds = sorted({type(value).__name__ for value in values})
        require(False, "groups", "labels of one type", " and ".join(kinds))
        raise


def _times(values: np.ndarray) -> np.ndarray:
    """Times as numbers; dates as days since 1970."""
    if values.dtype.kind in "biuf":
        times = values.astype(np.float64)
        require(bool(np.isfinite(times).all()), "time_order", "finite", "an infinite value")
        return times
    first = values[0] if len(values) else None
    dates = values.dtype.kind == "M" or (values.dtype.kind == "O" and isinstance(first, datetime.date))
    require(dates, "time_order", "numbers or dates", f"{first} of type {type(first).__name__}")
    if values.dtype.kind == "O":  # times with a zone become those of UTC
        values = np.array([_without_zone(value) for value in values], dtype="datetime64[us]")
    return values.astype("datetime64[us]").astype(np.int64) / DAY


def _without_zone(value: Any) -> Any:
    zone = getattr(value, "tzinfo", None)
    return value if zone is None else value.astimezone(datetime.UTC).replace(tzinfo=None)


def _length(gap: Any) -> float:
    """The gap in units of the times: days for dates."""
    if isinstance(gap, datetime.timedelta | np.timedelta64):
        gap = np.timedelta64(gap).astype("timedelta64[us]").astype(np.int64) / DAY
    length = 0.0 if gap is None else as_float(gap)
    require(0 <= length < np.inf, "gap", "a length of time of at least 0", gap)
    return length
