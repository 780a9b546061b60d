"""Preconditioner of K + D: Nyström approximation plus blocks of near rows.

The Nyström approximation BBᵀ from `NYSTROEM_ROWS` rows captures the smooth part of K; the remainder is large between
near rows only. So K + D ≈ P = BBᵀ + Δ, where Δ is the block diagonal of K − BBᵀ + D: the approximation of Snelson and
Ghahramani ("Local and global sparse Gaussian process approximations", AISTATS 2007), inverted by Woodbury's identity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from mercer.linalg import cholesky, inverse_factor

#: Rows of the Nyström approximation, and rows of a block at most. 500 and 250 take a quarter fewer steps and nearly
#: twice as long to prepare (cal_housing and pol, 12 000 rows). `benchmarks/notes/measurements.md` has steps without
#: blocks.
NYSTROEM_ROWS, BLOCK_ROWS = 350, 125


@dataclass(frozen=True)
class NystroemPreconditioner:
    """P⁻¹ = Δ⁻¹ − YYᵀ for all rows, and P⁻¹ without the rows of each fold.

    `blocks` (b × s) holds the rows of each block, padded by n. `positions` are the positions of the n rows in the
    flattened blocks; Y (b·s × r) and `block_inverses`, the blocks of Δ⁻¹ (b × s × s), are in this order. Without rows
    E the solution must be zero there, which takes the values −(EᵀP⁻¹E)⁻¹EᵀP⁻¹r on the right-hand side: for each fold
    `left_out` are the positions of its rows, `left_out_Y` the rows of Y there, and `left_out_inverses` these inverses.
    """

    blocks: Tensor
    positions: Tensor
    block_inverses: Tensor
    Y: Tensor
    left_out: list[Tensor]
    left_out_Y: list[Tensor]
    left_out_inverses: list[Tensor]

    @classmethod
    def of(
        cls, K: Tensor, rows_of: Callable[[Tensor], Tensor], ridge: Tensor, folds: list[Tensor]
    ) -> NystroemPreconditioner:
        """Build it from evenly spaced rows of K (`rows_of` indices) that no fold leaves out.

        A Nyström row that a fold leaves out doubles the number of steps.
        """
        n, blocks = len(K), neighbour_blocks(K)
        positions = torch.empty(n + 1, dtype=torch.long).scatter_(0, blocks.flatten(), torch.arange(blocks.numel()))[:n]
        in_all_folds = torch.ones(n, dtype=torch.bool)
        in_all_folds[torch.cat([torch.zeros(0, dtype=torch.long), *folds])] = False
        B = pad(nystroem_factor(rows_of, in_all_folds.nonzero()[:, 0]), (0, 0, 0, 1))[blocks]
        block_inverses = _inverses(_residual_blocks(K, B, ridge, blocks))
        V = (block_inverses @ B).flatten(0, 1)
        W = B.flatten(0, 1).T @ V
        W.diagonal().add_(1.0)
        Y = V @ inverse_factor(W)
        left_out = [positions[fold] for fold in folds]
        left_out_Y = [Y[out] for out in left_out]
        corners = [
            _submatrix(block_inverses, out) - Y_out @ Y_out.T for out, Y_out in zip(left_out, left_out_Y, strict=True)
        ]
        inverses = [torch.cholesky_inverse(cholesky(corner)[0]) for corner in corners]
        return cls(blocks, positions, block_inverses, Y, left_out, left_out_Y, inverses)

    def solve(self, R: Tensor) -> Tensor:
        """P⁻¹R for n × ((1 + f)·p) right-hand sides.

        Those of all rows come first, then those of each fold, zero at the rows it leaves out.
        """
        p = R.shape[1] // (1 + len(self.left_out))
        r = pad(R, (0, 0, 0, 1))[self.blocks]
        inner = (r.flatten(0, 1).T.contiguous() @ self.Y).T
        if self.left_out:
            r, x = r.flatten(0, 1), (self.block_inverses @ r).flatten(0, 1)
            folds = zip(self.left_out, self.left_out_Y, self.left_out_inverses, strict=True)
            for number, (out, Y_out, inverse) in enumerate(folds, 1):
                columns = slice(number * p, (number + 1) * p)
                r[out, columns] = -inverse @ (x[out, columns] - Y_out @ inner[:, columns])
                inner[:, columns] += Y_out.T @ r[out, columns]
            r = r.unflatten(0, self.blocks.shape)
        return torch.addmm((self.block_inverses @ r).flatten(0, 1), self.Y, inner, alpha=-1)[self.positions]


def _residual_blocks(K: Tensor, B: Tensor, ridge: Tensor, blocks: Tensor) -> Tensor:
    """Diagonal blocks (b × s × s) of K − BBᵀ + D; padding is an identity."""
    rows, padding = blocks.clamp(max=len(K) - 1), blocks == len(K)
    residual = K[rows[:, :, None], rows[:, None, :]].double().baddbmm_(B, B.mT, alpha=-1)
    residual.diagonal(dim1=1, dim2=2).add_(ridge[rows])
    residual.masked_fill_(padding[:, :, None] | padding[:, None, :], 0.0)
    residual.diagonal(dim1=1, dim2=2).add_(padding)
    return residual


def _inverses(blocks: Tensor) -> Tensor:
    return torch.cholesky_inverse(torch.stack([cholesky(block)[0] for block in blocks]))


def _submatrix(blocks: Tensor, positions: Tensor) -> Tensor:
    """Rows and columns `positions` of a block-diagonal matrix."""
    block, place = positions // blocks.shape[1], positions % blocks.shape[1]
    return blocks[block, place][:, place] * (block[:, None] == block)


def nystroem_factor(rows_of: Callable[[Tensor], Tensor], among: Tensor) -> Tensor:
    """B (n × r) with K ≈ BBᵀ, exact at evenly spaced rows among those given."""
    rows = among[torch.linspace(0, len(among) - 1, min(NYSTROEM_ROWS, len(among))).long()]
    K_rn = rows_of(rows)
    return torch.linalg.solve_triangular(cholesky(K_rn[:, rows])[0], K_rn, upper=False).T.contiguous()


def neighbour_blocks(K: Tensor) -> Tensor:
    """Blocks of at most `BLOCK_ROWS` near rows, by repeated bisection.

    They are b × s row indices, padded by n.

    Two rows far from each other in the kernel's distance split a block by which of them is nearer.

    >>> neighbour_blocks(torch.eye(3)).tolist()
    [[0, 1, 2]]
    """
    blocks, diagonal = [torch.arange(len(K))], K.diagonal()
    while len(blocks[0]) > BLOCK_ROWS:  # the first is one of the largest
        blocks = [half for block in blocks for half in _bisect(K, diagonal, block)]
    size = len(blocks[0])
    return torch.stack([pad(block, (0, size - len(block)), value=len(K)) for block in blocks])


def _bisect(K: Tensor, diagonal: Tensor, block: Tensor) -> tuple[Tensor, Tensor]:
    first = block[(diagonal[block] - 2 * K[block[0], block]).argmax()]
    other = block[(diagonal[block] - 2 * K[first, block]).argmax()]
    order = block[(K[other, block] - K[first, block]).argsort(stable=True)]
    half = -(-len(block) // 2)
    return order[:half], order[half:]
