"""The subject of a report: a fitted model, its test rows, and its predictions for them, computed once."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from mercer.data import spaced_rows
from mercer.data.frames import raw_columns
from mercer.data.raw import CATEGORICAL
from mercer.parts import require
from mercer.preprocessing.validate import host
from mercer.reporting.table import Table

#: Test rows that a report uses at most, evenly spaced among those given.
MAX_ROWS = 20_000


@dataclass(frozen=True)
class Subject:
    """A model with its test rows, their targets and, where they were given, the training rows."""

    model: Any
    table: Table
    y: np.ndarray  # n, or n × p
    outputs: tuple[str, ...]
    given_rows: int
    train: tuple[Table, np.ndarray] | None = None

    @classmethod
    def of(cls, model: Any, X: Any, y: Any, train: tuple[Any, Any] | None) -> Subject:
        require(hasattr(model, "predict"), "model", "an estimator that predicts", type(model).__name__)
        check_is_fitted(model)
        several = is_classifier(model) and np.ndim(host(y)) == 2 and np.shape(host(y))[1] > 1
        require(not several, "y_test", "of one class for each row for a report", np.shape(host(y)))
        names = getattr(model, "feature_names_in_", None)
        table, targets = Table.of(X, names), host(y)
        outputs = _output_names(targets)
        targets = _targets(targets)
        require(len(targets) == table.n_rows, "y_test", f"as long as X_test ({table.n_rows} rows)", len(targets))
        require(table.n_rows >= 2, "the number of test rows", "at least 2", table.n_rows)
        _require_known(model, targets, "y_test")
        given = table.n_rows
        if given > MAX_ROWS:
            index = spaced_rows(np.ones(given), MAX_ROWS)
            table, targets = table.part(index), targets[index]
        learned = None if train is None else (Table.of(train[0], names), _targets(host(train[1])))
        if learned is not None:
            _require_known(model, learned[1], "y_train")
        return cls(model, table, targets, outputs, given, learned)

    @cached_property
    def estimator(self) -> Any:
        """The estimator inside searches and pipelines."""
        inner = getattr(self.model, "best_estimator_", self.model)
        return inner[-1] if isinstance(inner, Pipeline) else inner

    @cached_property
    def inner_table(self) -> Table:
        """The rows as that estimator gets them, after the earlier steps of a pipeline."""
        inner = getattr(self.model, "best_estimator_", self.model)
        if not isinstance(inner, Pipeline) or len(inner) == 1:
            return self.table
        return Table.of(inner[:-1].transform(self.table.X), getattr(self.estimator, "feature_names_in_", None))

    @property
    def classes(self) -> np.ndarray | None:
        """The classes of a classifier; None for a regressor."""
        return np.asarray(self.model.classes_) if is_classifier(self.model) else None

    @cached_property
    def timed(self) -> tuple[np.ndarray, float]:
        """Predictions of all test rows, and the seconds they took."""
        began = time.perf_counter()
        predictions = np.asarray(host(self.model.predict(self.table.X)))
        return predictions, time.perf_counter() - began

    @property
    def predicted(self) -> np.ndarray:
        return self.timed[0]

    @cached_property
    def probabilities(self) -> np.ndarray | None:
        """Probabilities of the classes (n × C), where the model has them."""
        if self.classes is None or not hasattr(self.model, "predict_proba"):
            return None
        return np.asarray(host(self.model.predict_proba(self.table.X)))

    @cached_property
    def residuals(self) -> np.ndarray:
        """Observed less predicted (n × p); for classes 1 where the model is wrong, else 0."""
        if self.classes is not None:
            return (self.predicted != self.y).astype(float)[:, None]
        return (self.y - self.predicted).reshape(len(self.y), -1)

    @property
    def observed(self) -> np.ndarray:
        """Numeric targets, n × p."""
        return self.y.reshape(len(self.y), -1)

    @cached_property
    def relevance(self) -> np.ndarray:
        """One number for each column of the table, of sum 1: the model's relevance, else shares of rank correlation."""
        known = getattr(self.estimator, "relevance_", None)
        if known is not None and self.inner_table is self.table:
            known = np.atleast_2d(np.asarray(known, dtype=float)).max(0)
            if len(known) == len(self.table.names) and known.sum() > 0:
                return known / known.sum()
        signal = np.unique(self.y, return_inverse=True)[1] if self.classes is not None else self.observed[:, 0]
        ranks = np.argsort(np.argsort(signal)).astype(float)
        strength = np.asarray([_association(column, ranks) for column in self.table.columns]) + 1e-12
        return strength / strength.sum()

    def most_relevant(self, n: int) -> list[int]:
        """The `n` columns of largest relevance."""
        return [int(j) for j in np.argsort(-self.relevance, kind="stable")[:n]]

    def sample(self, max_rows: int) -> Subject:
        """The same with at most `max_rows` evenly spaced rows."""
        index = spaced_rows(np.ones(self.table.n_rows), max_rows)
        return replace(self, table=self.table.part(index), y=self.y[index])


def _association(column: np.ndarray, ranks: np.ndarray) -> float:
    """The absolute rank correlation of a column and the targets; text counts by the mean ranks of its levels."""
    if column.dtype.kind != "f":
        place = np.unique(column, return_inverse=True)[1]
        column = (np.bincount(place, weights=ranks) / np.bincount(place))[place]
    known = np.isfinite(column)
    if known.sum() < 3 or np.ptp(column[known]) == 0 or np.ptp(ranks[known]) == 0:
        return 0.0
    return abs(float(np.corrcoef(np.argsort(np.argsort(column[known])), ranks[known])[0, 1]))


def _targets(y: Any) -> np.ndarray:
    y = np.asarray(y)
    require(y.ndim in (1, 2), "y_test", "of one or two dimensions", y.shape)
    return y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y


def _require_known(model: Any, y: np.ndarray, name: str) -> None:
    """Refuse targets that are missing, or infinite numbers: no error can be computed from them."""
    [column] = raw_columns(y.reshape(-1, 1))
    classes, are_numbers = is_classifier(model), column.kind not in CATEGORICAL
    require(classes or are_numbers, name, "numbers for a regressor", y.ravel()[:1].tolist())
    unknown = ~np.isfinite(column.values) if are_numbers else column.missing
    wanted = "a class for every row" if classes else "finite numbers"
    require(not unknown.any(), name, wanted, f"{int(unknown.sum())} missing or infinite of {len(unknown)}")


def _output_names(y: Any) -> tuple[str, ...]:
    if hasattr(y, "columns"):
        return tuple(str(name) for name in y.columns)
    name = getattr(y, "name", None)
    width = np.asarray(y).shape[1] if np.asarray(y).ndim == 2 else 1
    return (str(name),) if width == 1 and name else ("target",) if width == 1 else tuple(f"y{j}" for j in range(width))
