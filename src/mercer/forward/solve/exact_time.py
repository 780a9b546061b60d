"""Predict how long an exact solution takes, from small parts of its work measured on this machine.

Rates differ tenfold from machine to machine, so no table of constants could say it. A prediction is made once for each
kind of problem in a process: all decisions of a fit then agree.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from mercer.codegen.compiled import thin_product
from mercer.engine.plan import Plan
from mercer.forward.solve.guided import folds_in_steps
from mercer.kernels import Matern32

#: Rows of the parts that are timed: of a kernel matrix, of a matrix that conjugate gradients read, and of a factor at
#: most.
KERNEL_ROWS, READ_ROWS, FACTOR_ROWS = 512, 3000, 2500
#: Steps that conjugate gradients are counted on to take, with what prepares and follows them in units of a step.
STEPS = 50
#: A factor and what follows it (left-out rows, values), in units of the factor; and the power of the rows by which its
#: time grows: less than three, since larger factors run at a higher rate (5, 9 and 15 GFLOP/s of 1000, 2500 and 6000
#: rows on two busy cores).
FACTORS, POWER = 1.5, 2.5


def exact_seconds(n: int, p: int, n_columns: int, plan: Plan) -> float:
    """Predict the seconds of `exact_ridge` for `n` rows, `p` targets and `n_columns` inputs."""
    where = str(plan.device)
    made = n**2 * _kernel_rate(where, n_columns)
    folds = folds_in_steps(n, p, True) if plan.device.type == "cpu" else None
    if folds is None:
        rows = min(n, FACTOR_ROWS)
        return made + FACTORS * (n / rows) ** POWER * _factor_seconds(where, rows)
    return made / 2 + STEPS * n**2 * _read_rate(p * (1 + folds))


@lru_cache
def _kernel_rate(device: str, n_columns: int) -> float:
    """Seconds for each value of a kernel matrix."""
    X = torch.linspace(-1.0, 1.0, KERNEL_ROWS * n_columns, dtype=torch.float64, device=device).reshape(KERNEL_ROWS, -1)
    kernel = Matern32()
    return seconds_of(lambda: kernel(X, X)) / KERNEL_ROWS**2


@lru_cache
def _read_rate(columns: int) -> float:
    """Seconds for each number of a matrix that is multiplied by so many columns."""
    A, V = torch.ones(READ_ROWS, READ_ROWS), torch.ones(READ_ROWS, columns, dtype=torch.float64)
    return seconds_of(lambda: thin_product(A, V)) / READ_ROWS**2


@lru_cache
def _factor_seconds(device: str, n: int) -> float:
    """Seconds of a Cholesky factor of n rows."""
    A = torch.eye(n, dtype=torch.float64, device=device)
    return seconds_of(lambda: torch.linalg.cholesky(A))


def seconds_of(work: Callable[[], Tensor]) -> float:
    """Time a piece of work: the shorter of two runs, since the first one may load libraries."""
    took = []
    for _ in range(2):
        began = time.perf_counter()
        float(work().reshape(-1)[0])  # wait for a GPU to finish
        took.append(time.perf_counter() - began)
    return min(took)
