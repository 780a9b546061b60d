"""The fitted model of greedy and boosted estimators: kernel expansions, whose sum alone knows how to predict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.data import RowSource, TensorRows
from mercer.engine import KernelMatrix, Plan
from mercer.forward.sparse_rows import entries_of
from mercer.forward.stages import ExpansionPath
from mercer.kernels import Kernel
from mercer.kernels.sparse_rows import Numbered
from mercer.preprocessing.inputs import InputMap

#: Rows whose answers are made from the model's values at a time.
ANSWER_ROWS = 1 << 16


@dataclass(frozen=True)
class Expansion:
    """f(x) = Σ_j W_j k(φ(x), z_j): the map φ of the inputs, the kernel, basis vectors z as it sees them, weights."""

    inputs: InputMap
    kernel: Kernel
    basis: np.ndarray  # m × D
    weights: np.ndarray  # m × p
    dtype: str  # of kernel values, as in fit

    def product(self, source: RowSource, plan: Plan, *, pairwise: bool = False) -> Tensor:
        """f at the rows of `source`, n × p."""
        plan = replace(plan, dtype=getattr(torch, self.dtype))
        rows = with_index(source, plan) if pairwise else self.inputs.rows(source, plan)
        kernel = self.kernel.across(entries_of(source)) if isinstance(self.kernel, Numbered) else self.kernel
        Z = torch.as_tensor(self.basis).to(plan.device, plan.dtype)
        return KernelMatrix(rows, kernel, Z, plan).product(torch.as_tensor(self.weights))


@dataclass(frozen=True)
class Stages:
    """An expansion whose weights after any of its `n_steps` steps are known; the first comes after `before` others."""

    expansion: Expansion
    path: ExpansionPath
    share: float
    n_steps: int
    before: int = 0

    def at(self, steps: Sequence[int]) -> Expansion:
        """The models after each of these numbers of steps, side by side."""
        W = [self.path.weights(min(max(k - self.before, 0), self.n_steps)) for k in steps]
        return replace(self.expansion, weights=self.share * np.concatenate(W, axis=1))


def values(
    expansions: Sequence[Expansion],
    source: RowSource,
    plan: Plan,
    answer: Callable[[np.ndarray], np.ndarray] = np.asarray,
    *,
    pairwise: bool = False,
) -> np.ndarray:
    """What `answer` makes of the sum of some expansions at the rows of `source` (n × p, float64), block by block."""
    f = expansions[0].product(source, plan, pairwise=pairwise)
    for one in expansions[1:]:
        f = f + one.product(source, plan, pairwise=pairwise)
    blocks = [slice(i, i + ANSWER_ROWS) for i in range(0, len(f), ANSWER_ROWS)]
    first = answer(f[blocks[0]].double().cpu().numpy())
    if len(blocks) == 1:
        return first
    answers = np.empty((len(f), *first.shape[1:]), dtype=first.dtype)
    answers[blocks[0]] = first
    for block in blocks[1:]:
        answers[block] = answer(f[block].double().cpu().numpy())
    return answers


def with_index(source: RowSource, plan: Plan) -> TensorRows:
    """Rows of a precomputed kernel with their own index as a last column (see `Precomputed`)."""
    rows: Tensor = source.take(np.arange(source.n_rows)).to(plan.device, plan.dtype)
    index: Any = torch.arange(source.n_rows, device=plan.device)[:, None]
    return TensorRows(torch.cat([rows, index.to(rows)], 1))
