"""What is learnt in coordinates: classes by Ho-Kashyap steps, numbers by least squares; each fits and judges a grid."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import final

import torch
from torch import Tensor

from mercer.clock import Clock
from mercer.empirical.coordinates import Coordinates, MappedRows
from mercer.empirical.coupled import coupled_ridge, joint_moments
from mercer.empirical.hokashyap import Margins, Solution, Sweep, hokashyap
from mercer.empirical.problem import MemberProblem

Grid = Sequence[tuple[float, float]]


class Learner(ABC):
    """Fits all kernels of a problem together, for one pair (c, λ) or for judging many."""

    #: Passes over the rows to expect: whether coordinates are worth keeping.
    passes: int

    @abstractmethod
    def fit(self, coordinates: Coordinates, targets: Tensor, weight: Tensor, c: float, lam: float) -> Solution:
        """The solution for all rows, one column per output; `targets` are n × P, `weight` n."""

    @property
    def stacks(self) -> bool:
        """Whether `fit` takes several problems side by side."""
        return False

    @abstractmethod
    def judge(self, coordinates: MappedRows, problem: MemberProblem, held_out: Tensor, grid: Grid) -> Tensor:
        """Two numbers for each point of the grid, larger is better, from the rows held out (a mask, n).

        The second one decides where the first ties.
        """


@final
@dataclass(frozen=True)
class ClassLearner(Learner):
    """Signs ±1 by `hokashyap`; judged by the weight of the rows it gets right, then by the squared hinge loss."""

    margins: Margins = field(default_factory=Margins)
    callbacks: Sequence[Callable[[Sweep], object]] = ()
    clock: Clock = field(default_factory=Clock)
    passes = 8

    @property
    def stacks(self) -> bool:
        return not self.callbacks  # which see the steps of one problem

    def fit(self, coordinates: Coordinates, targets: Tensor, weight: Tensor, c: float, lam: float) -> Solution:
        ones = torch.ones(targets.shape[-1], dtype=torch.float64, device=targets.device)
        factors = coordinates.factors(weight)
        return hokashyap(
            coordinates, factors, targets, weight, c * ones, lam * ones, self.margins, self.callbacks, self.clock
        )

    def judge(self, coordinates: MappedRows, problem: MemberProblem, held_out: Tensor, grid: Grid) -> Tensor:
        P, n, M = problem.targets.shape[1], coordinates.n_rows, len(coordinates.maps)
        weight = torch.where(held_out, 0.0, problem.weight)
        factors = coordinates.factors(weight)
        affordable = problem.plan.memory_limit // (8 * 4 * M * n * P * problem.plan.itemsize)
        step = max(min(len(grid), affordable), 1)
        parts = []
        for start in range(0, len(grid), step):
            points = torch.tensor(grid[start : start + step], dtype=torch.float64, device=problem.plan.device)
            c, lam = points.repeat_interleave(P, 0).unbind(1)
            signs = problem.targets.repeat(1, len(points))
            found = hokashyap(coordinates, factors, signs, weight, c, lam, self.margins)
            f = coordinates.values(found.weights, found.bias).mean(0)[held_out].double()
            truth, s = problem.targets[held_out].double(), problem.weight[held_out].double()
            parts.append(_judged(f.reshape(len(f), len(points), P), truth[:, None], s))
        return torch.cat(parts)


def _judged(f: Tensor, truth: Tensor, s: Tensor) -> Tensor:
    """Weight of the rows that are right, and minus the squared hinge loss; f is n × points × outputs."""
    right = (f * truth > 0)[..., 0] if f.shape[2] == 1 else f.argmax(2) == truth.argmax(2)
    hinge = (1 - f * truth).clamp(min=0).square().sum(2)
    return torch.stack([s @ right.double(), -(s @ hinge)], 1)


@final
@dataclass(frozen=True)
class NumberLearner(Learner):
    """Numbers by `coupled_ridge`; judged by the squared error. Callbacks see the one step that this takes."""

    callbacks: Sequence[Callable[[Sweep], object]] = ()
    passes = 3

    def fit(self, coordinates: Coordinates, targets: Tensor, weight: Tensor, c: float, lam: float) -> Solution:
        W, bias, objective = coupled_ridge(joint_moments(coordinates, targets, weight), c, lam)
        for callback in self.callbacks:
            callback(Sweep(1, objective))
        return Solution(W, bias, objective[None], "the objective is quadratic: solved exactly")

    def judge(self, coordinates: MappedRows, problem: MemberProblem, held_out: Tensor, grid: Grid) -> Tensor:
        moments = joint_moments(coordinates, problem.targets, torch.where(held_out, 0.0, problem.weight))
        fits = [coupled_ridge(moments, c, lam)[:2] for c, lam in grid]
        weights = [torch.cat(of_kernel, 1) for of_kernel in zip(*(W for W, _ in fits), strict=True)]
        f = coordinates.values(weights, torch.cat([bias for _, bias in fits], 1)).mean(0)[held_out].double()
        truth, s = problem.targets[held_out].double(), problem.weight[held_out].double()
        error = (f.reshape(len(f), len(grid), -1) - truth[:, None]).square().sum(2)
        return torch.stack([-(s @ error), torch.zeros(len(grid), dtype=s.dtype, device=s.device)], 1)
