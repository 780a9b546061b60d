"""Signs of slopes that a user asks for by `monotonic_cst`: of columns, and of coordinates of the encoded table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mercer.parts import require
from mercer.preprocessing.columns import BooleanCode, Missing, Rank, Value
from mercer.preprocessing.columns_read import column_index
from mercer.preprocessing.read import TableData


def has_signs(given: Any) -> bool:
    """Whether `monotonic_cst` constrains any column.

    >>> has_signs([0, 0]), has_signs({"age": -1}), has_signs(None)
    (False, True, False)
    """
    if given is None:
        return False
    return any(sign != 0 for sign in (given.values() if isinstance(given, dict) else given))


def column_signs(given: Any, names: Sequence[str]) -> np.ndarray:
    """The sign of each column, from an array or a dict of column names or numbers."""
    signs = np.zeros(len(names), dtype=int)
    if given is None:
        return signs
    if isinstance(given, dict):
        for column, sign in given.items():
            signs[column_index(column, names, "monotonic_cst")] = sign
        return signs
    require(len(given) == len(names), "monotonic_cst", f"one of -1, 0 or 1 for each of {len(names)} columns", given)
    return np.asarray(given, dtype=int)


def signs_by_coordinate(given: Any, data: TableData) -> dict[int, int]:
    """The sign of each constrained coordinate of the encoded table; columns that were left out have none."""
    table = data.table
    names = [f"x{j}" for j in range(data.n_columns)] if data.names is None else [str(name) for name in data.names]
    signs = column_signs(given, names)
    if table is None:
        return {j: int(sign) for j, sign in enumerate(signs) if sign}
    column, found = table.layout.column, {}
    for j in np.flatnonzero(signs):
        codes = [code for code in table.codes if code.column == j and not isinstance(code, Missing)]
        plain = all(type(code) in (Value, BooleanCode, Rank) for code in codes) and len(codes) <= 1
        kind = f"{table.described[j].kind}: {table.described[j].map}"
        require(plain, f"column {names[j]!r} of X", "one number for each row where monotonic_cst names it", kind)
        if codes:
            found[int(np.flatnonzero(column == j)[0])] = int(signs[j])
    return found
