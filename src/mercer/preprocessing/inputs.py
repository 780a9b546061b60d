"""The map from a table's coordinates to the inputs that kernels see: frozen, with an inverse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.data import Bend, RowSource, TensorRows, find_bend, read_ahead
from mercer.data.row_groups import RowGroups
from mercer.data.source import TransformedRows
from mercer.engine import Plan, reduce_rows
from mercer.preprocessing.read import TableData
from mercer.progress import count_rows
from mercer.selection.ridge import held_out_values
from mercer.selection.tune import tune_kernel

#: Rows that tell the heavy tails and the order of magnitude of each column.
SAMPLE_ROWS = 10_000
#: Bounds of inputs: their squared distances are then finite, and kernels are 0 long before.
FARTHEST = {torch.float32: 1e18, torch.float64: 1e150}
#: Rows of the test at most, half of them held out, and at least.
ROWS, FEWEST_ROWS = 2000, 100
#: Least share by which the error must fall.
GAIN = 0.02


@dataclass(frozen=True)
class InputMap:
    """Map single columns, centre and scale all of them, and apply a linear transform, in float64.

    `columns` maps each column by itself: a `Bend` of heavy tails, or a `ColumnMap`. `transform` is the metric: a factor
    for each column (D) or a matrix (D × D), by which rows are multiplied at the end. Columns are first clipped to their
    `limits` (2 × D), if there are any.

    >>> inputs = InputMap(mean=np.array([10.0]), scale=np.array([2.0]))
    >>> inputs.encode(torch.tensor([[14.0]])), inputs.decode(torch.tensor([[2.0]]))
    (tensor([[2.]], dtype=torch.float64), array([[14.]]))
    """

    mean: np.ndarray
    scale: np.ndarray
    columns: Callable[[Tensor], Tensor] | None = None
    transform: np.ndarray | None = None
    limits: np.ndarray | None = None

    @classmethod
    def identity(cls, n_columns: int) -> InputMap:
        """The map that leaves columns as they are."""
        return cls(np.zeros(n_columns), np.ones(n_columns))

    def encode(self, block: Any) -> Tensor:
        """Rows as the kernel sees them, on the device they are on."""
        rows = torch.as_tensor(block).double()
        if self.limits is not None:
            low, high = torch.as_tensor(self.limits, device=rows.device)
            rows = rows.clamp(low, high)
        rows = rows if self.columns is None else self.columns(rows)
        mean, scale = (torch.as_tensor(v, device=rows.device) for v in (self.mean, self.scale))
        rows = (rows - mean).div_(scale)
        if self.transform is None:
            return rows
        A = torch.as_tensor(self.transform, device=rows.device)
        return rows * A if A.ndim == 1 else rows @ A.T

    def decode(self, rows: Tensor) -> np.ndarray:
        """Rows in the user's units; those of least norm where the transform is singular."""
        rows = rows.double().cpu()
        if self.transform is not None:
            A = torch.as_tensor(self.transform)
            rows = rows / A.where(A != 0, torch.inf) if A.ndim == 1 else rows @ torch.linalg.pinv(A).T
        plain = rows * torch.as_tensor(self.scale) + torch.as_tensor(self.mean)
        return (plain if self.columns is None else self.columns.inverse(plain)).numpy()  # type: ignore[attr-defined]

    def rows(self, source: RowSource, plan: Plan) -> RowSource:
        """The rows of `source` as the kernel sees them, in the memory of the plan's device where they fit."""
        encoded = EncodedRows(source, self, plan)
        fits = plan.holds_rows(source.n_rows, source.n_columns)
        return encoded.in_memory(plan.chunk_rows(source.n_columns)) if fits else encoded

    def kernel_rows(self, block: Any, like: Plan | Tensor) -> Tensor:
        """A block of rows as the kernel sees it, on the device of a plan or tensor and in its precision."""
        farthest = FARTHEST[like.dtype]
        return self.encode(torch.as_tensor(block).to(like.device)).clamp_(-farthest, farthest).to(like.dtype)


class EncodedRows(TransformedRows):
    """Rows of another source through an `InputMap`, on one device in one precision."""

    def __init__(self, rows: RowSource, inputs: InputMap, plan: Plan) -> None:
        super().__init__(rows)
        self.inputs, self.plan = inputs, plan

    def transform(self, block: Tensor) -> Tensor:
        return self.inputs.kernel_rows(block, self.plan)

    def blocks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        for start, block in device_blocks(self.rows, size, self.plan):
            yield start, self.transform(block)

    def in_memory(self, block_size: int) -> TensorRows:
        """All rows, encoded once and held on the device."""
        X = torch.empty(self.n_rows, self.n_columns, device=self.plan.device, dtype=self.plan.dtype)
        for start, block in self.blocks(block_size):
            X[start : start + block.shape[0]] = block
        return TensorRows(X, self.shard)


def device_blocks(source: RowSource, size: int, plan: Plan) -> Iterator[tuple[int, Tensor]]:
    """Blocks of a source on the plan's device; the next blocks are copied to a GPU while the current one is used."""
    blocks = source.blocks(size)
    if plan.device.type == "cuda" and size < source.n_rows:
        blocks = read_ahead(blocks, pinned=True)
    for start, block in blocks:
        count_rows(len(block))
        yield start, block.to(plan.device, non_blocking=True)


def standardised(data: TableData, plan: Plan, bend: Bend | None = None) -> InputMap:
    """Standardise each (bent) column by its weighted mean and standard deviation, in one pass around the first row.

    Columns that keep their unit, such as one-hot codes, are only centred. All columns are divided by a power of two
    near their size first, so that no square leaves the range of float64.
    """

    def bent(block: Tensor) -> Tensor:
        block = block.double().cpu()
        return block if bend is None else bend(block)

    sample = bent(data.rows.fetch(data.spaced(SAMPLE_ROWS)))
    unit = torch.exp2(sample.abs().amax(0).clamp(min=1e-300).log2().floor())
    origin = sample[0] / unit
    w = torch.as_tensor(data.weight / data.shard.group.max(data.weight.max(initial=0.0)))

    def statistic(where: slice, block: Tensor) -> Tensor:
        centred = bent(block) / unit - origin
        return torch.stack([w[where] @ centred, w[where] @ centred.square()])

    sums = reduce_rows(data.rows, plan, statistic).cpu() / data.rows.total(w.sum())
    mean, variance = origin + sums[0], sums[1] - sums[0].square()
    constant = variance <= (1e-12 * mean.abs()).square()  # the variance is rounding alone
    keeps_unit = torch.zeros_like(constant) if data.layout is None else torch.as_tensor(data.layout.keeps_unit)
    scale = torch.where(constant | keeps_unit, 1.0, variance.clamp(min=0).sqrt() * unit)
    return InputMap((mean * unit).numpy(), scale.numpy(), bend)


def find_inputs(data: TableData, Y: np.ndarray, plan: Plan, scale_inputs: bool | str, *, may_bend: bool) -> InputMap:
    """The map for `scale_inputs`; heavy tails are bent where that improves predictions of held-out rows."""
    if not scale_inputs:
        return InputMap.identity(data.rows.n_columns)
    return standardised(data, plan, _bend(data, Y, plan) if may_bend and scale_inputs is True else None)


def _bend(data: TableData, Y: np.ndarray, plan: Plan) -> Bend | None:
    index = data.spaced(SAMPLE_ROWS)
    X = data.rows.fetch(index).cpu()
    y, w = (torch.as_tensor(data.pick(values, index)) for values in (Y, data.weight))
    keeps_unit = None if data.layout is None else torch.as_tensor(data.layout.keeps_unit)
    together = None if data.row_groups is None else data.row_groups.take(index)

    def find() -> Bend | None:
        bend = find_bend(X, w, keeps_unit)
        return bend if bend is not None and bending_pays(X, y, w, bend, plan.device, together) else None

    return data.shard.group.first(find)


def bending_pays(
    X: Tensor, Y: Tensor, weight: Tensor, bend: Bend, device: Any = "auto", row_groups: RowGroups | None = None
) -> bool:
    """Whether kernel ridge on one half of the rows predicts the other half better from bent columns.

    >>> from mercer.data import find_bend
    >>> X = torch.randn(300, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64).mul(3).exp()
    >>> weight = torch.ones(300)
    >>> [bending_pays(X, Y, weight, find_bend(X, weight)) for Y in (X.log1p(), X)]
    [True, False]
    """
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(X))[:ROWS])
    if len(order) < FEWEST_ROWS:
        return False
    half = len(order) // 2
    if row_groups is not None:
        split = row_groups.take(order.numpy()).splits(1)[0]
        fitted = np.delete(np.arange(len(order)), split.left_out)
        order, half = order[np.concatenate([fitted, split.scored])], len(fitted)
    X, Y, w = X[order].double(), Y[order].double(), weight[order].double()
    return _held_out_error(bend(X), Y, w, half, device) < (1 - GAIN) * _held_out_error(X, Y, w, half, device)


def _held_out_error(X: Tensor, Y: Tensor, w: Tensor, half: int, device: Any) -> float:
    """Squared error on the rows from `half` on, of an isotropic Matérn kernel tuned on the rows before."""
    share = (w / w.sum())[:, None]
    centred = X - (share * X).sum(0)
    spread = (share * centred.square()).sum(0).sqrt()
    X = centred / spread.where(spread > 0, 1.0)
    first, second = slice(0, half), slice(half, len(X))
    options: dict[str, Any] = {"n_rows": 400, "ard": False, "max_iter": 15, "tol": 1e-6, "device": device}
    tuned = tune_kernel(X[first], Y[first], "matern32", sample_weight=w[first].numpy(), random_state=0, **options)
    K, K_score = tuned.kernel(X[first], X[first]), tuned.kernel(X[second], X[first])
    f = held_out_values(K, K_score, Y[first], w[first], tuned.noise)
    return float((w[second, None] * (f - Y[second]).square()).sum())
