"""Training rows as algorithms see them: rows, targets, weights and plan, in one record."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mercer.data import RowSource, TensorRows, spread_rows
from mercer.engine.plan import Plan


@dataclass(frozen=True)
class Sample:
    """Rows, targets (n × p, float64), weights and where the work is done."""

    rows: RowSource
    Y: Tensor
    weight: Tensor
    plan: Plan

    @property
    def alive(self) -> np.ndarray:
        """Indices of the rows of positive weight: the others take part in nothing."""
        return np.flatnonzero(self.weight.cpu().numpy() > 0)

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """At most `n` rows of positive weight, at random and in order."""
        alive = self.alive
        return alive if len(alive) <= n else np.sort(rng.choice(alive, n, replace=False))

    def spaced(self, n: int) -> np.ndarray:
        """At most `n` rows of positive weight, evenly spaced among them."""
        return spread_rows(self.weight, n)

    def part(self, index: np.ndarray) -> Sample:
        """These rows alone, on the plan's device."""
        where = torch.as_tensor(index, device=self.plan.device)
        block = self.rows.take(index).to(self.plan.device, self.plan.dtype)
        return Sample(TensorRows(block), self.Y[where], self.weight[where], self.plan)
