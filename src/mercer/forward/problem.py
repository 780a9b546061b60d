"""The penalised problem of a fit: sample, loss, kernel and penalty."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.data import RowSource, TensorRows
from mercer.data.hashes import hash_rows
from mercer.engine import KernelMatrix, Plan, Sample
from mercer.kernels import Columns, Kernel
from mercer.losses import Loss, Squared
from mercer.preprocessing.duplicates import MERGED_ROWS


@dataclass(frozen=True)
class Problem:
    r"""Minimise :math:`\sum_n w_n V(y_n, f(x_n)) + \tfrac\lambda2 \|f\|^2_{\mathcal H}` over f.

    Rows of weight zero do not count in the objective but are predicted in every pass: validation rows have weight zero.
    """

    sample: Sample  # targets and weights in the precision of the tiles
    kernel: Kernel
    lam: float
    loss: Loss = field(default_factory=Squared)
    codes: Tensor | None = None  # the original targets, if `y` are residuals of earlier stages

    @property
    def rows(self) -> RowSource:
        return self.sample.rows

    @property
    def y(self) -> Tensor:
        return self.sample.Y

    @property
    def weight(self) -> Tensor:
        return self.sample.weight

    @property
    def plan(self) -> Plan:
        return self.sample.plan

    @property
    def n_outputs(self) -> int:
        return self.y.shape[1]

    def candidates(self) -> Tensor:
        """Rows that may become basis vectors: those of positive weight."""
        return self.weight.nonzero()[:, 0]

    @cached_property
    def distinct(self) -> Tensor:
        """Mask of the rows of positive weight, one of each set of duplicate inputs.

        Duplicates are detected in tables in memory of at most `MERGED_ROWS` rows.
        """
        alive = self.weight > 0
        if not isinstance(self.rows, TensorRows) or self.rows.shard.divided or self.rows.n_rows > MERGED_ROWS:
            return alive
        places = alive.nonzero()[:, 0]
        X = self.rows.X[places].cpu().numpy()
        first = np.unique(hash_rows(X.T, len(X)), return_index=True)[1]
        mask = torch.zeros_like(alive)
        mask[places[torch.as_tensor(first, device=places.device)]] = True
        return mask

    @property
    def n_candidates(self) -> int:
        """Number of rows that may become basis vectors, on all processes."""
        return self.sample.n_alive

    def subset(self, rows: Tensor) -> Problem:
        """The same problem on a subset of the rows (local indices, in order)."""
        return replace(self, sample=self.sample.here(rows), codes=None if self.codes is None else self.codes[rows])

    def residual_problem(self, f: Tensor, kernel: Kernel) -> Problem:
        """The problem of another kernel on the residuals of values `f`, by a squared loss."""
        codes = self.y if self.codes is None else self.codes
        return replace(self.with_sample(Y=self.y - f), kernel=kernel, codes=codes)

    def with_sample(self, **change: Any) -> Problem:
        """The same problem with other rows, targets, weights or plan."""
        return replace(self, sample=replace(self.sample, **change))

    def margins(self, f: Tensor, rows: Any = slice(None)) -> Tensor:
        """Products of codes and values of rows, n × p, with the values of earlier stages."""
        y = self.y[rows]
        codes = y if self.codes is None else self.codes[rows]
        return codes * (f[rows] + (codes - y))

    def matrix(self, basis: Tensor, uses: int = 1) -> KernelMatrix:
        """The kernel matrix between all rows and these basis vectors."""
        return KernelMatrix(self.rows, self.kernel, basis, self.plan, uses)

    def basis(self, index: Tensor) -> Tensor:
        """Rows `index` (global numbers) as basis vectors on the plan's device."""
        return self.rows.fetch(index).to(self.plan.device, self.plan.dtype)

    def column(self, index: Tensor) -> Tensor:
        """Kernel values between one row and all rows, 1 × n."""
        basis = self.basis(index)
        if self._prepared is None:
            return self.matrix(basis).product(torch.ones(1, 1)).T.contiguous()
        rows, columns = self._prepared
        return columns.with_basis(basis)(rows).T.contiguous()

    @cached_property
    def _prepared(self) -> tuple[Tensor, Columns] | None:
        """Rows prepared once for all columns, if they are in a CPU's memory."""
        if not isinstance(self.rows, TensorRows) or self.plan.device.type != "cpu" or not self.rows.n_rows:
            return None
        if self.rows.X.dtype != self.plan.dtype:
            return None
        return self.kernel.columns(self.rows.X.mean(0, keepdim=True)).prepare(self.rows.X)

    def gram(self, basis: Tensor) -> Tensor:
        """Q, the kernel matrix between basis vectors, in float64."""
        return self.kernel(basis.double(), basis.double())

    def validation_weight(self, rows: Tensor) -> Tensor:
        """Weights of validation rows."""
        weights = self.sample.validation_weight
        return torch.ones_like(rows, dtype=torch.float64) if weights is None else weights[rows].double()

    def row_weights(self) -> Tensor:
        """Weights of all rows in one unit, validation rows included."""
        weights = self.sample.validation_weight
        return torch.where(self.weight > 0, self.weight, 1.0) if weights is None else weights

    def validation_mean(self, values: Tensor, rows: Tensor) -> Tensor:
        """Weighted mean of values at validation rows, over all processes."""
        n_outputs = values.shape[1:].numel()  # no -1 in reshape: a process may have no such rows
        weight, values = self.validation_weight(rows), values.double().reshape(len(rows), n_outputs)
        sums = self.rows.total(torch.stack([(weight @ values).sum(), weight.sum() * n_outputs]))
        return sums[0] / sums[1]

    def pick(self, values: Tensor, index: Tensor) -> Tensor:
        """Values (n × p) at rows `index` (global numbers)."""
        return self.rows.pick(values.T, index).T

    def objective(self, f: Tensor, penalty: float | Tensor) -> Tensor:
        """Σ w V(y, f) + ½·penalty for model values `f` at all rows; `penalty` is λ‖f‖²."""
        data = (self.weight[:, None] * self.loss.value(self.y, f)).sum(dtype=torch.float64)
        return self.rows.total(data) + 0.5 * penalty
