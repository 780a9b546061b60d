"""Kernels of wide sparse tables in forward models.

The kernel is tuned on a sample and computed from products of sparse rows.
"""

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
from mercer.kernels.sparse_rows import Entries, SparseRowKernel, require_products
from mercer.preprocessing.inputs import InputMap
from mercer.preprocessing.read import TableData
from mercer.selection.kernel_choice import choose_kernel, is_tuned

#: Rows on which a kernel is tuned at most: they have as many coordinates as rows, which makes the evidence expensive.
TUNED_ROWS = 600


@dataclass(frozen=True)
class RowIndexMap(InputMap):
    """Maps rows to their numbers 0, 1, …, the inputs of kernels of sparse rows."""

    def rows(self, source: RowSource, plan: Plan) -> RowSource:
        return TensorRows(torch.arange(source.n_rows, device=plan.device, dtype=plan.dtype)[:, None])


def sparse_row_kernel(
    data: TableData, Y: np.ndarray, plan: Plan, settings: Any, rng: np.random.Generator, seconds: float | None
) -> tuple[RowIndexMap, Kernel, float, float]:
    """Tune a kernel with one length-scale for a sparse table.

    Returns input map, kernel, penalty and seconds.

    The sampled rows get as many coordinates as there are rows, which changes neither radial nor dot-product kernels.
    """
    start, rows = time.perf_counter(), data.rows
    assert isinstance(rows, SparseRows)
    if not is_tuned(settings.kernel):
        require_products(as_kernel(settings.kernel))
    n_rows = min(settings.tuning_rows, TUNED_ROWS)
    drawn = data.draw(n_rows, rng)
    plan = replace(plan, dtype=torch.float64)
    y, weight = (torch.as_tensor(data.pick(values, drawn), device=plan.device) for values in (Y, data.weight))
    sample = Sample(TensorRows(rows.coordinates(drawn).to(plan.device)), y, weight, plan)
    chosen = choose_kernel(sample, settings.kernel, settings.regularization, n_rows, rng, seconds, ard=False)
    kernel = SparseRowKernel(chosen.kernel, rows.entries, rows.entries)
    kernel.check()
    return RowIndexMap(np.zeros(1), np.ones(1)), kernel, chosen.lam, time.perf_counter() - start


def entries_of(source: RowSource) -> Entries:
    """All rows of a source in sparse form."""
    if isinstance(source, SparseRows):
        return source.entries
    return SparseRows(sparse_matrix(source.take(np.arange(source.n_rows)).cpu().double().to_sparse())).entries
