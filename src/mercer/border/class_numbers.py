"""Classes at the border: which there are, checked once for all classifiers, and their numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets


@dataclass(frozen=True)
class ClassNumbers:
    """Classes as their numbers in the order of `classes`.

    >>> import numpy as np
    >>> classes = ClassNumbers.of(np.array(["b", "a", "b", "z"]), np.array([1.0, 1.0, 1.0, 0.0]))
    >>> classes.encode(np.array(["a", "b"])).tolist()
    [0, 1]
    """

    classes: np.ndarray

    @classmethod
    def of(cls, y: np.ndarray, weight: np.ndarray) -> ClassNumbers:
        """The classes that any row of positive weight has; there must be two."""
        check_classification_targets(y)
        classes = np.unique(y[weight > 0])
        if len(classes) < 2:
            raise ValueError(f"y must hold at least 2 classes, got 1 class: {classes[0]!r}")
        return cls(classes)

    def encode(self, y: Any, weight: np.ndarray | None = None) -> np.ndarray:
        """The number of each class; rows of no weight may have classes that are none of ours, and get the first."""
        y = np.asarray(y)
        try:
            at = np.searchsorted(self.classes, y).clip(max=len(self.classes) - 1)
        except TypeError:  # objects that cannot be compared with ours, so none of them is
            at = np.zeros(y.shape, dtype=int)
        strange = self.classes[at] != y
        if weight is not None:
            strange &= weight > 0
        if strange.any():
            seen = y[strange][0]
            raise ValueError(f"y must hold classes seen in fit, {_listed(self.classes)}, got {seen!r}")
        return np.where(self.classes[at] == y, at, 0)

    def signs(self, numbers: np.ndarray) -> np.ndarray:
        """±1 for each class number: one column for two classes, one against the rest for more."""
        if len(self.classes) == 2:
            return np.where(numbers == 1, 1.0, -1.0)[:, None]
        return np.where(numbers[:, None] == np.arange(len(self.classes)), 1.0, -1.0)

    def decode(self, scores: np.ndarray) -> np.ndarray:
        """The class of the largest score in each row."""
        return self.classes[scores.argmax(1)]


def _listed(classes: np.ndarray, most: int = 6) -> str:
    shown = ", ".join(repr(one) for one in classes[:most].tolist())
    return f"[{shown}{', …' if len(classes) > most else ''}]"
