"""Statistics of candidate rows for selection criteria, computed on demand.

Two classes offer the same names: `RowCandidates` for rows of a large problem, which forms only the columns it needs,
and `DenseCandidates` for a small Gram matrix in memory.
"""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from mercer.forward.absorb import Block, SmallPosterior

#: Candidates up to which their kernel columns are formed whole.
FEW_COLUMNS = 4


class Candidates(Protocol):
    """Statistics of c candidates.

    r is the residual, f the model, φ the functions of its span.

    If the penalty is σ² on the diagonal of the Gram matrix, k_j is a column of K + σ²I and `lam` is zero.
    """

    lam: float  # of the penalty λ‖f‖²

    @property
    def noise(self) -> Tensor | float: ...  # σ² of either penalty, divided by the rows' weights
    @property
    def residual(self) -> Tensor: ...  # r at the candidates, c × p
    @property
    def data_slope(self) -> Tensor: ...  # k_jᵀ(w r), c × p
    @property
    def slope(self) -> Tensor: ...  # k_jᵀ(w r) − λ f(x_j), c × p
    @property
    def curvature(self) -> Tensor: ...  # k_jᵀ D k_j
    @property
    def diagonal(self) -> Tensor: ...  # k(x_j, x_j)
    @property
    def novelty(self) -> Tensor: ...  # δ_j = k_jj − q_jᵀQ_I⁻¹q_j
    @property
    def captured(self) -> Tensor: ...  # Σ_i ⟨φ_i, k_j⟩²
    @property
    def innovation(self) -> Tensor: ...  # y_j minus the mean of the sparse posterior, c × p
    @property
    def leverage(self) -> Tensor: ...  # q_j, the variance of that mean over `noise`: w_j Σ_i φ_i(x_j)²
    def random(self) -> Tensor: ...


class RowCandidates:
    """Rows `index` (global numbers) of a problem as candidates, at one step of a fit."""

    def __init__(self, block: Block, index: Tensor, rng: np.random.Generator) -> None:
        self.block, self.problem, self.span, self.index, self.rng = block, block.problem, block.span, index, rng
        self.lam, self.gram_noise, self.f = block.span.lam, block.gram_noise, block.f

    def at(self, values: Tensor) -> Tensor:
        """Values of all rows (last axis) at the candidates."""
        return self.problem.rows.pick(values, self.index)

    @cached_property
    def gradient(self) -> Tensor:
        return self.block.gradient()

    @cached_property
    def rows(self) -> Tensor:
        return self.problem.basis(self.index)

    @cached_property
    def residual(self) -> Tensor:
        return self.at(self.problem.loss.residual(self.problem.y, self.f).T).T

    @property
    def noise(self) -> Tensor:
        return self.problem.lam / self.at(self.problem.weight).double()

    @cached_property
    def _scores(self) -> tuple[Tensor, Tensor]:
        slope, curvature = self.problem.matrix(self.rows).column_scores(self.gradient, self.span.metric)
        if not self.gram_noise:
            return slope, curvature
        noise = self.gram_noise * (2 * self.diagonal + self.gram_noise) * self.at(self.span.metric)
        return slope + self.gram_noise * self.at(self.gradient.T).T, curvature + noise

    @property
    def data_slope(self) -> Tensor:
        return self._scores[0]

    @property
    def slope(self) -> Tensor:
        return self._scores[0] - self.lam * self.at(self.f.T).T.double()

    @property
    def curvature(self) -> Tensor:
        return self._scores[1]

    @cached_property
    def diagonal(self) -> Tensor:
        return self.problem.kernel.diag(self.rows.double())

    @cached_property
    def novelty(self) -> Tensor:
        """From the factor of the block's kernel matrix; stored for all rows if most of them are candidates."""
        factor = self.block.factor.extend_to(self.block.basis_index)
        if self.problem.rows.shard.divided or 2 * len(self.index) < len(self.problem.y):
            return factor.novelty(self.rows.double())
        return factor.novelty_of_all(self.span)[self.index]

    @property
    def innovation(self) -> Tensor:
        return self.residual

    @cached_property
    def leverage(self) -> Tensor:
        """Zero if the columns are not orthonormal, because they do not give the variance."""
        if not self.span.orthonormal:
            return torch.zeros_like(self.diagonal)
        values = self.span.values[: self.span.size]
        return self.at(self.problem.weight) * self.at(values).double().square().sum(0)

    @cached_property
    def captured(self) -> Tensor:
        """If most rows are candidates the sum is stored for all of them, and only new functions are added to it.

        Columns that are not orthonormal, as in minimal residual iterations, capture nothing: zero.
        """
        span, n = self.span, self.problem.rows.shard.length(len(self.problem.y))
        if not span.orthonormal:
            return torch.zeros_like(self.curvature)
        if 2 * len(self.index) < n:
            return self._captured_by(span.values[: span.size], self.index)
        if span.captured is None:
            span.captured = 0, torch.zeros(n, dtype=torch.float64, device=self.index.device)
        n_counted, total = span.captured
        if n_counted < span.size:
            all_rows = torch.arange(n, device=self.index.device)
            total = total + self._captured_by(span.values[n_counted : span.size], all_rows)
            span.captured = span.size, total
        return total[self.index]

    def _captured_by(self, functions: Tensor, index: Tensor) -> Tensor:
        if len(index) <= FEW_COLUMNS:  # one pass over the functions, without a weighted copy of them
            columns = torch.cat([self.problem.column(row) for row in index.split(1)])
            data = self.span.data_products(functions, columns).T
        else:
            data = self.problem.matrix(self.problem.basis(index)).transposed((functions * self.span.metric).T)
        pick = self.problem.rows.pick
        penalty = self.lam + self.gram_noise * pick(self.span.metric, index).double()
        return (data.T + penalty * pick(functions, index).double()).square().sum(0)

    def random(self) -> Tensor:
        return torch.from_numpy(self.rng.random(len(self.index))).to(self.index.device)


class LocalRowCandidates(RowCandidates):
    """Rows of this process (local indices) as candidates.

    Each process scores its own rows, so only statistics that need no communication are allowed: residuals, novelty and
    random numbers.
    """

    @cached_property
    def rows(self) -> Tensor:
        return self.problem.rows.take(self.index).to(self.problem.plan.device, self.problem.plan.dtype)

    def at(self, values: Tensor) -> Tensor:
        return values[..., self.index]

    def random(self) -> Tensor:
        shard = self.problem.rows.shard
        if not shard.divided:
            return super().random()
        mask = torch.zeros(len(self.problem.y), dtype=torch.bool, device=self.index.device)
        mask[self.index] = True
        return torch.from_numpy(self.rng.random(shard.count(mask))[shard.positions(mask)]).to(self.index.device)


class DenseCandidates:
    """All T rows of a small Gram matrix as candidates during a whole selection.

    The matrix is overwritten by K + λI, Greedy02's regularisation, so slope and curvature need no further penalty. All
    rows are candidates, so candidate counts and thresholds are ignored.
    """

    def __init__(self, K: Tensor, y: Tensor, lam: float, n_steps: int, rng: np.random.Generator) -> None:
        self.diagonal = K.diagonal().clone()
        K.diagonal().add_(lam)
        self.K, self.lam, self.noise, self.rng = K, 0.0, lam, rng
        self.residual = y.clone()
        self.functions = K.new_zeros(n_steps, len(K))
        self.size = 0
        self._pivots: list[Tensor] = []
        self._factor_rows: list[Tensor] = []
        self._novelty = self.diagonal.clone()
        self._captured = torch.zeros_like(self._novelty)
        self._n_captured = 0
        self._posterior = SmallPosterior(y, lam, n_steps)

    @property
    def data_slope(self) -> Tensor:
        return self.K @ self.residual

    slope = data_slope

    @cached_property
    def curvature(self) -> Tensor:
        return self.K.square().sum(0)

    @property
    def novelty(self) -> Tensor:
        """Pivoted Cholesky of K, extended by the basis vectors chosen since the last call."""
        for j in self._pivots[len(self._factor_rows) :]:
            row = self.K[j].clone()
            row[j] -= self.noise
            if self._factor_rows:
                V = torch.stack(self._factor_rows)
                row -= V[:, j] @ V
            # a pivot below rounding belongs to a row in the span of the others: it changes nothing
            rounding = len(self._pivots) * torch.finfo(row.dtype).eps * self.diagonal[j]
            row *= torch.where(self._novelty[j] > rounding, self._novelty[j].rsqrt(), 0.0)
            self._factor_rows.append(row)
            self._novelty = (self._novelty - row.square()).clamp(min=0)
        return self._novelty

    @property
    def innovation(self) -> Tensor:
        return self._current_posterior.innovation

    @property
    def leverage(self) -> Tensor:
        return self._current_posterior.leverage

    @property
    def _current_posterior(self) -> SmallPosterior:
        """The sparse posterior; unlike the residual it has its penalty in the RKHS."""
        assert len(self.novelty)  # brings the factor up to date
        for v in self._factor_rows[self._posterior.size :]:
            self._posterior.add(v)
        return self._posterior

    @property
    def captured(self) -> Tensor:
        new = self.functions[self._n_captured : self.size]
        self._captured = self._captured + (new @ self.K).square().sum(0)
        self._n_captured = self.size
        return self._captured

    def random(self) -> Tensor:
        return torch.from_numpy(self.rng.random(len(self.K))).to(self.K.device)

    def add(self, j: Tensor) -> None:
        """Append column j to the span by Gram-Schmidt and update the residual."""
        Q, k = self.functions[: self.size], self.K[j]
        for _ in range(2 if self.size else 0):
            k = k - (Q @ k) @ Q
        q = k / torch.linalg.vector_norm(k).clamp(min=torch.finfo(k.dtype).tiny)
        self.functions[self.size] = q
        self.residual = torch.addmm(self.residual, q[:, None], (q @ self.residual)[None], alpha=-1)
        self._pivots.append(j)
        self.size += 1
