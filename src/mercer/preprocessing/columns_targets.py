"""Mean targets of levels without looking at a row's own target: rows of `fit` get the means of the other folds.

A level's mean is drawn towards that of all rows as if so many more rows had it as the ratio of the variances within
and between levels says (empirical Bayes). A row's fold comes from a hash of its own values; equal rows are dealt out to
the folds one after the other, by their targets. So the order in which rows are given changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mercer.data.hashes import START, hash_text, mix_hash
from mercer.data.raw import LEVELLED, RawColumn
from mercer.preprocessing.columns import TableMap
from mercer.preprocessing.columns_codes import TargetMean

FOLDS = 5
#: The least and the most rows by which a level's mean is drawn towards that of all rows.
LEAST_PRIOR, MOST_PRIOR = 1.0, 1000.0
#: Classes whose shares are averaged at most, the most frequent ones.
MOST_CLASSES = 10


@dataclass(frozen=True)
class CrossFit:
    """What is needed to average targets over levels again, for other weights or fewer rows.

    `levels` has the place of each row's level (n × number of codes), `at` each code's place in the table.
    """

    at: tuple[int, ...]
    levels: np.ndarray
    targets: np.ndarray
    folds: np.ndarray

    @classmethod
    def of(cls, table: TableMap, columns: Sequence[RawColumn], targets: np.ndarray | None) -> CrossFit | None:
        at = tuple(place for place, code in enumerate(table.codes) if isinstance(code, TargetMean))
        if not at or targets is None:
            return None
        found = []
        for code in (table.codes[place] for place in at):
            assert isinstance(code, TargetMean)
            found.append(code.place(columns[code.column]))
        return cls(at, np.column_stack(found), targets, row_folds(columns, targets))

    def take(self, index: np.ndarray) -> CrossFit:
        """Some of the rows alone."""
        return replace(self, levels=self.levels[index], targets=self.targets[index], folds=self.folds[index])

    def fitted(self, table: TableMap, weight: np.ndarray) -> TableMap:
        """The table with means over all rows of positive weight."""
        codes = list(table.codes)
        for k, place in enumerate(self.at):
            code = codes[place]
            assert isinstance(code, TargetMean)
            sums = self._sums(k, len(code.means), weight)
            whole = sums.sum(0)
            prior = self._prior(weight)[-1]
            codes[place] = replace(code, means=_drawn(whole, prior, self._pull(k, whole, weight)), prior=prior)
        return replace(table, codes=tuple(codes))

    def patched(self, table: TableMap, X: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Coordinates `X` of these rows with every mean in a row of positive weight made of other folds' rows."""
        X = X.copy()
        ends = np.cumsum([code.width for code in table.codes])
        priors, fold = self._prior(weight), np.where(weight > 0, self.folds, FOLDS)
        for k, place in enumerate(self.at):
            code = table.codes[place]
            assert isinstance(code, TargetMean)
            n, sums = len(code.means), self._sums(k, len(code.means), weight)
            whole = sums.sum(0)
            pull = self._pull(k, whole, weight)
            others = [_drawn(whole - mine, prior, pull) for mine, prior in zip(sums, priors, strict=False)]
            known = np.stack(
                [np.vstack([one, prior]) for one, prior in zip([*others, code.means], priors, strict=True)]
            )
            level = np.where(self.levels[:, k] < 0, n, self.levels[:, k])
            X[:, ends[place] - code.width : ends[place]] = known[fold, level]
        return X

    def _sums(self, k: int, n: int, weight: np.ndarray) -> np.ndarray:
        """Of each fold and level, the weighted sums of the targets and, last, of the weights: folds × n × (p + 1)."""
        cell = self.folds * (n + 1) + np.where(self.levels[:, k] < 0, n, self.levels[:, k])
        size = FOLDS * (n + 1)
        each = [np.bincount(cell, weights=weight * t, minlength=size) for t in self.targets.T]
        each.append(np.bincount(cell, weights=weight, minlength=size))
        return np.column_stack(each).reshape(FOLDS, n + 1, -1)[:, :n]

    def _prior(self, weight: np.ndarray) -> np.ndarray:
        """The mean of the rows outside each fold, and last that of all rows; (folds + 1) × p."""
        each = [
            np.bincount(self.folds, weights=weight * t, minlength=FOLDS)
            for t in (*self.targets.T, np.ones(len(weight)))
        ]
        sums = np.column_stack(each)
        whole = sums.sum(0)
        rest = np.vstack([whole - sums, whole])
        rest = np.where(rest[:, -1:] > 1e-12 * whole[-1], rest, whole)  # all rows in one fold
        return rest[:, :-1] / rest[:, -1:]

    def _pull(self, k: int, sums: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Rows by which a level's mean is drawn to that of all: variance within levels over that between them, p."""
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


def _drawn(sums: np.ndarray, prior: np.ndarray, pull: np.ndarray) -> np.ndarray:
    """TargetMean of levels from their sums and counts, drawn towards the prior."""
    return (sums[:, :-1] + pull * prior) / (sums[:, -1:] + pull)


def averaged_targets(y: np.ndarray, *, numeric: bool) -> np.ndarray:
    """What levels are averaged over (n × p): numbers as they are, of classes whether a row is of each.

    One column tells two classes apart; of very many the most frequent have to do.
    """
    if numeric:
        Y = y.reshape(len(y), -1).astype(np.float64)
        size = np.abs(Y).max(0)
        return Y / np.where(size > 0, size, 1.0)  # squares of these are finite
    classes, counts = np.unique(y, return_counts=True)
    chosen = classes[1:] if len(classes) == 2 else classes[np.sort(np.argsort(-counts, kind="stable")[:MOST_CLASSES])]
    return (y[:, None] == chosen).astype(np.float64)


def row_folds(columns: Sequence[RawColumn], targets: np.ndarray) -> np.ndarray:
    """A fold for each row, by a hash of its values; equal rows take turns, in the order of their targets."""
    mixed = row_hashes(columns)
    order = np.lexsort((*targets.T, mixed))
    hashes = mixed[order]
    first = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1]))
    turn = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
    folds = np.empty(len(order), dtype=np.int64)
    folds[order] = ((hashes >> np.uint64(11)).astype(np.int64) + turn) % FOLDS
    return folds


def row_hashes(columns: Sequence[RawColumn]) -> np.ndarray:
    """A hash of each row of columns as they came."""
    mixed = np.full(len(columns[0].values), START)
    for column in columns:
        values = column.values
        if column.kind in LEVELLED:
            names = np.array([hash_text(level) for level in column.levels] + [0], dtype=np.uint64)
            bits = names[values]
        else:
            bits = (values.astype(np.float64) + 0.0).view(np.uint64)
            bits = np.where(column.missing, np.uint64(1), bits)
        mixed = mix_hash(mixed ^ bits)
    return mixed
