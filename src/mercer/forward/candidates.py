"""What criteria may ask about candidates, computed when asked and not before.

Two views offer the same names: `RowCandidates` for rows of a large problem, where only the columns
asked for are formed, and `DenseCandidates` for a small Gram matrix held whole.
"""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from mercer.forward.absorb import Block
from mercer.forward.posterior import SmallPosterior


class Candidates(Protocol):
    """Statistics of c candidates; r is the residual, f the model, φ the functions of its span.

    Where the penalty is σ² on the diagonal of the Gram matrix, k_j is a column of K + σ²I and `lam` is zero.
    """

    lam: float  # of the penalty λ‖f‖²

    @property
    def noise(self) -> Tensor | float: ...  # σ², the noise that either penalty stands for, over the rows' weights
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
    """Some rows of a problem as candidates, at one step of a fit; `index` are their numbers, wherever they live."""

    def __init__(self, block: Block, index: Tensor, rng: np.random.Generator) -> None:
        self.block, self.problem, self.span, self.index, self.rng = block, block.problem, block.span, index, rng
        self.lam, self.gram_noise, self.f = block.span.lam, block.gram_noise, block.f

    def at(self, values: Tensor) -> Tensor:
        """Numbers of all rows, which run along the last axis, at the candidates."""
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
        own = self.gram_noise * (2 * self.diagonal + self.gram_noise) * self.at(self.span.metric)
        return slope + self.gram_noise * self.at(self.gradient.T).T, curvature + own

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
        """By the factor of the block's kernel matrix; where most rows are candidates it is kept for all of them."""
        factor = self.block.factor.follow(self.block.members)
        if self.problem.rows.shard.divided or 2 * len(self.index) < len(self.problem.y):
            return factor.left(self.rows.double())
        return factor.left_of_all(self.span)[self.index]

    @property
    def innovation(self) -> Tensor:
        return self.residual

    @cached_property
    def leverage(self) -> Tensor:
        """Zero where columns are kept as they come, which say nothing of the variance."""
        if not self.span.orthonormal:
            return torch.zeros_like(self.diagonal)
        values = self.span.values[: self.span.size]
        return self.at(self.problem.weight) * self.at(values).double().square().sum(0)

    @cached_property
    def captured(self) -> Tensor:
        """Where most rows are candidates the sum is kept for all of them and only new functions are added to it.

        Columns kept as they come, as minimal residual iterations keep them, capture nothing: zero.
        """
        span, n = self.span, self.problem.rows.shard.length(len(self.problem.y))
        if not span.orthonormal:
            return torch.zeros_like(self.curvature)
        if 2 * len(self.index) < n:
            return self._captured_by(span.values[: span.size], self.index)
        if span.captured is None:
            span.captured = 0, torch.zeros(n, dtype=torch.float64, device=self.index.device)
        seen, total = span.captured
        if seen < span.size:
            everything = torch.arange(n, device=self.index.device)
            total = total + self._captured_by(span.values[seen : span.size], everything)
            span.captured = span.size, total
        return total[self.index]

    def _captured_by(self, functions: Tensor, index: Tensor) -> Tensor:
        data = self.problem.matrix(self.problem.basis(index)).transposed((functions * self.span.metric).T)
        pick = self.problem.rows.pick
        own = self.lam + self.gram_noise * pick(self.span.metric, index).double()
        return (data.T + own * pick(functions, index).double()).square().sum(0)

    def random(self) -> Tensor:
        return torch.from_numpy(self.rng.random(len(self.index))).to(self.index.device)


class RowsAtHand(RowCandidates):
    """Rows of this process as candidates, by their places; all there are, where it is the only one.

    On several processes each scores its own, so nothing may be asked that all must answer together: residuals and
    novelty, and what is drawn for all rows alike.
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
    """All T rows of a small Gram matrix as candidates, followed through a whole selection.

    The matrix (overwritten) becomes K + λI, Greedy02's regularisation: slope and curvature need no further penalty.
    All rows are candidates, so numbers of candidates and thresholds play no part.
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
        self._left = self.diagonal.clone()
        self._captured = torch.zeros_like(self._left)
        self._seen = 0
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
        """Pivoted Cholesky of K, advanced by the basis vectors chosen since it was last asked for."""
        for j in self._pivots[len(self._factor_rows) :]:
            row = self.K[j].clone()
            row[j] -= self.noise
            if self._factor_rows:
                V = torch.stack(self._factor_rows)
                row -= V[:, j] @ V
            # a pivot below rounding is that of a row which the others hold already: it changes nothing
            rounding = len(self._pivots) * torch.finfo(row.dtype).eps * self.diagonal[j]
            row *= torch.where(self._left[j] > rounding, self._left[j].rsqrt(), 0.0)
            self._factor_rows.append(row)
            self._left = (self._left - row.square()).clamp(min=0)
        return self._left

    @property
    def innovation(self) -> Tensor:
        return self._known.innovation

    @property
    def leverage(self) -> Tensor:
        return self._known.leverage

    @property
    def _known(self) -> SmallPosterior:
        """The sparse posterior, which unlike the residual has its penalty in the RKHS."""
        assert len(self.novelty)  # brings the factor up to date
        for v in self._factor_rows[self._posterior.size :]:
            self._posterior.take_in(v)
        return self._posterior

    @property
    def captured(self) -> Tensor:
        new = self.functions[self._seen : self.size]
        self._captured = self._captured + (new @ self.K).square().sum(0)
        self._seen = self.size
        return self._captured

    def random(self) -> Tensor:
        return torch.from_numpy(self.rng.random(len(self.K))).to(self.K.device)

    def take_in(self, j: Tensor) -> None:
        """Append column j to the span by Gram-Schmidt and take its part out of the residual."""
        Q, k = self.functions[: self.size], self.K[j]
        for _ in range(2 if self.size else 0):
            k = k - (Q @ k) @ Q
        q = k / torch.linalg.vector_norm(k).clamp(min=torch.finfo(k.dtype).tiny)
        self.functions[self.size] = q
        self.residual = torch.addmm(self.residual, q[:, None], (q @ self.residual)[None], alpha=-1)
        self._pivots.append(j)
        self.size += 1
