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

from mercer.data.raw import RawColumn


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
        raise ValueError(f"{self.target_label()} must hold numbers, got {y.flat[0]!r}")

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
