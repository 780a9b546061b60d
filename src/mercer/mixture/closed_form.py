"""Gates, size and penalty of a mixture by leave-one-out errors in closed form.

Centres are those of k-means. All gates share one covariance: a multiple of the identity, of the inverse squared
relevances of the columns, or of the inputs' covariance. The output weights are then a ridge regression on the
activations (`least_squares`), whose leave-one-out residuals are r/(1 − h). They choose the width, λ, whether relevances
are used, and the size, by the one-standard-error rule over rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.base.out_of_fold import LARGEST
from mercer.clock import Clock, StopKind, StopReason
from mercer.engine import Sample
from mercer.mixture.em import Mixture
from mercer.mixture.experts import NoExperts
from mercer.mixture.features import Features
from mercer.mixture.fit import MixtureSettings, k_means
from mercer.mixture.gates import Floor, make_gates
from mercer.mixture.n_components import ChosenSize
from mercer.mixture.output_weights import local_features
from mercer.progress import report_step
from mercer.selection.evidence_search import relevances

#: Rows of a trial, and rows that find the relevances.
TRIAL_ROWS, RELEVANCE_ROWS = 1000, 400
#: Widths that are tried, as shares of the mean distance between rows; narrow ones where probabilities are averaged.
WIDTHS, NARROW_WIDTHS = (0.15, 0.3, 0.6, 1.2, 2.4), (0.05, 0.1, 0.2, 0.4, 0.8)
#: Penalties that are tried, for weights of mean one.
PENALTIES = tuple(10.0 ** (k / 2) for k in range(-12, 7))
#: Least penalty of classes, whose codes are never free of noise, and of slopes, which extrapolate.
LEAST_OF_CLASSES, LEAST_OF_SLOPES = 1e-3, 3e-2
#: Weights of one output at most, and rows for each of them at least; weights of all classes at most.
MOST_WEIGHTS, ROWS_A_WEIGHT, MOST_OF_CLASSES = 600, 2, 2400
#: Rows needed for the relevance of each column by the evidence; with fewer, correlations with the targets stand for it.
ROWS_A_COLUMN = 2
#: Least relevance, over the mean square of all: smaller ones would only cost digits.
LEAST_RELEVANCE = 1e-2
#: Relevances are used if the error is below this share of that without: they have seen rows of the trial.
CLEARLY = 0.95
#: Share of a time budget after which no further size is tried.
TIME_SHARE = 0.5


def leave_one_out_values(phi: Tensor, Y: Tensor, weight: Tensor, penalties: Sequence[float]) -> Tensor:
    """Values at every row of ridge regression on the features `phi` (n × m) without it, for each λ: L × n × p."""
    phi, Y, root = phi.double(), Y.double(), weight.double().sqrt()[:, None]
    weighted = phi * root
    values, V = torch.linalg.eigh(weighted.T @ weighted)
    lam = torch.tensor(penalties, dtype=torch.float64, device=phi.device)
    total = values.clamp(min=0)[:, None] + lam  # m × L
    rounding = len(values) * torch.finfo(torch.float64).eps * total.max(0).values
    inverse = torch.where(total > rounding, 1 / total, 0.0)  # without a penalty, the solution of least norm
    T = weighted @ V
    along = T.T @ (root * Y)
    f = (T @ (inverse[:, :, None] * along[:, None]).flatten(1)).unflatten(1, (len(lam), -1)).transpose(0, 1) / root
    h = (T.square() @ inverse).T[:, :, None].clamp(max=LARGEST)
    return Y - (Y - f) / (1 - h)


def shares_without(A: Tensor, indicator: Tensor, weight: Tensor) -> Tensor:
    """Σ_j p(j | x) P(c | j) at every row (n × C), the shares P(c | j) counted without it; A is k × n."""
    weighted = A * weight  # k × n
    counts, mass = weighted @ indicator, weighted.sum(1, keepdim=True)
    left = (mass - weighted).clamp(min=1e-12 * mass)
    ratio = A / left
    return ratio.T @ counts - (ratio * weighted).sum(0)[:, None] * indicator


@dataclass(frozen=True)
class GateTrial:
    """The best width and penalty of one size, with the loss of each row without it (n)."""

    penalty: float
    width: float
    losses: Tensor
    weight: Tensor
    centres: Tensor

    @property
    def loss(self) -> float:
        return float(self.losses @ self.weight / self.weight.sum())

    @property
    def deviation(self) -> float:
        """The standard deviation of the losses of rows."""
        return _deviation(self.losses, self.weight)

    def standard_error(self, other: GateTrial) -> float:
        """The standard error of the difference of the two losses: they are of the same rows."""
        return _deviation(self.losses - other.losses, self.weight) / len(self.losses) ** 0.5


def _deviation(losses: Tensor, weight: Tensor) -> float:
    share = weight / weight.sum()
    return float(((losses - losses @ share).square() @ share).sqrt())


@dataclass(frozen=True)
class GateSearch:
    """Arguments of the trials besides the rows: settings, the sizes, whether local models have slopes, and the loss.

    With `shares` the local models are shares of classes (`shares_without`), which have no penalty.
    """

    setting: MixtureSettings
    sizes: Sequence[int]
    linear: bool
    penalties: Sequence[float]
    classes: bool = False
    shares: bool = False

    def best(self, sample: Sample, rng: np.random.Generator) -> tuple[Mixture, float, dict[str, Any]]:
        """Gates and λ of the smallest size within one standard error of the best, and the results of all sizes."""
        table = TrialRows.of(sample)
        shapes = self._shapes(table, sample, rng)
        paths = [self._path(table, shape, rng) for shape in shapes]
        least = [min(trial.loss for trial in path) for path in paths]
        place = -1 if least[-1] < CLEARLY * least[0] else 0
        path = paths[place]
        best = min(path, key=lambda trial: trial.loss)
        chosen = next(trial for trial in path if trial.loss - best.loss <= trial.standard_error(best))
        return (
            self._mixture(shapes[place], chosen.centres, chosen.width),
            chosen.penalty,
            {
                "param_n_components": np.array([len(trial.centres) for trial in path]),
                "param_width": np.array([trial.width for trial in path]),
                "param_regularization": np.array([trial.penalty for trial in path]),
                "mean_test_score": np.array([-trial.loss for trial in path]),
                "std_test_score": np.array([trial.deviation for trial in path]),
                "standard_error": np.array([trial.standard_error(best) for trial in path]),
            },
        )

    def _path(self, table: TrialRows, shape: Tensor, rng: np.random.Generator) -> list[GateTrial]:
        """The best trial of each size, with gates of this shape."""
        found: list[GateTrial] = []
        U = table.X @ shape
        for k in self.sizes:
            q = 1 + table.X.shape[1] * self.linear
            many = k * q > min(MOST_WEIGHTS, len(U) // ROWS_A_WEIGHT)
            many |= self.classes and not self.shares and k * q * table.Y.shape[1] > MOST_OF_CLASSES
            if found and (many or self.setting.clock.expired(until=TIME_SHARE)):
                break
            centres, _ = k_means(U, table.weight, k, rng)
            # averages of probabilities need narrow gates: wide ones would need values beyond 0 and 1
            tried = NARROW_WIDTHS if self.classes and (self.linear or self.shares) else WIDTHS
            widths = mean_distance(U) * np.array(tried if len(centres) > 1 else (1.0,))
            trials = [self._trial(table, U, centres, width) for width in widths.tolist()]
            found.append(min(trials, key=lambda trial: trial.loss))
            report_step("size", len(self.sizes))
            if len(centres) < k:  # there are no more distinct rows
                break
        return found

    def _trial(self, table: TrialRows, U: Tensor, centres: Tensor, width: float) -> GateTrial:
        A = torch.softmax(-0.5 * torch.cdist(U, centres).square() / width**2, 1).T
        if self.shares:
            losses = (0.5 * (1 + table.Y) - shares_without(A, 0.5 * (1 + table.Y), table.weight)).square().sum(1)
            return GateTrial(0.0, width, losses, table.weight, centres)
        phi = local_features(A, table.X.T, self.linear).T
        f = leave_one_out_values(phi, table.Y, table.weight, self.penalties)
        misfit = (1 - table.Y * f).clamp(min=0.0) if self.classes else table.Y - f
        losses = misfit.square().sum(2)  # L × n
        place = int((losses @ table.weight).argmin())
        return GateTrial(self.penalties[place], width, losses[place], table.weight, centres)

    def _mixture(self, shape: Tensor, centres: Tensor, width: float) -> Mixture:
        """Gates N(x; μ_j, Σ), Σ⁻¹ = shape shapeᵀ / width², of equal weights."""
        k, D = centres.shape
        full = self.setting.kind in ("full", "tied")
        inverse = torch.linalg.inv(shape)
        covariance = width**2 * inverse.T @ inverse
        covariances = (covariance if full else covariance.diagonal()).expand(k, *[D] * (1 + full)).clone()
        variance = torch.where(self.setting.variance > 0, self.setting.variance, 1.0).to(shape.device)
        groups = torch.zeros(k, dtype=torch.int64, device=shape.device)
        floor = Floor(self.setting.kind, self.setting.floor * variance, groups)
        gates = make_gates(shape.new_full((k,), 1 / k), centres @ inverse, covariances, floor)
        return Mixture(gates, NoExperts(), floor, Features(D, full or self.linear))

    def _shapes(self, table: TrialRows, sample: Sample, rng: np.random.Generator) -> list[Tensor]:
        """Matrices that make the shared covariance spherical: without relevances first."""
        X, D = table.X, table.X.shape[1]
        if self.setting.kind in ("full", "tied"):
            centred = X - X.mean(0)
            values, V = torch.linalg.eigh(centred.T @ centred / len(X) + self.setting.floor * torch.eye(D).to(X))
            return [V * values.rsqrt()]
        plain = torch.eye(D, dtype=X.dtype, device=X.device)
        index = torch.as_tensor(np.sort(rng.choice(len(X), min(len(X), RELEVANCE_ROWS), replace=False)))
        if self.setting.kind == "spherical" or D < 2:
            return [plain]
        if len(index) < ROWS_A_COLUMN * D:
            return [plain, torch.diag(correlations(table).clamp(min=LEAST_RELEVANCE))]
        group = None if sample.column_groups is None else torch.as_tensor(sample.column_groups)
        relevance = relevances(X[index], table.Y[index], table.weight[index], group)
        return [plain, torch.diag(relevance.to(X).clamp(min=LEAST_RELEVANCE))]


@dataclass(frozen=True)
class TrialRows:
    """Rows n × D, targets or codes of classes n × p, and weights, in float64."""

    X: Tensor
    Y: Tensor
    weight: Tensor

    @classmethod
    def of(cls, sample: Sample) -> TrialRows:
        X = sample.rows.take(torch.arange(sample.rows.n_rows)).double()
        return cls(X, sample.Y.double(), sample.weight.double())


def correlations(table: TrialRows) -> Tensor:
    """Root mean square correlation of each column with the targets, scaled to mean square one.

    It stands for the relevance where columns are too many for the evidence.
    """
    share = table.weight / table.weight.sum()
    X, Y = (part - share @ part for part in (table.X, table.Y))
    X, Y = (part / (share @ part.square()).sqrt().clamp(min=1e-12) for part in (X, Y))
    found = (X.T @ (share[:, None] * Y)).square().mean(1).sqrt()
    return found * (len(found) / found.square().sum().clamp(min=1e-300)).sqrt()


def mean_distance(U: Tensor) -> float:
    """The mean distance between the first 300 rows; 1 if all are the same."""
    mean = float(torch.cdist(U[:300], U[:300]).mean())
    return mean if mean > 0 else 1.0


def located_size(sample: Sample, form: GateSearch, rng: np.random.Generator) -> ChosenSize:
    """Select gates, size and penalty on the first process for all."""
    seconds = form.setting.clock.seconds
    most = TRIAL_ROWS if seconds is None else int(np.clip(400 * seconds, 100, TRIAL_ROWS))
    part = sample.part(sample.draw(most, rng))

    def select() -> tuple[ChosenSize, dict[str, Any]]:
        mixture, penalty, results = form.best(part, rng)
        kept = results if len(form.sizes) > 1 else None
        chosen = ChosenSize([mixture.n_components], mixture, kept, 0.0, mixture, penalty)
        return chosen, dict(rng.bit_generator.state)

    found, rng.bit_generator.state = sample.rows.shard.group.first(select)
    return found


def location_reason(clock: Clock, what: str) -> StopReason:
    """Why a search for gates ended: the time, or the least error of `what` it has found."""
    if clock.expired(until=TIME_SHARE):
        return clock.stop_reason()
    return StopReason(f"{what} have the least leave-one-out error", StopKind.EXACT)


def doubled_sizes(most: int) -> list[int]:
    """Numbers of components to try: 1, twice as many, …, `most`.

    >>> doubled_sizes(12)
    [1, 2, 4, 8, 12]
    """
    sizes = [1]
    while sizes[-1] < most:
        sizes.append(min(2 * sizes[-1], most))
    return sizes
