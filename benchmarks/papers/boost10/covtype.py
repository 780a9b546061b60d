"""COVTYPE, class 2 against the rest, 90/10 (Boost10 section IV-B, figure 6): error against time of plain fits.

    MERCER_DATA=… python benchmarks/papers/boost10/covtype.py [--budgets 60 120] [--seven] [--rivals] [--out curve.json]
    python benchmarks/papers/boost10/covtype.py --drawn-from curve.json … --picture out.png

Every point is one call of `KernelBoostingClassifier(random_state=0).fit(X, y)`, without arguments or with a
`time_budget`; tuning, boosting and calibration all count. `--rivals` adds LightGBM with 1000 and 5000 trees and
CatBoost, at their own defaults otherwise, on the same rows and cores. `--choosing` fits to nine tenths of the training
rows and judges by the rest: constants of the package are chosen so, and never by the test rows.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mercer import KernelBoostingClassifier
from mercer.datasets import load, split

PAPER = [(17_000, 2.19), (25_000, 2.02)]  # seconds and test error in percent, Boost10 section IV-B


def measured(model: Any, X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray, name: str) -> dict:
    """Seconds of a fit and its error on the test rows, printed and kept."""
    began = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - began
    error = 100 * float(np.mean(np.ravel(model.predict(X_test)) != y_test))
    print(f"{name:40s} {seconds:8.1f} s  {error:.3f} %", flush=True)
    return {"name": name, "seconds": seconds, "error": error}


def ours(budget: float | None) -> tuple[str, Any]:
    name = "mercer, no arguments" if budget is None else f"mercer, time_budget={budget:g}"
    return name, KernelBoostingClassifier(random_state=0, time_budget=budget)


def rivals(n_threads: int) -> list[tuple[str, Any]]:
    from catboost import CatBoostClassifier
    from lightgbm import LGBMClassifier

    trees = [LGBMClassifier(n_estimators=n, n_jobs=n_threads, verbose=-1) for n in (1000, 5000)]
    cat = CatBoostClassifier(verbose=0, thread_count=n_threads, allow_writing_files=False)
    return [("LightGBM, 1000 trees", trees[0]), ("LightGBM, 5000 trees", trees[1]), ("CatBoost", cat)]


def draw(curves: list[Path], path: Path) -> None:
    """Test error against seconds of everything, beside the paper's two marks."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for kept in (json.loads(curve.read_text()) for curve in curves):
        for library, mark in (("mercer", "o-"), ("LightGBM", "s--"), ("CatBoost", "^")):
            points = sorted((p["seconds"], p["error"]) for p in kept["points"] if p["name"].startswith(library))
            if points:
                axes.loglog(*zip(*points, strict=True), mark, label=f"{library}, {kept['where']}")
    axes.loglog(*zip(*PAPER, strict=True), "kD", label="Sun & Yao 2010")
    ticks = [1.6, 1.8, 2, 2.5, 3, 4, 6, 10, 15]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.yaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
    axes.set_xlabel("seconds of everything")
    axes.set_ylabel("test error, %")
    axes.set_title("COVTYPE, class 2 against the rest, 522 910 training rows")
    axes.grid(alpha=0.3, which="both")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--budgets", type=float, nargs="*", default=[], help="further fits, with these time budgets")
    options.add_argument("--only-budgets", action="store_true", help="leave out the fit without arguments")
    options.add_argument("--seven", action="store_true", help="all seven classes")
    options.add_argument("--choosing", action="store_true", help="judge by a tenth of the training rows instead")
    options.add_argument("--rivals", action="store_true")
    options.add_argument("--out", type=Path, default=None)
    options.add_argument("--drawn-from", type=Path, nargs="+", default=[], help="files of --out to draw")
    options.add_argument("--picture", type=Path, default=None)
    given = options.parse_args()
    if given.drawn_from:
        return draw(given.drawn_from, given.picture)

    X, X_test, y, y_test = split(load("covtype"), test_size=0.1, seed=0)
    if given.choosing:
        held = np.random.default_rng(1).permutation(len(X)) < len(X) // 10
        X, X_test, y, y_test = X[~held], X[held], y[~held], y[held]
    if not given.seven:
        y, y_test = (np.where(labels == 2, 1, 0) for labels in (y, y_test))
    on_gpu = torch.cuda.is_available()
    where = torch.cuda.get_device_name() if on_gpu else f"{torch.get_num_threads()} CPU cores"
    print(f"COVTYPE, {len(X)} training rows, {len(X_test)} judging, {len(np.unique(y))} classes, {where}", flush=True)
    models = [] if given.only_budgets else [ours(None)]
    models += [ours(budget) for budget in given.budgets]
    models += rivals(torch.get_num_threads()) if given.rivals else []
    points = [measured(model, X, y, X_test, y_test, name) for name, model in models]
    if not given.seven:
        print("the paper: " + ", ".join(f"{error} % in {seconds} s" for seconds, error in PAPER))
    if given.out:
        given.out.write_text(json.dumps({"where": where, "points": points}, indent=1))


if __name__ == "__main__":
    main()
