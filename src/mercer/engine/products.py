"""Products with the kernel matrix between all rows and m basis vectors, which is never formed as a whole.

These few reductions are the only interface between algorithms and hardware. Tiles have the plan's
precision; what is summed over rows is summed in float64.

Every pass over rows in this package goes through `each_block`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from mercer.data import RowSource, TensorRows
from mercer.engine.fused import fused_columns
from mercer.engine.plan import Plan
from mercer.kernels import Columns, Kernel
from mercer.linalg import mirrored, upper_product

#: The argument of a visitor, made from a block of a prepared chunk.
BlockView = Callable[[Tensor], Any]
#: Passes up to which fused products are computed again in each: writing a tile takes as long as two or three of them.
FUSED_USES = 3


def each_block(
    rows: RowSource,
    plan: Plan,
    size: int,
    visit: Callable[[slice, Any], object],
    prepare: Callable[[Tensor], tuple[Tensor, BlockView]] | None = None,
) -> None:
    """Call ``visit(where, block)`` on blocks of at most `size` rows, in order.

    `prepare` does once per chunk read from the source the work that is the same for all its blocks. It returns a
    tensor of as many rows, and a function that makes the argument of `visit` from a block of that tensor.

    If memory runs out, the block is halved and the loop goes on from the same row. So `visit` must change its result
    in one last step (an in-place add or an assignment).
    """
    for start, chunk in rows.blocks(plan.chunk_rows(rows.n_columns, size)):
        view: BlockView | None = None
        if prepare is not None:
            chunk, view = prepare(chunk)
        begin = 0
        while begin < chunk.shape[0]:
            block = chunk[begin : begin + size]
            where = slice(start + begin, start + begin + block.shape[0])
            try:
                visit(where, block if view is None else view(block))
            except (RuntimeError, MemoryError) as error:
                if size == 1 or not is_out_of_memory(error):
                    raise
                size = (block.shape[0] + 1) // 2
                if plan.device.type == "cuda":
                    torch.cuda.empty_cache()
            else:
                begin += block.shape[0]


def is_out_of_memory(error: Exception) -> bool:
    """Whether an allocation failed.

    Torch has a type for failed allocations on a GPU alone. Its CPU allocator raises a plain RuntimeError
    ("DefaultCPUAllocator: can't allocate memory"), so there the message decides.
    """
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "alloc" in str(error)


@final
@dataclass(frozen=True)
class KeptColumns(Columns):
    """Columns for rows that are rows of K already."""

    def __call__(self, X: Tensor) -> Tensor:
        return X

    def with_basis(self, Z: Tensor) -> Columns:
        raise TypeError("a kept matrix belongs to its own basis vectors")


class KernelMatrix:
    """K_nm = k(rows, basis) as an operator that is asked for products.

    `uses` is the number of passes that the caller expects; the plan keeps the matrix if that pays.

    >>> from mercer.engine import KernelMatrix, make_plan
    >>> from mercer.kernels import Gaussian
    >>> X = torch.linspace(0, 1, 5, dtype=torch.float64)[:, None]
    >>> K = KernelMatrix(TensorRows(X), Gaussian(), X[:2], make_plan(5, device="cpu"))
    >>> K.product(torch.ones(2, 3, dtype=torch.float64)).shape
    torch.Size([5, 3])
    """

    def __init__(self, rows: RowSource, kernel: Kernel, basis: Tensor, plan: Plan, uses: int = 1) -> None:
        self.rows, self.basis, self.plan = rows, basis, plan
        self.shape = (rows.n_rows, basis.shape[0])
        m = basis.shape[0]
        fused = fused_columns(kernel, basis, plan)
        self.columns: Columns = fused or kernel.columns(basis).specialise(rows.n_rows)
        self._source, self._tiles = rows, self.columns
        #: Rows of a block whose tile is reduced at once, and of a block whose tile enters an m × m product.
        self._tile_rows, self._panel_rows = plan.tile_rows(m), plan.panel_rows(m)
        if plan.keeps_tiles(*self.shape, uses) and (fused is None or uses > FUSED_USES):
            kept = torch.empty(self.shape, device=plan.device, dtype=plan.dtype)
            self._each(self._tile_rows, lambda where, columns, X: kept.__setitem__(where, columns(X)))
            self._source, self._tiles = TensorRows(kept), KeptColumns()
            self._tile_rows = max(self._tile_rows, self._panel_rows)
        elif fused is not None:
            self._tile_rows = plan.fused_rows(fused.width)

    def _each(self, size: int, visit: Callable[[slice, Columns, Tensor], object]) -> None:
        """Call ``visit(where, columns, X)`` on blocks of rows, prepared for `columns`."""

        def prepare(chunk: Tensor) -> tuple[Tensor, Callable[[Tensor], tuple[Columns, Tensor]]]:
            X, columns = self._tiles.prepare(chunk)
            return X, lambda block: (columns, block)

        each_block(self._source, self.plan, size, lambda where, seen: visit(where, *seen), prepare)

    def _block_rows(self, p: int) -> int:
        """Rows of a block for products with p columns: those of a tile, or a whole chunk where no tile is written."""
        if not self._tiles.is_matrix_free(p):
            return self._tile_rows
        return self.plan.chunk_rows(self.rows.n_columns, self._tile_rows)

    def _new(self, *shape: int) -> Tensor:
        return torch.zeros(shape, device=self.plan.device, dtype=torch.float64)

    def product(self, W: Tensor) -> Tensor:
        """K_nm W, n × p."""
        W = W.to(self.plan.device, self.plan.dtype)
        out = torch.empty(self.shape[0], W.shape[1], device=self.plan.device, dtype=self.plan.dtype)
        size = self._block_rows(W.shape[1])
        self._each(size, lambda where, columns, X: out.__setitem__(where, columns.product(X, W)))
        return out

    def transposed(self, R: Tensor) -> Tensor:
        """K_nmᵀ R, m × p, in float64."""
        R, out = R.to(self.plan.dtype), self._new(self.shape[1], R.shape[1])
        size = self._block_rows(R.shape[1])
        self._each(size, lambda where, columns, X: out.add_(columns.transposed(X, R[where])))
        return self.rows.total(out)

    def normal(self, W: Tensor, weight: Tensor) -> Tensor:
        """K_nmᵀ D K_nm W, m × p, in float64, with one tile per block; `weight` is the diagonal of D."""
        W, out = W.to(self.plan.device, self.plan.dtype), self._new(self.shape[1], W.shape[1])
        self._each(self._tile_rows, lambda where, columns, X: out.add_(columns.normal(X, W, weight[where])))
        return self.rows.total(out)

    def moments(self, targets: Tensor, weight: Tensor | None = None, B: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """ΦᵀDΦ (r × r) and ΦᵀD·targets (r × p) in float64, where Φ is K_nm or K_nm B, such as with a whitening B.

        `weight` is the non-negative diagonal of D, one number a row.
        """
        r = self.shape[1] if B is None else B.shape[1]
        tile_map = None if B is None else B.to(self.plan.device, self.plan.dtype)
        gram, cross = self._new(r, r), self._new(r, targets.shape[1])

        def visit(where: slice, columns: Columns, X: Tensor) -> None:
            phi = columns(X) if tile_map is None else columns(X) @ tile_map
            t = targets[where].to(phi.dtype)
            if weight is not None:
                root = weight[where].to(phi.dtype).sqrt()[:, None]
                phi, t = phi * root, t * root
            square, down = upper_product(phi, phi), phi.T @ t
            gram.add_(square)
            cross.add_(down)

        self._each(self._panel_rows, visit)
        return self.rows.total(mirrored(gram)), self.rows.total(cross)

    def column_scores(self, g: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """k_jᵀ g and k_jᵀ D k_j for every column j, in float64; `g` is n × p."""
        slope, curvature = self._new(self.shape[1], g.shape[1]), self._new(self.shape[1])
        g = g.to(self.plan.dtype)

        def visit(where: slice, columns: Columns, X: Tensor) -> None:
            down, across = columns.column_scores(X, g[where], None if weight is None else weight[where])
            slope.add_(down)
            curvature.add_(across)

        self._each(self._block_rows(g.shape[1]), visit)
        return self.rows.total(slope), self.rows.total(curvature)

    def slopes(self, W: Tensor) -> Tensor:
        """The gradient of f = Σ_j k(·, z_j) W_j at every row, n × D × p; a kept matrix does not help."""
        W = W.to(self.plan.device, self.plan.dtype)
        n, D = self.rows.n_rows, self.rows.n_columns
        out = torch.empty(n, D, W.shape[1], device=self.plan.device, dtype=self.plan.dtype)
        size = self.plan.traced_rows(self.shape[1])
        each_block(self.rows, self.plan, size, lambda where, X: out.__setitem__(where, self.columns.slopes(X, W)))
        return out


def reduce_rows(
    rows: RowSource, plan: Plan, statistic: Callable[[slice, Tensor], Tensor], size: int | None = None
) -> Tensor:
    """Σ over blocks (of `size` rows at most) of any statistic of the rows, in float64."""
    sums: list[Tensor] = []

    def visit(where: slice, block: Tensor) -> None:
        value = statistic(where, block).to(torch.float64)
        if sums:
            sums[0].add_(value)
        else:
            sums.append(value.clone())

    each_block(rows, plan, size or plan.chunk_rows(rows.n_columns), visit)
    if not sums:  # a process without rows contributes an empty sum
        visit(slice(0, 0), rows.take(np.arange(0)))
    return rows.total(sums[0])
