"""The choice of c, λ and p by cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.border.clock import Clock
from mercer.border.folds import stratified_folds
from mercer.empirical.coordinates import MappedRows
from mercer.empirical.learners import Grid, Learner
from mercer.empirical.problem import MemberProblem

#: Rows that judge for each second of a time budget, and at least.
ROWS_A_SECOND, LEAST_ROWS = 50, 100


@dataclass(frozen=True)
class Choice:
    """What cross-validation chose, and the score of every candidate (sizes × grid points)."""

    size: Any
    c: float
    lam: float
    scores: np.ndarray


def choose(
    problems: Sequence[MemberProblem],
    learner: Learner,
    sizes: Sequence[Any],
    grid: Grid,
    n_folds: int,
    seed: int,
    clock: Clock | None = None,
) -> Choice:
    """The size p and the pair (c, λ) that serve the held-out rows of all problems together best.

    Per problem and size one map is made for all folds and grid points; a fold needs its moments once, a grid point
    nothing but divisions. With a time budget, a few rows judge, and no further problem once half of it is used up.
    """
    clock = clock or Clock()
    if len(sizes) * len(grid) == 1:
        return Choice(sizes[0], grid[0][0], grid[0][1], np.zeros((1, 1)))
    scores = torch.zeros(len(sizes), len(grid), 2, dtype=torch.float64)
    for at, problem in enumerate(problems):
        if at and clock.over(share=0.5):
            break
        if clock.budget.seconds is not None:
            few = max(int(ROWS_A_SECOND * clock.budget.seconds), LEAST_ROWS)
            problem = problem.part(few, np.random.default_rng([seed, at, 0, 0]))
        fold = folds(problem, n_folds, np.random.default_rng([seed, at]))
        for i, size in enumerate(sizes):
            maps = problem.maps(problem.choose(problem.size(size), np.random.default_rng([seed, at, i])))
            coordinates = MappedRows(problem.rows, maps, problem.plan, n_folds * learner.passes)
            for k in range(int(fold.max()) + 1 if problem.n_alive > 1 else 0):
                scores[i] += learner.judge(coordinates, problem, fold == k, grid).cpu()
    table = scores.numpy().reshape(-1, 2)
    best = np.lexsort((-table[:, 1], -table[:, 0]))[0]  # the first of equals
    c, lam = grid[best % len(grid)]
    return Choice(sizes[best // len(grid)], c, lam, scores[..., 0].numpy())


def folds(problem: MemberProblem, n_folds: int, rng: np.random.Generator) -> Tensor:
    """The fold of every row, with equal shares of each class (or side of zero); −1 for rows without weight."""
    keys = problem.targets.argmax(1) if problem.targets.shape[1] > 1 else problem.targets[:, 0] > 0
    alive = (problem.weight > 0).cpu().numpy()
    fold = np.full(len(alive), -1)
    fold[alive] = stratified_folds(keys.cpu().numpy()[alive], n_folds, rng)
    return torch.as_tensor(fold, device=problem.plan.device)
