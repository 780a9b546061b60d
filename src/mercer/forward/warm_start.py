"""Warm starts: the state from which a fit continues, and fingerprints of its table and settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mercer.data import ArrayRows, spaced_rows
from mercer.data.hashes import hash_table
from mercer.parts import require
from mercer.preprocessing.read import TableData
from mercer.preprocessing.validate import host

#: Rows of a file that a warm start compares. It compares all rows of an array; a checkpoint always compares all rows.
COMPARED_ROWS = 1000
#: Rows that are hashed at a time.
BLOCK_ROWS = 1 << 16


@dataclass(frozen=True)
class Fingerprint:
    """Hashes of rows, targets and weights, and the parameters that must not change when a fit is continued.

    The hashes do not depend on which process holds which rows.
    """

    table: dict[str, str]
    settings: dict[str, str]

    @classmethod
    def of(
        cls, estimator: Any, data: TableData, X_val: Any, y_val: Any, free: tuple[str, ...], *, all_rows: bool = False
    ) -> Fingerprint:
        """Take the fingerprint of a fit; parameters named in `free` may change."""
        numbers = data.shard.global_indices(np.arange(data.rows.n_rows))
        rows = sum((hash_table(*part) for part in _parts(data, numbers, all_rows)), start=np.uint64(0))
        hashes = np.array([rows, hash_table(data.y, numbers), hash_table(data.weight, numbers)])
        total = data.rows.total(torch.from_numpy(hashes.view(np.int64))).numpy().view(np.uint64)
        n = int(data.shard.total(data.rows.n_rows))
        table = {
            "X": f"{n} × {data.rows.n_columns}, hash {total[0]:016x}",
            "y": f"{total[1]:016x}",
            "sample_weight": f"{total[2]:016x}",
            "X_val": "none" if X_val is None else f"{hash_table(host(X_val)):016x}",
            "y_val": "none" if y_val is None else f"{hash_table(host(y_val)):016x}",
        }
        if data.row_groups is not None:
            table["groups and time_order"] = f"{hash_table(data.row_groups.key, numbers):016x}"
        settings = {name: text(value) for name, value in estimator.get_params().items() if name not in free}
        return cls(table, settings)

    def require_same(self, now: Fingerprint, wanted: Callable[[str | None], str]) -> None:
        """Refuse another table or other parameters by name; `wanted` makes the message from the value of this one."""
        for then, given in ((self.table, now.table), (self.settings, now.settings)):
            for name in {**then, **given}:
                require(then.get(name) == given.get(name), name, wanted(then.get(name)), given.get(name))


@dataclass(frozen=True)
class WarmStartState:
    """A fit that can be continued: its fingerprint, its task, and the fits of all ensemble members."""

    fingerprint: Fingerprint
    task: Any
    fits: list[Any]

    def require_same(self, now: Fingerprint) -> None:
        """Refuse another table or other parameters by name."""
        self.fingerprint.require_same(
            now, lambda then: f"that of the first fit ({then}) where warm_start=True, or warm_start=False"
        )


def text(value: Any) -> str:
    """A parameter as text, without the address of an object that has no other name."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def _parts(data: TableData, numbers: np.ndarray, all_rows: bool) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Blocks of the rows to be hashed, with their numbers."""
    if all_rows or isinstance(data.rows, ArrayRows):
        for start, block in data.rows.blocks(BLOCK_ROWS):
            yield block.cpu().numpy(), numbers[start : start + len(block)]
        return
    sample = spaced_rows(np.ones(data.rows.n_rows), COMPARED_ROWS)
    yield data.rows.take(sample).cpu().numpy(), numbers[sample]
