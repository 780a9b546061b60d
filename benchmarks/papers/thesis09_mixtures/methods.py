"""Chapters 2 and 3: the thesis' models and problems, with every choice on which it is silent; one cell a function."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from papers.measure import clock
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, RepeatedStratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mercer import (
    CommonBasisMixtureClassifier,
    ENRBFClassifier,
    ENRBFRegressor,
    GaussianMixtureClassifier,
    NRBFClassifier,
    NRBFRegressor,
)
from mercer.datasets import THREE_GAUSSIANS, load, make_sin2, make_three_gaussians

Models = dict[str, Callable[..., Any]]


def on_one_core(models: Models) -> Models:
    """Problems this small are left to one core each, so that cells may be measured side by side."""
    return {name: partial(make, device="cpu") for name, make in models.items()}


#: Chapter 2 and 3 train by EM and have no penalty; that of two-step readouts (ΦᵀΦ + λI) has no printed value.
BY_EM: dict[str, Any] = {"training": "em", "regularization": 0.0}
#: Newton steps of a local logistic model in each iteration: IRLS to its end, as printed.
IRLS = 100
READOUT: dict[str, Any] = {"training": "two-step", "regularization": 1e-2}

#: The five classifiers of chapter 3, by the names of table 3-3.
CLASSIFIERS = on_one_core(
    {
        "GMC": GaussianMixtureClassifier,
        "unsupervised common-basis GMC": partial(CommonBasisMixtureClassifier, training="em", supervised=False),
        "supervised common-basis GMC": partial(CommonBasisMixtureClassifier, training="em"),
        "two-step NRBF classifier": partial(NRBFClassifier, **READOUT),
        "ENRBFC": partial(ENRBFClassifier, **BY_EM, newton_steps=IRLS),
    }
)
#: ENRBFC our way: one Newton step an iteration, without a penalty and with one.
TODAY = on_one_core(
    {
        "ENRBFC, one Newton step": partial(ENRBFClassifier, **BY_EM),
        "ENRBFC, λ = 1": partial(ENRBFClassifier, training="em", regularization=1.0),
    }
)
#: Chapter 2 has diagonal covariances throughout (section 2.5).
REGRESSORS = on_one_core(
    {
        "two-step NRBF": partial(NRBFRegressor, **READOUT),
        "NRBF by EM": partial(NRBFRegressor, **BY_EM),
        "NRBF by gradient": partial(NRBFRegressor, **BY_EM | {"training": "gradient"}),
        "ENRBF": partial(ENRBFRegressor, **BY_EM),
    }
)
#: Largest sizes tried on the laser series: no smaller than those the thesis chose (80 and 24).
LASER_SIZES = {"NRBF by gradient": 80, "ENRBF": 24}
#: Real sets of several classes, in place of the hospital's (table 3-4).
SEVERAL = ("iris", "wine", "glass", "ecoli", "segment")


def laser(lags: int, first: int = 0, last: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """Rows of `lags` past values and the next one, of the values `first` … `last`."""
    windows = np.lib.stride_tricks.sliding_window_view(
        np.asarray(load("santafe_laser").series[first:last], float), lags + 1
    )
    return windows[:, :-1].copy(), windows[:, -1].copy()


def rmse(model: Any, X: np.ndarray, y: np.ndarray) -> float:
    return float(np.sqrt(np.mean((model.predict(X) - y) ** 2)))


def sin2_cell(name: str, seed: int) -> dict[str, Any]:
    """The size chosen from 1 to 10 on one draw; the error on clean targets of new rows, and near the boundaries."""
    X_new, clean = make_sin2(2000, snr=float("inf"), random_state=10_000)
    model = REGRESSORS[name]("auto", max_components=10, random_state=seed).fit(*make_sin2(random_state=seed))
    edge = (X_new[:, 0] < 0.04) | (X_new[:, 0] > 0.96)
    at_edge = rmse(model, X_new[edge], clean[edge])
    return {"size": int(model.n_components_), "error": rmse(model, X_new, clean), "boundary": at_edge}


def gaussians_cell(name: str, seed: int) -> dict[str, Any]:
    """The size chosen on one draw of 200 rows; accuracy on 10 000 new ones, and how often Bayes' rule says the same."""
    X_new, y_new = make_three_gaussians(10_000, random_state=10_000)
    model = CLASSIFIERS[name]("auto", covariance_type="full", max_components=6, random_state=seed)
    model.fit(*make_three_gaussians(random_state=seed))
    alike = (model.predict(X_new) == model.classes_[1]) == (THREE_GAUSSIANS.posterior(X_new) > 0.5)
    right = 100 * float(model.score(X_new, y_new))
    return {"size": int(model.n_components_), "score": right, "as_bayes": 100 * float(np.mean(alike))}


def laser_cell(lag: int, name: str) -> dict[str, Any]:
    """The size chosen and its errors on three folds, errors on 1000 training and 2000 later values, and times."""
    X, y = laser(lag)
    X_new, y_new = laser(lag, 1000 - lag, 3000)
    began = clock()
    model = REGRESSORS[name]("auto", max_components=LASER_SIZES[name], random_state=0).fit(X, y)
    searched = clock()
    size = max(int(model.n_components_), 1)
    REGRESSORS[name](size, random_state=0).fit(X, y)
    results = model.cv_results_
    at = int(np.argmin(np.abs(results["param_n_components"] - size)))
    return {
        "components": size,
        "train": rmse(model, X, y),
        "later": rmse(model, X_new, y_new),
        "search_s": searched - began,
        "fit_s": clock() - searched,
        "folds": [-float(results[f"split{f}_test_score"][at]) for f in range(3)],
    }


def wdbc_cell(name: str, covariance: str, size: int | None = None, repeats: int = 2) -> dict[str, Any]:
    """The size by three-fold cross-validation, or one given; training rows, and ten-fold with that size, repeated."""
    data = load("wdbc")
    make = (CLASSIFIERS | TODAY)[name]
    per = 2 if name == "GMC" else 1  # mixtures, one for each class
    if size is None:
        model = make("auto", covariance_type=covariance, max_components=10 // per, random_state=0).fit(data.X, data.y)
        size = max(model.n_components_ // per, 1)
    else:
        model = make(size, covariance_type=covariance, random_state=0).fit(data.X, data.y)
    fixed = make(size, covariance_type=covariance, random_state=0)
    began = clock()
    fixed.fit(data.X, data.y)
    seconds = clock() - began
    folds = RepeatedStratifiedKFold(n_splits=10, n_repeats=repeats, random_state=0)
    return {
        "components": int(model.n_components_),
        "train": 100 * float(model.score(data.X, data.y)),
        "folds": np.round(100 * cross_val_score(fixed, data.X, data.y, cv=folds), 3).tolist(),
        "fit_s": seconds,
    }


def today_cell(name: str, repeats: int = 1) -> dict[str, Any]:
    """Ten-fold accuracy on Wisconsin by a classifier as the package is used today."""
    data, made = load("wdbc"), {"NRBFClassifier": NRBFClassifier, "ENRBFClassifier": ENRBFClassifier}[name]
    folds = RepeatedStratifiedKFold(n_splits=10, n_repeats=repeats, random_state=0)
    scores = cross_val_score(made(random_state=0, device="cpu"), data.X, data.y, cv=folds)
    return {"folds": np.round(100 * scores, 3).tolist()}


def laser_today_cell(lag: int, name: str) -> dict[str, Any]:
    """Three-fold error by a regressor as the package is used today."""
    X, y = laser(lag)
    made = {"NRBF by gradient": NRBFRegressor, "ENRBF": ENRBFRegressor}[name](random_state=0, device="cpu")
    folds = KFold(3, shuffle=True, random_state=0)
    return {"folds": (-cross_val_score(made, X, y, cv=folds, scoring="neg_root_mean_squared_error")).tolist()}


def several_cell(name: str, model: str, covariance: str) -> dict[str, Any]:
    """Five-fold accuracy on a set of several classes, twice; sizes are chosen within each training part."""
    data = load(name)
    X, y = np.asarray(data.X, float), np.asarray(data.y)
    most = 3 if model == "GMC" else 6
    if model == "logistic regression":
        made: Any = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    else:
        made = CLASSIFIERS[model]("auto", covariance_type=covariance, max_components=most, random_state=0)
    kept = np.isin(y, np.flatnonzero(np.bincount(y) >= 10))  # a class of fewer rows is in no fold of some parts
    folds = RepeatedStratifiedKFold(n_splits=5, n_repeats=1 if len(y) > 1000 else 2, random_state=0)
    began = clock()
    scores = 100 * cross_val_score(made, X[kept], y[kept], cv=folds)
    return {"folds": np.round(scores, 3).tolist(), "seconds": clock() - began, "rows": int(kept.sum())}
