"""Row sources: arrays, data frames, sparse matrices and files; `as_source` chooses the right class."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mercer.data.column_maps import Bend, find_bend
from mercer.data.columns import FilePath
from mercer.data.delimited import CsvRows
from mercer.data.frames import is_frame
from mercer.data.libsvm import LibsvmRows
from mercer.data.parquet import ParquetRows, parquet_files, stored_names
from mercer.data.shard import UNDIVIDED, Group, Runs, Shard, current_group
from mercer.data.source import (
    ArrayRows,
    FrameRows,
    NpyRows,
    PreparedRows,
    RowSource,
    SparseRows,
    TensorRows,
    read_ahead,
    require_numbers,
    spaced_rows,
    sparse_matrix,
)
from mercer.parts import require

__all__ = [
    "ArrayRows",
    "Bend",
    "CsvRows",
    "FrameRows",
    "Group",
    "LibsvmRows",
    "NpyRows",
    "ParquetRows",
    "Pieces",
    "PreparedRows",
    "RowSource",
    "Runs",
    "Shard",
    "SparseRows",
    "TensorRows",
    "UNDIVIDED",
    "as_source",
    "current_group",
    "find_bend",
    "read_ahead",
    "sparse_matrix",
    "spaced_rows",
]

#: The earlier name of `Runs`.
Pieces = Runs

_BY_SUFFIX: dict[str, type[NpyRows | ParquetRows | CsvRows | LibsvmRows]] = {
    ".npy": NpyRows,
    ".parquet": ParquetRows,
    ".csv": CsvRows,
    ".svm": LibsvmRows,
    ".libsvm": LibsvmRows,
    ".txt": LibsvmRows,
}


def as_source(X: Any, names: Sequence[str] | None = None, target: str | None = None) -> RowSource:
    """Return the source that reads `X`: an array, tensor, frame, sparse matrix, path of a file, or a source already.

    A path is read by its ending: .npy, .parquet (or a folder), .csv, and .svm, .libsvm or .txt for
    LIBSVM text.

    `names` chooses columns by name in the order given, if those of `X` have names; all others, such as a column of
    targets, are left out. Columns without names are taken by position. `target` names the column of targets, if there
    is one. A fitted model passes both, so it can read the file that it was fitted on.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer.data import as_source
    >>> rows = as_source(np.arange(6.0).reshape(3, 2))
    >>> rows.n_rows, rows.n_columns
    (3, 2)
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"depth": [1.5, 2.5], "width": [4.0, 5.0], "price": [7.0, 9.0]})
    >>> as_source(frame, names=["width", "depth"]).take([1])
    tensor([[5.0000, 2.5000]], dtype=torch.float64)
    """
    if isinstance(X, (str, os.PathLike)):
        return _file_source(X, names, target)
    source = _table_source(X)
    has = source.names()
    return source if names is None or has is None or list(has) == list(names) else source.select(names, target)


def _table_source(X: Any) -> RowSource:
    if isinstance(X, RowSource):
        return X
    if (sparse := sparse_matrix(X)) is not None:
        return SparseRows(sparse)
    if isinstance(X, torch.Tensor):
        require(X.ndim == 2, "X", "a tensor of two dimensions", tuple(X.shape))
        require(not X.is_complex(), "X", "a tensor of real numbers", X.dtype)
        return TensorRows(X)
    if isinstance(X, np.ndarray):
        require(X.ndim == 2, "X", "an array of two dimensions", X.shape)
        require_numbers(X.dtype, "X")
        return ArrayRows(np.asarray(X))
    if is_frame(X):
        return FrameRows(X)
    wanted = "an array, a tensor, a pandas or polars DataFrame, the path of a file or a RowSource"
    raise TypeError(f"X must be {wanted}, got {type(X).__name__}")


def _file_source(path: FilePath, names: Sequence[str] | None, target: str | None) -> RowSource:
    require(bool(str(path)) and "\0" not in str(path), "the path X", "the name of a file or folder", str(path))
    wanted = "a file or folder of this machine (pandas reads addresses)"
    require("://" not in str(path), "the path X", wanted, str(path))
    suffix = ".parquet" if Path(path).is_dir() else Path(path).suffix.lower()
    require(suffix in _BY_SUFFIX, "the path X", f"a folder or end in one of {sorted(_BY_SUFFIX)}", str(path))
    if names is None and target is None:
        return _BY_SUFFIX[suffix](path)
    if suffix == ".parquet":  # other columns may hold text, for which the whole file would be refused
        present = stored_names(parquet_files(path)[0])
        return ParquetRows(path, target if target in present else None, names)
    source = _BY_SUFFIX[suffix](path)
    stored = source.names()
    if stored is None:
        return source
    return source.select([name for name in stored if name != target] if names is None else names, target)
