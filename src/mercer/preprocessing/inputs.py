"""Inputs at the border: the user's columns, and the numbers that kernels see; frozen, with a way back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.data import Bend, RowSource, TensorRows, find_bend, read_ahead
from mercer.engine import Plan, reduce_rows
from mercer.preprocessing.read import TableData
from mercer.progress import count_rows
from mercer.selection.heavy_tails import bending_pays

#: Rows from which heavy tails and the order of magnitude of each column are judged.
SAMPLE_ROWS = 10_000
#: Prepared inputs stay within these: their squared distances are then finite numbers, and kernels are 0 long before.
FARTHEST = {torch.float32: 1e18, torch.float64: 1e150}


@dataclass(frozen=True)
class InputMap:
    """Maps single columns (where that is wanted), centres and scales all of them, and turns them, in float64.

    `columns` maps each column by itself: a `Bend` of heavy tails, or a `ColumnMap`. `transform` is a factor for each
    column (D) or a matrix (D × D) that rows are multiplied by at the end: the metric in which they are compared.

    >>> inputs = InputMap(mean=np.array([10.0]), scale=np.array([2.0]))
    >>> inputs.encode(torch.tensor([[14.0]])), inputs.decode(torch.tensor([[2.0]]))
    (tensor([[2.]], dtype=torch.float64), array([[14.]]))
    """

    mean: np.ndarray
    scale: np.ndarray
    columns: Callable[[Tensor], Tensor] | None = None
    transform: np.ndarray | None = None

    @classmethod
    def plain(cls, n_columns: int) -> InputMap:
        """Columns as they are."""
        return cls(np.zeros(n_columns), np.ones(n_columns))

    def encode(self, block: Any) -> Tensor:
        """Rows in the units the kernel sees, on the device they are on."""
        rows = torch.as_tensor(block).double()
        rows = rows if self.columns is None else self.columns(rows)
        mean, scale = (torch.as_tensor(v, device=rows.device) for v in (self.mean, self.scale))
        rows = (rows - mean).div_(scale)
        if self.transform is None:
            return rows
        turn = torch.as_tensor(self.transform, device=rows.device)
        return rows * turn if turn.ndim == 1 else rows @ turn.T

    def decode(self, rows: Tensor) -> np.ndarray:
        """Rows in the user's units; of a transform that loses directions, those of least norm."""
        rows = rows.double().cpu()
        if self.transform is not None:
            turn = torch.as_tensor(self.transform)
            rows = rows / turn.where(turn != 0, torch.inf) if turn.ndim == 1 else rows @ torch.linalg.pinv(turn).T
        plain = rows * torch.as_tensor(self.scale) + torch.as_tensor(self.mean)
        return (plain if self.columns is None else self.columns.inverse(plain)).numpy()  # type: ignore[attr-defined]

    def rows(self, source: RowSource, plan: Plan) -> RowSource:
        """The rows of `source` as the kernel sees them, held on the plan's device where they fit."""
        encoded = EncodedRows(source, self, plan)
        held = plan.holds_rows(source.n_rows, source.n_columns)
        return encoded.in_memory(plan.chunk_rows(source.n_columns)) if held else encoded

    def few(self, block: Any, plan: Plan) -> Tensor:
        """A few rows as the kernel sees them, on the plan's device and in its precision."""
        farthest = FARTHEST[plan.dtype]
        return self.encode(torch.as_tensor(block).to(plan.device)).clamp_(-farthest, farthest).to(plan.dtype)


class EncodedRows(RowSource):
    """Rows of another source through an `InputMap`, on one device in one precision."""

    def __init__(self, rows: RowSource, inputs: InputMap, plan: Plan) -> None:
        self.source, self.inputs, self.plan = rows, inputs, plan
        self.n_rows, self.n_columns, self.shard = rows.n_rows, rows.n_columns, rows.shard

    def blocks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        for start, block in on_their_way(self.source, size, self.plan):
            yield start, self.inputs.few(block, self.plan)

    def take(self, index: Any) -> Tensor:
        return self.inputs.few(self.source.take(index), self.plan)

    def in_memory(self, block_size: int) -> TensorRows:
        """All rows, encoded once and held on the device."""
        X = torch.empty(self.n_rows, self.n_columns, device=self.plan.device, dtype=self.plan.dtype)
        for start, block in self.blocks(block_size):
            X[start : start + block.shape[0]] = block
        return TensorRows(X, self.shard)


def on_their_way(source: RowSource, size: int, plan: Plan) -> Iterator[tuple[int, Tensor]]:
    """Blocks of a source on the plan's device, counted; to a GPU the next ones travel while one is worked on."""
    blocks = source.blocks(size)
    if plan.device.type == "cuda" and size < source.n_rows:
        blocks = read_ahead(blocks, pinned=True)
    for start, block in blocks:
        count_rows(len(block))
        yield start, block.to(plan.device, non_blocking=True)


def standardised(data: TableData, plan: Plan, bend: Bend | None = None) -> InputMap:
    """Weighted mean and standard deviation of each (bent) column, in one pass around the first row.

    Columns that keep their unit, such as those of levels, are only centred. All are divided by a power of two near
    their size first, so that no square leaves the range of float64.
    """
    straight = (lambda block: block.double().cpu()) if bend is None else (lambda block: bend(block.double().cpu()))
    some = straight(data.rows.fetch(data.spaced(SAMPLE_ROWS)))
    unit = torch.exp2(some.abs().amax(0).clamp(min=1e-300).log2().floor())
    origin = some[0] / unit
    w = torch.as_tensor(data.weight / data.shard.group.max(data.weight.max(initial=0.0)))

    def statistic(where: slice, block: Tensor) -> Tensor:
        centred = straight(block) / unit - origin
        return torch.stack([w[where] @ centred, w[where] @ centred.square()])

    sums = reduce_rows(data.rows, plan, statistic).cpu() / data.rows.total(w.sum())
    mean, variance = origin + sums[0], sums[1] - sums[0].square()
    constant = variance <= (1e-12 * mean.abs()).square()  # it has only rounding
    kept = torch.zeros_like(constant) if data.layout is None else torch.as_tensor(data.layout.keeps_unit)
    scale = torch.where(constant | kept, 1.0, variance.clamp(min=0).sqrt() * unit)
    return InputMap((mean * unit).numpy(), scale.numpy(), bend)


def find_inputs(data: TableData, Y: np.ndarray, plan: Plan, scale_inputs: bool | str, *, may_bend: bool) -> InputMap:
    """The map that `scale_inputs` asks for; heavy tails are bent where held-out rows speak for it."""
    if not scale_inputs:
        return InputMap.plain(data.rows.n_columns)
    return standardised(data, plan, _bend(data, Y, plan) if may_bend and scale_inputs is True else None)


def _bend(data: TableData, Y: np.ndarray, plan: Plan) -> Bend | None:
    some = data.spaced(SAMPLE_ROWS)
    X = data.rows.fetch(some).cpu()
    y, w = (torch.as_tensor(data.pick(values, some)) for values in (Y, data.weight))

    def found() -> Bend | None:
        bend = find_bend(X, w, None if data.layout is None else torch.as_tensor(data.layout.keeps_unit))
        return bend if bend is not None and bending_pays(X, y, w, bend, plan.device) else None

    return data.shard.group.first(found)
