"""Small kernel ridge regression: dual coefficients, leave-one-out values, held-out values.

The objective is Σ w (y − f)² + λ ‖f‖², so the dual coefficients solve (K + λ/w) α = y.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mercer.data.row_groups import Split
from mercer.linalg import cholesky, solve_factored

#: Penalty below which a solution in single precision is refined once.
REFINED_BELOW = 1e-3


def dual_coefficients(K: Tensor, Y: Tensor, weight: Tensor, lam: float) -> Tensor | None:
    """Solve (K + λ/w) α = Y; None where rounding leaves no positive definite matrix.

    A matrix in single precision is factored in it, or in double precision where that fails. Small penalties get one
    step of iterative refinement.

    >>> dual_coefficients(torch.eye(2), torch.tensor([[2.0], [4.0]]), torch.ones(2), 1.0).tolist()
    [[1.0], [2.0]]
    """
    diagonal, ridge = K.diagonal().clone(), lam / weight
    K.diagonal().add_(ridge)  # in place: a copy of K would take a tenth of the time of its factor
    factor, info = torch.linalg.cholesky_ex(K)
    if int(info) and K.dtype == torch.float32:
        factor, info = torch.linalg.cholesky_ex(K.double())
    K.diagonal().copy_(diagonal)
    if int(info):
        return None
    alpha = solve_factored(factor, Y.to(factor))
    if lam >= REFINED_BELOW or factor.dtype == torch.float64:
        return alpha
    residual = torch.addcmul(Y - K.double() @ alpha.double(), ridge[:, None], alpha.double(), value=-1)
    return alpha.double() + solve_factored(factor, residual.to(factor)).double()


def held_out_values(K: Tensor, K_score: Tensor, Y: Tensor, weight: Tensor, lam: float) -> Tensor:
    """Values at held-out rows of kernel ridge on targets centred by their weighted mean, in double precision.

    `K_score` holds kernel values from held-out rows to fit rows. The factor gets a jitter if rounding calls for one.

    >>> K, Y = torch.eye(2, dtype=torch.float64), torch.tensor([[1.0], [3.0]], dtype=torch.float64)
    >>> held_out_values(K, K[:1], Y, torch.ones(2, dtype=torch.float64), 1.0).tolist()
    [[1.5]]
    """
    mean = (weight[:, None] * Y).sum(0) / weight.sum()
    factor, _ = cholesky(K + torch.diag(lam / weight))
    return K_score @ solve_factored(factor, Y - mean) + mean


def leave_one_out_path(K: Tensor, Y: Tensor, weight: Tensor, penalties: Tensor, splits: Sequence[Split] = ()) -> Tensor:
    """Leave-one-out values for every penalty, L × n × p, from one eigendecomposition.

    The model without row i predicts y − α/C at row i, with C the inverse of K + λ/w and α = C y. With `splits` several
    rows F are left out together, where the values are y − α/C with the blocks of these rows; other rows have NaN.

    >>> Y = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    >>> leave_one_out_path(torch.eye(2, dtype=torch.float64), Y, torch.ones(2), torch.tensor([0.1])).abs().sum().item()
    0.0
    """
    root = weight.to(K).sqrt()[:, None]
    spectrum, Q = torch.linalg.eigh(K * root * root.T)
    inverse = 1 / (spectrum.clamp(min=0) + penalties.to(K)[:, None])  # L × n
    rotated = Q.T @ (root * Y)
    dual = Q @ (inverse[:, :, None] * rotated)
    if splits:
        values = torch.full_like(dual, torch.nan)
        for split in splits:
            out = torch.as_tensor(split.left_out, device=K.device)
            scored = torch.as_tensor(split.scored, device=K.device)
            errors = torch.zeros_like(dual)
            errors[:, out] = torch.linalg.solve((Q[out] * inverse[:, None]) @ Q[out].T, dual[:, out]) / root[out]
            values[:, scored] = Y[scored] - errors[:, scored]
        return values
    diagonal = Q.square() @ inverse.T
    return Y - dual / (diagonal.T[:, :, None] * root)
