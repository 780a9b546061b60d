"""Rows far from each other, drawn by k-means++ (Arthur and Vassilvitskii 2007)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

#: Candidates drawn at once.
CANDIDATES = 32


def spread_out(X: Tensor, m: int, rng: Any) -> np.ndarray:
    """Indices of m rows by k-means++: each new one with probability in proportion to its squared distance to them.

    Candidates are drawn together by the distances as they stand, and one after the other is taken with the
    probability to which the rows taken meanwhile have shrunk its own: the same draws as one by one, in few passes.

    >>> import numpy as np
    >>> import torch
    >>> from mercer.linalg.kmeans import spread_out
    >>> X = torch.tensor([[0.0], [0.1], [5.0], [5.1], [9.0]])
    >>> sorted(X[spread_out(X, 3, np.random.RandomState(0)), 0].round().tolist())
    [0.0, 5.0, 9.0]
    """
    chosen = [int(rng.randint(len(X)))]
    nearest = _square_distances(X, X[chosen])[:, 0]
    while len(chosen) < m:
        heap = nearest.cumsum(0, dtype=torch.float64)
        total = float(heap[-1])
        if not total > 0:  # all others are copies of those chosen
            left = np.setdiff1d(np.arange(len(X)), chosen)
            return np.concatenate([chosen, rng.choice(left, m - len(chosen), replace=False)])
        draws = torch.as_tensor(rng.uniform(size=CANDIDATES), device=X.device)
        index = torch.searchsorted(heap, draws * total).clamp(max=len(X) - 1)
        before, apart = nearest[index].cpu().numpy(), _square_distances(X[index], X[index]).cpu().numpy()
        taken: list[int] = []
        for j, chance in enumerate(rng.uniform(size=CANDIDATES)):
            if chance * before[j] < min(before[j], *apart[j, taken], np.inf):
                taken.append(j)
        new = index[taken[: m - len(chosen)]]
        chosen += new.tolist()
        if len(new):
            nearest = torch.minimum(nearest, _square_distances(X, X[new]).amin(1))
    return np.array(chosen)


def _square_distances(X: Tensor, Z: Tensor) -> Tensor:
    """Exactly zero between equal rows."""
    return torch.cdist(X, Z, compute_mode="donot_use_mm_for_euclid_dist").square()
