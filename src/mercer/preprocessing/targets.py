"""Targets at the border: what users call y, and the numbers algorithms see; frozen, with a way back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from mercer.data import WHOLE, Shard
from mercer.parts import require

#: How far out targets count where a loss is robust, in distances of the quartiles: Tukey's fences.
REACH = 1.5


@dataclass(frozen=True)
class RealTargets:
    """Numbers, centred and scaled to unit variance; one column per output."""

    mean: np.ndarray
    scale: float
    flat: bool

    @classmethod
    def of(cls, y: np.ndarray, weight: np.ndarray, shard: Shard = WHOLE) -> RealTargets:
        """Mean and spread of `y`; divided by a power of two first, so that no square leaves the range of float64."""
        Y = _columns(y)
        unit = _power_of_two(shard.group.max(float(np.abs(Y).max(initial=0.0))))
        Y, w = Y / unit, weight / shard.group.max(weight.max(initial=0.0))
        mean = _average(Y, w, shard)
        variance = float(_average((Y - mean) ** 2, w, shard).mean())
        # a constant target has only rounding left once its mean is gone
        constant = variance <= (1e-14 * float(np.abs(mean).max(initial=0.0))) ** 2
        return cls(mean * unit, 1.0 if constant else variance**0.5 * unit, y.ndim == 1)

    def encode(self, y: np.ndarray) -> np.ndarray:
        return (_columns(y) - self.mean) / self.scale

    def decode(self, values: np.ndarray) -> np.ndarray:
        Y = values * self.scale + self.mean
        return Y[:, 0] if self.flat else Y


@dataclass(frozen=True)
class ClassTargets:
    """Classes as ±1: one column for two classes, one against the rest for more.

    Algorithms see these codes less `offset`: zero, or the mean of the codes, which is what a model of nothing says.
    """

    classes: np.ndarray
    offset: np.ndarray | float = 0.0

    @classmethod
    def of(cls, y: np.ndarray, weight: np.ndarray, shard: Shard = WHOLE, *, centred: bool = False) -> ClassTargets:
        """The classes of the rows of positive weight: a class all of whose rows weigh nothing is none of ours."""
        if len(y):
            with np.errstate(invalid="ignore"):  # numbers too large to be whole ones are compared with whole ones there
                check_classification_targets(y)
        seen = shard.group.gather(np.unique(y[weight > 0]))
        classes = seen[0] if len(seen) == 1 else np.unique(np.concatenate([one for one in seen if len(one)]))
        if len(classes) < 2:
            raise ValueError(f"y must hold at least 2 classes, got 1 class: {classes.tolist()[0]!r}")
        plain = cls(classes)
        return cls(classes, _average(plain.encode(y), weight, shard)) if centred else plain

    def encode(self, y: np.ndarray) -> np.ndarray:
        if len(self.classes) == 2:
            return np.where(y == self.classes[1], 1.0, -1.0)[:, None] - self.offset
        return np.where(y[:, None] == self.classes, 1.0, -1.0) - self.offset

    def decisions(self, values: np.ndarray) -> np.ndarray:
        """Decision values, on the scale of ±1, from what a model of the codes says."""
        return values + self.offset

    def numbers(self, y: np.ndarray) -> np.ndarray:
        """The place of each label among the classes; a strange one, of a row that weighs nothing, gets any."""
        return np.searchsorted(self.classes, y).clip(max=len(self.classes) - 1)

    def decode(self, values: np.ndarray) -> np.ndarray:
        decisions = self.decisions(values)
        if decisions.shape[1] == 1:
            return self.classes[(decisions[:, 0] > 0).astype(int)]
        return self.classes[decisions.argmax(1)]

    def require_known(self, y: np.ndarray, parameter: str) -> None:
        """Refuse labels that `fit` did not see."""
        unseen = np.setdiff1d(y, self.classes)
        require(len(unseen) == 0, parameter, f"of the classes {self.classes.tolist()}", unseen.tolist())


Targets = RealTargets | ClassTargets


def code_targets(
    y: np.ndarray, weight: np.ndarray, *, classes: bool, centred: bool = False, shard: Shard = WHOLE
) -> Any:
    """How these targets are coded; `shard` says of which rows they are, where processes share a table."""
    return ClassTargets.of(y, weight, shard, centred=centred) if classes else RealTargets.of(y, weight, shard)


def within_reach(y: np.ndarray, some: np.ndarray) -> np.ndarray:
    """Targets, none of them further out than `REACH` times the distance of the quartiles of `some` of them.

    >>> within_reach(np.array([1.0, 2.0, 3.0, 1e6]), np.array([1.0, 2.0, 3.0])).tolist()
    [1.0, 2.0, 3.0, 4.0]
    """
    low, high = np.quantile(some, [0.25, 0.75], axis=0)
    apart = np.where(high > low, REACH * (high - low), np.inf)  # half of them alike say nothing
    return np.clip(y, low - apart, high + apart)


def holds_classes(y: Any) -> bool:
    """Whether targets are classes by their type: text or booleans; numbers are numbers, also whole ones.

    >>> holds_classes(["ham", "spam"]), holds_classes([0, 1])
    (True, False)
    """
    return np.asarray(y).dtype.kind in "OUSb" and type_of_target(y) in ("binary", "multiclass")


def _columns(y: np.ndarray) -> np.ndarray:
    return (y[:, None] if y.ndim == 1 else y).astype(np.float64)


def _average(Y: np.ndarray, weight: np.ndarray, shard: Shard) -> np.ndarray:
    """The weighted mean of each column over all rows, wherever they are."""
    if not shard.divided:
        return np.average(Y, axis=0, weights=weight)
    sums = torch.from_numpy(np.append(weight @ Y, weight.sum()))
    sums = shard.group.sum(sums)
    return (sums[:-1] / sums[-1]).numpy()


def _power_of_two(largest: float) -> float:
    return 2.0 ** np.floor(np.log2(largest)) if largest > 0 else 1.0
