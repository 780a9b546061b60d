"""Gates: the Gaussian mixture over the inputs, p(j) N(x; μ_j, Σ_j), and its M step under a floor on the covariances.

The M step solves maximum likelihood subject to Σ_j ⪰ floor exactly: it raises eigenvalues below the floor to it. So
the floor prevents collapse, the likelihood never falls, and a floor that does not bind changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import e, log, pi

import torch
from torch import Tensor

from mercer.engine import Sample
from mercer.mixture.features import Features, columns

COVARIANCES = ("spherical", "diagonal", "full", "tied")
EPS = torch.finfo(torch.float64).eps
#: Error of a log density up to which the expanded quadratic form is used; beyond it, rows are whitened instead.
EXPANSION_ERROR = 1e-7
#: Rows from which the variances of columns and the steps of their values are read.
STEP_ROWS = 10_000
#: Largest distance of a gap from a multiple of the step, to allow for rounding.
STEP_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Floor:
    """Lower bound of the covariances: a `variance` per input (constant inputs count as inputs of unit variance).

    `groups` numbers the components that share a tied covariance: all of them, or those of one class.
    """

    kind: str
    variance: Tensor
    groups: Tensor

    def of(self, keep: Tensor) -> Floor:
        return replace(self, groups=self.groups[keep])


@dataclass(frozen=True)
class Gates:
    """Weights p(j), means (k × D) and covariances: k × D × D for full and tied, k × D for diagonal and spherical.

    `root` holds factors of the precisions, P_j = W_j W_jᵀ, of the same shape; `log_det` is log|Σ_j|.
    """

    weights: Tensor
    means: Tensor
    covariances: Tensor
    root: Tensor
    log_det: Tensor

    @property
    def n_components(self) -> int:
        return self.weights.shape[0]

    def coefficients(self, layout: Features) -> Tensor:
        """log p(j) + log N(x; μ_j, Σ_j) as k × F coefficients of the features of x."""
        P = self.root @ self.root.mT if self.root.ndim == 3 else self.root.square()
        P_mu = (P @ self.means[:, :, None])[:, :, 0] if P.ndim == 3 else P * self.means
        constant = self._constant() - 0.5 * (P_mu * self.means).sum(1)
        return torch.cat([constant[:, None], P_mu, -0.5 * layout.quadratic(P)], 1)

    def whitened(self, x: Tensor) -> Tensor:
        """The same log densities (k × n) from whitened rows: slower, exact for any covariance."""
        return self._constant()[:, None] - 0.5 * self.squared_distances(x)

    def squared_distances(self, x: Tensor) -> Tensor:
        """Squared Mahalanobis distances from the centres, k × n."""
        if self.root.ndim == 2:
            z = self.root[:, :, None] * (x - self.means[:, :, None])
            return z.square().sum(1)
        k, D, n = *self.means.shape, x.shape[1]
        W = self.root.mT.reshape(k * D, D)
        offset = (self.root.mT @ self.means[:, :, None]).reshape(k * D, 1)
        return (W @ x - offset).square().reshape(k, D, n).sum(1)

    @property
    def expandable(self) -> bool:
        """Whether rounding in the expanded form stays below `EXPANSION_ERROR` near the components' centres."""
        spread = self.covariances.diagonal(dim1=1, dim2=2).sum(1) if self.root.ndim == 3 else self.covariances.sum(1)
        steepest = self.root.flatten(1).square().sum(1)
        size = steepest * (self.means.square().sum(1) + spread)
        return bool((EPS * size).max() < EXPANSION_ERROR)

    def _constant(self) -> Tensor:
        D = self.means.shape[1]
        return self.weights.log() - 0.5 * (D * log(2 * pi) + self.log_det)

    def select(self, keep: Tensor) -> Gates:
        """The gates of some components, their weights summing to one again."""
        weights = self.weights[keep]
        return Gates(
            weights / weights.sum(), self.means[keep], self.covariances[keep], self.root[keep], self.log_det[keep]
        )


def gates_from_sums(sums: Tensor, layout: Features, floor: Floor) -> Gates:
    """The M step of the gates (Thesis09 eq. 2.13, 3.7 to 3.9) from Σ r, Σ r x and Σ r xxᵀ, k × F."""
    n = sums[:, 0]
    means = sums[:, layout.linear] / n[:, None]
    if floor.kind in ("full", "tied"):
        scatter = layout.matrices(sums[:, layout.second]) - n[:, None, None] * means[:, :, None] * means[:, None, :]
        if floor.kind == "tied":
            scatter, mass = _pooled(scatter, floor.groups), _pooled(n, floor.groups)
        else:
            mass = n
        return make_gates(n / n.sum(), means, scatter / mass[:, None, None], floor)
    variances = layout.squares(sums[:, layout.second]) / n[:, None] - means.square()
    if floor.kind == "spherical":
        variances = variances.mean(1, keepdim=True).expand_as(means)
    return make_gates(n / n.sum(), means, variances, floor)


def make_gates(weights: Tensor, means: Tensor, covariances: Tensor, floor: Floor) -> Gates:
    """Gates with these parameters, covariances raised to the floor."""
    least = floor.variance
    if covariances.ndim == 2:
        least = least.mean().expand_as(least) if floor.kind == "spherical" else least
        variances = torch.maximum(covariances, least)
        return Gates(weights, means, variances, variances.rsqrt(), variances.log().sum(1))
    d = least.sqrt()
    values, V = torch.linalg.eigh(covariances / d[:, None] / d)  # the floor is the identity there
    values = values.clamp(min=1.0)
    half = d[:, None] * V * values.sqrt()[:, None, :]
    root = V / d[:, None] * values.rsqrt()[:, None, :]
    return Gates(weights, means, half @ half.mT, root, values.log().sum(1) + least.log().sum())


def _pooled(value: Tensor, groups: Tensor) -> Tensor:
    """The sum over each component's group, repeated for every component."""
    out = value.new_zeros(int(groups.max()) + 1, *value.shape[1:])
    return out.index_add_(0, groups, value)[groups]


def column_variances(sample: Sample) -> Tensor:
    """The variance of each column over rows of positive weight, from at most `STEP_ROWS` of them."""
    index = _spaced(sample)
    x, weight = columns(sample.rows.fetch(index)).double(), sample.weight[index].double()
    share = weight / weight.sum()
    return (x - (x @ share)[:, None]).square() @ share


def _spaced(sample: Sample) -> Tensor:
    return sample.rows.shard.spaced(sample.weight > 0, STEP_ROWS)


def rounding_variance(sample: Sample) -> Tensor:
    """The least variance e h²/12 of each column whose values are multiples of a step h; 0 for other columns.

    The likelihood has no bound if many rows share a value: a component that narrows onto it gains without end, and a
    mixture of integers would end as one narrow component per value. A value written in steps of h stands for an
    interval of width h. The Gaussian of variance h²/12 gives its points a mean log density of −½ log(2πe h²/12), and a
    component on the single value gets no more than that from the variance e h²/12. One wide Gaussian and a narrow one
    for each of equally frequent values are then equally likely.
    """
    X = sample.rows.fetch(_spaced(sample))
    steps = torch.tensor([_step(column.unique()) for column in columns(X)], dtype=torch.float64)
    return steps.square().mul_(e / 12).to(sample.plan.device)


def _step(values: Tensor) -> float:
    """The smallest gap between neighbours if all gaps are multiples of it, otherwise 0.

    >>> _step(torch.tensor([1.0, 1.5, 3.0])), _step(torch.tensor([1.0, 1.5, 2.7]))
    (0.5, 0.0)
    """
    if len(values) < 2:
        return 0.0
    gaps = values.diff()
    counts = gaps / gaps.min()
    return float(gaps.min()) if bool(((counts - counts.round()).abs() < STEP_TOLERANCE).all()) else 0.0
