"""Column maps: monotone maps of single columns onto comparable scales, fitted once and applied anywhere.

Four kinds: `standard` leaves the shape of a column as it is, `bend` is logarithmic in both tails, `clip` bounds a
column smoothly, `scores` makes it normal whatever it was. Each ends with mean 0 and variance 1, so neither shift nor
scale of a column matters. Which kind suits a table is not decided here (`mercer.tuning.race`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mercer.data.heavy_tails import _median
from mercer.parts import require

KINDS = ("standard", "bend", "clip", "scores")
#: A clipped column lies within this many interquartile ranges of its median.
REACH = 3.0
#: Normal scores are interpolated between at most so many values of a column.
KNOTS = 1000


@dataclass(frozen=True)
class ColumnMap:
    """A fitted map of columns: unit, shape, unit again; `knots` and `levels` (D × K) belong to normal scores.

    >>> import torch
    >>> from mercer.data.column_maps import fit_column_map
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
        """Mapped rows: finite for every finite value, and never falling in it."""
        centre, width, mean, spread = self._units(X)
        return (self._shape((X - centre) / width) - mean) / spread

    def inverse(self, Z: Tensor) -> Tensor:
        """Rows as they were; beyond the values that were seen, normal scores give back the last one seen."""
        centre, width, mean, spread = self._units(Z)
        z = Z * spread + mean
        if self.kind == "bend":
            z = torch.sinh(z)
        elif self.kind == "clip":
            inside = (z / REACH).clamp(-1 + 1e-12, 1 - 1e-12)
            z = REACH * inside / (1 - inside.square()).sqrt()
        elif self.kind == "scores" and self.knots is not None and self.levels is not None:
            z = _interpolated(z, *_like(z, self.levels, self.knots))
        return z * width + centre

    def _units(self, X: Tensor) -> list[Tensor]:
        return _like(X, self.centre, self.width, self.mean, self.spread)

    def _shape(self, z: Tensor) -> Tensor:
        if self.kind == "bend":
            return torch.asinh(z)
        if self.kind == "clip":
            return z / torch.hypot(torch.ones_like(z), z / REACH)  # no square of a large number
        if self.kind == "scores" and self.knots is not None and self.levels is not None:
            return _interpolated(z, *_like(z, self.knots, self.levels))
        return z


def fit_column_map(kind: str, X: Tensor, weight: Tensor, kept: Tensor | None = None) -> ColumnMap:
    """The map of this kind for rows like `X` with these weights; columns that are `kept` are only centred."""
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
    # a kept column keeps its own unit; of two values, a map can change nothing but the unit
    own = X.amax(0) - X.amin(0)
    mapped = z.amax(0) - z.amin(0)
    spread = torch.where(straight & seen, mapped / own.where(own > 0, 1.0), spread)
    return ColumnMap(kind, centre, width, mean, spread, knots, levels)


def _like(X: Tensor, *parts: Tensor) -> list[Tensor]:
    return [torch.as_tensor(part).to(X) for part in parts]


def _units(kind: str, X: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Where a column's middle lies and how wide it is, in the sense of the kind of map."""
    if kind in ("standard", "scores"):
        centre = (w * X).sum(0)
        width = (w * (X - centre).square()).sum(0).sqrt()
    else:
        everywhere = w.expand_as(X)
        centre = _median(X, everywhere)
        distance = (X - centre).abs()
        # many columns are mostly one value: the width is that of the values that differ from it
        away = torch.where(distance > 1e-12 * distance.amax(0), everywhere, 0.0)
        width = _median(distance, away)
        if kind == "clip":
            width = 2 * width  # of a symmetric column, the interquartile range
    return centre, torch.where(width > 1e-12 * X.abs().amax(0), width, 1.0)


def _normal_levels(z: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Values of each column and the normal quantiles of the weight below them (half of the ties' own), D × K."""
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
    """Each column of `z` on the broken line through its knots, level beyond the first and the last."""
    rows = z.T.contiguous()
    right = torch.searchsorted(knots, rows).clamp(1, max(knots.shape[1] - 1, 1))
    left = right - 1
    right = right.clamp(max=knots.shape[1] - 1)
    a, b, u, v = knots.gather(1, left), knots.gather(1, right), levels.gather(1, left), levels.gather(1, right)
    share = torch.where(b > a, (rows - a) / (b - a).where(b > a, 1.0), 0.0).clamp(0, 1)
    return (u + share * (v - u)).T
