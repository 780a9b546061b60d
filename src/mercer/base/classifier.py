"""Base classes of classifiers: class weights, decision values, calibrated probabilities and prediction sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from mercer.base.calibration import FloorAndPower, LabelLinks, Shrunk, Temperature, class_indices, fit_calibration
from mercer.base.intervals import ROUNDING, Intervals
from mercer.base.parameters import NONE, Rule, literal
from mercer.data.row_groups import RowGroups
from mercer.parts import as_float, require
from mercer.preprocessing.inputs import ClassTargets, LabelTargets


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


def sums_before(p: np.ndarray) -> np.ndarray:
    """For each class, the sum of the probabilities of more probable classes, n × C."""
    order = np.argsort(-p, axis=1, kind="stable")
    sums = np.take_along_axis(p, order, axis=1).cumsum(1)
    before = np.column_stack([np.zeros(len(p)), sums[:, :-1]])
    out = np.empty_like(p)
    np.put_along_axis(out, order, before, axis=1)
    return out


def fit_set_scores(
    p: np.ndarray, true: np.ndarray, weight: np.ndarray, row_groups: RowGroups | None = None
) -> Intervals:
    """Scores of prediction sets: `sums_before` of the true class, at rows that the model was not fitted to."""
    scores = sums_before(p)[np.arange(len(p)), true][:, None]
    if not (weight > 0).any():
        return Intervals(scores[:0], scores[:0], 0)
    return Intervals.of(scores, weight, None, row_groups)


def fit_probabilities(
    targets: ClassTargets,
    values: Any,
    Y: np.ndarray,
    weight: np.ndarray,
    chosen: int = 1,
    *,
    log_odds: bool = False,
    row_groups: RowGroups | None = None,
) -> dict[str, Any]:
    """The attributes `calibration_` and `set_scores_`, from values of held-out rows (see `fit_calibration`)."""
    link = fit_calibration(targets, values, Y, weight, chosen, log_odds=log_odds)
    p, true = link.probabilities(targets.decisions(values)), class_indices(targets.decisions(Y))
    return {"calibration_": link, "set_scores_": fit_set_scores(p, true, weight, row_groups)}


@dataclass(eq=False, repr=False, kw_only=True)
class SetClassifier(ClassWeightMixin, ClassifierMixin):
    """A classifier with probabilities and prediction sets.

    Attributes
    ----------
    set_scores_ : Intervals
        Sorted scores of rows that the model was not fitted to, from which `predict_set` takes its bound: the sum of the
        probabilities of the classes that are more probable than the true one.
    """

    set_scores_: ClassVar[Intervals]
    predict_proba: ClassVar[Callable[..., np.ndarray]]

    def predict_set(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Sets of classes that hold the true class with probability `coverage`, as a mask of shape (n, classes).

        Column k says whether the class ``classes_[k]`` is in the set of a row. Sets are adaptive (Romano, Sesia and
        Candès 2020, without randomisation): they take classes by falling probability while the probabilities before a
        class sum to at most a bound. So they are large where the model is unsure, never empty, and grow with
        `coverage`. The bound is the ⌈(n + 1) · coverage⌉-th smallest of these sums at the true classes of n rows that
        the model was not fitted to. Where n is too small for that, sets hold all classes: 90 % takes 9 rows.
        Coverage holds on average over new rows like those of `fit`, and is higher where the most probable class alone
        is right more often. With `class_weight` it holds for weighted rows.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from mercer import GreedyKernelClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> model = GreedyKernelClassifier(10, kernel="gaussian", random_state=0).fit(X[::2], y[::2])
        >>> sets = model.predict_set(X[1::2], coverage=0.95)
        >>> sets.shape, bool((sets.sum(1) >= 1).all())
        ((75, 3), True)
        >>> bool(sets[range(75), y[1::2]].mean() > 0.9)  # classes are 0, 1, 2
        True
        """
        check_is_fitted(self)
        require(0 < as_float(coverage) < 1, "coverage", "a number above 0 and below 1", coverage)
        labels = isinstance(vars(self).get("calibration_"), LabelLinks)
        require(not labels, "the model", "of one class for each row to have prediction sets", "one of several labels")
        known = hasattr(self, "set_scores_")
        require(known, "the model", "fitted again to have prediction sets", "a file of version 0.2.0")
        return sums_before(self.predict_proba(X)) <= self.set_scores_.upper(float(coverage)) + ROUNDING


@dataclass(eq=False, repr=False, kw_only=True)
class DecisionClassifier(SetClassifier):
    """A classifier by decision values.

    Its `_answers(X, answer)` applies the function `answer` to the model's values (n × p) at rows `X`.

    Attributes
    ----------
    classes_ : ndarray
        The classes; where rows have L labels, 0 and 1 for each label (L × 2).
    calibration_ : Temperature, FloorAndPower, Shrunk or LabelLinks
        The map from decision values to probabilities, fitted to held-out, out-of-fold or leave-one-out decision
        values. The log loss of these rows is not above that of the class frequencies.
    """

    targets_: ClassVar[ClassTargets | LabelTargets]
    calibration_: ClassVar[Temperature | FloorAndPower | Shrunk | LabelLinks]
    _answers: ClassVar[Callable[..., np.ndarray]]

    def decision_function(self, X: Any) -> np.ndarray:
        """Decision values: one column per class or label, or one number where there are two classes."""
        check_is_fitted(self)
        decisions = self._answers(X, self.targets_.decisions)
        return decisions[:, 0] if decisions.shape[1] == 1 else decisions

    def predict_proba(self, X: Any) -> np.ndarray:
        """Calibrated class probabilities in the order of `classes_`.

        Where rows have L labels, they are the probabilities of each label's presence, an array n × L as scikit-learn's
        `MLPClassifier` has it.

        The most probable class is that of `predict`, unless probabilities were shrunk towards the class frequencies.
        """
        check_is_fitted(self)
        return self._answers(X, lambda values: self.calibration_.probabilities(self.targets_.decisions(values)))
