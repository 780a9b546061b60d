"""Twenty zero-argument fits in one process, in two orders, beside a fresh process for each.

    MERCER_DATA=… python benchmarks/speed/used_process.py [--rows 20000] [--tables adult pol] [--out used.json]

A process that has fitted before must take the same path as a fresh one: memory that torch's allocator keeps is free.
Every process first fits a small table, and a first pass over all tables, which compiles GPU programs and keeps them on
disk for all processes, is not counted. `ratio` is the time in the used
process over the time in the fresh one, `difference` the largest difference of predictions in units of their standard
deviation (probabilities of classes as they are).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from mercer import KernelBoostingClassifier, KernelBoostingRegressor
from mercer.datasets import load

MIXED = (
    "adult", "ames", "churn", "concrete", "credit-g", "diamonds", "healthcare_insurance", "hotel_rates", "loans",
    "nycflights13", "penguins", "titanic",
)  # fmt: skip
NUMERIC = {
    "cal_housing": False, "elevators": False, "pol": False, "kin8nm": False, "gal_protein": False,
    "letter": True, "spambase": True, "page_blocks": True,
}  # fmt: skip
TEST = 500


def table(name: str, rows: int) -> tuple[Any, np.ndarray, Any, bool]:
    """Training rows, their targets, test rows, and whether targets are classes."""
    if name in MIXED:
        frame = pd.read_parquet(Path(os.environ["MERCER_DATA"]) / "mixed" / f"{name}.parquet")
        X, y = frame.drop(columns="target"), frame["target"]
        classes = isinstance(y.dtype, pd.CategoricalDtype)
        y = y.astype(str).to_numpy() if classes else y.to_numpy()
    else:
        bunch, classes = load(name), NUMERIC[name]
        X, y = pd.DataFrame(bunch.X).astype(float), np.asarray(bunch.y)
    order = np.random.default_rng(0).permutation(len(y))
    n_test = min(TEST, len(y) // 5)
    train, test = order[n_test:][:rows], order[:n_test]
    return X.iloc[train], y[train], X.iloc[test], classes


def fitted(name: str, rows: int) -> tuple[float, np.ndarray]:
    """Seconds of `fit`, and predictions."""
    X, y, X_test, classes = table(name, rows)
    model = (KernelBoostingClassifier if classes else KernelBoostingRegressor)(random_state=0)
    began = time.perf_counter()
    model.fit(X, y)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    return seconds, model.predict_proba(X_test) if classes else model.predict(X_test)


def warm_up() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 5))
    KernelBoostingRegressor(random_state=0).fit(X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=3000))
    KernelBoostingClassifier(random_state=0).fit(X, X[:, 1] > 0)


def fresh(name: str, rows: int) -> tuple[float, np.ndarray]:
    """The same in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.npz"
        command = [sys.executable, __file__, "--tables", name, "--rows", str(rows), "--single", str(out)]
        subprocess.run(command, check=True)
        found = np.load(out)
        return float(found["seconds"]), found["predictions"]


def difference(one: np.ndarray, other: np.ndarray) -> float:
    scale = 1.0 if one.ndim == 2 else float(np.std(other))
    return float(np.abs(one - other).max() / scale)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", default=[*MIXED, *NUMERIC])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--single", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    warm_up()
    if asked.single:
        seconds, predictions = fitted(asked.tables[0], asked.rows)
        np.savez(asked.single, seconds=seconds, predictions=predictions)
        return
    used: dict[str, list[tuple[float, np.ndarray]]] = {name: [] for name in asked.tables}
    for order in (asked.tables, asked.tables, asked.tables[::-1]):
        for name in order:
            used[name].append(fitted(name, asked.rows))
            print(name, f"{used[name][-1][0]:.2f} s", flush=True)
    results = {}
    print(f"{'table':22} {'fresh':>7} {'used':>7} {'again':>7} {'ratio':>6} {'difference':>11}")
    for name in asked.tables:
        seconds, predictions = fresh(name, asked.rows)
        times = [took for took, _ in used[name][1:]]
        most = max(difference(said, predictions) for _, said in used[name])
        results[name] = {"fresh": seconds, "used": times, "difference": most}
        ratio = max(times) / seconds
        print(f"{name:22} {seconds:7.2f} {times[0]:7.2f} {times[1]:7.2f} {ratio:6.2f} {most:11.1e}", flush=True)
        if asked.out:
            asked.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
