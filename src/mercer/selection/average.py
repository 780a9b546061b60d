"""Greedy averaging with replacement (Caruana et al. 2004): which of several predictors to average, in what shares."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mercer.selection.closed_form import Judge
from mercer.selection.constants import DRAWS, GAIN, MEMBERS


def greedy_average(values: Sequence[Tensor], judge: Judge) -> tuple[list[float], float]:
    """Shares of values at rows that were not fitted, the best first, and the average's loss.

    Each draw takes what lowers the loss of the average most, until a draw gains too little to be more than luck.

    >>> import torch
    >>> from mercer.selection.average import greedy_average
    >>> from mercer.selection.closed_form import Judge
    >>> y = torch.tensor([[1.0], [-1.0], [2.0], [-2.0]])
    >>> shift = torch.full_like(y, 0.5)
    >>> greedy_average([y + shift, y - shift, 0 * y], Judge(y, torch.ones(4)))
    ([0.5, 0.5, 0.0], 0.0)
    """
    counts = [1] + [0] * (len(values) - 1)
    total, best = values[0].clone(), float(judge(values[0][None])[0])
    for draw in range(2, DRAWS + 1):
        losses = judge(torch.stack([(total + value) / draw for value in values]))
        k = int(losses.argmin())
        size = sum(count > 0 for count in counts) + (counts[k] == 0)
        if not float(losses[k]) < best * (1 - GAIN / draw) or size > MEMBERS:
            break
        counts[k] += 1
        total, best = total + values[k], float(losses[k])
    return [count / sum(counts) for count in counts], best
