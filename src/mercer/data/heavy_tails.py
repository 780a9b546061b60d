"""Columns with heavy tails, bent: asinh((x − centre) / width), linear within the width and logarithmic beyond.

A few rows far out would otherwise set the scale of a column, and all the others would look alike to a radial kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

#: A column is bent if the absolute value of its skewness, or its kurtosis, exceeds this: an exponential has 2 and 9.
SKEWNESS, KURTOSIS = 1.5, 9.0


@dataclass(frozen=True)
class Bend:
    """Which columns are bent, around what and from where on.

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
        where, centre, width = self._beside(X)
        return X.index_copy(1, where, torch.asinh((X[:, where] - centre.to(X)) / width.to(X)))

    def _beside(self, X: Tensor) -> list[Tensor]:
        return [torch.as_tensor(part).to(X.device) for part in (self.columns, self.centre, self.width)]

    def inverse(self, X: Tensor) -> Tensor:
        """Rows as they were before."""
        where, centre, width = self._beside(X)
        return X.index_copy(1, where, torch.sinh(X[:, where]) * width.to(X) + centre.to(X))


def find_bend(X: Tensor, weight: Tensor, kept: Tensor | None = None) -> Bend | None:
    """The bend for rows like `X` with these weights; None where no column has heavy tails but those that are `kept`.

    The centre of a column is its median, the width the median distance from it of the values that differ from it
    (many columns are mostly zeros). A column of two values comes out of any bend as it went in, up to scale.
    """
    X, w = X.double(), weight.double()[:, None] / weight.double().sum()
    size = X.abs().amax(0)
    # As parts of the largest value: squares of numbers near the ends of float64 would leave it.
    parts = X / size.where(size > 0, 1.0)
    centred = parts - (w * parts).sum(0)
    spread = (w * centred.square()).sum(0).sqrt()
    unit = centred / spread.where(spread > 0, 1.0)
    heavy = ((w * unit**3).sum(0).abs() > SKEWNESS) | ((w * unit**4).sum(0) > KURTOSIS)
    heavy = heavy if kept is None else heavy & ~kept
    columns = (heavy & (spread > 0) & X.isfinite().all(0)).nonzero()[:, 0]
    if not len(columns):
        return None
    centre = _median(X[:, columns], w.expand(-1, len(columns)))
    distance = (X[:, columns] - centre).abs()
    away = torch.where(distance > 1e-12 * distance.amax(0), w, 0.0)
    return Bend(columns, centre, _median(distance, away))


def _median(X: Tensor, weight: Tensor) -> Tensor:
    """The weighted median of each column: the least value with at least half of the weight at or below it."""
    ordered, order = X.sort(0)
    share = weight.gather(0, order).cumsum(0)
    first = (share >= 0.5 * share[-1:] * (1 - 1e-12)).int().argmax(0)
    return ordered.gather(0, first[None])[0]
