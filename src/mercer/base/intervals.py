"""Conformal intervals and quantiles of new targets, from residuals of rows that a model was not fitted to.

A model f comes with scores (y − f(x)) / s(x) of held-out rows, where s is a local scale. The score of a new row falls
between any two neighbours of these with equal probability. So f(x) + s(x) · (quantiles of the scores) covers as
promised, whatever the model and the noise are. Each family supplies the residuals: by closed forms of leave-one-out, or
by held-out rows.

Intervals cover on average over new rows. The quantiles of the scores of one group, the rows of one value of a column,
cover within that group (Mondrian conformal prediction; Vovk, Gammerman and Shafer 2005).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mercer.base.noise_scale import FOLDS, fit_local_scale
from mercer.data.row_groups import RowGroups
from mercer.engine import Sample, make_plan
from mercer.parts import as_float, require
from mercer.preprocessing.columns import TableMap, TargetMean
from mercer.preprocessing.inputs import InputMap, RealTargets
from mercer.preprocessing.read import TableData, read_new

#: Calibration rows in a group on average, at least: the coverage of 20 rows deviates by 0.07 from 0.9.
ROWS_PER_GROUP = 20
#: Most values of a column, since their codes are bytes; most coordinates of a table.
MOST_VALUES, WIDE = 255, 500
#: Number of sorted scores that a model stores: at either end, where they are far apart, and evenly in between. This
#: keeps models small and loses nothing, since neighbours in between are close.
TAIL, BETWEEN = 25, 150
#: Rounding of quantile levels.
ROUNDING = 1e-12


@dataclass(frozen=True)
class CalibrationGroups:
    """Scores of the calibration rows (n × p), and the group of each row in each column of few values (n × c)."""

    scores: np.ndarray
    weight: np.ndarray
    columns: np.ndarray  # their places in the user's table, c
    codes: np.ndarray  # the place of each row's value in `values`
    values: tuple[np.ndarray, ...]  # of each column, groups × coordinates
    share: float = 1.0  # of independent rows among all

    @classmethod
    def of(cls, table: np.ndarray, codes: TableMap | None, scores: np.ndarray, weight: np.ndarray) -> Self | None:
        """The groups of rows with these coordinates in the table (n × D); None where no column has few values."""
        if table.shape[1] > WIDE:
            return None
        most = min(len(table) // ROWS_PER_GROUP, MOST_VALUES)
        found = {j: np.unique(at, axis=0, return_inverse=True) for j, at in _columns(table, codes).items()}
        found = {j: pair for j, pair in found.items() if 1 < len(pair[0]) <= most}
        if not found:
            return None
        places = np.stack([place.reshape(-1) for _, place in found.values()], 1).astype(np.uint8)
        return cls(scores, weight, np.array(list(found)), places, tuple(values for values, _ in found.values()))

    def rows_of(self, column: int, group: int) -> np.ndarray:
        """Mask of the calibration rows of a group."""
        return self.codes[:, self.columns.tolist().index(column)] == group

    def group_of(self, column: int, table: np.ndarray, codes: TableMap | None) -> np.ndarray:
        """The group of rows with these coordinates in the table; −1 where no calibration row has their value."""
        values = self.values[self.columns.tolist().index(column)]
        at = _columns(table, codes)[column]
        places = {value.tobytes(): place for place, value in enumerate(values)}
        return np.array([places.get(row.tobytes(), -1) for row in at])


def column_place(groups: Any, names: list[str], known: CalibrationGroups | None) -> int:
    """The place of the column that `groups` names; it must have few values."""
    usable = [] if known is None else known.columns.tolist()
    wanted = f"a column with at least {ROWS_PER_GROUP} held-out rows per value"
    listed = f"{wanted}: {', '.join(names[j] for j in usable)}" if usable else f"None, since no column is {wanted}"
    by_place = isinstance(groups, int | np.integer) and not isinstance(groups, bool)
    by_name = isinstance(groups, str) and groups in names
    place = int(groups) if by_place else names.index(groups) if by_name else -1
    seen = groups if by_place or isinstance(groups, str) else f"values of type {type(groups).__name__}"
    require(place in usable, "groups", listed, seen)
    return place


def _columns(table: np.ndarray, codes: TableMap | None) -> dict[int, np.ndarray]:
    """The coordinates of each column, in float32 as files hold them, without target means, which are cross-fitted."""
    with np.errstate(over="ignore"):  # numbers beyond float32 are one group
        table = np.ascontiguousarray(table, dtype=np.float32) + np.float32(0)  # -0.0 is 0.0
    if codes is None:
        return {j: np.ascontiguousarray(table[:, [j]]) for j in range(table.shape[1])}
    exact = np.repeat([not isinstance(code, TargetMean) for code in codes.codes], [code.width for code in codes.codes])
    column = codes.layout.column
    found = {j: np.flatnonzero((column == j) & exact) for j in range(codes.n_columns)}
    return {j: np.ascontiguousarray(table[:, places]) for j, places in found.items() if len(places)}


@dataclass(frozen=True)
class CalibrationRows:
    """Calibration rows as the kernel sees them (n × d), and their coordinates in the table (n × D).

    `row_groups` are those of these rows, `codes` those of the table's columns.
    """

    rows: np.ndarray
    table: np.ndarray
    row_groups: RowGroups | None = None
    codes: TableMap | None = None

    @classmethod
    def of(cls, rows: Tensor, data: TableData, index: Any) -> CalibrationRows:
        """The rows of these indices of a table."""
        index = torch.as_tensor(index).cpu()
        table = data.rows.fetch(index).double().cpu().numpy()
        row_groups = None if data.row_groups is None else data.row_groups.take(index.numpy())
        return cls(rows.double().cpu().numpy(), table, row_groups, data.table)


@dataclass(frozen=True)
class Intervals:
    """Sorted scores of each output (n × p), and the share of new rows expected below each score.

    >>> Intervals.of(np.array([[3.0], [1.0], [2.0]]), np.ones(3)).quantiles(np.array([0.25, 0.5, 0.625])).tolist()
    [[1.0, 2.0, 2.5]]
    """

    scores: np.ndarray
    below: np.ndarray
    n_rows: int  # of the scores, before they were thinned out; independent ones
    local: Any = None  # a `LocalScale` for new rows, beside the model's own scale
    groups: CalibrationGroups | None = None  # all scores by columns of few values, where there are any

    @classmethod
    def fitted(
        cls,
        residuals: np.ndarray,
        scale: np.ndarray | float,
        values: np.ndarray,
        weight: np.ndarray,
        calibration: CalibrationRows,
    ) -> Intervals:
        """From residuals and the model's own scale, both n × p; a local scale is added where it pays."""
        scores = residuals / np.maximum(scale, np.finfo(float).tiny)
        row_groups = calibration.row_groups
        folds = None if row_groups is None else row_groups.folds(FOLDS)
        local, further = fit_local_scale(calibration.rows, values, scores, weight, calibration.table, folds)
        scores = scores / further
        found = cls.of(scores, weight, local, row_groups)
        groups = CalibrationGroups.of(calibration.table, calibration.codes, scores, weight)
        share = found.n_rows / max(int((weight > 0).sum()), 1)
        return replace(found, groups=None if groups is None else replace(groups, share=share))

    @classmethod
    def calibrated(
        cls, part: Sample, index: Any, data: TableData, values: np.ndarray, scale: np.ndarray | float, kept: np.ndarray
    ) -> Intervals:
        """Calibrate on predictions at rows `part` of a sample, which have the numbers `index` in the table.

        `kept` (n × 1) is 1 − leverage, by which residuals are divided; it is 1 for rows that were held out.
        """
        Y, weight = (column.double().cpu().numpy() for column in (part.Y, part.weight))
        rows = CalibrationRows.of(part.rows.take(np.arange(part.n_rows)), data, index)
        return cls.fitted((Y - values) / kept, scale, values, weight, rows)

    @classmethod
    def of(
        cls, scores: np.ndarray, weight: np.ndarray, local: Any = None, row_groups: RowGroups | None = None
    ) -> Intervals:
        """From scores of weighted rows; a weight of two equals the row twice.

        Of n rows of equal weight, the i-th smallest score has exactly i/(n + 1) of the new scores below it. Rows of a
        group have similar scores, so they count as fewer rows (`RowGroups.independent_rows`).
        """
        alive = weight > 0
        scores, weight = scores[alive], weight[alive]
        independent = len(scores) if row_groups is None else row_groups.take(alive).independent_rows(scores)
        return cls._of(scores, weight, max(round(independent), 1), local)

    @classmethod
    def _of(cls, scores: np.ndarray, weight: np.ndarray, n: int, local: Any) -> Intervals:
        """From scores of rows of positive weight that count as `n` rows."""
        order = scores.argsort(0)
        w = (weight / weight.mean() * (n / len(scores)))[order]
        below = (w.cumsum(0) - 0.5 * w + 0.5) / (n + 1)
        stored = _stored_scores(len(w))
        return cls(np.take_along_axis(scores, order, 0)[stored], below[stored], n, local)

    def within(self, column: int, group: int) -> Intervals:
        """The intervals of one group, by the scores of its calibration rows; those of all rows where it has none."""
        assert self.groups is not None
        rows = self.groups.rows_of(column, group) & (self.groups.weight > 0)
        if not rows.any():
            return self
        n = max(round(self.groups.share * int(rows.sum())), 1)
        return self._of(self.groups.scores[rows], self.groups.weight[rows], n, self.local)

    def widened(self, factor: float) -> Intervals:
        """The intervals of residuals that are larger by a factor."""
        groups = None if self.groups is None else replace(self.groups, scores=factor * self.groups.scores)
        return replace(self, scores=factor * self.scores, groups=groups)

    def quantiles(self, q: np.ndarray) -> np.ndarray:
        """Quantiles of new scores for each output, p × q; infinite where there are too few rows.

        Quantiles from 1/(n + 1) to n/(n + 1) follow from n scores. Beyond them, absolute scores serve for both tails:
        a new one is below the largest of n with probability n/(n + 1). So [q, 1 − q] covers 1 − 2q of new scores as
        long as that is at most n/(n + 1), and nothing is known beyond it.

        >>> few = Intervals.of(np.array([[-1.0], [2.0]]), np.ones(2))
        >>> few.quantiles(np.array([0.1, 0.2, 0.5, 0.8])).round(6).tolist()
        [[-inf, -1.8, 0.5, 2.0]]
        """
        return np.stack([self._quantiles(q, k) for k in range(self.scores.shape[1])])

    def upper(self, coverage: float) -> np.ndarray:
        """The bound that holds a new score with probability `coverage` at least, for each output; p numbers.

        It is the ⌈(n + 1) · coverage⌉-th smallest of n scores, or the next larger one that is stored; infinite where
        there are too few rows.

        >>> Intervals.of(np.array([[3.0], [1.0], [2.0]]), np.ones(3)).upper(0.6)
        array([3.])
        """
        known = self.below >= coverage - ROUNDING
        scores = np.concatenate([self.scores, np.full((1, self.scores.shape[1]), np.inf)])
        return np.array([scores[np.append(column, True).argmax(), k] for k, column in enumerate(known.T)])

    def _quantiles(self, q: np.ndarray, k: int) -> np.ndarray:
        below, scores, n = self.below[:, k], self.scores[:, k], self.n_rows
        found = np.interp(q, below, scores)
        inside = 1 - 2 * np.minimum(q, 1 - q)  # coverage of the interval between q and 1 − q
        sizes = np.sort(np.abs(scores))[-2:]
        known = np.arange(n - len(sizes) + 1, n + 1) / (n + 1)
        far = np.where(inside <= known[-1] + ROUNDING, np.interp(inside, known, sizes), np.inf)
        found = np.where(q < below[0] - ROUNDING, np.minimum(scores[0], -far), found)
        return np.where(q > below[-1] + ROUNDING, np.maximum(scores[-1], far), found)


def _stored_scores(n: int) -> np.ndarray:
    """Indices of the sorted scores to store: all of few; of many the tails and evenly spaced ones in between."""
    if n <= BETWEEN + 2 * TAIL:
        return np.arange(n)
    return np.unique(
        np.concatenate([np.arange(TAIL), np.linspace(0, n - 1, BETWEEN).astype(int), n - 1 - np.arange(TAIL)])
    )


class IntervalRegressor(RegressorMixin):
    """A regressor with prediction intervals.

    Its `_location_and_scale(X)` returns predictions of the coded targets at rows `X` and their scale, both n × p.

    Attributes
    ----------
    intervals_ : Intervals
        Quantiles of scaled residuals of at most 2000 rows that the model was not fitted to.
    """

    intervals_: Intervals
    targets_: RealTargets
    inputs_: InputMap
    device: Any
    memory_limit: Any
    columns_: Any
    _location_and_scale: Callable[[Any], tuple[np.ndarray, np.ndarray]]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def predict_interval(self, X: Any, coverage: float = 0.9, groups: str | int | None = None) -> np.ndarray:
        """Lower and upper ends of intervals that hold new targets with probability `coverage`: n × 2, or n × p × 2.

        Both tails have equal probability. Coverage holds on average over new rows like those of `fit`, for each output
        by itself; intervals are wider where residuals are larger. Nothing is promised for rows far from those of `fit`:
        there the intervals of a `SparseGPRegressor` grow, those of other models hardly. With n calibration rows both
        tails are known up to a coverage of (n − 1)/(n + 1). Intervals are symmetric up to n/(n + 1), by the size of
        residuals, and infinite beyond that: 90 % takes 9 calibration rows.

        `groups` is a column of `X` with few values, by name or position. Coverage then holds within each of its groups,
        by the quantiles of the calibration rows of that group. Groups with too few of them have the intervals of all
        rows, and a warning says so.

        Examples
        --------
        >>> from mercer import KernelBoostingRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = np.column_stack([rng.uniform(-2, 2, 400), rng.integers(0, 2, 400)])
        >>> y = X[:, 0] + np.where(X[:, 1] == 1, 1.0, 0.1) * rng.normal(size=400)
        >>> model = KernelBoostingRegressor(kernel="gaussian", random_state=0).fit(X, y)
        >>> low, high = model.predict_interval([[0.0, 0.0], [0.0, 1.0]], coverage=0.9, groups=1).T
        >>> bool((high - low)[1] > 4 * (high - low)[0])
        True
        """
        require(0 < as_float(coverage) < 1, "coverage", "a number above 0 and below 1", coverage)
        return self.predict_quantiles(X, [(1 - coverage) / 2, (1 + coverage) / 2], groups)

    def predict_quantiles(self, X: Any, q: Any, groups: str | int | None = None) -> np.ndarray:
        """Quantiles of new targets, which never cross; the last axis runs over `q`, unless `q` is one number.

        They are the model's prediction plus quantiles of its residuals, scaled by the local size of residuals. Those of
        a column `groups` hold within its groups (see `predict_interval`).
        """
        check_is_fitted(self)
        try:
            levels = np.asarray(q, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            levels = np.array(np.nan)
        valid = levels.ndim <= 1 and levels.size > 0 and bool(((levels > 0) & (levels < 1)).all())
        require(valid, "q", "a number above 0 and below 1, or several", q)
        column = None if groups is None else column_place(groups, self._column_names(), self.intervals_.groups)
        values, scale = self._values_and_scale(X)
        quantiles = self._score_quantiles(X, np.atleast_1d(levels), column)
        offsets = (np.where(np.isinf(score), score, scale * score) for score in np.moveaxis(quantiles, -1, 0))
        decoded = [self.targets_.decode_shifted(values, offset) for offset in offsets]
        return decoded[0] if levels.ndim == 0 else np.stack(decoded, -1)

    def _column_names(self) -> list[str]:
        return [column["name"] for column in self.columns_]

    def _score_quantiles(self, X: Any, levels: np.ndarray, column: int | None) -> np.ndarray:
        """Quantiles of the scores of all rows, 1 × p × q, or of the group of each row, n × p × q."""
        everywhere = self.intervals_.quantiles(levels)
        if column is None:
            return everywhere[None]
        assert self.intervals_.groups is not None
        source = read_new(self, X)
        rows = source.fetch(torch.arange(source.n_rows)).double().cpu().numpy()
        group = self.intervals_.groups.group_of(column, rows, getattr(self, "table_", None))
        known = {g: self.intervals_.within(column, g).quantiles(levels) for g in np.unique(group).tolist() if g >= 0}
        known = {g: found for g, found in known.items() if np.isfinite(found).all()}
        alone = np.array([g not in known for g in group.tolist()])
        if alone.any():
            few, name = len(np.unique(group[alone])), self._column_names()[column]
            warnings.warn(
                f"{few} groups of column {name!r} have too few held-out rows for this coverage; "
                f"the intervals of their {int(alone.sum())} rows are those of all groups.",
                stacklevel=4,
            )
        return np.stack([known.get(g, everywhere) for g in group.tolist()])

    def _values_and_scale(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Predictions of the coded targets and the scale of their scores, both n × p."""
        values, scale = self._location_and_scale(X)
        if self.intervals_.local is None:
            return values, scale
        source = read_new(self, X)
        plan = make_plan(source.n_rows, "cpu", "float64", self.memory_limit)
        return values, scale * self.intervals_.local.at_rows(source, self.inputs_, values, plan)
