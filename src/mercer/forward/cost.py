"""Costs of a fitted model: basis vectors and bytes to keep, measured time to predict."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import torch

from mercer.data import ArrayRows
from mercer.engine import Plan
from mercer.forward.expansion import Expansion, evaluate, evaluate_few

#: Rows of the timed block, and repetitions of the shortest time.
TIMED_ROWS, REPETITIONS = 1000, 5


def prediction_cost(expansions: Sequence[Expansion], rows: np.ndarray | None, plan: Plan) -> dict[str, float]:
    """Basis vectors and bytes of expansions, and microseconds per row, asked one by one and 1000 at a time.

    `rows` are some rows of the table as numbers; None leaves out the times. These are the shortest of five, without the
    reading of a table.
    """
    cost: dict[str, float] = {
        "n_basis": sum(len(part.basis) for part in expansions),
        "bytes": sum(part.basis.nbytes + part.weights.nbytes for part in expansions),
    }
    if rows is None:
        return cost
    block = ArrayRows(np.resize(rows, (TIMED_ROWS, rows.shape[1])))
    single = torch.as_tensor(block.X[:1])
    one_by_one = [_seconds(lambda: evaluate_few(expansions, single)) for _ in range(REPETITIONS)]
    together = [_seconds(lambda: evaluate(expansions, block, plan)) for _ in range(REPETITIONS)]
    times = {"microseconds_single": 1e6 * min(one_by_one), "microseconds_per_row": 1e6 * min(together) / TIMED_ROWS}
    return cost | times


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
