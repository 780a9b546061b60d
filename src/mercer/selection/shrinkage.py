"""How far rows that chose something may be believed to gain by it: what is best on them is partly luck."""

from __future__ import annotations

from torch import Tensor


def believed(gain: Tensor, weight: Tensor, luck: Tensor | None = None) -> float:
    """The factor on values whose `gain` over the constant is known of some rows: 1 − ½ (standard error / gain)².

    The slope of the truth on these values is known up to half of the gain's relative error e/g, so this is James and
    Stein's 1 − (p − 2)/z² for z = 2g/e and the p = 4 things that the rows have chosen: inputs as they are seen, family,
    length-scale, penalty. Of a gain far below its standard error nothing is left. Heavy tails make the error large: a
    few rows that happened to be hit are no reason to predict anything. The standard error is that of `luck`, the part
    of the gain that residuals make; all of it by default.

    >>> import torch
    >>> [believed(torch.tensor(gain), torch.ones(4)) for gain in ([1.0, 1.0, 1.0, 1.0], [-1.0, 2.0, -2.0, 2.0])]
    [1.0, 0.0]
    """
    share = weight / weight.sum()
    mean = (share * gain).sum()
    luck = gain if luck is None else luck
    error = (share.square() * (luck - (share * luck).sum()).square()).sum()
    return float((1 - 0.5 * error / mean.square()).clamp(min=0)) if mean > 0 else 0.0
