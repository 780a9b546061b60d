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

from mercer.engine.plan import Plan
from mercer.forward.solve.guided import folds_in_steps
from mercer.kernels import Matern32
from mercer.kernels.compiled import thin_product

#: Rows of the parts that are timed: of a kernel matrix, of a matrix that conjugate gradients read, and of a factor.
KERNEL_ROWS, READ_ROWS, FACTOR_ROWS = 512, 3000, 1000
#: Steps that conjugate gradients are counted on to take, with what prepares and follows them in units of a step.
STEPS = 50
#: A factor and what follows it (left-out rows, values), in units of the factor.
FACTORS = 1.5


def exact_seconds(n: int, p: int, n_columns: int, plan: Plan) -> float:
    """Predict the seconds of `exact_ridge` for `n` rows, `p` targets and `n_columns` inputs."""
    where = str(plan.device)
    made = n**2 * _kernel_rate(where, n_columns)
    folds = folds_in_steps(n, p, True) if plan.device.type == "cpu" else None
    if folds is None:
        return made + FACTORS * n**3 * _factor_rate(where)
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
def _factor_rate(device: str) -> float:
    """Seconds of a Cholesky factor, divided by the cube of its rows."""
    A = torch.eye(FACTOR_ROWS, dtype=torch.float64, device=device)
    return seconds_of(lambda: torch.linalg.cholesky(A)) / FACTOR_ROWS**3


def seconds_of(work: Callable[[], Tensor]) -> float:
    """Time a piece of work: the shortest of three runs, since the first one may load libraries."""
    took = []
    for _ in range(3):
        began = time.perf_counter()
        float(work().reshape(-1)[0])  # wait for a GPU to finish
        took.append(time.perf_counter() - began)
    return min(took)
