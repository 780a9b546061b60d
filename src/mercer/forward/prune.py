"""Backward pruning: drop the basis vectors that later ones made useless, by the criterion that stopped the fit."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mercer.forward.stopping import description_length, information_criterion


def prune(R: Tensor, weights: Tensor, residual2: float, n_rows: float, criterion: str) -> tuple[Tensor, Tensor]:
    r"""Which functions stay, and their weights, dropping one at a time while the criterion falls.

    With A = RᵀR the normal matrix and x its optimal weights, leaving function j out raises the objective
    by :math:`x_j^2 / 2[A^{-1}]_{jj}` and moves the others by :math:`-x_j A^{-1}_{\cdot j}/[A^{-1}]_{jj}`. The
    criterion is "mdl" or "aic" (Greedy02 eq. 10 and 11); with a penalty in the RKHS the rise of the objective
    stands for that of ½rᵀr.

    >>> import torch
    >>> R = torch.eye(2, dtype=torch.float64)
    >>> kept, weights = prune(R, torch.tensor([[3.0], [1e-6]], dtype=torch.float64), 1.0, 100, "mdl")
    >>> kept.tolist()
    [0]
    """
    kept = torch.arange(R.shape[0], device=R.device)
    inverse = torch.linalg.solve_triangular(R, torch.eye(len(R), dtype=R.dtype, device=R.device), upper=True)
    C, x = inverse @ inverse.T, weights.clone()
    price = description_length if criterion == "mdl" else information_criterion
    cost = price(math.sqrt(residual2), len(kept), n_rows)
    while len(kept) > 1:
        rise = x.square().sum(1) / C.diagonal()
        j = int(rise.argmin())
        after = residual2 + float(rise[j])
        new_cost = price(math.sqrt(after), len(kept) - 1, n_rows)
        if new_cost > cost:
            break
        keep = torch.arange(len(kept), device=R.device) != j
        column = C[:, j] / C[j, j]
        x = (x - column[:, None] * x[j])[keep]
        C = (C - column[:, None] * C[j])[keep][:, keep]
        kept, residual2, cost = kept[keep], after, new_cost
    return kept, x
