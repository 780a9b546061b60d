"""Products with the kernel matrix between all rows and m basis vectors, which is never formed whole.

These few reductions are the whole surface between algorithms and hardware. Tiles have the plan's
precision; what is summed over rows is summed in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from mercer.data import RowSource, TensorRows
from mercer.engine.fused import fused_columns
from mercer.engine.loop import each_block
from mercer.engine.plan import Plan
from mercer.kernels import Kernel


class RowMap(Protocol):
    """A linear map applied to the rows of a tile, such as a whitening, into `rank` coordinates."""

    @property
    def rank(self) -> int: ...
    def apply(self, tile: Tensor) -> Tensor: ...


class KernelMatrix:
    """K_nm = k(rows, basis) as an operator: ask it for products.

    `uses` says how many passes the caller expects; the plan keeps the matrix where that pays.

    >>> import torch
    >>> from mercer.engine import KernelMatrix, make_plan
    >>> from mercer.kernels import Gaussian
    >>> from mercer.data import TensorRows
    >>> X = torch.linspace(0, 1, 5, dtype=torch.float64)[:, None]
    >>> K = KernelMatrix(TensorRows(X), Gaussian(), X[:2], make_plan(5, device="cpu"))
    >>> K.product(torch.ones(2, 3, dtype=torch.float64)).shape
    torch.Size([5, 3])
    """

    def __init__(self, rows: RowSource, kernel: Kernel, basis: Tensor, plan: Plan, uses: int = 1) -> None:
        self.rows, self.basis, self.plan = rows, basis, plan
        self.shape = (rows.n_rows, basis.shape[0])
        self._fused = fused_columns(kernel, basis, plan)
        self.columns = self._fused or kernel.columns(basis)
        self._kept: Tensor | None = None
        if plan.keeps_tiles(*self.shape, uses):
            kept = torch.empty(self.shape, device=plan.device, dtype=plan.dtype)
            self._each_tile(self.plan.tile_rows(self.shape[1]), kept.__setitem__)
            self._kept, self._fused = kept, None

    def _each_tile(self, size: int, visit: Callable[[slice, Tensor], None]) -> None:
        if self._kept is not None:
            panel = max(size, self.plan.panel_rows(self.shape[1]))
            each_block(TensorRows(self._kept), self.plan, panel, visit)
        else:
            prepare = getattr(self.columns, "prepare", lambda chunk: (chunk, self.columns))
            each_block(self.rows, self.plan, size, visit, prepare)

    def _each_fused(self, visit: Callable[[slice, Tensor], object]) -> None:
        assert self._fused is not None
        each_block(self.rows, self.plan, self.plan.fused_rows(self._fused.width), visit)

    def _new(self, *shape: int) -> Tensor:
        return torch.zeros(shape, device=self.plan.device, dtype=torch.float64)

    def product(self, W: Tensor) -> Tensor:
        """K_nm W, n × p."""
        W = W.to(self.plan.device, self.plan.dtype)
        out = torch.empty(self.shape[0], W.shape[1], device=self.plan.device, dtype=self.plan.dtype)

        def visit(where: slice, tile: Tensor) -> None:
            torch.mm(tile, W, out=out[where])

        if (fused := self._fused) is not None:
            self._each_fused(lambda where, block: out.__setitem__(where, fused.product(block, W)))
        else:
            self._each_tile(self.plan.tile_rows(self.shape[1]), visit)
        return out

    def transposed(self, R: Tensor) -> Tensor:
        """K_nmᵀ R, m × p, in float64."""
        R, out = R.to(self.plan.dtype), self._new(self.shape[1], R.shape[1])

        def visit(where: slice, tile: Tensor) -> None:
            out.add_(tile.T @ R[where])

        if (fused := self._fused) is not None:
            self._each_fused(lambda where, block: out.add_(fused.transposed(block, R[where])))
        else:
            self._each_tile(self.plan.tile_rows(self.shape[1]), visit)
        return self.rows.total(out)

    def normal(self, W: Tensor, weight: Tensor) -> Tensor:
        """K_nmᵀ D K_nm W, m × p, in float64, from one look at each tile; `weight` is the diagonal of D."""
        if self._fused is not None:
            return self.transposed(weight[:, None] * self.product(W))
        W, out = W.to(self.plan.device, self.plan.dtype), self._new(self.shape[1], W.shape[1])

        def visit(where: slice, tile: Tensor) -> None:
            out.add_(tile.T @ (weight[where, None].to(tile.dtype) * (tile @ W)))

        self._each_tile(self.plan.tile_rows(self.shape[1]), visit)
        return self.rows.total(out)

    def moments(
        self, targets: Tensor, weight: Tensor | None = None, whiten: RowMap | None = None
    ) -> tuple[Tensor, Tensor]:
        """ΦᵀDΦ (r × r) and ΦᵀD·targets (r × p) in float64, where Φ is K_nm or its whitened form.

        `weight` is the non-negative diagonal of D, one number a row.
        """
        m, p = self.shape[1], targets.shape[1]
        r = m if whiten is None else whiten.rank
        gram, cross = self._new(r, r), self._new(r, p)

        def visit(where: slice, tile: Tensor) -> None:
            phi = tile if whiten is None else whiten.apply(tile)
            t = targets[where].to(phi.dtype)
            if weight is not None:
                root = weight[where].to(phi.dtype).sqrt()[:, None]
                phi, t = phi * root, t * root
            square, down = _gram(phi), phi.T @ t
            gram.add_(square)
            cross.add_(down)

        self._each_tile(self.plan.panel_rows(m), visit)
        gram.triu_()
        gram += gram.triu(1).T
        return self.rows.total(gram), self.rows.total(cross)

    def column_scores(self, g: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """k_jᵀ g and k_jᵀ D k_j for every column j, in float64; `g` is n × p."""
        slope, curvature = self._new(self.shape[1], g.shape[1]), self._new(self.shape[1])
        g = g.to(self.plan.dtype)

        def visit(where: slice, tile: Tensor) -> None:
            square = tile.square() if weight is None else tile.square() * weight[where].to(tile.dtype)[:, None]
            add(tile.T @ g[where], square.sum(0))

        def add(down: Tensor, across: Tensor) -> None:
            slope.add_(down)
            curvature.add_(across)

        def weights(where: slice) -> Tensor | None:
            return None if weight is None else weight[where]

        if (fused := self._fused) is not None:
            self._each_fused(lambda where, block: add(*fused.column_scores(block, g[where], weights(where))))
        else:
            self._each_tile(self.plan.tile_rows(self.shape[1]), visit)
        return self.rows.total(slope), self.rows.total(curvature)

    def row_quadratic(self, S: Tensor) -> Tensor:
        """diag(K_nm S K_mn), one number a row; S is m × m, symmetric."""
        S = S.to(self.plan.device, self.plan.dtype)
        out = torch.empty(self.shape[0], device=self.plan.device, dtype=self.plan.dtype)

        def visit(where: slice, tile: Tensor) -> None:
            out[where] = ((tile @ S) * tile).sum(1)

        self._each_tile(self.plan.panel_rows(self.shape[1]), visit)
        return out


def weighted_gradient(
    rows: RowSource,
    kernel: Kernel,
    basis: Tensor,
    plan: Plan,
    weight: Callable[[slice, Tensor], Tensor],
) -> tuple[dict[str, Tensor], Tensor]:
    """Gradient of a function of K_nm in the kernel's parameters and in the basis vectors.

    `weight(where, tile)` returns the derivative of that function in the tile's entries; only one tile
    of either exists at a time. The gradient of any of the products above is a case of this one.
    """
    by_parameter: dict[str, Tensor] = {}
    by_basis = torch.zeros(basis.shape, device=plan.device, dtype=torch.float64)

    def visit(where: slice, block: Tensor) -> None:
        tile, pull = kernel.traced(block, basis)
        parameters, _, inputs = pull(weight(where, tile))
        for name, value in parameters.items():
            by_parameter[name] = by_parameter.get(name, torch.zeros_like(value, dtype=torch.float64)) + value
        by_basis.add_(inputs)

    each_block(rows, plan, plan.traced_rows(basis.shape[0]), visit)
    return {name: rows.total(value) for name, value in by_parameter.items()}, rows.total(by_basis)


def reduce_rows(rows: RowSource, plan: Plan, statistic: Callable[[slice, Tensor], Tensor]) -> Tensor:
    """Σ over blocks of any statistic of the rows, in float64."""
    sums: list[Tensor] = []

    def visit(where: slice, block: Tensor) -> None:
        value = statistic(where, block).to(torch.float64)
        if sums:
            sums[0].add_(value)
        else:
            sums.append(value.clone())

    each_block(rows, plan, plan.chunk_rows(rows.n_columns), visit)
    return rows.total(sums[0])


def _gram(phi: Tensor, panel: int = 768) -> Tensor:
    """The upper block triangle of ΦᵀΦ: columns by panels, so that nearly half the work is saved."""
    r = phi.shape[1]
    if r <= panel:
        return phi.T @ phi
    out = phi.new_zeros(r, r)
    for j in range(0, r, panel):
        torch.mm(phi[:, j : j + panel].T, phi[:, j:], out=out[j : j + panel, j:])
    return out
