"""Targets at the border: what users call y, and the numbers algorithms see; frozen, with a way back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from mercer.parts import require


@dataclass(frozen=True)
class RealTargets:
    """Numbers, centred and scaled to unit variance; one column per output."""

    mean: np.ndarray
    scale: float
    flat: bool

    @classmethod
    def of(cls, y: np.ndarray, weight: np.ndarray) -> RealTargets:
        """Mean and spread of `y`; divided by a power of two first, so that no square leaves the range of float64."""
        Y = y.reshape(len(y), -1).astype(np.float64)
        unit = _power_of_two(Y)
        Y, w = Y / unit, weight / weight.max()
        mean = np.average(Y, axis=0, weights=w)
        variance = float(np.average((Y - mean) ** 2, axis=0, weights=w).mean())
        # a constant target has only rounding left once its mean is gone
        constant = variance <= (1e-14 * float(np.abs(mean).max(initial=0.0))) ** 2
        return cls(mean * unit, 1.0 if constant else variance**0.5 * unit, y.ndim == 1)

    def encode(self, y: np.ndarray) -> np.ndarray:
        return (y.reshape(len(y), -1).astype(np.float64) - self.mean) / self.scale

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
    def of(cls, y: np.ndarray, weight: np.ndarray, *, centred: bool = False) -> ClassTargets:
        """The classes of the rows of positive weight: a class all of whose rows weigh nothing is none of ours."""
        with np.errstate(invalid="ignore"):  # numbers too large to be whole ones are compared with whole ones there
            check_classification_targets(y)
        classes = np.unique(y[weight > 0])
        if len(classes) < 2:
            raise ValueError(f"y must hold at least 2 classes, got 1 class: {classes[0]!r}")
        plain = cls(classes)
        return cls(classes, np.average(plain.encode(y), axis=0, weights=weight)) if centred else plain

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
        require(len(unseen) == 0, parameter, f"of the classes {list(self.classes)}", list(unseen))


Targets = RealTargets | ClassTargets


def code_targets(y: np.ndarray, weight: np.ndarray, *, classes: bool, centred: bool = False) -> Any:
    """How these targets are coded."""
    return ClassTargets.of(y, weight, centred=centred) if classes else RealTargets.of(y, weight)


def holds_classes(y: Any) -> bool:
    """Whether targets are classes by their type: text or truth values; numbers are numbers, also whole ones.

    >>> from mercer.border.targets import holds_classes
    >>> holds_classes(["ham", "spam"]), holds_classes([0, 1])
    (True, False)
    """
    return np.asarray(y).dtype.kind in "OUSb" and type_of_target(y) in ("binary", "multiclass")


def _power_of_two(Y: np.ndarray) -> float:
    largest = float(np.abs(Y).max(initial=0.0))
    return 2.0 ** np.floor(np.log2(largest)) if largest > 0 else 1.0
