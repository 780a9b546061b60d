"""Every public estimator without arguments, beside HistGradientBoosting and a linear model.

    MERCER_DATA=… python benchmarks/peers/families.py [--models NRBFRegressor] [--tables boston wine]
        [--keep families.json]

Friedman 1 (500 training rows, five inputs, noise 0.5; classes are whether the noise-free value is above the median) and
the development tables of `tables_data.py`: at most 1000 training rows and 2000 test rows, as many 90/10 splits as give
500 test rows, at most ten. An error is the variance unexplained (squared error over the variance of the targets) or the
share of wrong classes, in percent; the log loss stands beside the latter. Seconds are process time of `fit`.

The linear model is `RidgeCV` or `LogisticRegression`, on standardised inputs. A family is worse than another by more
than 10 % where its root mean squared error or its share of wrong classes is more than 1.1 times as large, and the
difference is more than two standard errors of the test rows: a single row of iris is no finding. With `--keep` results
are kept in a file, and only `--models` are fitted again.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tables import log_loss
from tables_data import CHOOSE, DEVELOPMENT, TASKS, Table, place, table
from threadpoolctl import threadpool_limits

import mercer

TRAIN, TEST, MOST_SPLITS, ENOUGH = 1000, 2000, 10, 500
#: A ratio of errors above which a family is worse.
WORSE = 1.1
TREES, LINEAR = "HistGradientBoosting", "linear model"
OURS = {
    "regression": [name for name in mercer.__all__ if name.endswith("Regressor")],
    "classification": [name for name in mercer.__all__ if name.endswith("Classifier")],
}
FRIEDMAN = {"friedman1": "regression", "friedman1 classes": "classification"}
Result = dict[str, Any]


def friedman(task: str, seed: int) -> Table:
    """Five inputs that all count, 500 training rows; classes without noise, split at the median."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(500 + TEST, 5))
    f = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]
    y = f + 0.5 * rng.normal(size=len(f))
    if task == "classification":
        y = (y > np.median(f)).astype(int)
    return Table(task, X[:500], y[:500], X[500:], y[500:])


def splits(name: str) -> list[Table]:
    if name in FRIEDMAN:
        return [friedman(FRIEDMAN[name], seed) for seed in range(2)]
    first = _cut(table(name, 0, TRAIN))
    n = int(np.clip(-(-ENOUGH // len(first.y_test)), 1, MOST_SPLITS))
    return [first, *(_cut(table(name, seed, TRAIN)) for seed in range(1, n))]


def _cut(given: Table) -> Table:
    return Table(given.task, given.X, given.y, given.X_test[:TEST], given.y_test[:TEST])


def model(name: str, task: str) -> Any:
    numbers = task == "regression"
    if name == TREES:
        return (HistGradientBoostingRegressor if numbers else HistGradientBoostingClassifier)(random_state=0)
    if name == LINEAR:
        penalties = np.logspace(-3, 4, 15)
        return make_pipeline(StandardScaler(), RidgeCV(penalties) if numbers else LogisticRegression(max_iter=1000))
    return getattr(mercer, name)(random_state=0)


def judged(name: str, given: list[Table]) -> Result:
    """Losses of all test rows of all splits, and the mean process time of a fit."""
    losses, logs, seconds = [], [], []
    for part in given:
        began = time.process_time()
        fitted = model(name, part.task).fit(part.X, part.y)
        seconds.append(time.process_time() - began)
        prediction = np.asarray(fitted.predict(part.X_test)).reshape(-1)
        if part.task == "regression":
            losses.append((prediction - part.y_test) ** 2 / np.var(part.y))
        else:
            losses.append((prediction != part.y_test).astype(float))
            logs.append(log_loss(np.asarray(fitted.predict_proba(part.X_test), dtype=float), part.y_test))
    row = {"losses": np.concatenate(losses).astype(np.float32).tolist(), "seconds": float(np.mean(seconds))}
    return row | ({"log_loss": float(np.mean(logs))} if logs else {})


def compared(task: str, ours: Result, other: Result) -> tuple[float, bool]:
    """The ratio of the errors, and whether ours is larger by more than two standard errors of the difference."""
    a, b = np.array(ours["losses"]), np.array(other["losses"])
    apart = a - b
    ratio = a.mean() / max(b.mean(), 1 / (2 * len(b)) if task == "classification" else 1e-12)
    clear = apart.mean() > 2 * apart.std() / len(apart) ** 0.5
    return float(ratio**0.5 if task == "regression" else ratio), bool(clear)


def line(name: str, task: str, results: dict[str, Result]) -> str:
    cells = []
    for method, found in results.items():
        log = f" {found['log_loss']:.3f}" if "log_loss" in found else ""
        cells.append(f"{_short(method)} {100 * np.mean(found['losses']):.2f}{log} ({found['seconds']:.1f} s)")
    return f"{name:>22}  " + "  ".join(cells)


def summary(results: dict[str, dict[str, Result]]) -> None:
    """One line a family: tables no worse than trees, the worst ratio to the linear model, seconds."""
    print(
        f"\n{'family':>30} {'tables':>6} {'no worse than trees':>20} {'clearly worse':>14} {'over linear, worst':>36} s"
    )
    for task in TASKS:
        of_task = {name: found for name, found in results.items() if _task(name) == task}
        for method in OURS[task]:
            found = {name: row for name, row in of_task.items() if {method, TREES, LINEAR} <= row.keys()}
            if not found:
                continue
            trees = [compared(task, row[method], row[TREES]) for row in found.values()]
            linear = {name: compared(task, row[method], row[LINEAR]) for name, row in found.items()}
            worst = max(linear, key=lambda name: linear[name][0])
            failed = [name for name, (ratio, clear) in linear.items() if ratio > WORSE and clear]
            seconds = max(row[method]["seconds"] for row in found.values())
            won, lost = sum(ratio <= 1 for ratio, _ in trees), sum(clear for _, clear in trees)
            print(
                f"{method:>30} {len(found):6d} {won:20d} {lost:14d} "
                f"{linear[worst][0]:14.2f} {worst:>21} {seconds:.1f}  worse than linear: {' '.join(failed) or 'none'}"
            )


def _short(method: str) -> str:
    return method.removesuffix("Regressor").removesuffix("Classifier")


def _task(name: str) -> str:
    return FRIEDMAN[name] if name in FRIEDMAN else place(name)[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = [*FRIEDMAN, *(name for task in TASKS for part in (CHOOSE, DEVELOPMENT) for name in part[task])]
    known = [name for names in OURS.values() for name in names]
    parser.add_argument("--tables", nargs="*", default=every)
    parser.add_argument("--models", nargs="*", default=known, choices=known)
    parser.add_argument("--keep", type=Path)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    results = json.loads(asked.keep.read_text()) if asked.keep and asked.keep.exists() else {}
    for name in asked.tables:
        kept, task = results.setdefault(name, {}), _task(name)
        methods = [m for m in (TREES, LINEAR) if m not in kept] + [m for m in OURS[task] if m in asked.models]
        given = splits(name)
        with threadpool_limits(1):
            kept |= {method: judged(method, given) for method in methods}
        print(line(name, task, {method: kept[method] for method in (TREES, LINEAR, *methods)}), flush=True)
        if asked.keep:
            asked.keep.write_text(json.dumps(results))
    summary({name: results[name] for name in asked.tables})


if __name__ == "__main__":
    main()
