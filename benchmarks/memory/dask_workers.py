"""A table five times as large as the memory of a Dask worker: fits, lazy predictions, and what workers held at most.

python benchmarks/memory/dask_workers.py [--limit 1GiB] [--workers 2] [--times 5] [--folder FOLDER]

The table is made partition by partition (50 of them), and is written to Parquet once. It is fitted as a dataframe that
is computed on the way and from the files; predictions are written to Parquet; then two fits run at once. Resident
memory of the workers is looked at twenty times a second.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import psutil
from dask.utils import parse_bytes
from distributed import Client, LocalCluster

from mercer.distributed.dask import DaskKernelBoostingRegressor
from mercer.kernels import Gaussian

PARTITIONS, COLUMNS = 50, 1000
#: Row groups of a file, each a partition when it is read: Dask holds what it reads four times over for a while.
GROUPS = 4


def partition(place: int, n_rows: int) -> pd.DataFrame:
    """One part of the table: numbers of float32, and a smooth function of them."""
    rng = np.random.default_rng(place)
    table = rng.random((COLUMNS + 1, n_rows), dtype=np.float32)  # column by column, as frames keep them
    table *= 3.5  # in place: a copy would count
    table -= 1.75
    table[-1] = np.sin(table[0]) + 0.3 * table[1:9].sum(0)
    return pd.DataFrame(table.T, columns=[*(f"x{k}" for k in range(COLUMNS)), "y"], copy=False)


class Peaks:
    """The most that each process held while this was watching."""

    def __init__(self, pids: list[int]) -> None:
        self.of, self._on = dict.fromkeys(pids, 0), True
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while self._on:
            for pid in filter(psutil.pid_exists, self.of):
                self.of[pid] = max(self.of[pid], psutil.Process(pid).memory_info().rss)
            time.sleep(0.05)

    def __enter__(self) -> Peaks:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._on = False
        self._thread.join()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit", default="1GiB", help="memory of a worker, of which libraries take about 0.5 GiB")
    parser.add_argument("--times", type=float, default=5.0, help="the table, in units of that memory")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder")
    given = parser.parse_args()
    limit = parse_bytes(given.limit)
    n_rows = int(given.times * limit) // (4 * COLUMNS * PARTITIONS) + 1
    settings: dict[str, Any] = {"kernel": Gaussian(40.0), "regularization": 1e-2, "random_state": 0, "polish": False}
    model = lambda: DaskKernelBoostingRegressor(2, learner_size=20, **settings)  # noqa: E731
    with tempfile.TemporaryDirectory(dir=given.folder) as folder, LocalCluster(
        n_workers=given.workers, threads_per_worker=1, processes=True, memory_limit=limit, dashboard_address=None,
        local_directory=folder,
    ) as cluster, Client(cluster) as client:  # fmt: skip
        pids = list(client.run(lambda: __import__("os").getpid()).values())
        size = PARTITIONS * n_rows * COLUMNS * 4
        print(f"{PARTITIONS * n_rows} × {COLUMNS}, {size / 2**20:.0f} MiB; {given.workers} workers of "
              f"{limit / 2**20:.0f} MiB", flush=True)  # fmt: skip

        def watched(what: str, work: Any) -> Any:
            began = time.perf_counter()
            with Peaks(pids) as peaks:
                made = work()
            said = ", ".join(f"{peak / 2**20:.0f}" for peak in peaks.of.values())
            assert list(client.run(lambda: __import__("os").getpid()).values()) == pids, "a worker was restarted"
            print(f"{what}: {time.perf_counter() - began:.0f} s, workers held {said} MiB at most", flush=True)
            assert max(peaks.of.values()) <= limit, "a worker held more than its limit"
            return made

        frame = dd.from_map(partition, range(PARTITIONS), n_rows=n_rows, meta=partition(0, 1).iloc[:0])
        table, answers = Path(folder) / "table", Path(folder) / "answers"
        inputs = [name for name in frame.columns if name != "y"]
        plain = {"compression": None, "use_dictionary": False, "row_group_size": n_rows // GROUPS + 1}
        watched("written to Parquet", lambda: frame.to_parquet(table, **plain))
        first = watched("fitted as a dataframe", lambda: model().fit(frame[inputs], frame["y"]))
        stored = dd.read_parquet(table, split_row_groups=True)
        second = watched("fitted from Parquet", lambda: model().fit(stored[inputs], stored["y"]))
        assert np.array_equal(first.basis_indices_, second.basis_indices_), "other vectors from the same rows"
        said = second.predict(stored[inputs])
        watched("predicted to Parquet", lambda: said.to_frame("said").to_parquet(answers))
        n_said = len(dd.read_parquet(answers))
        assert n_said == PARTITIONS * n_rows, f"{n_said} predictions"

        def both() -> None:
            models = [model(), model()]
            threads = [threading.Thread(target=one.fit, args=(stored[inputs], stored["y"])) for one in models]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert all(np.array_equal(one.basis_indices_, second.basis_indices_) for one in models)

        watched("two fits at once", both)


if __name__ == "__main__":
    main()
