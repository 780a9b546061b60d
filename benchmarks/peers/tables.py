"""Defaults against defaults: every estimator as it comes, on many tables, 90/10, three splits.

    MERCER_DATA=… python benchmarks/peers/tables.py [--tables abalone wine] [--methods mercer svm] [--out file.json]

Errors are the normalised mean squared error (regression) or the share of wrong classes, in percent. A method whose
package is missing is left out. Nothing is tuned by hand: no argument but a seed.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from mercer import KernelBoostingClassifier, KernelBoostingRegressor
from mercer.datasets import load

REGRESSION = (
    "boston", "abalone", "kin8nm", "pumadyn32nm", "elevators", "pol", "cal_housing", "house_8L", "house_16H",
    "sarcos_test_only", "gal_protein", "kin40k",
)  # fmt: skip
CLASSIFICATION = (
    "cmc", "ecoli", "glass", "ionosphere", "iris", "letter", "musk1", "page_blocks", "pima", "segment", "sonar",
    "spambase", "waveform21", "wdbc", "wine", "ripley", "usps",
)  # fmt: skip
LARGEST = 12_000  # training rows taken at most, so that the slowest rival ends


def mercer(task: str, seed: int) -> Any:
    return (KernelBoostingRegressor if task == "regression" else KernelBoostingClassifier)(random_state=seed)


def lightgbm(task: str, seed: int) -> Any:
    from lightgbm import LGBMClassifier, LGBMRegressor

    return (LGBMRegressor if task == "regression" else LGBMClassifier)(random_state=seed, verbose=-1)


def catboost(task: str, seed: int) -> Any:
    from catboost import CatBoostClassifier, CatBoostRegressor

    kind = CatBoostRegressor if task == "regression" else CatBoostClassifier
    return kind(random_state=seed, verbose=False, allow_writing_files=False)


def svm(task: str, seed: int) -> Any:
    if task == "classification":
        return make_pipeline(StandardScaler(), SVC())
    return _ScaledTargets(make_pipeline(StandardScaler(), SVR()))


def xrfm(task: str, seed: int) -> Any:
    from xrfm import xRFM

    return _Rows(xRFM(tuning_metric="mse" if task == "regression" else "accuracy"), seed, task)


class _ScaledTargets:
    """SVR's ε is in the units of y: without this its default would be meaningless."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def fit(self, X: np.ndarray, y: np.ndarray) -> _ScaledTargets:
        self.mean, self.scale = y.mean(), y.std()
        self.model.fit(X, (y - self.mean) / self.scale)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.model.predict(X) * self.scale + self.mean


class _Rows:
    """xRFM takes float32 rows, scaled by the caller, and a validation set."""

    def __init__(self, model: Any, seed: int, task: str) -> None:
        self.model, self.seed, self.task = model, seed, task

    def fit(self, X: np.ndarray, y: np.ndarray) -> _Rows:
        self.scaler = StandardScaler().fit(X)
        self.mean, self.scale = (y.mean(), y.std()) if self.task == "regression" else (0.0, 1.0)
        target = ((y - self.mean) / self.scale)[:, None] if self.task == "regression" else y
        parts = train_test_split(
            self.scaler.transform(X).astype(np.float32), target, test_size=0.2, random_state=self.seed
        )
        kind = np.float32 if self.task == "regression" else np.int64
        self.model.fit(parts[0], parts[2].astype(kind), parts[1], parts[3].astype(kind))
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        out = np.asarray(self.model.predict(self.scaler.transform(X).astype(np.float32)))
        return out.reshape(len(X), -1)[:, 0] * self.scale + self.mean if self.task == "regression" else out.reshape(-1)


METHODS: dict[str, Callable[[str, int], Any]] = {
    "mercer": mercer, "lightgbm": lightgbm, "catboost": catboost, "svm": svm, "xrfm": xrfm,
}  # fmt: skip


def table(name: str) -> tuple[np.ndarray, np.ndarray, str]:
    bunch = load(name)
    X, y = np.asarray(bunch.X, dtype=float), np.asarray(bunch.y)
    if "X_test" in bunch:
        X, y = np.concatenate([X, bunch.X_test]), np.concatenate([y, bunch.y_test])
    if y.ndim == 2:
        y = y[:, 0]  # SARCOS: the first torque
    task = "regression" if name in REGRESSION else "classification"
    return X, (y.astype(float) if task == "regression" else np.unique(y, return_inverse=True)[1]), task


def judge(name: str, method: str, seed: int) -> tuple[float, float]:
    """Test error in percent and seconds of fit and prediction."""
    X, y, task = table(name)
    stratify = y if task == "classification" and np.bincount(y).min() >= 2 else None
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.1, random_state=seed, stratify=stratify)
    if len(X) > LARGEST:
        X, y = X[:LARGEST], y[:LARGEST]
    began = time.perf_counter()
    prediction = METHODS[method](task, seed).fit(X, y).predict(X_test)
    seconds = time.perf_counter() - began
    wrong = (
        (np.asarray(prediction).reshape(-1) - y_test) ** 2 / np.var(y)
        if task == "regression"
        else (np.asarray(prediction).reshape(-1) != y_test)
    )
    return 100 * float(np.mean(wrong)), seconds


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--tables", nargs="+", default=[*REGRESSION, *CLASSIFICATION])
    options.add_argument("--methods", nargs="+", default=list(METHODS))
    options.add_argument("--splits", type=int, default=3)
    options.add_argument("--out", type=Path, default=None)
    given = options.parse_args()
    results: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for name in given.tables:
        results[name] = {}
        for method in given.methods:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    results[name][method] = [judge(name, method, seed) for seed in range(given.splits)]
            except ImportError:
                continue
            except Exception as error:  # a rival that breaks is reported, not hidden
                print(f"{name}: {method} failed: {error!r}"[:200], flush=True)
        cells = "  ".join(
            f"{m} {np.mean([e for e, _ in r]):7.2f} ({np.mean([s for _, s in r]):5.1f} s)"
            for m, r in results[name].items()
        )
        print(f"{name:18s} {cells}", flush=True)
        if given.out:
            given.out.write_text(json.dumps(results))
    methods = [m for m in given.methods if all(m in r for r in results.values())]
    errors = np.array([[np.mean([e for e, _ in r[m]]) for m in methods] for r in results.values()])
    ranks = (
        (errors[:, :, None] > errors[:, None, :]).sum(2)
        + 0.5 * ((errors[:, :, None] == errors[:, None, :]).sum(2) - 1)
        + 1
    )
    print("mean rank: " + ", ".join(f"{m} {rank:.2f}" for m, rank in zip(methods, ranks.mean(0), strict=True)))


if __name__ == "__main__":
    main()
