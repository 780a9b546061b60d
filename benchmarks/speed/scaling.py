"""Time against rows, basis vectors and inputs, fitted as powers; nothing may grow faster than the algorithm says.

python benchmarks/speed/scaling.py
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from mercer.data import TensorRows
from mercer.engine import KernelMatrix, Sample, make_plan
from mercer.forward.combine import JointPursuit
from mercer.forward.criteria import MaxResidual
from mercer.forward.loop import Ensemble, ForwardFit
from mercer.forward.problem import Problem
from mercer.forward.stopping import MaxSteps
from mercer.kernels import Gaussian

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def seconds(run: Callable[[], object], repeats: int = 3) -> float:
    """The best of several runs, after one that is not counted."""
    times = []
    for repeat in range(repeats + 1):
        began = time.perf_counter()
        run()
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began if repeat else np.inf)
    return min(times)


@cache
def rows(n: int, D: int = 8) -> torch.Tensor:
    return torch.randn(n, D, generator=torch.Generator().manual_seed(0)).to(DEVICE) / D**0.5


def power(sizes: list[int], times: list[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def report(name: str, sizes: list[int], times: list[float]) -> None:
    ratios = [b / a for a, b in pairwise(times)]
    print(f"{name}: power {power(sizes, times):.2f}")
    print("   " + ", ".join(f"{size}: {1e3 * t:.1f} ms" for size, t in zip(sizes, times, strict=True)))
    print("   growth from one to the next: " + ", ".join(f"{r:.2f}" for r in ratios), flush=True)


def boosting(n: int, block_length: int | None, n_learners: int = 20) -> None:
    X = rows(n)
    y = torch.sin(3 * X.sum(1, keepdim=True))
    sample = Sample(TensorRows(X), y, torch.ones(n, device=DEVICE), make_plan(n, DEVICE, "float32"))
    problem = Problem(sample, Gaussian(), 1e-2)
    learner = Ensemble(MaxResidual(), JointPursuit(), 50, 500)
    ForwardFit(problem, learner, np.random.default_rng(0), block_length=block_length, capacity=64).run(
        [MaxSteps(n_learners)]
    )


def peak(n: int, block_length: int, n_learners: int = 96) -> float:
    """MiB of memory that a fit in blocks adds at its highest, in a process of its own."""
    script = (
        f"import resource, scaling; scaling.boosting(1000, 1, 2); scaling.rows({n}); "
        "used = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024; before = used(); "
        f"scaling.boosting({n}, {block_length}, {n_learners}); print(used() - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=Path(__file__).parent, capture_output=True, check=True, text=True
    )
    return float(done.stdout)


def product(n: int, m: int, D: int) -> None:
    X = rows(n, D)
    K = KernelMatrix(TensorRows(X), Gaussian(), X[:m], make_plan(n, DEVICE, "float32"))
    K.product(torch.ones(m, 1))


if __name__ == "__main__":
    doubled = [100_000 * 2**k for k in range(5)]
    print(f"on {DEVICE}")
    report(
        "20 learners of 50 vectors, one at a time, against rows",
        doubled,
        [seconds(lambda n=n: boosting(n, 1)) for n in doubled],
    )
    report(
        "20 learners of 50 vectors, all weights refitted, against rows",
        doubled,
        [seconds(lambda n=n: boosting(n, None)) for n in doubled],
    )
    if DEVICE == "cpu":
        print("memory of 96 learners in blocks of L, N rows: added MiB, and bytes per row and function of a block")
        for n, length in ((200_000, 16), (400_000, 16), (400_000, 32), (400_000, 64)):
            added = peak(n, length)
            print(f"   N = {n}, L = {length}: {added:.0f} MiB, {added * 2**20 / n / length:.1f}", flush=True)
    report("K·v against rows, m = 1024, D = 8", doubled, [seconds(lambda n=n: product(n, 1024, 8)) for n in doubled])
    sizes = [512 * 2**k for k in range(5)]
    report(
        "K·v against basis vectors, N = 100 000, D = 8",
        sizes,
        [seconds(lambda m=m: product(100_000, m, 8)) for m in sizes],
    )
    inputs = [8, 16, 32, 64, 128]
    report(
        "K·v against inputs, N = 100 000, m = 1024",
        inputs,
        [seconds(lambda D=D: product(100_000, 1024, D)) for D in inputs],
    )
