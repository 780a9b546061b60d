"""Small problems side by side: pairs of classes and members on few rows cost more calls than work one by one.

A `Stack` holds the coordinates of B problems in one tensor per kernel, B × n × r; what a smaller problem lacks is zero:
rows of no weight, coordinates in which no row differs. Each step of the learning is then one call for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.empirical.coordinates import KernelCoordinates, Visit
from mercer.empirical.mapping import EmpiricalMap
from mercer.empirical.problem import MemberProblem
from mercer.kernels import Kernel
from mercer.linalg import spectral_map

#: Kernel values of one problem (rows × basis vectors × kernels) up to which calls cost more than their work.
SMALL = 1 << 19
#: Kernel values of a stack: enough to make calls cheap.
STACKED = 1 << 23


def groups(problems: Sequence[MemberProblem], sizes: Sequence[int], copies: int) -> tuple[list[list[int]], list[int]]:
    """Which problems go side by side, `copies` of each, and which stay alone; `sizes` are their basis vectors.

    Within a group the longest has at most twice the rows and twice the basis vectors of the shortest.
    """
    shapes = [(problem.sample.n_rows, m, len(problem.kernels)) for problem, m in zip(problems, sizes, strict=True)]
    limit = min(STACKED, problems[0].sample.plan.memory_limit // (8 * 8))
    alone = [q for q, shape in enumerate(shapes) if prod(shape) > min(SMALL, limit // copies)]
    small: list[list[int]] = []
    for q in sorted(set(range(len(shapes))).difference(alone), key=shapes.__getitem__):
        n, m, M = shapes[q]
        shortest = shapes[small[-1][0]] if small else (0, 0, 0)
        like = n <= 2 * shortest[0] and m <= 2 * shortest[1]
        if like and n * 2 * shortest[1] * M * copies * (len(small[-1]) + 1) <= limit:
            small[-1].append(q)
        else:
            small.append([q])
    return small, alone


class Stack(KernelCoordinates):
    """The coordinates of problems of equally many maps each, in memory; `targets`, `weight` and `maps` go with them."""

    def __init__(self, problems: Sequence[MemberProblem], chosen: Sequence[np.ndarray]) -> None:
        """`chosen` are the rows of the maps of each problem, maps × basis vectors."""
        first, H = problems[0], len(chosen[0])
        self.plan, self.lead, self._rows = first.sample.plan, (len(problems) * H,), first.sample.rows
        self.n_rows, m = max(one.sample.n_rows for one in problems), max(rows.shape[1] for rows in chosen)
        as_tile: dict[str, Any] = {"device": self.plan.device, "dtype": self.plan.dtype}
        B, M = len(problems) * H, len(first.kernels)
        self.targets = torch.zeros(B, self.n_rows, first.sample.Y.shape[1], **as_tile)
        self.weight = torch.zeros(B, self.n_rows, **as_tile)
        tiles = torch.zeros(M, B, self.n_rows, m, **as_tile)
        squares = torch.zeros(M, B, m, m, dtype=torch.float64, device=self.plan.device)
        bases: list[Tensor] = []
        for q, (problem, rows) in enumerate(zip(problems, chosen, strict=True)):
            n, p, own = problem.sample.n_rows, rows.shape[1], slice(q * H, (q + 1) * H)
            self.targets[own, :n], self.weight[own, :n] = problem.sample.Y, problem.sample.weight
            X = problem.sample.rows.take(np.arange(n))
            index = torch.as_tensor(rows, device=X.device)
            Z = X[index]
            bases += Z
            for l, kernel in enumerate(problem.kernels):
                tile = kernel.columns(Z.flatten(0, 1))(X).view(n, H, p)  # one call for all maps
                tiles[l, own, :n, :p] = tile.transpose(0, 1)
                squares[l, own, :p, :p] = torch.stack([_square(kernel, tile[:, h], Z[h], index[h]) for h in range(H)])
        coefficients, kept = spectral_map(squares, dtype=self.plan.dtype)
        self.ranks = kept.amax(1).tolist()
        self._features = [tiles[l] @ coefficients[l, ..., :r].to(tiles) for l, r in enumerate(self.ranks)]
        self.maps = [
            [
                EmpiricalMap(kernel, Z, coefficients[l, b, : len(Z), : int(kept[l, b])])
                for l, kernel in enumerate(problems[b // H].kernels)
            ]
            for b, Z in enumerate(bases)
        ]

    def each(self, visit: Visit, columns: int = 0) -> None:
        visit(slice(0, self.n_rows), self._features)

    def total(self, part: Tensor) -> Tensor:
        return self._rows.total(part)


def _square(kernel: Kernel, tile: Tensor, basis: Tensor, index: Tensor) -> Tensor:
    """The kernel between basis vectors in float64: rows of their tile, where that is precise enough."""
    return tile[index] if tile.dtype == torch.float64 else kernel(basis.double(), basis.double())
