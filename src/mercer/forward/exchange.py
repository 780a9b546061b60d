"""Vectors that leave again: exchange in a block, minimal residual iterations (Greedy02), and pruning at the end.

The blocks need each basis vector to be a function of its own, and the squared loss. Pruning drops what later vectors
made useless, by the criterion that stopped the fit.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mercer.forward.absorb import Block
from mercer.forward.span import Functions
from mercer.forward.stopping import description_length, information_criterion


class _Swapping(Block):
    """Finds the swap of Greedy02 Algorithm 1: which vector leaves, which enters, and whether that helps."""

    def _swap(self, weights: Tensor) -> tuple[int, Tensor, Tensor, Tensor] | None:
        """Member s to leave, row l to enter, its column and its weight; None if the objective would not fall."""
        problem, shard = self.problem, self.problem.rows.shard
        residual = problem.y - self.f
        if len(self.members) < 2 or self.n_open == 0:
            return None
        size, places = residual.square().sum(1), self.open_rows()
        s = int(shard.pick(size, self.members).argmin())
        _, l = shard.max(size[places], places)
        x_s = self.members[s][None]
        k_s, k_l = self._column(x_s), self._column(l)
        freed = residual + k_s * weights[s].to(residual.dtype)
        out, into = self._penalties(x_s, l, k_s, weights[s])
        slope, bend = self._sum(k_l * freed) - into, self._sum(k_l.square()) + self.span.lam * self._size(l)
        gamma = slope / bend
        # twice the objective: what leaving costs in the residual and frees in the penalty, less what entering gains
        change = self._sum(freed.square()) - self._sum(residual.square()) + out - slope * gamma
        if not bool(change.sum() < 0):
            return None
        self._open[shard.local(x_s)[1]] = True
        self._open[shard.local(l)[1]] = False
        return s, l, k_l, gamma

    def _penalties(self, x_s: Tensor, l: Tensor, k_s: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """By how much λ‖f‖² changes when s leaves, and λ⟨f, k_l⟩ after that, for each output.

        With g = f − a k_s: ‖g‖² − ‖f‖² = −2a f(x_s) + a²k_ss, and ⟨g, k_l⟩ = g(x_l).
        """
        at_s, at_l = (self.problem.pick(self.f, index)[0].double() for index in (x_s, l))
        k_sl = self.problem.pick(k_s, l)[0].double()
        leaving = weight * (weight * self._size(x_s) - 2 * at_s)
        return self.span.lam * leaving, self.span.lam * (at_l - weight * k_sl)

    def _size(self, index: Tensor) -> Tensor:
        """k(x, x) of one row."""
        return self.problem.kernel.diag(self.problem.basis(index).double())

    def _sum(self, values: Tensor) -> Tensor:
        """Sums over the rows by their weights, one for each output."""
        return self.problem.rows.total((self.problem.weight[:, None] * values).sum(0, dtype=torch.float64))

    def _column(self, index: Tensor) -> Tensor:
        problem = self.problem
        one = torch.ones(1, 1, dtype=torch.float64, device=self.f.device)
        values = problem.matrix(problem.basis(index)).product(one).T.contiguous()
        return self._noisy(Functions(index, one, values)).T


class ExchangeBlock(_Swapping):
    """Full weights with exchange: the span follows by a QR downdate and an update (Greedy02 Algorithm 3)."""

    def absorb(self, new: Functions, shrinkage: float = 1.0) -> None:
        super().absorb(new, shrinkage)
        if (swap := self._swap(self.weights())) is not None:
            s, l, k_l, _ = swap
            self.f += self.span.remove(s)
            self.members = torch.cat([self.members[:s], self.members[s + 1 :], l])
            one = torch.ones(1, 1, dtype=torch.float64, device=self.f.device)
            where = self.span.extend(k_l.T.contiguous(), l, one)
            self.f += self.span.move(where, self.span.pull(where, self.gradient()))
        self.snapshots.append((self.members, self.weights()))

    def weights(self) -> Tensor:
        m = self.span.size
        return torch.linalg.solve_triangular(self.span.R[:m, :m], self.span.coef[:m], upper=True)


class MinimalResidualBlock(_Swapping):
    """MRX: one step along the residual on the chosen rows, d = r on I, α ← α + βd (Greedy02 Algorithm 2).

    The columns are kept as they come, so R is the identity. Several outputs have a step length each.
    """

    exchange = True

    def absorb(self, new: Functions, shrinkage: float = 1.0) -> None:
        span, w, total = self.span, self.problem.weight[:, None], self.problem.rows.total
        where = span.append(self._noisy(new))
        self._enter(new, where)
        residual = self.problem.y - self.f
        d = self.problem.pick(residual, self.members).double()
        q = span.values[: span.size].T @ d.to(self.f.dtype)
        slope = total((w * residual * q).sum(0, dtype=torch.float64))
        beta = slope / total((w * q.square()).sum(0)).clamp(min=1e-30)
        self.f += span.move(slice(0, span.size), shrinkage * beta * d)
        if self.exchange and (swap := self._swap(span.coef)) is not None:
            s, l, k_l, gamma = swap
            old = span.values[s][:, None] * span.coef[s].to(self.f.dtype)
            self.f += k_l * gamma.to(self.f.dtype) - old
            span.values[s], span.coef[s] = k_l[:, 0], gamma.double()
            self.members = self.members.clone()
            self.members[s] = l[0]
        self.snapshots.append((self.members, span.coef[: span.size].clone()))


class PlainMinimalResidualBlock(MinimalResidualBlock):
    """Minimal residual iterations without exchange."""

    exchange = False


def prune(R: Tensor, weights: Tensor, residual2: float, n_rows: float, criterion: str) -> tuple[Tensor, Tensor]:
    r"""Which functions stay, and their weights, dropping one at a time while the criterion falls.

    With A = RᵀR the normal matrix and x its optimal weights, leaving function j out raises the objective
    by :math:`x_j^2 / 2[A^{-1}]_{jj}` and moves the others by :math:`-x_j A^{-1}_{\cdot j}/[A^{-1}]_{jj}`. The
    criterion is "mdl" or "aic" (Greedy02 eq. 10 and 11); with a penalty in the RKHS the rise of the objective
    stands for that of ½rᵀr.

    >>> R = torch.eye(2, dtype=torch.float64)
    >>> kept, weights = prune(R, torch.tensor([[3.0], [1e-6]], dtype=torch.float64), 1.0, 100, "mdl")
    >>> kept.tolist()
    [0]
    """
    kept = torch.arange(R.shape[0], device=R.device)
    inverse = torch.linalg.solve_triangular(R, torch.eye(len(R), dtype=R.dtype, device=R.device), upper=True)
    C, x = inverse @ inverse.T, weights.clone()
    price = description_length if criterion == "mdl" else information_criterion
    cost = price(math.sqrt(residual2), len(kept), n_rows)
    while len(kept) > 1:
        rise = x.square().sum(1) / C.diagonal()
        j = int(rise.argmin())
        after = residual2 + float(rise[j])
        new_cost = price(math.sqrt(after), len(kept) - 1, n_rows)
        if new_cost > cost:
            break
        keep = torch.arange(len(kept), device=R.device) != j
        column = C[:, j] / C[j, j]
        x = (x - column[:, None] * x[j])[keep]
        C = (C - column[:, None] * C[j])[keep][:, keep]
        kept, residual2, cost = kept[keep], after, new_cost
    return kept, x
