"""Row sources: the interface between data and engine.

A source returns rows in order by blocks, and single rows by index. Its `shard` says which rows of the whole table these
are: all of them, unless the table is divided among several processes. `total`, `pick` and `fetch` communicate between
processes; on one process they return what is there, so that no algorithm knows whether it is distributed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.data.raw import RawColumn
from mercer.data.shard import UNDIVIDED, Group, Runs, Shard, even_run

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
        raise ValueError(f"{self.target_label()} must hold numbers, got {y.ravel().tolist()[0]!r}")

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


class RunOfRows(RowSource):
    """Consecutive rows of another source: those of one process of several."""

    def __init__(self, rows: RowSource, group: Group) -> None:
        self.rows = rows
        self.n_columns = rows.n_columns
        self.start, self.stop = even_run(group, rows.n_rows)
        self.n_rows = self.stop - self.start
        self.shard = Runs(group, [self.start], [self.n_rows])

    def blocks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        for at, block in self.rows.blocks(size) if self.n_rows else ():
            low, high = max(self.start - at, 0), min(self.stop - at, len(block))
            if low < high:
                yield at + low - self.start, block[low:high]
            if at + len(block) >= self.stop:
                return

    def take(self, index: Any) -> Tensor:
        return self.rows.take(np.asarray(torch.as_tensor(index).cpu()) + self.start)

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


def spaced_rows(weight: Any, n: int) -> np.ndarray:
    """Return the indices of at most n rows of positive weight, evenly spaced among them.

    >>> from mercer.data import spaced_rows
    >>> spaced_rows([1.0, 0.0, 1.0, 1.0, 1.0, 1.0], 3).tolist()
    [0, 3, 5]
    """
    alive = np.flatnonzero(torch.as_tensor(weight).cpu().numpy() > 0)
    return alive[np.linspace(0, len(alive) - 1, min(len(alive), n)).astype(int)]


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
