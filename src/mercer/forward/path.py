"""The path of a fit: the model after any number of steps, in small arrays."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.forward.absorb import Block
from mercer.forward.problem import Problem
from mercer.kernels import Kernel
from mercer.preprocessing.duplicates import MERGED_ROWS


@dataclass(frozen=True)
class BlockPath:
    """The path of one block: its triangular factor, its coordinates and its learners.

    `coef` has one entry for each step if steps change all coordinates, else a single entry.
    """

    R: np.ndarray
    coef: list[np.ndarray]
    terms: list[tuple[np.ndarray, np.ndarray, slice]]  # positions among all basis vectors, A, columns of R
    snapshots: list[tuple[np.ndarray, np.ndarray]]  # positions and weights after each step, if functions also leave

    def weights(self, n_terms: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Positions and weights of the basis vectors after `n_terms` learners."""
        if self.snapshots:
            return [self.snapshots[n_terms - 1]]
        m = self.terms[n_terms - 1][2].stop
        coef = self.coef[n_terms - 1] if len(self.coef) > 1 else self.coef[0][:m]
        x = np.linalg.solve(self.R[:m, :m], coef)
        return [(positions, A @ x[columns]) for positions, A, columns in self.terms[:n_terms]]


@dataclass(frozen=True)
class ExpansionPath:
    """Weights of all basis vectors after any number of steps.

    `rows` are the basis vectors in order of entry, and `basis` their coordinates where they are no rows of the table.
    """

    rows: np.ndarray
    n_outputs: int
    stages: list[BlockPath]
    basis: np.ndarray | None = None

    @classmethod
    def of(cls, blocks: list[Block]) -> ExpansionPath:
        """The path of consecutive blocks."""
        entered = [term.index for block in blocks for term in block.terms]
        entered += [index for block in blocks for index, _ in block.snapshots]
        index = torch.cat(entered).cpu().numpy() if entered else np.empty(0, dtype=np.int64)
        _, first = np.unique(index, return_index=True)
        entries = index[np.sort(first)]
        order = np.argsort(entries)

        def positions(rows: Tensor) -> np.ndarray:
            return order[np.searchsorted(entries, rows.cpu().numpy(), sorter=order)]

        stages = []
        for block in blocks:
            m = block.span.size
            path = block.coef_path or [block.span.coef[:m]]
            terms = [(positions(term.index), term.A.double().cpu().numpy(), term.where) for term in block.terms]
            snapshots = [(positions(index), W.cpu().numpy()) for index, W in block.snapshots]
            R = block.span.R[:m, :m].cpu().numpy()
            stages.append(BlockPath(R, [coef.cpu().numpy() for coef in path], terms, snapshots))
        return cls(entries, blocks[0].span.coef.shape[1] if blocks else 1, stages)

    @classmethod
    def of_weights(cls, rows: np.ndarray, W: np.ndarray) -> ExpansionPath:
        """The path of one step to these weights (m × p)."""
        m, p = W.shape
        eye = np.eye(p)
        return cls(rows, p, [BlockPath(eye, [eye], [(np.arange(m), W, slice(0, p))], [])])

    @property
    def n_steps(self) -> int:
        return sum(len(stage.terms) for stage in self.stages)

    def weights(self, n_steps: int) -> np.ndarray:
        """Weights (m × p) after `n_steps` steps; zero for basis vectors that entered later."""
        W = np.zeros((len(self.rows), self.n_outputs))
        for stage in self.stages:
            n_terms = min(n_steps, len(stage.terms))
            if n_terms:
                for positions, weight in stage.weights(n_terms):
                    np.add.at(W, positions, weight)
            n_steps -= n_terms
        return W


@dataclass(frozen=True)
class FittedExpansion:
    """A fitted model: rows, basis vectors, weights, kernel, penalty, and further fitted attributes (`kept`)."""

    index: Tensor
    basis: Tensor
    weights: Tensor
    kernel: Kernel
    lam: float
    moved: bool = False  # whether the basis vectors are no longer rows of the table
    kept: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def at(cls, path: ExpansionPath, n_steps: int, problem: Problem) -> FittedExpansion:
        """The model after `n_steps` steps, without basis vectors of zero weight, unless all are zero.

        A weight is zero if its vector entered later, has left again, or lies in the span of earlier vectors.
        """
        W, device = path.weights(n_steps), problem.plan.device
        weighted = (W != 0).any(1)
        keep = np.flatnonzero(weighted) if weighted.any() or n_steps < path.n_steps else np.arange(len(W))
        index, weights = (torch.as_tensor(array[keep], device=device) for array in (path.rows, W))
        return cls(index, problem.basis(index), weights, problem.kernel, problem.lam).merged()

    def merged(self) -> FittedExpansion:
        """Merge duplicate basis vectors and add their weights.

        The function is the same, and faster to evaluate. Among more than `MERGED_ROWS` the search takes too long.
        """
        if len(self.basis) > MERGED_ROWS:
            return self
        _, group, counts = torch.unique(self.basis, dim=0, return_inverse=True, return_counts=True)
        if len(counts) == len(group):
            return self
        first = torch.sort(group, stable=True)[1][counts.cumsum(0) - counts]
        weights = self.weights.new_zeros(len(counts), self.weights.shape[1]).index_add_(0, group, self.weights)
        return replace(self, index=self.index[first], basis=self.basis[first], weights=weights)
