"""Theorem 1's bound on the number of vectors, and the memory of the incremental QR."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations
from math import ceil, log
from typing import Any

import numpy as np
import torch

from mercer import GreedyKernelRegressor
from mercer.kernels import Gaussian

#: Rows and vectors whose peak memory is measured: twice the rows, then twice the vectors.
SIZES = ((10_000, 100), (20_000, 100), (20_000, 200))
#: A process of its own: resident memory at the end of a fit, less that after a small one, in bytes.
PROGRAM = """
import resource, sys, numpy as np
from papers.greedy02.methods import greedy
def fit(n, size):
    X = np.random.default_rng(0).normal(size=(n, 4))
    greedy(size, 1.0, 0.01).fit(X, np.sin(X.sum(1)))
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(-fit(500, 5) + fit(int(sys.argv[1]), int(sys.argv[2])))
"""


def memory() -> dict[str, Any]:
    """Peak bytes of fits over those of an m × n matrix of float64, by rows and vectors."""
    found = {}
    for n, size in SIZES:
        done = subprocess.run([sys.executable, "-c", PROGRAM, str(n), str(size)], capture_output=True, text=True,
                              check=True)  # fmt: skip
        found[f"{n} x {size}"] = int(done.stdout) / (8 * n * size)
    return found


def theorem1(seed: int, n: int = 10, eps: float = 0.3) -> dict[str, Any]:
    """Steps of ORMP to a residual of `eps`, and the bound 18 n(ε/2) ‖K̃⁺‖² ln(‖y‖/ε), n(ε/2) by trying all subsets."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    K = Gaussian(0.2)(torch.as_tensor(X), torch.as_tensor(X)).numpy()
    y = K @ np.where(np.arange(n) < 3, rng.normal(size=n), 0.0)
    y *= 1 / np.linalg.norm(y)
    given: dict[str, Any] = {"fit_intercept": False, "scale_inputs": False, "dtype": "float64", "device": "cpu"}
    model = GreedyKernelRegressor(n, criterion="ormp", kernel=Gaussian(0.2), update="qr", penalty="gram",
                                  regularization=0.0, **given).fit(X, y)  # fmt: skip
    residuals = np.asarray(model.history_["residual_norm"])
    least = next(size for size in range(1, n + 1) if _least(K, y, size) <= eps / 2)
    inverse = 1 / np.linalg.svd(K / np.linalg.norm(K, axis=0), compute_uv=False)[-1]
    return {"steps": int(np.argmax(residuals <= eps)) + 1, "bound": ceil(18 * least * inverse**2 * log(1 / eps))}


def _least(K: np.ndarray, y: np.ndarray, size: int) -> float:
    """The smallest residual of any `size` columns."""
    return min(
        float(np.linalg.norm(y - K[:, at] @ np.linalg.lstsq(K[:, at], y, rcond=None)[0]))
        for at in map(list, combinations(range(len(y)), size))
    )
