"""Selection of kernels, the penalty c, the coupling λ and the subset size p: leave-one-out or cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.base.out_of_fold import stratified_folds
from mercer.clock import Clock
from mercer.empirical.coordinates import MappedRows
from mercer.empirical.kernel_map import mean_distance, resolve_kernels, subset_number
from mercer.empirical.learners import LARGEST_COUPLING, Grid, MemberLearner
from mercer.empirical.leave_one_out import (
    LEAST_OF_CLASSES,
    PENALTIES,
    TRIAL_ROWS,
    KernelSet,
    LeaveOneOutChoice,
    choose_kernels,
)
from mercer.empirical.problem import MemberProblem
from mercer.engine import Sample
from mercer.preprocessing.weights import penalty_in_units, warn_of_small_weights

#: The values of c and λ among which MEKL13 chooses.
PAPER_GRID = tuple(2.0**k for k in range(-4, 5))
#: Rows that cross-validation uses per second of a time budget, and at least.
ROWS_A_SECOND, LEAST_ROWS = 50, 100


@dataclass(frozen=True)
class ParameterGrid:
    """The values of c, λ and p among which cross-validation selects, and the kernels and H, which are fixed."""

    kernels: Any
    c: Any
    coupling: Any = 0.0
    subset_size: Any = None
    n_members: int = 1
    #: The values of λ that "auto" compares.
    couplings_tried: tuple[float, ...] = (0.0, 1.0)
    #: Whether targets are ±1.
    classes: bool = True
    #: c by leave-one-out, for weights of mean one.
    chosen_c: float | None = None
    #: Whether kernels that "auto" selects are used as one, their mean.
    merged: bool = False

    def resolved(
        self, sample: Sample, unit: float, clock: Clock, rng: np.random.Generator
    ) -> tuple[ParameterGrid, list[dict[str, Any]]]:
        """Replace "auto" by leave-one-out choices on the whole sample, and report the trials.

        Weights of the sample are divided by `unit`. Machines of pairs of classes share the choice.
        """
        automatic = {name for name in ("kernels", "c", "coupling") if _is_auto(getattr(self, name))}
        automatic -= {"coupling"} if self.merged else set()
        if not automatic:
            return self, []
        seed, size = int(rng.integers(2**31)), several(self.subset_size)[0]
        chosen = clock.group.first(lambda: self._leave_one_out(sample, unit, clock, size, np.random.default_rng(seed)))
        values: dict[str, Any] = {"kernels": chosen.kernels}
        if "c" in automatic:
            values["chosen_c"] = chosen.c
        if "coupling" in automatic:
            values["coupling"] = chosen.lam
        return replace(self, **values), chosen.report

    def _leave_one_out(
        self, sample: Sample, unit: float, clock: Clock, size: Any, rng: np.random.Generator
    ) -> LeaveOneOutChoice:
        """Score kernels and parameters on a part of the rows whose weights sum to those of all."""
        limit = TRIAL_ROWS
        if clock.seconds is not None:
            limit = min(max(int(ROWS_A_SECOND * clock.seconds), LEAST_ROWS), limit)
        part = sample.part(sample.draw(limit, rng))
        part = replace(part, weight=part.weight * (sample.weight.sum() / part.weight.sum()))
        sets = None
        if not _is_auto(self.kernels):
            kernels = resolve_kernels(self.kernels, mean_distance(part.rows, part.weight, rng))
            sets = [KernelSet(kernels, "given")]
        couplings = self.couplings_tried if _is_auto(self.coupling) else several(self.coupling)
        penalties = [c for c in PENALTIES if c >= LEAST_OF_CLASSES or not self.classes]
        if not isinstance(self.c, str):
            penalties = [float(c) / unit for c in several(self.c)]
        n_basis, couplings = subset_number(size, sample.n_alive), [-1.0] if self.merged else couplings
        chosen = choose_kernels(part, sets, couplings, penalties, n_basis, rng, self.classes)
        if self.merged and sets is None:
            chosen = replace(chosen, kernels=[KernelSet(chosen.kernels, "merged").mean()])
        return chosen

    def penalties(self, unit: float, total: float) -> dict[float, float]:
        """The values of c for weights divided by `unit`, whose sum is then `total`, with the values the user gave."""
        if self.chosen_c is not None:
            return {self.chosen_c: self.chosen_c * unit}
        if isinstance(self.c, str):  # the paper's grid refers to weights of mean one
            return {c: c * unit for c in PAPER_GRID}
        penalties = {penalty_in_units(float(c), unit): float(c) for c in several(self.c)}
        warn_of_small_weights(min(penalties.values()), unit, total, "regularization")
        return penalties

    def couplings(self, n_kernels: int) -> list[float]:
        """The values of λ; a single kernel has no coupling."""
        return [min(float(lam), LARGEST_COUPLING) for lam in several(self.coupling)] if n_kernels > 1 else [0.0]


def _is_auto(choice: Any) -> bool:
    return isinstance(choice, str) and choice == "auto"


def several(choice: Any) -> list[Any]:
    """List the values of a parameter: a single value, several, or the paper's grid.

    >>> several(0.5), several((1, 2)), len(several("paper"))
    ([0.5], [1, 2], 9)
    """
    if isinstance(choice, str):
        return list(PAPER_GRID)
    return list(choice) if isinstance(choice, list | tuple | np.ndarray) else [choice]


@dataclass(frozen=True)
class Validated:
    """The selected values, and the score of every candidate (sizes × grid points)."""

    size: Any
    c: float
    lam: float
    scores: np.ndarray


def choose(
    problems: Sequence[MemberProblem],
    learner: MemberLearner,
    sizes: Sequence[Any],
    grid: Grid,
    n_folds: int,
    seed: int,
    clock: Clock | None = None,
) -> Validated:
    """Select the size p and the pair (c, λ) with the best score on the held-out rows of all problems together.

    All folds and grid points of a problem and size share one map, and all grid points of a fold its moments. A time
    budget limits the rows, and no further problem is scored once half of it is used.
    """
    clock = clock or Clock()
    if len(sizes) * len(grid) == 1:
        return Validated(sizes[0], grid[0][0], grid[0][1], np.zeros((1, 1)))
    scores = torch.zeros(len(sizes), len(grid), 2, dtype=torch.float64)
    for place, problem in enumerate(problems):
        if place and clock.expired(until=0.5):
            break
        if clock.seconds is not None:
            n_rows = max(int(ROWS_A_SECOND * clock.seconds), LEAST_ROWS)
            problem = problem.part(n_rows, np.random.default_rng([seed, place, 0, 0]))
        fold = folds(problem, n_folds, np.random.default_rng([seed, place]))
        for i, size in enumerate(sizes):
            maps = problem.maps(problem.choose(problem.size(size), np.random.default_rng([seed, place, i])))
            coordinates = MappedRows(problem.sample.rows, maps, problem.sample.plan, n_folds * learner.passes)
            for k in range(int(fold.max()) + 1 if problem.sample.n_alive > 1 else 0):
                scores[i] += learner.score(coordinates, problem, fold == k, grid).cpu()
    table = scores.numpy().reshape(-1, 2)
    best = np.lexsort((-table[:, 1], -table[:, 0]))[0]  # the first of tied candidates
    c, lam = grid[best % len(grid)]
    return Validated(sizes[best // len(grid)], c, lam, scores[..., 0].numpy())


def folds(problem: MemberProblem, n_folds: int, rng: np.random.Generator) -> Tensor:
    """Assign every row to a stratified fold (by class or sign of the target); −1 for rows without weight."""
    keys = problem.sample.Y.argmax(1) if problem.sample.Y.shape[1] > 1 else problem.sample.Y[:, 0] > 0
    alive = (problem.sample.weight > 0).cpu().numpy()
    fold = np.full(len(alive), -1)
    fold[alive] = stratified_folds(keys.cpu().numpy()[alive], n_folds, rng)
    return torch.as_tensor(fold, device=problem.sample.plan.device)
