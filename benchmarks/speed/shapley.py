"""CPU time of exact Shapley values beside `shap.KernelExplainer` at its defaults: the same rows of the same model.

    python benchmarks/speed/shapley.py [--inputs 8 12 20] [--rows 10] [--basis 500] [--threads 1] [--kernels Gaussian]

    MERCER_DATA=… python benchmarks/speed/shapley.py --tables

With `--tables` every mixed table of that folder and every table of numbers to choose by is explained instead: default
boosting with a diagonal metric of 1000 rows, ten others, and how far values and base are from its answers, in units of
the spread of these.

The explainer sees 100 background rows, as it advises, and estimates another game (inputs are replaced by those of
background rows); it is a measure of what an explanation costs elsewhere, not of the truth.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mercer import GreedyKernelRegressor, KernelBoostingClassifier, KernelBoostingRegressor, kernels, shapley_values
from mercer.datasets import load

#: Tables of numbers beside the mixed ones, with real targets and with classes.
NUMBERS = ("boston", "elevators", "pol", "cal_housing", "house_16H")
CLASSES = ("ionosphere", "page_blocks", "sonar", "spambase", "wdbc", "wine", "ripley", "letter", "raetsch_heart")
#: Calls, each for other rows, of which the median counts.
CALLS = 9


#: Rows to train on and rows to explain of each table.
TRAIN, EXPLAINED = 1000, 10


def table(name: str, folder: Path) -> tuple[Any, np.ndarray, bool]:
    """Inputs, targets, and whether these are classes."""
    mixed = folder / "mixed" / f"{name}.parquet"
    if not mixed.exists():
        bunch = load(name)
        X, y = (np.asarray(part[0] if np.ndim(bunch.X) == 3 else part) for part in (bunch.X, bunch.y))
        return X.astype(float), y, name in CLASSES
    import pandas as pd

    frame = pd.read_parquet(mixed)
    y = frame.pop("target")
    classes = isinstance(y.dtype, pd.CategoricalDtype)
    return frame, y.astype(str).to_numpy() if classes else y.to_numpy(), classes


def add_up(name: str, folder: Path) -> None:
    """How far values and base are from the answers of a model of one table."""
    X, y, classes = table(name, folder)
    order = np.random.default_rng(0).permutation(len(y))[: TRAIN + EXPLAINED]
    train, rows = order[:-EXPLAINED], order[-EXPLAINED:]
    part = (lambda i: X.iloc[i]) if hasattr(X, "iloc") else (lambda i: X[i])
    face = KernelBoostingClassifier if classes else KernelBoostingRegressor
    model = face(metric="diagonal", random_state=0).fit(part(train), y[train])
    found = shapley_values(model, part(rows))
    answers = model.decision_function(part(rows)) if classes else model.predict(part(rows))
    off = np.abs(found.predictions() - answers).max() / max(float(np.std(answers)), 1e-300)
    print(
        f"{name:22s}{found.values.shape[1]:4d} columns, {len(model.expansions_)} kernels: off by {off:.1e}", flush=True
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--inputs", type=int, nargs="+", default=[8, 12, 20])
    options.add_argument("--rows", type=int, default=10)
    options.add_argument("--basis", type=int, default=500)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--kernels", nargs="+", default=["Gaussian", "Matern32", "Matern52", "RationalQuadratic"])
    options.add_argument("--tables", action="store_true", help="whether values add up on all tables")
    given = options.parse_args()
    torch.set_num_threads(given.threads)
    if given.tables:
        folder = Path(os.environ["MERCER_DATA"])
        mixed = [path.stem for path in sorted((folder / "mixed").glob("*.parquet"))]
        for name in dict.fromkeys([*mixed, *NUMBERS, *CLASSES]):
            add_up(name, folder)
        return
    for D, name in product(given.inputs, given.kernels):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(1000, D))
        y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
        model = GreedyKernelRegressor(
            given.basis, kernel=getattr(kernels, name)(D**0.5), regularization=1e-2, random_state=0
        )
        model.fit(X, y)
        rows = X[: given.rows]
        for _ in range(10):  # what is imported and made once
            shapley_values(model, X[-len(rows) :])
        took = []
        for start in range(0, CALLS * len(rows), len(rows)):
            began = time.process_time()
            shapley_values(model, X[start : start + len(rows)])
            took.append(time.process_time() - began)
        ours, found = float(np.median(took)), shapley_values(model, rows)
        off = np.abs(found.predictions() - model.predict(rows)).max()
        sizes = f"{name:18s}{D:3d} inputs, {len(model.basis_)} basis vectors, {len(rows)} rows"
        print(f"{sizes}: {ours:.4f} s, off by {off:.1e}", end="")
        try:
            import shap
        except ImportError:
            print()
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            explainer = shap.KernelExplainer(model.predict, X[:100])
            began = time.process_time()
            explainer.shap_values(rows, silent=True)
        theirs = time.process_time() - began
        print(f"; shap.KernelExplainer {theirs:.2f} s, {theirs / ours:.0f} times")


if __name__ == "__main__":
    main()
