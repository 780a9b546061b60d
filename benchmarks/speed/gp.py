"""A million rows: one evaluation of a sparse evidence with all gradients, and a whole fit within a memory limit.

    python benchmarks/speed/gp.py [--rows 1000000] [--inducing 512] [--fit]

Prints the best of several evaluations; `--fit` also fits `SparseGPRegressor(memory_limit=4e9)` on the CPU, within five
minutes of search, and prints how far the memory of the process grew.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
import torch

from mercer import SparseGPRegressor
from mercer.data import TensorRows
from mercer.engine import make_plan
from mercer.engine.plan import Sample
from mercer.evidence.approximations import Approximation
from mercer.evidence.sparse import sparse_evidence
from mercer.kernels import Gaussian


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--inducing", type=int, default=512)
    options.add_argument("--fit", action="store_true")
    given = options.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(given.rows, 8, generator=generator)
    y = torch.sin(X.sum(1, keepdim=True)) + 0.1 * torch.randn(given.rows, 1, generator=generator)
    print(f"{given.rows} rows, {given.inducing} inducing inputs, D = 8, {device}")
    kernel, there, targets = Gaussian([2.0] * 8) * 1.0, X.to(device), y.to(device)
    for name in ("variational", "spgp"):
        plan = make_plan(given.rows, device, "float32", None if device == "cuda" else 4e9)
        times = []
        for _ in range(4 if device == "cuda" else 2):
            began = time.perf_counter()
            approximation = Approximation.resolve(name, "approximation")
            data = Sample(TensorRows(there), targets, torch.ones_like(targets[:, 0]), plan)
            sparse_evidence(kernel, 0.01, there[: given.inducing].clone(), data, approximation)
            if device == "cuda":
                torch.cuda.synchronize()
            times.append(time.perf_counter() - began)
        print(f"{name}: evidence and gradients in {min(times):.3f} s", flush=True)
    if given.fit:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.perf_counter()
        model = SparseGPRegressor(given.inducing, time_budget=300, memory_limit=4e9, device="cpu", random_state=0)
        model.fit(X.numpy(), y[:, 0].numpy())
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20
        score = model.score(X[:2000].numpy(), y[:2000, 0].numpy())
        seconds = time.perf_counter() - began
        print(f"fit in {seconds:.0f} s, R² {score:.4f}: {model.stop_reason_}")
        print(f"memory grew by {grown:.2f} GiB (limit {4e9 / 2**30:.2f})")


if __name__ == "__main__":
    np.seterr(all="raise", under="ignore")
    main()
