"""A kernel within cells: k(x, z) if x and z are in the same cell of a partition of the inputs, otherwise 0.

The kernel matrix of all rows is then block diagonal, so that ridge regression is solved exactly, cell by cell, in a
time that grows linearly with the number of rows. It is the product of two kernels, hence positive definite. A cell of a
thousand rows suffices where the target varies over short distances; a model of all rows has to explain what varies over
long ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from mercer.codegen.cpu import cached_rows
from mercer.kernels.base import Kernel
from mercer.kernels.columns import Columns
from mercer.parts import component, require

#: Rows whose principal direction splits a cell, and steps of the power method that finds it.
SPLIT_ROWS, POWER_STEPS = 256, 8


@dataclass(frozen=True)
class Cells:
    """A partition of the inputs by a complete binary tree: the children of node i are 2i + 1 and 2i + 2.

    At node i rows with ``directions[i] @ x > thresholds[i]`` go to the second child.

    >>> cells = Cells(np.array([[1.0, 0.0]]), np.array([0.5]))
    >>> cells.of(torch.tensor([[0.0, 3.0], [1.0, 3.0]])).tolist()
    [0, 1]
    """

    directions: np.ndarray = field(repr=False)
    thresholds: np.ndarray = field(repr=False)

    @classmethod
    def split(cls, X: Tensor, size: int, rng: np.random.Generator) -> Cells:
        """Split rows at the median of their principal direction until cells have at most `size` rows.

        Cells of rows that no direction tells apart may have more.
        """
        depth = max(int(np.ceil(np.log2(max(len(X), 1) / size))), 0)
        directions, thresholds = X.new_zeros(2**depth - 1, X.shape[1]), X.new_zeros(2**depth - 1)
        rows = [torch.arange(len(X), device=X.device)]
        for node in range(2**depth - 1):
            here = rows[node]
            drawn = here[torch.as_tensor(rng.integers(max(len(here), 1), size=min(len(here), SPLIT_ROWS))).to(here)]
            directions[node] = _principal_direction(X[drawn])
            position = X[here] @ directions[node]
            thresholds[node] = _balanced_threshold(position)
            second = position > thresholds[node]
            rows += [here[~second], here[second]]
        return cls(directions.double().cpu().numpy(), thresholds.double().cpu().numpy())

    @property
    def n_cells(self) -> int:
        return len(self.thresholds) + 1

    @property
    def depth(self) -> int:
        return self.n_cells.bit_length() - 1

    def of(self, X: Tensor) -> Tensor:
        """The cell of each row."""
        if len(X) == 1 and X.device.type == "cpu":
            return torch.tensor([self._of_row(X[0].numpy())])
        directions, thresholds = (torch.as_tensor(part).to(X) for part in (self.directions, self.thresholds))
        cells = []
        for block in X.split(cached_rows(X.shape[1], X)):
            node = torch.zeros(len(block), dtype=torch.long, device=X.device)
            for _ in range(self.depth):
                position = (block * directions[node]).sum(1)
                node = 2 * node + 1 + (position > thresholds[node]).long()
            cells.append(node - len(thresholds))
        return torch.cat(cells)

    def _of_row(self, row: np.ndarray) -> int:
        """The cell of a single row, without the cost of calls that many rows share."""
        node = 0
        for _ in range(self.depth):
            node = 2 * node + 1 + int(self.directions[node].astype(row.dtype) @ row > self.thresholds[node])
        return node - len(self.thresholds)

    def check(self) -> None:
        """Raise ValueError for arrays that are no tree: they may come from a file."""
        n = len(self.thresholds)
        is_tree = self.directions.ndim == 2 and len(self.directions) == n and (n + 1).bit_count() == 1
        require(is_tree, "the nodes of a partition", "those of a complete binary tree", self.directions.shape)


def _principal_direction(X: Tensor) -> Tensor:
    """The unit vector along which rows vary most, by the power method; the first axis if they are all the same."""
    centred = X - X.mean(0) if len(X) else X.new_zeros(1, X.shape[1])
    direction = centred[centred.square().sum(1).argmax()]
    for _ in range(POWER_STEPS):
        direction = centred.T @ (centred @ direction)
        direction = direction / direction.norm().clamp(min=1e-30)
    first = torch.zeros_like(direction)
    first[:1] = 1.0
    return direction if bool(direction.norm() > 0.5) else first


def _balanced_threshold(position: Tensor) -> Tensor:
    """A threshold between two values next to the median, whichever halves the rows better.

    It lies between values, so that rounding moves no row to the other side.
    """
    if not len(position):
        return position.new_zeros(())
    median = position.median()
    below, above = position[position < median], position[position > median]
    found = [(median + below.max()) / 2] if len(below) else []
    found += [(median + above.min()) / 2] if len(above) else []
    shares = [abs(float((position > threshold).double().mean()) - 0.5) for threshold in found]
    return found[int(np.argmin(shares))] if found else median


@final
@component
class Partitioned(Kernel):
    """A kernel within the cells of a partition, and 0 between different cells.

    >>> from mercer.kernels import Gaussian
    >>> cells = Cells(np.array([[1.0]]), np.array([0.5]))
    >>> X = torch.tensor([[0.0], [0.4], [0.6]])
    >>> Partitioned(Gaussian(), cells)(X, X).tolist()
    [[1.0, 0.92..., 0.0], [0.92..., 1.0, 0.0], [0.0, 0.0, 1.0]]
    """

    kernel: Kernel
    cells: Cells

    def check(self) -> None:
        self.cells.check()
        super().check()

    def columns(self, Z: Tensor) -> Columns:
        return PartitionedColumns(self, Z)

    def diag(self, X: Tensor) -> Tensor:
        return self.kernel.diag(X)


@final
@dataclass(frozen=True, eq=False)
class PartitionedColumns(Columns):
    """A partitioned kernel bound to basis vectors: each cell's rows meet the basis vectors of their cell alone."""

    kernel: Partitioned
    Z: Tensor

    @cached_property
    def _members(self) -> dict[int, Tensor]:
        """The basis vectors of each cell, by their places."""
        return dict(rows_by_cell(self.kernel.cells.of(self.Z)))

    @cached_property
    def _bound(self) -> dict[int, Columns]:
        """The kernel bound to the basis vectors of cells that were asked for."""
        return {}

    def _cells(self, X: Tensor) -> Iterator[tuple[Tensor, Tensor, Columns]]:
        """Places of rows, places of basis vectors, and the kernel bound to these, for each cell with both."""
        for cell, rows in rows_by_cell(self.kernel.cells.of(X)):
            members = self._members.get(cell)
            if members is None:
                continue
            if cell not in self._bound:
                self._bound[cell] = self.kernel.kernel.columns(self.Z[members])
            yield rows, members, self._bound[cell]

    def __call__(self, X: Tensor) -> Tensor:
        tile = X.new_zeros(len(X), len(self.Z))
        for rows, members, columns in self._cells(X):
            tile = tile.index_put((rows[:, None], members), columns(X[rows]))
        return tile

    def with_basis(self, Z: Tensor) -> Columns:
        return PartitionedColumns(self.kernel, Z)

    def is_matrix_free(self, p: int) -> bool:
        return True

    def product(self, X: Tensor, W: Tensor) -> Tensor:
        out = X.new_zeros(len(X), W.shape[1])
        for rows, members, columns in self._cells(X):
            out[rows] = columns.product(X[rows], W[members])
        return out

    def transposed(self, X: Tensor, R: Tensor) -> Tensor:
        out = X.new_zeros(len(self.Z), R.shape[1])
        for rows, members, columns in self._cells(X):
            out[members] = columns.transposed(X[rows], R[rows])
        return out

    def slopes(self, X: Tensor, W: Tensor) -> Tensor:
        out = X.new_zeros(*X.shape, W.shape[1])
        for rows, members, columns in self._cells(X):
            out[rows] = columns.slopes(X[rows], W[members])
        return out


def rows_by_cell(cell: Tensor) -> list[tuple[int, Tensor]]:
    """Each cell that has rows, and their places."""
    if len(cell) == 1:
        return [(int(cell), cell.new_zeros(1))]
    ordered, order = cell.sort(stable=True)
    found, counts = ordered.unique_consecutive(return_counts=True)
    parts: Any = order.split(counts.tolist())
    return list(zip(found.tolist(), parts, strict=True))
