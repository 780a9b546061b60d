"""What classifiers on decision values answer beside the class: decision values and calibrated probabilities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from mercer.border.calibration import probabilities


class DecisionClassifier(ClassifierMixin):
    """A classifier whose `_answers(X, answer)` gives what `answer` makes of the decision values (n × p) at rows `X`."""

    temperature_: float
    _answers: Callable[..., np.ndarray]

    def decision_function(self, X: Any) -> np.ndarray:
        """Decision values: one column per class, or one number where there are two classes."""
        check_is_fitted(self)
        return self._answers(X, lambda values: values[:, 0] if values.shape[1] == 1 else values)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities in the order of `classes_`; calibrated where the loss gives none itself."""
        check_is_fitted(self)
        return self._answers(X, lambda values: probabilities(values, self.temperature_))
