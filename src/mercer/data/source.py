"""Where rows come from: the one contract between data and engine.

A source gives rows in order by blocks, and single rows by index. Its `shard` says which rows of the whole table these
are: all of them, unless a table was dealt out to several processes. `total`, `pick` and `fetch` are where those talk to
each other; on one process they return what is there, so that no algorithm knows whether it is distributed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.data.group import Group
from mercer.data.raw import RawColumn
from mercer.data.shard import WHOLE, Pieces, Shard, even_run


class RowSource(ABC):
    """A table of `n_rows` × `n_columns` numbers, read by blocks."""

    n_rows: int
    n_columns: int
    #: Which rows of the table these are.
    shard: Shard = WHOLE

    @abstractmethod
    def blocks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        """All rows in order: pairs of (first row, block of at most `size` rows), on any device."""

    @abstractmethod
    def take(self, index: Any) -> Tensor:
        """The rows with these indices, in this order."""

    def targets(self) -> np.ndarray | None:
        """Targets stored beside the rows (a column of a file), if there are any."""
        return None

    def names(self) -> Sequence[str] | None:
        """Column names, if there are any."""
        return None

    @property
    def target_name(self) -> str | None:
        """The name of the column that holds the targets, if there is one and it has a name."""
        return None

    def target_label(self) -> str:
        """What a sentence calls the targets: their file and column, where they come from one."""
        return "y"

    def real_targets(self) -> np.ndarray | None:
        """Targets as numbers; text is refused with the place it comes from."""
        y = self.targets()
        if y is None or y.dtype.kind in "biuf":
            return y
        raise ValueError(f"{self.target_label()} must hold numbers, got {y.ravel().tolist()[0]!r}")

    def select(self, names: Sequence[str], target: str | None = None) -> RowSource:
        """The same rows with the columns of these names alone, in this order.

        A column left out does not matter, be it text. Targets stay those that were chosen before, or are the
        column `target` where there is one of that name.
        """
        raise ValueError(f"X must be a source whose columns have names, got a {type(self).__name__}")

    @property
    def mixed(self) -> bool:
        """Whether some columns are no plain numbers, so that blocks do not say all that `columns` does."""
        return False

    def columns(self) -> list[RawColumn]:
        """The whole table with its columns as they came, where it is `mixed`."""
        raise ValueError(f"a {type(self).__name__} holds nothing but numbers")

    def pick(self, values: Tensor, index: Tensor) -> Tensor:
        """Entries of a per-row tensor (rows along its last axis) at rows of these numbers, wherever they live."""
        return self.shard.pick(values, index)

    def fetch(self, numbers: Any) -> Tensor:
        """The rows of these numbers in the whole table, in this order, wherever they live."""
        return self.shard.take(self.take, numbers)

    def total(self, value: Tensor) -> Tensor:
        """The sum of `value` over all processes."""
        return self.shard.group.sum(value)

    def dealt(self, group: Group) -> RowSource:
        """The rows that fall to this process where a group shares the table: a run of them."""
        return RunOfRows(self, group)


class RunOfRows(RowSource):
    """Consecutive rows of another source: those of one process among several."""

    def __init__(self, rows: RowSource, group: Group) -> None:
        self.rows, self.n_columns = rows, rows.n_columns
        self.start, self.stop = even_run(group, rows.n_rows)
        self.n_rows = self.stop - self.start
        self.shard = Pieces(group, [self.start], [self.n_rows])

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


class RowSubset(RowSource):
    """Some rows of another source, read a block at a time: those of two classes, or some that stand for all.

    `index` are places. Sums are over all processes, each of which brings rows of its own.

    >>> from mercer.data import TensorRows
    >>> from mercer.data.source import RowSubset
    >>> RowSubset(TensorRows(torch.arange(6.0)[:, None]), [1, 4]).take([1]).tolist()
    [[4.0]]
    """

    def __init__(self, rows: RowSource, index: Any) -> None:
        self.rows, self.index = rows, index if isinstance(index, Tensor) else np.asarray(index)
        self.n_rows, self.n_columns = len(self.index), rows.n_columns

    def blocks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        for start in range(0, self.n_rows, size):
            yield start, self.rows.take(self.index[start : start + size])

    def take(self, index: Any) -> Tensor:
        return self.rows.take(self.index[index])

    def total(self, value: Tensor) -> Tensor:
        return self.rows.total(value)


def spaced_rows(weight: Any, n: int) -> np.ndarray:
    """Indices of at most n rows of positive weight, evenly spaced among them.

    >>> from mercer.data import spaced_rows
    >>> spaced_rows([1.0, 0.0, 1.0, 1.0, 1.0, 1.0], 3).tolist()
    [0, 3, 5]
    """
    alive = np.flatnonzero(torch.as_tensor(weight).cpu().numpy() > 0)
    return alive[np.linspace(0, len(alive) - 1, min(len(alive), n)).astype(int)]
