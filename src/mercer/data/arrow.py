"""Columns of Arrow tables as they came (`mercer.data.frames.RawColumn`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from mercer.data.raw import DAY, RawColumn, level_names
from mercer.parts import require


def arrow_column(name: str, column: Any) -> RawColumn:
    """A column of an Arrow table or record batch."""
    import pyarrow
    from pyarrow import compute, types

    kind = column.type
    if types.is_dictionary(kind) or _is_text(kind):
        whole = column if types.is_dictionary(kind) else column.dictionary_encode()
        whole = whole.unify_dictionaries() if isinstance(whole, pyarrow.ChunkedArray) else whole
        chunks = whole.chunks if isinstance(whole, pyarrow.ChunkedArray) else [whole]
        codes = [chunk.indices.cast("int64").fill_null(-1).to_numpy(zero_copy_only=False) for chunk in chunks]
        levels = level_names(chunks[0].dictionary.to_pylist()) if chunks else ()
        values = np.concatenate(codes) if codes else np.empty(0, dtype=np.int64)
        return RawColumn(name, "ordered" if getattr(kind, "ordered", False) else "category", values, levels)
    if types.is_boolean(kind):
        return RawColumn(name, "bool", _floats(column.cast("uint8").cast("float64")))
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return RawColumn(name, "number", _floats(column.cast("float64", safe=False)))
    if types.is_null(kind):
        return RawColumn(name, "number", np.full(len(column), np.nan))
    if types.is_timestamp(kind) or types.is_date(kind):
        zone = getattr(kind, "tz", None)
        local = compute.local_timestamp(column) if zone else column
        stamps = local.cast(pyarrow.timestamp("us"), safe=False).cast("int64").cast("float64", safe=False)
        return RawColumn(name, "date", _floats(stamps) / (1e6 * DAY), zone=zone or "")
    if types.is_duration(kind):
        spans = column.cast(pyarrow.duration("us"), safe=False).cast("int64").cast("float64", safe=False)
        return RawColumn(name, "number", _floats(spans) / (1e6 * DAY))
    require(False, f"column {name!r} of X", "numbers, dates, truth values or text", kind)
    raise AssertionError


def _floats(column: Any) -> np.ndarray:
    """Numbers as an array, NaN where one is missing."""
    values = column.to_numpy() if hasattr(column, "chunks") else column.to_numpy(zero_copy_only=False)
    return np.array(values, dtype=np.float64)


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return any(test(kind) for test in (types.is_string, types.is_large_string, types.is_string_view))
