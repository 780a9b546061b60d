"""What an ensemble on empirical kernels would say of its rows without them, by their leverages."""

from __future__ import annotations

import numpy as np
import torch

from mercer.border.intervals import Intervals
from mercer.border.left_out import leverages
from mercer.border.local_scale import fit_local_scale
from mercer.data import spread_rows
from mercer.empirical.ensemble import Ensemble
from mercer.empirical.problem import Table

#: Rows that are asked at most.
ASKED_ROWS = 2000


def left_out_intervals(ensemble: Ensemble, table: Table, Y: np.ndarray, c: float) -> Intervals:
    """Residuals of some rows as if each had been left out; random members have like leverages, so one stands for all.

    Fitted to the mean of M functions of penalty c each, a member is a ridge regression on all their kernel values with
    penalty cM, which its coupling changes little.
    """
    some = spread_rows(table.weight, ASKED_ROWS)
    part, first = table.part(some), ensemble.machines[0][0]
    values = ensemble.values(part.rows, part.plan)
    X = part.rows.take(np.arange(len(some))).to(part.plan.device).double()
    Z = first.basis.to(X)
    tiles = [(kernel(X, Z), kernel(Z, Z)) for kernel in first.kernels]
    penalty = torch.block_diag(*(c * len(tiles) * square for _, square in tiles))
    weight = torch.as_tensor(part.weight, device=X.device)
    share = len(some) / max(int((table.weight > 0).sum()), 1)
    left = 1 - leverages(torch.cat([tile for tile, _ in tiles], 1), weight, penalty, share).cpu().numpy()
    residuals = (Y[some] - values) / left[:, None]
    local, scale = fit_local_scale(X.cpu().numpy(), values, residuals, part.weight)
    return Intervals.of(residuals / scale, part.weight, local)
