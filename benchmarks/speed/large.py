"""Large tables through public estimators: land or sea (`global-land-mask`), a robot arm, boosting's own speed.

    python benchmarks/speed/large.py --land 1e7 [--speed] [--budget 60] [--memory 40GiB]
    python benchmarks/speed/large.py --land all --memory 40GiB
    python benchmarks/speed/large.py --land 1e8 --write land.parquet
    python benchmarks/speed/large.py --read land.parquet --memory 4GiB --budget 600
    python benchmarks/speed/large.py --robot 1e7
    python benchmarks/speed/large.py --growth 1e5 1e6 1e7

`--speed` grows 100 learners of 1000 vectors of a given kernel, with the curvature of each estimated and from all rows.
`--growth` fits the robot arm by default on more and more rows and prints the power with which time grows.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mercer import KernelBoostingClassifier, KernelBoostingRegressor
from mercer.data import ParquetRows
from mercer.datasets import make_smooth_regression
from mercer.kernels import Gaussian


def globe() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which cells of the globe are sea, and the factors of their unit vectors: by latitude and by longitude."""
    import global_land_mask

    found = np.load(Path(global_land_mask.__file__).parent / "globe_combined_mask_compressed.npz")
    lat, lon = np.radians(found["lat"]), np.radians(found["lon"])
    height = np.stack([np.cos(lat), np.cos(lat), np.sin(lat)], 1).astype(np.float32)
    unit = np.stack([np.cos(lon), np.sin(lon), np.ones_like(lon)], 1).astype(np.float32)
    return found["mask"], height, unit


def land_or_sea(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors of random cells of the globe, and whether they are land; made in pieces."""
    sea, height, unit = globe()
    X, y = np.empty((n, 3), np.float32), np.empty(n, np.int8)
    rng = np.random.default_rng(seed)
    for begin in range(0, n, 1 << 22):
        some = slice(begin, min(begin + (1 << 22), n))
        i, j = rng.integers(len(height), size=some.stop - begin), rng.integers(len(unit), size=some.stop - begin)
        X[some], y[some] = height[i] * unit[j], ~sea[i, j]
    return X, y


def every_cell(n_test: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """All 933 120 000 cells but a random part of them, in the order of the globe, and that part."""
    sea, height, unit = globe()
    wide = len(unit)
    held = np.zeros(sea.size, bool)
    held[np.random.default_rng(seed).choice(sea.size, n_test, replace=False, shuffle=False)] = True
    X, y = torch.empty(sea.size - n_test, 3), np.empty(sea.size - n_test, np.int8)
    at, by_longitude = 0, torch.from_numpy(unit)
    for i in range(len(height)):
        free = np.flatnonzero(~held[i * wide : (i + 1) * wide])
        torch.mul(by_longitude[free], torch.from_numpy(height[i]), out=X[at : at + len(free)])
        y[at : at + len(free)] = ~sea[i, free]
        at += len(free)
    i, j = np.divmod(np.flatnonzero(held), wide)
    return X.numpy(), y, height[i] * unit[j], (~sea[i, j]).astype(np.int8)


def drawn_cells(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    return *land_or_sea(n, 0), *land_or_sea(1_000_000, 1)


def in_parquet(X: np.ndarray, y: np.ndarray, path: Path) -> None:
    """The rows in a file, in row groups of a million, the targets in a column of their own."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [f"x{j}" for j in range(X.shape[1])]
    with pq.ParquetWriter(path, pa.schema([*((name, pa.float32()) for name in names), ("y", pa.int8())])) as file:
        for begin in range(0, len(X), 1_000_000):
            some = slice(begin, begin + 1_000_000)
            columns = [*(pa.array(X[some, j]) for j in range(X.shape[1])), pa.array(y[some])]
            file.write_table(pa.table(columns, names=[*names, "y"]))


def fitted(model: Any, X: Any, y: np.ndarray | None, X_test: np.ndarray, y_test: np.ndarray, name: str) -> float:
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - began
    f = model.predict(X_test)
    classes = isinstance(model, KernelBoostingClassifier)
    error = np.mean(f != y_test) if classes else np.mean((f - y_test) ** 2) / np.var(y_test)
    vectors = sum(len(one.basis) for one in model.expansions_)
    used = torch.cuda.max_memory_allocated() if on_gpu else 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    n_rows = X.n_rows if isinstance(X, ParquetRows) else len(X)
    grown = model.history_["seconds"][-1]
    print(
        f"{name}: {n_rows} rows, {100 * error:.3f} % {'error' if classes else 'NMSE'}, {seconds:.1f} s (tuning "
        f"{model.tuning_seconds_:.1f}, growing {grown:.2f}), {model.n_steps_} learners, {vectors} vectors, peak "
        f"{used / 2**30:.1f} GiB",
        flush=True,
    )
    return seconds


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--land", default=None, help="rows, or 'all' for every cell")
    options.add_argument("--robot", type=float, default=None)
    options.add_argument("--growth", type=float, nargs="*", default=[])
    options.add_argument("--speed", action="store_true")
    options.add_argument("--budget", type=float, default=None)
    options.add_argument("--memory", default=None, help="memory_limit, such as 40GiB")
    options.add_argument("--write", type=Path, default=None, help="only write the rows of --land to this Parquet file")
    options.add_argument("--read", type=Path, default=None, help="land or sea from such a file")
    given = options.parse_args()
    limits = {"time_budget": given.budget, "memory_limit": given.memory}
    if given.write:
        return in_parquet(*land_or_sea(int(float(given.land)), 0), given.write)
    if given.read:
        rows, test = ParquetRows(given.read, target="y"), land_or_sea(1_000_000, 1)
        fitted(KernelBoostingClassifier(random_state=0, **limits), rows, None, *test, "land or sea, from a file")
    if given.land:
        X, y, *test = every_cell(1_000_000, 0) if given.land == "all" else drawn_cells(int(float(given.land)))
        if given.speed:
            fixed: dict[str, Any] = {
                "kernel": Gaussian(0.02), "scale_inputs": False, "regularization": 0.01, "n_learners": 100,
                "learner_size": 1000, "subset_size": 20_000, "polish": False, "random_state": 0,
            }  # fmt: skip
            for name, options_ in (
                ("warming up", {"n_learners": 5}),
                ("estimated", {}),
                ("all rows", {"gram_rows": None}),
            ):
                fitted(KernelBoostingClassifier(**(fixed | options_)), X, y, *test, f"100 learners of 1000, {name}")
        else:
            fitted(KernelBoostingClassifier(random_state=0, **limits), X, y, *test, "land or sea")
    for n in [int(given.robot)] if given.robot else []:
        X, y = make_smooth_regression(n + 20_000, random_state=0)
        model = KernelBoostingRegressor(random_state=0, **limits)
        fitted(model, X[:n], y[:n], X[n:], y[n:], "robot arm")
    sizes, times = [int(n) for n in given.growth], []
    for n in sizes:
        X, y = make_smooth_regression(n + 20_000, random_state=0)
        times.append(fitted(KernelBoostingRegressor(random_state=0), X[:n], y[:n], X[n:], y[n:], "robot arm"))
    if len(sizes) > 1:
        print(f"time grows with rows to the power {np.polyfit(np.log(sizes), np.log(times), 1)[0]:.2f}")


if __name__ == "__main__":
    main()
