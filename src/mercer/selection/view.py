"""A view of the inputs (column map and metric), the kernels scored on it, and candidates.

Families and length-scales share the view's distances. Each fold learns the metric from its own fit rows, so the rows
that score a metric never took part in learning it.

The mean outer product of a model's gradients, M = mean over rows of ∇f ∇fᵀ, shows the directions along which f varies.
Inputs are mapped by a power of M and the model is fitted again. Held-out rows decide which iterate is kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from mercer.codegen.compiled import city_block
from mercer.codegen.cpu import EXP_BASE_FACTOR, cached_rows, fast_exp
from mercer.data.column_maps import ColumnMap
from mercer.data.row_groups import RowGroups
from mercer.kernels import Kernel, Radial
from mercer.kernels.separable import CityBlock, two_valued
from mercer.selection.score import Score, dual_coefficients
from mercer.selection.settings import FAMILIES, GridPoint

#: Squared distances below this share of the largest squared norm count as zero.
SAME = 1e-9
#: Rows whose median distance is the unit of length-scales.
TYPICAL_ROWS = 300
#: Length-scales between the two values of a binary column at most. Kernels are almost zero there (Matérn 3/2: 0.0003),
#: and rare categories farther apart would lose the digits of |u|² + |w|² − 2uᵀw in single precision.
APART = 6.0
#: Changes of the penalty that a wide search tries first: a better metric may call for one a thousand times smaller.
WIDE_STEPS = (-4, 4, -4, 2, -2)
#: Neighbours of a grid point, as steps of length-scale and penalty.
NEIGHBOURS = ((0, -1), (0, 1), (-1, 0), (1, 0))
#: Gradients (rows times inputs) that are taken at most, and combinations of outputs that count.
MOST_GRADIENTS, GRADIENT_OUTPUTS = 20_000, 5
#: The key that ranks candidates, best first.
BY_LOSS = attrgetter("loss")


def apply_transform(X: Tensor, transform: Tensor) -> Tensor:
    """Map rows x to A x, with A given by its diagonal (D) or as a matrix (D × D)."""
    return X * transform if transform.ndim == 1 else X @ transform.T


def largest_factors(Z: Tensor, length: float = 1.0) -> Tensor:
    """Largest factor on each column of `Z` for a kernel of this length-scale.

    The factor puts the two values of a binary column `APART` length-scales apart; other columns have no bound.

    >>> largest_factors(torch.tensor([[0.0, 1.0], [3.0, 2.0], [3.0, 4.0]]), 2.0).tolist()
    [4.0, inf]
    """
    two, span = two_valued(Z)
    return (APART * length / span).where(two, torch.inf)


def distances(kernel: Kernel, X: Tensor, Z: Tensor) -> Tensor:
    """Euclidean distances for a radial kernel, else city-block distances, in single precision.

    Squared distances are summed in double precision. City-block distances are sums of differences, which lose nothing.
    """
    if not isinstance(kernel, Radial):
        X, Z = X.float(), Z.float()
        block = CityBlock.of(Z)
        found = None if block is None else block.distances(X)
        return city_block(X, Z) if found is None else found
    shift = Z.mean(0)
    X, Z = X - shift, Z - shift
    norms, own_norms, transposed = Z.square().sum(1), X.square().sum(1, keepdim=True), Z.T.contiguous()
    # duplicate rows must be at distance zero: rounding above zero would give rough kernels a gradient there
    zero_below = SAME * float(norms.max()) if len(norms) else 0.0
    out = torch.empty(len(X), len(Z), device=X.device)
    n = min(cached_rows(len(Z), X), len(X))
    buffer = X.new_empty(n, len(Z))
    for start in range(0, len(X), max(n, 1)):
        rows = slice(start, start + n)
        square = torch.addmm(norms, X[rows], transposed, alpha=-2, out=buffer[: len(X[rows])]).add_(own_norms[rows])
        torch.threshold_(square, zero_below, 0.0)
        out[rows].copy_(square).sqrt_()
    return out


def tile(kernel: Kernel, distance: Tensor, length: float) -> Tensor:
    """Kernel values at these distances."""
    if isinstance(kernel, Radial):
        return kernel.at_distance(distance, length)
    return fast_exp(distance * (-EXP_BASE_FACTOR / length))


def radial_slopes(kernel: Radial, distance: Tensor, length: float) -> Tensor:
    """The factor g of ∇k(x, z) = g (x − z), twice the derivative of k by the squared distance."""
    scale = kernel.log_base_scale / length
    slope = kernel.profile_and_slope((distance * scale).square_().mul_(-kernel.coefficient))[1]
    return slope.mul_(-2 * kernel.coefficient * scale**2)


def gradients(kernel: Kernel, distance: Tensor, length: float, X: Tensor, Z: Tensor, alpha: Tensor) -> Tensor:
    """∇f at the rows of `X`, n × D × p, for f = Σ_j α_j k(·, z_j); `distance` is that of `X` from `Z`.

    For a radial kernel ∇f(x) = Σ_j α_j g(r_j)(x − z_j): one product with 1 + D columns for each output. For the
    city-block kernel signs take the place of differences. In a binary column a sign is a difference over the span.
    """
    if isinstance(kernel, Radial):
        G = radial_slopes(kernel, distance, length)
        return torch.stack([_weighted_differences(G, X, Z, a) for a in alpha.T], 2)
    K = tile(kernel, distance, length).div_(-length)
    two, span = two_valued(Z)
    out = X.new_empty(len(X), X.shape[1], alpha.shape[1])
    if bool(two.any()):
        binary = [_weighted_differences(K, X[:, two], Z[:, two], a) / span[two] for a in alpha.T]
        out[:, two] = torch.stack(binary, 2)
    if not bool(two.all()):
        out[:, ~two] = _weighted_signs(K, X[:, ~two], Z[:, ~two], alpha)
    return out


def _weighted_signs(K: Tensor, X: Tensor, Z: Tensor, alpha: Tensor) -> Tensor:
    """Σ_j sign(x_ik − z_jk) K_ij α_jp, for as many rows at a time as the cache holds."""
    columns, out = Z.T.contiguous(), X.new_empty(*X.shape, alpha.shape[1])
    size = cached_rows(columns.numel(), columns)
    for start in range(0, len(X), size):
        block = slice(start, start + size)
        out[block] = torch.bmm((X[block, :, None] - columns).sign_(), K[block, :, None] * alpha)
    return out


def _weighted_differences(G: Tensor, X: Tensor, Z: Tensor, a: Tensor) -> Tensor:
    """Σ_j a_j G_ij (x_i − z_j)."""
    return X * (G @ a[:, None]) - G @ (a[:, None] * Z)


def gradient_outer_product(gradient: Tensor, weight: Tensor, transform: Tensor) -> Tensor:
    """M = mean over rows of ∇f ∇fᵀ by the inputs before the transform, scaled to mean eigenvalue 1."""
    D = gradient.shape[1]
    share = (weight / weight.sum()).to(gradient).sqrt()[:, None, None]
    g = (gradient * share).permute(0, 2, 1).reshape(-1, D)
    g = g * transform if transform.ndim == 1 else g @ transform
    M = g.T @ g
    return M * (D / M.trace().clamp(min=1e-300))


def average_groups(M: Tensor, groups: Tensor | None) -> Tensor:
    """The diagonal matrix of M's diagonal, averaged over each group of columns; M itself without groups.

    >>> average_groups(torch.tensor([[1.0, 0.5], [0.5, 3.0]]), torch.tensor([0, 0])).diagonal().tolist()
    [2.0, 2.0]
    """
    if groups is None:
        return M
    sums = M.new_zeros(int(groups.max()) + 1).index_add_(0, groups, M.diagonal())
    return torch.diag((sums / torch.bincount(groups).clamp(min=1))[groups])


def metric_root(M: Tensor, power: float, full: bool) -> Tensor:
    """The transform M^(power/2), of M or of its diagonal, scaled to a squared Frobenius norm of D."""
    if not full:
        diagonal = M.diagonal().clamp(min=0) ** (0.5 * power)
        return diagonal * (len(diagonal) / diagonal.square().sum().clamp(min=1e-300)).sqrt()
    values, vectors = torch.linalg.eigh(M)
    values = values.clamp(min=0) ** (0.5 * power)
    values = values * (len(values) / values.square().sum().clamp(min=1e-300)).sqrt()
    return (vectors * values) @ vectors.T


def typical_distance(distance: Tensor) -> float:
    """The median distance between different rows, the unit of length-scales."""
    pairs = distance[:TYPICAL_ROWS, :TYPICAL_ROWS].flatten()
    n_apart = int((pairs > 0).sum())  # the other distances are zero, and come first
    return float(pairs.kthvalue(len(pairs) - n_apart + (n_apart + 1) // 2).values) if n_apart else 1.0


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

    Columns of one group (`column_groups` has an index for each column) share a factor of every diagonal metric.
    Length-scales are measured in `units`: typical distances, city-block (True) and Euclidean, unless given.
    """

    column_map: str
    folds: Sequence[Fold]
    score: Score
    transforms: Sequence[Tensor]
    steps: tuple[MetricStep, ...] = ()
    previous: Sequence[Tensor] = ()
    column_groups: Tensor | None = None
    units: dict[bool, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        #: The steps of the metric in words.
        self.metric_name = " + ".join(map(str, self.steps)) or "none"
        self.trials: dict[GridPoint, Trial] = {}
        self._distances: dict[bool, list[Tensor]] = {}
        self._tiles: tuple[tuple[str, int, torch.dtype], list[tuple[Tensor, Tensor]]] | None = None

    @property
    def is_evidence_only(self) -> bool:
        """Whether the evidence alone proposed the metric."""
        return len(self.steps) == 1 and self.steps[0].is_evidence

    def unit(self, family: str) -> float:
        """The distance by which this family's length-scales are measured."""
        key = family == "cityblock"
        if key not in self.units:
            if key in self._distances:
                distance = self._distances[key][0][: len(self.folds[0].X)]
            else:
                A = apply_transform(self.folds[0].X[:TYPICAL_ROWS], self.transforms[0])
                distance = distances(FAMILIES[family], A, A)
            self.units[key] = typical_distance(distance)
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
            point = best.point.moved(0, by_penalty)
            if point is not None and self.trial(point).loss < best.loss:
                best = self.trials[point]
        if best.loss > give_up_above:
            return best
        n_before = len(self.trials)
        improved = True
        while improved:
            centre, improved = best, False
            for by_length, by_penalty in NEIGHBOURS[:2] if start.family == "linear" else NEIGHBOURS:
                if len(self.trials) - n_before == most:
                    break
                point = centre.point.moved(by_length, by_penalty)
                if point is not None and self.trial(point).loss < best.loss:
                    best, improved = self.trials[point], True
        return best

    def stepped(self, step: MetricStep) -> View:
        """The view after one more step of the metric."""
        if step.is_evidence:
            found = step.relevances
            mean = torch.stack(found).square().mean(0).sqrt()
            transforms = list(found) if len(found) == len(self.folds) else [mean for _ in self.folds]
        else:
            transforms = [self._gradient_metric(k, step) for k in range(len(self.folds))]
        return replace(self, transforms=transforms, steps=(*self.steps, step), previous=self.transforms, units={})

    def _gradient_metric(self, k: int, step: MetricStep) -> Tensor:
        """The transform by the mean outer product of the gradients of fold k's model."""
        assert step.base is not None
        fold, T, kernel = self.folds[k], self.transforms[k], FAMILIES[step.base.family]
        distance = self.pair_distances(step.base.family)[k][: len(fold.X)].to(step.base.dtype)
        A = apply_transform(fold.X, T).to(distance)
        length = step.base.factor * self.unit(step.base.family)
        known = self.trials.get(step.base)
        if known is None:
            alpha = dual_coefficients(tile(kernel, distance, length), fold.Y, fold.weight, step.base.lam)
        else:
            alpha = known.duals[k]
        if alpha is None:  # rounding: the metric stays as it is
            return T
        rows = slice(0, max(MOST_GRADIENTS // A.shape[1], 1))
        gradient = gradients(kernel, distance[rows], length, A[rows], A, principal_outputs(alpha).to(A))
        M = gradient_outer_product(gradient.double(), fold.weight[rows], T)
        return metric_root(M if step.full else average_groups(M, self.column_groups), step.power, step.full)

    def pair_distances(self, family: str) -> list[Tensor]:
        """Distances of each fold from fit rows, and below them from scoring rows, to fit rows."""
        key = family == "cityblock"
        if key not in self._distances:
            found = []
            for fold, T in zip(self.folds, self.transforms, strict=True):
                A = apply_transform(torch.cat([fold.X, fold.X_score]), T)
                found.append(distances(FAMILIES[family], A, A[: len(fold.X)]))
            self._distances[key] = found
        return self._distances[key]

    def kernels(self, point: GridPoint) -> list[tuple[Tensor, Tensor]]:
        """Kernel matrices of each fold: between fit rows, and from scoring rows to fit rows."""
        key = (point.family, point.length, point.dtype)
        if self._tiles is not None and self._tiles[0] == key:
            return self._tiles[1]
        tiles = []
        if point.family == "linear":
            for fold, T in zip(self.folds, self.transforms, strict=True):
                A, B = apply_transform(fold.X, T), apply_transform(fold.X_score, T)
                tiles.append((A @ A.T / A.shape[1], B @ A.T / A.shape[1]))
        else:
            kernel, length = FAMILIES[point.family], point.factor * self.unit(point.family)
            for distance in self.pair_distances(point.family):
                K = tile(kernel, distance.to(point.dtype), length)
                tiles.append((K[: K.shape[1]], K[K.shape[1] :]))
        self._tiles = key, tiles
        return tiles

    def release(self) -> None:
        """Free distances and kernel matrices; they are made again where they are needed again."""
        self._distances, self._tiles = {}, None


def mean_transform(view: View) -> Tensor:
    """One transform for those of all folds, by the mean of their metrics."""
    step = view.steps[-1]
    exponent = round(2 / step.power)  # a transform is the metric to the power of power/2
    metrics = [
        torch.diag(T**exponent) if T.ndim == 1 else torch.linalg.matrix_power(T, exponent) for T in view.transforms
    ]
    return metric_root(torch.stack(metrics).mean(0), step.power, view.transforms[0].ndim == 2)


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
        self.loss, self.point, self.values = self.trial.loss, self.trial.point, self.trial.values
        self.family = self.point.family
        self.name = f"{self.view.column_map}, {self.view.metric_name}, {self.family}"
        self.n_fit = sum([len(fold.X) for fold in self.view.folds])


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
    by_likelihood: LikelihoodEnsemble | None = field(default=None, repr=False)
