"""Processes against one: seconds, and bytes that each process sends for a learner, which must not grow with the rows.

python benchmarks/speed/distributed.py [processes ...]
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import torch
import torch.multiprocessing as processes

from mercer import KernelBoostingRegressor
from mercer.data.group import within
from mercer.distributed import join, open_store
from mercer.kernels import Gaussian

LEARNERS, SIZE, INPUTS = 4, 100, 8


def table(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows like KIN40K's: eight inputs, a smooth function of all of them, little noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, INPUTS)).astype(np.float32)
    return X, np.sin(X[:, 0] + X[:, 1]) * X[:, 2] + 0.3 * X[:, 3:].sum(1) + 0.05 * rng.normal(size=n)


def fit(n: int, n_learners: int) -> float:
    """Seconds of growing, which is where the rows are."""
    model = KernelBoostingRegressor(
        n_learners, learner_size=SIZE, kernel=Gaussian(2.0), regularization=1e-2, polish=False, random_state=0
    )
    X, y = table(n)
    return float(model.fit(X, y).history_["seconds"][-1])


def child(rank: int, size: int, port: int, n: int, answers: Any) -> None:
    torch.set_num_threads(1)
    with join(rank, size, "127.0.0.1", port, 120.0) as group, within(group):
        found = []
        for n_learners in (1, LEARNERS):
            group.gather(0)  # all begin together
            before = group.bytes, group.calls
            found.append((fit(n, n_learners), group.bytes - before[0], group.calls - before[1]))
        if rank == 0:
            answers.put(found)


def main() -> None:
    sizes = [int(size) for size in sys.argv[1:]] or [2]
    torch.set_num_threads(1)
    for n in (100_000, 1_000_000):
        began = time.perf_counter()
        alone = fit(n, LEARNERS)
        print(
            f"{n} rows: one process {alone:.2f} s for {LEARNERS} learners, {time.perf_counter() - began:.2f} s in all"
        )
        for size in sizes:
            store, answers = open_store("127.0.0.1"), processes.get_context("fork").SimpleQueue()
            arguments = (size, store.port, n, answers)
            processes.start_processes(child, arguments, nprocs=size, join=True, start_method="fork")
            (_, first, calls), (seconds, sent, more) = answers.get()
            a_learner = (sent - first) / (LEARNERS - 1)
            print(
                f"   {size} processes {seconds:.2f} s, {alone / seconds:.2f} times as fast; {a_learner:.0f} bytes and "
                f"{(more - calls) / (LEARNERS - 1):.0f} collectives a learner",
                flush=True,
            )


if __name__ == "__main__":
    main()
