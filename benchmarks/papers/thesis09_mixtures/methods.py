"""The thesis' models and problems, with every choice on which it is silent."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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

#: The five classifiers of chapter 3, by the names of table 3-3. The last is the default λ before Wisconsin was seen.
CLASSIFIERS: dict[str, Callable[..., Any]] = {
    "GMC": GaussianMixtureClassifier,
    "unsupervised common-basis GMC": partial(CommonBasisMixtureClassifier, supervised=False),
    "supervised common-basis GMC": CommonBasisMixtureClassifier,
    "two-step NRBF classifier": NRBFClassifier,
    "ENRBFC": ENRBFClassifier,
    "ENRBFC, λ = 0.01": partial(ENRBFClassifier, regularization=1e-2),
}
#: Chapter 2 has diagonal covariances throughout (section 2.5).
REGRESSORS: dict[str, Callable[..., Any]] = {
    "two-step NRBF": partial(NRBFRegressor, training="two-step"),
    "NRBF by EM": NRBFRegressor,
    "NRBF by gradient": partial(NRBFRegressor, training="gradient"),
    "ENRBF": ENRBFRegressor,
    "ENRBF by gradient": partial(ENRBFRegressor, training="gradient"),
    "NRBF by gradient, λ = 1": partial(NRBFRegressor, training="gradient", regularization=1.0),
    "ENRBF, λ = 1": partial(ENRBFRegressor, regularization=1.0),
    "ENRBF by gradient, λ = 1": partial(ENRBFRegressor, training="gradient", regularization=1.0),
}
#: Largest sizes tried on the laser series. The thesis has NRBF by gradient and ENRBF by EM.
LASER_SIZES = {
    "NRBF by EM": 50,
    "NRBF by gradient": 20,
    "ENRBF": 24,
    "ENRBF by gradient": 8,
    "NRBF by gradient, λ = 1": 20,
    "ENRBF, λ = 1": 24,
    "ENRBF by gradient, λ = 1": 8,
}


def laser(lags: int, first: int = 0, last: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """Rows of `lags` past values and the next one, of the values `first` … `last`."""
    windows = np.lib.stride_tricks.sliding_window_view(
        np.asarray(load("santafe_laser").series[first:last], float), lags + 1
    )
    return windows[:, :-1].copy(), windows[:, -1].copy()


def rmse(model: Any, X: np.ndarray, y: np.ndarray) -> float:
    return float(np.sqrt(np.mean((model.predict(X) - y) ** 2)))
