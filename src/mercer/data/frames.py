"""Read the columns of data frames, Arrow tables and arrays as `RawColumn`: numbers, dates, or codes of levels.

pandas and polars are recognised by their methods and not imported; pyarrow is imported by the functions that read its
columns. `mercer.preprocessing.columns` encodes the columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mercer.data.raw import (
    DAY,
    RawColumn,
    days,
    factorize,
    integer_column,
    is_missing,
    level_names,
    object_column,
)
from mercer.parts import require


def is_frame(X: Any) -> bool:
    """Whether `X` is a pandas or polars frame, or something like one."""
    return all(hasattr(X, name) for name in ("columns", "dtypes", "to_numpy"))


def is_arrow(X: Any) -> bool:
    """Whether `X` is an Arrow table or record batch."""
    return all(hasattr(X, name) for name in ("schema", "column_names", "num_rows")) and not is_frame(X)


def column_names(X: Any) -> list[str] | None:
    """Return the names of the columns, if all of them are text."""
    names = list(X.columns) if is_frame(X) else list(X.column_names) if is_arrow(X) else None
    return names if names is not None and all(isinstance(name, str) for name in names) else None


def raw_columns(X: Any) -> list[RawColumn]:
    """Read the columns of a frame, an Arrow table, or an array; those of an array are called x0, x1, …"""
    if is_arrow(X):
        return [arrow_column(str(name), X.column(j)) for j, name in enumerate(X.column_names)]
    if is_frame(X):
        polars = hasattr(X, "get_columns")
        series = X.get_columns() if polars else [X.iloc[:, j] for j in range(X.shape[1])]
        read = _polars if polars else _pandas
        return [read(str(name), column) for name, column in zip(X.columns, series, strict=True)]
    return [_array(f"x{j}", X[:, j]) for j in range(X.shape[1])]


def holds_numbers(dtype: Any) -> bool:
    """Whether a column of this pandas (these have a `kind`) or polars dtype holds numbers or booleans."""
    if hasattr(dtype, "kind"):
        return dtype.kind in "biuf" and not hasattr(dtype, "categories")
    return dtype.is_numeric() or str(dtype) == "Boolean"


def _pandas(name: str, series: Any) -> RawColumn:
    dtype = series.dtype
    kind = getattr(dtype, "kind", "O")
    require(kind != "c", f"column {name!r} of X", "real numbers: complex data not supported", dtype)
    if hasattr(dtype, "categories"):
        levels = level_names(dtype.categories)
        return RawColumn(name, "ordered" if dtype.ordered else "category", series.cat.codes.to_numpy(np.int64), levels)
    if kind in "biuf":
        values = series.to_numpy(dtype=np.float64, na_value=np.nan)
        if kind in "iu":
            return integer_column(name, values, series.tolist)
        return RawColumn(name, "bool" if kind == "b" else "number", values)
    if kind == "m":
        return RawColumn(name, "number", days(series.to_numpy("timedelta64[us]")))
    if hasattr(dtype, "freq") and hasattr(series.dt, "to_timestamp"):  # months and quarters become their first instants
        return _pandas(name, series.dt.to_timestamp())
    if kind == "M":
        zone = getattr(dtype, "tz", None) or getattr(getattr(dtype, "pyarrow_dtype", None), "tz", None)
        local = series if zone is None else series.dt.tz_localize(None)
        return RawColumn(name, "date", days(local.to_numpy("datetime64[us]")), zone="" if zone is None else str(zone))
    values = series.to_numpy(dtype=object)
    return object_column(name, values, series.isna().to_numpy(dtype=bool))


def _polars(name: str, series: Any) -> RawColumn:
    dtype = series.dtype
    text = str(dtype)
    if dtype.is_integer():
        return integer_column(name, series.cast(float).to_numpy(), series.to_list)
    if dtype.is_numeric():
        return RawColumn(name, "number", series.cast(float).to_numpy())
    if text == "Boolean":
        return RawColumn(name, "bool", series.cast(float).to_numpy())
    if text.startswith(("Date", "Datetime")):
        zone = getattr(dtype, "time_zone", None)
        local = series if zone is None else series.dt.replace_time_zone(None)
        stamps = local.dt.epoch("us").cast(float).to_numpy() / (1e6 * DAY)
        return RawColumn(name, "date", stamps, zone=zone or "")
    if text.startswith("Duration"):
        return RawColumn(name, "number", series.dt.total_microseconds().cast(float).to_numpy() / (1e6 * DAY))
    if text.startswith(("String", "Utf8", "Categorical", "Enum")):
        codes, levels = factorize(series.cast(str).to_list())
        return RawColumn(name, "category", codes, levels, text=text.startswith(("String", "Utf8")))
    return object_column(name, np.array([*series.to_list(), None], dtype=object)[:-1], series.is_null().to_numpy())


def _array(name: str, values: np.ndarray) -> RawColumn:
    kind = values.dtype.kind
    if kind in "iu":
        return integer_column(name, values.astype(np.float64), values.tolist)
    if kind in "bf":
        return RawColumn(name, "bool" if kind == "b" else "number", values.astype(np.float64))
    if kind in "US":
        codes, levels = factorize(values.tolist())
        return RawColumn(name, "category", codes, levels, text=True)
    if kind == "M":
        return RawColumn(name, "date", days(values.astype("datetime64[us]")))
    require(kind == "O", f"column {name!r} of X", "numbers, dates, booleans or text", values.dtype)
    return object_column(name, values, np.array([is_missing(value) for value in values], dtype=bool))


def arrow_column(name: str, column: Any) -> RawColumn:
    """Read a column of an Arrow table or record batch."""
    import pyarrow
    from pyarrow import compute, types

    kind = column.type
    column = column if isinstance(column, pyarrow.ChunkedArray) else pyarrow.chunked_array([column])
    if types.is_dictionary(kind) or is_text(kind):
        encoded = (column if types.is_dictionary(kind) else column.dictionary_encode()).combine_chunks()
        values = encoded.indices.cast("int64").fill_null(-1).to_numpy(zero_copy_only=False)
        levels = level_names(encoded.dictionary.to_pylist())
        ordered = "ordered" if getattr(kind, "ordered", False) else "category"
        return RawColumn(name, ordered, values, levels, text=not types.is_dictionary(kind))
    if types.is_boolean(kind):
        return RawColumn(name, "bool", _floats(column.cast("uint8").cast("float64")))
    if types.is_integer(kind):
        return integer_column(name, _floats(column.cast("float64", safe=False)), column.to_pylist)
    if types.is_floating(kind) or types.is_decimal(kind):
        return RawColumn(name, "number", _floats(column.cast("float64", safe=False)))
    if types.is_null(kind):
        return RawColumn(name, "number", np.full(len(column), np.nan))
    if types.is_timestamp(kind) or types.is_date(kind):
        zone = getattr(kind, "tz", None)
        local = compute.local_timestamp(column) if zone else column
        stamps = local.cast(pyarrow.timestamp("us"), safe=False).cast("int64").cast("float64", safe=False)
        return RawColumn(name, "date", _floats(stamps) / (1e6 * DAY), zone=zone or "")
    if types.is_duration(kind) or types.is_time(kind):  # a time of the day is a duration since midnight
        unit = pyarrow.duration("us") if types.is_duration(kind) else pyarrow.time64("us")
        spans = column.cast(unit, safe=False).cast("int64").cast("float64", safe=False)
        return RawColumn(name, "number", _floats(spans) / (1e6 * DAY))
    require(False, f"column {name!r} of X", "numbers, dates, booleans or text", kind)
    raise AssertionError


def _floats(column: Any) -> np.ndarray:
    """Convert numbers to an array, missing ones to NaN."""
    return np.array(column.to_numpy(), dtype=np.float64)


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is text."""
    from pyarrow import types

    return any(test(kind) for test in (types.is_string, types.is_large_string, types.is_string_view))
