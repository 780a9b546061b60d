"""Where rows come from: memory, memory-mapped and other files; `as_source` finds the right one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch

from mercer.data.arrays import ArrayRows, FrameRows, PreparedRows, TensorRows, require_numbers
from mercer.data.files import FilePath, NpyRows, ParquetRows
from mercer.data.heavy_tails import Bend, find_bend
from mercer.data.source import RowSource, spread_rows
from mercer.data.text import CsvRows, LibsvmRows
from mercer.parts import require

__all__ = [
    "ArrayRows",
    "Bend",
    "CsvRows",
    "FrameRows",
    "LibsvmRows",
    "NpyRows",
    "ParquetRows",
    "PreparedRows",
    "RowSource",
    "TensorRows",
    "as_source",
    "find_bend",
    "spread_rows",
]

_BY_SUFFIX: dict[str, type[NpyRows | ParquetRows | CsvRows | LibsvmRows]] = {
    ".npy": NpyRows,
    ".parquet": ParquetRows,
    ".csv": CsvRows,
    ".svm": LibsvmRows,
    ".libsvm": LibsvmRows,
    ".txt": LibsvmRows,
}


def as_source(X: Any) -> RowSource:
    """The source that reads `X`: an array, tensor, frame, path of a file, or a source already.

    A path is read by its ending: .npy, .parquet (or a folder), .csv, and .svm, .libsvm or .txt for
    LIBSVM text.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer.data import as_source
    >>> rows = as_source(np.arange(6.0).reshape(3, 2))
    >>> rows.n_rows, rows.n_columns
    (3, 2)
    """
    if isinstance(X, RowSource):
        return X
    if isinstance(X, torch.Tensor):
        return _tensor_source(X)
    if isinstance(X, np.ndarray):
        require(X.ndim == 2, "X", "an array of two dimensions", X.shape)
        require_numbers(X.dtype, "X")
        return ArrayRows(np.asarray(X))
    if scipy.sparse.issparse(X):
        raise TypeError(f"sparse input is not supported: X is a {type(X).__name__}, pass X.toarray()")
    if all(hasattr(X, name) for name in ("columns", "dtypes", "to_numpy")):
        return FrameRows(X)
    if isinstance(X, (str, os.PathLike)):
        return _file_source(X)
    wanted = "an array, a tensor, a pandas or polars DataFrame, the path of a file or a RowSource"
    raise TypeError(f"X must be {wanted}, got {type(X).__name__}")


def _tensor_source(X: torch.Tensor) -> TensorRows:
    if X.layout != torch.strided:
        raise TypeError(f"sparse input is not supported: X is a {X.layout} tensor, pass X.to_dense()")
    require(X.ndim == 2, "X", "a tensor of two dimensions", tuple(X.shape))
    require(not X.is_complex(), "X", "a tensor of real numbers", X.dtype)
    return TensorRows(X)


def _file_source(path: FilePath) -> RowSource:
    suffix = ".parquet" if Path(path).is_dir() else Path(path).suffix.lower()
    require(suffix in _BY_SUFFIX, "the path X", f"a folder or end in one of {sorted(_BY_SUFFIX)}", str(path))
    return _BY_SUFFIX[suffix](path)
