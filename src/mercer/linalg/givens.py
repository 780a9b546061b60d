"""Givens rotations: an upper triangle loses a column, and what was factored with it follows."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

# Rotations gathered into one matrix product: enough to leave the memory-bound regime, while the
# product's cost (about twice this number per entry) stays small.
ROTATIONS_PER_PRODUCT = 32


def drop_column(R: Tensor, j: int) -> tuple[Tensor, np.ndarray]:
    """The m × m triangle `R` without column j, triangular again, and the cosines and sines that made it so.

    Without its column j the matrix has one entry below each diagonal from j on. The rotation of rows
    k and k + 1 removes it, for k = j, …, m − 2; the last row is then zero and is dropped. The diagonal stays
    positive where it was.

    >>> import torch
    >>> drop_column(torch.tensor([[1.0, 3.0], [0.0, 4.0]]), 0)[0].tolist()
    [[5.0]]
    """
    m = R.shape[0]
    kept = torch.cat([R[:, :j], R[:, j + 1 :]], 1)
    rest = kept.cpu().numpy()  # one small host loop; a launch per rotation would be slower on any device
    rotations = np.empty((m - 1 - j, 2))
    for k in range(j, m - 1):
        c, s = rotations[k - j] = rest[k : k + 2, k] / np.hypot(rest[k, k], rest[k + 1, k])
        rest[k : k + 2, k:] = np.array([[c, s], [-s, c]]) @ rest[k : k + 2, k:]
        rest[k + 1, k] = 0.0
    return torch.from_numpy(rest[:-1]).to(R), rotations


def rotate_rows(rows: Tensor, rotations: np.ndarray) -> None:
    """Apply the rotations of `drop_column` to the rows of a matrix in place, a few dozen at a time."""
    for first in range(0, len(rotations), ROTATIONS_PER_PRODUCT):
        batch = rotations[first : first + ROTATIONS_PER_PRODUCT]
        G = np.eye(len(batch) + 1)
        for i, (c, s) in enumerate(batch):
            G[i : i + 2] = np.array([[c, s], [-s, c]]) @ G[i : i + 2]
        some = rows[first : first + len(G)]
        some.copy_(torch.from_numpy(G).to(rows) @ some)
