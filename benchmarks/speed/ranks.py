"""Every family by one process, then by all ranks: same vectors, same answers, on whatever device there is.

torchrun --standalone --nproc-per-node=2 benchmarks/speed/ranks.py [--backend nccl] [--rows 50000]

Each rank fits every model by itself, joins the others, and fits it again on its share of the rows. Sums that are cut
otherwise are rounded otherwise, by some 1e-14 of their size in float64; what a model makes of that depends on the
condition of what it solves, 1e7 at most here, so predictions for targets of unit size may differ by 1e-6.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np
import torch

import mercer
import mercer.distributed
from mercer.kernels import Gaussian

BOUND = 1e-6
INPUTS = 8
FIXED: dict[str, Any] = {"kernel": Gaussian(2.0), "regularization": 1e-2, "random_state": 0, "dtype": "float64"}
GAUSSIAN: dict[str, Any] = {"kernel": "gaussian", "random_state": 0, "dtype": "float64"}


def models() -> dict[str, Any]:
    """One of each family, small: what is asked is whether they agree."""
    return {
        "boosting": mercer.KernelBoostingRegressor(4, learner_size=100, **FIXED),
        "boosting, curvature of few rows": mercer.KernelBoostingRegressor(4, learner_size=100, gram_rows=2000, **FIXED),
        "boosting, softmax": mercer.KernelBoostingClassifier(4, learner_size=50, loss="logistic", **FIXED),
        "greedy": mercer.GreedyKernelRegressor(96, **FIXED),
        "greedy, exchanged": mercer.GreedyKernelRegressor(20, exchange=True, step_size=1, **FIXED),
        "sparse GP": mercer.SparseGPRegressor(64, max_iter=8, **GAUSSIAN),
        "sparse GP of classes": mercer.SparseGPClassifier(32, max_iter=4, **GAUSSIAN),
        "mixture": mercer.ENRBFRegressor(4, training="em", max_iter=20, random_state=0),
        "empirical kernels": mercer.RPEMEKLRegressor(
            "paper", 0.1, n_members=3, subset_size=100, random_state=0, dtype="float64"
        ),
    }


def table(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows like KIN40K's: eight inputs, a smooth function of them, little noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, INPUTS))
    return X, np.sin(X[:, 0] + X[:, 1]) * X[:, 2] + 0.3 * X[:, 3:].sum(1) + 0.05 * rng.normal(size=n)


def fitted(name: str, X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Rows chosen, answers at a few rows, seconds."""
    model, began = models()[name], time.perf_counter()
    model.fit(X, np.digitize(y, [-0.7, 0.7]) if isinstance(model, mercer.KernelBoostingClassifier) else
              y > 0 if isinstance(model, mercer.SparseGPClassifier) else y)  # fmt: skip
    seconds = time.perf_counter() - began
    said = model.predict_proba(X[:500]) if hasattr(model, "predict_proba") else model.predict(X[:500])
    return np.asarray(getattr(model, "basis_indices_", ())), said, seconds


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--json", help="where the first rank writes what it found")
    given = parser.parse_args()
    X, y = table(given.rows)
    alone = {name: fitted(name, X, y) for name in models()}
    group: Any = mercer.distributed.init(backend=given.backend)
    wire = torch.distributed.get_backend() if group.size > 1 or given.backend == "nccl" else "none"
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    lines = []
    for name in alone:
        before = getattr(group, "bytes", 0)
        index, said, seconds = fitted(name, X, y)
        apart = float(np.abs(said - alone[name][1]).max())
        lines.append({
            "model": name, "ranks": group.size, "wire": wire, "device": device, "alone_s": alone[name][2],
            "s": seconds, "same_rows": bool(np.array_equal(index, alone[name][0])), "apart": apart,
            "bytes": getattr(group, "bytes", 0) - before,
        })  # fmt: skip
        if group.rank == 0:
            print(lines[-1], flush=True)
    if group.rank == 0 and given.json:
        with open(given.json, "w") as file:
            json.dump(lines, file, indent=1)
    wrong = [line["model"] for line in lines if not line["same_rows"] or line["apart"] > BOUND]
    if wrong:
        raise SystemExit(f"rank {group.rank}: other models than one process's: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
