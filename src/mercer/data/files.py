"""Rows of binary files: NumPy's .npy and Parquet.

A file source knows where its rows lie and reads those that are asked for; it never holds the
table. Text files have a module of their own (`mercer.data.text`).
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
import torch
from torch import Tensor

from mercer.data.arrays import as_tensor, require_numbers
from mercer.data.source import RowSource
from mercer.parts import require

FilePath = str | os.PathLike[str]
Column = str | SupportsIndex


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
        if isinstance(target, (str, os.PathLike)):
            self._targets = _memory_map(Path(target))
            require(len(self._targets) == self.n_rows, f"{target}", f"of length {self.n_rows}", len(self._targets))
        elif target is not None:
            _, self._target_column = choose_columns(path, None, n_stored, target, None)
            self._targets = self._table[:, self._target_column]
        self.n_columns = n_stored - (self._target_column is not None)

    def blocks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        for start in range(0, self.n_rows, size):
            yield start, self._inputs(self._table[start : start + size])

    def take(self, index: Any) -> Tensor:
        return self._inputs(self._table[row_numbers(index, self.n_rows)])

    def targets(self) -> np.ndarray | None:
        return None if self._targets is None else np.array(self._targets)

    def _inputs(self, rows: np.ndarray) -> Tensor:
        return as_tensor(rows if self._target_column is None else np.delete(rows, self._target_column, 1))


class ParquetRows(RowSource):
    """Rows of a Parquet file, or of a folder of them in the order of their names.

    Blocks are decoded as they are asked for. `take` decodes each row group in which a wanted row
    lies, one at a time. Missing values are read as NaN.

    Parameters
    ----------
    path : a file, or a folder of ``*.parquet`` files with the same columns.
    target : name or number of the column that holds the targets, which may be text.
    columns : names or numbers of the input columns; None takes all but the target.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow as pa
    >>> import pyarrow.parquet as pq
    >>> from mercer.data import ParquetRows
    >>> table = pa.table({"depth": [1.5, 2.5, 3.5], "width": [4, 5, 6], "kind": ["a", "b", "a"]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pq.write_table(table, f"{folder}/table.parquet", row_group_size=2)
    ...     rows = ParquetRows(f"{folder}/table.parquet", target="kind")
    ...     print(rows.names(), rows.take([2, 2]), rows.targets())
    ['depth', 'width'] tensor([[3.5000, 6.0000],
            [3.5000, 6.0000]], dtype=torch.float64) ['a' 'b' 'a']
    """

    def __init__(self, path: FilePath, target: Column | None = None, columns: Sequence[Column] | None = None) -> None:
        self.path = Path(path)
        self._files = sorted(self.path.glob("*.parquet")) if self.path.is_dir() else [self.path]
        if not self._files:
            raise ValueError(f"{path} is a folder without .parquet files")
        with _open(self._files[0]) as opened:
            stored = opened.schema_arrow.names
        kept, at = choose_columns(path, stored, len(stored), target, columns)
        self._names = [stored[column] for column in kept]
        self._target = None if at is None else stored[at]

        self._groups: list[tuple[Path, int]] = []
        lengths, dtypes = [], []
        for file in self._files:
            with _open(file) as opened:
                dtypes.append(self._precision(file, opened.schema_arrow))
                for group in range(opened.num_row_groups):
                    self._groups.append((file, group))
                    lengths.append(opened.metadata.row_group(group).num_rows)
        self._dtype = np.result_type(*dtypes)
        self._ends = np.cumsum(lengths, dtype=np.int64)
        self.n_rows, self.n_columns = sum(lengths), len(kept)
        if not self.n_rows:
            raise ValueError(f"{path} has no rows")

    def blocks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        return regroup(self._batches(max(size, 1024)), size)  # small batches cost more than they save

    def take(self, index: Any) -> Tensor:
        rows = row_numbers(index, self.n_rows)
        X = np.empty((len(rows), self.n_columns), self._dtype)
        groups = np.searchsorted(self._ends, rows, side="right")
        for g in np.unique(groups):
            file, group = self._groups[g]
            with _open(file) as opened:
                table = opened.read_row_group(group, columns=self._names)
            here = groups == g
            X[here] = self._inputs(table)[rows[here] - (self._ends[g] - table.num_rows)]
        return torch.from_numpy(X)

    def targets(self) -> np.ndarray | None:
        if self._target is None:
            return None
        return np.concatenate([_values(file, self._target) for file in self._files])

    def names(self) -> Sequence[str]:
        return list(self._names)

    def _batches(self, size: int) -> Iterator[np.ndarray]:
        for file in self._files:
            with _open(file) as opened:
                for batch in opened.iter_batches(batch_size=size, columns=self._names):
                    yield self._inputs(batch)

    def _inputs(self, table: Any) -> np.ndarray:
        X = np.empty((table.num_rows, self.n_columns), self._dtype)
        for j, name in enumerate(self._names):
            column = table.column(name).cast("float64", safe=False)  # integers above 2**53 are rounded
            X[:, j] = column.to_numpy(zero_copy_only=False)
        return X

    def _precision(self, file: Path, schema: Any) -> np.dtype:
        """The precision that holds the inputs; a file without them, or with text there, is refused."""
        from pyarrow import types

        for name in self._names + ([] if self._target is None else [self._target]):
            if (found := schema.names.count(name)) != 1:
                raise ValueError(f"{file} must have one column {name!r}, got {found}")
        kinds = [schema.field(name).type for name in self._names]
        for name, kind in zip(self._names, kinds, strict=True):
            is_number = types.is_integer(kind) or types.is_floating(kind)
            if not (is_number or types.is_boolean(kind) or types.is_decimal(kind)):
                raise ValueError(f"{file}: column {name!r} must hold numbers, got {kind}")
        single = all(types.is_float32(kind) or types.is_float16(kind) for kind in kinds)
        return np.dtype(np.float32 if single else np.float64)


def choose_columns(
    path: FilePath,
    names: Sequence[str] | None,
    n_stored: int,
    target: Column | None,
    columns: Sequence[Column] | None,
) -> tuple[list[int], int | None]:
    """The positions of the input columns, and of the target, in a table of `n_stored` columns."""

    def position(column: Column) -> int:
        if isinstance(column, str):
            if names is None or column not in names:
                have = "no column names" if names is None else f"columns {list(names)}"
                raise ValueError(f"{path} has {have}, got column {column!r}")
            return list(names).index(column)
        number = operator.index(column)
        if not -n_stored <= number < n_stored:
            raise ValueError(f"{path} has {n_stored} columns, got column {number}")
        return number % n_stored

    at = None if target is None else position(target)
    kept = [j for j in range(n_stored) if j != at] if columns is None else [position(c) for c in columns]
    if not kept:
        raise ValueError(f"{path} has no input columns besides the target")
    if at in kept:
        raise ValueError(f"{path}: the target {target!r} must not be one of the columns {columns!r}")
    return kept, at


def row_numbers(index: Any, n_rows: int) -> np.ndarray:
    """An index as NumPy understands it (negative numbers, a mask) as row numbers from 0 to `n_rows` - 1."""
    rows = np.atleast_1d(index.cpu().numpy() if isinstance(index, Tensor) else np.asarray(index))
    if rows.dtype == bool:
        require(len(rows) == n_rows, "a mask of rows", f"of length {n_rows}", len(rows))
        return np.flatnonzero(rows)
    if rows.size and rows.dtype.kind not in "iu":
        raise IndexError(f"rows must be whole numbers, got {rows.dtype}")
    rows = rows.astype(np.int64)
    outside = (rows < -n_rows) | (rows >= n_rows)
    if outside.any():
        raise IndexError(f"rows must be from {-n_rows} to {n_rows - 1}, got {rows[outside][0]}")
    return np.where(rows < 0, rows + n_rows, rows)


def regroup(pieces: Iterable[np.ndarray], size: int) -> Iterator[tuple[int, Tensor]]:
    """Pieces of any length as blocks of `size` rows, so that sums over blocks do not depend on the file."""
    require(size >= 1, "size", "at least 1", size)
    start, held, n_held = 0, [], 0
    for piece in pieces:
        while len(piece):
            part, piece = piece[: size - n_held], piece[size - n_held :]
            held.append(part)
            n_held += len(part)
            if n_held == size:
                yield start, torch.from_numpy(np.concatenate(held))
                start, held, n_held = start + size, [], 0
    if held:
        yield start, torch.from_numpy(np.concatenate(held))


def _memory_map(path: Path) -> np.ndarray:
    try:
        table = np.load(path, mmap_mode="r", allow_pickle=False)
    except (EOFError, ValueError) as error:
        raise ValueError(f"{path} must be a .npy file that holds numbers: {error}") from error
    if not isinstance(table, np.ndarray) or table.size == 0:
        raise ValueError(f"{path} must be a .npy file with at least one row and column")
    return table


def _open(file: Path) -> Any:
    try:
        from pyarrow import ArrowInvalid
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise ImportError("reading Parquet needs pyarrow: pip install 'mercer[files]'") from error
    try:
        return ParquetFile(file)
    except ArrowInvalid as error:  # an empty file, too
        raise ValueError(f"{file} must be a Parquet file: {error}") from error


def _values(file: Path, name: str) -> np.ndarray:
    """One column of a file as it is stored; categories become their names."""
    from pyarrow import types

    with _open(file) as opened:
        column = opened.read(columns=[name]).column(name)
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.to_numpy()
