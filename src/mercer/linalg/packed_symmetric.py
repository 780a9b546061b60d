"""Products of which half is known to be zero or twice the same: triangular factors and symmetric Gram matrices.

Torch has no such products. Panels of columns leave out what need not be made: of 500 columns a third of the work.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

#: Columns of a panel: fewer are no faster a product each, more leave less out.
PANEL = 128


def times_upper(A: Tensor, U: Tensor) -> Tensor:
    """A U for an upper triangular U: a panel of columns needs the rows of U down to its own.

    >>> times_upper(torch.ones(1, 2), torch.tensor([[1.0, 2.0], [0.0, 3.0]])).tolist()
    [[1.0, 5.0]]
    """
    return _by_panels(A, U, lambda own: slice(own.stop))


def times_lower(A: Tensor, L: Tensor) -> Tensor:
    """A L for a lower triangular L: a panel of columns needs the rows of L from its own on.

    >>> times_lower(torch.ones(1, 2), torch.tensor([[1.0, 0.0], [2.0, 3.0]])).tolist()
    [[3.0, 3.0]]
    """
    return _by_panels(A, L, lambda own: slice(own.start, None))


def upper_gram(A: Tensor, weight: Tensor) -> Tensor:
    """Aᵀ diag(weight) A, of which the upper triangle counts: `mirrored` makes a sum of them whole.

    >>> mirrored(upper_gram(torch.tensor([[1.0, 2.0]]), torch.tensor([3.0]))).tolist()
    [[3.0, 6.0], [6.0, 12.0]]
    """
    return upper_product(A, A * weight[:, None])


def upper_product(A: Tensor, B: Tensor) -> Tensor:
    """AᵀB where that is symmetric, of which the upper triangle counts."""
    if _direct(A):
        return A.T @ B
    out = A.new_zeros(A.shape[1], A.shape[1])
    for own in _panels(A.shape[1]):
        torch.mm(A[:, : own.stop].T, B[:, own], out=out[: own.stop, own])
    return out


def mirrored(U: Tensor) -> Tensor:
    """The symmetric matrix with this upper triangle."""
    return U.triu() + U.triu(1).T


def _by_panels(A: Tensor, T: Tensor, needed: Callable[[slice], slice]) -> Tensor:
    """A T, panel by panel of T's columns; `needed` are the rows of T that are not zero in a panel."""
    if _direct(A):
        return A @ T
    out = A.new_empty(A.shape[0], T.shape[1])
    for own in _panels(T.shape[1]):
        rows = needed(own)
        torch.mm(A[:, rows], T[rows, own], out=out[:, own])
    return out


def _direct(A: Tensor) -> bool:
    """Whether one product is as good: one panel holds all columns, or calls cost more than they leave out."""
    return A.shape[1] <= PANEL or A.device.type != "cpu"


def _panels(m: int) -> list[slice]:
    return [slice(start, min(start + PANEL, m)) for start in range(0, m, PANEL)]
