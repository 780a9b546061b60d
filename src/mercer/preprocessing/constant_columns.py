"""Columns of numbers with one value in all rows of `fit`: no model can learn the meaning of another value.

They keep that value in `predict`, so another value there changes nothing. Tables that are encoded column by column
(`mercer.preprocessing.columns_fit`) leave constant columns out. In a table of numbers they stay, so that shapes and
kernels do not depend on its values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from mercer.data import RowSource, SparseRows
from mercer.data.shard import Shard
from mercer.data.source import TransformedRows

#: Rows by which columns are examined before all rows are read, and the numbers read at a time.
FIRST_ROWS, NUMBERS = 100, 1 << 22
#: Values are equal up to this share of their size, as in `mercer.preprocessing.inputs.standardised`.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Constants:
    """The indices of the constant columns of a table, and the value of each.

    >>> from mercer.data import ArrayRows
    >>> held = Constants(np.array([1]), np.array([2024.0]))
    >>> held.in_rows(ArrayRows(np.array([[1.0, 2025.0], [3.0, 2026.0]]))).take([0, 1]).tolist()
    [[1.0, 2024.0], [3.0, 2024.0]]
    """

    columns: np.ndarray
    values: np.ndarray

    def in_rows(self, rows: RowSource) -> RowSource:
        """New rows with the constant values in the constant columns."""
        return _held_sparse(rows, self) if isinstance(rows, SparseRows) else HeldRows(rows, self)

    def in_block(self, block: Tensor) -> Tensor:
        """A copy of a block of rows with the constant values in the constant columns."""
        block = block.clone()
        block[:, torch.as_tensor(self.columns, device=block.device)] = torch.as_tensor(self.values).to(block)
        return block

    def mask(self, n_columns: int) -> np.ndarray:
        """A mask of the constant columns among `n_columns`."""
        mask = np.zeros(n_columns, dtype=bool)
        mask[self.columns] = True
        return mask


class HeldRows(TransformedRows):
    """Rows of another source with constant values in the constant columns."""

    def __init__(self, rows: RowSource, constants: Constants) -> None:
        super().__init__(rows)
        self.constants = constants

    def transform(self, block: Tensor) -> Tensor:
        return self.constants.in_block(block)


def find_constants(rows: RowSource, weight: np.ndarray) -> Constants | None:
    """Find the columns with one value in all rows of positive weight, on all processes; None where there are none.

    A few rows settle most tables. All rows are read only if a column has one value in these, until every candidate
    column has shown a second value.
    """
    if isinstance(rows, SparseRows):
        return _in_sparse(rows, weight)
    shard, alive = rows.shard, torch.as_tensor(weight > 0)
    first = rows.fetch(shard.spaced(alive, FIRST_ROWS).numpy()).double().cpu()
    columns = _alike(first, first[0]).nonzero()[:, 0]
    if not len(columns):
        return None
    columns = columns[_same_everywhere(rows, shard, alive, columns, first[0, columns])]
    return Constants(columns.numpy(), first[0, columns].numpy()) if len(columns) else None


def _same_everywhere(rows: RowSource, shard: Shard, alive: Tensor, columns: Tensor, values: Tensor) -> Tensor:
    """A mask of the columns that have these values in all rows, on all processes."""
    same = torch.ones(len(columns), dtype=torch.bool)
    for start, block in rows.blocks(max(NUMBERS // rows.n_columns, 1)):
        here = alive[start : start + len(block)].to(block.device)
        same &= _alike(block[here][:, columns.to(block.device)].double().cpu(), values)
        if not bool(same.any()):
            break
    return shard.group.sum((~same).long()) == 0


def _alike(block: Tensor, values: Tensor) -> Tensor:
    """A mask of the columns of a block that have these values, up to rounding."""
    return ((block - values).abs() <= ROUNDING * values.abs()).all(0)


def _in_sparse(rows: SparseRows, weight: np.ndarray) -> Constants | None:
    table = rows.entries.table[np.flatnonzero(weight > 0)]
    low, high = table.min(axis=0).toarray().reshape(-1), table.max(axis=0).toarray().reshape(-1)
    columns = np.flatnonzero(high - low <= ROUNDING * np.abs(high))
    return Constants(columns, high[columns]) if len(columns) else None


def _held_sparse(rows: SparseRows, constants: Constants) -> SparseRows:
    table = rows.entries.table.copy()
    table.data *= ~constants.mask(rows.n_columns)[table.indices]
    table.eliminate_zeros()
    filled = constants.values != 0
    if not filled.any():
        return SparseRows(table)
    entries = constants.values[filled], constants.columns[filled], [0, int(filled.sum())]
    row = scipy.sparse.csr_array(entries, shape=(1, rows.n_columns))
    return SparseRows(table + scipy.sparse.csr_array(np.ones((rows.n_rows, 1))) @ row)
