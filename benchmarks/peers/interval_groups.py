"""Coverage within groups: `predict_interval(..., groups=)` beside MAPIE's split conformal intervals.

    PYTHONPATH=… python benchmarks/peers/interval_groups.py

The noise of three groups is 0.1, 0.3 and 0.9 (Student's t of four degrees of freedom), and 600 rows train. MAPIE gets
the estimator fitted to 480 rows and the other 120, all at once or those of each group for its new rows.
"""

from __future__ import annotations

import numpy as np
from mapie.regression import SplitConformalRegressor

from mercer import KernelBoostingRegressor

TABLES, ROWS, TEST, COVERAGE = 6, 600, 3000, 0.9


def table(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two inputs and the group, and targets."""
    group, x = rng.integers(0, 3, n), rng.uniform(-2, 2, (n, 2))
    return np.c_[x, group], np.sin(2 * x[:, 0]) + np.array([0.1, 0.3, 0.9])[group] * rng.standard_t(4, n)


def main() -> None:
    """Print the mean coverage of each group, the lowest of any table, and the mean width."""
    rng, found, width = np.random.default_rng(0), {}, {}
    for _ in range(TABLES):
        (X, y), (T, t) = table(ROWS, rng), table(TEST, rng)
        fit, rest = np.split(np.arange(ROWS), [ROWS * 4 // 5])
        model = KernelBoostingRegressor(kernel="gaussian", random_state=0)
        part = KernelBoostingRegressor(kernel="gaussian", random_state=0).fit(X[fit], y[fit])

        def split(rows: np.ndarray, new: np.ndarray, part=part, X=X, y=y) -> np.ndarray:
            rival = SplitConformalRegressor(part, confidence_level=COVERAGE, prefit=True)
            return rival.conformalize(X[rows], y[rows]).predict_interval(new)[1][:, :, 0]

        by_group = np.empty((TEST, 2))
        for k in range(3):
            by_group[T[:, 2] == k] = split(rest[X[rest, 2] == k], T[T[:, 2] == k])
        ours = model.fit(X, y)
        intervals = {
            "predict_interval, groups=2": ours.predict_interval(T, COVERAGE, groups=2),
            "predict_interval": ours.predict_interval(T, COVERAGE),
            "MAPIE": split(rest, T),
            "MAPIE, by group": by_group,
        }
        for name, ends in intervals.items():
            held = (ends[:, 0] <= t) & (t <= ends[:, 1])
            found.setdefault(name, []).append([held[T[:, 2] == k].mean() for k in range(3)])
            width.setdefault(name, []).append(np.diff(ends).mean())
    for name, each in found.items():
        words = np.mean(each, 0).round(3), np.min(each).round(3), np.mean(width[name]).round(2)
        print(f"{name:28} groups {words[0]}  lowest {words[1]}  width {words[2]}")


if __name__ == "__main__":
    main()
