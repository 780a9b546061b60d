"""What is fitted on top of fixed gates: output weights of two-step NRBF models, and shares of classes.

The activations of a row are p(j | x), the normalised basis functions of eq. 2.4.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from mercer.engine import each_block
from mercer.linalg import cholesky, minimize_newton
from mercer.mixture.class_experts import indicators
from mercer.mixture.em import Mixture, Sample, columns, posterior

Statistic = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, ...]]


def reduce_activations(sample: Sample, mixture: Mixture, statistic: Statistic) -> list[Tensor]:
    """Sums over rows of the tensors that ``statistic(A, x, y, w)`` returns for a block's activations A (k × n)."""
    log_gates = mixture.log_gates()
    totals: list[Tensor] = []

    def visit(where: slice, block: Tensor) -> None:
        x = columns(block)
        A, _ = posterior(log_gates(x))
        new = statistic(A, x, sample.y[:, where], sample.weight[where])
        if not totals:
            totals.extend(torch.zeros_like(value) for value in new)
        for total, value in zip(totals, new, strict=True):
            total.add_(value)

    each_block(sample.rows, sample.plan, mixture.block_rows(sample.plan), visit)
    return [sample.rows.total(value) for value in totals]


def local_inputs(x: Tensor, linear: bool) -> Tensor:
    """What a local model is a linear form of: 1, or [1; x] (q × n)."""
    one = torch.ones_like(x[:1])
    return torch.cat([one, x]) if linear else one


def least_squares(sample: Sample, mixture: Mixture, ridge: float, linear: bool = False) -> Tensor:
    """Output weights (k × q × p): ŵ = (ΦᵀΦ + λI)⁻¹Φᵀy, the second step of two-step training (section 2.2.1).

    The columns of Φ are the activations, or with `linear` the activations times 1 and every input.
    """

    def statistic(A: Tensor, x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        phi = (A[:, None] * local_inputs(x, linear)).flatten(0, 1)
        weighted = phi * w
        return weighted @ phi.T, weighted @ y.T

    G, b = reduce_activations(sample, mixture, statistic)
    factor, _ = cholesky(G + ridge * torch.eye(len(G), dtype=G.dtype, device=G.device))
    return torch.cholesky_solve(b, factor).reshape(mixture.n_components, -1, b.shape[1])


def blended(A: Tensor, x: Tensor, weights: Tensor) -> Tensor:
    """f(x) = Σ_j p(j | x) w_jᵀz with z = 1 or [1; x] (p × n)."""
    z = local_inputs(x, weights.shape[1] > 1)
    return torch.einsum("kn,kpn->pn", A, weights.mT @ z)


def local_noise(sample: Sample, mixture: Mixture, weights: Tensor) -> Tensor:
    """Mean squared error of f near each component (k × p)."""

    def statistic(A: Tensor, x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        A_w = A * w
        return A_w @ (y - blended(A, x, weights)).square().T, A_w.sum(1)

    squares, mass = reduce_activations(sample, mixture, statistic)
    overall = squares.sum(0) / mass.sum()
    return torch.where(mass[:, None] > 0, squares / mass[:, None].clamp(min=1e-300), overall)


def class_shares(sample: Sample, mixture: Mixture, n_classes: int) -> Tensor:
    """P(C_c | j) as the share of class c among the rows of component j (k × C), the gates left as they are."""
    (counts,) = reduce_activations(sample, mixture, lambda A, x, y, w: (A * w @ indicators(y, n_classes).T,))
    overall = counts.sum(0, keepdim=True) / counts.sum()
    mass = counts.sum(1, keepdim=True)
    return torch.where(mass > 0, counts / mass.clamp(min=1e-300), overall)


def logistic_weights(sample: Sample, mixture: Mixture, n_classes: int, ridge: float) -> tuple[Tensor, str]:
    """Output weights (k × c) of σ(Σ_j w_j p(j | x)) (eq. 3.18), softmax for more classes, by IRLS; and why it ended."""
    k, c = mixture.n_components, 1 if n_classes == 2 else n_classes
    i, j = torch.triu_indices(c, c)

    def objective(flat: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        W = flat.reshape(c, k)

        def statistic(A: Tensor, x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            f = W @ A
            if c == 1:
                loss, t = torch.nn.functional.softplus(-(2 * y - 1) * f), y
                p = torch.sigmoid(f)
                pairs = [p[0] * (1 - p[0])]
            else:
                loss, t = f.logsumexp(0, keepdim=True) - f.gather(0, y.long()), indicators(y, c)
                p = torch.softmax(f, 0)
                pairs = [p[a] * (float(a == b) - p[b]) for a, b in zip(i.tolist(), j.tolist(), strict=True)]
            curvature = torch.stack([A * (w * pair) @ A.T for pair in pairs])
            return (w * loss).sum(), ((p - t) * w) @ A.T, curvature

        value, slope, curvature = reduce_activations(sample, mixture, statistic)
        H = flat.new_zeros(c, k, c, k)
        for block, (a, b) in enumerate(zip(i.tolist(), j.tolist(), strict=True)):
            H[a, :, b] = H[b, :, a] = curvature[block]
        value = value + 0.5 * ridge * flat.square().sum()
        return value, slope.flatten() + ridge * flat, H.reshape(c * k, c * k) + ridge * torch.eye(c * k).to(H)

    start = torch.zeros(c * k, dtype=torch.float64, device=sample.plan.device)
    found = minimize_newton(objective, start, max_iter=100)
    return found.x.reshape(c, k).T.contiguous(), found.stop_reason
