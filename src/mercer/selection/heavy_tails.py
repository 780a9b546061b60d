"""Whether bending heavy-tailed columns pays: held-out rows decide, since evidence on few rows is fooled by tails."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.data import Bend
from mercer.linalg import cholesky
from mercer.selection.tune import tune_kernel

#: Rows looked at, half of them held out; fewer than `FEWEST` decide nothing.
ROWS, FEWEST = 2000, 100
#: The error must fall by at least this share.
GAIN = 0.02


def bending_pays(X: Tensor, Y: Tensor, weight: Tensor, bend: Bend, device: Any = "auto") -> bool:
    """Whether kernel ridge on one half of the rows predicts the other half better from bent columns.

    >>> from mercer.data import find_bend
    >>> X = torch.randn(300, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64).mul(3).exp()
    >>> weight = torch.ones(300)
    >>> [bending_pays(X, Y, weight, find_bend(X, weight)) for Y in (X.log1p(), X)]
    [True, False]
    """
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(X))[:ROWS])
    if len(order) < FEWEST:
        return False
    X, Y, w = X[order].double(), Y[order].double(), weight[order].double()
    straight, bent = (_held_out(rows, Y, w, device) for rows in (X, bend(X)))
    return bent < (1 - GAIN) * straight


def _held_out(X: Tensor, Y: Tensor, w: Tensor, device: Any) -> float:
    """Squared error on the second half, from an isotropic Matérn kernel tuned on some of the first."""
    half, share = len(X) // 2, (w / w.sum())[:, None]
    centred = X - (share * X).sum(0)
    spread = (share * centred.square()).sum(0).sqrt()
    X = centred / spread.where(spread > 0, 1.0)
    first, second = slice(0, half), slice(half, len(X))
    options: dict[str, Any] = {"n_rows": 400, "ard": False, "max_iter": 15, "tol": 1e-6, "device": device}
    tuned = tune_kernel(X[first], Y[first], "matern32", sample_weight=w[first].numpy(), random_state=0, **options)
    K = tuned.kernel(X[first], X[first]) + torch.diag(tuned.noise / w[first])
    mean = (w[first, None] * Y[first]).sum(0) / w[first].sum()
    f = tuned.kernel(X[second], X[first]) @ torch.cholesky_solve(Y[first] - mean, cholesky(K)[0]) + mean
    return float((w[second, None] * (f - Y[second]).square()).sum())
