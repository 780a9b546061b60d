"""The whole path of a fit in small arrays: the model after any number of steps, without the rows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.forward.absorb import Block
from mercer.forward.problem import Problem
from mercer.kernels import Kernel


@dataclass(frozen=True)
class Stage:
    """One block: its triangle, its coordinates (after every step where they moved), its learners."""

    R: np.ndarray
    coef: list[np.ndarray]
    terms: list[tuple[np.ndarray, np.ndarray, slice]]  # positions among all basis vectors, A, place
    snapshots: list[tuple[np.ndarray, np.ndarray]]  # positions and weights, where functions also left

    def weights(self, n_terms: int) -> list[tuple[np.ndarray, np.ndarray]]:
        if self.snapshots:
            return [self.snapshots[n_terms - 1]]
        m = self.terms[n_terms - 1][2].stop
        coef = self.coef[n_terms - 1] if len(self.coef) > 1 else self.coef[0][:m]
        x = np.linalg.solve(self.R[:m, :m], coef)
        return [(where, A @ x[place]) for where, A, place in self.terms[:n_terms]]


@dataclass(frozen=True)
class ExpansionPath:
    """Weights of all basis vectors after k steps, for any k; `rows` are the basis vectors in order of entry."""

    rows: np.ndarray
    n_outputs: int
    stages: list[Stage]

    @classmethod
    def of(cls, blocks: list[Block]) -> ExpansionPath:
        """The path of these blocks, one after the other."""
        entered = [term.index for block in blocks for term in block.terms]
        entered += [index for block in blocks for index, _ in block.snapshots]
        index = torch.cat(entered).cpu().numpy() if entered else np.empty(0, dtype=np.int64)
        _, first = np.unique(index, return_index=True)
        entries = index[np.sort(first)]
        order = np.argsort(entries)

        def place(rows: Tensor) -> np.ndarray:
            return order[np.searchsorted(entries, rows.cpu().numpy(), sorter=order)]

        stages = []
        for block in blocks:
            m = block.span.size
            path = block.coef_path or [block.span.coef[:m]]
            terms = [(place(term.index), term.A.double().cpu().numpy(), term.where) for term in block.terms]
            snapshots = [(place(index), W.cpu().numpy()) for index, W in block.snapshots]
            R = block.span.R[:m, :m].cpu().numpy()
            stages.append(Stage(R, [coef.cpu().numpy() for coef in path], terms, snapshots))
        return cls(entries, blocks[0].span.coef.shape[1] if blocks else 1, stages)

    @property
    def n_steps(self) -> int:
        return sum(len(stage.terms) for stage in self.stages)

    def weights(self, n_steps: int) -> np.ndarray:
        """Weights (m × p) after `n_steps` steps; zero for basis vectors that came later."""
        W = np.zeros((len(self.rows), self.n_outputs))
        for stage in self.stages:
            taken = min(n_steps, len(stage.terms))
            if taken:
                for where, weight in stage.weights(taken):
                    np.add.at(W, where, weight)
            n_steps -= taken
        return W


@dataclass(frozen=True)
class Final:
    """A finished model: rows and basis vectors, weights, kernel, penalty, and further attributes to keep."""

    index: Tensor
    basis: Tensor
    weights: Tensor
    kernel: Kernel
    lam: float
    moved: bool = False  # whether the basis vectors left their rows
    kept: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def at(cls, path: ExpansionPath, n_steps: int, problem: Problem) -> Final:
        """The model after `n_steps` steps; basis vectors without weight are left out, unless none has any.

        They came later, left again, or lie in the span of those before them.
        """
        W, device = path.weights(n_steps), problem.plan.device
        weighted = (W != 0).any(1)
        alive = np.flatnonzero(weighted) if weighted.any() or n_steps < path.n_steps else np.arange(len(W))
        index, weights = (torch.as_tensor(part[alive], device=device) for part in (path.rows, W))
        return cls(index, problem.basis(index), weights, problem.kernel, problem.lam).merged()

    def merged(self) -> Final:
        """Equal basis vectors as one with the sum of their weights: the same function, sooner asked."""
        _, group, counts = torch.unique(self.basis, dim=0, return_inverse=True, return_counts=True)
        if len(counts) == len(group):
            return self
        first = torch.sort(group, stable=True)[1][counts.cumsum(0) - counts]
        weights = self.weights.new_zeros(len(counts), self.weights.shape[1]).index_add_(0, group, self.weights)
        return replace(self, index=self.index[first], basis=self.basis[first], weights=weights)
