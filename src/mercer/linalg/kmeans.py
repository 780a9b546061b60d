"""Rows far from each other, drawn by k-means++ (Arthur and Vassilvitskii 2007)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mercer.linalg.distances import exact_distances
from mercer.parts import require

#: Candidates drawn at once.
CANDIDATES = 32


def spread_out(
    X: Tensor,
    m: int,
    rng: np.random.Generator,
    weight: Tensor | None = None,
    distinct: bool = False,
) -> np.ndarray:
    """Indices of m rows by k-means++: each new one with probability in proportion to its squared distance to them.

    A row of weight w counts as w rows, one of weight zero is never taken. Where all rows left are copies of those
    taken, random ones follow, or none if the rows must be `distinct`. Candidates are drawn together by the distances
    as they stand, and one after the other is taken with the probability to which the rows taken meanwhile have shrunk
    its own: the same draws as one by one, in few passes.
    """
    w = X.new_ones(len(X), dtype=torch.float64) if weight is None else weight.double()
    alive = w.nonzero()[:, 0].cpu().numpy()
    require(distinct or m <= len(alive), "m", f"at most the {len(alive)} rows of positive weight", m)
    chosen = _draw(w, rng, 1).tolist()
    nearest = exact_distances(X, X[chosen]).square()[:, 0]
    while len(chosen) < m:
        chance = nearest * w
        if not bool((chance > 0).any()):  # all others are copies of those chosen
            left = np.setdiff1d(alive, chosen)
            further = [] if distinct else rng.choice(left, m - len(chosen), replace=False).tolist()
            return np.array(chosen + further)
        index = _draw(chance, rng, CANDIDATES)
        before, apart = nearest[index].cpu().numpy(), exact_distances(X[index], X[index]).square().cpu().numpy()
        taken: list[int] = []
        for j, chance_left in enumerate(rng.uniform(size=CANDIDATES)):
            if chance_left * before[j] < min(before[j], *apart[j, taken], np.inf):
                taken.append(j)
        new = index[taken[: m - len(chosen)]]
        chosen += new.tolist()
        if len(new):
            nearest = torch.minimum(nearest, exact_distances(X, X[new]).square().amin(1))
    return np.array(chosen)


def _draw(chance: Tensor, rng: np.random.Generator, n: int) -> Tensor:
    """n rows, each with probability in proportion to `chance`; never one of chance zero."""
    heap = chance.cumsum(0, dtype=torch.float64)
    draws = torch.as_tensor(rng.uniform(size=n), device=heap.device)
    last = chance.nonzero()[-1, 0]  # rounding may leave a draw at the very end of the heap
    return torch.minimum(torch.searchsorted(heap, draws * heap[-1], right=True), last)
