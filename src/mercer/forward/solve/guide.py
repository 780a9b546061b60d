"""About (K + D)⁻¹, D diagonal: all of K from some rows of it, and what they leave of it within blocks of near rows.

The Nyström approximation BBᵀ of `GUIDES` rows sees what is smooth; what it leaves of K is large between near rows
alone. So K + D ≈ P = BBᵀ + Δ, Δ the blocks on the diagonal of K − BBᵀ + D: the approximation of Snelson and Ghahramani
("Local and global sparse Gaussian process approximations", AISTATS 2007), inverted by Woodbury's identity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from mercer.linalg import cholesky, inverse_factor, mirrored, times_upper, upper_product

#: Rows whose Nyström approximation guides the steps, and rows of a block at most. 500 and 250 take a quarter fewer
#: steps and nearly twice as long to prepare (cal_housing and pol, 12 000 rows; docs/benchmarks.md has steps without
#: blocks).
GUIDES, BLOCK = 350, 125


@dataclass(frozen=True)
class Guide:
    """P⁻¹ = Δ⁻¹ − YYᵀ for all rows, and without those that each of some sets leaves out.

    `rows` (b × s) are those of each block, n where a block has fewer; `places` are the n rows' own among them all, and
    Y (b·s × r) and the blocks of Δ⁻¹ (`within`, b × s × s) are in this order. Without rows E the inverse is that of all
    rows under the condition that it is zero there, which takes the values −(EᵀP⁻¹E)⁻¹EᵀP⁻¹r on its right-hand side:
    `outs` are the places of these rows, `edges` the rows of Y there and `corners` these inverses, one a set.
    """

    rows: Tensor
    places: Tensor
    within: Tensor
    Y: Tensor
    outs: list[Tensor]
    edges: list[Tensor]
    corners: list[Tensor]

    @classmethod
    def of(cls, K: Tensor, rows_of: Callable[[Tensor], Tensor], ridge: Tensor, outs: list[Tensor]) -> Guide:
        """From every k-th row of K, by `rows_of` places, of those that no set leaves out.

        A row that guides where it is left out makes twice as many steps.
        """
        n, rows = len(K), near_rows(K)
        places = torch.empty(n + 1, dtype=torch.long).scatter_(0, rows.flatten(), torch.arange(rows.numel()))[:n]
        always = torch.ones(n, dtype=torch.bool)
        always[torch.cat([always.new_zeros(0, dtype=torch.long), *outs])] = False
        B = pad(nystroem(rows_of, always.nonzero()[:, 0]), (0, 0, 0, 1))[rows]
        within = _inverted(_left_within(K, B, ridge, rows))
        V = (within @ B).flatten(0, 1)
        W = mirrored(upper_product(B.flatten(0, 1), V))
        W.diagonal().add_(1.0)
        Y, outs = times_upper(V, inverse_factor(W)), [places[out] for out in outs]
        edges = [Y[out] for out in outs]
        left = [_corner(within, out) - edge @ edge.T for out, edge in zip(outs, edges, strict=True)]
        return cls(rows, places, within, Y, outs, edges, [torch.cholesky_inverse(cholesky(one)[0]) for one in left])

    def solve(self, R: Tensor) -> Tensor:
        """The approximate solutions of n × ((1 + f)·p) right-hand sides, those of sets zero where rows are left out."""
        p = R.shape[1] // (1 + len(self.outs))
        asked = pad(R, (0, 0, 0, 1))[self.rows]
        inner = (asked.flatten(0, 1).T.contiguous() @ self.Y).T
        if self.outs:
            asked, found = asked.flatten(0, 1), (self.within @ asked).flatten(0, 1)
            for number, (out, edge, corner) in enumerate(zip(self.outs, self.edges, self.corners, strict=True), 1):
                own = slice(number * p, (number + 1) * p)
                asked[out, own] = -corner @ (found[out, own] - edge @ inner[:, own])
                inner[:, own] += edge.T @ asked[out, own]
            asked = asked.unflatten(0, self.rows.shape)
        return torch.addmm((self.within @ asked).flatten(0, 1), self.Y, inner, alpha=-1)[self.places]


def _left_within(K: Tensor, B: Tensor, ridge: Tensor, rows: Tensor) -> Tensor:
    """Blocks (b × s × s) on the diagonal of K − BBᵀ + D; what is no row is one of its own."""
    held, none = rows.clamp(max=len(K) - 1), rows == len(K)
    blocks = K[held[:, :, None], held[:, None, :]].double().baddbmm_(B, B.mT, alpha=-1)
    blocks.diagonal(dim1=1, dim2=2).add_(ridge[held])
    blocks.masked_fill_(none[:, :, None] | none[:, None, :], 0.0)
    blocks.diagonal(dim1=1, dim2=2).add_(none)
    return blocks


def _inverted(blocks: Tensor) -> Tensor:
    return torch.cholesky_inverse(torch.stack([cholesky(block)[0] for block in blocks]))


def _corner(within: Tensor, places: Tensor) -> Tensor:
    """What a matrix of these blocks has between these places."""
    block, place = places // within.shape[1], places % within.shape[1]
    return within[block, place][:, place] * (block[:, None] == block)


def nystroem(rows_of: Callable[[Tensor], Tensor], among: Tensor) -> Tensor:
    """B (n × r) with K ≈ BBᵀ, exact at every k-th of these rows."""
    rows = among[torch.linspace(0, len(among) - 1, min(GUIDES, len(among))).long()]
    K_rn = rows_of(rows)
    return torch.linalg.solve_triangular(cholesky(K_rn[:, rows])[0], K_rn, upper=False).T.contiguous()


def near_rows(K: Tensor) -> Tensor:
    """Blocks of at most `BLOCK` near rows (b × s, n where a block has fewer): all rows, halved again and again.

    Two rows far from each other, as the kernel measures it, halve the others by which of them is nearer.

    >>> near_rows(torch.eye(3)).tolist()
    [[0, 1, 2]]
    """
    blocks, diagonal = [torch.arange(len(K))], K.diagonal()
    while len(blocks[0]) > BLOCK:  # the first is one of the largest
        blocks = [half for block in blocks for half in _halves(K, diagonal, block)]
    size = len(blocks[0])
    return torch.stack([pad(block, (0, size - len(block)), value=len(K)) for block in blocks])


def _halves(K: Tensor, diagonal: Tensor, block: Tensor) -> tuple[Tensor, Tensor]:
    first = block[(diagonal[block] - 2 * K[block[0], block]).argmax()]
    other = block[(diagonal[block] - 2 * K[first, block]).argmax()]
    order = block[(K[other, block] - K[first, block]).argsort(stable=True)]
    half = -(-len(block) // 2)
    return order[:half], order[half:]
