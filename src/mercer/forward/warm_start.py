"""Going on with a fit: what a warm model remembers, and how another table or other settings are told apart."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from mercer.data import ArrayRows, spaced_rows
from mercer.parts import require
from mercer.preprocessing.read import TableData
from mercer.preprocessing.validate import host

#: Rows of a source that are compared; of an array all are.
COMPARED_ROWS = 1000


@dataclass(frozen=True)
class Fingerprint:
    """Hashes of rows, targets and weights, and the settings that must not change between two fits of one model."""

    table: dict[str, str]
    settings: dict[str, str]

    @classmethod
    def of(cls, face: Any, given: TableData, X_val: Any, y_val: Any, growing: tuple[str, ...]) -> Fingerprint:
        some = spaced_rows(np.ones(given.rows.n_rows), COMPARED_ROWS)
        rows = given.rows.X if isinstance(given.rows, ArrayRows) else given.rows.take(some).cpu().numpy()
        table = {
            "X": f"{given.rows.n_rows} × {given.rows.n_columns}, hash {hashed(rows)}",
            "y": hashed(given.y),
            "sample_weight": hashed(given.weight),
            "X_val": "" if X_val is None else hashed(X_val),
            "y_val": "" if y_val is None else hashed(y_val),
        }
        kept = {name: repr(value) for name, value in face.get_params().items() if name not in growing}
        return cls(table, kept)


@dataclass(frozen=True)
class Warm:
    """A fit that can go on: what it was made from, its task, and the state of every member."""

    seen: Fingerprint
    task: Any
    fits: list[Any]

    def require_same(self, now: Fingerprint) -> None:
        """Refuse another table or other settings, by name."""
        for name, value in self.seen.table.items():
            wanted = f"that of the first fit ({value or 'none'}) where warm_start=True, or warm_start=False"
            require(value == now.table[name], name, wanted, now.table[name])
        for name, value in self.seen.settings.items():
            wanted = f"{value} as in the first fit where warm_start=True, or warm_start=False"
            require(value == now.settings.get(name), name, wanted, now.settings.get(name))


def hashed(table: Any) -> str:
    """A hash of the values of an array, frame or tensor; objects count by their text, not by their addresses."""
    values = np.asarray(host(table))
    values = np.ascontiguousarray(values.astype(str) if values.dtype == object else values)
    return hashlib.blake2b(values.tobytes(), digest_size=16).hexdigest()
