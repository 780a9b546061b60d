"""Exchange and removal of basis vectors.

There are exchange steps, minimal residual iterations (Greedy02), and pruning.

The blocks require one function for each basis vector and the squared loss. Pruning drops vectors that later ones made
useless, by the criterion that stopped the fit.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mercer.forward.absorb import Block
from mercer.forward.span import Functions
from mercer.forward.stopping import description_length, information_criterion


class SwapBlock(Block):
    """A block that finds the swap of Greedy02 Algorithm 1."""

    def _swap(self, weights: Tensor) -> tuple[int, Tensor, Tensor, Tensor] | None:
        """Vector s to leave, row l to enter, its column and its weight; None if the objective would not fall."""
        problem, shard = self.problem, self.problem.rows.shard
        residual = problem.y - self.f
        if len(self.basis_index) < 2 or self.n_available == 0:
            return None
        size, available = residual.square().sum(1), self.available_rows()
        s = int(shard.pick(size, self.basis_index).argmin())
        _, l = shard.max(size[available], available)
        x_s = self.basis_index[s][None]
        k_s, k_l = self._column(x_s), self._column(l)
        freed = residual + k_s * weights[s].to(residual.dtype)
        leaving, entering = self._penalties(x_s, l, k_s, weights[s])
        slope = self._sum(k_l * freed) - entering
        curvature = self._sum(k_l.square()) + self.span.lam * self._diagonal(l)
        gamma = slope / curvature
        # twice the objective: residual and penalty without s, minus the gain of l
        change = self._sum(freed.square()) - self._sum(residual.square()) + leaving - slope * gamma
        if not bool(change.sum() < 0):
            return None
        self.is_available[shard.local(x_s)[1]] = True
        self.is_available[shard.local(l)[1]] = False
        return s, l, k_l, gamma

    def _penalties(self, x_s: Tensor, l: Tensor, k_s: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Change of λ‖f‖² when s leaves, and λ⟨f, k_l⟩ after that, for each output.

        With g = f − a k_s: ‖g‖² − ‖f‖² = −2a f(x_s) + a²k_ss, and ⟨g, k_l⟩ = g(x_l).
        """
        at_s, at_l = (self.problem.pick(self.f, index)[0].double() for index in (x_s, l))
        k_sl = self.problem.pick(k_s, l)[0].double()
        leaving = weight * (weight * self._diagonal(x_s) - 2 * at_s)
        return self.span.lam * leaving, self.span.lam * (at_l - weight * k_sl)

    def _diagonal(self, index: Tensor) -> Tensor:
        """k(x, x) of one row."""
        return self.problem.kernel.diag(self.problem.basis(index).double())

    def _sum(self, values: Tensor) -> Tensor:
        """Weighted sums over the rows, one for each output."""
        return self.problem.rows.total((self.problem.weight[:, None] * values).sum(0, dtype=torch.float64))

    def _column(self, index: Tensor) -> Tensor:
        return self._with_gram_noise(Functions(index, self._unit_weight(), self.problem.column(index))).T

    def _unit_weight(self) -> Tensor:
        return torch.ones(1, 1, dtype=torch.float64, device=self.f.device)


class ExchangeBlock(SwapBlock):
    """Full weights with exchange by QR downdate and update (Greedy02 Alg. 3)."""

    def absorb(self, new: Functions, shrinkage: float = 1.0) -> None:
        super().absorb(new, shrinkage)
        if (swap := self._swap(self.span.weights())) is not None:
            s, l, k_l, _ = swap
            self.f += self.span.remove(s)
            self.basis_index = torch.cat([self.basis_index[:s], self.basis_index[s + 1 :], l])
            where = self.span.extend(k_l.T.contiguous(), l, self._unit_weight())
            self.f += self.span.change_coef(where, self.span.descent_slope(where, self.gradient()))
        self.snapshots.append((self.basis_index, self.span.weights()))


class MinimalResidualBlock(SwapBlock):
    """MRX: one step along the residual on the chosen rows (Greedy02 Algorithm 2).

    With d = r on I the weights change as α ← α + βd.

    The columns are not made orthonormal, so R is the identity. Each output has its step length.
    """

    exchange = True

    def absorb(self, new: Functions, shrinkage: float = 1.0) -> None:
        span, w, total = self.span, self.problem.weight[:, None], self.problem.rows.total
        where = span.append(self._with_gram_noise(new))
        self._append_term(new, where)
        residual = self.problem.y - self.f
        d = self.problem.pick(residual, self.basis_index).double()
        q = span.values[: span.size].T @ d.to(self.f.dtype)
        slope = total((w * residual * q).sum(0, dtype=torch.float64))
        beta = slope / total((w * q.square()).sum(0)).clamp(min=1e-30)
        self.f += span.change_coef(slice(0, span.size), shrinkage * beta * d)
        if self.exchange and (swap := self._swap(span.coef)) is not None:
            s, l, k_l, gamma = swap
            old = span.values[s][:, None] * span.coef[s].to(self.f.dtype)
            self.f += k_l * gamma.to(self.f.dtype) - old
            span.values[s], span.coef[s] = k_l[:, 0], gamma.double()
            self.basis_index = self.basis_index.clone()
            self.basis_index[s] = l[0]
        self.snapshots.append((self.basis_index, span.coef[: span.size].clone()))


class PlainMinimalResidualBlock(MinimalResidualBlock):
    """Minimal residual iterations without exchange."""

    exchange = False


def prune(R: Tensor, weights: Tensor, residual2: float, n_rows: float, criterion: str) -> tuple[Tensor, Tensor]:
    r"""Drop functions one at a time while the criterion falls.

    Returns the functions kept and their weights.

    With A = RᵀR the normal matrix and x its optimal weights, dropping function j raises the objective
    by :math:`x_j^2 / 2[A^{-1}]_{jj}` and changes the others by :math:`-x_j A^{-1}_{\cdot j}/[A^{-1}]_{jj}`. The
    criterion is "mdl" or "aic" (Greedy02 eq. 10 and 11); with a penalty in the RKHS the rise of the objective
    replaces that of ½rᵀr.
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
