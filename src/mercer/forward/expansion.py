"""Kernel expansions, the fitted models of greedy and boosted estimators.

A prediction is the sum of a model's expansions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.data import RowSource, TensorRows
from mercer.engine import KernelMatrix, Plan
from mercer.forward.path import ExpansionPath
from mercer.forward.sparse_rows import entries_of
from mercer.kernels import Columns, Kernel
from mercer.kernels.sparse_rows import SparseRowKernel
from mercer.losses import Loss
from mercer.preprocessing.inputs import InputMap

#: Rows whose outputs are computed at a time.
OUTPUT_ROWS = 1 << 16
#: Rows up to which a CPU predicts without blocks: planning them would take longer than the prediction.
FEW_ROWS = 32


@dataclass(frozen=True)
class Expansion:
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
        return columns(self.inputs.kernel_rows(X, W)) @ W

    @cached_property
    def _bound(self) -> tuple[Columns, Tensor]:
        """The kernel bound to its basis vectors, and the weights, in the precision of the fit."""
        dtype = getattr(torch, self.dtype)
        return self.kernel.columns(torch.as_tensor(self.basis).to(dtype)), torch.as_tensor(self.weights).to(dtype)

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class Objective:
    """The objective Σ w V(y, f) + ½λ‖f‖² that an expansion f minimises, and the `share` of f in the model.

    A row that has weight one for the user has the weight `unit` here; `weight` is the total weight of all rows.
    """

    loss: Loss
    lam: float
    share: float
    unit: float
    weight: float


@dataclass(frozen=True)
class StagedExpansion:
    """An expansion with its weights after each of `n_steps` steps.

    `before` steps of other expansions come first.
    """

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
    blocks = [slice(i, i + OUTPUT_ROWS) for i in range(0, len(f), OUTPUT_ROWS)]
    first = output(f[blocks[0]].double().cpu().numpy())
    if len(blocks) == 1:
        return first
    outputs = np.empty((len(f), *first.shape[1:]), dtype=first.dtype)
    outputs[blocks[0]] = first
    for block in blocks[1:]:
        outputs[block] = output(f[block].double().cpu().numpy())
    return outputs


def evaluate_few(
    expansions: Sequence[Expansion], X: Tensor, output: Callable[[np.ndarray], np.ndarray] = np.asarray
) -> np.ndarray:
    """The result of `evaluate` for a few rows in a CPU's memory, in a fraction of its time."""
    f = expansions[0].at_few_rows(X)
    for expansion in expansions[1:]:
        f = f + expansion.at_few_rows(X)
    return output(f.double().numpy())


def with_row_index(source: RowSource, plan: Plan) -> TensorRows:
    """Rows of a precomputed kernel with their index as the last column.

    See `Precomputed`.
    """
    rows: Tensor = source.take(np.arange(source.n_rows)).to(plan.device, plan.dtype)
    index: Any = torch.arange(source.n_rows, device=plan.device)[:, None]
    return TensorRows(torch.cat([rows, index.to(rows)], 1))
