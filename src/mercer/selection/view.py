"""A view of the inputs (column map and metric), the kernels scored on it, and candidates.

Families and length-scales share the view's distances. Each fold learns the metric from its own fit rows, so the rows
that score a metric never took part in learning it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from mercer.data.column_maps import ColumnMap
from mercer.data.row_groups import RowGroups
from mercer.kernels import Kernel
from mercer.selection.metric import (
    TYPICAL_ROWS,
    apply_transform,
    average_groups,
    distances,
    gradient_outer_product,
    gradients,
    metric_root,
    tile,
    typical_distance,
)
from mercer.selection.ridge import dual_coefficients
from mercer.selection.score import Link, Score
from mercer.selection.settings import FAMILIES, GridPoint

#: Changes of the penalty that a wide search tries first: a better metric may call for one a thousand times smaller.
WIDE_STEPS = (-4, 4, -4, 2, -2)
#: Neighbours of a grid point, as steps of length-scale and penalty.
NEIGHBOURS = ((0, -1), (0, 1), (-1, 0), (1, 0), (1, -2), (-1, 2))
#: The least penalty of a model whose gradients are taken.
LEAST_GRADIENT_PENALTY = 1e-5
#: Rows at which gradients are taken, gradients (rows times inputs) at most, and combinations of outputs that count.
GRADIENT_ROWS, MOST_GRADIENTS, GRADIENT_OUTPUTS = 800, 20_000, 5
#: The key that ranks candidates, best first.
BY_LOSS = attrgetter("loss")


@dataclass(frozen=True)
class MetricStep:
    """A step to another metric: by the evidence, by gradients of the model at a grid point, or by a descent."""

    base: GridPoint | None
    full: bool = False
    power: float = 1.0
    relevances: tuple[Tensor, ...] = field(default=(), repr=False, compare=False)
    descent: bool = False

    @property
    def is_evidence(self) -> bool:
        """Whether the evidence proposed the step."""
        return self.base is None

    def __str__(self) -> str:
        if self.base is None:
            return "evidence"
        if self.descent:
            return f"descent of {self.base.family}"
        return f"{'full' if self.full else 'diagonal'} {self.power:g} of {self.base.family}"


@dataclass(frozen=True)
class Fold:
    """Mapped inputs, coded targets and weights of the fit rows, and mapped inputs of the rows that score.

    `row_groups` are those of the fit rows.
    """

    X: Tensor
    Y: Tensor
    weight: Tensor
    X_score: Tensor
    row_groups: RowGroups | None = None


@dataclass
class Trial:
    """A scored grid point: its loss, its values at the scoring rows, and each fold's dual coefficients."""

    point: GridPoint
    loss: float
    values: Tensor = field(repr=False)
    duals: list[Tensor | None] = field(default_factory=list, repr=False)


@dataclass
class View:
    """Inputs of one column map under a metric, one transform for each fold, and the grid points scored so far.

    Columns of one group (`groups` has an index for each column) share a factor of every diagonal metric. Length-scales
    are measured in `units`: typical distances, city-block (True) and Euclidean, unless given.
    """

    column_map: str
    folds: Sequence[Fold]
    score: Score
    transforms: Sequence[Tensor]
    steps: tuple[MetricStep, ...] = ()
    previous: Sequence[Tensor] = ()
    groups: Tensor | None = None
    units: dict[bool, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        #: The steps of the metric in words.
        self.metric = " + ".join(map(str, self.steps)) or "none"
        self.trials: dict[GridPoint, Trial] = {}
        self._distances: dict[tuple[bool, bool], list[Tensor]] = {}
        self._tiles: tuple[tuple[str, int, torch.dtype], list[tuple[Tensor, Tensor]]] | None = None

    @property
    def n_fit(self) -> int:
        return sum([len(fold.X) for fold in self.folds])

    def unit(self, family: str) -> float:
        """The distance by which this family's length-scales are measured."""
        key = family == "cityblock"
        if key not in self.units:
            A = apply_transform(self.folds[0].X[:TYPICAL_ROWS], self.transforms[0])
            known = self._distances.get((key, False))
            self.units[key] = typical_distance(distances(FAMILIES[family], A, A) if known is None else known[0])
        return self.units[key]

    def trial(self, point: GridPoint) -> Trial:
        """Fit every fold at this grid point and score the held-out values."""
        if point not in self.trials:
            values, duals = [], []
            for fold, (K, K_score) in zip(self.folds, self.kernels(point), strict=True):
                alpha = dual_coefficients(K, fold.Y, fold.weight, point.lam)
                duals.append(alpha)
                if alpha is None:
                    values.append(self.score.Y.new_full((len(K_score), fold.Y.shape[1]), math.nan))
                else:
                    values.append(K_score.to(alpha) @ alpha)
            F = torch.cat(values).to(self.score.Y)
            loss = float(self.score(F[None])[0])
            self.trials[point] = Trial(point, loss if math.isfinite(loss) else math.inf, F, duals)
        return self.trials[point]

    def tuned(self, start: GridPoint, most: int, give_up_above: float = math.inf, wide: bool = False) -> Trial:
        """Descend on the grid from a point until no neighbour is better or `most` points were tried.

        A `wide` search changes the penalty by several steps first. A loss above `give_up_above` ends the search.
        """
        best = self.trial(start)
        for by_penalty in WIDE_STEPS if wide else ():
            best = self._better(best, 0, by_penalty)
        if best.loss > give_up_above:
            return best
        n_before = len(self.trials)
        improved = True
        while improved:
            centre, improved = best, False
            for by_length, by_penalty in NEIGHBOURS[:2] if start.family == "linear" else NEIGHBOURS:
                if len(self.trials) - n_before < most:
                    found = self._better(centre, by_length, by_penalty)
                    if found.loss < best.loss:
                        best, improved = found, True
        return best

    def _better(self, trial: Trial, by_length: int, by_penalty: int) -> Trial:
        """The neighbour if it is better, else the trial itself."""
        point = trial.point.moved(by_length, by_penalty)
        if not point.inside:
            return trial
        found = self.trial(point)
        return found if found.loss < trial.loss else trial

    def stepped(self, step: MetricStep) -> View:
        """The view after one more step of the metric."""
        if step.is_evidence:
            found = step.relevances
            mean = torch.stack(found).square().mean(0).sqrt()
            transforms = list(found) if len(found) == len(self.folds) else [mean for _ in self.folds]
        else:
            transforms = [self._gradient_metric(k, step) for k in range(len(self.folds))]
        return View(
            self.column_map, self.folds, self.score, transforms, (*self.steps, step), self.transforms, self.groups
        )

    def _gradient_metric(self, k: int, step: MetricStep) -> Tensor:
        """The transform by the mean outer product of the gradients of fold k's model."""
        assert step.base is not None
        fold, T, kernel = self.folds[k], self.transforms[k], FAMILIES[step.base.family]
        distance = self.pair_distances(step.base.family)[k].to(step.base.dtype)
        A = apply_transform(fold.X, T).to(distance)
        length = step.base.factor * self.unit(step.base.family)
        lam = max(step.base.lam, LEAST_GRADIENT_PENALTY)
        known = self.trials.get(step.base) if lam == step.base.lam else None
        if known is None:
            alpha = dual_coefficients(tile(kernel, distance, length), fold.Y, fold.weight, lam)
        else:
            alpha = known.duals[k]
        if alpha is None:  # rounding: the metric stays as it is
            return T
        rows = slice(0, min(GRADIENT_ROWS, max(MOST_GRADIENTS // A.shape[1], 1)))
        gradient = gradients(kernel, distance[rows], length, A[rows], A, principal_outputs(alpha).to(A))
        M = gradient_outer_product(gradient.double(), fold.weight[rows], T)
        return metric_root(M if step.full else average_groups(M, self.groups), step.power, step.full)

    def pair_distances(self, family: str, to_score: bool = False) -> list[Tensor]:
        """Distances of each fold between fit rows, or from scoring rows to fit rows."""
        key = family == "cityblock", to_score
        if key not in self._distances:
            found = []
            for fold, T in zip(self.folds, self.transforms, strict=True):
                A = apply_transform(fold.X, T)
                found.append(distances(FAMILIES[family], apply_transform(fold.X_score, T) if to_score else A, A))
            self._distances[key] = found
        return self._distances[key]

    def kernels(self, point: GridPoint) -> list[tuple[Tensor, Tensor]]:
        """Kernel matrices of each fold: between fit rows, and from scoring rows to fit rows."""
        key = (point.family, point.length, point.dtype)
        if self._tiles is not None and self._tiles[0] == key:
            return self._tiles[1]
        if point.family == "linear":
            tiles = []
            for fold, T in zip(self.folds, self.transforms, strict=True):
                A, B = apply_transform(fold.X, T), apply_transform(fold.X_score, T)
                tiles.append((A @ A.T / A.shape[1], B @ A.T / A.shape[1]))
        else:
            pairs = zip(self.pair_distances(point.family), self.pair_distances(point.family, True), strict=True)
            kernel, length = FAMILIES[point.family], point.factor * self.unit(point.family)
            tiles = [
                (tile(kernel, a.to(point.dtype), length), tile(kernel, b.to(point.dtype), length)) for a, b in pairs
            ]
        self._tiles = key, tiles
        return tiles

    def release(self) -> None:
        """Free distances and kernel matrices; they are made again where they are needed again."""
        self._distances, self._tiles = {}, None


def principal_outputs(alpha: Tensor) -> Tensor:
    """The few combinations of outputs with the largest coefficients: many classes need no more gradients."""
    if alpha.shape[1] <= GRADIENT_OUTPUTS:
        return alpha
    _, vectors = torch.linalg.eigh((alpha.T @ alpha).double())
    return alpha @ vectors[:, -GRADIENT_OUTPUTS:].to(alpha)


@dataclass
class Candidate:
    """A view of the inputs and the best grid point of one family on it, with its score."""

    view: View
    trial: Trial
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.loss, self.point = self.trial.loss, self.trial.point
        self.family = self.point.family

    @property
    def n_fit(self) -> int:
        return self.view.n_fit

    @property
    def values(self) -> Tensor:
        """Values at the rows that score."""
        return self.trial.values

    @property
    def name(self) -> str:
        return f"{self.view.column_map}, {self.view.metric}, {self.family}"


@dataclass(frozen=True)
class SelectedKernel:
    """A kernel on mapped and transformed inputs, with its penalty and its share of the ensemble."""

    columns: ColumnMap
    transform: Tensor
    kernel: Kernel
    penalty: float
    share: float
    loss: float
    name: str


@dataclass(frozen=True)
class LikelihoodEnsemble:
    """Selected kernels with penalties for kernel logistic regression, and their held-out log loss.

    `gain` is the mean by which it is below the log loss of least squares, `error` the standard error of this mean.
    """

    members: list[SelectedKernel]
    loss: float
    gain: float
    error: float


@dataclass(frozen=True)
class EvidenceCandidate:
    """A kernel that the evidence found, as it will be fitted, with its values at the rows that score."""

    selected: SelectedKernel
    values: Tensor = field(repr=False)
    n_fit: int
    seconds: float = 0.0

    @property
    def name(self) -> str:
        return self.selected.name

    @property
    def loss(self) -> float:
        return self.selected.loss


@dataclass(frozen=True)
class SelectedEnsemble:
    """Selected kernels, best first, and a report line for every candidate of every stage.

    `by_likelihood` are the same kernels with penalties for kernel logistic regression, if that was tried.
    """

    members: list[SelectedKernel]
    report: list[dict[str, Any]] = field(repr=False)
    loss: float
    constant: float
    link: Link | None
    by_likelihood: LikelihoodEnsemble | None = field(default=None, repr=False)
