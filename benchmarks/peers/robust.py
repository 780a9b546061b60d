"""Gross errors in y: robust losses beside squared loss, as multiples of its error without gross errors.

    python benchmarks/peers/robust.py --rows 300 1000

Each function has noise of a given share of its standard deviation. One target in twenty is moved by 20 to 100 of these
standard deviations. Errors are root mean squares of prediction less truth at 2000 new rows. "without" are fits of
squared loss to the rows without gross errors, which no method can know.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable

import numpy as np

from mercer import KernelBoostingRegressor

TABLES: dict[str, tuple[Callable[[np.ndarray], np.ndarray], int, float]] = {
    "product": (lambda X: np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2], 3, 0.1),
    "waves": (lambda X: np.exp(-(X[:, 0] ** 2)) * np.cos(3 * X[:, 1]) + 0.5 * X[:, 2], 3, 0.02),
    "friedman": (lambda X: 10 * np.sin(np.pi * X[:, 0] * X[:, 1] / 4) + 1.25 * X[:, 2] ** 2 + 5 * X[:, 3], 5, 0.1),
    "kinks": (lambda X: np.abs(X[:, 0]) + 0.5 * np.sign(X[:, 1]) + X[:, 2], 3, 0.3),
}


def measure(name: str, n: int, losses: list[str], seed: int) -> str:
    """One line: the clean error, and multiples of it."""
    f, columns, noise = TABLES[name]
    rng = np.random.default_rng(seed)
    X, X_new = rng.normal(size=(n, columns)), rng.normal(size=(2000, columns))
    size = f(X_new).std()
    y = f(X) + noise * size * rng.normal(size=n)
    moved, bad = y.copy(), rng.choice(n, n // 20, replace=False)
    moved[bad] += rng.choice([-1, 1], len(bad)) * size * rng.uniform(20, 100, len(bad))

    def error(loss: str, X: np.ndarray, y: np.ndarray) -> float:
        model = KernelBoostingRegressor(loss=loss, random_state=0).fit(X, y)
        return float(np.sqrt(np.mean((model.predict(X_new) - f(X_new)) ** 2)) / size)

    clean = error("squared", X, y)
    cells = [f"without {error('squared', np.delete(X, bad, 0), np.delete(y, bad)) / clean:.2f}"]
    cells += [f"{loss} {error(loss, X, moved) / clean:.2f}" for loss in losses]
    return f"{name:10s} {n:6d} {seed:3d}  clean {clean:.4f}  " + "  ".join(cells)


def main() -> None:
    """Print a line for each table and number of rows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", nargs="+", default=list(TABLES))
    parser.add_argument("--rows", nargs="+", type=int, default=[300, 600, 1000])
    parser.add_argument("--losses", nargs="+", default=["squared", "huber", "absolute"])
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for n in given.rows:
        for name in given.tables:
            for seed in range(given.seeds):
                print(measure(name, n, given.losses, seed), flush=True)


if __name__ == "__main__":
    main()
