"""Sparse tables: few columns become a table like any other, many stay sparse, their rows named by numbers.

What stays sparse is seen by radial and dot-product kernels alone, by products of rows (`mercer.kernels.numbered`): no
column is scaled, mapped or left out, since rows would not be sparse after it.
"""

from __future__ import annotations

from typing import Any

from mercer.data import LibsvmRows, SparseRows, sparse_matrix
from mercer.engine import make_plan
from mercer.parts import require

#: Tables of at most so many columns are made dense: then columns are mapped, and metrics learned.
DENSE_COLUMNS = 500


def dense_or_sparse(X: Any, estimator: Any) -> Any:
    """A sparse matrix (or tensor, or LIBSVM file) as an array, or as sparse rows where it is wide and they will do."""
    if isinstance(X, LibsvmRows):
        return X.sparse() if _stays(X.n_columns, estimator) else X
    matrix = X.entries.table if isinstance(X, SparseRows) else sparse_matrix(X)
    if matrix is None:
        return X
    require(matrix.ndim == 2, "X", "a matrix of two dimensions", matrix.shape)
    if matrix.shape[0] and _stays(matrix.shape[1], estimator):
        return X if isinstance(X, SparseRows) else SparseRows(matrix)
    n, D = matrix.shape
    most = make_plan(max(n, 1), "cpu", "float64", getattr(estimator, "memory_limit", None)).memory_limit
    wanted = f"at most {most / 2**30:.3g} GiB when made dense, which {type(estimator).__name__} needs of it"
    require(8 * n * D <= most, "X", wanted, f"a sparse matrix of {8 * n * D / 2**30:.3g} GiB")
    return matrix.toarray()


def _stays(n_columns: int, estimator: Any) -> bool:
    return n_columns > DENSE_COLUMNS and getattr(estimator, "_by_products", False) and not estimator._pairwise
