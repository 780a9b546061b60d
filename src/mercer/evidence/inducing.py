"""The whitened inducing system: rows in coordinates in which K_mm is the identity, and its backward pass.

All evidences depend on kernel and inducing inputs only through Q = A Aᵀ, A = K_nm L⁻ᵀ, and diag K. So a gradient
follows from its derivatives in A and in diag K: the way back to K_nm, K_mm, the kernel's parameters and the inducing
inputs is the same for all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from mercer.data import RowSource, TensorRows
from mercer.engine import Plan, each_block
from mercer.kernels import Kernel
from mercer.kernels.base import vjp
from mercer.linalg import inverse_factor, lifted

#: Added to the diagonal of K_mm, relative to its mean: inducing inputs may meet, and float32 tiles carry rounding.
JITTER = {torch.float32: 1e-6, torch.float64: 1e-10}

#: Kept rows up to which no loop over blocks is needed: they never exhaust memory, and the loop costs more than work.
ONE_BLOCK = 2048


def unexplained(diagonal: Tensor, A: Tensor) -> Tensor:
    """k − q of rows with this k(x, x), in the precision of `diagonal`."""
    return (diagonal - A.square().sum(1)).clamp(min=0)


class Weights(NamedTuple):
    """Derivatives on a block of rows: in the tile K_nm and in diag K, and their part of 2AᵀGA if it is not known.

    Only the upper triangle of that part is used.
    """

    by_tile: Tensor
    by_diagonal: Tensor
    by_gram: Tensor | None = None


class Inducing:
    """Rows against inducing inputs, in whitened coordinates: A = K_nm P with P = L⁻ᵀ.

    `uses` is the number of passes to come; the plan decides whether A is kept. Tiles come from the kernel and not from
    fused programs (`KernelMatrix`): the gradient needs the same tiles, and a recorded evaluation must not contain a
    kernel's parameters as constants.
    """

    def __init__(self, rows: RowSource, kernel: Kernel, basis: Tensor, plan: Plan, uses: int = 1) -> None:
        self.rows, self.kernel, self.basis, self.plan = rows, kernel, basis.to(plan.device, plan.dtype), plan
        self.n, self.m = rows.n_rows, basis.shape[0]
        exact = self.basis.double()
        K_mm = kernel(exact, exact)
        self.eye = torch.eye(self.m, dtype=torch.float64, device=plan.device)
        self.P = inverse_factor(lifted(K_mm, JITTER[plan.dtype]))
        self.tile_map = self.P.to(plan.dtype)
        self._columns = kernel.columns(self.basis)
        self._kept: Tensor | None = None
        self._full = False  # whether the first pass has stored A
        if plan.keeps_tiles(self.n, self.m, uses):
            self._kept = torch.empty(self.n, self.m, device=plan.device, dtype=plan.dtype)

    def each(self, visit: Callable[[slice, Tensor], object]) -> None:
        """Call ``visit(where, A)`` on blocks of whitened rows."""
        size = self.plan.panel_rows(self.m)
        if self._kept is None or not self._full:
            each_block(self.rows, self.plan, size, lambda where, X: visit(where, self._seen(where, X)))
            self._full = True
        elif self.n <= min(size, ONE_BLOCK):
            visit(slice(0, self.n), self._kept)
        else:
            each_block(TensorRows(self._kept), self.plan, size, visit)

    def _seen(self, where: slice, X: Tensor) -> Tensor:
        """A of these rows, stored if A is kept."""
        A = self._columns(X) @ self.tile_map
        if self._kept is not None:
            self._kept[where] = A
        return A

    def back(self, by_A: Tensor) -> Tensor:
        """Derivatives in A as derivatives in the tile K_nm."""
        return by_A @ self.tile_map.T

    def diagonal(self) -> Tensor:
        """k(x, x) of all rows, in float64."""
        out = torch.empty(self.n, dtype=torch.float64, device=self.plan.device)
        size = self.plan.chunk_rows(self.rows.n_columns)
        each_block(self.rows, self.plan, size, lambda where, X: out.__setitem__(where, self.kernel.diag(X).double()))
        return out

    def pull_back(
        self,
        weigh: Callable[[slice, Tensor], Weights],
        by_gram: Tensor | None,
        inputs: bool = True,
        whole: bool = False,
    ) -> tuple[dict[str, Tensor], Tensor]:
        """The gradient in the kernel's parameters and the inducing inputs of a function of Q and diag K.

        ``weigh(where, A)`` returns the derivatives on those rows. With G the derivative in Q, that in A is 2GA, in the
        tile K_nm 2 G A Pᵀ, and in K_mm −P (AᵀGA) Pᵀ; `by_gram` is the part of 2AᵀGA that the caller knows, or the
        `whole` of it; parts returned with the weights are added. float32 values stay in whitened coordinates until the
        last product: P G Pᵀ would square the condition number of K_mm. With ``inputs=False`` the inducing
        inputs are fixed.
        """
        names, values = list(self.kernel.tunable()), list(self.kernel.tunable().values())
        basis = self.basis
        totals = [torch.zeros(torch.as_tensor(v).shape, dtype=torch.float64, device=basis.device) for v in values]
        by_basis = torch.zeros(basis.shape, dtype=torch.float64, device=basis.device)
        gram = torch.zeros_like(self.eye)

        def visit(where: slice, block: Tensor) -> None:
            with torch.enable_grad():
                as_leaf = partial(torch.as_tensor, dtype=block.dtype, device=block.device)
                leaves = [as_leaf(v).clone().requires_grad_() for v in values]
                Z = basis.detach().clone().requires_grad_(inputs)
                bound = self.kernel.replaced(dict(zip(names, leaves, strict=True)))
                tile, diagonal = bound(block, Z), bound.diag(block)
            known = self._kept if self._full else None
            found = weigh(where, tile.detach() @ self.tile_map if known is None else known[where])
            outputs, weights = [tile], [found.by_tile]
            if diagonal.requires_grad:
                outputs, weights = [tile, diagonal], [found.by_tile, found.by_diagonal.to(diagonal)]
            wanted = [*leaves, Z] if inputs else leaves
            grads: tuple[Tensor, ...] = ()
            if wanted and tile.requires_grad:
                grads = vjp(outputs, weights, wanted)
            for total, grad in zip(totals, grads, strict=False):
                total.add_(grad)
            if inputs:
                by_basis.add_(grads[-1])
            if found.by_gram is not None:
                gram.add_(found.by_gram)

        each_block(self.rows, self.plan, self.plan.traced_rows(self.m), visit)
        by_basis, *totals = self.rows.shard.group.sums(by_basis, *totals, *([] if whole else [gram]))
        inner = self.eye.new_zeros(()) if by_gram is None else by_gram
        inner = inner if whole else inner + totals.pop()
        by_K_mm = self.P @ (-0.5 * inner) @ self.P.T
        exact = basis.double()
        _, pull = self.kernel.traced(exact, exact, inputs=inputs)
        # the jitter follows the mean of the diagonal
        by_K_mm = by_K_mm + JITTER[self.plan.dtype] * by_K_mm.diagonal().mean() * self.eye
        parameters, left, right = pull(by_K_mm)
        by_parameter = {
            name: total + parameters[name].reshape(total.shape) for name, total in zip(names, totals, strict=True)
        }
        return by_parameter, by_basis + left + right
