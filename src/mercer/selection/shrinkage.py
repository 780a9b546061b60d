"""How far a gain measured on the rows that made a choice is to be trusted."""

from __future__ import annotations

from torch import Tensor


def shrinkage_factor(gain: Tensor, weight: Tensor, noise_part: Tensor | None = None) -> float:
    """The factor on values whose `gain` over the constant was measured: 1 − ½ (standard error / gain)².

    The candidate that is best on some rows is best partly by chance. The slope of the truth on its values is known up
    to half of the gain's relative error e/g, so this is James and Stein's 1 − (p − 2)/z² for z = 2g/e and the p = 4
    choices made on these rows: input map, family, length-scale, penalty. A gain far below its standard error leaves
    nothing. The standard error is that of `noise_part`, or of the whole gain by default.

    >>> import torch
    >>> [shrinkage_factor(torch.tensor(g), torch.ones(4)) for g in ([1.0, 1.0, 1.0, 1.0], [-1.0, 2.0, -2.0, 2.0])]
    [1.0, 0.0]
    """
    share = weight / weight.sum()
    mean = (share * gain).sum()
    noise = gain if noise_part is None else noise_part
    error = (share.square() * (noise - (share * noise).sum()).square()).sum()
    return float((1 - 0.5 * error / mean.square()).clamp(min=0)) if mean > 0 else 0.0
