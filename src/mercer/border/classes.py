"""What classifiers share: weights of classes, decision values and calibrated probabilities."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from mercer.border.calibration import FloorAndPower, Shrunk, Temperature
from mercer.border.rules import NOTHING, Rule, literal
from mercer.border.targets import ClassTargets
from mercer.data import WHOLE, Shard
from mercer.parts import as_float, require


def _is_table(value: Any) -> bool:
    if not isinstance(value, Mapping) or not value:
        return False
    return all(0 < as_float(weight) < float("inf") for weight in value.values())


CLASS_WEIGHT = NOTHING | literal("balanced") | Rule("a dict of positive weights by class", _is_table)


@dataclass(eq=False, repr=False, kw_only=True)
class WeighsClasses:
    """A classifier whose classes may count more or less.

    Parameters
    ----------
    class_weight : None, "balanced" or dict, default None
        What rows count by their class, times `sample_weight`: "balanced" lets all classes count the same together, a
        dict gives a weight by class (1 where it says nothing). Probabilities are then those of rows so weighted.
    """

    class_weight: Annotated[Any, CLASS_WEIGHT] = None


def class_weighted(class_weight: Any, y: np.ndarray, weight: np.ndarray, shard: Shard = WHOLE) -> np.ndarray:
    """Weights of rows times those of their classes.

    >>> class_weighted("balanced", np.array(["a", "b", "b", "b"]), np.ones(4)).round(3).tolist()
    [2.0, 0.667, 0.667, 0.667]
    """
    if class_weight is None or y.ndim != 1:  # several columns of classes are refused elsewhere
        return weight
    seen = [one for one in shard.group.gather(np.unique(y)) if len(one)]
    classes = np.unique(np.concatenate(seen))
    group = np.searchsorted(classes, y) if len(y) else np.zeros(0, dtype=np.int64)
    if isinstance(class_weight, Mapping):
        known = {str(label) for label in classes}
        strange = [label for label in class_weight if str(label) not in known]
        require(not strange, "class_weight", f"for classes among {classes.tolist()}", strange)
        by_name = {str(label): float(value) for label, value in class_weight.items()}
        return weight * np.array([by_name.get(str(label), 1.0) for label in classes])[group]
    largest = shard.group.largest(weight.max(initial=0.0))
    own = np.bincount(group, weights=weight / largest, minlength=len(classes))
    total = shard.group.sum(torch.from_numpy(own)).numpy()  # divided first, so that no sum of huge weights overflows
    alive = total > 0
    factor = np.where(alive, total.sum() / (alive.sum() * np.where(alive, total, 1.0)), 1.0)
    return weight * factor[group]


@dataclass(eq=False, repr=False, kw_only=True)
class DecisionClassifier(WeighsClasses, ClassifierMixin):
    """A classifier whose `_answers(X, answer)` gives what `answer` makes of the model's values (n × p) at rows `X`.

    Attributes
    ----------
    classes_ : ndarray
        The classes.
    calibration_ : Temperature, FloorAndPower or Shrunk
        What turns decision values into probabilities, fitted to decision values of rows that the model was not fitted
        to: held out, out of fold or leave-one-out. On these rows the log loss is not above that of the classes' shares.
    """

    targets_: ClassVar[ClassTargets]
    calibration_: ClassVar[Temperature | FloorAndPower | Shrunk]
    _answers: ClassVar[Callable[..., np.ndarray]]

    def decision_function(self, X: Any) -> np.ndarray:
        """Decision values: one column per class, or one number where there are two classes."""
        check_is_fitted(self)
        decisions = self._answers(X, self.targets_.decisions)
        return decisions[:, 0] if decisions.shape[1] == 1 else decisions

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities in the order of `classes_`, calibrated.

        The most probable class is that of `predict`, unless probabilities had to be shrunk towards the classes' shares.
        """
        check_is_fitted(self)
        return self._answers(X, lambda values: self.calibration_.probabilities(self.targets_.decisions(values)))
