"""Base classes of classifiers: class weights, decision values and calibrated probabilities."""

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


def _is_weight_table(value: Any) -> bool:
    if not isinstance(value, Mapping) or not value:
        return False
    return all(0 < as_float(weight) < float("inf") for weight in value.values())


CLASS_WEIGHT = NONE | literal("balanced") | Rule("a dict of positive weights by class", _is_weight_table)


@dataclass(eq=False, repr=False, kw_only=True)
class ClassWeightMixin:
    """A classifier with weights of classes.

    Parameters
    ----------
    class_weight : None, "balanced" or dict, default None
        Weights of rows by their class, times `sample_weight`: "balanced" gives all classes the same total weight, a
        dict has a weight by class (1 for classes that it does not name). Probabilities are then those of weighted rows.
    """

    class_weight: Annotated[Any, CLASS_WEIGHT] = None


@dataclass(eq=False, repr=False, kw_only=True)
class DecisionClassifier(ClassWeightMixin, ClassifierMixin):
    """A classifier by decision values.

    Its `_answers(X, answer)` applies the function `answer` to the model's values (n × p) at rows `X`.

    Attributes
    ----------
    classes_ : ndarray
        The classes.
    calibration_ : Temperature, FloorAndPower or Shrunk
        The map from decision values to probabilities, fitted to held-out, out-of-fold or leave-one-out decision
        values. The log loss of these rows is not above that of the class frequencies.
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
        """Calibrated class probabilities in the order of `classes_`.

        The most probable class is that of `predict`, unless probabilities were shrunk towards the class frequencies.
        """
        check_is_fitted(self)
        return self._answers(X, lambda values: self.calibration_.probabilities(self.targets_.decisions(values)))
