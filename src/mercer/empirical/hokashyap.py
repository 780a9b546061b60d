"""Regularised Ho-Kashyap steps for several coupled views (MEKL13 eqs. 5 to 8 and steps 3 to 6 of table 1).

Columns are independent problems on the same rows: classes against the rest, or points of a grid of c and λ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mercer.empirical.views import Factor, Views


@dataclass(frozen=True)
class Margins:
    """How the steps go: first margins b¹, learning rate ρ, and when to stop; the paper's values by default.

    The paper stops where L changes by ξ = 10⁻³; here that is a share of L, so that it means the same for any number
    of rows.
    """

    start: float = 1e-6
    rate: float = 0.99
    tol: float = 1e-3
    max_iter: int = 100


@dataclass(frozen=True)
class Sweep:
    """What a callback sees after each pass: its number and the objective of each column."""

    iteration: int
    objective: Tensor


@dataclass(frozen=True)
class Solution:
    """Weights (r_l × C) and biases (M × C) of all views, the objective (5) before each step, and why it stopped."""

    weights: list[Tensor]
    bias: Tensor
    path: Tensor
    n_iter: int
    reason: str


def hokashyap(
    views: Views,
    factors: Sequence[Factor],
    signs: Tensor,
    weight: Tensor,
    c: Tensor,
    lam: Tensor,
    margins: Margins | None = None,
    callbacks: Sequence[Callable[[Sweep], object]] = (),
) -> Solution:
    r"""Minimise eq. (5) by turns in the margins b_l ≥ 0 and in the weights; one pass over the rows a turn.

    .. math:: L = \sum_l \big[\|S^{1/2}(Y_l\omega_l - 1 - b_l)\|^2 + c\|\tilde\omega_l\|^2\big]
        + \lambda \sum_l \|S^{1/2}(Y_l\omega_l - \tfrac1M\sum_j Y_j\omega_j)\|^2

    `signs` (n × C) are ±1, `weight` (n) the diagonal of S, `c` and `lam` one number a column. L never rises: a margin
    moves by at most twice its error, and the simultaneous update (6) of all views is a Jacobi step whose matrix D has
    2D − A positive definite, A being the Hessian of (5). The paper starts from unit vectors; here each view starts
    from its own solution at b¹, as if all views agreed, which for M = 1 is step 5. Step 5 prints Y_j ω_l for Y_j ω_j.
    """
    rule, M = margins or Margins(), len(factors)
    alpha, share = 1 + lam * ((M - 1) / M), (lam / M).to(signs)
    s, coupling = weight[:, None].to(signs), lam.to(signs)
    down, total = views.transposed(s * signs * (1 + rule.start))
    one = torch.ones_like(alpha)
    solved = [factor.solve(factor.inverse(one, c), one, d, total) for factor, d in zip(factors, down, strict=True)]
    W, bias = [w for w, _ in solved], torch.stack([b for _, b in solved])
    inverses = [factor.inverse(alpha, c) for factor in factors]  # once for all steps
    b = torch.full((M, *signs.shape), rule.start, dtype=signs.dtype, device=signs.device)
    active, path = torch.ones_like(c, dtype=torch.bool), [torch.full_like(c, torch.inf)]
    for k in range(1, rule.max_iter + 1):
        down = [torch.zeros_like(w) for w in W]
        totals, L = torch.zeros_like(bias), torch.zeros_like(c)
        tiles, offsets = [w.to(signs) for w in W], bias.to(signs)

        def visit(where: slice, features: Sequence[Tensor]) -> None:
            phi, weights = signs[where], s[where]
            f = torch.stack([z @ w for z, w in zip(features, tiles, strict=True)]).add_(offsets[:, None])  # noqa: B023
            mean = f.mean(0)
            e = phi * f - b[:, where] - 1  # step i
            loss = (weights * (e.square() + coupling * (f - mean).square())).sum((0, 1), dtype=torch.float64)
            grown = b[:, where] + rule.rate * (e + e.abs())  # step ii
            t = weights * (phi * (1 + grown) + share * (M * mean - f))
            parts = [z.T @ one for z, one in zip(features, t, strict=True)]
            for into, part in zip(down, parts, strict=True):  # noqa: B023
                into.add_(part)
            totals.add_(t.sum(1, dtype=torch.float64))  # noqa: B023
            L.add_(loss)  # noqa: B023
            b[:, where] = grown

        views.each(visit, columns=5 * M * signs.shape[1])
        sum_over = views.rows.total
        path.append(sum_over(L) + c * sum(w.square().sum(0) for w in W))
        asked = [callback(Sweep(k, path[-1])) for callback in callbacks]
        if any(asked):
            return Solution(W, bias, torch.stack(path[1:]), k, "a callback asked to stop")
        active &= path[-2] - path[-1] > rule.tol * path[-1]
        if not bool(active.any()):
            return Solution(W, bias, torch.stack(path[1:]), k, f"the objective fell by less than tol={rule.tol:g}")
        for l, factor in enumerate(factors):  # step iii
            w, w0 = factor.solve(inverses[l], alpha, sum_over(down[l]), sum_over(totals[l]))
            W[l], bias[l] = torch.where(active, w, W[l]), torch.where(active, w0, bias[l])
    return Solution(W, bias, torch.stack(path[1:]), rule.max_iter, f"max_iter={rule.max_iter} steps were made")
