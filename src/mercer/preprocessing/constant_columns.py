"""Columns of numbers that hold one value in all rows of `fit`: no model can learn what another value would mean.

They keep that value in every row to come, so another value in `predict` changes nothing. Tables whose columns are
coded one by one (`mercer.preprocessing.columns_fit`) leave such columns out; here they stay in the table, so that
shapes and kernels of a table of numbers do not depend on the values in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from mercer.data import RowSource, SparseRows
from mercer.data.shard import Shard

#: Rows in which a column must have one value before all of them are read, and the numbers read at a time.
FIRST_ROWS, NUMBERS = 100, 1 << 22
#: Values differ by rounding alone up to this share of their size, as in `mercer.preprocessing.inputs.standardised`.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Constants:
    """The constant columns of a table by number, and the value of each.

    >>> from mercer.data import ArrayRows
    >>> held = Constants(np.array([1]), np.array([2024.0]))
    >>> held.in_rows(ArrayRows(np.array([[1.0, 2025.0], [3.0, 2026.0]]))).take([0, 1]).tolist()
    [[1.0, 2024.0], [3.0, 2024.0]]
    """

    columns: np.ndarray
    values: np.ndarray

    def in_rows(self, rows: RowSource) -> RowSource:
        """New rows with these values in these columns."""
        return _held_sparse(rows, self) if isinstance(rows, SparseRows) else HeldRows(rows, self)

    def in_block(self, block: Tensor) -> Tensor:
        """Rows of a table with these values in these columns, as new numbers."""
        block = block.clone()
        block[:, torch.as_tensor(self.columns, device=block.device)] = torch.as_tensor(self.values).to(block)
        return block

    def mask(self, n_columns: int) -> np.ndarray:
        """Which of so many columns are constant."""
        found = np.zeros(n_columns, dtype=bool)
        found[self.columns] = True
        return found


class HeldRows(RowSource):
    """Rows of another source with one value in each constant column."""

    def __init__(self, rows: RowSource, constants: Constants) -> None:
        self.rows, self.constants = rows, constants
        self.n_rows, self.n_columns, self.shard = rows.n_rows, rows.n_columns, rows.shard

    def blocks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        for start, block in self.rows.blocks(size):
            yield start, self.constants.in_block(block)

    def take(self, index: Any) -> Tensor:
        return self.constants.in_block(self.rows.take(index))

    def names(self) -> Sequence[str] | None:
        return self.rows.names()


def find_constants(rows: RowSource, weight: np.ndarray) -> Constants | None:
    """The columns with one value in all rows of positive weight, on all processes; None where there are none.

    Most tables are settled by a few rows. Only where a column has one value in these, all rows are read until each
    such column has shown another one.
    """
    if isinstance(rows, SparseRows):
        return _in_sparse(rows, weight)
    shard, alive = rows.shard, torch.as_tensor(weight > 0)
    first = rows.fetch(shard.spaced(alive, FIRST_ROWS).numpy()).double().cpu()
    columns = _alike(first, first[0]).nonzero()[:, 0]
    if not len(columns):
        return None
    same = _same_everywhere(rows, shard, alive, columns, first[0, columns])
    found = columns[same]
    return Constants(found.numpy(), first[0, found].numpy()) if len(found) else None


def _same_everywhere(rows: RowSource, shard: Shard, alive: Tensor, columns: Tensor, values: Tensor) -> Tensor:
    """Which of these columns have these values in all rows, on all processes."""
    same = torch.ones(len(columns), dtype=torch.bool)
    for start, block in rows.blocks(max(NUMBERS // rows.n_columns, 1)):
        here = alive[start : start + len(block)].to(block.device)
        same &= _alike(block[here][:, columns.to(block.device)].double().cpu(), values)
        if not bool(same.any()):
            break
    return shard.group.sum((~same).long()) == 0


def _alike(block: Tensor, values: Tensor) -> Tensor:
    """Which columns of a block have these values, up to rounding."""
    return ((block - values).abs() <= ROUNDING * values.abs()).all(0)


def _in_sparse(rows: SparseRows, weight: np.ndarray) -> Constants | None:
    table = rows.entries.table[np.flatnonzero(weight > 0)]
    low, high = (one.toarray().reshape(-1) for one in (table.min(axis=0), table.max(axis=0)))
    columns = np.flatnonzero(high - low <= ROUNDING * np.abs(high))
    return Constants(columns, high[columns]) if len(columns) else None


def _held_sparse(rows: SparseRows, constants: Constants) -> SparseRows:
    kept = rows.entries.table.copy()
    kept.data *= ~constants.mask(rows.n_columns)[kept.indices]
    kept.eliminate_zeros()
    filled = constants.values != 0
    one = scipy.sparse.csr_array(
        (constants.values[filled], constants.columns[filled], [0, int(filled.sum())]), shape=(1, rows.n_columns)
    )
    return SparseRows(kept + scipy.sparse.csr_array(np.ones((rows.n_rows, 1))) @ one if filled.any() else kept)
