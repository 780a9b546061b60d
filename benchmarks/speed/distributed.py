"""Worker processes of one thread against one: whole fits of three families, and the bytes that a learner moves.

python benchmarks/speed/distributed.py [--rows 1e6] [--processes 2] [--only boosting]
python benchmarks/speed/distributed.py --bytes
python benchmarks/speed/distributed.py --one [--rows 2e5]

Seconds are those of `fit`, tuning and all; CPU seconds are of the process that worked longest, and say on a busy
machine what seconds would on a quiet one. Bytes are what one process sends into collectives. `--one` asks what a group
costs a process that is alone in it: CPU seconds of fits without a group and in a group of one, by turns, with settings
that are given, for what is chosen on a sample never meets a group.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch
import torch.multiprocessing as processes

from mercer import ENRBFRegressor, KernelBoostingRegressor, SparseGPRegressor
from mercer.data.shard import use_group
from mercer.distributed import join, open_store
from mercer.kernels import Gaussian

INPUTS = 8
#: Learners and their size where bytes are counted.
LEARNERS, SIZE = 3, 100
MODELS: dict[str, Any] = {
    "boosting": lambda: KernelBoostingRegressor(20, learner_size=200, kernel="gaussian", polish=False, random_state=0),
    "sparse GP": lambda: SparseGPRegressor(50, kernel="gaussian", max_iter=20, random_state=0),
    "mixture": lambda: ENRBFRegressor(8, training="em", max_iter=60, random_state=0),
}


def table(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows like KIN40K's: eight inputs, a smooth function of all of them, little noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, INPUTS)).astype(np.float32)
    return X, np.sin(X[:, 0] + X[:, 1]) * X[:, 2] + 0.3 * X[:, 3:].sum(1) + 0.05 * rng.normal(size=n)


def counted(n_learners: int) -> KernelBoostingRegressor:
    """A model whose learners are all alike."""
    return KernelBoostingRegressor(
        n_learners, learner_size=SIZE, kernel=Gaussian(2.0), regularization=1e-2, polish=False, random_state=0
    )


#: The same families with nothing to choose.
GIVEN: dict[str, Any] = {
    "boosting": lambda: counted(20),
    "sparse GP": lambda: SparseGPRegressor(50, kernel=Gaussian(2.0), max_iter=5, random_state=0),
    "mixture": lambda: ENRBFRegressor(8, training="em", max_iter=20, n_init=1, random_state=0),
}


def fitted(model: Any, X: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Seconds and CPU seconds of a fit."""
    began, worked = time.perf_counter(), time.process_time()
    model.fit(X, y)
    return time.perf_counter() - began, time.process_time() - worked


def child(rank: int, size: int, port: int, n: int, name: str, answers: Any) -> None:
    torch.set_num_threads(1)
    X, y = table(n)
    if size == 1:
        answers.put([(*fitted(MODELS[name](), X, y), 0, 0)])
        return
    with join(rank, size, "127.0.0.1", port, 600.0) as group, use_group(group):
        found = []
        for make in [MODELS[name]] if name else [lambda: counted(1), lambda: counted(LEARNERS)]:
            group.gather(0)  # all begin together
            sent, calls = group.bytes, group.calls
            seconds, worked = fitted(make(), X, y)
            found.append((seconds, worked, group.bytes - sent, group.calls - calls))
        everyone = group.gather(found)
        if rank == 0:
            longest = [max(each[k][1] for each in everyone) for k in range(len(found))]
            answers.put([(one[0], cpu, *one[2:]) for one, cpu in zip(found, longest, strict=True)])


def run(size: int, n: int, name: str = "") -> Any:
    """What `size` processes say of a fit: seconds, CPU seconds, bytes, collectives."""
    store, answers = open_store("127.0.0.1"), processes.get_context("spawn").SimpleQueue()
    context = processes.start_processes(
        child, (size, store.port, n, name, answers), nprocs=size, join=False, start_method="spawn"
    )
    while not context.join():
        pass
    return answers.get()


def one_process(n: int, names: list[str], times: int = 3) -> None:
    """CPU seconds without a group and in a group of one process, in this process, by turns."""
    torch.set_num_threads(1)
    X, y = table(n)
    store = open_store("127.0.0.1")
    with join(0, 1, "127.0.0.1", store.port, 600.0) as group:
        for name in names:
            plain, grouped = [], []
            for _ in range(times):
                plain.append(fitted(GIVEN[name](), X, y)[1])
                with use_group(group):
                    grouped.append(fitted(GIVEN[name](), X, y)[1])
            said = f"{min(plain):.2f} s of CPU without a group, {min(grouped):.2f} s in a group of one"
            print(f"{name}, {n} rows: {said}, {min(grouped) / min(plain):.3f} times as long", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=float, default=1e6)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", choices=list(MODELS))
    parser.add_argument("--bytes", action="store_true", help="bytes of a learner at 1e5, 1e6 and 1e7 rows")
    parser.add_argument("--one", action="store_true", help="what a group of one process costs")
    given = parser.parse_args()
    if given.one:
        return one_process(int(given.rows), [given.only] if given.only else list(MODELS))
    if given.bytes:
        for n in (100_000, 1_000_000, 10_000_000):
            (_, began, first, calls), (_, worked, sent, more) = run(given.processes, n)
            learner, each, cpu = ((b - a) / (LEARNERS - 1) for a, b in ((first, sent), (calls, more), (began, worked)))
            print(f"{n} rows: {learner:.0f} bytes and {each:.0f} collectives a learner, "
                  f"{cpu * given.processes / n:.1e} CPU seconds a row", flush=True)  # fmt: skip
        return
    for name in [given.only] if given.only else MODELS:
        [(alone, cpu, _, _)] = run(1, int(given.rows), name)
        [(seconds, longest, sent, calls)] = run(given.processes, int(given.rows), name)
        print(
            f"{name}, {int(given.rows)} rows: {alone:.1f} s alone, {seconds:.1f} s on {given.processes} processes, "
            f"{alone / seconds:.2f} times as fast (CPU {cpu:.1f} s and {longest:.1f} s, {cpu / longest:.2f}); "
            f"{sent} bytes in {calls} collectives",
            flush=True,
        )


if __name__ == "__main__":
    main()
