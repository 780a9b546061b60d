"""Sentinels: an extreme number that is repeated (−9999, 999) and stands for no number at all.

It is taken for missing where rows that were not fitted gain by it: with the sentinel as a number, all others look
alike to a kernel.
"""

from __future__ import annotations

import numpy as np

#: A sentinel comes at least so often, in rows and as a share, lies further from the other numbers than they lie apart,
#: and stands beside at least so many different ones.
REPEATS, SHARE, OTHERS = 5, 0.005, 10
#: Rows by which the gain is judged, half of them fitted; the share of the error that it must be.
ROWS, GAIN = 600, 0.02


def sentinel(values: np.ndarray, targets: np.ndarray | None, weight: np.ndarray) -> float:
    """The number that stands for a missing one in this column; NaN where there is none.

    >>> x = np.random.default_rng(0).uniform(0, 10, 500)
    >>> y, weight = np.sin(x)[:, None], np.ones(500)
    >>> sentinel(np.where(np.arange(500) % 9 == 0, -999.0, x), y, weight), sentinel(x, y, weight)
    (-999.0, nan)
    """
    known = ~np.isnan(values)
    distinct, place = np.unique(values[known], return_inverse=True)
    if targets is None or len(distinct) <= OTHERS:
        return np.nan
    counts = np.bincount(place.reshape(-1), weights=weight[known])
    low, high = distinct[1:], distinct[:-1]
    for value, count, others, gap in (
        (distinct[0], counts[0], low, low[0] - distinct[0]),
        (distinct[-1], counts[-1], high, distinct[-1] - high[-1]),
    ):
        often = count >= max(REPEATS, SHARE * weight.sum())
        if often and gap > others[-1] - others[0] and _pays(values[known], targets[known], weight[known], float(value)):
            return float(value)
    return np.nan


def _pays(x: np.ndarray, targets: np.ndarray, weight: np.ndarray, value: float) -> bool:
    some = np.random.default_rng(0).permutation(len(x))[:ROWS]
    x, T, w = x[some], targets[some], weight[some]
    gone = x == value
    filled = np.where(gone, np.median(x[~gone]) if not gone.all() else 0.0, x)
    scales = [np.column_stack([x / max(x.std(), 1e-300)]), np.column_stack([filled / max(filled.std(), 1e-300), gone])]
    plain, split = (_held_out(Z, T, w) for Z in scales)
    return split < (1 - GAIN) * plain


def _held_out(Z: np.ndarray, T: np.ndarray, w: np.ndarray) -> float:
    """Squared error of the second half of the rows, from kernel ridge on the first."""
    half = len(Z) // 2
    distance = ((Z[:, None] - Z[None, :half]) ** 2).sum(2)
    K = np.exp(-0.5 * distance)
    mean = np.average(T[:half], axis=0, weights=w[:half])
    f = K[half:] @ np.linalg.solve(K[:half] + np.diag(0.3 / w[:half]), T[:half] - mean) + mean
    spread = np.maximum(T.var(0), 1e-300)
    return float((np.average((f - T[half:]) ** 2, axis=0, weights=w[half:]) / spread).mean())
