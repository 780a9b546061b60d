"""scikit-learn's SVR and SVC; targets and rows are scaled, without which their defaults mean nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sklearn.compose import TransformedTargetRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from rivals import Given, OverLengths, Setting


def default(task: str, seed: int, *, threads: int | None = None, device: str = "auto") -> Any:
    if task == "classification":  # as it comes it has no probabilities, hence no log loss
        return make_pipeline(StandardScaler(), SVC())
    return TransformedTargetRegressor(make_pipeline(StandardScaler(), SVR()), transformer=StandardScaler())


def sweep(given: Given) -> Iterator[Setting]:
    if given.task == "regression":
        for tolerance in (0.3, 0.1):
            yield Setting(f"ε = {tolerance}", OverLengths(SVR(C=10, epsilon=tolerance, gamma=0.5), given), tuned=True)
