"""Large tables of few different rows: rows of equal inputs as a few rows of larger weight.

Under squared loss rows of equal inputs are one row of their total weight and mean target, exactly, whatever the model
is: :math:`\\sum_i w_i (f - y_i)^2 = W (f - \\bar y)^2 + c`. But rows are also left out, to judge a kernel and its
penalty, and without all rows of an input nothing is known there. So equal rows are dealt at random to several, each of
the weight and the mean target of its own: one that is left out leaves the others behind. Of other losses and of
classes only rows with equal targets are merged, which is exact for any of them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mercer.data import ArrayRows
from mercer.data.duplicates import hashed
from mercer.preprocessing.read import TableData, merged

#: Rows from which equal ones are looked for, and the share of them to which they must come down.
FEWEST_ROWS, SHARE = 5000, 0.5
#: Rows that are looked at first, and the share of them that may differ: of 25 000 inputs nine tenths do.
LOOKED_AT, DIFFERENT = 5000, 0.9
#: Rows that are enough for equal ones to be dealt to, and the least that stand for each input, where it has as many.
ENOUGH, LEAST = 4000, 4


def merge_duplicate_inputs(
    data: TableData, Y: np.ndarray, rng: np.random.Generator, *, by_targets: bool
) -> tuple[TableData, np.ndarray, float]:
    """The table with equal rows merged, and the rows that the noise of one of them is that of.

    Of many rows merged `by_targets` the noise stays that of single rows, and weights are to have the mean of theirs.
    """
    fewer = fewer_rows(data, Y, rng, by_targets=by_targets)
    if fewer is None:
        return *merged(data, Y, any_columns=True), 1.0
    return *fewer, data.n_alive / fewer[0].n_alive if by_targets else 1.0


def fewer_rows(
    data: TableData, Y: np.ndarray, rng: np.random.Generator, *, by_targets: bool
) -> tuple[TableData, np.ndarray] | None:
    """The same table of fewer rows, with coded targets `Y` (n × p) averaged; None where too few rows are equal.

    `data.y` are those of one row among those that were merged, as noise is that of single rows. Where rows are told
    apart `by_targets` too, nothing is averaged.

    >>> x, rng = np.arange(20_000.0)[:, None] % 50, np.random.default_rng(0)
    >>> data = TableData(ArrayRows(x), x[:, 0], np.ones(len(x)))
    >>> fewer, Y = fewer_rows(data, np.sin(x), rng, by_targets=False)
    >>> len(Y), float(fewer.weight.sum()), bool(np.allclose(Y, np.sin(fewer.rows.X)))
    (4000, 20000.0, True)
    """
    alive = data.alive
    if not isinstance(data.rows, ArrayRows) or data.shard.divided or len(alive) < FEWEST_ROWS:
        return None
    keys = [*data.rows.X.T, *(Y.T if by_targets else ()), *(() if data.means is None else [data.means.folds])]
    some = alive[np.linspace(0, len(alive) - 1, LOOKED_AT).astype(int)]
    if len(np.unique(hashed([key[some] for key in keys], len(some)))) > DIFFERENT * len(some):
        return None
    _, own, counts = np.unique(
        hashed([key[alive] for key in keys], len(alive)), return_inverse=True, return_counts=True
    )
    parts = _parts(counts, LEAST if data.means is None else 1)  # an input is in every fold of the means of targets
    total = int(parts.sum())
    if total > SHARE * len(alive):
        return None
    order = rng.permutation(len(alive))
    order = order[np.argsort(own[order], kind="stable")]  # those of an input one after the other, in random order
    turn = np.arange(len(order)) - np.repeat(counts.cumsum() - counts, counts)
    ends = parts.cumsum()
    to = np.empty(len(order), dtype=np.int64)
    to[order] = np.repeat(ends - parts, counts) + turn % np.repeat(parts, counts)
    first = np.empty(total, dtype=np.int64)
    first[to[order]] = alive[order]  # any of them: the first of a sorted table would have the least target
    weight = np.bincount(to, data.weight[alive], total)

    def averaged(values: np.ndarray) -> np.ndarray:
        sums = [np.bincount(to, data.weight[alive] * column[alive], total) for column in values.T]
        return np.column_stack(sums) / weight[:, None]

    fewer = data.rows_at(first, weight)
    if data.means is not None and fewer.means is not None:
        fewer = replace(fewer, means=replace(fewer.means, targets=averaged(data.means.targets)))
    return fewer, Y[first] if by_targets else averaged(Y)


def _parts(counts: np.ndarray, most: int) -> np.ndarray:
    """To how many rows those of each input are dealt: of about the same weight each, `most` if that is too many."""
    least, size = np.minimum(counts, most), 1
    while (parts := np.maximum(-(-counts // size), least)).sum() > ENOUGH and size < counts.max():
        size += max(size // 8, 1)
    return parts
