"""The thesis' models and problems, with every choice on which it is silent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mercer import (
    CommonBasisMixtureClassifier,
    ENRBFClassifier,
    ENRBFRegressor,
    GaussianMixtureClassifier,
    NRBFClassifier,
    NRBFRegressor,
)
from mercer.datasets import load

#: The five classifiers of chapter 3, by the names of table 3-3. All but `covariance_type` are the package's defaults.
CLASSIFIERS: dict[str, Callable[..., Any]] = {
    "GMC": GaussianMixtureClassifier,
    "unsupervised common-basis GMC": lambda *a, **k: CommonBasisMixtureClassifier(*a, supervised=False, **k),
    "supervised common-basis GMC": CommonBasisMixtureClassifier,
    "two-step NRBF classifier": NRBFClassifier,
    "ENRBFC": ENRBFClassifier,
}
#: Chapter 2 has diagonal covariances throughout (section 2.5).
REGRESSORS: dict[str, Callable[..., Any]] = {
    "two-step NRBF": lambda *a, **k: NRBFRegressor(*a, training="two-step", **k),
    "gradient NRBF": lambda *a, **k: NRBFRegressor(*a, training="gradient", **k),
    "ENRBF": ENRBFRegressor,
}
#: Largest sizes tried on the laser series: what the thesis ended with, for either model.
LASER_SIZES = {"gradient NRBF": 80, "ENRBF": 30}


def laser(lags: int, first: int = 0, last: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """Rows of `lags` past values and the next one, of the values `first` … `last`."""
    windows = np.lib.stride_tricks.sliding_window_view(
        np.asarray(load("santafe_laser").series[first:last], float), lags + 1
    )
    return windows[:, :-1].copy(), windows[:, -1].copy()


def rmse(model: Any, X: np.ndarray, y: np.ndarray) -> float:
    return float(np.sqrt(np.mean((model.predict(X) - y) ** 2)))
