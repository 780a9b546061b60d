"""Rows that stay together: the one rule by which every split of a table respects groups or an order of time.

Rows of one patient, shop or sensor resemble each other, and so do rows of one week. A model that is compared or
calibrated on rows whose neighbours it has seen looks better than it is on a new patient or in the next week.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import heapify, heapreplace
from typing import NamedTuple

import numpy as np

#: Stretches of time whose values are compared to tell how many rows are independent.
STRETCHES = 10


class Split(NamedTuple):
    """Rows that a fit leaves out, and those of them that it predicts."""

    left_out: np.ndarray
    scored: np.ndarray


@dataclass(frozen=True)
class RowGroups:
    """The key of each row: the number of its group, or its time where rows are `ordered`.

    Rows of equal key are never on both sides of a split. Ordered rows are predicted by earlier rows alone, which lie at
    least `gap` before the first of them.

    >>> groups = RowGroups(np.array([0, 0, 1, 1, 2, 2]))
    >>> [split.scored.tolist() for split in groups.splits(3)]
    [[4, 5], [0, 1], [2, 3]]
    >>> time = RowGroups(np.arange(6), ordered=True, gap=1)
    >>> [(split.left_out.tolist(), split.scored.tolist()) for split in time.splits(2)]
    [([1, 2, 3, 4, 5], [2, 3]), ([3, 4, 5], [4, 5])]
    """

    key: np.ndarray
    ordered: bool = False
    gap: float = 0.0

    def take(self, index: np.ndarray) -> RowGroups:
        """The rows of these indices, in this order."""
        return replace(self, key=self.key[index])

    def appended(self, n: int) -> RowGroups:
        """The rows followed by `n` rows that the user holds out: a group of their own, or later than all others."""
        return replace(self, key=np.append(self.key, np.full(n, np.inf)))

    def independent_rows(self, values: np.ndarray) -> float:
        r"""The number of independent rows that tell as much about quantiles of `values` (n × p) as all rows.

        It is :math:`n / (1 + (\bar m - 1)\rho)` (Kish 1965), with groups of :math:`\bar m` rows and the intraclass
        correlation ρ of the ranks of values, by analysis of variance. Ordered rows are groups of `STRETCHES` stretches.
        """
        n = len(values)
        # stretches of equal times may be empty
        group = np.unique(self.folds(STRETCHES) if self.ordered else self.key, return_inverse=True)[1]
        counts = np.bincount(group)
        n_groups, size = len(counts), (counts**2).sum() / n
        if n_groups in (1, n):
            return n
        ranks = values.argsort(0).argsort(0).astype(np.float64)
        means = np.stack([np.bincount(group, column) for column in ranks.T], 1) / counts[:, None]
        within = ((ranks - means[group]) ** 2).sum(0) / (n - n_groups)
        between = (counts[:, None] * (means - ranks.mean(0)) ** 2).sum(0) / (n_groups - 1)
        variance = np.maximum(between - within, 0.0) * (n_groups - 1) / (n - size)
        rho = float((variance / np.maximum(variance + within, 1e-300)).max())
        return n / (1 + (size - 1) * rho)

    def beside(self, held_out: np.ndarray) -> np.ndarray:
        """Mask of the rows that a fit must leave out if rows of these keys are held out."""
        return self.key >= held_out.min() - self.gap if self.ordered else np.isin(self.key, held_out)

    def folds(self, n_folds: int, seed: int = 0) -> np.ndarray:
        """The fold of each row, 0 … n_folds − 1: random groups, or stretches of time, with about as many rows each."""
        _, place, counts = np.unique(self.key, return_inverse=True, return_counts=True)
        if len(counts) == 1:  # a sample of a table may see one group only
            return np.random.default_rng(seed).permutation(len(self.key)) % n_folds
        return self._fold_of_key(counts, min(n_folds, len(counts)), np.inf, seed)[place]

    def splits(self, n_folds: int, *, most: float = np.inf, seed: int = 0) -> list[Split]:
        """At most `n_folds` splits, each with rows to fit, that score at most about `most` rows together.

        Groups are scored once, by models of the other groups: all of them, or as many random ones as `most` allows.
        With ``n_folds=1`` half of them are scored. Time is cut into n_folds + 1 stretches, or the last rows into
        n_folds; each but the first is scored by models of the rows before it.
        """
        _, place, counts = np.unique(self.key, return_inverse=True, return_counts=True)
        if len(counts) == 1:
            fold = self.folds(max(n_folds, 2), seed)
            return [Split(rows, rows) for k in range(n_folds) if len(rows := np.flatnonzero(fold == k))]
        if not self.ordered:
            fold = self._fold_of_key(counts, min(max(n_folds, 1 + (most == np.inf)), len(counts)), most, seed)[place]
            return [Split(rows, rows) for k in range(n_folds) if len(rows := np.flatnonzero(fold == k))]
        fold = self._fold_of_key(counts, n_folds + 1, most, seed)[place]
        scored = [rows for k in range(1, n_folds + 1) if len(rows := np.flatnonzero(fold == k))]
        found = [Split(np.flatnonzero(self.beside(self.key[rows])), rows) for rows in scored]
        kept = [split for split in found if len(split.left_out) < len(self.key)]
        # a gap longer than all time before the last stretch is cut to the first stretch
        return kept or [Split(np.flatnonzero(self.key >= self.key[scored[-1]].min()), scored[-1])]

    def _fold_of_key(self, counts: np.ndarray, n_folds: int, most: float, seed: int) -> np.ndarray:
        """The fold of each key; groups beyond `most` rows have none (−1)."""
        n = counts.sum()
        if self.ordered:
            size = min(n / n_folds, most / max(n_folds - 1, 1))
            middle = counts.cumsum() - 0.5 * counts
            fold = np.maximum(n_folds - 1 - ((n - middle) / size).astype(int), 0)
            fold[0] = 0
            fold[-1] = n_folds - 1
            return fold
        order = np.random.default_rng(seed).permutation(len(counts))
        if most < n:
            order = _within(order, counts, most, n_folds)
        fold, order = np.full(len(counts), -1), order[np.argsort(-counts[order], kind="stable")]
        sizes = [(0, k) for k in range(n_folds)]
        heapify(sizes)
        for group in order:  # largest first, each to the smallest fold
            size, k = sizes[0]
            fold[group] = k
            heapreplace(sizes, (size + int(counts[group]), k))
        return fold


def _within(order: np.ndarray, counts: np.ndarray, most: float, n_folds: int) -> np.ndarray:
    """Groups of at most `most` rows together, taken in order; the smallest groups if these are fewer than folds."""
    total, chosen = 0, list[int]()
    for group in order[: len(order) - 1]:  # one group is always fitted
        if total + counts[group] <= most:
            total += counts[group]
            chosen.append(group)
    if len(chosen) >= n_folds:
        return np.array(chosen)
    return order[np.argsort(counts[order], kind="stable")][: min(n_folds, len(order) - 1)]
