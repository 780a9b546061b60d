"""Large tables through public estimators: land or sea, a robot arm and its torques, boosting's own speed.

    python benchmarks/speed/large.py --land 1e7 [--speed] [--budget 60] [--memory 40GiB]
    python benchmarks/speed/large.py --land all --memory 40GiB
    python benchmarks/speed/large.py --land 1e8 --write land.parquet
    python benchmarks/speed/large.py --read land.parquet --memory 4GiB --budget 600 [--lightgbm 1e8]
    python benchmarks/speed/large.py --robot 1e7 [--lightgbm 1e7]
    python benchmarks/speed/large.py --pin torques.npz [--lightgbm 1e6]
    python benchmarks/speed/large.py --growth 1e5 1e6 1e7 1e8

`--speed` grows 100 learners of 1000 vectors of a given kernel, with the curvature of each estimated and from all rows,
and prints what share of the products' own rate that is.
`--pin` makes its file where there is none, of a million rows; that needs the packages `pin` and `example-robot-data`.
`--growth` fits the robot arm by default on more and more rows and prints the power with which time grows. `--lightgbm`
fits LightGBM on so many of the rows as well, for as many trees as the seconds of our fit allow; its rows are read into
memory where they are in a file.
"""

from __future__ import annotations

import argparse
import time
import timeit
from pathlib import Path
from typing import Any

import numpy as np
import torch
from large_tables import every_cell, in_parquet, land_or_sea, torques, write_torques
from resident import forget_peak, resident

from mercer import KernelBoostingClassifier, KernelBoostingRegressor
from mercer.data import ParquetRows, TensorRows
from mercer.datasets import make_smooth_regression
from mercer.engine import KernelMatrix, make_plan
from mercer.kernels import Gaussian

#: Rows of the table of torques, and how many of them, and of the robot's, are test rows.
TORQUES, TESTED = 1_000_000, 20_000


def fitted(model: Any, X: Any, y: Any, X_test: np.ndarray, y_test: np.ndarray, name: str) -> float:
    """Fit, print a line, and return the seconds; the peak is of the GPU, or of this process, its tables included."""
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    forget_peak()
    began, worked = time.perf_counter(), time.process_time()
    model.fit(X, y)
    seconds, cpu = time.perf_counter() - began, time.process_time() - worked
    used = torch.cuda.max_memory_allocated() if on_gpu else resident("VmHWM")
    classes = isinstance(model, KernelBoostingClassifier)
    said = error_of(model.predict(named(X_test, X)), y_test, classes=classes)
    vectors = sum(len(one.basis) for one in model.expansions_)
    n_rows = X.n_rows if isinstance(X, ParquetRows) else len(X)
    grown = model.history_["seconds"][-1]
    print(
        f"{name}: {n_rows} rows, {said}, {seconds:.1f} s (tuning {model.tuning_seconds_:.1f}, growing {grown:.2f}; "
        f"{cpu:.0f} s of CPU), {model.n_steps_} learners, {vectors} vectors, peak {used / 2**30:.2f} GiB",
        flush=True,
    )
    return seconds


def share_of_products(model: Any, X: np.ndarray) -> str:
    """Kernel values that growing made in a second, one for each row and basis vector, beside those of K·v alone."""
    basis, n = model.expansions_[0].basis, len(X)
    plan = make_plan(n, "auto", "float32", None)
    rows, Z = (torch.as_tensor(part).to(plan.device, plan.dtype) for part in (X, basis[:1000]))
    K, v = KernelMatrix(TensorRows(rows), model.kernel, Z, plan), torch.ones(len(Z), 1, device=plan.device)
    took = min(timeit.repeat(lambda: float(K.product(v).sum()), number=1, repeat=5))  # a GPU is waited for
    grown, alone = n * len(basis) / model.history_["seconds"][-1], n * len(Z) / took
    return f"  {grown:.3g} kernel values a second while growing, {alone:.3g} of K·v: a share of {grown / alone:.2f}"


def error_of(said: np.ndarray, y: np.ndarray, *, classes: bool) -> str:
    """The error in words: rows that are wrong, or the squared error over the variance, averaged over outputs."""
    if classes:
        return f"{100 * np.mean(said != y):.3f} % error"
    return f"{100 * np.mean(np.mean((said - y) ** 2, 0) / np.var(y, 0)):.4f} % NMSE"


def named(X_test: np.ndarray, X: Any) -> Any:
    """Test rows with the names of the columns, where those learned from have names."""
    if not isinstance(X, ParquetRows):
        return X_test
    import pandas as pd

    return pd.DataFrame(X_test, columns=X.names())


def lightgbm(n: int, X: Any, y: Any, X_test: np.ndarray, y_test: np.ndarray, seconds: float, *, classes: bool) -> None:
    """LightGBM on `n` rows, each output by itself, for so many seconds; 63 leaves, else as it comes."""
    import lightgbm as lgb

    forget_peak()
    if isinstance(X, ParquetRows):
        X, y = X.take(np.arange(n)).numpy(), X.targets()
    y = y[:n]
    columns = y.reshape(len(y), -1).T
    options = {"objective": "binary" if classes else "regression", "num_leaves": 63, "verbose": -1,
               "num_threads": torch.get_num_threads()}  # fmt: skip
    began, found, trees = time.perf_counter(), [], 0
    table = lgb.Dataset(X[:n], columns[0], params=options).construct()
    for k, column in enumerate(columns):
        ends = began + seconds * (k + 1) / len(columns)
        table.set_label(column)
        model = lgb.Booster(options, table)
        while time.perf_counter() < ends:
            model.update()
        trees += model.num_trees()
        found.append(model.predict(X_test))
    took, said = time.perf_counter() - began, np.stack(found, 1).reshape(y_test.shape)
    said = said > 0.5 if classes else said
    print(f"LightGBM: {n} rows, {error_of(said, y_test, classes=classes)}, {took:.1f} s, {trees} trees, "
          f"peak {resident('VmHWM') / 2**30:.2f} GiB", flush=True)  # fmt: skip


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--land", default=None, help="rows, or 'all' for every cell")
    options.add_argument("--robot", type=float, default=None)
    options.add_argument("--pin", type=Path, default=None, help="a file of torques")
    options.add_argument("--growth", type=float, nargs="*", default=[])
    options.add_argument("--speed", action="store_true")
    options.add_argument("--budget", type=float, default=None)
    options.add_argument("--memory", default=None, help="memory_limit, such as 40GiB")
    options.add_argument("--lightgbm", type=float, default=None, help="rows for LightGBM, beside ours")
    options.add_argument("--write", type=Path, default=None, help="only write the rows of --land to this Parquet file")
    options.add_argument("--read", type=Path, default=None, help="land or sea from such a file")
    given = options.parse_args()
    limits = {"time_budget": given.budget, "memory_limit": given.memory}

    def beside(name: str, X: Any, y: Any, *test: np.ndarray, classes: bool = False) -> None:
        model = (KernelBoostingClassifier if classes else KernelBoostingRegressor)(random_state=0, **limits)
        seconds = fitted(model, X, y, *test, name)
        if given.lightgbm:
            n = min(int(given.lightgbm), X.n_rows if isinstance(X, ParquetRows) else len(X))
            lightgbm(n, X, y, *test, seconds, classes=classes)

    if given.write:
        return in_parquet(int(float(given.land)), 0, given.write)
    if given.read:
        test = land_or_sea(1_000_000, 1)
        beside("land or sea, from a file", ParquetRows(given.read, target="y"), None, *test, classes=True)
    if given.land:
        n = given.land if given.land == "all" else int(float(given.land))
        X, y, *test = every_cell(1_000_000, 0) if n == "all" else (*land_or_sea(n, 0), *land_or_sea(1_000_000, 1))
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
                model = KernelBoostingClassifier(**(fixed | options_))
                fitted(model, X, y, *test, f"100 learners of 1000, {name}")
                print(share_of_products(model, X), flush=True)
        else:
            beside("land or sea", X, y, *test, classes=True)
    if given.robot:
        n = int(given.robot)
        X, y = make_smooth_regression(n + TESTED, dtype=np.float32, random_state=0)
        beside("robot arm", X[:n], y[:n], X[n:], y[n:])
    if given.pin:
        if not given.pin.exists():
            write_torques(TORQUES + TESTED, given.pin)
        X, y = torques(given.pin)
        beside("torques", X[:-TESTED], y[:-TESTED], X[-TESTED:], y[-TESTED:])
    sizes, times = [int(n) for n in given.growth], []
    for n in sizes:
        X, y = make_smooth_regression(n + TESTED, dtype=np.float32, random_state=0)
        times.append(fitted(KernelBoostingRegressor(random_state=0), X[:n], y[:n], X[n:], y[n:], "robot arm"))
    if len(sizes) > 1:
        print(f"time grows with rows to the power {np.polyfit(np.log(sizes), np.log(times), 1)[0]:.2f}")


if __name__ == "__main__":
    main()
