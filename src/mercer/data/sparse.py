"""Rows of sparse matrices, converted to dense blocks on demand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from mercer.data.source import RowSource
from mercer.kernels.sparse_rows import Entries
from mercer.parts import require


class SparseRows(RowSource):
    """Rows of a sparse matrix, held in proportion to their entries.

    Examples
    --------
    >>> import scipy.sparse
    >>> from mercer.data import SparseRows
    >>> rows = SparseRows(scipy.sparse.coo_array(([2.0], ([1], [2])), shape=(3, 4)))
    >>> rows.n_rows, rows.n_columns, rows.take([1]).tolist()
    (3, 4, [[0.0, 0.0, 2.0, 0.0]])
    """

    def __init__(self, X: Any, y: np.ndarray | None = None, name: str = "y") -> None:
        X = scipy.sparse.csr_array(X)
        require(X.dtype.kind in "biuf", "X", "a sparse matrix of real numbers", X.dtype)
        X = X.astype(np.float64, copy=False)
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        good = bool(np.isfinite(X.data).all())
        require(good, "X", "of finite numbers", "NaN or infinity among the entries of a sparse matrix")
        self.entries = Entries.of(X)
        self.n_rows, self.n_columns = X.shape
        self._y, self._name = y, name

    def blocks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        for start in range(0, self.n_rows, size):
            yield start, torch.from_numpy(self.entries.table[start : start + size].toarray())

    def take(self, index: Any) -> Tensor:
        return torch.from_numpy(self.rows_of(index).toarray())

    def rows_of(self, index: Any) -> Any:
        """Return the rows of these indices as a sparse matrix."""
        return self.entries.table[np.asarray(torch.as_tensor(index).cpu())]

    def targets(self) -> np.ndarray | None:
        return self._y

    def target_label(self) -> str:
        return self._name

    def coordinates(self, index: Any) -> Tensor:
        """Return n rows in at most n coordinates, with the same distances and inner products."""
        rows = self.rows_of(index)
        values, vectors = np.linalg.eigh((rows @ rows.T).toarray())
        kept = values > 1e-12 * max(float(values[-1]), 1e-300)
        return torch.from_numpy(vectors[:, kept] * np.sqrt(values[kept]))


def sparse_matrix(X: Any) -> Any:
    """Return a sparse matrix or tensor as a scipy matrix; None where `X` is something else."""
    if scipy.sparse.issparse(X):
        return X
    if not isinstance(X, Tensor) or X.layout == torch.strided:
        return None
    entries = X.detach().cpu().to_sparse_coo().coalesce()
    require(entries.ndim == 2 and entries.dense_dim() == 0, "X", "a tensor of two dimensions", tuple(X.shape))
    return scipy.sparse.coo_array((entries.values().numpy(), entries.indices().numpy()), shape=tuple(X.shape))
