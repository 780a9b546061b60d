"""A stream of rows in batches: `partial_fit` beside SGDRegressor on Nyström features and trees of river.

Targets are a smooth function of six inputs with noise. Both methods have the same kernel and number of basis
vectors; ours chooses them on the first 5000 rows, whose time is told by itself. Errors are those of the
function behind the noise at 2000 new rows, over its standard deviation. Rows a second count CPU time. River takes rows
one by one: a Hoeffding tree and an adaptive random forest with their defaults.

    python benchmarks/speed/stream.py --rows 1000000 --river-rows 20000
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import SGDRegressor

import mercer
from mercer.forward.kernel_metric import sensitivity

FIRST, BATCH, NOISE = 5000, 1000, 0.5


def rows(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Inputs, and the function behind the targets."""
    X = rng.uniform(-1, 1, (n, 6))
    f = np.sin(3 * X[:, 0] * X[:, 1]) + np.cos(2 * X[:, 2]) * X[:, 3] + 0.3 * X[:, 4]
    return X, f / 0.75


def streamed(learn: Callable[[Any, Any], Any], predict: Callable[[Any], Any], n: int, marks: list[int]) -> None:
    """Feed batches and print the error after some numbers of rows, and rows per second of learning."""
    rng, seconds = np.random.default_rng(1), 0.0
    X_new, f_new = rows(2000, np.random.default_rng(2))
    for seen in range(BATCH, n + 1, BATCH):
        X, f = rows(BATCH, rng)
        y = f + NOISE * rng.normal(size=BATCH)
        began = time.process_time()
        learn(X, y)
        seconds += time.process_time() - began
        if seen in marks:
            error = np.sqrt(np.mean((predict(X_new) - f_new) ** 2)) / f_new.std()
            print(f"  {seen:>8} rows  error {error:.4f}  {seen / seconds:>8.0f} rows/s", flush=True)


def stream_river(n: int) -> None:
    """Stream rows to models of river."""
    from river import forest, tree

    for model in (tree.HoeffdingAdaptiveTreeRegressor(seed=0), forest.ARFRegressor(seed=0)):
        print(f"river {type(model).__name__}")

        def learn(X: np.ndarray, y: np.ndarray, model: Any = model) -> None:
            for row, target in zip(X.tolist(), y.tolist(), strict=True):
                model.learn_one(dict(enumerate(row)), target)

        def predict(X: np.ndarray, model: Any = model) -> np.ndarray:
            return np.array([model.predict_one(dict(enumerate(row))) for row in X.tolist()])

        streamed(learn, predict, n, [1000, 10_000, 20_000, 100_000])


def main() -> None:
    """Stream the same rows to both methods."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--n-basis", type=int, default=500)
    parser.add_argument("--river-rows", type=int, default=0)
    given = parser.parse_args()
    marks = [k for k in (10_000, 30_000, 100_000, 300_000, 1_000_000) if k <= given.rows]
    X, f = rows(FIRST, np.random.default_rng(0))
    y = f + NOISE * np.random.default_rng(3).normal(size=FIRST)
    began = time.perf_counter()
    options = {"kernel": "gaussian", "n_basis": given.n_basis, "updatable": True, "random_state": 0}
    model = mercer.KernelBoostingRegressor(**options).fit(X, y)
    print(f"mercer: fit of {FIRST} rows in {time.perf_counter() - began:.1f} s, {len(model.basis_)} basis vectors")
    streamed(model.partial_fit, model.predict, given.rows, marks)
    first = model.expansions_[0]
    scale = np.sqrt(sensitivity(first.kernel, X.shape[1]))  # the kernel is exp(−|u − v|²/2) of inputs times this

    def coordinates(X: np.ndarray) -> np.ndarray:
        return first.inputs.encode(torch.as_tensor(X)).numpy() * scale

    features = Nystroem(gamma=0.5, n_components=given.n_basis, random_state=0).fit(coordinates(X))
    for rate in (0.01, 0.1, 1.0):
        sgd = SGDRegressor(alpha=1e-7, eta0=rate, power_t=0.1, random_state=0)
        print(f"SGDRegressor on Nyström features of the same kernel, first rate {rate:g}")
        streamed(
            lambda X, y, sgd=sgd: sgd.partial_fit(features.transform(coordinates(X)), y),
            lambda X, sgd=sgd: sgd.predict(features.transform(coordinates(X))),
            given.rows,
            marks,
        )
    if given.river_rows:
        stream_river(given.river_rows)


if __name__ == "__main__":
    main()
