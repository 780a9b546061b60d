"""A table five times as large as the memory of a Dask worker: fits, lazy predictions, and what workers held at most.

python benchmarks/memory/dask_workers.py [--limit 1GiB] [--workers 2] [--times 5] [--folder FOLDER] [--parts frame …]

The table is made partition by partition (50 of them), and is written to Parquet once. It is fitted as a dataframe that
is computed on the way ("frame") and from the files ("files"); predictions are written to Parquet ("predict"); then two
fits run at once ("two"). Resident memory of the workers is looked at twenty times a second. With `--folder` the table
and the model of the files stay there, so that single parts can be run again without the others.
"""

from __future__ import annotations

import argparse
import os
import pickle
import tempfile
import threading
import time
from collections.abc import Callable
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


def written(place: int, n_rows: int, folder: Path) -> None:
    """One part as a file: Dask's own way of writing would hold it once more for each of its steps."""
    plain = {"compression": None, "use_dictionary": False, "row_group_size": n_rows // GROUPS + 1}
    partition(place, n_rows).to_parquet(folder / f"part.{place:02}.parquet", index=False, **plain)


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


class Run:
    """The workers, the table on the disk, and what is done with both; every line is printed as soon as it is known."""

    def __init__(self, client: Any, limit: int, n_rows: int, folder: Path) -> None:
        self.client, self.limit, self.n_rows, self.folder = client, limit, n_rows, folder
        self.pids = self.workers()
        self.frame = dd.from_map(partition, range(PARTITIONS), n_rows=n_rows, meta=partition(0, 1).iloc[:0])
        self.inputs = [name for name in self.frame.columns if name != "y"]
        self.table = folder / f"table-of-{PARTITIONS * n_rows}"
        self.model = folder / f"model-of-{PARTITIONS * n_rows}.pickle"

    def workers(self) -> list[int]:
        return list(self.client.run(os.getpid).values())

    def watched(self, what: str, work: Callable[[], Any]) -> Any:
        """What `work` gives; no worker may hold more than its limit, nor be started again."""
        began = time.perf_counter()
        print(f"{what} …", flush=True)
        with Peaks(self.pids) as peaks:
            made = work()
        held = ", ".join(f"{peak / 2**20:.0f}" for peak in peaks.of.values())
        print(f"{what}: {time.perf_counter() - began:.0f} s, workers held {held} MiB at most", flush=True)
        assert self.workers() == self.pids, "a worker was started again"
        assert max(peaks.of.values()) <= self.limit, "a worker held more than its limit"
        return made

    def fitted(self, table: Any) -> Any:
        settings: dict[str, Any] = {"kernel": Gaussian(40.0), "regularization": 1e-2, "polish": False}
        model = DaskKernelBoostingRegressor(2, learner_size=20, random_state=0, **settings)
        return model.fit(table[self.inputs], table["y"])

    def stored(self) -> Any:
        """The table as files, written where it is not there yet."""
        if not self.table.exists():
            begun = self.folder / "begun"
            begun.mkdir(exist_ok=True)
            files = self.client.map(written, range(PARTITIONS), n_rows=self.n_rows, folder=begun)
            self.watched("written to Parquet", lambda: self.client.gather(files))
            begun.rename(self.table)
        return dd.read_parquet(self.table, split_row_groups=True)

    def kept(self) -> Any:
        """The model of the files, fitted where that was not done yet."""
        return pickle.loads(self.model.read_bytes()) if self.model.exists() else self.of_files()

    def of_files(self) -> Any:
        stored = self.stored()
        made = self.watched("fitted from Parquet", lambda: self.fitted(stored))
        self.model.write_bytes(pickle.dumps(made))
        return made

    def of_frame(self) -> None:
        made = self.watched("fitted as a dataframe", lambda: self.fitted(self.frame))
        assert np.array_equal(made.basis_indices_, self.kept().basis_indices_), "other vectors from the same rows"

    def predict(self) -> None:
        said = self.kept().predict(self.stored()[self.inputs]).to_frame("said")
        answers = self.folder / "answers"
        self.watched("predicted to Parquet", lambda: said.optimize().to_parquet(answers, overwrite=True))
        n_said = len(dd.read_parquet(answers))
        assert n_said == PARTITIONS * self.n_rows, f"{n_said} predictions"

    def two(self) -> None:
        stored, kept, models = self.stored(), self.kept(), []

        def both() -> None:
            threads = [threading.Thread(target=lambda: models.append(self.fitted(stored))) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        self.watched("two fits at once", both)
        assert len(models) == 2, "a fit did not end well"
        others = [len(set(kept.basis_indices_) - set(one.basis_indices_)) for one in models]
        assert not any(others), f"of {len(kept.basis_indices_)} vectors {others} are others than those of one fit"


PARTS: dict[str, Callable[[Run], Any]] = {
    "files": Run.of_files, "frame": Run.of_frame, "predict": Run.predict, "two": Run.two
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit", default="1GiB", help="memory of a worker, of which libraries take about 0.5 GiB")
    parser.add_argument("--times", type=float, default=5.0, help="the table, in units of that memory")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", help="where table and model stay; else they are deleted")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    given = parser.parse_args()
    limit = parse_bytes(given.limit)
    n_rows = int(given.times * limit) // (4 * COLUMNS * PARTITIONS) + 1
    if given.folder:
        Path(given.folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=given.folder) as scratch, LocalCluster(
        n_workers=given.workers, threads_per_worker=1, processes=True, memory_limit=limit, dashboard_address=None,
        local_directory=scratch,
    ) as cluster, Client(cluster) as client:  # fmt: skip
        size = PARTITIONS * n_rows * COLUMNS * 4
        print(f"{PARTITIONS * n_rows} × {COLUMNS}, {size / 2**20:.0f} MiB; {given.workers} workers of "
              f"{limit / 2**20:.0f} MiB", flush=True)  # fmt: skip
        run = Run(client, limit, n_rows, Path(given.folder or scratch))
        for part in given.parts:
            PARTS[part](run)


if __name__ == "__main__":
    main()
