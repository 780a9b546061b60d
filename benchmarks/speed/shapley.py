"""Seconds of exact Shapley values beside `shap.KernelExplainer` at its defaults, on the same rows of the same model.

    python benchmarks/speed/shapley.py [--inputs 8 12 20] [--rows 2] [--basis 500]

The explainer sees 100 background rows, as it advises, and estimates another game (inputs are replaced by those of
background rows); it is a measure of what an explanation costs elsewhere, not of the truth.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np

from mercer import GreedyKernelRegressor, shapley_values
from mercer.kernels import Gaussian


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--inputs", type=int, nargs="+", default=[8, 12, 20])
    options.add_argument("--rows", type=int, default=2)
    options.add_argument("--basis", type=int, default=500)
    given = options.parse_args()
    for D in given.inputs:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(1000, D))
        y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
        model = GreedyKernelRegressor(given.basis, kernel=Gaussian(D**0.5), regularization=1e-2, random_state=0)
        model.fit(X, y)
        rows = X[: given.rows]
        shapley_values(model, rows)  # what is imported and allocated once
        began = time.perf_counter()
        found = shapley_values(model, rows)
        ours = time.perf_counter() - began
        off = np.abs(found.predictions() - model.predict(rows)).max()
        print(
            f"{D} inputs, {len(model.basis_)} basis vectors, {len(rows)} rows: {ours:.4f} s, off by {off:.1e}", end=""
        )
        try:
            import shap
        except ImportError:
            print()
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            explainer = shap.KernelExplainer(model.predict, X[:100])
            began = time.perf_counter()
            explainer.shap_values(rows, silent=True)
        theirs = time.perf_counter() - began
        print(f"; shap.KernelExplainer {theirs:.2f} s, {theirs / ours:.0f} times")


if __name__ == "__main__":
    main()
