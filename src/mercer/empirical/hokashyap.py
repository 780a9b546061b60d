"""Regularised Ho-Kashyap steps for several coupled kernels (MEKL13 eqs. 5 to 8 and steps 3 to 6 of table 1).

Columns are independent problems on the same rows: classes against the rest, or points of a grid of c and λ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mercer.clock import Clock, StopKind, StopReason
from mercer.empirical.coordinates import Factor, MappedRows


@dataclass(frozen=True)
class Margins:
    """First margins b¹, learning rate ρ and stopping rule of the steps; the paper's values by default.

    `tol` is a share of L, so its meaning does not depend on the number of rows. `literal` takes the start of table 1
    (vectors of unit length, then step 5 for the first kernel) and its stop, where L changes by ξ = `tol` itself.
    """

    start: float = 1e-6
    rate: float = 0.99
    tol: float = 1e-3
    max_iter: int = 100
    literal: bool = False


@dataclass(frozen=True)
class Sweep:
    """A pass over the rows, as callbacks see it: its number and the objective of each column."""

    iteration: int
    objective: Tensor


@dataclass(frozen=True)
class Solution:
    """Weights (r_l × C) and biases (M × C) of all kernels, the objective (5) before each step, and the stop reason."""

    weights: list[Tensor]
    bias: Tensor
    path: Tensor
    reason: StopReason


def hokashyap(
    coordinates: MappedRows,
    factors: Sequence[Factor],
    signs: Tensor,
    weight: Tensor,
    c: Tensor,
    lam: Tensor,
    margins: Margins | None = None,
    callbacks: Sequence[Callable[[Sweep], object]] = (),
    clock: Clock | None = None,
) -> Solution:
    r"""Minimise eq. (5) alternately in the margins b_l ≥ 0 and in the weights; one pass over the rows per step.

    .. math:: L = \sum_l \big[\|S^{1/2}(Y_l\omega_l - 1 - b_l)\|^2 + c\|\tilde\omega_l\|^2\big]
        + \lambda \sum_l \|S^{1/2}(Y_l\omega_l - \tfrac1M\sum_j Y_j\omega_j)\|^2

    `signs` (n × C) are ±1, `weight` (n) the diagonal of S, `c` and `lam` one number a column. L never rises: a
    margin moves by at most twice its error, and the simultaneous update (6) of all kernels is a Jacobi step whose
    matrix D has 2D − A positive definite, A being the Hessian of (5). The paper starts from unit vectors
    (`Margins.literal`); otherwise each kernel starts from its own solution at b¹, as if all kernels agreed, which for
    M = 1 is step 5. Step 5 prints Y_j ω_l for Y_j ω_j. No further step begins once the `clock` has expired.
    """
    rule, s = margins or Margins(), weight[:, None].to(signs)
    now = _start(coordinates, factors, signs, s, c, lam, rule)
    W, bias, columns = [w.clone() for w in now.W], now.bias.clone(), torch.arange(len(c), device=c.device)
    active = torch.ones_like(bias[0], dtype=torch.bool)
    path = [torch.full_like(bias[0], torch.inf)]
    reason = StopReason(f"max_iter={rule.max_iter} steps were made", StopKind.MAX_ITER)
    for k in range(1, rule.max_iter + 1):
        down, totals, loss = now.sweep(coordinates, s, rule.rate)
        path.append(path[-1].index_copy(0, columns, loss))
        asked = [callback(Sweep(k, path[-1])) for callback in callbacks]
        if any(asked):
            reason = StopReason("a callback asked to stop", StopKind.CALLBACK)
            break
        if clock is not None and clock.expired():
            reason = clock.stop_reason()
            break
        active &= path[-2] - path[-1] > rule.tol * (1.0 if rule.literal else path[-1])
        if not bool(active.any()):
            reason = StopReason(f"the objective fell by less than tol={rule.tol:g}", StopKind.CONVERGED)
            break
        now.step(factors, down, totals, active[columns])
        for kept, w in zip([*W, bias], [*now.W, now.bias], strict=True):
            kept[..., columns] = w
        left = active[columns].nonzero()[:, 0]
        if 2 * len(left) <= len(columns):  # columns that have converged need no more work
            now, columns = now.take(left), columns[left]
    return Solution(W, bias, torch.stack(path[1:]), reason)


@dataclass
class _Columns:
    """State of moving columns: signs (n × C), 1 + b (M × n × C), weights, biases; c, λ, α and 1/(α θ + c)."""

    signs: Tensor
    goals: Tensor
    W: list[Tensor]
    bias: Tensor
    c: Tensor
    lam: Tensor
    alpha: Tensor
    inverses: list[Tensor]

    def sweep(self, coordinates: MappedRows, s: Tensor, rate: float) -> tuple[list[Tensor], Tensor, Tensor]:
        """Steps i and ii in one pass; right-hand sides of step iii (Φᵀt and Σ t per kernel) and L before the step."""
        M, lam = len(self.W), self.lam.to(self.signs)
        down, totals = [torch.zeros_like(w) for w in self.W], torch.zeros_like(self.bias)
        L = torch.zeros_like(self.bias[0])
        W, bias = [w.to(self.signs) for w in self.W], self.bias.to(self.signs)[:, None]

        def visit(where: slice, features: Sequence[Tensor]) -> None:
            phi, weights, goal = self.signs[where], s[where], self.goals[:, where]
            f = torch.stack([z @ w for z, w in zip(features, W, strict=True)]).add_(bias)
            mean = f.mean(0)
            short = torch.addcmul(goal, phi, f, value=-1)  # −e of step i
            apart = f.sub_(mean)
            loss = weights.T @ short.square() + lam * (weights.T @ apart.square())
            grown = torch.sub(goal, short.clamp_(max=0), alpha=2 * rate)  # step ii
            t = torch.addcmul((M - 1) / M * lam * mean, phi, grown).addcmul_(lam / M, apart, value=-1).mul_(weights)
            parts = [z.mT @ targets for z, targets in zip(features, t, strict=True)]
            for into, part in zip(down, parts, strict=True):
                into.add_(part)
            totals.add_(t.sum(-2, dtype=torch.float64))
            L.add_(loss.sum(0, dtype=torch.float64).squeeze(-2))
            goal.copy_(grown)

        coordinates.each(visit, columns=5 * M * self.signs.shape[-1])
        *down, totals, L = coordinates.rows.shard.group.sums(*down, totals, L)
        return down, totals, L + self.c * sum(w.square().sum(-2) for w in self.W)

    def step(self, factors: Sequence[Factor], down: list[Tensor], totals: Tensor, active: Tensor) -> None:
        """Step iii of the `active` columns."""
        for l, factor in enumerate(factors):
            w, w0 = factor.solve(self.inverses[l], self.alpha, down[l], totals[l])
            self.W[l] = torch.where(active, w, self.W[l])
            self.bias[l] = torch.where(active, w0, self.bias[l])

    def to_unit_vectors(self, coordinates: MappedRows, first: Factor, s: Tensor) -> None:
        """Steps 4 and 5 of table 1: equal entries of unit length, then the first kernel given the others."""
        for l, w in enumerate(self.W):
            entry = (w.shape[-2] + 1) ** -0.5
            w.fill_(entry)
            self.bias[l].fill_(entry)
        others = torch.zeros_like(self.signs)
        W, bias = [w.to(self.signs) for w in self.W[1:]], self.bias[1:].to(self.signs).unsqueeze(-2)

        def visit(where: slice, features: Sequence[Tensor]) -> None:
            for z, w, w0 in zip(features[1:], W, bias, strict=True):
                others[..., where, :] += z @ w + w0

        coordinates.each(visit, columns=len(self.W) * self.signs.shape[-1])
        targets = s * (self.signs * self.goals[0] + self.lam.to(others) / len(self.W) * others)
        down, total = coordinates.transposed(targets)
        self.W[0], self.bias[0] = first.solve(self.inverses[0], self.alpha, down[0], total)

    def take(self, columns: Tensor) -> _Columns:
        """The state of these columns alone."""
        W, inverses = ([part[..., columns] for part in parts] for parts in (self.W, self.inverses))
        signs, goals, bias = self.signs[..., columns], self.goals[..., columns], self.bias[..., columns]
        return _Columns(signs, goals, W, bias, self.c[columns], self.lam[columns], self.alpha[columns], inverses)


def _start(
    coordinates: MappedRows,
    factors: Sequence[Factor],
    signs: Tensor,
    s: Tensor,
    c: Tensor,
    lam: Tensor,
    rule: Margins,
) -> _Columns:
    """Start each kernel at its own solution for the first margins."""
    M = len(factors)
    alpha, ones = 1 + lam * ((M - 1) / M), torch.ones_like(lam)
    down, total = coordinates.transposed(s * signs * (1 + rule.start))
    solved = [factor.solve(factor.inverse(ones, c), ones, d, total) for factor, d in zip(factors, down, strict=True)]
    goals = torch.full((M, *signs.shape), 1 + rule.start, dtype=signs.dtype, device=signs.device)
    inverses = [factor.inverse(alpha, c) for factor in factors]  # once for all steps
    bias = torch.stack([b for _, b in solved])
    start = _Columns(signs, goals, [w for w, _ in solved], bias, c, lam, alpha, inverses)
    if rule.literal:
        start.to_unit_vectors(coordinates, factors[0], s)
    return start
