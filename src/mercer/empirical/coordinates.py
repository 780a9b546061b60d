"""Rows in the coordinates of several empirical maps, by blocks, and the factors that every step (6) shares.

`MappedRows` makes the coordinates of a problem block by block, or keeps them if memory allows. A `Factor` per map
solves its penalised least squares for any c and λ without factoring again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mercer.data import RowSource, TensorRows
from mercer.empirical.kernel_map import EmpiricalMap
from mercer.engine import Plan, each_block

Visit = Callable[[slice, Sequence[Tensor]], object]


class MappedRows:
    """Coordinates of the rows of one problem, n × r_l for each map; one block at a time if memory is short."""

    def __init__(self, rows: RowSource, maps: Sequence[EmpiricalMap], plan: Plan, uses: int = 1) -> None:
        self.rows, self.maps, self.plan, self.n_rows = rows, list(maps), plan, rows.n_rows
        self.ranks = [made.rank for made in self.maps]
        self._columns = [made.columns(plan) for made in self.maps]
        self._width = sum(self.ranks) + max(made.basis.shape[0] for made in self.maps)
        self._kept: TensorRows | None = None
        if plan.keeps_tiles(rows.n_rows, sum(self.ranks), uses):
            kept = torch.empty(rows.n_rows, sum(self.ranks), device=plan.device, dtype=plan.dtype)
            self.each(lambda where, features: torch.cat(list(features), 1, out=kept[where]))
            self._kept = TensorRows(kept)

    def each(self, visit: Visit, columns: int = 0) -> None:
        size = self.plan.panel_rows(self._width + columns)
        if self._kept is not None:
            each_block(self._kept, self.plan, size, lambda at, block: visit(at, block.split(self.ranks, 1)))
        else:
            each_block(self.rows, self.plan, size, lambda at, block: visit(at, [f(block) for f in self._columns]))

    def values(self, weights: Sequence[Tensor], bias: Tensor) -> Tensor:
        """f_l = Φ_l w_l + w_0l at all rows, M × n × C, from weights r_l × C and biases M × C."""
        as_tile: dict[str, Any] = {"device": self.plan.device, "dtype": self.plan.dtype}
        W, offset = [w.to(**as_tile) for w in weights], bias.to(**as_tile).unsqueeze(1)
        out = torch.empty(len(W), self.n_rows, bias.shape[-1], **as_tile)

        def visit(where: slice, features: Sequence[Tensor]) -> None:
            for l, phi in enumerate(features):
                torch.add(phi @ W[l], offset[l], out=out[l, where])

        self.each(visit)
        return out

    def transposed(self, targets: Tensor) -> tuple[list[Tensor], Tensor]:
        """Φ_lᵀ t for each map and Σ t, in float64; `targets` is n × C, weights included."""
        down = [self._zeros(r, targets.shape[-1]) for r in self.ranks]

        def visit(where: slice, features: Sequence[Tensor]) -> None:
            for total, part in zip(down, [phi.mT @ targets[where] for phi in features], strict=True):
                total.add_(part)

        self.each(visit)
        return [self.rows.total(part) for part in down], self.rows.total(targets.sum(0, dtype=torch.float64))

    def factors(self, weight: Tensor) -> list[Factor]:
        """One `Factor` per map, of the rows under these weights (n), from one pass."""
        grams = [self._zeros(r, r) for r in self.ranks]
        sums = [self._zeros(r, 1) for r in self.ranks]
        root = weight.sqrt()[:, None]

        def visit(where: slice, features: Sequence[Tensor]) -> None:
            weighted = [phi * root[where] for phi in features]
            parts = [(phi.mT @ phi, phi.mT @ root[where]) for phi in weighted]
            for l, (gram, total) in enumerate(parts):
                grams[l].add_(gram)
                sums[l].add_(total)

        self.each(visit)
        total, eps = self.rows.total, torch.finfo(self.plan.dtype).eps
        n = total(weight.sum(dtype=torch.float64))
        return [Factor.of(total(gram), total(part), n, eps) for gram, part in zip(grams, sums, strict=True)]

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(*shape, device=self.plan.device, dtype=torch.float64)


@dataclass(frozen=True)
class Factor:
    r"""Eigenvalues of the centred second moments of one map: they solve step (6) for any c and λ by divisions.

    The bias is not penalised, so centring removes it. The matrix left, α(ΦᵀSΦ − n m mᵀ) + cI, has the same
    eigenvectors for all α and c.
    """

    #: Means (r × 1), eigenvalues (r × 1), eigenvectors (r × r) and the weight of all rows.
    mean: Tensor
    values: Tensor
    vectors: Tensor
    n: Tensor
    #: Rounding error of the eigenvalues: a few eps of the tiles times the trace of the moments.
    rounding: Tensor

    @classmethod
    def of(cls, gram: Tensor, total: Tensor, n: Tensor, eps: float = torch.finfo(torch.float64).eps) -> Factor:
        """From ΦᵀSΦ (r × r), ΦᵀS1 (r × 1) and Σ s, made from tiles of precision `eps`."""
        mean = total / n
        values, vectors = torch.linalg.eigh(gram - mean * total.mT)
        known = 4 * max(eps, gram.shape[-1] * torch.finfo(torch.float64).eps)
        return cls(mean, values.clamp(min=0.0)[:, None], vectors, n, known * gram.trace())

    def inverse(self, alpha: Tensor, c: Tensor) -> Tensor:
        """1 / (α θ + c) for every eigenvalue θ and column (r × C); zero for directions that no row has."""
        curvature = alpha * self.values + c
        alive = curvature > (alpha * self.rounding).clamp(min=torch.finfo(torch.float64).tiny)
        return torch.where(alive, 1 / torch.where(alive, curvature, 1.0), 0.0)

    def solve(self, inverse: Tensor, alpha: Tensor, down: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
        """Weights (r × C) and biases (C) of α‖S^{1/2}(Φw + w_0)‖² − 2tᵀS(Φw + w_0) + c‖w‖² at their minimum.

        `inverse` is that of α and c, one number a column each; `down` is ΦᵀSt and `total` Σ s t.
        """
        slope = self.vectors.mT @ (down - self.mean * total)
        w = self.vectors @ (inverse * slope)
        return w, total / (alpha * self.n) - (self.mean.T @ w)[0]
