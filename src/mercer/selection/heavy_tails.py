"""Test whether bending heavy-tailed columns lowers the held-out error; the evidence of few rows is misled by tails."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.data import Bend
from mercer.data.row_groups import RowGroups
from mercer.selection.ridge import held_out_values
from mercer.selection.tune import tune_kernel

#: Rows of the test at most, half of them held out, and at least.
ROWS, FEWEST_ROWS = 2000, 100
#: Least share by which the error must fall.
GAIN = 0.02


def bending_pays(
    X: Tensor, Y: Tensor, weight: Tensor, bend: Bend, device: Any = "auto", row_groups: RowGroups | None = None
) -> bool:
    """Whether kernel ridge on one half of the rows predicts the other half better from bent columns.

    >>> from mercer.data import find_bend
    >>> X = torch.randn(300, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64).mul(3).exp()
    >>> weight = torch.ones(300)
    >>> [bending_pays(X, Y, weight, find_bend(X, weight)) for Y in (X.log1p(), X)]
    [True, False]
    """
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(X))[:ROWS])
    if len(order) < FEWEST_ROWS:
        return False
    half = len(order) // 2
    if row_groups is not None:
        split = row_groups.take(order.numpy()).splits(1)[0]
        fitted = np.delete(np.arange(len(order)), split.left_out)
        order, half = order[np.concatenate([fitted, split.scored])], len(fitted)
    X, Y, w = X[order].double(), Y[order].double(), weight[order].double()
    return _held_out_error(bend(X), Y, w, half, device) < (1 - GAIN) * _held_out_error(X, Y, w, half, device)


def _held_out_error(X: Tensor, Y: Tensor, w: Tensor, half: int, device: Any) -> float:
    """Squared error on the rows from `half` on, of an isotropic Matérn kernel tuned on the rows before."""
    share = (w / w.sum())[:, None]
    centred = X - (share * X).sum(0)
    spread = (share * centred.square()).sum(0).sqrt()
    X = centred / spread.where(spread > 0, 1.0)
    first, second = slice(0, half), slice(half, len(X))
    options: dict[str, Any] = {"n_rows": 400, "ard": False, "max_iter": 15, "tol": 1e-6, "device": device}
    tuned = tune_kernel(X[first], Y[first], "matern32", sample_weight=w[first].numpy(), random_state=0, **options)
    K, K_score = tuned.kernel(X[first], X[first]), tuned.kernel(X[second], X[first])
    f = held_out_values(K, K_score, Y[first], w[first], tuned.noise)
    return float((w[second, None] * (f - Y[second]).square()).sum())
