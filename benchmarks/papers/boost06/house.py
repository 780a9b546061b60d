"""Boost06's census-house data: boosting beside the single kernel ridge model at equal time, 90/10, three splits.

    MERCER_DATA=… python benchmarks/papers/boost06/house.py [--out results.md]

Both have the same tuned kernel and noise, and prices in logarithms (they span three powers of ten). The single model
is exact kernel ridge on as many random training rows as it can solve for in the seconds that boosting took.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from sklearn.model_selection import train_test_split

from mercer import KernelBoostingRegressor
from mercer.datasets import load

ROWS = (500, 1000, 2000, 4000, 6000, 8000, 12_000)


def at_equal_time(name: str, seed: int) -> dict[str, float]:
    bunch = load(name)
    X, X_test, y, y_test = train_test_split(bunch.X, np.log1p(bunch.y), test_size=0.1, random_state=seed)
    nmse = lambda model: 100 * float(np.mean((model.predict(X_test) - y_test) ** 2) / np.var(y_test))  # noqa: E731
    boosted = KernelBoostingRegressor(random_state=seed).fit(X, y)
    fixed = {"kernel": boosted.kernel_, "regularization": boosted.regularization_, "random_state": seed}
    began = time.perf_counter()
    boosted = KernelBoostingRegressor(**fixed).fit(X, y)
    budget = time.perf_counter() - began
    single, rows, spent = np.nan, 0, 0.0
    for n in ROWS:
        began = time.perf_counter()
        model = KernelBoostingRegressor(1, learner_size=n, subset_size=n, polish=False, dtype="float64", **fixed)
        model.fit(X[:n], y[:n])
        took = time.perf_counter() - began
        if took > budget and rows:
            break
        single, rows, spent = nmse(model), n, took
    return {"boosting": nmse(boosted), "seconds": budget, "single": single, "rows": rows, "single seconds": spent}


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--splits", type=int, default=3)
    options.add_argument("--out", type=Path, default=None)
    given = options.parse_args()
    lines = [
        "# Boost06: census-house, boosting beside a single kernel ridge model at equal time\n",
        "`MERCER_DATA=… python benchmarks/papers/boost06/house.py`; NMSE of log prices in percent, mean of splits.\n",
        "| table | boosting | its seconds | kernel ridge on a subset | its rows | its seconds |",
        "|---|---|---|---|---|---|",
    ]
    for name in ("house_8L", "house_16H"):
        found = [at_equal_time(name, seed) for seed in range(given.splits)]
        mean = {key: float(np.mean([one[key] for one in found])) for key in found[0]}
        lines.append(
            f"| {name} | {mean['boosting']:.2f} | {mean['seconds']:.1f} | {mean['single']:.2f} | {mean['rows']:.0f} | "
            f"{mean['single seconds']:.1f} |"
        )
        print(lines[-1], flush=True)
    if given.out:
        given.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
