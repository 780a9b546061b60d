"""An EM iteration beside scikit-learn's, and ten million rows from a file in little memory.

    python benchmarks/speed/mixture.py            # both
    python benchmarks/speed/mixture.py iteration
    python benchmarks/speed/mixture.py memory --rows 10000000

The iteration: N = 200 000, D = 10, 20 full-covariance components, once without experts and once with local linear
experts, which scikit-learn's `GaussianMixture` has not. Time per iteration is the difference of two runs of different
length from the same start over the iterations between them, so that neither side's start counts; the best of several.
The memory is the peak of a process of its own, all of Python and PyTorch included.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from mercer import ENRBFRegressor
from mercer.data import TensorRows
from mercer.engine import Sample, make_plan
from mercer.mixture.em import Mixture, fit_em
from mercer.mixture.experts import Experts, LinearExperts, NoExperts
from mercer.mixture.fit import MixtureSettings, assigned

N, D, K = 200_000, 10, 20
SHORT, LONG, REPEATS = 1, 4, 3


def per_iteration(run: Callable[[int], object]) -> float:
    """Seconds of one iteration: what `LONG` iterations take more than `SHORT` ones, best of several."""

    def seconds(n: int) -> float:
        began = time.perf_counter()
        run(n)
        return time.perf_counter() - began

    run(1)
    short = min(seconds(SHORT) for _ in range(REPEATS))
    long = min(seconds(LONG) for _ in range(REPEATS))
    return (long - short) / (LONG - SHORT)


def data(n: int = N) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    centres = 3 * rng.normal(size=(K, D))
    X = rng.normal(size=(n, D)) + centres[rng.integers(K, size=n)]
    return X, np.sin(X[:, 0]) + X[:, 1]


def iteration() -> None:
    X, y = data()
    plan = make_plan(N, device="cpu", dtype="float64")
    targets = torch.as_tensor(y)[:, None]
    sample = Sample(TensorRows(torch.as_tensor(X)), targets, torch.ones(N, dtype=torch.float64), plan)
    labels = torch.as_tensor(np.random.default_rng(1).integers(K, size=N))
    setting = MixtureSettings(variance=torch.as_tensor(X.var(0)))

    def start(experts: Callable[[int], Experts]) -> Mixture:
        return assigned(sample, labels, experts, setting)

    gates = start(lambda k: NoExperts())
    lines = start(lambda k: LinearExperts.start(k, D, targets.var(0), 1e-4, 1e-2))
    ours = per_iteration(lambda n: fit_em(sample, gates, n, 0.0))
    ours_lines = per_iteration(lambda n: fit_em(sample, lines, n, 0.0))

    def theirs(n: int) -> None:
        model = GaussianMixture(
            K,
            max_iter=n,
            tol=0.0,
            weights_init=gates.gates.weights.numpy(),
            means_init=gates.gates.means.numpy(),
            precisions_init=np.linalg.inv(gates.gates.covariances.numpy()),
            init_params="random_from_data",
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X)

    other = per_iteration(theirs)
    threads = torch.get_num_threads()
    print(f"\nOne EM iteration, N = {N}, D = {D}, {K} full covariances, best of {REPEATS}, {threads} threads")
    print(f"  scikit-learn's GaussianMixture  {1e3 * other:7.1f} ms")
    print(f"  mixture without experts         {1e3 * ours:7.1f} ms: {other / ours:5.1f} times as fast")
    print(f"  with local linear experts       {1e3 * ours_lines:7.1f} ms: {other / ours_lines:5.1f} times as fast")


def memory(n: int) -> None:
    """Write a file of float32 rows, then fit it in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        rows, targets = Path(folder) / "rows.npy", Path(folder) / "targets.npy"
        X = np.lib.format.open_memmap(rows, mode="w+", dtype=np.float32, shape=(n, D))
        y = np.lib.format.open_memmap(targets, mode="w+", dtype=np.float32, shape=(n,))
        for begin in range(0, n, 1_000_000):
            part, values = data(min(1_000_000, n - begin))
            X[begin : begin + len(part)], y[begin : begin + len(part)] = part, values
        X.flush()
        y.flush()
        del X, y
        subprocess.run([sys.executable, __file__, "fit", str(rows), str(targets)], check=True)


def fit(rows: str, targets: str) -> None:
    y = np.load(targets, mmap_mode="r")
    model = ENRBFRegressor(
        K,
        training="em",
        covariance_type="full",
        n_init=1,
        max_iter=5,
        tol=0.0,
        memory_limit=1 << 28,
        device="cpu",
        random_state=0,
    )
    began = time.perf_counter()
    model.fit(rows, y)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"\n{len(y)} rows of {D} inputs from a .npy file, ENRBF with {K} full covariances, 5 iterations over all rows"
    )
    print(f"  {seconds:.1f} s, peak memory of the process {peak:.2f} GiB; {model.stop_reason_}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="*", default=["iteration", "memory"])
    parser.add_argument("--rows", type=int, default=10_000_000)
    arguments = parser.parse_args()
    if arguments.what[0] == "fit":
        fit(*arguments.what[1:])
        return
    if "iteration" in arguments.what:
        iteration()
    if "memory" in arguments.what:
        memory(arguments.rows)


if __name__ == "__main__":
    main()
