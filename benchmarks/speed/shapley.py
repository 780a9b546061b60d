"""CPU time of exact Shapley values beside `shap.KernelExplainer` at its defaults: the same rows of the same model.

    python benchmarks/speed/shapley.py [--inputs 8 12 20] [--rows 10] [--basis 500] [--threads 1] [--kernels Gaussian]

The explainer sees 100 background rows, as it advises, and estimates another game (inputs are replaced by those of
background rows); it is a measure of what an explanation costs elsewhere, not of the truth.
"""

from __future__ import annotations

import argparse
import time
import warnings
from itertools import product

import numpy as np
import torch

from mercer import GreedyKernelRegressor, kernels, shapley_values

#: Calls, each for other rows, of which the median counts.
CALLS = 9


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--inputs", type=int, nargs="+", default=[8, 12, 20])
    options.add_argument("--rows", type=int, default=10)
    options.add_argument("--basis", type=int, default=500)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--kernels", nargs="+", default=["Gaussian", "Matern32", "Matern52", "RationalQuadratic"])
    given = options.parse_args()
    torch.set_num_threads(given.threads)
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
