"""Whitening: coordinates in which the basis vectors' kernel matrix is the identity.

Least squares on whitened columns K_Nm B has the condition number of the data, not its square times
that of the kernel matrix; this module makes B, the engine forms K_Nm block by block.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mercer.linalg.cholesky import EPS, require_finite
from mercer.parts import require

#: Up to this many basis vectors the eigenvalues of an ill-conditioned Q are cheap.
SPECTRAL_SIZE = 600


@dataclass(frozen=True)
class Whitening:
    """An m×r map B with BᵀQB = I; make one with `whitening`.

    >>> import torch
    >>> from mercer.linalg import whitening
    >>> whitening(torch.eye(3)).rank
    3
    """

    map: Tensor
    tile_map: Tensor

    @property
    def rank(self) -> int:
        """The number r of whitened coordinates."""
        return self.map.shape[1]

    def apply(self, K_block: Tensor) -> Tensor:
        """The whitened rows K B, in the precision of the block."""
        return K_block @ self.tile_map.to(K_block)

    def back(self, w: Tensor) -> Tensor:
        """The weights B w of the basis vectors, in float64, from those of the whitened coordinates."""
        return self.map @ w.to(self.map)


def whitening(Q_mm: Tensor, tol: float | None = None, dtype: torch.dtype = torch.float64) -> Whitening:
    """Whitening of the kernel matrix between basis vectors, for tiles of precision `dtype`.

    Where the condition number is safely below 1/`tol`, B is the inverse transposed Cholesky factor
    (upper triangular, r = m). Otherwise B = U Λ^{-1/2} from the eigenvalues above `tol` times the largest,
    or, for more than `SPECTRAL_SIZE` basis vectors, whose eigenvalues would cost more than all the rest, the
    triangular map of Q + `tol`·trace(Q)·I: what the one drops the other shrinks.

    The default `tol` is eps of `dtype`, but at least m eps of float64. A tile's entry of size κ is
    rounded by eps κ, and the coordinate of eigenvalue λ magnifies this to eps κ / √λ, while its own
    size over the basis vectors is √(λ/m). They meet at λ = eps κ √m; with the largest eigenvalue near
    mκ, `tol` = eps keeps the signal √m above the noise. In float64 the eigenvalues themselves are
    only known to about m eps of the largest.

    >>> import torch
    >>> from mercer.linalg import whitening
    >>> Q = torch.tensor([[4.0, 2.0], [2.0, 5.0]])
    >>> B = whitening(Q).map
    >>> (B.T @ Q.double() @ B).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    >>> whitening(torch.ones(3, 3)).rank
    1
    """
    require(Q_mm.ndim == 2 and Q_mm.shape[0] == Q_mm.shape[1], "Q_mm", "square", tuple(Q_mm.shape))
    require_finite(Q_mm, "the kernel matrix between basis vectors")
    if tol is None:
        tol = max(torch.finfo(dtype).eps, Q_mm.shape[0] * EPS)
    Q = Q_mm.double()
    B = _triangular_map(Q, tol)
    if B is None and Q.shape[0] <= SPECTRAL_SIZE:
        B = _spectral_map(Q, tol)
    elif B is None:
        ridge = Q.diagonal().mean() * (tol * Q.shape[0])
        B = _triangular_map(Q + ridge * torch.eye(Q.shape[0], dtype=Q.dtype, device=Q.device), 0.0)
        assert B is not None  # the ridge lifts every eigenvalue above its rounding
    return Whitening(B, B.to(dtype))


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


def _spectral_map(Q: Tensor, tol: float) -> Tensor:
    """U Λ^{-1/2} over the eigenvalues above `tol` times the largest, largest first."""
    values, vectors = torch.linalg.eigh(Q)
    if not float(values[-1]) > 0:
        raise ValueError(
            "the kernel matrix between basis vectors must have a positive eigenvalue, "
            f"the largest is {float(values[-1]):.3g}"
        )
    kept = values > tol * values[-1]
    return (vectors[:, kept] / values[kept].sqrt()).flip(1)
