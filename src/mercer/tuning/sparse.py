"""The evidence of a sparse model, with its gradient in the kernel, the noise and the basis vectors themselves.

The bound of Titsias (2009): the likelihood under the low-rank covariance Q = K_nm K_mm⁻¹ K_mn, less what
the basis vectors leave unexplained. Never n × n, never n × m: two passes over blocks of rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from mercer.engine import Plan, each_block
from mercer.kernels import Kernel
from mercer.linalg import cholesky
from mercer.sources import RowSource

#: Added to the diagonal of K_mm, relative to its mean: tiles are float32, and the basis vectors may meet.
JITTER = 1e-6


@dataclass(frozen=True)
class SparseEvidence:
    """The bound and its gradients."""

    value: float
    by_parameter: dict[str, Tensor]
    by_noise: float
    by_basis: Tensor


def sparse_evidence(
    kernel: Kernel, noise: float, basis: Tensor, rows: RowSource, Y: Tensor, plan: Plan
) -> SparseEvidence:
    r"""Bound on the log marginal likelihood of targets `Y` (n × p, outputs independent) and its gradient.

    With L the factor of K_mm, A = K_nm L⁻ᵀ, S = AᵀA and b = AᵀY,

    .. math:: -\tfrac{np}2\log 2\pi\sigma^2 - \tfrac p2\log|I + S/\sigma^2| - \tfrac{\|Y\|^2}{2\sigma^2}
        + \tfrac1{2\sigma^4} b^\top (I + S/\sigma^2)^{-1} b
        - \tfrac p{2\sigma^2}(\operatorname{tr} K_{nn} - \operatorname{tr} S) .

    The first pass sums S, b and tr K_nn; the second pulls their gradients back through the tiles.

    >>> import torch
    >>> from mercer.engine import make_plan
    >>> from mercer.kernels import Gaussian
    >>> from mercer.sources import TensorRows
    >>> X = torch.linspace(-3, 3, 50, dtype=torch.float64)[:, None]
    >>> rows, plan = TensorRows(X), make_plan(50, device="cpu")
    >>> all_rows = sparse_evidence(Gaussian(), 0.1, X, rows, X.sin(), plan).value
    >>> few = sparse_evidence(Gaussian(), 0.1, X[::10], rows, X.sin(), plan).value
    >>> few < all_rows
    True
    """
    n, p, m = rows.n_rows, Y.shape[1], basis.shape[0]
    names, values = list(kernel.tunable()), list(kernel.tunable().values())
    K_mm, pull_mm = kernel.traced(basis.double(), basis.double())
    eye = torch.eye(m, dtype=torch.float64, device=basis.device)
    K_mm = (K_mm + JITTER * K_mm.diagonal().mean() * eye).requires_grad_()
    with torch.enable_grad():
        L, _ = cholesky(K_mm)
        P = torch.linalg.solve_triangular(L, eye, upper=False).T  # L⁻ᵀ
    tile_map = P.detach().to(plan.dtype)
    columns = kernel.columns(basis)

    S, b = torch.zeros_like(eye), torch.zeros(m, p, dtype=torch.float64, device=basis.device)
    trace = torch.zeros((), dtype=torch.float64, device=basis.device)

    def gather(where: slice, block: Tensor) -> None:
        A = columns(block) @ tile_map
        square, down = A.T @ A, A.T @ Y[where].to(A.dtype)
        S.add_(square)
        b.add_(down)
        trace.add_(kernel.diag(block).sum())

    each_block(rows, plan, plan.panel_rows(m), gather)
    value, (by_S, by_b, by_trace, by_noise) = _bound(S, b, trace, noise, n, p, float(Y.double().square().sum()))

    twice_S = (by_S + by_S.T).to(plan.dtype)
    by_b, by_P = by_b.to(plan.dtype), torch.zeros_like(eye)
    by_values = [torch.zeros(torch.as_tensor(v).shape, dtype=torch.float64, device=basis.device) for v in values]
    by_basis = torch.zeros(basis.shape, dtype=torch.float64, device=basis.device)

    def spread(where: slice, block: Tensor) -> None:
        with torch.enable_grad():
            leaves = [
                torch.as_tensor(v, dtype=block.dtype, device=block.device).clone().requires_grad_() for v in values
            ]
            Z = basis.detach().clone().requires_grad_()
            bound = kernel.replaced(dict(zip(names, leaves, strict=True)))
            tile, diagonal = bound(block, Z), bound.diag(block)
        K = tile.detach()
        by_A = (K @ tile_map) @ twice_S + Y[where].to(K.dtype) @ by_b.T
        outputs, weights = [tile], [by_A @ tile_map.T]
        if diagonal.requires_grad:
            outputs, weights = [tile, diagonal], [*weights, torch.full_like(diagonal, float(by_trace))]
        grads = torch.autograd.grad(outputs, [*leaves, Z], weights, allow_unused=True, materialize_grads=True)
        down = K.T @ by_A
        for total, grad in zip(by_values, grads[:-1], strict=True):
            total.add_(grad)
        by_basis.add_(grads[-1])
        by_P.add_(down)

    each_block(rows, plan, plan.traced_rows(m), spread)
    (by_K_mm,) = torch.autograd.grad(P, K_mm, by_P)
    inner, left, right = pull_mm(by_K_mm)
    by_parameter = {
        name: total + inner[name].reshape(total.shape) for name, total in zip(names, by_values, strict=True)
    }
    return SparseEvidence(float(value), by_parameter, float(by_noise), by_basis + left + right)


def _bound(
    S: Tensor, b: Tensor, trace: Tensor, noise: float, n: int, p: int, square: float
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The bound as a function of its few statistics, and its gradient in S, b, tr K_nn and σ²."""
    with torch.enable_grad():
        leaves = [t.detach().clone().requires_grad_() for t in (S, b, trace, torch.tensor(noise, dtype=S.dtype).to(S))]
        S, b, trace, s2 = leaves
        B = torch.eye(S.shape[0], dtype=S.dtype, device=S.device) + S / s2
        L, _ = cholesky(B)
        c = torch.linalg.solve_triangular(L, b, upper=False) / s2
        value = (
            -0.5 * n * p * torch.log(2 * math.pi * s2)
            - p * L.diagonal().log().sum()
            - 0.5 * square / s2
            + 0.5 * c.square().sum()
            - 0.5 * p * (trace - S.diagonal().sum()) / s2
        )
    return value.detach(), torch.autograd.grad(value, leaves)


def refine_basis(
    kernel: Kernel,
    noise: float,
    basis: Tensor,
    rows: RowSource,
    Y: Tensor,
    plan: Plan,
    *,
    max_iter: int = 50,
    callback: Any = None,
) -> tuple[Kernel, float, Tensor, float]:
    """Move kernel, noise and basis vectors together uphill on `sparse_evidence` by L-BFGS.

    Returns the kernel, the noise variance, the basis vectors and the bound reached.
    """
    shapes = {name: np.shape(value) for name, value in kernel.tunable().items()}
    start = [np.atleast_1d(np.asarray(value, dtype=float)).ravel() for value in kernel.tunable().values()]
    edges = np.cumsum([v.size for v in start])
    n_log = int(edges[-1]) + 1 if start else 1
    spread = basis.double().std(0).clamp(min=1e-12).cpu().numpy()
    theta = np.concatenate(
        [np.log(np.concatenate([*start, [noise]]).clip(1e-12)), (basis.double().cpu().numpy() / spread).ravel()]
    )

    def at(theta: np.ndarray) -> tuple[Kernel, float, Tensor]:
        pieces = np.split(np.exp(theta[: n_log - 1]), edges[:-1]) if start else []
        new = {name: piece.reshape(shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)}
        Z = torch.as_tensor(theta[n_log:].reshape(basis.shape) * spread, device=plan.device, dtype=plan.dtype)
        plain = {name: v.item() if v.ndim == 0 else v.tolist() for name, v in new.items()}
        return kernel.replaced(plain), math.exp(theta[n_log - 1]), Z

    def negative(theta: np.ndarray) -> tuple[float, np.ndarray]:
        here, s2, Z = at(theta)
        found = sparse_evidence(here, s2, Z, rows, Y, plan)
        logs = [found.by_parameter[name].reshape(-1).cpu().numpy() for name in shapes]
        by_log = np.concatenate([*logs, [found.by_noise]]) * np.exp(theta[:n_log])
        by_Z = (found.by_basis.cpu().numpy() * spread).ravel()
        return -found.value, -np.concatenate([by_log, by_Z])

    bounds = [(t - 7, t + 7) for t in theta[:n_log]] + [(None, None)] * basis.numel()
    options = {"maxiter": max_iter, "ftol": 1e-9, "maxcor": 20}
    done = minimize(
        negative,
        theta,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options=options,
        callback=callback and (lambda t: callback(*at(t))),
    )
    return *at(done.x), -float(done.fun)
