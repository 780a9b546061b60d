"""The posterior of the latent function: its means and (co)variances at new rows.

A variance is the part that the inducing inputs leave unexplained plus a sum of squares, so it is never negative.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mercer.data import RowSource
from mercer.engine import KernelMatrix, Plan, each_block
from mercer.engine.plan import Sample
from mercer.kernels import Kernel


@dataclass(frozen=True)
class Posterior:
    """mean = K w; covariance = [K_** − (K E)(K E)ᵀ] + Σ (K H_c)(K H_c')ᵀ, with K = k(new rows, basis).

    `weights` w is m × p. `explained` E is None for a degenerate prior, whose new rows have no variance of their own.
    `scatter` H is c × m × r: one slice that all outputs share, one per class under a joint likelihood, or None.
    """

    basis: Tensor
    weights: Tensor
    explained: Tensor | None
    scatter: Tensor | None

    def moments(self, kernel: Kernel, rows: RowSource, plan: Plan, variances: bool = True) -> tuple[Tensor, Tensor]:
        """Means (n × p) and covariances between the outputs of a row (n × c × c), in float64, by blocks."""
        dtype, device = plan.dtype, plan.device
        if not variances:  # one product, fused if kernel and device allow
            Z, w, _, _ = self._beside(torch.empty(0, device=device, dtype=dtype))
            mean = KernelMatrix(rows, kernel, Z, plan).product(w).double()
            return mean, mean.new_empty(0)
        n, q = rows.n_rows, 1 if self.scatter is None else self.scatter.shape[0]
        mean = torch.empty(n, self.weights.shape[1], dtype=torch.float64, device=device)
        cov = torch.zeros(n, q, q, dtype=torch.float64, device=device)
        Z, w, E, H = self._beside(torch.empty(0, device=device, dtype=dtype))
        columns = kernel.columns(Z).specialise(n)

        def visit(where: slice, block: Tensor) -> None:
            K = columns(block)
            here = K @ w
            cov[where] = self._variances(kernel, block, K, E, H, q)
            mean[where] = here.double()

        each_block(rows, plan, plan.panel_rows(len(self.basis)), visit)
        return mean, cov

    def _beside(self, X: Tensor) -> list[Any]:
        """Basis, weights, E and H as tensors on the device of `X` and in its precision."""
        parts = (self.basis, self.weights, self.explained, self.scatter)
        return [None if part is None else torch.as_tensor(part).to(X) for part in parts]

    @staticmethod
    def _variances(kernel: Kernel, block: Tensor, K: Tensor, E: Tensor | None, H: Tensor | None, q: int) -> Tensor:
        out = torch.zeros(len(block), q, q, dtype=torch.float64, device=block.device)
        if E is not None:
            rest = kernel.diag(block).double() - (K @ E).square().sum(1, dtype=torch.float64)
            out += rest.clamp(min=0)[:, None, None] * torch.eye(q, dtype=torch.float64, device=block.device)
        if H is not None:
            G = torch.einsum("nm,cmr->ncr", K, H)
            out += (G @ G.transpose(1, 2)).double()
        return out

    def covariance(self, kernel: Kernel, X: Tensor) -> Tensor:
        """Covariance of the latent function between the rows of `X` (n × n), shared by all outputs, in float64."""
        X = X.double()
        Z, _, E, H = self._beside(X)
        K = kernel(X, Z)
        out = torch.zeros(len(X), len(X), dtype=torch.float64, device=X.device)
        if E is not None:
            G = K @ E
            out += kernel(X, X) - G @ G.T
        if H is not None:
            G = K @ H[0]
            out += G @ G.T
        return 0.5 * (out + out.T)


def draw(mean: Tensor, covariance: Tensor, n_samples: int, generator: torch.Generator) -> Tensor:
    """Samples (n_samples × n × p) of a Gaussian whose outputs share one covariance; negative eigenvalues count as 0."""
    values, vectors = torch.linalg.eigh(covariance)
    root = vectors * values.clamp(min=0).sqrt()
    normal = torch.randn(n_samples, *mean.shape, generator=generator, dtype=torch.float64).to(mean)
    return mean + root @ normal


def log_density(posterior: Posterior, kernel: Kernel, noise: float, data: Sample) -> float:
    """Log density, up to a constant, of the targets of unseen rows, each by itself."""
    mean, cov = posterior.moments(kernel, data.rows, data.plan)
    variance = cov[:, 0] + (noise if data.noise is None else (noise + data.noise)[:, None])
    return -0.5 * float((data.weight[:, None] * (variance.log() + (data.Y - mean).square() / variance)).sum())
