"""Wide sparse tables in forward models: a kernel tuned on some rows, all of them seen by products of rows."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from mercer.data import RowSource, SparseRows, TensorRows, sparse_matrix
from mercer.engine import Plan
from mercer.engine.sample import Sample
from mercer.kernels import Kernel, as_kernel
from mercer.kernels.sparse_rows import Entries, Numbered, require_products
from mercer.preprocessing.inputs import InputMap
from mercer.preprocessing.read import TableData
from mercer.selection.kernel_choice import choose_kernel, is_tuned

#: Rows by which a kernel is tuned at most: they have as many coordinates, so the evidence costs more than elsewhere.
TUNED_ROWS = 600


@dataclass(frozen=True)
class RowIndexMap(InputMap):
    """Rows as their numbers, 0, 1, …: what numbered kernels take."""

    def rows(self, source: RowSource, plan: Plan) -> RowSource:
        return TensorRows(torch.arange(source.n_rows, device=plan.device, dtype=plan.dtype)[:, None])


def sparse_row_kernel(
    given: TableData, Y: np.ndarray, plan: Plan, settings: Any, rng: np.random.Generator, seconds: float | None
) -> tuple[RowIndexMap, Kernel, float, float]:
    """Inputs, kernel and penalty for a sparse table, and the seconds it took: one length-scale for all columns.

    Some rows are turned into as many coordinates, which leaves radial and dot-product kernels what they are.
    """
    began, rows = time.perf_counter(), given.rows
    assert isinstance(rows, SparseRows)
    if not is_tuned(settings.kernel):
        require_products(as_kernel(settings.kernel))
    n_rows = min(settings.tuning_rows, TUNED_ROWS)
    some = given.draw(n_rows, rng)
    fine = replace(plan, dtype=torch.float64)
    y, weight = (torch.as_tensor(given.pick(values, some), device=fine.device) for values in (Y, given.weight))
    sample = Sample(TensorRows(rows.coordinates(some).to(fine.device)), y, weight, fine)
    chosen = choose_kernel(sample, settings.kernel, settings.regularization, n_rows, rng, seconds, ard=False)
    kernel = Numbered(chosen.kernel, rows.entries, rows.entries)
    kernel.check()
    return RowIndexMap(np.zeros(1), np.ones(1)), kernel, chosen.lam, time.perf_counter() - began


def entries_of(source: RowSource) -> Entries:
    """All rows of a source by their entries."""
    if isinstance(source, SparseRows):
        return source.entries
    return SparseRows(sparse_matrix(source.take(np.arange(source.n_rows)).cpu().double().to_sparse())).entries
