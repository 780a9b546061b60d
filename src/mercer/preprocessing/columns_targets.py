"""Cross-fitted target means of levels: a row of `fit` gets the mean of its level in the other folds.

The mean of a level is shrunk towards that of all rows (empirical Bayes): the number of prior rows is the ratio of the
variance within levels to that between levels. The fold of a row is a hash of its values, and duplicate rows take turns
in the order of their targets. So the order of rows changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mercer.data.hashes import START, hash_text, mix_hash
from mercer.data.raw import CATEGORICAL, RawColumn
from mercer.data.row_groups import RowGroups
from mercer.preprocessing.columns import TableMap, TargetMean
from mercer.preprocessing.text import Text, TextRegression

FOLDS = 5
#: Fewest and most prior rows, by whose weight the mean of a level is shrunk.
LEAST_PRIOR, MOST_PRIOR = 1.0, 1000.0
#: Most classes whose shares are target means; the most frequent classes are taken.
MOST_CLASSES = 10


@dataclass(frozen=True)
class CrossFit:
    """Levels, targets and folds of the rows of `fit`, from which target means follow for any weights or fewer rows.

    `levels` has the integer code of each row's level (n × number of codes), `at` the index of each code in the table.
    `texts` has the vectors of texts (n × terms) by the index of their code: their regressions are cross-fitted too.
    """

    at: tuple[int, ...]
    levels: np.ndarray
    targets: np.ndarray
    folds: np.ndarray
    texts: dict[int, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        table: TableMap,
        columns: Sequence[RawColumn],
        targets: np.ndarray | None,
        row_groups: RowGroups | None = None,
    ) -> CrossFit | None:
        """The target means of a table; None where it has none."""
        codes = {index: code for index, code in enumerate(table.codes) if isinstance(code, TargetMean)}
        texts = {k: code.rows(columns[code.column]) for k, code in enumerate(table.codes) if isinstance(code, Text)}
        if targets is None or not (codes or texts):
            return None
        each = [code.level_index(columns[code.column]) for code in codes.values()]
        levels = np.column_stack(each) if each else np.empty((len(targets), 0), dtype=np.int64)
        folds = row_folds(columns, targets) if row_groups is None else row_groups.folds(FOLDS)
        return cls(tuple(codes), levels, targets, folds, texts)

    def take(self, index: np.ndarray) -> CrossFit:
        """The rows of these indices alone."""
        texts = {k: rows[index] for k, rows in self.texts.items()}
        return CrossFit(self.at, self.levels[index], self.targets[index], self.folds[index], texts)

    def fitted(self, table: TableMap, weight: np.ndarray) -> TableMap:
        """The table with target means of all rows of positive weight."""
        codes, priors = list(table.codes), self._prior(weight)
        for k, index in enumerate(self.at):
            code = codes[index]
            assert isinstance(code, TargetMean)
            codes[index] = replace(code, means=self._means(k, len(code.means), weight, priors)[-1], prior=priors[-1])
        for index, rows in self.texts.items():
            code, regression = codes[index], TextRegression(rows, self.targets, self.folds)
            assert isinstance(code, Text)
            penalty = regression.best_penalty(weight)
            slopes, intercept = regression.fit(weight, penalty)
            codes[index] = replace(code, slopes=slopes, intercept=intercept, penalty=penalty)
        return replace(table, codes=tuple(codes))

    def patched(self, table: TableMap, X: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Coordinates `X` of these rows, with target means of the other folds in rows of positive weight."""
        X = X.copy()
        ends = np.cumsum([code.width for code in table.codes])
        priors = self._prior(weight)
        row_fold = np.where(weight > 0, self.folds, FOLDS)
        for k, index in enumerate(self.at):
            code = table.codes[index]
            assert isinstance(code, TargetMean)
            n = len(code.means)
            known = np.concatenate([self._means(k, n, weight, priors), priors[:, None]], axis=1)
            level = np.where(self.levels[:, k] < 0, n, self.levels[:, k])
            X[:, ends[index] - code.width : ends[index]] = known[row_fold, level]
        for index, rows in self.texts.items():
            code, regression = table.codes[index], TextRegression(rows, self.targets, self.folds)
            assert isinstance(code, Text)
            X[:, ends[index] - self.targets.shape[1] : ends[index]] = regression.out_of_fold(weight, code.penalty)
        return X

    def _means(self, k: int, n: int, weight: np.ndarray, priors: np.ndarray) -> np.ndarray:
        """Means of the n levels over the rows outside each fold, and last over all rows, shrunk towards the priors."""
        sums = self._sums(self.levels[:, k], n, weight)
        total = sums.sum(0)
        prior_rows = self._prior_rows(k, total, weight)
        parts = zip([*(total - sums), total], priors, strict=True)
        return np.stack([(part[:, :-1] + prior_rows * prior) / (part[:, -1:] + prior_rows) for part, prior in parts])

    def _sums(self, level: np.ndarray, n: int, weight: np.ndarray) -> np.ndarray:
        """Weighted sums of the targets and, last, of the weights, by fold and level: folds × n × (p + 1)."""
        cell = self.folds * (n + 1) + np.where(level < 0, n, level)
        size = FOLDS * (n + 1)
        each = [np.bincount(cell, weights=weight * t, minlength=size) for t in (*self.targets.T, np.ones(len(weight)))]
        return np.column_stack(each).reshape(FOLDS, n + 1, -1)[:, :n]

    def _prior(self, weight: np.ndarray) -> np.ndarray:
        """The mean target of the rows outside each fold, and last that of all rows; (folds + 1) × p."""
        sums = self._sums(np.zeros(len(weight), dtype=np.int64), 1, weight)[:, 0]
        total = sums.sum(0)
        rest = np.vstack([total - sums, total])
        rest = np.where(rest[:, -1:] > 1e-12 * total[-1], rest, total)  # all rows in one fold
        return rest[:, :-1] / rest[:, -1:]

    def _prior_rows(self, k: int, sums: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Prior rows of a level's mean: the variance within levels over that between them, p."""
        counts = sums[:, -1]
        total, seen = counts.sum(), counts > 0
        means = sums[seen, :-1] / counts[seen, None]
        known = self.levels[:, k] >= 0
        square = (weight[known, None] * self.targets[known] ** 2).sum(0)
        inside = np.maximum(square - (counts[seen, None] * means**2).sum(0), 0.0)
        n = int(seen.sum())
        within = inside / max(total - n, 1e-12) if total > n else inside
        around = (counts[seen, None] * (means - sums[:, :-1].sum(0) / total) ** 2).sum(0)
        spread = total - (counts**2).sum() / total
        between = (around - (n - 1) * within) / max(spread, 1e-12)
        ratio = within / np.maximum(between, 1e-12 * np.maximum(within, 1e-300))
        return np.clip(np.where(within > 0, ratio, LEAST_PRIOR), LEAST_PRIOR, MOST_PRIOR)


def averaged_targets(y: np.ndarray, *, classes: bool) -> np.ndarray:
    """The targets of target means (n × p): numbers, scaled to at most 1, or an indicator of each class.

    Two classes need one indicator; of very many classes only the most frequent get one.
    """
    if not classes:
        Y = y.reshape(len(y), -1).astype(np.float64)
        size = np.abs(Y).max(0)
        return Y / np.where(size > 0, size, 1.0)  # squares of these are finite
    labels, counts = np.unique(y, return_counts=True)
    chosen = labels[1:] if len(labels) == 2 else labels[np.sort(np.argsort(-counts, kind="stable")[:MOST_CLASSES])]
    return (y[:, None] == chosen).astype(np.float64)


def row_folds(columns: Sequence[RawColumn], targets: np.ndarray) -> np.ndarray:
    """The fold of each row by a hash of its values; duplicate rows take turns, in the order of their targets."""
    hashes = row_hashes(columns)
    order = np.lexsort((*targets.T, hashes))
    hashes = hashes[order]
    first = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1]))
    turn = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
    folds = np.empty(len(order), dtype=np.int64)
    folds[order] = ((hashes >> np.uint64(11)).astype(np.int64) + turn) % FOLDS
    return folds


def row_hashes(columns: Sequence[RawColumn]) -> np.ndarray:
    """A 64-bit hash of each row of raw columns."""
    hashes = np.full(len(columns[0].values), START)
    for column in columns:
        values = column.values
        if column.kind in CATEGORICAL:
            names = np.array([hash_text(level) for level in column.levels] + [0], dtype=np.uint64)
            bits = names[values]
        else:
            bits = (values.astype(np.float64) + 0.0).view(np.uint64)
            bits = np.where(column.missing, np.uint64(1), bits)
        hashes = mix_hash(hashes ^ bits)
    return hashes
