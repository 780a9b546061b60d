"""Rows in the coordinates of several empirical maps, by blocks, and the factors that every step (6) shares.

`MappedRows` holds one problem and makes its coordinates block by block, or keeps them if memory allows. `Stack` holds
small problems together: B × n × r in one tensor per kernel, zero rows and coordinates filling up the smaller ones.
Each step is then one call for all of them, which takes a quarter of the time on 21 pairs of classes of `segment`.
A `Factor` per map solves its penalised least squares for any c and λ without factoring again. Dimensions before the
rows, written …, count the problems of a stack.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.data import RowSource, TensorRows
from mercer.empirical.kernel_map import EmpiricalMap
from mercer.empirical.problem import MemberProblem
from mercer.engine import Plan, each_block
from mercer.kernels import Kernel
from mercer.linalg import spectral_map

#: Kernel values of a problem (rows × basis vectors × kernels) up to which it is stacked: calls cost more than work.
SMALL = 1 << 19
#: Kernel values of a stack: enough to make calls cheap.
STACKED = 1 << 23

Visit = Callable[[slice, Sequence[Tensor]], object]


class KernelCoordinates(ABC):
    """Coordinates Φ_1, …, Φ_M of all rows, … × n × r_l each, visited by blocks of rows."""

    rows: RowSource
    plan: Plan
    #: Rows of a problem, and coordinates r_l of each map.
    n_rows: int
    ranks: list[int]
    #: Number of problems in a stack: the dimensions before the rows.
    lead: tuple[int, ...] = ()

    @abstractmethod
    def each(self, visit: Visit, columns: int = 0) -> None:
        """Call ``visit(where, [Φ_1, …, Φ_M])`` on blocks of rows, in order; `visit` makes `columns` numbers a row."""

    def total(self, part: Tensor) -> Tensor:
        """Sum over the rows of all processes (`RowSource.total`)."""
        return self.rows.total(part)

    def values(self, weights: Sequence[Tensor], bias: Tensor) -> Tensor:
        """f_l = Φ_l w_l + w_0l at all rows, M × … × n × C, from weights … × r_l × C and biases M × … × C."""
        as_tile: dict[str, Any] = {"device": self.plan.device, "dtype": self.plan.dtype}
        W, offset = [w.to(**as_tile) for w in weights], bias.to(**as_tile).unsqueeze(-2)
        out = torch.empty(len(W), *self.lead, self.n_rows, bias.shape[-1], **as_tile)

        def visit(where: slice, features: Sequence[Tensor]) -> None:
            for l, phi in enumerate(features):
                torch.add(phi @ W[l], offset[l], out=out[l, ..., where, :])

        self.each(visit)
        return out

    def transposed(self, targets: Tensor) -> tuple[list[Tensor], Tensor]:
        """Φ_lᵀ t for each map and Σ t, in float64; `targets` is … × n × C, weights included."""
        down = [self._zeros(r, targets.shape[-1]) for r in self.ranks]

        def visit(where: slice, features: Sequence[Tensor]) -> None:
            for total, part in zip(down, [phi.mT @ targets[..., where, :] for phi in features], strict=True):
                total.add_(part)

        self.each(visit)
        return [self.total(part) for part in down], self.total(targets.sum(-2, dtype=torch.float64))

    def factors(self, weight: Tensor) -> list[Factor]:
        """One `Factor` per map, of the rows under these weights (… × n), from one pass."""
        grams = [self._zeros(r, r) for r in self.ranks]
        sums = [self._zeros(r, 1) for r in self.ranks]
        root = weight.sqrt().unsqueeze(-1)

        def visit(where: slice, features: Sequence[Tensor]) -> None:
            weighted = [phi * root[..., where, :] for phi in features]
            parts = [(phi.mT @ phi, phi.mT @ root[..., where, :]) for phi in weighted]
            for l, (gram, total) in enumerate(parts):
                grams[l].add_(gram)
                sums[l].add_(total)

        self.each(visit)
        n, eps = self.total(weight.sum(-1, dtype=torch.float64)), torch.finfo(self.plan.dtype).eps
        return [Factor.of(self.total(gram), self.total(part), n, eps) for gram, part in zip(grams, sums, strict=True)]

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(*self.lead, *shape, device=self.plan.device, dtype=torch.float64)


class MappedRows(KernelCoordinates):
    """Coordinates of the rows of one problem, n × r_l for each map; one block at a time if memory is short.

    >>> from mercer.empirical.kernel_map import empirical_map
    >>> from mercer.engine import make_plan
    >>> from mercer.kernels import Gaussian, Linear
    >>> X = torch.rand(5, 2, dtype=torch.float64)
    >>> maps = [empirical_map(kernel, X[:3]) for kernel in (Linear(), Gaussian())]
    >>> mapped = MappedRows(TensorRows(X), maps, make_plan(5, device="cpu"))
    >>> mapped.each(lambda where, features: print(where, [list(phi.shape) for phi in features]))
    slice(0, 5, None) [[5, 2], [5, 3]]
    """

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


class Stack(KernelCoordinates):
    """Coordinates of small problems with H maps each, in memory, with their `targets`, `weight` and `maps`."""

    def __init__(self, problems: Sequence[MemberProblem], chosen: Sequence[np.ndarray]) -> None:
        """`chosen` are the rows of the maps of each problem, maps × basis vectors."""
        first, H, M = problems[0], len(chosen[0]), len(problems[0].kernels)
        B, m = len(problems) * H, max(rows.shape[1] for rows in chosen)
        self.plan, self.lead, self.rows = first.sample.plan, (B,), first.sample.rows
        self.n_rows = max(problem.sample.n_rows for problem in problems)
        as_tile: dict[str, Any] = {"device": self.plan.device, "dtype": self.plan.dtype}
        self.targets = torch.zeros(B, self.n_rows, first.sample.Y.shape[1], **as_tile)
        self.weight = torch.zeros(B, self.n_rows, **as_tile)
        tiles = torch.zeros(M, B, self.n_rows, m, **as_tile)
        squares = torch.zeros(M, B, m, m, dtype=torch.float64, device=self.plan.device)
        bases: list[Tensor] = []
        for q, (problem, rows) in enumerate(zip(problems, chosen, strict=True)):
            n, p, at = problem.sample.n_rows, rows.shape[1], slice(q * H, (q + 1) * H)
            self.targets[at, :n], self.weight[at, :n] = problem.sample.Y, problem.sample.weight
            X = problem.sample.rows.take(np.arange(n))
            index = torch.as_tensor(rows, device=X.device)
            Z = X[index]
            bases += Z
            for l, kernel in enumerate(problem.kernels):
                tile = kernel.columns(Z.flatten(0, 1))(X).view(n, H, p)  # one call for all maps
                tiles[l, at, :n, :p] = tile.transpose(0, 1)
                squares[l, at, :p, :p] = torch.stack([_square(kernel, tile[:, h], Z[h], index[h]) for h in range(H)])
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


def _square(kernel: Kernel, tile: Tensor, basis: Tensor, index: Tensor) -> Tensor:
    """The kernel between basis vectors in float64: rows of their tile if it is in float64."""
    return tile[index] if tile.dtype == torch.float64 else kernel(basis.double(), basis.double())


def stacks(problems: Sequence[MemberProblem], sizes: Sequence[int], copies: int) -> tuple[list[list[int]], list[int]]:
    """Group small problems into stacks, `copies` of each; return the stacks and the problems that stay alone.

    `sizes` are their basis vectors. Within a stack the largest problem has at most twice the rows and twice the basis
    vectors of the smallest.
    """
    shapes = [(problem.sample.n_rows, m, len(problem.kernels)) for problem, m in zip(problems, sizes, strict=True)]
    limit = min(STACKED, problems[0].sample.plan.memory_limit // (8 * 8))
    alone = [q for q, shape in enumerate(shapes) if prod(shape) > min(SMALL, limit // copies)]
    found: list[list[int]] = []
    for q in sorted(set(range(len(shapes))).difference(alone), key=shapes.__getitem__):
        n, m, M = shapes[q]
        smallest = shapes[found[-1][0]] if found else (0, 0, 0)
        alike = n <= 2 * smallest[0] and m <= 2 * smallest[1]
        if alike and n * 2 * smallest[1] * M * copies * (len(found[-1]) + 1) <= limit:
            found[-1].append(q)
        else:
            found.append([q])
    return found, alone


@dataclass(frozen=True)
class Factor:
    r"""Eigenvalues of the centred second moments of one map: they solve step (6) for any c and λ by divisions.

    The bias is not penalised, so centring removes it. The matrix left, α(ΦᵀSΦ − n m mᵀ) + cI, has the same
    eigenvectors for all α and c.
    """

    #: Means (… × r × 1), eigenvalues (… × r × 1), eigenvectors (… × r × r) and the weight of all rows (… × 1).
    mean: Tensor
    values: Tensor
    vectors: Tensor
    n: Tensor
    #: Rounding error of the eigenvalues (… × 1 × 1): a few eps of the tiles times the trace of the moments.
    rounding: Tensor

    @classmethod
    def of(cls, gram: Tensor, total: Tensor, n: Tensor, eps: float = torch.finfo(torch.float64).eps) -> Factor:
        """From ΦᵀSΦ (… × r × r), ΦᵀS1 (… × r × 1) and Σ s (…), made from tiles of precision `eps`."""
        n = n.unsqueeze(-1)
        mean = total / n.unsqueeze(-1)
        values, vectors = torch.linalg.eigh(gram - mean * total.mT)
        trace = gram.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
        known = 4 * max(eps, gram.shape[-1] * torch.finfo(torch.float64).eps)
        return cls(mean, values.clamp(min=0.0).unsqueeze(-1), vectors, n, known * trace)

    def inverse(self, alpha: Tensor, c: Tensor) -> Tensor:
        """1 / (α θ + c) for every eigenvalue θ and column (… × r × C); zero for directions that no row has."""
        curvature = alpha * self.values + c
        alive = curvature > (alpha * self.rounding).clamp(min=torch.finfo(torch.float64).tiny)
        return torch.where(alive, 1 / torch.where(alive, curvature, 1.0), 0.0)

    def solve(self, inverse: Tensor, alpha: Tensor, down: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
        """Weights (… × r × C) and biases (… × C) of α‖S^{1/2}(Φw + w_0)‖² − 2tᵀS(Φw + w_0) + c‖w‖² at their minimum.

        `inverse` is that of α and c, one number a column each; `down` is ΦᵀSt and `total` Σ s t.
        """
        slope = self.vectors.mT @ (down - self.mean * total.unsqueeze(-2))
        w = self.vectors @ (inverse * slope)
        return w, total / (alpha * self.n) - (self.mean.mT @ w).squeeze(-2)
