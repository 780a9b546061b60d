"""Coverage of `predict_interval` over regression tables, and its width beside split conformal intervals.

    MERCER_DATA=… python benchmarks/peers/intervals.py [--tables abalone pol] [--rows 2000] [--out intervals.json]

Default boosting on at most 2000 training rows, up to 3000 test rows; tables of fewer test rows are split anew until a
thousand have judged. Tables of `mixed/` come as raw frames. Split conformal gets the same estimator, fitted to four
fifths of the training rows; the ⌈(n + 1) c⌉-th smallest absolute residual of the last fifth is half its width, which
is MAPIE's `SplitConformalRegressor` (`--mapie` asks it for tables of numbers, and stops where it differs). Widths are
shares of the target's standard deviation; the worst tenth is the least coverage, at 90 %, of a tenth of the test rows
ordered by prediction.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from tables_data import names

from mercer import KernelBoostingRegressor
from mercer.datasets import load

LEVELS = (0.5, 0.8, 0.9, 0.95)
TEST, LEAST_TEST = 3000, 1000


def table(name: str) -> tuple[Any, np.ndarray]:
    """All rows of a table: a frame or an array, and the targets."""
    mixed = Path(os.environ.get("MERCER_DATA", "")) / "mixed" / f"{name}.parquet"
    if mixed.exists():
        import pandas as pd

        frame = pd.read_parquet(mixed)
        return frame.drop(columns="target"), frame["target"].to_numpy(dtype=float)
    bunch = load(name)
    X, y = np.asarray(bunch.X, dtype=float), np.asarray(bunch.y, dtype=float)
    if "X_test" in bunch:
        X, y = np.concatenate([X, bunch.X_test]), np.concatenate([y, bunch.y_test])
    return X, y[:, 0] if y.ndim == 2 else y


def some(X: Any, index: np.ndarray) -> Any:
    """Some rows of a frame or an array."""
    return X.iloc[index] if hasattr(X, "iloc") else X[index]


def judged(low: np.ndarray, high: np.ndarray, y: np.ndarray, f: np.ndarray) -> dict[str, float]:
    inside = (low <= y) & (y <= high)
    tenth = np.argsort(np.argsort(f)) * 10 // len(f)
    return {
        "coverage": float(inside.mean()),
        "width": float((high - low).mean() / y.std()),
        "worst_tenth": float(min(inside[tenth == k].mean() for k in range(10))),
    }


def split_conformal(
    X: Any, y: np.ndarray, train: np.ndarray, test: np.ndarray, level: float, ask_mapie: bool
) -> dict[str, float]:
    fit, rest = np.split(train, [len(train) * 4 // 5])
    model = KernelBoostingRegressor(random_state=0).fit(some(X, fit), y[fit])
    away = np.sort(np.abs(y[rest] - model.predict(some(X, rest))))
    half = away[min(int(np.ceil((len(rest) + 1) * level)), len(rest)) - 1]
    f = model.predict(some(X, test))
    if ask_mapie:
        from mapie.regression import SplitConformalRegressor

        rival = SplitConformalRegressor(model, confidence_level=level, prefit=True)
        ends = rival.conformalize(some(X, rest), y[rest]).predict_interval(some(X, test))[1]
        assert np.allclose(ends[:, 1, 0], f + half), (ends[:3, 1, 0], (f + half)[:3])
    return judged(f - half, f + half, y[test], f)


def run(name: str, rows: int, split: int, ask_mapie: bool) -> dict[str, Any]:
    """One split of a table: coverage at all levels, and both widths at 90 %."""
    X, y = table(name)
    order = np.random.default_rng(split).permutation(len(y))
    n = min(rows, len(y) * 2 // 3)
    train, test = order[:n], order[n : n + TEST]
    began = time.perf_counter()
    model = KernelBoostingRegressor(random_state=0).fit(some(X, train), y[train])
    fitted = time.perf_counter()
    f = model.predict(some(X, test))
    seen = {level: model.predict_interval(some(X, test), level) for level in LEVELS}
    return {
        "rows": n,
        "all_rows": len(y),
        "test_rows": len(test),
        "fit_seconds": fitted - began,
        "coverage": {str(c): float(((e[:, 0] <= y[test]) & (y[test] <= e[:, 1])).mean()) for c, e in seen.items()},
        "ours": judged(*seen[0.9].T, y[test], f),
        "split": split_conformal(X, y, train, test, 0.9, ask_mapie),
    }


def averaged(found: list[Any]) -> Any:
    """The mean of several splits, entry by entry."""
    if isinstance(found[0], dict):
        return {key: averaged([one[key] for one in found]) for key in found[0]}
    return float(np.mean(found))


def judge(name: str, rows: int, ask_mapie: bool = False) -> dict[str, Any]:
    """A table, over as many splits as it takes for enough test rows."""
    found = [run(name, rows, 0, ask_mapie)]
    times = -(-LEAST_TEST // found[0]["test_rows"])
    return averaged([*found, *(run(name, rows, split, ask_mapie) for split in range(1, times))])


def shown(kept: dict[str, Any]) -> None:
    """The table, and what it comes to."""
    for name, one in kept.items():
        told = " ".join(f"{value:.3f}" for value in one["coverage"].values())
        words = [f"{w['coverage']:.3f} {w['width']:.3f} {w['worst_tenth']:.2f}" for w in (one["ours"], one["split"])]
        print(f"| {name} | {one['rows']:.0f} | {told} | {words[0]} | {words[1]} |")
    gaps = np.array([[value - float(c) for c, value in one["coverage"].items()] for one in kept.values()])
    larger = np.array([one["all_rows"] > 1000 for one in kept.values()])
    print("mean gap", gaps.mean(0).round(3), "mean size", np.abs(gaps).mean(0).round(3))
    print("largest gap above 1000 rows", np.abs(gaps[larger]).max(0, initial=0).round(3))
    ratios = [one["ours"]["width"] / one["split"]["width"] for one in kept.values()]
    print("width, ours over split conformal's:", round(float(np.exp(np.mean(np.log(ratios)))), 3))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument(
        "--tables", nargs="+", default=[n for part in ("choose", "development") for n in names(part, "regression")]
    )
    options.add_argument("--rows", type=int, default=2000)
    options.add_argument("--mapie", action="store_true")
    options.add_argument("--out", type=Path, default=None)
    given = options.parse_args()
    kept: dict[str, Any] = json.loads(given.out.read_text()) if given.out and given.out.exists() else {}
    for name in given.tables:
        if name not in kept:
            kept[name] = judge(name, given.rows, given.mapie)
            if given.out:
                given.out.write_text(json.dumps(kept, indent=1))
    shown({name: kept[name] for name in given.tables})


if __name__ == "__main__":
    main()
