"""Whitening: coordinates in which the basis vectors' kernel matrix is the identity.

Least squares on whitened columns K_Nm B has the condition number of the data, not its square times
that of the kernel matrix; this module makes B, the engine forms K_Nm block by block. Small eigenvalues are
uncertain by rounding. Three remedies are here: they are dropped (`spectral_map`), lifted (`lifted`, which is
smooth in the kernel's parameters), or left alone where a factor proves that there are none (`whitening`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from mercer.linalg.cholesky import EPS, cholesky, require_finite
from mercer.parts import require

#: Up to this many basis vectors the eigenvalues of an ill-conditioned Q are cheap.
SPECTRAL_SIZE = 600


def whitening(Q_mm: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """An m × r map B in float64 with BᵀQB = I, for basis vectors of kernel matrix Q and tiles of precision `dtype`.

    Where the condition number is safely below 1/tol, B is the inverse transposed Cholesky factor
    (upper triangular, r = m). Otherwise B = U Λ^{-1/2} from the eigenvalues above tol times the largest,
    or, for more than `SPECTRAL_SIZE` basis vectors, whose eigenvalues would cost more than all the rest, the
    triangular map of Q + tol·trace(Q)·I: what the one drops the other shrinks.

    Here tol is eps of `dtype`, but at least m eps of float64. A tile's entry of size κ is
    rounded by eps κ, and the coordinate of eigenvalue λ magnifies this to eps κ / √λ, while its own
    size over the basis vectors is √(λ/m). They meet at λ = eps κ √m; with the largest eigenvalue near
    mκ, tol = eps keeps the signal √m above the noise. In float64 the eigenvalues themselves are
    only known to about m eps of the largest.

    >>> Q = torch.tensor([[4.0, 2.0], [2.0, 5.0]])
    >>> B = whitening(Q)
    >>> (B.T @ Q.double() @ B).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    >>> whitening(torch.ones(3, 3)).shape
    torch.Size([3, 1])
    """
    require(Q_mm.ndim == 2 and Q_mm.shape[0] == Q_mm.shape[1], "Q_mm", "square", tuple(Q_mm.shape))
    require_finite(Q_mm, "the kernel matrix between basis vectors")
    tol = max(torch.finfo(dtype).eps, Q_mm.shape[0] * EPS)
    Q = Q_mm.double()
    B = _triangular_map(Q, tol)
    if B is None and Q.shape[0] <= SPECTRAL_SIZE:
        require_positive_eigenvalue(bool(Q.any()), 0.0, Q.shape[0])
        B, kept = spectral_map(Q, tol=tol)
        return B[:, : int(kept)]
    # the ridge lifts every eigenvalue above its rounding
    return inverse_factor(lifted(Q, tol * Q.shape[0])) if B is None else B


def lifted(Q: Tensor, share: float) -> Tensor:
    """Q with `share` of its mean diagonal added to the diagonal."""
    out = Q.clone()
    out.diagonal().add_(share * Q.diagonal().mean())
    return out


def inverse_factor(Q: Tensor) -> Tensor:
    """L^{-T} of Q = LLᵀ in float64, upper triangular; `cholesky` says what becomes of a Q that is not positive."""
    L, _ = cholesky(Q)
    identity = torch.eye(Q.shape[0], dtype=L.dtype, device=L.device)
    return torch.linalg.solve_triangular(L, identity, upper=False).T.contiguous()


def spectral_map(
    K: Tensor, rank: int | None = None, tol: float | None = None, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """U Λ^{-1/2} of kernel matrices (… × p × p), largest eigenvalues first, and how many columns to keep (…).

    Eigenvalues above `tol` times the largest are kept (by default eps of `dtype`, at least p eps of float64: what is
    smaller is not known), the largest `rank` of them at most. Columns that are not kept are zero; rows and columns of
    zeros in K change nothing. One column of zeros is kept of a matrix of zeros, such as that of the linear kernel
    between rows at the origin.
    """
    require_finite(K, "the kernel matrix between basis vectors")
    values, vectors = torch.linalg.eigh((K + K.mT) / 2)
    p, rounding = K.shape[-1], K.shape[-1] * EPS
    largest, size = values[..., -1:], values.abs().amax(-1, keepdim=True)
    hopeless = bool(((largest <= rounding * size) & (size > 0)).any())
    require_positive_eigenvalue(not hopeless, largest, p)
    tol = max(torch.finfo(dtype).eps, rounding) if tol is None else tol
    values, vectors = values.flip(-1), vectors.flip(-1)
    keep = values > tol * largest
    keep[..., rank if rank is not None else p :] = False
    scale = torch.where(keep, values, 1.0).rsqrt() * keep
    return vectors * scale.unsqueeze(-2), keep.sum(-1).clamp(min=1)


def require_positive_eigenvalue(good: bool, largest: Tensor | float, p: int) -> None:
    if not good:
        raise ValueError(
            f"the kernel matrix between {p} basis vectors must have a positive eigenvalue, the largest is "
            f"{float(torch.as_tensor(largest).min()):.3g}; take more rows or another kernel"
        )


def _triangular_map(Q: Tensor, tol: float) -> Tensor | None:
    """L^{-T} of Q = LLᵀ, or None where the condition number may exceed 1/tol.

    ‖L⁻¹‖²_F is the trace of Q⁻¹, so that times ‖Q‖_F bounds the condition number, at the cost of a
    factor of at most m^{3/2}, without eigenvalues.
    """
    L, info = torch.linalg.cholesky_ex(Q)
    if int(info):
        return None
    identity = torch.eye(Q.shape[0], dtype=Q.dtype, device=Q.device)
    inverse = torch.linalg.solve_triangular(L, identity, upper=False)
    bound = inverse.square().sum() * torch.linalg.matrix_norm(Q)
    return inverse.T.contiguous() if bool(bound * tol <= 1) else None
