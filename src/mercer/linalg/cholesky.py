"""Cholesky factors in float64, with a jitter ladder.

Matrices are symmetric and only their lower triangle counts. Whether a large jitter deserves a
warning is the caller's business: the functions here return it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mercer.parts import require

EPS = torch.finfo(torch.float64).eps
# m·eps of float32 at m = 10⁵ rows: what is still not positive then is not rounding.
LARGEST_JITTER = 1e-2


def require_finite(A: Tensor, name: str) -> None:
    """Refuse NaN and infinite values before they spread (a sum sees them, ten times faster than a mask)."""
    if not bool(A.sum(dtype=torch.float64).isfinite()):
        raise ValueError(f"{name} holds a NaN or infinite value, so no factor of it exists")


def cholesky(A: Tensor) -> tuple[Tensor, float]:
    """Lower factor of a positive semi-definite `A` in float64, and the jitter it needed.

    The jitter is relative to the mean of the diagonal: 0.0 where `A` could be factored as it is, else
    the first of 1e-15, 1e-14, … that succeeds; a matrix of zeros takes it as an absolute number.
    Gradients flow through the factor. While launches are recorded into a CUDA graph nobody can look at numbers: a
    factor that fails there is NaN.

    >>> import torch
    >>> from mercer.linalg import cholesky
    >>> factor, jitter = cholesky(torch.tensor([[4.0, 2.0], [2.0, 5.0]]))
    >>> factor.tolist(), jitter
    ([[2.0, 0.0], [1.0, 2.0]], 0.0)
    """
    require(A.ndim == 2 and A.shape[0] == A.shape[1], "the matrix to factor", "square", tuple(A.shape))
    if A.is_cuda and torch.cuda.is_current_stream_capturing():
        factor, info = torch.linalg.cholesky_ex(A.double())
        return torch.where(info == 0, factor, torch.nan), 0.0
    require_finite(A, "the matrix to factor")
    A = A.double()
    factor, info = torch.linalg.cholesky_ex(A)
    if not int(info):
        return factor, 0.0
    diagonal = A.detach().diagonal()
    mean, lowest = float(diagonal.mean()), float(diagonal.min())
    if lowest < -LARGEST_JITTER * max(mean, 0.0):
        raise ValueError(f"the matrix to factor has the negative value {lowest:.3g} on its diagonal")
    scale = mean if mean > 1e-290 else 1.0  # a smaller mean times the jitter would underflow
    identity = torch.eye(A.shape[0], dtype=A.dtype, device=A.device)
    jitter = 1e-15
    while jitter <= LARGEST_JITTER * 1.01:  # 1e-15 · 10ⁿ is rounded
        factor, info = torch.linalg.cholesky_ex(A + jitter * scale * identity)
        if not int(info):
            return factor, jitter
        jitter *= 10
    raise ValueError(
        f"the matrix to factor is not positive semi-definite up to rounding: adding {LARGEST_JITTER:g} "
        "of its mean diagonal to the diagonal does not make it so"
    )


def inverse_diagonal(L: Tensor, panel: int = 256) -> Tensor:
    """The diagonal of (LLᵀ)⁻¹: sums of squares of the columns of L⁻¹, which are made panel by panel.

    >>> import torch
    >>> from mercer.linalg import inverse_diagonal
    >>> inverse_diagonal(torch.tensor([[2.0, 0.0], [1.0, 2.0]])).tolist()
    [0.3125, 0.25]
    """
    out = L.new_empty(len(L))
    for start in range(0, len(L), panel):
        rest = L[start:, start:]  # what stands above is zero in these columns of L⁻¹
        columns = torch.eye(len(rest), min(panel, len(rest)), dtype=L.dtype, device=L.device)
        out[start : start + panel] = torch.linalg.solve_triangular(rest, columns, upper=False).square().sum(0)
    return out


def solve_lower(factor: Tensor, r: Tensor) -> Tensor:
    """L⁻ᵀL⁻¹ r in the precision of the lower factor L; unit columns keep float32 from underflow."""
    scale = r.abs().amax(0).clamp(min=torch.finfo(r.dtype).tiny)
    return torch.cholesky_solve((r / scale).to(factor.dtype), factor).double() * scale
