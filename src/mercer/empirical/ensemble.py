"""Members on random rows, their votes, and the choice of c, λ and p by cross-validation (MEKL13 table 1, eq. 10)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.data import RowSource
from mercer.empirical.batch import Stack, groups
from mercer.empirical.coordinates import Views
from mercer.empirical.hokashyap import Solution
from mercer.empirical.learners import Grid, ViewLearner
from mercer.empirical.mapping import EmpiricalMap
from mercer.empirical.problem import ViewProblem
from mercer.engine import KernelMatrix, Plan


@dataclass(frozen=True)
class Member:
    """One trained set of views (steps 1 to 7 of table 1).

    `basis_indices` are rows of the table given to `fit`; `weights` (r_l × P per kernel) and `bias` (M × P) make the
    values of each view; `kernel_norms` are their norms ‖w_l‖ in each kernel's own space (M × P).
    """

    maps: list[EmpiricalMap]
    basis_indices: np.ndarray
    weights: list[Tensor]
    bias: Tensor
    objective_path: np.ndarray
    stop_reason: str
    #: Weighted share of the training rows at which each kernel's own decision is that of their mean, M.
    agreement: np.ndarray

    @property
    def kernel_norms(self) -> np.ndarray:
        return torch.stack([w.square().sum(0).sqrt() for w in self.weights]).numpy()

    def views(self, rows: RowSource, plan: Plan) -> Tensor:
        """The value of each view at new rows, M × n × P."""
        maps = [one.to(plan.device) for one in self.maps]
        return Views(rows, maps, plan).values(self.weights, self.bias)

    def values(self, rows: RowSource, plan: Plan) -> np.ndarray:
        """The mean of the views, n × P: its sign is eq. (9)."""
        return values([self], rows, plan)[0]


def values(members: Sequence[Member], rows: RowSource, plan: Plan) -> list[np.ndarray]:
    """The mean of the views of each member of one problem, n × P, from one product per kernel for all members."""
    M = len(members[0].maps)
    total = torch.cat([one.bias.mean(0) for one in members]).to(plan.device)
    for l in range(M):
        basis = torch.cat([one.maps[l].basis for one in members]).to(plan.device, plan.dtype)
        weights = torch.block_diag(*(one.maps[l].coefficients @ one.weights[l] for one in members))
        total = total + KernelMatrix(rows, members[0].maps[l].kernel, basis, plan).product(weights / M)
    return np.hsplit(total.cpu().numpy(), len(members))


@dataclass(frozen=True)
class Job:
    """Members that are trained in one go: one, or small ones side by side."""

    problems: list[ViewProblem]
    #: The rows of the maps of each problem, maps × basis vectors.
    chosen: list[np.ndarray]
    #: Where each is among the members of all problems.
    places: list[int]


def make_jobs(problems: Sequence[ViewProblem], learner: ViewLearner, size: Any, seeds: np.ndarray) -> list[Job]:
    """Draw `size` rows for every member; `seeds` has a row for every problem and a column for every member of it."""
    chosen = [
        np.stack([problem.choose(problem.size(size), np.random.default_rng(seed)) for seed in own])
        for problem, own in zip(problems, seeds, strict=True)
    ]
    H, jobs = seeds.shape[1], []
    small, rest = (
        groups(problems, [rows.shape[1] for rows in chosen], H) if learner.stacks else ([], range(len(chosen)))
    )
    for group in small:
        places = [q * H + h for q in group for h in range(H)]
        jobs.append(Job([problems[q] for q in group], [chosen[q] for q in group], places))
    for q in rest:
        jobs += [Job([problems[q]], [chosen[q][h : h + 1]], [q * H + h]) for h in range(H)]
    return jobs


def fit_job(job: Job, learner: ViewLearner, c: float, lam: float) -> list[tuple[Member, np.ndarray]]:
    """Steps 2 to 7 of table 1 for each member: map all rows, train the views together.

    Returns members and their values at the training rows, n × P.
    """
    parts: Iterable[Any]
    if len(job.places) > 1:
        stack = Stack(job.problems, job.chosen)
        found = learner.fit(stack, stack.targets, stack.weight, c, lam)
        f = stack.values(found.weights, found.bias)
        parts = zip(found.apart(), stack.maps, f.unbind(1), stack.weight, strict=True)
    else:
        problem = job.problems[0]
        maps = problem.maps(job.chosen[0][0])
        views = Views(problem.rows, maps, problem.plan, learner.passes)
        found = learner.fit(views, problem.targets, problem.weight, c, lam)
        parts = [(found, maps, views.values(found.weights, found.bias), problem.weight)]
    drawn = [(problem, own) for problem, rows in zip(job.problems, job.chosen, strict=True) for own in rows]
    return [_member(*one, *part) for one, part in zip(drawn, parts, strict=True)]


def _member(
    problem: ViewProblem, chosen: np.ndarray, found: Solution, maps: list[EmpiricalMap], f: Tensor, weight: Tensor
) -> tuple[Member, np.ndarray]:
    """`f` are the values of the views at all rows, M × n × P; more rows than the problem has weigh nothing."""
    mean = f.mean(0)
    agreement = ((_decided(f) == _decided(mean[None])).all(-1) * (weight / weight.sum())).sum(1)
    member = Member(
        [one.to("cpu") for one in maps],
        problem.original[chosen],
        [w[: one.rank].cpu() for w, one in zip(found.weights, maps, strict=True)],
        found.bias.cpu(),
        found.path.cpu().numpy(),
        found.reason,
        agreement.double().cpu().numpy(),
    )
    return member, mean[: problem.rows.n_rows].cpu().numpy()


def _decided(f: Tensor) -> Tensor:
    """Which side or class values (… × P) stand for."""
    return f > 0 if f.shape[-1] == 1 else f.argmax(-1, keepdim=True)


def ballot(values: Sequence[np.ndarray], n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Votes (eq. 10) and mean margins of members for each of `n_classes` classes, both n × n_classes.

    >>> import numpy as np
    >>> from mercer.empirical.ensemble import ballot
    >>> votes, margins = ballot([np.array([[0.5]]), np.array([[-0.1]]), np.array([[2.0]])], 2)
    >>> votes.tolist(), margins.round(6).tolist()
    ([[1.0, 2.0]], [[-0.8, 0.8]])
    """
    both = [np.column_stack([-f, f]) if f.shape[1] == 1 else f for f in values]
    # a value of zero is the class -1, as eq. (9) has it: the first of equals
    votes = sum(np.eye(n_classes)[f.argmax(1)] for f in both)
    return np.asarray(votes), np.mean(both, axis=0)


def tally(votes: np.ndarray, margins: np.ndarray) -> np.ndarray:
    """One score per class: votes first, margins where votes tie; less than a vote lies between equal votes."""
    return votes + margins / (3 * (1 + np.abs(margins)))


@dataclass(frozen=True)
class Choice:
    """What cross-validation chose, and the score of every candidate (sizes × grid points)."""

    size: Any
    c: float
    lam: float
    scores: np.ndarray


def choose(
    problems: Sequence[ViewProblem], learner: ViewLearner, sizes: Sequence[Any], grid: Grid, n_folds: int, seed: int
) -> Choice:
    """The size p and the pair (c, λ) that serve the held-out rows of all problems together best.

    Per problem and size one map is made for all folds and grid points; a fold needs its moments once, a grid point
    nothing but divisions.
    """
    if len(sizes) * len(grid) == 1:
        return Choice(sizes[0], grid[0][0], grid[0][1], np.zeros((1, 1)))
    scores = torch.zeros(len(sizes), len(grid), 2, dtype=torch.float64)
    for at, problem in enumerate(problems):
        fold = _folds(problem, n_folds, np.random.default_rng([seed, at]))
        for i, size in enumerate(sizes):
            maps = problem.maps(problem.choose(problem.size(size), np.random.default_rng([seed, at, i])))
            views = Views(problem.rows, maps, problem.plan, n_folds * learner.passes)
            for k in range(int(fold.max()) + 1 if problem.n_alive > 1 else 0):
                scores[i] += learner.judge(views, problem, fold == k, grid).cpu()
    table = scores.numpy().reshape(-1, 2)
    best = np.lexsort((-table[:, 1], -table[:, 0]))[0]  # the first of equals
    c, lam = grid[best % len(grid)]
    return Choice(sizes[best // len(grid)], c, lam, scores[..., 0].numpy())


def _folds(problem: ViewProblem, n_folds: int, rng: np.random.Generator) -> Tensor:
    """The fold of every row, dealt in turn within each class (or side of zero); −1 for rows without weight."""
    keys = (problem.targets.argmax(1) if problem.targets.shape[1] > 1 else problem.targets[:, 0] > 0).cpu().numpy()
    shuffled = rng.permutation(problem.weight.nonzero()[:, 0].cpu().numpy())
    order = shuffled[np.argsort(keys[shuffled], kind="stable")]
    fold = np.full(len(keys), -1)
    fold[order] = np.arange(len(order)) % min(n_folds, len(order))
    return torch.as_tensor(fold, device=problem.plan.device)
