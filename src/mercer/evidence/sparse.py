"""The evidence of every sparse regression in one formula, with its gradient by two passes over blocks of rows.

No n × n matrix is made, and an n × m matrix only if the plan keeps it. `mercer.evidence.optimise` searches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mercer.engine.plan import Sample
from mercer.evidence.approximations import Approximation
from mercer.evidence.coordinates import Gradient
from mercer.evidence.inducing import Inducing, Weights, unexplained
from mercer.evidence.posterior import Posterior
from mercer.kernels import Kernel
from mercer.linalg import cholesky


@dataclass(frozen=True)
class Statistics:
    """Sums over rows in whitened coordinates: S = AᵀDA, b = AᵀDY, and the scalars of the evidence."""

    S: Tensor
    b: Tensor
    square: Tensor  # Σ D |y|²
    log_noise: Tensor  # Σ w log λ
    unexplained: Tensor  # Σ w (k − q) / (σ² + s)


@dataclass(frozen=True)
class Noise:
    """Noise of a row given the inducing inputs: λ = σ² + s + α (k − q), s its `known` part, and D = w / λ."""

    variance: Any
    alpha: float
    weight: Tensor
    diagonal: Tensor
    known: Tensor | None = None

    def rest(self, where: slice, A: Tensor) -> Tensor:
        """k − q of these rows, in float64."""
        return unexplained(self.diagonal[where], A)

    def own(self, where: slice) -> Any:
        """σ² + s of these rows."""
        return self.variance if self.known is None else self.variance + self.known[where]

    def of(self, where: slice, rest: Tensor) -> Tensor:
        return self.own(where) + self.alpha * rest


def statistics(system: Inducing, noise: Noise, Y: Tensor) -> Statistics:
    """One pass over the rows."""
    m, p, device = system.m, Y.shape[1], system.plan.device
    S, b = torch.zeros_like(system.eye), torch.zeros(m, p, dtype=torch.float64, device=device)
    scalars = torch.zeros(3, dtype=torch.float64, device=device)

    def gather(where: slice, A: Tensor) -> None:
        w, y = noise.weight[where], Y[where].double()
        rest = noise.rest(where, A)
        lam = noise.of(where, rest)
        D = w / lam
        gram, down = A.T @ (A * D.to(A.dtype)[:, None]), A.T @ (D[:, None] * y).to(A.dtype)
        sums = torch.stack(
            [(D[:, None] * y.square()).sum(), (w * lam.log()).sum(), (w / noise.own(where) * rest).sum()]
        )
        S.add_(gram)
        b.add_(down)
        scalars.add_(sums)

    system.each(gather)
    S, b, scalars = system.rows.shard.group.sums(S, b, scalars)
    return Statistics(S, b, *scalars.unbind())


def sparse_evidence(
    kernel: Kernel, noise: float, basis: Tensor, data: Sample, approximation: Approximation, inputs: bool = True
) -> Gradient:
    r"""Log evidence of targets Y (n × p, outputs independent) under a sparse prior, and its gradient.

    With A = K_nm L⁻ᵀ, λ_n = σ² + α(k_nn − q_nn), D = w/λ, S = AᵀDA and b = AᵀDY,

    .. math:: -\tfrac p2 \sum_n w_n \log 2\pi\lambda_n - \tfrac p2\log|I + S| - \tfrac12\sum_n D_n |y_n|^2
        + \tfrac12 b^\top (I + S)^{-1} b \;\Big[ - \tfrac p{2\sigma^2} \sum_n w_n (k_{nn} - q_{nn}) \Big] .

    α = 0 is the evidence of SR and PP, α = 1 that of SPGP; the term in brackets makes it Titsias' bound. A row of
    weight w counts as w copies of itself, each with a k − q of its own. Rows of known noise s have σ² + s for σ².
    """
    return evidence_on_device(kernel, noise, basis, data, approximation, inputs).on_host()


def evidence_on_device(
    kernel: Kernel, noise: Any, basis: Tensor, data: Sample, approximation: Approximation, inputs: bool = True
) -> Gradient:
    """`sparse_evidence` as tensors; the kernel's parameters and the noise may be tensors too."""
    system, model, found = _gathered(kernel, noise, basis, data, approximation, uses=2)
    p, bound = data.Y.shape[1], float(approximation.bound)
    w_sum = data.rows.total(model.weight.sum())
    L_B, _ = cholesky(system.eye + found.S)
    c = torch.cholesky_solve(found.b, L_B)
    value = _value(found, w_sum, L_B, c, bound)
    inverse = torch.cholesky_inverse(L_B)  # (I + S)⁻¹
    if approximation.alpha == 0 and data.noise is None:
        by_S = -0.5 * (p * inverse + c @ c.T)
        by_parameter, by_basis = _pull_projected(system, model, found, inverse, c, data.Y, bound, inputs)
        # only D and the first sum hold the noise: ∂/∂σ² = −(1/σ²) [ tr(S ∂S) + tr(bᵀc) − ½ Σ D y² + ½ p Σ w ]
        by_noise = -((found.S * by_S).sum() + (found.b * c).sum() - 0.5 * found.square + 0.5 * p * w_sum) / noise
        by_noise = by_noise + 0.5 * bound * p * found.unexplained / noise
    else:
        by_parameter, by_basis, by_noise = _pull_pseudo(system, model, inverse, c, data.Y, bound, inputs)
    return Gradient(value, by_parameter, by_noise, by_basis)


def _value(found: Statistics, w_sum: Tensor, L_B: Tensor, c: Tensor, bound: float) -> Tensor:
    p = c.shape[1]
    return (
        -0.5 * p * (w_sum * math.log(2 * math.pi) + found.log_noise)
        - p * L_B.diagonal().log().sum()
        - 0.5 * found.square
        + 0.5 * (found.b * c).sum()
        - 0.5 * bound * p * found.unexplained
    )


def _pull_projected(
    system: Inducing, model: Noise, found: Statistics, inverse: Tensor, c: Tensor, Y: Tensor, bound: float, inputs: bool
) -> tuple[dict[str, Tensor], Tensor]:
    """α = 0: D does not depend on the tile, so the derivative in A is D (A M + r cᵀ), known but for products with P.

    M is p (β I − B⁻¹), and r = y − A c are the residuals: y cᵀ and A c cᵀ cancel but for them.
    """
    p, dtype = Y.shape[1], system.plan.dtype
    M = p * (bound * system.eye - inverse)
    c_tile, outer = c.to(dtype), (system.P @ c).T.to(dtype)
    back = (M @ system.P.T).to(dtype)

    def weigh(where: slice, A: Tensor) -> Weights:
        D = model.weight[where] / model.variance
        residual = (Y[where] - A @ c_tile).to(dtype)
        return Weights((A @ back).addmm_(residual, outer).mul_(D.to(dtype)[:, None]), -0.5 * bound * p * D)

    known = _explained(system, inverse, c) + bound * p * found.S
    return system.pull_back(weigh, known, inputs, whole=True)


def _pull_pseudo(
    system: Inducing, model: Noise, inverse: Tensor, c: Tensor, Y: Tensor, bound: float, inputs: bool
) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """α > 0, or rows of known noise: every row has its own λ."""
    p, dtype = Y.shape[1], system.plan.dtype
    shrink, c_tile = (-p * inverse).to(dtype), c.to(dtype)
    by_noise = torch.zeros((), dtype=torch.float64, device=system.plan.device)

    def weigh(where: slice, A: Tensor) -> Weights:
        w, rest = model.weight[where], model.rest(where, A)
        lam = model.of(where, rest)
        by_A, residual = A @ shrink, Y[where].double() - (A @ c_tile).double()
        # ∂/∂D = −½ p aᵀB⁻¹a − ½ |y − cᵀa|², and D = w / λ
        by_D = 0.5 * ((by_A * A).sum(1).double() - residual.square().sum(1))
        by_lam = -w * (by_D / lam + 0.5 * p) / lam
        paid = 0.5 * bound * p * w / model.own(where)  # the bound's price of k − q
        by_noise.add_((by_lam + paid * rest / model.own(where)).sum())
        by_rest = model.alpha * by_lam - paid
        by_square = (-2 * by_rest).to(dtype)
        by_A = by_A.addmm_(residual.to(dtype), c_tile.T).mul_((w / lam).to(dtype)[:, None])
        by_A.addcmul_(A, by_square[:, None])
        return Weights(system.back(by_A), by_rest, A.T @ (A * by_square[:, None]))

    by_parameter, by_basis = system.pull_back(weigh, _explained(system, inverse, c), inputs)
    return by_parameter, by_basis, system.rows.total(by_noise)


def _explained(system: Inducing, inverse: Tensor, c: Tensor) -> Tensor:
    """Aᵀ D (−p A B⁻¹ + r cᵀ) without a pass over the rows: S B⁻¹ = I − B⁻¹, and b − S c = c."""
    return c @ c.T - c.shape[1] * (system.eye - inverse)


def _gathered(
    kernel: Kernel, noise: Any, basis: Tensor, data: Sample, approximation: Approximation, uses: int = 1
) -> tuple[Inducing, Noise, Statistics]:
    system = Inducing(data.rows, kernel, basis, data.plan, uses)
    model = Noise(noise, approximation.alpha, data.weight.double(), system.diagonal(), data.noise)
    return system, model, statistics(system, model, data.Y)


def sparse_posterior(
    kernel: Kernel, noise: float, basis: Tensor, data: Sample, approximation: Approximation
) -> tuple[Posterior, float]:
    """The posterior of a sparse regression and the evidence: whitened weights u ~ N((I + S)⁻¹b, (I + S)⁻¹)."""
    system, model, found = _gathered(kernel, noise, basis, data, approximation)
    L_B, _ = cholesky(system.eye + found.S)
    u = torch.cholesky_solve(found.b, L_B)
    scatter = torch.linalg.solve_triangular(L_B, system.P.T, upper=False).T  # P L_B⁻ᵀ
    value = _value(found, data.rows.total(model.weight.sum()), L_B, u, float(approximation.bound))
    explained = None if approximation.degenerate else system.P
    return Posterior(system.basis, system.P @ u, explained, scatter[None]), float(value)


def exact_posterior(kernel: Kernel, noise: float | Tensor, X: Tensor, Y: Tensor, weight: Tensor) -> Posterior:
    """The posterior of the full model on rows `X`, whose noise is σ²/w: (K + σ²W⁻¹)⁻¹ in one factor.

    `noise` may be a number for each row.
    """
    exact = X.double()
    L, _ = cholesky(kernel(exact, exact) + torch.diag(noise / weight.double()))
    eye = torch.eye(len(X), dtype=torch.float64, device=X.device)
    explained = torch.linalg.solve_triangular(L, eye, upper=False).T.contiguous()
    return Posterior(X, torch.cholesky_solve(Y.double(), L), explained=explained, scatter=None)
