"""Rows of largest conditional variance: the pivots of a Cholesky factor (Fine and Scheinberg 2001)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor


def pivoted_rows(kernel: Callable[[Tensor, Tensor], Tensor], diagonal: Tensor, X: Tensor, m: int) -> np.ndarray:
    """Indices of m rows, each the one of largest variance given those before it.

    This is the greedy choice of inducing inputs of Burt, Rasmussen and van der Wilk (2020). It costs O(nm²). Fewer rows
    are returned if they determine all others.

    >>> X = torch.tensor([[0.0], [0.1], [3.0], [3.1], [5.0]])
    >>> gaussian = lambda X, Z: (-0.5 * (X - Z.T) ** 2).exp()
    >>> pivoted_rows(gaussian, torch.ones(5), X, 3).tolist()
    [0, 4, 2]
    """
    rest, least = diagonal.clone(), 10 * torch.finfo(diagonal.dtype).eps * float(diagonal.max())
    factor = diagonal.new_zeros(m, len(X))
    chosen: list[int] = []
    for j in range(m):
        i = int(rest.argmax())
        if not float(rest[i]) > least:
            break
        row = kernel(X[i : i + 1], X)[0] - factor[:j, i] @ factor[:j]
        factor[j] = row / rest[i].sqrt()
        rest = (rest - factor[j].square()).clamp(min=0)
        rest[i] = 0.0
        chosen.append(i)
    return np.array(chosen, dtype=int)
