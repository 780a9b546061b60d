"""What classifiers on decision values answer beside the class: decision values and calibrated probabilities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from mercer.border.calibration import FloorAndPower, Temperature
from mercer.border.class_weight import WeighsClasses
from mercer.border.targets import ClassTargets


@dataclass(eq=False, repr=False, kw_only=True)
class DecisionClassifier(WeighsClasses, ClassifierMixin):
    """A classifier whose `_answers(X, answer)` gives what `answer` makes of the model's values (n × p) at rows `X`.

    Attributes
    ----------
    classes_ : ndarray
        The classes.
    calibration_ : Temperature or FloorAndPower
        What turns decision values into probabilities.
    """

    targets_: ClassVar[ClassTargets]
    calibration_: ClassVar[Temperature | FloorAndPower]
    _answers: ClassVar[Callable[..., np.ndarray]]

    def decision_function(self, X: Any) -> np.ndarray:
        """Decision values: one column per class, or one number where there are two classes."""
        check_is_fitted(self)
        decisions = self._answers(X, self.targets_.decisions)
        return decisions[:, 0] if decisions.shape[1] == 1 else decisions

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities in the order of `classes_`; calibrated where the loss gives none itself."""
        check_is_fitted(self)
        return self._answers(X, lambda values: self.calibration_.probabilities(self.targets_.decisions(values)))
