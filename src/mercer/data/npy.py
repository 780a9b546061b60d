"""Rows of memory-mapped .npy files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
from torch import Tensor

from mercer.data.arrays import as_tensor, require_numbers
from mercer.data.columns import FilePath, choose_columns, row_indices
from mercer.data.source import RowSource
from mercer.parts import require


class NpyRows(RowSource):
    """Rows of a .npy file, mapped into memory and copied block by block.

    Parameters
    ----------
    path : path of a two-dimensional array of numbers.
    target : the column that holds the targets (its number), or the path of a second .npy file with
        one target a row.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from mercer.data import NpyRows
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/table.npy", np.arange(12.0).reshape(4, 3))
    ...     rows = NpyRows(f"{folder}/table.npy", target=-1)
    ...     print(rows.take([3, 0]), rows.targets())
    tensor([[ 9., 10.],
            [ 0.,  1.]], dtype=torch.float64) [ 2.  5.  8. 11.]
    """

    def __init__(self, path: FilePath, target: SupportsIndex | FilePath | None = None) -> None:
        self.path = Path(path)
        self._table = _memory_map(self.path)
        require(self._table.ndim == 2, f"{path}", "an array of two dimensions", self._table.shape)
        require_numbers(self._table.dtype, str(path))
        self.n_rows, n_stored = self._table.shape
        self._target_column: int | None = None
        self._targets: np.ndarray | None = None
        self._target_label = ""
        if isinstance(target, (str, os.PathLike)):
            self._targets = _memory_map(Path(target))
            require(self._targets.ndim in (1, 2), f"{target}", "an array of one target a row", self._targets.shape)
            require(len(self._targets) == self.n_rows, f"{target}", f"of length {self.n_rows}", len(self._targets))
            self._target_label = str(target)
        elif target is not None:
            _, self._target_column = choose_columns(path, None, n_stored, target, None)
            self._targets = self._table[:, self._target_column]
            self._target_label = f"{path}, column {self._target_column},"
        self.n_columns = n_stored - (self._target_column is not None)

    def blocks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        for start in range(0, self.n_rows, size):
            yield start, self._inputs(self._table[start : start + size])

    def take(self, index: Any) -> Tensor:
        return self._inputs(self._table[row_indices(index, self.n_rows)])

    def targets(self) -> np.ndarray | None:
        return None if self._targets is None else np.array(self._targets)

    def target_label(self) -> str:
        return self._target_label

    def _inputs(self, rows: np.ndarray) -> Tensor:
        return as_tensor(rows if self._target_column is None else np.delete(rows, self._target_column, 1))


def _memory_map(path: Path) -> np.ndarray:
    try:
        table = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError:  # a missing file has a clear message already
        raise
    except Exception as error:  # NumPy evaluates the header by Python's parser, which raises many errors
        raise ValueError(f"{path} must be a .npy file that holds numbers: {error}") from error
    if not isinstance(table, np.ndarray):  # an open archive of several arrays
        table.close()
    if not isinstance(table, np.ndarray) or table.size == 0:
        raise ValueError(f"{path} must be a .npy file with at least one row and column")
    return table
