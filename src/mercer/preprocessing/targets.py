"""Codes of targets: the numbers that algorithms see for a user's `y`; frozen, with an inverse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from mercer.data import UNDIVIDED, Shard
from mercer.losses import FAR_MEANS
from mercer.parts import require

#: Targets are clipped at this many interquartile ranges from the quartiles under a robust loss: Tukey's fences.
FENCE = 1.5


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
        unseen = np.setdiff1d(y, self.classes)
        require(len(unseen) == 0, parameter, f"of the classes {self.classes.tolist()}", unseen.tolist())


Targets = RealTargets | ClassTargets


def code_targets(
    y: np.ndarray, weight: np.ndarray, *, classes: bool, centred: bool = False, shard: Shard = UNDIVIDED
) -> Any:
    """Fit the codes of targets; `shard` tells which rows of a shared table they belong to."""
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
