"""Training rows as the algorithms of this family see them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mercer.data import RowSource, TensorRows
from mercer.engine import Plan


@dataclass(frozen=True)
class Sample:
    """Rows, targets (n × p, float64), weights and where the work is done."""

    rows: RowSource
    Y: Tensor
    weight: Tensor
    plan: Plan

    def part(self, index: np.ndarray) -> Sample:
        where = torch.as_tensor(index, device=self.plan.device)
        block = self.rows.take(index).to(self.plan.device, self.plan.dtype)
        return Sample(TensorRows(block), self.Y[where], self.weight[where], self.plan)
