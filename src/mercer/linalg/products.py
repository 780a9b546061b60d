"""Matrix products of which half is enough."""

from __future__ import annotations

import torch
from torch import Tensor


def upper_product(A: Tensor, B: Tensor, panel: int = 768) -> Tensor:
    """AᵀB on and above the diagonal, by panels of columns, which saves nearly half the work; below it may be anything.

    >>> upper_product(torch.eye(2), torch.ones(2, 2), panel=1).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    r = A.shape[1]
    if r <= panel:
        return A.T @ B
    out = A.new_zeros(r, r)
    for j in range(0, r, panel):
        torch.mm(A[:, j : j + panel].T, B[:, j:], out=out[j : j + panel, j:])
    return out


def mirrored(upper: Tensor) -> Tensor:
    """The symmetric matrix of these entries on and above the diagonal, in their place.

    >>> mirrored(torch.tensor([[1.0, 2.0], [9.0, 3.0]])).tolist()
    [[1.0, 2.0], [2.0, 3.0]]
    """
    upper.triu_()
    return upper.add_(upper.triu(1).T)
