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
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from mercer.border.targets import RealTargets
from mercer.parts import as_float, require

#: Sorted scores that are kept of many: so many at either end, where they are far apart, and so many evenly in between.
#: A model stays small, and between neighbours so close nothing is lost.
TAIL, BETWEEN = 25, 150


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
        """Quantiles of new scores for each output, p × q; beyond the outermost scores there are those."""
        return np.stack([np.interp(q, self.below[:, k], self.scores[:, k]) for k in range(self.scores.shape[1])])


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
    _located: Callable[[Any], tuple[np.ndarray, np.ndarray]]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Lower and upper ends of intervals that hold new targets with probability `coverage`: n × 2, or n × p × 2.

        Both tails are left out equally. Coverage holds on average over new rows like those of `fit`, for each output by
        itself; intervals are wider where residuals are larger. Of rows far from those of `fit` nothing is promised:
        there the intervals of a `SparseGPRegressor` grow, those of other models hardly. With n calibration rows none is
        surer than (n − 1)/(n + 1), which the widest residuals seen then stand for.
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
        reach = self.intervals_.quantiles(np.atleast_1d(levels))  # p × q
        decoded = [self.targets_.decode(values + scale * reach[:, k]) for k in range(reach.shape[1])]
        return decoded[0] if levels.ndim == 0 else np.stack(decoded, -1)
