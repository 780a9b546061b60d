"""Prediction: a million rows, 5000 basis vectors, D = 8, beside scikit-learn's Nystroem pipeline with as many.

    python benchmarks/speed/prediction.py [--rows 1000000] [--vectors 5000]

The pipeline maps rows to 5000 features in float64 and would need 40 GB at once, so both get the rows in blocks that
it can hold; its time on a tenth of the rows, times ten, is used. Both models predict the same targets.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

from mercer import GreedyKernelRegressor
from mercer.kernels import Gaussian


def seconds(run, repeats: int = 2) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--vectors", type=int, default=5000)
    given = options.parse_args()
    rng = np.random.default_rng(0)
    X = rng.normal(size=(given.rows, 8)).astype(np.float32)
    y = np.sin(X[:20_000].sum(1))
    kernel = {"kernel": Gaussian(3.0), "regularization": 1e-2, "scale_inputs": False}
    ours = GreedyKernelRegressor(given.vectors, criterion="random", random_state=0, **kernel).fit(X[:20_000], y)
    theirs = make_pipeline(Nystroem(gamma=1 / 18, n_components=given.vectors, random_state=0), Ridge(1e-2))
    theirs.fit(X[:20_000], y)
    tenth = X[: given.rows // 10]
    blocks = np.array_split(tenth, max(len(tenth) // 10_000, 1))
    mine = seconds(lambda: ours.predict(X))
    other = 10 * seconds(lambda: [theirs.predict(block) for block in blocks], 1)
    test, truth = X[20_000:30_000], np.sin(X[20_000:30_000].sum(1))
    errors = [float(np.mean((model.predict(test) - truth) ** 2) / np.var(truth)) for model in (ours, theirs)]
    ratio = f"{other / mine:.1f} times"
    print(f"{given.rows} rows, {len(ours.basis_)} vectors: ours {mine:.2f} s, pipeline {other:.1f} s, {ratio}")
    print(f"NMSE {100 * errors[0]:.3f} % and {100 * errors[1]:.3f} %")


if __name__ == "__main__":
    main()
