"""The cross-validation splits that OpenML hands out, made from the table alone.

OpenML lets Weka shuffle and stratify with Java's random numbers; TabArena's curation shuffles the rows with pandas
before it uploads a table. Both are deterministic, so anybody can test on the published splits without a network.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

#: Java's linear congruential generator (java.util.Random).
MULTIPLIER, INCREMENT, MASK = 0x5DEECE66D, 0xB, (1 << 48) - 1
#: The random state of TabArena's shuffles.
SHUFFLE_SEED = 42


class JavaRandom:
    """`java.util.Random`, as far as `nextInt(n)` goes.

    >>> generator = JavaRandom(0)
    >>> [generator.below(10) for _ in range(5)]
    [0, 8, 9, 7, 5]
    """

    def __init__(self, seed: int) -> None:
        self.state = (seed ^ MULTIPLIER) & MASK

    def _next31(self) -> int:
        self.state = (self.state * MULTIPLIER + INCREMENT) & MASK
        return self.state >> 17

    def below(self, n: int) -> int:
        """A number of 0, …, n − 1."""
        if n & -n == n:
            return (n * self._next31()) >> 31
        while True:
            bits = self._next31()
            value = bits % n
            if bits - value + n - 1 < 1 << 31:
                return value


def shuffled(frame: pd.DataFrame, times: int) -> pd.DataFrame:
    """The rows in the order in which the table was uploaded."""
    for _ in range(times):
        frame = frame.sample(frac=1, random_state=SHUFFLE_SEED).reset_index(drop=True)
    return frame


def openml_splits(
    n_rows: int, classes: np.ndarray | None, repeats: int, folds: int = 3
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Training and test rows of each repeat and fold; `classes` are those of the rows where folds are stratified."""
    generator, order = JavaRandom(0), np.arange(n_rows)
    for _ in range(repeats):
        for last in range(n_rows - 1, 0, -1):
            other = generator.below(last + 1)
            order[[last, other]] = order[[other, last]]
        if classes is not None:
            order = _stratified(order, classes, folds)
        for fold in range(folds):
            size, rest = divmod(n_rows, folds)
            start = fold * size + min(fold, rest)
            test = order[start : start + size + (fold < rest)]
            yield np.setdiff1d(np.arange(n_rows), test), test.copy()


def _stratified(order: np.ndarray, classes: np.ndarray, folds: int) -> np.ndarray:
    """Rows of a class brought together by swaps, as Weka does it, then dealt to the folds in turn."""
    rows = order.tolist()
    start = 1
    while start < len(rows):
        own = classes[rows[start - 1]]
        for place in range(start, len(rows)):
            if classes[rows[place]] == own:
                rows[start], rows[place] = rows[place], rows[start]
                start += 1
        start += 1
    return np.array([rows[place] for first in range(folds) for place in range(first, len(rows), folds)])
