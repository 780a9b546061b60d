"""Coverage of `predict_interval` over regression tables, and its width beside MAPIE's split conformal intervals.

    MERCER_DATA=… python benchmarks/peers/intervals.py [--tables abalone pol] [--rows 2000] [--out intervals.json]

Default boosting on at most 2000 training rows, up to 3000 test rows. MAPIE (if it is there) gets the same estimator,
fitted to four fifths of the training rows and conformalised on the last fifth: what split conformal needs, and ours
does not. Widths are shares of the target's standard deviation; the worst tenth is the least coverage, at 90 %, of a
tenth of the test rows ordered by prediction.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from tables_data import _mixed, names

from mercer import KernelBoostingRegressor
from mercer.datasets import load

LEVELS = (0.5, 0.8, 0.9, 0.95)
TEST = 3000


def table(name: str, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    mixed = Path(os.environ.get("MERCER_DATA", "")) / "mixed" / f"{name}.parquet"
    if mixed.exists():
        X, X_test, y, y_test = _mixed(mixed, "regression", 0)
        X, y = np.concatenate([X, X_test]), np.concatenate([y, y_test])
    else:
        bunch = load(name)
        X, y = np.asarray(bunch.X, dtype=float), np.asarray(bunch.y, dtype=float)
        if "X_test" in bunch:
            X, y = np.concatenate([X, bunch.X_test]), np.concatenate([y, bunch.y_test])
    y = y[:, 0] if y.ndim == 2 else y
    order = np.random.default_rng(0).permutation(len(X))
    n = min(rows, len(X) * 2 // 3)
    return X[order[:n]], y[order[:n]], X[order[n : n + TEST]], y[order[n : n + TEST]]


def judged(low: np.ndarray, high: np.ndarray, y: np.ndarray, f: np.ndarray) -> dict[str, float]:
    inside = (low <= y) & (y <= high)
    tenth = np.argsort(np.argsort(f)) * 10 // len(f)
    return {
        "coverage": float(inside.mean()),
        "width": float((high - low).mean() / y.std()),
        "worst_tenth": float(min(inside[tenth == k].mean() for k in range(10))),
    }


def split_conformal(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray) -> dict[str, float] | None:
    try:
        from mapie.regression import SplitConformalRegressor
    except ImportError:
        return None
    n = len(X) * 4 // 5
    model = KernelBoostingRegressor(random_state=0).fit(X[:n], y[:n])
    rival = SplitConformalRegressor(model, confidence_level=0.9, prefit=True).conformalize(X[n:], y[n:])
    f, ends = rival.predict_interval(X_test)
    return judged(ends[:, 0, 0], ends[:, 1, 0], y_test, f)


def run(name: str, rows: int) -> dict[str, Any]:
    X, y, X_test, y_test = table(name, rows)
    began = time.perf_counter()
    model = KernelBoostingRegressor(random_state=0).fit(X, y)
    fitted = time.perf_counter()
    f = model.predict(X_test)
    seen = {level: model.predict_interval(X_test, level) for level in LEVELS}
    score: dict[str, Any] = {"rows": len(X), "test_rows": len(y_test), "fit_seconds": fitted - began}
    score["coverage"] = {str(c): float(((e[:, 0] <= y_test) & (y_test <= e[:, 1])).mean()) for c, e in seen.items()}
    score["ours"] = judged(*seen[0.9].T, y_test, f)
    score["mapie"] = split_conformal(X, y, X_test, y_test)
    return score


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument(
        "--tables", nargs="+", default=[n for part in ("choose", "once") for n in names(part, "regression")]
    )
    options.add_argument("--rows", type=int, default=2000)
    options.add_argument("--out", type=Path, default=None)
    given = options.parse_args()
    kept: dict[str, Any] = json.loads(given.out.read_text()) if given.out and given.out.exists() else {}
    for name in given.tables:
        if name not in kept:
            kept[name] = run(name, given.rows)
            if given.out:
                given.out.write_text(json.dumps(kept, indent=1))
        one = kept[name]
        told = " ".join(f"{value:.3f}" for value in one["coverage"].values())
        rival = one["mapie"] or {"coverage": np.nan, "width": np.nan, "worst_tenth": np.nan}
        words = [f"{w['coverage']:.3f} {w['width']:.3f} {w['worst_tenth']:.2f}" for w in (one["ours"], rival)]
        print(f"| {name} | {one['rows']} | {told} | {words[0]} | {words[1]} |", flush=True)
    gaps = np.array([[value - float(c) for c, value in one["coverage"].items()] for one in kept.values()])
    print("mean gap", gaps.mean(0).round(3), "largest", np.abs(gaps).max(0).round(3))
    ratios = [one["ours"]["width"] / one["mapie"]["width"] for one in kept.values() if one["mapie"]]
    if ratios:
        print("width, ours over MAPIE's:", round(float(np.exp(np.mean(np.log(ratios)))), 3))


if __name__ == "__main__":
    main()
