"""Codes of inputs and targets: the numbers that algorithms see for a user's table; frozen, with an inverse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from torch import Tensor

from mercer.data import UNDIVIDED, Bend, RowSource, Shard, TensorRows, find_bend, read_ahead
from mercer.data.column_maps import fit_column_map
from mercer.data.row_groups import RowGroups
from mercer.data.source import TransformedRows
from mercer.engine import Plan, reduce_rows
from mercer.engine.plan import SAMPLE_ROWS
from mercer.losses import FAR_MEANS
from mercer.parts import PickledByFields, require
from mercer.preprocessing.read import TableData
from mercer.progress import count_rows
from mercer.selection.score import held_out_values
from mercer.selection.tune import tune_kernel

#: Bounds of inputs: their squared distances are then finite, and kernels are 0 long before.
FARTHEST = {torch.float32: 1e18, torch.float64: 1e150}
#: Rows of the test at most, half of them held out, and at least.
ROWS, FEWEST_ROWS = 2000, 100
#: Least share by which the error must fall.
GAIN = 0.02
#: Targets are clipped at this many interquartile ranges from the quartiles under a robust loss: Tukey's fences.
FENCE = 1.5


@dataclass(frozen=True)
class InputMap(PickledByFields):
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
        limits, units, A = (None if part is None else part.to(rows.device) for part in self._tensors)
        if limits is not None:
            rows = rows.clamp(limits[0], limits[1])
        rows = rows if self.columns is None else self.columns(rows)
        if units is not None:
            rows = (rows - units[0]).div_(units[1])
        if A is None:
            return rows
        return rows * A if A.ndim == 1 else rows @ A.T

    @cached_property
    def _tensors(self) -> list[Tensor | None]:
        """Limits, means above scales where they change anything, and the transform."""
        trivial = not self.mean.any() and bool((self.scale == 1).all())
        units = None if trivial else np.stack(np.broadcast_arrays(self.mean, self.scale))
        return [None if part is None else torch.as_tensor(part) for part in (self.limits, units, self.transform)]

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
    row_groups = None if data.row_groups is None else data.row_groups.take(index)

    def find() -> Bend | None:
        bend = find_bend(X, w, keeps_unit)
        return bend if bend is not None and bending_pays(X, y, w, bend, plan.device, row_groups) else None

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
    X = fit_column_map("standard", X, w)(X)
    first, second = slice(0, half), slice(half, len(X))
    options: dict[str, Any] = {"n_rows": 400, "ard": False, "max_iter": 15, "tol": 1e-6, "device": device}
    tuned = tune_kernel(X[first], Y[first], "matern32", sample_weight=w[first].numpy(), random_state=0, **options)
    K, K_score = tuned.kernel(X[first], X[first]), tuned.kernel(X[second], X[first])
    f = held_out_values(K, K_score, Y[first], w[first], tuned.noise)
    return float((w[second, None] * (f - Y[second]).square()).sum())


@dataclass(frozen=True)
class RealTargets:
    """Numbers, centred and scaled to unit variance; one column per output."""

    mean: np.ndarray
    scale: float
    flat: bool

    @classmethod
    def of(cls, y: np.ndarray, weight: np.ndarray, shard: Shard = UNDIVIDED) -> RealTargets:
        """Fit mean and scale; `y` is divided by a power of two first, so that no square leaves the range of float64."""
        Y = _columns(y)
        unit = _power_of_two(shard.group.max(float(np.abs(Y).max(initial=0.0))))
        Y, w = Y / unit, weight / shard.group.max(weight.max(initial=0.0))
        mean = _average(Y, w, shard)
        variance = float(_average((Y - mean) ** 2, w, shard).mean())
        # the variance of a constant target is rounding alone
        constant = variance <= (1e-14 * float(np.abs(mean).max(initial=0.0))) ** 2
        return cls(mean * unit, 1.0 if constant else variance**0.5 * unit, y.ndim == 1)

    def encode(self, y: np.ndarray) -> np.ndarray:
        return (_columns(y) - self.mean) / self.scale

    def decode(self, values: np.ndarray) -> np.ndarray:
        Y = values * self.scale + self.mean
        return Y[:, 0] if self.flat else Y

    def residuals(self, coded: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Coded targets less their predictions from outputs of a model."""
        return coded - values

    def deviations(self, values: np.ndarray) -> np.ndarray:
        """Standard deviations of residuals at outputs of a model, up to a factor."""
        return np.ones_like(values)

    def decode_shifted(self, values: np.ndarray, residuals: np.ndarray) -> np.ndarray:
        """The targets that have these residuals at outputs of a model."""
        return self.decode(values + residuals)


@dataclass(frozen=True)
class PositiveTargets(RealTargets):
    """Non-negative numbers, divided by their mean; outputs of a model are logarithms of means in this unit.

    `mean` are logarithms of means, in which `scale` is one. The variance of targets grows as the power `power` of
    their mean; from 2 on zero is impossible.
    """

    power: float = 1.0

    @classmethod
    def of_power(cls, y: np.ndarray, weight: np.ndarray, power: float, shard: Shard = UNDIVIDED) -> PositiveTargets:
        """Fit the means of the columns."""
        Y = cls(np.zeros(1), 1.0, y.ndim == 1, power).encode(y)
        mean = _average(Y, weight / shard.group.max(weight.max(initial=0.0)), shard)
        require(bool((mean > 0).all()), "y", "positive in some row for a loss with positive means", "zero in all rows")
        return cls(np.log(mean), 1.0, y.ndim == 1, power)

    def encode(self, y: np.ndarray) -> np.ndarray:
        Y = _columns(y)
        least, positive = float(Y.min(initial=np.inf)), self.power >= 2
        wanted = "positive for the gamma loss" if positive else "non-negative for a loss with positive means"
        require(least > 0 or (least == 0 and not positive), "y", wanted, least)
        return Y / np.exp(self.mean)

    def decode(self, values: np.ndarray) -> np.ndarray:
        return np.exp(super().decode(np.clip(values, -FAR_MEANS, FAR_MEANS)))

    def stabilised(self, coded: np.ndarray) -> np.ndarray:
        """Coded targets on a scale of constant variance: y^(1 − p/2), or log y for p = 2.

        Squared errors there are half deviances to leading order.
        """
        return np.log(coded) if self.power >= 2 else coded ** (1 - self.power / 2)

    def residuals(self, coded: np.ndarray, values: np.ndarray) -> np.ndarray:
        return coded - np.exp(values)

    def deviations(self, values: np.ndarray) -> np.ndarray:
        return np.exp(self.power / 2 * values)

    def decode_shifted(self, values: np.ndarray, residuals: np.ndarray) -> np.ndarray:
        Y = np.exp(self.mean) * np.maximum(np.exp(values) + residuals, 0.0)
        return Y[:, 0] if self.flat else Y


@dataclass(frozen=True)
class LabelTargets(RealTargets):
    """Several labels per row, a matrix n × L of zeros and ones: codes ±1 that are fitted as numbers.

    >>> targets = LabelTargets.of(np.array([[0, 1], [1, 1]]), np.ones(2))
    >>> targets.mean.tolist(), targets.decode(np.array([[0.5, 0.0]])).tolist()
    ([0.0, 1.0], [[1, 1]])
    """

    @classmethod
    def of(cls, y: np.ndarray, weight: np.ndarray, shard: Shard = UNDIVIDED) -> LabelTargets:
        found = RealTargets.of(2.0 * y - 1, weight, shard)
        return cls(found.mean, found.scale, False)

    @property
    def classes(self) -> np.ndarray:
        """Absence and presence of each label, L × 2."""
        return np.tile([0, 1], (len(self.mean), 1))

    def encode(self, y: np.ndarray) -> np.ndarray:
        wanted = f"of {len(self.mean)} labels for each row as in fit"
        require(y.ndim == 2 and y.shape[1] == len(self.mean), "y", wanted, y.shape)
        return super().encode(2.0 * y - 1)

    def decisions(self, values: np.ndarray) -> np.ndarray:
        """Decision values, on the scale of ±1, from predictions of the codes."""
        return super().decode(values)

    def decode(self, values: np.ndarray) -> np.ndarray:
        return (self.decisions(values) > 0).astype(np.int64)

    def require_known(self, y: np.ndarray, parameter: str) -> None:
        """Refuse labels other than zero and one."""
        unseen = np.setdiff1d(y, [0, 1])
        require(len(unseen) == 0, parameter, "of zeros and ones", unseen.tolist())


@dataclass(frozen=True)
class ClassTargets:
    """Classes as ±1: one column for two classes, one-versus-rest columns for more.

    Algorithms see these codes less `offset`: zero, or the mean of the codes, which a constant model would predict.
    """

    classes: np.ndarray
    offset: np.ndarray | float = 0.0

    @classmethod
    def of(cls, y: np.ndarray, weight: np.ndarray, shard: Shard = UNDIVIDED, *, centred: bool = False) -> ClassTargets:
        """The classes of the rows of positive weight; `centred` codes have mean zero."""
        if len(y):
            with np.errstate(invalid="ignore"):  # scikit-learn casts huge numbers to integers
                check_classification_targets(y)
        seen = shard.group.gather(np.unique(y[weight > 0]))
        classes = seen[0] if len(seen) == 1 else np.unique(np.concatenate([part for part in seen if len(part)]))
        if len(classes) < 2:
            raise ValueError(f"y must hold at least 2 classes, got 1 class: {classes.tolist()[0]!r}")
        plain = cls(classes)
        return cls(classes, _average(plain.encode(y), weight, shard)) if centred else plain

    def encode(self, y: np.ndarray) -> np.ndarray:
        if len(self.classes) == 2:
            return np.where(y == self.classes[1], 1.0, -1.0)[:, None] - self.offset
        return np.where(y[:, None] == self.classes, 1.0, -1.0) - self.offset

    def decisions(self, values: np.ndarray) -> np.ndarray:
        """Decision values, on the scale of ±1, from predictions of the codes."""
        return values + self.offset

    def class_indices(self, y: np.ndarray) -> np.ndarray:
        """The index of each label's class; labels of weight zero may be unknown and get any index."""
        return np.searchsorted(self.classes, y).clip(max=len(self.classes) - 1)

    def decode(self, values: np.ndarray) -> np.ndarray:
        decisions = self.decisions(values)
        if decisions.shape[1] == 1:
            return self.classes[(decisions[:, 0] > 0).astype(int)]
        return self.classes[decisions.argmax(1)]

    def require_known(self, y: np.ndarray, parameter: str) -> None:
        """Refuse labels that are not among the classes."""
        require(y.ndim == 1, parameter, "of one class for each row as in fit", y.shape)
        unseen = np.setdiff1d(y, self.classes)
        require(len(unseen) == 0, parameter, f"of the classes {self.classes.tolist()}", unseen.tolist())


Targets = RealTargets | ClassTargets


def code_targets(
    y: np.ndarray, weight: np.ndarray, *, classes: bool, centred: bool = False, shard: Shard = UNDIVIDED
) -> Any:
    """Fit the codes of targets; `shard` tells which rows of a shared table they belong to."""
    if classes and y.ndim == 2:
        return LabelTargets.of(y, weight, shard)
    return ClassTargets.of(y, weight, shard, centred=centred) if classes else RealTargets.of(y, weight, shard)


def clip_outliers(y: np.ndarray, sample: np.ndarray) -> np.ndarray:
    """Targets clipped at `FENCE` interquartile ranges from the quartiles of a sample of them.

    >>> clip_outliers(np.array([1.0, 2.0, 3.0, 1e6]), np.array([1.0, 2.0, 3.0])).tolist()
    [1.0, 2.0, 3.0, 4.0]
    """
    low, high = np.quantile(sample, [0.25, 0.75], axis=0)
    distance = np.where(high > low, FENCE * (high - low), np.inf)  # equal quartiles tell nothing
    return np.clip(y, low - distance, high + distance)


def holds_classes(y: Any) -> bool:
    """Whether targets are classes by their type: text or booleans; integers are numbers.

    >>> holds_classes(["ham", "spam"]), holds_classes([0, 1])
    (True, False)
    """
    return np.asarray(y).dtype.kind in "OUSb" and type_of_target(y) in ("binary", "multiclass")


def _columns(y: np.ndarray) -> np.ndarray:
    return (y[:, None] if y.ndim == 1 else y).astype(np.float64)


def _average(Y: np.ndarray, weight: np.ndarray, shard: Shard) -> np.ndarray:
    """The weighted mean of each column over the rows of all processes."""
    if not shard.divided:
        return np.average(Y, axis=0, weights=weight)
    sums = torch.from_numpy(np.append(weight @ Y, weight.sum()))
    sums = shard.group.sum(sums)
    return (sums[:-1] / sums[-1]).numpy()


def _power_of_two(largest: float) -> float:
    return 2.0 ** np.floor(np.log2(largest)) if largest > 0 else 1.0
