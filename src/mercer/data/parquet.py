"""Rows of Parquet files, decoded block by block."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from mercer.data.columns import Column, FilePath, choose_columns, row_indices
from mercer.data.frames import arrow_column, is_text
from mercer.data.raw import RawColumn
from mercer.data.shard import Group, Runs
from mercer.data.source import RowSource
from mercer.parts import require

#: Rows decoded at a time where single rows are looked up.
BATCH_ROWS = 1 << 16


class ParquetRows(RowSource):
    """Rows of a Parquet file, or of a folder of them in the order of their names.

    Blocks are decoded on demand. `take` decodes only the row groups that hold a requested row, batch by batch. Missing
    values are read as NaN. A file whose inputs are not all numbers, or are missing in places, is `mixed`: estimators
    then read entire columns (`columns`).

    Parameters
    ----------
    path : str or Path
        A file, or a folder of ``*.parquet`` files with the same columns.
    target : str, int or None, default None
        Name or number of the column that holds the targets, which may be text.
    columns : sequence of str or int, or None, default None
        Names or numbers of the input columns; None takes all but the target.

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

    def __init__(self, path: FilePath, target: Column | None = None, columns: Iterable[Column] | None = None) -> None:
        self.path = Path(path)
        self._files = parquet_files(path)
        self._stored = stored_names(self._files[0])
        self._choose(target, columns)
        self._groups: list[tuple[Path, int]] = []
        lengths = []
        for file in self._files:
            with _open(file) as opened:
                for group in range(opened.num_row_groups):
                    self._groups.append((file, group))
                    lengths.append(opened.metadata.row_group(group).num_rows)
        self._ends = np.cumsum(lengths, dtype=np.int64)
        self.n_rows = sum(lengths)
        if not self.n_rows:
            raise ValueError(f"{path} has no rows")

    @property
    def mixed(self) -> bool:
        """Whether an input is text, a category or a date, or is missing in a row (by the files' metadata)."""
        return bool(self._not_numbers) or any(self._gaps(file) for file in self._files)

    def columns(self) -> list[RawColumn]:
        """Read the inputs of all files into memory."""
        import pyarrow

        tables = []
        for file in self._files:
            with _open(file) as opened:
                tables.append(opened.read(columns=self._names))
        try:
            table = pyarrow.concat_tables(tables, promote_options="permissive")
        except pyarrow.ArrowException as error:  # numbers in one file, text in another
            raise ValueError(f"{self.path} must hold files whose columns have the same types: {error}") from error
        return [arrow_column(name, table.column(name)) for name in self._names]

    def blocks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        return _regroup(self._batches(max(size, 1024)), size)  # small batches cost more than they save

    def take(self, index: Any) -> Tensor:
        rows = row_indices(index, self.n_rows)
        X = np.empty((len(rows), self.n_columns), self._dtype)
        order = np.argsort(rows, kind="stable")
        wanted = rows[order]
        groups = np.unique(np.searchsorted(self._ends, wanted, side="right"))
        for file, in_file in groupby(groups, lambda g: self._groups[g][0]):
            with _open(file) as opened:
                for g in in_file:
                    begin = int(self._ends[g - 1]) if g else 0
                    for batch in self._decoded(opened, [self._groups[g][1]], BATCH_ROWS):
                        low, high = np.searchsorted(wanted, [begin, begin + batch.num_rows])
                        if low < high:  # a batch without requested rows is not converted
                            X[order[low:high]] = self._inputs(batch)[wanted[low:high] - begin]
                        begin += batch.num_rows
        return torch.from_numpy(X)

    def targets(self) -> np.ndarray | None:
        if self._target is None:
            return None
        found = [part for file, groups in self._by_file() for part in _values(file, self._target, groups)]
        return np.concatenate(found) if found else np.empty(0)

    def names(self) -> Sequence[str]:
        return list(self._names)

    @property
    def target_name(self) -> str | None:
        return self._target

    def target_label(self) -> str:
        return f"{self.path}, column {self._target!r},"

    def select(self, names: Sequence[str], target: str | None = None) -> Self:
        chosen = copy.copy(self)
        kept = self._target if target is None and self._target not in names else target
        chosen._choose(kept if kept in self._stored else None, names)
        return chosen

    def _choose(self, target: Column | None, columns: Iterable[Column] | None) -> None:
        kept, at = choose_columns(self.path, self._stored, len(self._stored), target, columns)
        self._names = [self._stored[column] for column in kept]
        self._target = None if at is None else self._stored[at]
        self._not_numbers = ""  # the error message of the first input that does not hold numbers
        self._dtype = np.result_type(*(self._precision(file) for file in self._files))
        self.n_columns = len(kept)

    def partition(self, group: Group) -> Self:
        """Return the row groups of this process: one run of about as many rows as any other process has."""
        lengths = np.diff(self._ends, prepend=0)
        middle = self._ends - lengths / 2
        here = np.flatnonzero(np.minimum(middle * group.size // self.n_rows, group.size - 1) == group.rank)
        start = int((self._ends - lengths)[here[0]]) if len(here) else 0
        local = copy.copy(self)
        local._groups = [self._groups[g] for g in here]
        local._ends = self._ends[here] - start
        local.n_rows = int(lengths[here].sum())
        local.shard = Runs(group, [start], [local.n_rows])
        return local

    def _by_file(self) -> Iterator[tuple[Path, list[int]]]:
        """Iterate over files, each with the numbers of its row groups."""
        for file, groups in groupby(self._groups, lambda pair: pair[0]):
            yield file, [group for _, group in groups]

    def _gaps(self, file: Path) -> bool:
        with _open(file) as opened:
            stored = opened.metadata
            groups = [stored.row_group(g) for g in range(stored.num_row_groups)]
            places = [k for k in range(stored.num_columns) if stored.schema.column(k).name in self._names]
            statistics = [group.column(k).statistics for group in groups for k in places]
        return any(seen is not None and seen.has_null_count and seen.null_count > 0 for seen in statistics)

    def _batches(self, size: int) -> Iterator[np.ndarray]:
        for file, groups in self._by_file():
            with _open(file) as opened:
                for batch in self._decoded(opened, groups, size):
                    yield self._inputs(batch)

    def _decoded(self, opened: Any, groups: list[int], size: int) -> Iterator[Any]:
        return opened.iter_batches(batch_size=size, row_groups=groups, columns=self._names)

    def _inputs(self, table: Any) -> np.ndarray:
        if self._not_numbers:  # blocks hold numbers only
            raise ValueError(self._not_numbers)
        X = np.empty((table.num_rows, self.n_columns), self._dtype)
        for j, name in enumerate(self._names):
            column = table.column(name)
            if column.type != "float":  # float32 is read as it is; integers above 2**53 are rounded
                column = column.cast("float64", safe=False)
            X[:, j] = column.to_numpy(zero_copy_only=False)
        return X

    def _precision(self, file: Path) -> np.dtype:
        """Return the dtype that holds the inputs; a file without the columns, or of other types, is refused."""
        from pyarrow import types

        with _open(file) as opened:
            schema = opened.schema_arrow
        for name in self._names + ([] if self._target is None else [self._target]):
            if (found := schema.names.count(name)) != 1:
                raise ValueError(f"{file} must have one column {name!r}, got {found}")
        kinds = [schema.field(name).type for name in self._names]
        for name, kind in zip(self._names, kinds, strict=True):
            if not _holds_numbers(kind):
                readable = _holds_text(kind) or types.is_temporal(kind)
                require(readable, f"{file}: column {name!r}", "numbers, text, categories or dates", str(kind))
                self._not_numbers = self._not_numbers or f"{file}: column {name!r} must hold numbers, got {kind}"
        if self._target is not None:
            kind = schema.field(self._target).type
            good = _holds_numbers(kind) or _holds_text(kind)
            require(good, f"{file}: the target {self._target!r}", "numbers or names of classes", str(kind))
        single = all(types.is_float32(kind) or types.is_float16(kind) for kind in kinds)
        return np.dtype(np.float32 if single else np.float64)


def parquet_files(path: FilePath) -> list[Path]:
    """Return the file itself, or the Parquet files of a folder in the order of their names."""
    files = sorted(Path(path).glob("*.parquet")) if Path(path).is_dir() else [Path(path)]
    if not files:
        raise ValueError(f"{path} is a folder without .parquet files")
    return files


def stored_names(file: Path) -> list[str]:
    """Return the names of all columns of a file."""
    with _open(file) as opened:
        return list(opened.schema_arrow.names)


@contextmanager
def _open(file: Path) -> Iterator[Any]:
    """Open a Parquet file; an error while it is read names the file."""
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise ImportError("reading Parquet needs pyarrow: pip install 'mercer[files]'") from error
    if not file.exists():
        raise FileNotFoundError(f"there is no file {file}")
    try:
        with ParquetFile(file, page_checksum_verification=True) as opened:
            yield opened
    except (ArrowException, OSError) as error:  # an empty file, too
        raise ValueError(f"{file} must be a Parquet file, whole and undamaged: {error}") from error


def _values(file: Path, name: str, groups: list[int]) -> Iterator[np.ndarray]:
    """Read a column of these row groups; categories become their names, and decimals floats."""
    from pyarrow import types

    with _open(file) as opened:
        for batch in opened.iter_batches(batch_size=BATCH_ROWS, row_groups=groups, columns=[name]):
            column = batch.column(name)
            if types.is_dictionary(column.type):
                column = column.cast(column.type.value_type)
            if types.is_decimal(column.type):
                column = column.cast("float64")
            values = column.to_numpy(zero_copy_only=False)
            if _holds_text(column.type) or types.is_boolean(column.type):
                nameless = np.flatnonzero([value is None or value == "" for value in values])
                require(not len(nameless), f"{file}, column {name!r}: a target", "given in every row", "none")
            yield values


def _holds_numbers(kind: Any) -> bool:
    from pyarrow import types

    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    return any(test(kind) for test in tests)


def _holds_text(kind: Any) -> bool:
    from pyarrow import types

    if types.is_dictionary(kind):
        return _holds_text(kind.value_type) or _holds_numbers(kind.value_type)
    return is_text(kind)


def _regroup(pieces: Iterable[np.ndarray], size: int) -> Iterator[tuple[int, Tensor]]:
    """Regroup arrays of any length to blocks of `size` rows, so that sums over blocks do not depend on the file."""
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
