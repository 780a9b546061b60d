"""Thesis09, chapters 2 and 3, beside ours: measures what is asked for, then writes `results.md`.

    MERCER_DATA=… python benchmarks/papers/thesis09_mixtures/run.py                       # everything
    MERCER_DATA=… python benchmarks/papers/thesis09_mixtures/run.py sin2 wdbc gaussians   # some of it
    MERCER_DATA=… python benchmarks/papers/thesis09_mixtures/run.py laser --lags 1 2 4

Ours are kept in `ours.json`, entry by entry, so that a run may be broken off and gone on with. Figures: `figures.py`.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import methods
import numpy as np
from report import write
from sklearn.model_selection import RepeatedStratifiedKFold, cross_val_score

from mercer.datasets import load, make_sin2, make_three_gaussians

HERE = Path(__file__).parent
OURS = HERE / "ours.json"
#: Names of the models asked for; all of them where it is empty.
ONLY: set[str] = set()


def keep(table: str, entry: str, value: dict[str, Any]) -> None:
    ours = json.loads(OURS.read_text()) if OURS.exists() else {}
    ours.setdefault(table, {})[entry] = value
    OURS.write_text(json.dumps(ours, indent=1, sort_keys=True) + "\n")
    print(table, entry, {k: v for k, v in value.items() if not isinstance(v, list)}, flush=True)


def chosen(models: dict[str, Any]) -> list[tuple[str, Any]]:
    """All models of a table, or those asked for on the command line."""
    return [(name, value) for name, value in models.items() if not ONLY or name in ONLY]


def sin2(repeats: int = 10) -> None:
    """Sizes chosen from 1 to 10 on ten draws, and errors on clean targets of new rows."""
    X_new, clean = make_sin2(2000, snr=float("inf"), random_state=10_000)
    for name in ("two-step NRBF", "ENRBF"):
        sizes, errors = [], []
        for seed in range(repeats):
            model = methods.REGRESSORS[name]("auto", max_components=10, random_state=seed)
            model.fit(*make_sin2(random_state=seed))
            sizes.append(int(model.n_components_))
            errors.append(methods.rmse(model, X_new, clean))
        keep("sin2", name, {"sizes": sizes, "errors": errors, "error": float(np.mean(errors))})


def gaussians(repeats: int = 10) -> None:
    """Sizes chosen on ten draws of 200 rows, and accuracy on 10 000 new ones (Bayes' rule: 82.7 %)."""
    X_new, y_new = make_three_gaussians(10_000, random_state=10_000)
    for name, make in chosen(methods.CLASSIFIERS):
        sizes, scores = [], []
        for seed in range(repeats):
            model = make("auto", covariance_type="full", max_components=6, random_state=seed)
            model.fit(*make_three_gaussians(random_state=seed))
            sizes.append(int(model.n_components_))
            scores.append(float(model.score(X_new, y_new)))
        keep("gaussians", name, {"sizes": sizes, "scores": scores, "score": float(np.mean(scores))})


def laser(lags: list[int]) -> None:
    """Cross-validated errors along the sizes, the size chosen, and errors on 1000 training and 2000 later values."""
    for lag in lags:
        X, y = methods.laser(lag)
        X_new, y_new = methods.laser(lag, 1000 - lag, 3000)
        for name, most in chosen(methods.LASER_SIZES):
            began = time.perf_counter()
            model = methods.REGRESSORS[name]("auto", max_components=most, random_state=0).fit(X, y)
            found = {
                "components": int(model.n_components_),
                "train": methods.rmse(model, X, y),
                "later": methods.rmse(model, X_new, y_new),
                "seconds": time.perf_counter() - began,
                "sizes": model.cv_results_["param_n_components"].tolist(),
                "cv": (-model.cv_results_["mean_test_score"]).tolist(),
                "cv_std": model.cv_results_["std_test_score"].tolist(),
            }
            keep("laser", f"{lag}, {name}", found)


def wdbc(repeats: int = 2) -> None:
    """The size chosen by three-fold cross-validation; accuracy on the training rows, and ten-fold, repeated."""
    data = load("wdbc")
    folds = RepeatedStratifiedKFold(n_splits=10, n_repeats=repeats, random_state=0)
    for name, make in chosen(methods.CLASSIFIERS):
        for covariance in ("spherical", "diagonal", "full"):
            began = time.perf_counter()
            most = 5 if name == "GMC" else 10  # of two classes each
            model = make("auto", covariance_type=covariance, max_components=most, random_state=0)
            model.fit(data.X, data.y)
            seconds = time.perf_counter() - began
            own = model.n_components_ // (2 if name == "GMC" else 1)
            fixed = make(max(own, 1), covariance_type=covariance, random_state=0)
            scores = cross_val_score(fixed, data.X, data.y, cv=folds)
            found = {
                "components": int(model.n_components_),
                "train": 100 * float(model.score(data.X, data.y)),
                "test": 100 * float(scores.mean()),
                "test_error": 100 * float(scores.std(ddof=1) / len(scores) ** 0.5),
                "seconds": seconds,
            }
            keep("wdbc", f"{name}, {covariance}", found)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="*", default=["sin2", "gaussians", "wdbc", "laser"])
    parser.add_argument("--models", nargs="*", help="only these, by the names of `methods`")
    parser.add_argument("--lags", nargs="*", type=int, default=[1, 2, 4, 8, 16, 32])
    arguments = parser.parse_args()
    ONLY.update(arguments.models or ())
    for what in arguments.what:
        if what == "laser":
            laser(arguments.lags)
        elif what != "report":
            {"sin2": sin2, "gaussians": gaussians, "wdbc": wdbc}[what]()
    write(HERE, json.loads(OURS.read_text()))


if __name__ == "__main__":
    main()
