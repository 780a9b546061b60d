"""Rows of files, checked while they are read, and sparse tables.

A sparse table of few columns is made dense. A wide one stays sparse and is seen by radial and dot-product kernels
alone, through products of rows (`mercer.kernels.sparse_rows`): no column is scaled, mapped or left out, since rows
would not stay sparse. Constant columns keep their value (`mercer.preprocessing.constant_columns`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.data import LibsvmRows, RowSource, SparseRows, read_ahead, sparse_matrix
from mercer.data.raw import LARGEST
from mercer.engine import make_plan
from mercer.parts import require

#: Sparse tables of at most this many columns are made dense, so that columns are mapped and metrics learned.
DENSE_COLUMNS = 500


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
