"""Slow and obvious Gaussian processes: dense covariances, repeated rows, textbook formulas, no blocks."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def low_rank(kernel, X: Tensor, Z: Tensor, jitter: float = 1e-10) -> Tensor:
    """Q = K_xz K_zz⁻¹ K_zx, with the package's jitter."""
    K_zz, K_xz = kernel(Z, Z), kernel(X, Z)
    K_zz = K_zz + jitter * K_zz.diagonal().mean() * torch.eye(len(Z), dtype=torch.float64)
    return K_xz @ torch.linalg.solve(K_zz, K_xz.T)


def prior(kernel, X: Tensor, Z: Tensor, alpha: float) -> Tensor:
    Q = low_rank(kernel, X, Z)
    return Q + alpha * torch.diag(kernel.diag(X) - Q.diagonal())


def log_normal(Y: Tensor, C: Tensor) -> Tensor:
    """Σ over columns of log N(y; 0, C)."""
    quadratic = (Y * torch.linalg.solve(C, Y)).sum()
    return -0.5 * (quadratic + Y.shape[1] * (torch.logdet(C) + len(C) * math.log(2 * math.pi)))


def sparse_evidence(kernel, noise, X: Tensor, Y: Tensor, Z: Tensor, alpha: float, bound: bool) -> Tensor:
    """`noise` is one number, or one for each row."""
    noise = torch.as_tensor(noise).expand(len(X))
    value = log_normal(Y, prior(kernel, X, Z, alpha) + torch.diag(noise))
    if bound:
        rest = kernel.diag(X) - low_rank(kernel, X, Z).diagonal()
        value = value - 0.5 * Y.shape[1] * (rest / noise).sum()
    return value


def sparse_prediction(
    kernel, noise, X: Tensor, Y: Tensor, Z: Tensor, new: Tensor, alpha: float, degenerate: bool
) -> tuple[Tensor, Tensor]:
    """Mean and covariance of the table in section 5 of the thesis' fourth chapter."""
    both = low_rank(kernel, torch.cat([X, new]), Z)
    n = len(X)
    C = prior(kernel, X, Z, alpha) + noise * torch.eye(n, dtype=torch.float64)
    across = both[n:, :n]
    own = both[n:, n:] if degenerate else kernel(new, new)
    return across @ torch.linalg.solve(C, Y), own - across @ torch.linalg.solve(C, across.T)


def laplace(C: Tensor, y: Tensor, loss, n_newton: int = 25) -> tuple[Tensor, Tensor, Tensor]:
    """Evidence, mode (n × p) and stacked W (pn × pn) of classes under a dense covariance C that classes share."""
    n, p = y.shape
    big = torch.block_diag(*[C] * p)
    eye = torch.eye(n * p, dtype=torch.float64)
    f = torch.zeros_like(y)
    for _ in range(n_newton):
        W, slope = stacked(loss.hessian(y, f)), loss.residual(y, f).T.reshape(-1)
        b = W @ f.T.reshape(-1) + slope
        a = b - W @ torch.linalg.solve(eye + big @ W, big @ b)
        f = (big @ a).reshape(p, n).T
    W = stacked(loss.hessian(y, f))
    value = -loss.value(y, f).sum() - 0.5 * a @ (big @ a) - 0.5 * torch.linalg.slogdet(eye + big @ W)[1]
    return value, f, W


def stacked(W: Tensor) -> Tensor:
    """Row blocks (n × p × p) as one matrix over classes and rows (pn × pn)."""
    n, p, _ = W.shape
    out = torch.zeros(p, n, p, n, dtype=torch.float64)
    rows = torch.arange(n)
    for c in range(p):
        for e in range(p):
            out[c, rows, e, rows] = W[:, c, e]
    return out.reshape(p * n, p * n)
