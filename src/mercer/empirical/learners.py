"""Learners in the coordinates of maps: Ho-Kashyap steps for classes, coupled least squares for numbers.

Both fit one pair (c, λ) or score a grid of them on held-out rows. Least squares with the coupling term of MEKL13 is
our own extension: regression with several empirical kernels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import ClassVar, Self, final

import torch
from torch import Tensor

from mercer.clock import Clock, StopKind, StopReason
from mercer.empirical.coordinates import MappedRows
from mercer.empirical.hokashyap import Margins, Solution, Sweep, hokashyap
from mercer.empirical.problem import MemberProblem
from mercer.linalg import cholesky

Grid = Sequence[tuple[float, float]]
#: A coupling beyond which functions agree to all digits that the system of equations leaves them.
LARGEST_COUPLING = 1e8


@dataclass(frozen=True)
class JointMoments:
    """Centred second moments of all coordinates of all kernels (R × R, R = Σ r_l) and with the targets (R × P)."""

    gram: Tensor
    cross: Tensor
    mean: Tensor
    target_mean: Tensor
    target_square: Tensor
    ranks: list[int]


def joint_moments(coordinates: MappedRows, targets: Tensor, weight: Tensor) -> JointMoments:
    """Sum over the rows, in one pass, what `coupled_ridge` needs; `targets` is n × P."""
    R, P = sum(coordinates.ranks), targets.shape[1]
    coordinates.plan.require_square(R)
    gram = torch.zeros(R + P + 1, R + P + 1, dtype=torch.float64, device=coordinates.plan.device)
    root = weight.sqrt()[:, None]

    def visit(where: slice, features: Sequence[Tensor]) -> None:
        ones = torch.ones_like(targets[where, :1])
        block = torch.cat([*features, targets[where], ones], 1) * root[where]
        gram.add_(block.T @ block)

    coordinates.each(visit)
    gram = coordinates.rows.total(gram)
    n, sums = gram[-1, -1], gram[-1, :-1]
    centred = gram[:-1, :-1] - torch.outer(sums, sums) / n
    mean = sums / n
    square = centred.diagonal()[R:]
    return JointMoments(centred[:R, :R], centred[:R, R:], mean[:R], mean[R:], square, coordinates.ranks)


def coupled_gram(gram: Tensor, ranks: Sequence[int], lam: float) -> Tensor:
    """Second moments of all coordinates under the coupling: 1 + λ(M − 1)/M times within a kernel, −λ/M times across."""
    M = len(ranks)
    A = gram * (-lam / M)
    for a, z in pairwise([0, *accumulate(ranks)]):
        A[a:z, a:z] = (1 + lam * (M - 1) / M) * gram[a:z, a:z]
    return A


def coupled_ridge(moments: JointMoments, c: float, lam: float) -> tuple[list[Tensor], Tensor, Tensor]:
    r"""The exact minimum of

    .. math:: \sum_l \big[\|S^{1/2}(y - f_l)\|^2 + c\|w_l\|^2\big] + \lambda\sum_l \|S^{1/2}(f_l - \bar f)\|^2,
        \qquad f_l = \Phi_l w_l + a_l,\ \bar f = \tfrac1M\sum_l f_l.

    Σ_l (y − f_l)² is M(y − f̄)² + Σ_l (f_l − f̄)², so the problem is convex from λ = −1 on: there only f̄ is fitted, which
    is ridge regression with the mean of the kernels; λ = 0 fits each kernel alone, and larger λ makes them agree.
    It is quadratic: one system of size Σ r_l gives the weights (r_l × P), the biases (M × P) and the objective (P).
    """
    M, ranks, lam = len(moments.ranks), moments.ranks, min(lam, LARGEST_COUPLING)
    A = coupled_gram(moments.gram, ranks, lam)
    A.diagonal().add_(c)
    w = torch.cholesky_solve(moments.cross, cholesky(A)[0])
    # data are centred: a kernel's bias is the mean target less its weights times the mean features
    W = list(w.split(ranks))
    bias = torch.stack([moments.target_mean - m @ w_l for m, w_l in zip(moments.mean.split(ranks), W, strict=True)])
    objective = M * moments.target_square - 2 * (w * moments.cross).sum(0) + (w * (A @ w)).sum(0)
    return W, bias, objective.clamp(min=0.0)


@dataclass(frozen=True)
class MemberLearner(ABC):
    """Fit all kernels of a problem together for one pair (c, λ), or score many pairs on held-out rows."""

    callbacks: Sequence[Callable[[Sweep], object]] = ()
    #: Passes over the rows to expect: whether coordinates are worth keeping.
    passes: ClassVar[int]

    def unheard(self) -> Self:
        """The same learner without callbacks."""
        return replace(self, callbacks=())

    @abstractmethod
    def fit(self, coordinates: MappedRows, targets: Tensor, weight: Tensor, c: float, lam: float) -> Solution:
        """The solution for all rows, one column per output; `targets` are n × P, `weight` n."""

    @abstractmethod
    def score(self, coordinates: MappedRows, problem: MemberProblem, held_out: Tensor, grid: Grid) -> Tensor:
        """Two scores for each point of the grid, larger is better, on the held-out rows (a mask, n).

        The second one decides if the first is tied.
        """


@final
@dataclass(frozen=True)
class ClassLearner(MemberLearner):
    """Signs ±1 by `hokashyap`; scored by the weight of the rows it gets right, then by the squared hinge loss."""

    margins: Margins = field(default_factory=Margins)
    clock: Clock = field(default_factory=Clock)
    passes = 8

    def fit(self, coordinates: MappedRows, targets: Tensor, weight: Tensor, c: float, lam: float) -> Solution:
        ones = torch.ones(targets.shape[-1], dtype=torch.float64, device=targets.device)
        factors = coordinates.factors(weight)
        return hokashyap(
            coordinates, factors, targets, weight, c * ones, lam * ones, self.margins, self.callbacks, self.clock
        )

    def score(self, coordinates: MappedRows, problem: MemberProblem, held_out: Tensor, grid: Grid) -> Tensor:
        P, n, M = problem.sample.Y.shape[1], coordinates.n_rows, len(coordinates.maps)
        weight = torch.where(held_out, 0.0, problem.sample.weight)
        factors = coordinates.factors(weight)
        affordable = problem.sample.plan.memory_limit // (8 * 4 * M * n * P * problem.sample.plan.itemsize)
        step = max(min(len(grid), affordable), 1)
        parts = []
        for start in range(0, len(grid), step):
            points = torch.tensor(grid[start : start + step], dtype=torch.float64, device=problem.sample.plan.device)
            c, lam = points.repeat_interleave(P, 0).unbind(1)
            signs = problem.sample.Y.repeat(1, len(points))
            found = hokashyap(coordinates, factors, signs, weight, c, lam, self.margins)
            f = coordinates.values(found.weights, found.bias).mean(0)[held_out].double()
            targets, s = problem.sample.Y[held_out].double(), problem.sample.weight[held_out].double()
            parts.append(_class_scores(f.reshape(len(f), len(points), P), targets[:, None], s))
        return torch.cat(parts)


def _class_scores(f: Tensor, targets: Tensor, s: Tensor) -> Tensor:
    """Weight of the rows that are right, and minus the squared hinge loss; f is n × points × outputs."""
    right = (f * targets > 0)[..., 0] if f.shape[2] == 1 else f.argmax(2) == targets.argmax(2)
    hinge = (1 - f * targets).clamp(min=0).square().sum(2)
    return torch.stack([s @ right.double(), -(s @ hinge)], 1)


@final
@dataclass(frozen=True)
class NumberLearner(MemberLearner):
    """Numbers by `coupled_ridge`; scored by the squared error. Callbacks see its single step."""

    passes = 3

    def fit(self, coordinates: MappedRows, targets: Tensor, weight: Tensor, c: float, lam: float) -> Solution:
        W, bias, objective = coupled_ridge(joint_moments(coordinates, targets, weight), c, lam)
        for callback in self.callbacks:
            callback(Sweep(1, objective))
        exact = StopReason("the objective is quadratic: solved exactly", StopKind.EXACT)
        return Solution(W, bias, objective[None], exact)

    def score(self, coordinates: MappedRows, problem: MemberProblem, held_out: Tensor, grid: Grid) -> Tensor:
        moments = joint_moments(coordinates, problem.sample.Y, torch.where(held_out, 0.0, problem.sample.weight))
        fits = [coupled_ridge(moments, c, lam)[:2] for c, lam in grid]
        weights = [torch.cat(of_kernel, 1) for of_kernel in zip(*(W for W, _ in fits), strict=True)]
        f = coordinates.values(weights, torch.cat([bias for _, bias in fits], 1)).mean(0)[held_out].double()
        targets, s = problem.sample.Y[held_out].double(), problem.sample.weight[held_out].double()
        error = (f.reshape(len(f), len(grid), -1) - targets[:, None]).square().sum(2)
        return torch.stack([-(s @ error), torch.zeros(len(grid), dtype=s.dtype, device=s.device)], 1)
