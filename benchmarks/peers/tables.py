"""Defaults against defaults: every estimator as it comes, on many tables, 90/10, three splits.

    MERCER_DATA=… python benchmarks/peers/tables.py [--tables abalone wine] [--methods ours svm]
        [--out file.json]

Errors are the normalised mean squared error (regression) or the share of wrong classes, in percent. A method whose
package is missing is left out. Nothing is tuned by hand: no argument but a seed.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from rivals import rival
from sklearn.model_selection import train_test_split

from mercer.datasets import load

#: Every table at hand with at most 25 000 rows, 100 columns, 10 classes, no missing values and no list of splits.
REGRESSION = (
    "boston", "abalone", "kin8nm", "pumadyn32nm", "elevators", "pol", "cal_housing", "house_8L", "house_16H",
    "sarcos_test_only",
)  # fmt: skip
CLASSIFICATION = (
    "cmc", "ecoli", "glass", "ionosphere", "iris", "page_blocks", "pima", "segment", "sonar", "spambase", "waveform21",
    "wdbc", "wine", "ripley",
)  # fmt: skip
METHODS = ("ours", "lightgbm", "catboost", "svm", "xrfm")
LARGEST = 12_000  # training rows taken at most, so that the slowest rival ends


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
    prediction = rival(method).default(task, seed).fit(X, y).predict(X_test)
    seconds = time.perf_counter() - began
    wrong = (
        (np.asarray(prediction).reshape(-1) - y_test) ** 2 / np.var(y)
        if task == "regression"
        else (np.asarray(prediction).reshape(-1) != y_test)
    )
    return 100 * float(np.mean(wrong)), seconds


Results = dict[str, dict[str, list[tuple[float, float]]]]  # table, method, (error, seconds) of each split


def run(tables: list[str], methods: list[str], splits: int, out: Path | None) -> Results:
    results: Results = {}
    for name in tables:
        results[name] = {}
        for method in methods:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    results[name][method] = [judge(name, method, seed) for seed in range(splits)]
            except ImportError:
                continue
            except Exception as error:  # a rival that breaks is reported, not hidden
                print(f"{name}: {method} failed: {error!r}"[:200], flush=True)
        means = {m: np.mean(r, axis=0) for m, r in results[name].items()}
        print(f"{name:18s} " + "  ".join(f"{m} {e:7.2f} ({t:5.1f} s)" for m, (e, t) in means.items()), flush=True)
        if out:
            out.write_text(json.dumps(results))
    return results


def report(results: Results, methods: list[str]) -> str:
    """A Markdown table of mean errors, the best in bold, and mean ranks among the methods that have every table."""
    whole = [m for m in methods if all(m in r for r in results.values())]
    mean = {name: {m: float(np.mean([e for e, _ in r[m]])) for m in methods if m in r} for name, r in results.items()}
    errors = np.array([[row[m] for m in whole] for row in mean.values()])
    above, equal = errors[:, :, None] > errors[:, None, :], errors[:, :, None] == errors[:, None, :]
    ranks = dict(zip(whole, (1 + above.sum(2) + 0.5 * (equal.sum(2) - 1)).mean(0), strict=True))
    seconds = {m: float(np.mean([t for r in results.values() if m in r for _, t in r[m]])) for m in methods}
    lines = [f"| table | {' | '.join(methods)} |", "|---" * (len(methods) + 1) + "|"]
    for name, row in mean.items():
        best = min(row.values())
        cells = [("**{:.2f}**" if row[m] == best else "{:.2f}").format(row[m]) if m in row else "–" for m in methods]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines.append(f"| mean rank | {' | '.join(f'{ranks[m]:.2f}' if m in ranks else '–' for m in methods)} |")
    lines.append(f"| mean seconds | {' | '.join(f'{seconds[m]:.1f}' for m in methods)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--tables", nargs="+", default=[*REGRESSION, *CLASSIFICATION])
    options.add_argument("--methods", nargs="+", default=list(METHODS))
    options.add_argument("--splits", type=int, default=3)
    options.add_argument("--out", type=Path, default=None)
    options.add_argument("--merge", type=Path, nargs="+", default=None, help="files of --out, instead of a run")
    given = options.parse_args()
    if given.merge:
        found = [json.loads(path.read_text()) for path in given.merge]
        results = {name: {m: r for part in found for m, r in part[name].items()} for name in given.tables}
    else:
        results = run(given.tables, given.methods, given.splits, given.out)
    print(report(results, [m for m in given.methods if any(m in r for r in results.values())]))


if __name__ == "__main__":
    main()
