"""Rows held in memory: NumPy arrays, torch tensors, memory maps, pandas and polars frames."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from mercer.data.columns import choose_columns
from mercer.data.frames import holds_numbers
from mercer.data.group import Group
from mercer.data.shard import UNDIVIDED, Runs, Shard, even_run
from mercer.data.source import RowSource, TransformedRows


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
