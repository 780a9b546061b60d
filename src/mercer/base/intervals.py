"""Intervals and quantiles of new targets, from residuals at rows that a model did not learn from (conformal).

A model f comes with scores (y − f(x)) / s(x) of rows it has not seen, s being a local scale. A new row is as likely to
have its score between any two neighbours of them, so f(x) + s(x) · (their quantiles) covers as promised, whatever the
model and the noise are. Where the residuals come from is each family's business: closed forms that leave rows out, or
rows held out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mercer.base.noise_scale import fit_local_scale
from mercer.data import RowSource
from mercer.engine import make_plan
from mercer.parts import as_float, require
from mercer.preprocessing.inputs import InputMap
from mercer.preprocessing.read import read_new
from mercer.preprocessing.targets import RealTargets

#: Sorted scores that are kept of many: so many at either end, where they are far apart, and so many evenly in between.
#: A model stays small, and between neighbours so close nothing is lost.
TAIL, BETWEEN = 25, 150
#: Levels are written with so many roundings.
ROUNDING = 1e-12


@dataclass(frozen=True)
class CalibrationRows:
    """Calibration rows as the kernel sees them (n × d), and as they came (n × D)."""

    rows: np.ndarray
    table: np.ndarray

    @classmethod
    def of(cls, rows: Tensor, source: RowSource, index: Any) -> CalibrationRows:
        """Rows of these numbers in a table."""
        table = source.fetch(torch.as_tensor(index).cpu())
        return cls(rows.double().cpu().numpy(), table.double().cpu().numpy())


@dataclass(frozen=True)
class Intervals:
    """Scores of some rows, sorted for each output (n × p), and the share of all new rows expected below each.

    >>> Intervals.of(np.array([[3.0], [1.0], [2.0]]), np.ones(3)).quantiles(np.array([0.25, 0.5, 0.625])).tolist()
    [[1.0, 2.0, 2.5]]
    """

    scores: np.ndarray
    below: np.ndarray
    n_rows: int  # that they are of
    local: Any = None  # what finds the scale at new rows, where the model itself has none

    @classmethod
    def fitted(
        cls,
        residuals: np.ndarray,
        scale: np.ndarray | float,
        values: np.ndarray,
        weight: np.ndarray,
        shown: CalibrationRows,
    ) -> Intervals:
        """From residuals over the model's own scale, all n × p, and over a local scale where that pays."""
        scores = residuals / np.maximum(scale, np.finfo(float).tiny)
        local, further = fit_local_scale(shown.rows, values, scores, weight, shown.table)
        return cls.of(scores / further, weight, local)

    @classmethod
    def of(cls, scores: np.ndarray, weight: np.ndarray, local: Any = None) -> Intervals:
        """From scores of rows with weights: a weight of two is the row twice.

        Of n equal rows the i-th smallest score has i/(n + 1) of the new ones below it, exactly.
        """
        alive = weight > 0
        scores, weight = scores[alive], weight[alive] / weight[alive].mean()
        order = scores.argsort(0)
        w = weight[order]
        below = (w.cumsum(0) - 0.5 * w + 0.5) / (len(w) + 1)
        some = _kept(len(w))
        return cls(np.take_along_axis(scores, order, 0)[some], below[some], len(w), local)

    def quantiles(self, q: np.ndarray) -> np.ndarray:
        """Quantiles of new scores for each output, p × q; infinite where so few rows have none.

        Of n rows those from 1/(n + 1) to n/(n + 1) are known. Further out the sizes of scores stand for either tail:
        a new one is below the largest of n with probability n/(n + 1). So [q, 1 − q] covers 1 − 2q of new scores as
        long as that is at most n/(n + 1), and beyond it nothing is known.

        >>> few = Intervals.of(np.array([[-1.0], [2.0]]), np.ones(2))
        >>> few.quantiles(np.array([0.1, 0.2, 0.5, 0.8])).round(6).tolist()
        [[-inf, -1.8, 0.5, 2.0]]
        """
        return np.stack([self._quantiles(q, k) for k in range(self.scores.shape[1])])

    def _quantiles(self, q: np.ndarray, k: int) -> np.ndarray:
        below, scores, n = self.below[:, k], self.scores[:, k], self.n_rows
        found = np.interp(q, below, scores)
        inside = 1 - 2 * np.minimum(q, 1 - q)  # what an interval between q and 1 − q holds
        sizes = np.sort(np.abs(scores))[-2:]
        known = np.arange(n - len(sizes) + 1, n + 1) / (n + 1)
        far = np.where(inside <= known[-1] + ROUNDING, np.interp(inside, known, sizes), np.inf)
        found = np.where(q < below[0] - ROUNDING, np.minimum(scores[0], -far), found)
        return np.where(q > below[-1] + ROUNDING, np.maximum(scores[-1], far), found)


def _kept(n: int) -> np.ndarray:
    """Places of the sorted scores that are kept: all of few; of many those of either tail, and some in between."""
    if n <= BETWEEN + 2 * TAIL:
        return np.arange(n)
    return np.unique(
        np.concatenate([np.arange(TAIL), np.linspace(0, n - 1, BETWEEN).astype(int), n - 1 - np.arange(TAIL)])
    )


class IntervalRegressor(RegressorMixin):
    """A regressor that knows how far targets lie from its predictions.

    Its `_located(X)` gives values of coded targets at rows `X`, and their scale there, both n × p.

    Attributes
    ----------
    intervals_ : Intervals
        Quantiles of residuals, over a local scale, of at most 2000 rows that the model did not learn from.
    """

    intervals_: Intervals
    targets_: RealTargets
    inputs_: InputMap
    memory_limit: Any
    _located: Callable[[Any], tuple[np.ndarray, np.ndarray]]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Lower and upper ends of intervals that hold new targets with probability `coverage`: n × 2, or n × p × 2.

        Both tails are left out equally. Coverage holds on average over new rows like those of `fit`, for each output by
        itself; intervals are wider where residuals are larger. Of rows far from those of `fit` nothing is promised:
        there the intervals of a `SparseGPRegressor` grow, those of other models hardly. With n calibration rows both
        tails are known up to a coverage of (n − 1)/(n + 1), and the size of residuals up to n/(n + 1), from which
        symmetric intervals are then made. Beyond that the ends are infinite: 90 % takes 9 calibration rows.
        """
        require(0 < as_float(coverage) < 1, "coverage", "a number above 0 and below 1", coverage)
        return self.predict_quantiles(X, [(1 - coverage) / 2, (1 + coverage) / 2])

    def predict_quantiles(self, X: Any, q: Any) -> np.ndarray:
        """Quantiles of new targets, which never cross: the last axis runs over `q`, or is missing if `q` is one number.

        The model's prediction and quantiles of its residuals, scaled by how far they reach near each row.
        """
        check_is_fitted(self)
        try:
            levels = np.asarray(q, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            levels = np.array(np.nan)
        good = levels.ndim <= 1 and levels.size > 0 and bool(((levels > 0) & (levels < 1)).all())
        require(good, "q", "a number above 0 and below 1, or several", q)
        values, scale = self._located(X)
        if self.intervals_.local is not None:
            source = read_new(self, X)
            plan = make_plan(source.n_rows, "cpu", "float64", self.memory_limit)
            scale = scale * self.intervals_.local.at_rows(source, self.inputs_, values, plan)
        reach = self.intervals_.quantiles(np.atleast_1d(levels))  # p × q
        away = (np.where(np.isinf(far), far, scale * far) for far in reach.T)
        decoded = [self.targets_.decode(values + far) for far in away]
        return decoded[0] if levels.ndim == 0 else np.stack(decoded, -1)
