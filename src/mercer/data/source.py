"""Where rows come from: the one contract between data and engine.

A source gives rows in order by blocks, and single rows by index. `total` is the place where the processes of a
distributed source would talk to each other; on one process it returns what it is given, so that no algorithm knows
whether it is distributed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


class RowSource(ABC):
    """A table of `n_rows` × `n_columns` numbers, read by blocks."""

    n_rows: int
    n_columns: int

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

    def pick(self, values: Tensor, index: Tensor) -> Tensor:
        """Entries of a per-row tensor (rows along its last axis) at these rows, wherever they live."""
        return values[..., index]

    def total(self, value: Tensor) -> Tensor:
        """The sum of `value` over all processes."""
        return value


def spread_rows(weight: Any, n: int) -> np.ndarray:
    """Indices of at most n rows of positive weight, evenly spaced among them.

    >>> from mercer.data import spread_rows
    >>> spread_rows([1.0, 0.0, 1.0, 1.0, 1.0, 1.0], 3).tolist()
    [0, 3, 5]
    """
    alive = np.flatnonzero(torch.as_tensor(weight).cpu().numpy() > 0)
    return alive[np.linspace(0, len(alive) - 1, min(len(alive), n)).astype(int)]
