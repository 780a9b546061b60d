"""Predict the time of solutions from small measured parts of their work.

Rates differ tenfold between machines, so no table of constants would hold. Rates of exact solutions are measured once
per kind of problem and process, so that all decisions of a fit agree.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from mercer.codegen.compiled import thin_product
from mercer.engine.plan import Plan
from mercer.forward.problem import Problem
from mercer.forward.solve.iterative_ridge import iterative_folds
from mercer.kernels import Matern32

#: Rows of the timed parts: a kernel matrix, a matrix that conjugate gradients read, and a factor at most.
KERNEL_ROWS, READ_ROWS, FACTOR_ROWS = 512, 3000, 2500
#: Assumed number of conjugate gradient steps, with preparation and what follows in units of a step.
CG_STEPS = 50
#: A factor and what follows it (leave-one-out, values), in units of the factor; and the power of the rows by which its
#: time grows: less than three, since larger factors run at a higher rate (5, 9 and 15 GFLOP/s for 1000, 2500 and 6000
#: rows on two busy cores).
FACTORS, FACTOR_POWER = 1.5, 2.5
#: Rows of the timed pass of a polish, and side of the timed square.
PASS_ROWS, SQUARE_SIDE = 256, 1024
#: Multiplications of two Cholesky factors, two squares and a triangular solution, in units of the cube of their side.
POLISH_CUBES = 4.0
#: Passes over all rows before the first and after the last step of a polish, and passes of each step with its
#: validation rows.
POLISH_PASSES, STEP_PASSES = 5.0, 1.5


def exact_seconds(n: int, p: int, n_columns: int, plan: Plan) -> float:
    """Predict the seconds of `exact_ridge`.

    The problem has `n` rows, `p` targets and `n_columns` inputs.
    """
    device = str(plan.device)
    kernel_seconds = n**2 * _kernel_rate(device, n_columns)
    folds = iterative_folds(n, p, True) if plan.device.type == "cpu" else None
    if folds is None:
        rows = min(n, FACTOR_ROWS)
        return kernel_seconds + FACTORS * (n / rows) ** FACTOR_POWER * _factor_seconds(device, rows)
    return kernel_seconds / 2 + CG_STEPS * n**2 * _read_rate(p * (1 + folds))


def affordable_polish_steps(problem: Problem, index: Tensor, seconds: float) -> int:
    """Steps of a polish of basis vectors `index` that take at most `seconds`.

    The first process measures it.
    """
    basis, m = problem.basis(index).double(), len(index)
    rows = problem.basis(index[:PASS_ROWS]).double()
    v = rows.new_ones(m, 1)
    square = rows.new_ones(min(m, SQUARE_SIDE), min(m, SQUARE_SIDE))
    a_pass = seconds_of(lambda: problem.kernel(rows, basis) @ v) * problem.n_candidates / len(rows)
    algebra = seconds_of(lambda: square @ square) * POLISH_CUBES * (m / len(square)) ** 3
    a_pass, algebra = problem.rows.shard.group.first(lambda: (a_pass, algebra))
    return int(max((seconds - algebra - POLISH_PASSES * a_pass) / max(STEP_PASSES * a_pass, 1e-9), 0))


@lru_cache
def _kernel_rate(device: str, n_columns: int) -> float:
    """Seconds per value of a kernel matrix."""
    X = torch.linspace(-1.0, 1.0, KERNEL_ROWS * n_columns, dtype=torch.float64, device=device).reshape(KERNEL_ROWS, -1)
    kernel = Matern32()
    return seconds_of(lambda: kernel(X, X)) / KERNEL_ROWS**2


@lru_cache
def _read_rate(columns: int) -> float:
    """Seconds per entry of a matrix that is multiplied by this many columns."""
    A, V = torch.ones(READ_ROWS, READ_ROWS), torch.ones(READ_ROWS, columns, dtype=torch.float64)
    return seconds_of(lambda: thin_product(A, V)) / READ_ROWS**2


@lru_cache
def _factor_seconds(device: str, n: int) -> float:
    """Seconds of a Cholesky factor of n rows."""
    A = torch.eye(n, dtype=torch.float64, device=device)
    return seconds_of(lambda: torch.linalg.cholesky(A))


def seconds_of(work: Callable[[], Tensor]) -> float:
    """Time a piece of work, by the shorter of two runs.

    The first run may load libraries.
    """
    durations = []
    for _ in range(2):
        start = time.perf_counter()
        float(work().reshape(-1)[0])  # wait for a GPU to finish
        durations.append(time.perf_counter() - start)
    return min(durations)
