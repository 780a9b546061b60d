"""Monotone constraints: error, violations and time beside the free fit and beside HistGradientBoosting.

    python benchmarks/peers/monotone.py --rows 1000 4000 --noise 0.3

Each table has a monotone truth with noise of this share of its standard deviation. Errors are root mean squares of
prediction less truth at 5000 new rows, over the truth's standard deviation. Violations are counted among 10 000 pairs
of new rows for each constrained column: they differ in this column alone, by random values of its range.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from mercer import KernelBoostingRegressor

TEST_ROWS, PAIRS = 5000, 10_000


def effects(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Six columns: an interaction, a flat half, a wave, a logarithm of a skewed column, and a column without effect."""
    X = rng.uniform(-2, 2, (n, 6))
    X[:, 3] = np.exp(rng.normal(size=n))
    rising = np.tanh(2 * X[:, 0]) * (2.5 + X[:, 1]) + 0.5 * np.maximum(X[:, 4], 0) ** 2
    return X, rising + np.sin(2 * X[:, 2]) - np.log1p(X[:, 3])


def saturation(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Three columns: a dose that saturates, at a level that a second column sets, and a free third one."""
    X = rng.uniform(0, 1, (n, 3))
    return X, X[:, 0] / (X[:, 0] + 0.1 + X[:, 1]) + 0.2 * np.cos(6 * X[:, 2])


def steps(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Four correlated columns, of which two act by smooth steps."""
    X = rng.normal(size=(n, 4)) @ (np.eye(4) + 0.5)
    return X, 1 / (1 + np.exp(-4 * X[:, 0])) - 1 / (1 + np.exp(-4 * (X[:, 1] - 1))) + 0.3 * np.sin(X[:, 2])


def product(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Five columns: a product of two skewed ones over a third, as of physical quantities, with two columns of noise."""
    X = np.exp(0.5 * rng.normal(size=(n, 5)))
    return X, np.log1p(X[:, 0] * X[:, 1] / X[:, 2])


TABLES: dict[str, tuple[Callable[..., tuple[np.ndarray, np.ndarray]], list[int]]] = {
    "effects": (effects, [1, 0, 0, -1, 1, 0]),
    "saturation": (saturation, [1, -1, 0]),
    "steps": (steps, [1, -1, 0, 0]),
    "product": (product, [1, 1, -1, 0, 0]),
}


def n_violations(model: Any, X: np.ndarray, signs: list[int], limits: np.ndarray, rng: np.random.Generator) -> int:
    """Pairs of rows of the wrong order, over all constrained columns."""
    total = 0
    for column in np.flatnonzero(signs):
        low = X[rng.integers(len(X), size=PAIRS)].copy()
        high = low.copy()
        values = np.sort(rng.uniform(*limits[:, column], (PAIRS, 2)), axis=1)
        low[:, column], high[:, column] = values.T
        total += int((signs[column] * (model.predict(high) - model.predict(low)) < -1e-9).sum())
    return total


def measure(name: str, n: int, noise: float, seed: int) -> str:
    """One line: errors, violations and seconds of four models."""
    make, signs = TABLES[name]
    rng = np.random.default_rng(seed)
    (X, f), (X_new, f_new) = make(n, rng), make(TEST_ROWS, rng)
    y, limits = f + noise * f.std() * rng.normal(size=n), np.array([X.min(0), X.max(0)])
    cells = []
    for estimator in (KernelBoostingRegressor, HistGradientBoostingRegressor):
        for constraints in (None, signs):
            began = time.perf_counter()
            model = estimator(monotonic_cst=constraints, random_state=seed).fit(X, y)
            seconds = time.perf_counter() - began
            error = float(np.sqrt(np.mean((model.predict(X_new) - f_new) ** 2)) / f_new.std())
            wrong = n_violations(model, X_new, signs, limits, np.random.default_rng(seed))
            cells.append(f"{error:.4f} {wrong:6d} {seconds:6.1f}")
    return f"{name:12s} {n:6d} {seed:3d}  " + "  |  ".join(cells)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", nargs="+", default=list(TABLES))
    parser.add_argument("--rows", nargs="+", type=int, default=[1000, 4000])
    parser.add_argument("--noise", type=float, default=0.3)
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print("error, violations, seconds: mercer free  |  constrained  |  trees free  |  constrained")
    for name in given.tables:
        for n in given.rows:
            for seed in range(given.seeds):
                print(measure(name, n, given.noise, seed), flush=True)


if __name__ == "__main__":
    main()
