"""Training data of algorithms: rows, targets, weights and the plan, in one record."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor

from mercer.data import RowSource, TensorRows
from mercer.data.row_groups import RowGroups
from mercer.engine.plan import Plan


def generator(random_state: Any) -> np.random.Generator:
    """A random generator from a seed or None; a `RandomState` that is passed in advances."""
    return np.random.default_rng(check_random_state(random_state).randint(2**31))


@dataclass(frozen=True)
class Sample:
    """Rows, targets (n × p; float64 unless `in_tiles`), weights and the plan.

    Rows of weight zero have no influence; `alive`, `draw` and `spaced` never name them.

    >>> from mercer.engine import Sample, make_plan
    >>> X = torch.arange(6.0)[:, None]
    >>> sample = Sample(TensorRows(X), X.double(), torch.tensor([1.0, 0, 1, 1, 1, 1]), make_plan(6, device="cpu"))
    >>> sample.alive.tolist(), sample.spaced(3).tolist(), len(sample.draw(2, np.random.default_rng(0)))
    ([0, 2, 3, 4, 5], [0, 3, 5], 2)
    >>> sample.part(sample.spaced(3)).Y[:, 0].tolist()
    [0.0, 3.0, 5.0]
    """

    rows: RowSource
    Y: Tensor
    weight: Tensor
    plan: Plan
    #: A group number for each column; columns of one group, such as the levels of a category, share a length-scale.
    groups: np.ndarray | None = None
    #: Weights of the held-out rows, whose `weight` is zero; one each if None.
    validation_weight: Tensor | None = None
    #: Rows that every split keeps together.
    row_groups: RowGroups | None = None
    #: Known noise variance of each row, on top of the one that all rows share.
    noise: Tensor | None = None

    @property
    def n_rows(self) -> int:
        return self.rows.n_rows

    @property
    def n_total(self) -> int:
        """The number of rows of all processes."""
        return self.rows.shard.length(self.n_rows)

    @cached_property
    def total_weight(self) -> float:
        """The sum of the weights, of all processes."""
        return float(self.rows.total(self.weight.sum(dtype=torch.float64)))

    @cached_property
    def mean_weight(self) -> float:
        """The mean weight of rows of positive weight."""
        return self.total_weight / self.n_alive

    @property
    def n_alive(self) -> int:
        """The number of rows of positive weight, of all processes."""
        return self.rows.shard.count(self.weight > 0)

    @property
    def alive(self) -> np.ndarray:
        """Indices of the rows of positive weight, in order, of this process."""
        return np.flatnonzero(self.weight.detach().cpu().numpy() > 0)

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Indices of at most `n` rows of positive weight, drawn uniformly, in order."""
        return self.rows.shard.draw(self.weight.detach() > 0, n, rng).cpu().numpy()

    def spaced(self, n: int) -> np.ndarray:
        """Indices of at most `n` rows of positive weight, evenly spaced among them, in order."""
        return self.rows.shard.spaced(self.weight.detach() > 0, n).cpu().numpy()

    def part(self, index: Any) -> Sample:
        """The rows of these indices, in this order, on the plan's device; the same on every process."""
        where = torch.as_tensor(index, device=self.plan.device)
        block = self.rows.fetch(index).to(self.plan.device, self.plan.dtype)
        Y, weight = self.rows.pick(self.Y.T, where).T.contiguous(), self.rows.pick(self.weight, where)
        noise = None if self.noise is None else self.rows.pick(self.noise, where)
        together = self._together(where)
        return Sample(TensorRows(block), Y, weight, self.plan, self.groups, row_groups=together, noise=noise)

    def here(self, places: Tensor) -> Sample:
        """The sample restricted to these local rows of this process, in order; other processes keep theirs."""
        rows = TensorRows(self.rows.take(places), self.rows.shard.part(places))
        held_out = None if self.validation_weight is None else self.validation_weight[places]
        return replace(
            self,
            rows=rows,
            Y=self.Y[places],
            weight=self.weight[places],
            validation_weight=held_out,
            row_groups=self._together(places),
            noise=None if self.noise is None else self.noise[places],
        )

    def _together(self, index: Tensor) -> RowGroups | None:
        return None if self.row_groups is None else self.row_groups.take(index.cpu().numpy())

    def in_tiles(self, plan: Plan) -> Sample:
        """The sample with targets and weights on the plan's device, in the precision of its tiles."""
        Y, weight = (part.to(plan.device, plan.dtype) for part in (self.Y, self.weight))
        held_out = None if self.validation_weight is None else self.validation_weight.to(plan.device, plan.dtype)
        return replace(self, Y=Y, weight=weight, plan=plan, validation_weight=held_out)
