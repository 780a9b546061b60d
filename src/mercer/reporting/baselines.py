"""Baselines: the mean, a linear model, and gradient-boosted trees.

They learn from the training rows where those were given. Otherwise each fifth of the test rows is predicted from the
other four, which is a fair picture of the problem but gives them fewer rows than the model had; the report says so.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from mercer.data import spaced_rows
from mercer.reporting.subject import Subject
from mercer.reporting.table import Table

#: Most training rows of the baselines, and most levels of a category that they tell apart.
MAX_ROWS, MAX_LEVELS = 100_000, 200


def error_of(subject: Subject, predicted: np.ndarray, probabilities: np.ndarray | None) -> dict[str, float]:
    """Errors of predictions of the test rows.

    For numbers these are RMSE and the share of variance not explained, averaged over outputs; for classes, the share
    of wrong ones and, where there are probabilities, the log loss.
    """
    if subject.classes is not None:
        found = {"error": float(np.mean(predicted != subject.y))}
        if probabilities is not None:
            found["log_loss"] = float(log_loss(subject.y, probabilities, labels=subject.classes))
        return found
    squares = (subject.observed - predicted.reshape(subject.observed.shape)) ** 2
    return {"error": float(np.sqrt(squares.mean())), "unexplained": float(losses(subject, predicted).mean())}


def baselines(subject: Subject) -> dict[str, dict[str, float]]:
    """Errors of the baselines on the test rows, by name."""
    levels = _levels(subject)
    X = _coded(subject.table, levels)
    found = {}
    for name, make in _makers(subject, levels).items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a linear model that has not quite converged
                predicted, probabilities = _predictions(subject, make, X, levels)
        except ValueError:  # a fold of one class, for example: there is nothing to compare with
            continue
        found[name] = error_of(subject, predicted, probabilities) | {"chance": chance(subject, predicted)}
    return found


def chance(subject: Subject, predicted: np.ndarray) -> float:
    """By how many standard errors the mean loss of other predictions is above the model's, row by row."""
    more = losses(subject, predicted) - losses(subject, subject.predicted)
    error = float(more.std() / np.sqrt(len(more)))
    return float(more.mean()) / error if error > 0 else 0.0


def losses(subject: Subject, predicted: np.ndarray) -> np.ndarray:
    """The loss of each test row: 1 for a wrong class, or squared errors in units of the outputs' variances."""
    if subject.classes is not None:
        return (predicted != subject.y).astype(float)
    spread = subject.observed.var(0)
    squares = (subject.observed - predicted.reshape(subject.observed.shape)) ** 2
    return (squares / np.where(spread > 0, spread, 1.0)).mean(1)


def _predictions(subject: Subject, make: Any, X: np.ndarray, levels: Any) -> tuple[np.ndarray, np.ndarray | None]:
    classes = subject.classes
    if subject.train is not None:
        table, y = subject.train
        index = spaced_rows(np.ones(len(y)), MAX_ROWS)
        fitted = make().fit(_coded(table.part(index), levels), y[index])
        return fitted.predict(X), _probabilities(fitted, X, classes)
    folds = KFold(5, shuffle=True, random_state=0)
    if classes is not None and np.unique(subject.y, return_counts=True)[1].min() >= 5:
        folds = StratifiedKFold(5, shuffle=True, random_state=0)
    predicted = np.empty_like(subject.y)
    probabilities = None if classes is None else np.zeros((len(X), len(classes)))
    for train, test in folds.split(X, subject.y if classes is not None else None):
        fitted = make().fit(X[train], subject.y[train])
        predicted[test] = fitted.predict(X[test])
        if probabilities is not None:
            probabilities[test] = _probabilities(fitted, X[test], classes)
    return predicted, probabilities


def _probabilities(fitted: Any, X: np.ndarray, classes: np.ndarray | None) -> np.ndarray | None:
    """Probabilities in the order of all classes; classes missing from the training rows have zero."""
    if classes is None:
        return None
    out = np.zeros((len(X), len(classes)))
    out[:, np.searchsorted(classes, fitted.classes_)] = fitted.predict_proba(X)
    return out


def _makers(subject: Subject, levels: list[np.ndarray | None]) -> dict[str, Any]:
    text = np.asarray([known is not None for known in levels])
    numbers = make_pipeline(SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler())
    codes = OneHotEncoder(handle_unknown="ignore", max_categories=30)
    coded = ColumnTransformer([("numbers", numbers, ~text), ("codes", codes, text)])
    options = {"categorical_features": text, "random_state": 0, "early_stopping": False}
    if subject.classes is not None:
        return {
            "most frequent class": lambda: DummyClassifier(strategy="prior"),
            "linear model": lambda: make_pipeline(coded, LogisticRegression(max_iter=1000)),
            "gradient-boosted trees": lambda: HistGradientBoostingClassifier(**options),
        }
    trees: Any = partial(HistGradientBoostingRegressor, **options)
    several = subject.observed.shape[1] > 1
    return {
        "mean": lambda: DummyRegressor(),
        "linear model": lambda: make_pipeline(coded, RidgeCV(np.logspace(-3, 3, 7))),
        "gradient-boosted trees": (lambda: MultiOutputRegressor(trees())) if several else trees,
    }


def _levels(subject: Subject) -> list[np.ndarray | None]:
    """The most frequent levels of each column of text; None for numbers."""
    table = subject.table if subject.train is None else subject.train[0]
    found: list[np.ndarray | None] = []
    for j in range(len(table.names)):
        if table.is_numeric(j) and subject.table.is_numeric(j):
            found.append(None)
            continue
        values, counts = np.unique(table.columns[j].astype(str), return_counts=True)
        found.append(np.sort(values[np.argsort(-counts, kind="stable")[:MAX_LEVELS]]))
    return found


def _coded(table: Table, levels: list[np.ndarray | None]) -> np.ndarray:
    """Numbers as they are, levels as integer codes; unknown levels are NaN."""
    out = np.empty((table.n_rows, len(levels)))
    for j, (column, known) in enumerate(zip(table.columns, levels, strict=True)):
        if known is None:
            out[:, j] = np.where(np.isfinite(column), column, np.nan)
            continue
        place = np.searchsorted(known, column.astype(str)).clip(max=len(known) - 1)
        out[:, j] = np.where(known[place] == column.astype(str), place, np.nan)
    return out
