"""Members on random rows, their votes, and the choice of c, λ and p by cross-validation (MEKL13 table 1, eq. 10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.empirical.learners import Grid, ViewLearner
from mercer.empirical.mapping import EmpiricalMap
from mercer.empirical.problem import ViewProblem
from mercer.empirical.views import Views
from mercer.engine import Plan
from mercer.sources import RowSource


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
        return self.views(rows, plan).double().mean(0).cpu().numpy()


def fit_member(problem: ViewProblem, learner: ViewLearner, size: Any, c: float, lam: float, seed: int) -> Member:
    """Draw `size` rows, map all rows, train the views together."""
    chosen, maps = problem.draw(problem.size(size), np.random.default_rng(seed))
    views = Views(problem.rows, maps, problem.plan, learner.passes)
    found = learner.fit(views, problem, c, lam)
    f = views.values(found.weights, found.bias)
    weight = problem.weight / problem.weight.sum()
    agreement = ((_decided(f) == _decided(f.mean(0)[None])).all(-1) * weight).sum(1)
    return Member(
        [one.to("cpu") for one in maps],
        problem.original[chosen],
        [w.cpu() for w in found.weights],
        found.bias.cpu(),
        found.path.cpu().numpy(),
        found.reason,
        agreement.double().cpu().numpy(),
    )


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
            _, maps = problem.draw(problem.size(size), np.random.default_rng([seed, at, i]))
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
