"""Columns of numbers with one value in all rows of `fit`: no model can learn the meaning of another value.

They keep that value in `predict`, so another value there changes nothing. Tables that are encoded column by column
(`mercer.preprocessing.columns_fit`) leave constant columns out. In a table of numbers they stay, so that shapes and
kernels do not depend on its values.

A sparse table of few columns is made dense. A wide one stays sparse and is seen by radial and dot-product kernels
alone, through products of rows (`mercer.kernels.sparse_rows`): no column is scaled, mapped or left out, since rows
would not stay sparse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from mercer.data import LibsvmRows, RowSource, SparseRows, read_ahead, sparse_matrix
from mercer.data.raw import LARGEST
from mercer.data.shard import Shard
from mercer.data.source import TransformedRows
from mercer.engine import make_plan
from mercer.parts import require

#: Rows by which columns are examined before all rows are read, and the numbers read at a time.
FIRST_ROWS, NUMBERS = 100, 1 << 22
#: Values are equal up to this share of their size, as in `mercer.preprocessing.inputs.standardised`.
ROUNDING = 1e-12
#: Sparse tables of at most this many columns are made dense, so that columns are mapped and metrics learned.
DENSE_COLUMNS = 500


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


class FiniteRows(RowSource):
    """Rows of a source, clipped to ±`LARGEST`; the first NaN or infinity is refused with its row and column.

    A thread reads, decodes and checks the next blocks while the caller works on the current one.
    """

    def __init__(self, rows: RowSource) -> None:
        self.rows = rows
        self.n_rows, self.n_columns, self.shard = rows.n_rows, rows.n_columns, rows.shard
        require(self.n_rows > 0 or self.shard.divided, "the number of rows", "at least 1", self.n_rows)
        require(self.n_columns > 0, "the number of columns", "at least 1", self.n_columns)

    def blocks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        return read_ahead(self._checked(size)) if size < self.n_rows else self._checked(size)

    def _checked(self, size: int) -> Iterator[tuple[int, Tensor]]:
        for start, block in self.rows.blocks(size):
            yield start, self._finite(block, lambda i, start=start: start + i)

    def take(self, index: Any) -> Tensor:
        return self._finite(self.rows.take(index), lambda i: int(np.asarray(torch.as_tensor(index).cpu())[i]))

    def names(self) -> Sequence[str] | None:
        return self.rows.names()

    def _finite(self, block: Tensor, row_of: Any) -> Tensor:
        if not block.numel() or (float(block.min()) >= -LARGEST and float(block.max()) <= LARGEST):
            return block
        if not bool(block.isfinite().all()):
            row, column = (~block.isfinite()).nonzero()[0].tolist()
            names = self.names()
            index = int(self.shard.global_indices(np.array([row_of(row)]))[0])
            where = f"row {index}, column {names[column] if names is not None else column}"
            raise ValueError(f"X must hold finite numbers, got {float(block[row, column])} in {where}: NaN or infinity")
        return block.clamp(-LARGEST, LARGEST)


def dense_or_sparse(X: Any, estimator: Any) -> Any:
    """A sparse matrix, tensor or LIBSVM file as an array, or as sparse rows where it is wide and the estimator allows.

    Other tables are returned as they are.
    """
    if isinstance(X, LibsvmRows):
        return X.sparse() if _stays_sparse(X.n_columns, estimator) else X
    matrix = X.entries.table if isinstance(X, SparseRows) else sparse_matrix(X)
    if matrix is None:
        return X
    require(matrix.ndim == 2, "X", "a matrix of two dimensions", matrix.shape)
    if matrix.shape[0] and _stays_sparse(matrix.shape[1], estimator):
        return X if isinstance(X, SparseRows) else SparseRows(matrix)
    n, D = matrix.shape
    limit = make_plan(max(n, 1), "cpu", "float64", getattr(estimator, "memory_limit", None)).memory_limit
    wanted = f"at most {limit / 2**30:.3g} GiB when made dense, which {type(estimator).__name__} needs of it"
    require(8 * n * D <= limit, "X", wanted, f"a sparse matrix of {8 * n * D / 2**30:.3g} GiB")
    return matrix.toarray()


def _stays_sparse(n_columns: int, estimator: Any) -> bool:
    return n_columns > DENSE_COLUMNS and getattr(estimator, "_by_products", False) and not estimator._pairwise
