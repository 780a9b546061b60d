"""How coarsely columns were written down: a density of integers must not stand on single values.

The likelihood of a density has no bound where many rows share a value: a component that narrows onto it gains without
end, and of integers there remain walls, one for each value, which say little about classes. A value written in
steps of h stands for an interval of width h. Its own Gaussian, of variance h²/12, gives the points of that interval a
mean log density of −½ log(2πe h²/12); a component on the single value gets no more than that from a variance of
e h²/12, the least that is allowed. One wide Gaussian and a wall for each of equally frequent values are then equally
likely.
"""

from __future__ import annotations

from math import e

import torch
from torch import Tensor

from mercer.engine import Sample
from mercer.mixture.em import columns

#: Rows from which steps are read.
STEP_ROWS = 10_000
#: How far from integers of steps gaps may be, for their rounding: of values that know no steps none is so near.
OFF = 1e-3


def rounding_variance(sample: Sample) -> Tensor:
    """e h²/12 of each column whose values are integers of steps h apart; 0 of others."""
    few = sample.rows.fetch(sample.rows.shard.spaced(sample.weight > 0, STEP_ROWS))
    steps = torch.tensor([_step(column.unique()) for column in columns(few)], dtype=torch.float64)
    return steps.square().mul_(e / 12).to(sample.plan.device)


def _step(values: Tensor) -> float:
    """The least gap between neighbours, where all gaps are integers of it.

    >>> _step(torch.tensor([1.0, 1.5, 3.0])), _step(torch.tensor([1.0, 1.5, 2.7]))
    (0.5, 0.0)
    """
    if len(values) < 2:
        return 0.0
    gaps = values.diff()
    counts = gaps / gaps.min()
    return float(gaps.min()) if bool(((counts - counts.round()).abs() < OFF).all()) else 0.0
