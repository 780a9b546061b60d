"""What classifiers share: weights of classes, decision values and calibrated probabilities."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from mercer.base.calibration import FloorAndPower, Shrunk, Temperature
from mercer.base.parameters import NONE, Rule, literal
from mercer.parts import as_float
from mercer.preprocessing.targets import ClassTargets


def _is_table(value: Any) -> bool:
    if not isinstance(value, Mapping) or not value:
        return False
    return all(0 < as_float(weight) < float("inf") for weight in value.values())


CLASS_WEIGHT = NONE | literal("balanced") | Rule("a dict of positive weights by class", _is_table)


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
