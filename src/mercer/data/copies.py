"""How many equal rows a weight stands for.

Equal rows are merged into one with their number as its weight. To leave a row out is to leave one of them out: without
all of them nothing is left but the rows that differ, and of a table with few different rows these are the contrary.
"""

from __future__ import annotations

import torch
from torch import Tensor

#: How far from a whole number a ratio of weights may be by rounding.
NEAR = 1e-6


def copies(weight: Tensor) -> Tensor:
    """The number of rows that each positive weight stands for: of the least, where all are multiples of it; else one.

    >>> import torch
    >>> from mercer.data.copies import copies
    >>> copies(torch.tensor([0.5, 1.5, 0.0, 0.5])).tolist(), copies(torch.tensor([0.5, 0.8])).tolist()
    ([1.0, 3.0, 1.0, 1.0], [1.0, 1.0])
    """
    weight = weight.double()
    one = torch.ones_like(weight)
    alive = weight > 0
    if not bool(alive.any()):
        return one
    times = torch.where(alive, weight / weight[alive].min(), one)
    counts = times.round()
    return counts if bool(((times - counts).abs() <= NEAR * times).all()) else one
