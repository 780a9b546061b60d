"""Row sources: the interface between data and engine.

A source returns rows in order by blocks, and single rows by index. Its `shard` says which rows of the whole table these
are: all of them, unless the table is divided among several processes. `total`, `pick` and `fetch` communicate between
processes; on one process they return what is there, so that no algorithm knows whether it is distributed.

Rows in memory are arrays, torch tensors, frames, sparse matrices, or memory-mapped .npy files.
"""

from __future__ import annotations

import copy
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self, SupportsIndex

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from mercer.data.columns import FilePath, choose_columns, row_indices
from mercer.data.frames import holds_numbers
from mercer.data.raw import RawColumn, comma_advice
from mercer.data.shard import UNDIVIDED, Group, Runs, Shard, even_run
from mercer.kernels.sparse_rows import Entries
from mercer.parts import require

Block = tuple[int, Tensor]
#: Largest number of prefetched blocks, besides the one being processed.
READY = 2


class RowSource(ABC):
    """A table of `n_rows` × `n_columns` numbers, read by blocks."""

    n_rows: int
    n_columns: int
    #: Which rows of the table these are.
    shard: Shard = UNDIVIDED

    @abstractmethod
    def blocks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        """Iterate over all rows in order: pairs of (first row, block of at most `size` rows), on any device."""

    @abstractmethod
    def take(self, index: Any) -> Tensor:
        """Return the rows with these indices, in this order."""

    def targets(self) -> np.ndarray | None:
        """Return the targets stored with the rows (a column of a file), or None."""
        return None

    def names(self) -> Sequence[str] | None:
        """Return the column names, or None."""
        return None

    @property
    def target_name(self) -> str | None:
        """Name of the column that holds the targets, or None."""
        return None

    def target_label(self) -> str:
        """Return the name of the targets for an error message: their file and column, if they come from one."""
        return "y"

    def real_targets(self) -> np.ndarray | None:
        """Return the targets as numbers; text is refused with its file and column."""
        y = self.targets()
        if y is None or y.dtype.kind in "biuf":
            return y
        seen = y.ravel().tolist()[0]
        raise ValueError(f"{self.target_label()} must hold numbers, got {seen!r}{comma_advice(seen)}")

    def select(self, names: Sequence[str], target: str | None = None) -> RowSource:
        """Return the same rows with the columns of these names only, in this order.

        Other columns may hold text. Targets stay those that were chosen before, or are the column `target` where
        there is one of that name.
        """
        raise ValueError(f"X must be a source whose columns have names, got a {type(self).__name__}")

    @property
    def mixed(self) -> bool:
        """Whether some columns are not plain numbers, so that blocks hold less than `columns`."""
        return False

    def columns(self) -> list[RawColumn]:
        """Return all columns with their types, where the source is `mixed`."""
        raise ValueError(f"a {type(self).__name__} holds nothing but numbers")

    def pick(self, values: Tensor, index: Tensor) -> Tensor:
        """Return entries of a per-row tensor (rows along its last axis) at these global indices."""
        return self.shard.pick(values, index)

    def fetch(self, indices: Any) -> Tensor:
        """Return the rows of these global indices, in this order, whichever process holds them."""
        return self.shard.take(self.take, indices)

    def total(self, value: Tensor) -> Tensor:
        """Sum `value` over all processes."""
        return self.shard.group.sum(value)

    def partition(self, group: Group) -> RowSource:
        """Return the rows of this process, where a group divides the table: a run of them."""
        return RunOfRows(self, group)


class WeightedRows:
    """A record of `rows` and their `weight`; rows of weight zero have no influence and are never named here."""

    rows: RowSource
    weight: Any  # an array or a tensor

    @property
    def alive(self) -> np.ndarray:
        """Indices of the rows of positive weight, in order, of this process."""
        return np.flatnonzero(self._positive.cpu().numpy())

    @property
    def n_alive(self) -> int:
        """The number of rows of positive weight, of all processes."""
        return self.rows.shard.count(self._positive)

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Indices of at most `n` rows of positive weight, drawn uniformly, in order."""
        return self.rows.shard.draw(self._positive, n, rng).cpu().numpy()

    def spaced(self, n: int) -> np.ndarray:
        """Indices of at most `n` rows of positive weight, evenly spaced among them, in order."""
        return self.rows.shard.spaced(self._positive, n).cpu().numpy()

    @property
    def _positive(self) -> Tensor:
        return torch.as_tensor(self.weight > 0)


class TransformedRows(RowSource):
    """Rows of another source, each block changed by itself; a subclass says how."""

    def __init__(self, rows: RowSource) -> None:
        self.rows = rows
        self.n_rows, self.n_columns, self.shard = rows.n_rows, rows.n_columns, rows.shard

    @abstractmethod
    def transform(self, block: Tensor) -> Tensor:
        """A block of the other source's rows, changed."""

    def blocks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        for start, block in self.rows.blocks(size):
            yield start, self.transform(block)

    def take(self, index: Any) -> Tensor:
        return self.transform(self.rows.take(index))

    def names(self) -> Sequence[str] | None:
        return self.rows.names()


class RowSubset(RowSource):
    """Selected rows of another source, read a block at a time: those of two classes, or a sample.

    `index` holds local indices. Sums run over all processes, each of which has rows of its own.

    >>> from mercer.data import TensorRows
    >>> from mercer.data.source import RowSubset
    >>> RowSubset(TensorRows(torch.arange(6.0)[:, None]), [1, 4]).take([1]).tolist()
    [[4.0]]
    """

    def __init__(self, rows: RowSource, index: Any) -> None:
        self.rows = rows
        self.index = index if isinstance(index, Tensor) else np.asarray(index)
        self.n_rows = len(self.index)
        self.n_columns = rows.n_columns

    def blocks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        for start in range(0, self.n_rows, size):
            yield start, self.rows.take(self.index[start : start + size])

    def take(self, index: Any) -> Tensor:
        return self.rows.take(self.index[index])

    def total(self, value: Tensor) -> Tensor:
        return self.rows.total(value)


class RunOfRows(RowSubset):
    """Consecutive rows of another source: those of one process of several."""

    def __init__(self, rows: RowSource, group: Group) -> None:
        self.start, self.stop = even_run(group, rows.n_rows)
        super().__init__(rows, np.arange(self.start, self.stop))
        self.shard = Runs(group, [self.start], [self.n_rows])

    def total(self, value: Tensor) -> Tensor:
        return self.shard.group.sum(value)

    def targets(self) -> np.ndarray | None:
        y = self.rows.targets()
        return None if y is None else y[self.start : self.stop]

    def names(self) -> Sequence[str] | None:
        return self.rows.names()

    @property
    def target_name(self) -> str | None:
        return self.rows.target_name

    def target_label(self) -> str:
        return self.rows.target_label()


def spaced_rows(weight: Any, n: int) -> np.ndarray:
    """Return the indices of at most n rows of positive weight, evenly spaced among them.

    >>> from mercer.data import spaced_rows
    >>> spaced_rows([1.0, 0.0, 1.0, 1.0, 1.0, 1.0], 3).tolist()
    [0, 3, 5]
    """
    return UNDIVIDED.spaced(torch.as_tensor(weight).cpu() > 0, n).numpy()


def read_ahead(blocks: Iterator[Block], *, pinned: bool = False) -> Iterator[Block]:
    """Yield the same blocks, prefetched by a thread; `pinned` copies them to pinned memory for a GPU.

    A block is a pair of its first row and the rows. An error of the thread is raised here, after the blocks before
    it. Leaving the loop early ends the thread.

    >>> import torch
    >>> from mercer.data import read_ahead
    >>> [(start, rows.tolist()) for start, rows in read_ahead(iter([(0, torch.ones(2)), (2, torch.zeros(1))]))]
    [(0, [1.0, 1.0]), (2, [0.0])]
    """

    def read() -> Block | None:
        found = next(blocks, None)
        if found is None or not pinned or found[1].is_cuda:
            return found
        return found[0], found[1].pin_memory()

    with ThreadPoolExecutor(1, "mercer reads ahead") as thread:
        ready: deque[Future[Block | None]] = deque(thread.submit(read) for _ in range(READY))
        try:
            while (block := ready.popleft().result()) is not None:
                ready.append(thread.submit(read))
                yield block
                del block  # frees it before waiting for the next block
        finally:
            for future in ready:
                future.cancel()
            if hasattr(blocks, "close"):  # the thread that opened a file closes it
                thread.submit(blocks.close).result()


class TensorRows(RowSource):
    """Rows of a two-dimensional tensor on any device."""

    def __init__(self, X: Tensor, shard: Shard = UNDIVIDED) -> None:
        self.X, self.shard = X, shard
        self.n_rows, self.n_columns = X.shape

    def blocks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        for start in range(0, self.n_rows, size):
            yield start, self.X[start : start + size]

    def take(self, index: Any) -> Tensor:
        return self.X[torch.as_tensor(index, device=self.X.device)]


class ArrayRows(RowSource):
    """Rows of a two-dimensional NumPy array; a memory map is read block by block."""

    def __init__(self, X: np.ndarray, shard: Shard = UNDIVIDED) -> None:
        self.X, self.shard = X, shard
        self.n_rows, self.n_columns = X.shape

    def blocks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        for start in range(0, self.n_rows, size):
            yield start, as_tensor(self.X[start : start + size])

    def take(self, index: Any) -> Tensor:
        return as_tensor(self.X[np.asarray(index)])

    def partition(self, group: Group) -> RowSource:
        if type(self) is not ArrayRows:  # subclasses have names and targets
            return super().partition(group)
        start, stop = even_run(group, self.n_rows)
        return ArrayRows(self.X[start:stop], Runs(group, [start], [stop - start]))


class FrameRows(ArrayRows):
    """Rows of a pandas or polars frame whose columns are all numbers; missing values become NaN.

    Neither library is imported: a frame is anything with `columns`, `dtypes` and `to_numpy`.

    Examples
    --------
    >>> import pandas as pd
    >>> from mercer.data import FrameRows
    >>> rows = FrameRows(pd.DataFrame({"depth": [1.5, 2.5], "width": [4, 5]}))
    >>> rows.names(), rows.take([1])
    (['depth', 'width'], tensor([[2.5000, 5.0000]], dtype=torch.float64))
    """

    def __init__(self, frame: Any) -> None:
        for name, dtype in zip(frame.columns, frame.dtypes, strict=True):
            if not holds_numbers(dtype):
                raise ValueError(f"column {name!r} must hold numbers, got {dtype}")
        X = frame.to_numpy()
        if X.dtype.kind != "f" and hasattr(frame, "iloc"):  # for pandas' own missing value
            X = frame.to_numpy(dtype=np.float64, na_value=np.nan)
        super().__init__(X if X.dtype.kind == "f" else X.astype(np.float64))
        self._names = [str(name) for name in frame.columns]

    def names(self) -> list[str]:
        return list(self._names)

    def select(self, names: Sequence[str], target: str | None = None) -> Self:
        kept, _ = choose_columns("X", self._names, self.n_columns, None, names)
        chosen = copy.copy(self)
        chosen.X, chosen.n_columns, chosen._names = self.X[:, kept], len(kept), list(names)
        return chosen


class PreparedRows(TransformedRows):
    """Rows of another source, on one device in one precision."""

    def __init__(self, rows: RowSource, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(rows)
        self.device, self.dtype = device, dtype

    def transform(self, block: Tensor) -> Tensor:
        return block.to(self.device, self.dtype)


def as_tensor(block: np.ndarray) -> Tensor:
    """Return a tensor that shares memory with `block` where that is possible (a read-only map is copied)."""
    if not block.dtype.isnative:
        block = block.astype(block.dtype.newbyteorder("="))
    if not block.flags.writeable or any(stride < 0 for stride in block.strides):
        block = block.copy()
    return torch.from_numpy(block)


def require_numbers(dtype: np.dtype, what: str) -> None:
    """Refuse an array of text, objects, or numbers that torch cannot hold."""
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise ValueError(f"{what} must hold real numbers of at most 64 bits, got {dtype}")


class NpyRows(RowSource):
    """Rows of a .npy file, mapped into memory and copied block by block.

    Parameters
    ----------
    path : str or Path
        Path of a two-dimensional array of numbers.
    target : int, str, Path or None, default None
        The column that holds the targets (its number), or the path of a second .npy file with one target a row.

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
