"""Kernel expansions, the fitted models of greedy and boosted estimators.

A prediction is the sum of a model's expansions. Kernels of wide sparse tables are computed from products of sparse
rows.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.data import ArrayRows, RowSource, SparseRows, TensorRows, sparse_matrix
from mercer.engine import KernelMatrix, Plan
from mercer.engine.plan import CHUNK_ROWS, Sample
from mercer.forward.path import ExpansionPath
from mercer.kernels import Columns, Kernel, as_kernel
from mercer.kernels.sparse_rows import Entries, SparseRowKernel, require_products
from mercer.losses import Loss
from mercer.parts import PickledByFields
from mercer.preprocessing.inputs import InputMap
from mercer.preprocessing.read import TableData
from mercer.selection.kernel_choice import choose_kernel, is_tuned

#: Rows up to which a CPU predicts without blocks: planning them would take longer than the prediction.
FEW_ROWS = 32
#: Rows of the timed block, and repetitions of the shortest time.
TIMED_ROWS, REPETITIONS = 1000, 5
#: Rows on which a kernel is tuned at most: they have as many coordinates as rows, which makes the evidence expensive.
TUNED_ROWS = 600


@dataclass(frozen=True)
class Expansion(PickledByFields):
    """f(x) = Σ_j W_j k(φ(x), z_j), a fitted kernel expansion.

    It holds the input map φ, the kernel k, basis vectors z in its coordinates, and weights W.
    """

    inputs: InputMap
    kernel: Kernel
    basis: np.ndarray  # m × D
    weights: np.ndarray  # m × p
    dtype: str  # of kernel values, the same as in fit

    def product(self, source: RowSource, plan: Plan, *, pairwise: bool = False) -> Tensor:
        """f at the rows of `source`, n × p."""
        plan = replace(plan, dtype=getattr(torch, self.dtype))
        rows = with_row_index(source, plan) if pairwise else self.inputs.rows(source, plan)
        kernel = (
            self.kernel.with_rows_of(entries_of(source)) if isinstance(self.kernel, SparseRowKernel) else self.kernel
        )
        Z = torch.as_tensor(self.basis).to(plan.device, plan.dtype)
        return KernelMatrix(rows, kernel, Z, plan).product(torch.as_tensor(self.weights))

    def at_few_rows(self, X: Tensor) -> Tensor:
        """f at a few rows in a CPU's memory, n × p, without a plan; the kernel is bound to its basis vectors once."""
        columns, W = self._bound
        return columns.product_of_few(self.inputs.kernel_rows(X, W), W)

    @cached_property
    def _bound(self) -> tuple[Columns, Tensor]:
        """The kernel bound to its basis vectors, and the weights, in the precision of the fit."""
        dtype = getattr(torch, self.dtype)
        return self.kernel.columns(torch.as_tensor(self.basis).to(dtype)), torch.as_tensor(self.weights).to(dtype)


@dataclass(frozen=True)
class Objective:
    """The objective Σ w V(y, f) + ½λ‖f‖² that an expansion f minimises, and the `share` of f in the model.

    A row that has weight one for the user has the weight `unit` here; `weight` is the total weight of all rows, and
    `row_weight` that of a row of the mean weight.
    """

    loss: Loss
    lam: float
    share: float
    unit: float
    weight: float
    row_weight: float | None = None  # that of weight one in files of earlier versions


@dataclass(frozen=True)
class StagedExpansion:
    """An expansion with its weights after each of `n_steps` steps; `before` steps of other expansions come first."""

    expansion: Expansion
    path: ExpansionPath
    share: float
    n_steps: int
    before: int = 0

    def at(self, steps: Sequence[int]) -> Expansion:
        """The models after each of these numbers of steps, as columns of one expansion."""
        W = [self.path.weights(min(max(k - self.before, 0), self.n_steps)) for k in steps]
        return replace(self.expansion, weights=self.share * np.concatenate(W, axis=1))


def evaluate(
    expansions: Sequence[Expansion],
    source: RowSource,
    plan: Plan,
    output: Callable[[np.ndarray], np.ndarray] = np.asarray,
    *,
    pairwise: bool = False,
) -> np.ndarray:
    """Apply `output` to the sum of expansions at the rows of `source`.

    The sum (n × p, float64) is passed block by block.
    """
    f = expansions[0].product(source, plan, pairwise=pairwise)
    for expansion in expansions[1:]:
        f = f + expansion.product(source, plan, pairwise=pairwise)
    return np.concatenate([output(block.double().cpu().numpy()) for block in f.split(CHUNK_ROWS["cpu"])])


def evaluate_few(
    expansions: Sequence[Expansion], X: Tensor, output: Callable[[np.ndarray], np.ndarray] = np.asarray
) -> np.ndarray:
    """The result of `evaluate` for a few rows in a CPU's memory, in a fraction of its time."""
    f = expansions[0].at_few_rows(X)
    for expansion in expansions[1:]:
        f = f + expansion.at_few_rows(X)
    return output(f.double().numpy())


def with_row_index(source: RowSource, plan: Plan) -> TensorRows:
    """Rows of a precomputed kernel with their index as the last column, as `Precomputed` takes them."""
    rows: Tensor = source.take(np.arange(source.n_rows)).to(plan.device, plan.dtype)
    index: Any = torch.arange(source.n_rows, device=plan.device)[:, None]
    return TensorRows(torch.cat([rows, index.to(rows)], 1))


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
    one_by_one = timeit.repeat(lambda: evaluate_few(expansions, single), number=1, repeat=REPETITIONS)
    together = timeit.repeat(lambda: evaluate(expansions, block, plan), number=1, repeat=REPETITIONS)
    times = {"microseconds_single": 1e6 * min(one_by_one), "microseconds_per_row": 1e6 * min(together) / TIMED_ROWS}
    return cost | times


@dataclass(frozen=True)
class RowIndexMap(InputMap):
    """Maps rows to their numbers 0, 1, …, the inputs of kernels of sparse rows."""

    def rows(self, source: RowSource, plan: Plan) -> RowSource:
        return TensorRows(torch.arange(source.n_rows, device=plan.device, dtype=plan.dtype)[:, None])


def sparse_row_kernel(
    data: TableData, Y: np.ndarray, plan: Plan, estimator: Any, rng: np.random.Generator, seconds: float | None
) -> tuple[RowIndexMap, Kernel, float]:
    """Tune a kernel with one length-scale for a sparse table; returns input map, kernel and penalty.

    The sampled rows get as many coordinates as there are rows, which changes neither radial nor dot-product kernels.
    """
    rows = data.rows
    assert isinstance(rows, SparseRows)
    if not is_tuned(estimator.kernel):
        require_products(as_kernel(estimator.kernel))
    n_rows = min(estimator.tuning_rows, TUNED_ROWS)
    drawn = data.draw(n_rows, rng)
    plan = replace(plan, dtype=torch.float64)
    y, weight = (torch.as_tensor(data.pick(values, drawn), device=plan.device) for values in (Y, data.weight))
    sample = Sample(TensorRows(rows.coordinates(drawn).to(plan.device)), y, weight, plan)
    chosen = choose_kernel(sample, estimator.kernel, estimator.regularization, n_rows, rng, seconds, ard=False)
    kernel = SparseRowKernel(chosen.kernel, rows.entries, rows.entries)
    kernel.check()
    return RowIndexMap(np.zeros(1), np.ones(1)), kernel, chosen.lam


def entries_of(source: RowSource) -> Entries:
    """All rows of a source in sparse form."""
    if isinstance(source, SparseRows):
        return source.entries
    return SparseRows(sparse_matrix(source.take(np.arange(source.n_rows)).cpu().double().to_sparse())).entries
