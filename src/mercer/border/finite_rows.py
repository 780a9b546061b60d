"""Rows of files, checked while they are read for other reasons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.data import RowSource, read_ahead
from mercer.parts import require


class FiniteRows(RowSource):
    """Rows of a source that is refused, with row and column, at the first number that is none.

    Blocks are read, decoded and checked by a thread while those before them are worked on.
    """

    def __init__(self, rows: RowSource) -> None:
        self.rows = rows
        self.n_rows, self.n_columns, self.shard = rows.n_rows, rows.n_columns, rows.shard
        require(self.n_rows > 0 or self.shard.spread, "the number of rows", "at least 1", self.n_rows)
        require(self.n_columns > 0, "the number of columns", "at least 1", self.n_columns)

    def blocks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        return read_ahead(self._checked(size)) if size < self.n_rows else self._checked(size)

    def _checked(self, size: int) -> Iterator[tuple[int, Tensor]]:
        for start, block in self.rows.blocks(size):
            yield start, self._finite(block, lambda i, start=start: start + i)

    def take(self, index: Any) -> Tensor:
        return self._finite(self.rows.take(index), lambda i: int(np.asarray(torch.as_tensor(index).cpu())[i]))

    def names(self) -> Sequence[str] | None:
        return self.rows.names()

    def _finite(self, block: Tensor, row_of: Any) -> Tensor:
        if not bool(block.isfinite().all()):
            row, column = (~block.isfinite()).nonzero()[0].tolist()
            names = self.names()
            number = int(self.shard.numbers(np.array([row_of(row)]))[0])
            where = f"row {number}, column {names[column] if names is not None else column}"
            raise ValueError(f"X must hold finite numbers, got {float(block[row, column])} in {where}: NaN or infinity")
        return block
