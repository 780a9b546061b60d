"""Column maps: monotone maps of single columns onto comparable scales, fitted once and applied anywhere.

There are four kinds: `standard` keeps the shape of a column, `bend` is logarithmic in both tails, `clip` bounds a
column smoothly, `scores` are normal scores of its ranks. Each has mean 0 and variance 1, so neither shift nor scale of
a column matters. Model selection chooses the kind. A `Bend` maps only the columns with heavy tails.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from mercer.parts import PickledByFields, require

KINDS = ("standard", "bend", "clip", "scores")
#: A clipped column lies within this many interquartile ranges of its median.
REACH = 3.0
#: Largest number of values of a column between which normal scores are interpolated.
KNOTS = 1000
#: A column is mapped if the absolute value of its skewness, or its kurtosis, exceeds this; an exponential has 2 and 9.
SKEWNESS, KURTOSIS = 1.5, 9.0


@dataclass(frozen=True)
class Bend:
    """The map asinh((x − centre) / width) of columns with heavy tails.

    It is linear within the width and logarithmic beyond. Without it a few extreme rows would set the scale of a column,
    and a radial kernel could not tell the other rows apart.

    >>> import torch
    >>> from mercer.data import Bend
    >>> bend = Bend(torch.tensor([1]), torch.tensor([0.0]), torch.tensor([1.0]))
    >>> X = torch.tensor([[1000.0, 1000.0]])
    >>> bend(X), bend.inverse(bend(X))
    (tensor([[1000.0000,    7.6009]]), tensor([[1000.0000,  999.9...]]))
    """

    columns: Tensor
    centre: Tensor
    width: Tensor

    def __call__(self, X: Tensor) -> Tensor:
        where, centre, width = self._on_device(X)
        return X.index_copy(1, where, torch.asinh((X[:, where] - centre.to(X)) / width.to(X)))

    def _on_device(self, X: Tensor) -> list[Tensor]:
        return [torch.as_tensor(part).to(X.device) for part in (self.columns, self.centre, self.width)]

    def inverse(self, X: Tensor) -> Tensor:
        """Return the original rows."""
        where, centre, width = self._on_device(X)
        return X.index_copy(1, where, torch.sinh(X[:, where]) * width.to(X) + centre.to(X))


def find_bend(X: Tensor, weight: Tensor, kept: Tensor | None = None) -> Bend | None:
    """Fit a bend to rows `X` with these weights; None if no column has heavy tails besides those `kept`.

    The centre of a column is its median, the width the median distance from it of the values that differ from it
    (many columns are mostly zeros). A column of two values comes out of any bend as it went in, up to scale.
    """
    X, w = X.double(), weight.double()[:, None] / weight.double().sum()
    unit = fit_column_map("standard", X, weight)(X)
    heavy = ((w * unit**3).sum(0).abs() > SKEWNESS) | ((w * unit**4).sum(0) > KURTOSIS)
    heavy &= X.amax(0) > X.amin(0)  # rounding gives a constant column some spread
    columns = (heavy if kept is None else heavy & ~kept).nonzero()[:, 0]
    if not len(columns):
        return None
    return Bend(columns, *_middle_and_width(X[:, columns], w))


def _middle_and_width(X: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weighted median of each column, and the median distance from it of the values that differ from it."""
    everywhere = w.expand_as(X)
    centre = _median(X, everywhere)
    distance = (X - centre).abs()
    return centre, _median(distance, torch.where(distance > 1e-12 * distance.amax(0), everywhere, 0.0))


def _median(X: Tensor, weight: Tensor) -> Tensor:
    """Return the weighted median of each column: the least value with at least half of the weight at or below it."""
    ordered, order = X.sort(0)
    share = weight.gather(0, order).cumsum(0)
    first = (share >= 0.5 * share[-1:] * (1 - 1e-12)).int().argmax(0)
    return ordered.gather(0, first[None])[0]


@dataclass(frozen=True)
class ColumnMap(PickledByFields):
    """A fitted map of columns: scaling, a nonlinear shape, standardising.

    `knots` and `levels` (D × K) define normal scores.

    >>> X = torch.tensor([[1.0], [10.0], [100.0], [1000.0]], dtype=torch.float64)
    >>> fit_column_map("scores", X, torch.ones(4))(X)[:, 0].round(decimals=1).tolist()
    [-1.4, -0.4, 0.4, 1.4]
    """

    kind: str
    centre: Tensor
    width: Tensor
    mean: Tensor
    spread: Tensor
    knots: Tensor | None = None
    levels: Tensor | None = None

    def __call__(self, X: Tensor) -> Tensor:
        """Map rows; the result is finite for finite values, and monotone."""
        centre, width, mean, spread, *curve = self._like(X)
        return (self._shape((X - centre) / width, curve) - mean) / spread

    def inverse(self, Z: Tensor) -> Tensor:
        """Return the original rows; normal scores beyond the fitted range return its end."""
        centre, width, mean, spread, *curve = self._like(Z)
        z = Z * spread + mean
        if self.kind == "bend":
            z = torch.sinh(z)
        elif self.kind == "clip":
            inside = (z / REACH).clamp(-1 + 1e-12, 1 - 1e-12)
            z = REACH * inside / (1 - inside.square()).sqrt()
        elif self.kind == "scores":
            z = _interpolated(z, *curve[::-1])
        return z * width + centre

    def _like(self, X: Tensor) -> list[Tensor]:
        """All numbers in the precision of `X`, on its device."""
        parts = self._tensors
        there = X.dtype == parts[0].dtype and X.device == parts[0].device
        return parts if there else [part.to(X) for part in parts]

    @cached_property
    def _tensors(self) -> list[Tensor]:
        """All numbers in double precision; a fitted model holds arrays."""
        parts = self.centre, self.width, self.mean, self.spread, self.knots, self.levels
        return [torch.as_tensor(part).double() for part in parts if part is not None]

    def _shape(self, z: Tensor, curve: list[Tensor]) -> Tensor:
        if self.kind == "bend":
            return torch.asinh(z)
        if self.kind == "clip":
            return z / torch.hypot(torch.ones_like(z), z / REACH)  # no square of a large number
        if self.kind == "scores":
            return _interpolated(z, *curve)
        return z


def fit_column_map(kind: str, X: Tensor, weight: Tensor, kept: Tensor | None = None) -> ColumnMap:
    """Fit a map of this kind to rows `X` with these weights; columns that are `kept` are only centred."""
    require(kind in KINDS, "kind", f"one of {KINDS}", kind)
    X = X.double()
    w = weight.double()[:, None].to(X.device) / weight.double().sum()
    centre, width = _units(kind, X, w)
    straight = torch.zeros(X.shape[1], dtype=torch.bool) if kept is None else kept
    straight = straight.to(X.device)
    knots = levels = None
    if kind == "scores":
        knots, levels = _normal_levels((X - centre) / width, w)
    raw = ColumnMap(kind, centre, width, torch.zeros_like(centre), torch.ones_like(centre), knots, levels)
    z = raw(X)
    mean = (w * z).sum(0)
    spread = (w * (z - mean).square()).sum(0).sqrt()
    seen = spread > 1e-12 * z.abs().amax(0)  # rounding gives a constant column some spread
    spread = torch.where(seen, spread, 1.0)
    # a kept column keeps its scale; a column of two values can change by a scale only
    original_range = X.amax(0) - X.amin(0)
    mapped_range = z.amax(0) - z.amin(0)
    scale = mapped_range / original_range.where(original_range > 0, 1.0)
    spread = torch.where(straight & seen, scale, spread)
    return ColumnMap(kind, centre, width, mean, spread, knots, levels)


def _units(kind: str, X: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Return centre and width of each column, as this kind of map defines them."""
    if kind == "standard":
        # scaled by a power of two near the largest value, so that squares do not overflow
        unit = torch.exp2(X.abs().amax(0).clamp(min=1e-300).log2().floor())
        scaled = X / unit
        mean = (w * scaled).sum(0)
        centre = mean * unit
        width = (w * (scaled - mean).square()).sum(0).sqrt() * unit
    else:  # the difference of a value from a median is exact to its last digits beside a value of 1e20
        centre, width = _middle_and_width(X, w)  # many columns are mostly one value
        width = 2 * width if kind == "clip" else width  # the interquartile range of a symmetric column
    return centre, torch.where(width > 1e-12 * X.abs().amax(0), width, 1.0)


def _normal_levels(z: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Return values of each column and the normal quantiles of the weight below them (half of ties counts), D × K."""
    values, scores = [], []
    for k in range(z.shape[1]):
        ordered, order = z[:, k].sort()
        share = w[order, 0].cumsum(0)
        distinct, last = torch.unique_consecutive(ordered, return_counts=True)
        upper = share[last.cumsum(0) - 1]
        lower = torch.cat([upper.new_zeros(1), upper[:-1]])
        take = torch.linspace(0, len(distinct) - 1, min(len(distinct), KNOTS), device=z.device).round().long()
        middle = 0.5 * (lower + upper)[take]
        values.append(distinct[take])
        scores.append(torch.special.ndtri((middle / share[-1]).clamp(1e-12, 1 - 1e-12)))
    most = max(len(v) for v in values)
    pad = [torch.cat([v, v[-1:].expand(most - len(v))]) for v in (*values, *scores)]
    return torch.stack(pad[: len(values)]), torch.stack(pad[len(values) :])


def _interpolated(z: Tensor, knots: Tensor, levels: Tensor) -> Tensor:
    """Interpolate each column of `z` linearly between its knots, constant beyond the first and the last."""
    rows = z.T.contiguous()
    right = torch.searchsorted(knots, rows).clamp(1, max(knots.shape[1] - 1, 1))
    left = right - 1
    right = right.clamp(max=knots.shape[1] - 1)
    a, b, u, v = knots.gather(1, left), knots.gather(1, right), levels.gather(1, left), levels.gather(1, right)
    share = torch.where(b > a, (rows - a) / (b - a).where(b > a, 1.0), 0.0).clamp(0, 1)
    return (u + share * (v - u)).T
