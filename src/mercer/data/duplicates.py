"""Duplicate rows: which rows are copies of one row, so that no split may part them.

Rows of equal inputs and equal targets are copies (a bootstrap, oversampling, data entered twice) where equal inputs
practically always come with equal targets. Copies are merged into one row of their total weight, which is exact for
every loss. Discrete inputs recur by themselves, with other targets: such rows are observations of their own, although
some of them have equal targets, and stay single rows.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

#: Equal inputs come with equal targets where at most this share of pairs of rows with equal inputs differ.
DIFFERENT = 0.05
#: Targets that two rows share with no more than this chance recur by copying only, however often inputs recur.
RARE = 0.01
#: What an empty hash starts from.
START = np.uint64(0x9E3779B97F4A7C15)


def hashed(columns: Iterable[np.ndarray], n_rows: int) -> np.ndarray:
    """A 64-bit hash of each row of some columns of numbers; a million distinct rows collide with chance 3e-8.

    >>> hashed([np.array([0.0, -0.0, 1.0])], 3).tolist() == hashed([np.array([0, 0, 1])], 3).tolist()
    True
    """
    mixed = np.full(n_rows, START)
    for column in columns:
        mixed = mix_hash(mixed + START ^ (column.astype(np.float64) + 0.0).view(np.uint64))
    return mixed


def mix_hash(bits: np.ndarray) -> np.ndarray:
    """The mixing steps of splitmix64, a permutation of 64-bit words."""
    bits = _shift_and_multiply(bits, 30, 0xBF58476D1CE4E5B9)
    bits = _shift_and_multiply(bits, 27, 0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def _shift_and_multiply(bits: np.ndarray, shift: int, factor: int) -> np.ndarray:
    return (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)


def hashed_ranks(X: np.ndarray) -> np.ndarray:
    """A hash of each row by the ranks of its values.

    It depends neither on the order of rows and columns nor on the unit or origin of a column. Sorted by it, the same
    table in another order has its rows at the same indices, by which random numbers choose.

    >>> X = np.array([[3.0, 1.0], [2.0, 5.0]])
    >>> bool((hashed_ranks(X) == hashed_ranks(10 * X[:, ::-1])).all())
    True
    """
    total = np.zeros(len(X), dtype=np.uint64)
    for column in X.T:
        rank = np.unique(column, return_inverse=True)[1].astype(np.uint64) + np.uint64(1)
        bits = _shift_and_multiply(rank * START, 30, 0xBF58476D1CE4E5B9)
        total += bits ^ (bits >> np.uint64(27))
    return total


def hashed_targets(y: np.ndarray) -> np.ndarray:
    """A hash of each row's targets: numbers or labels, in one column or several."""
    columns = y.reshape(len(y), -1).T
    return hashed((np.unique(column, return_inverse=True)[1].reshape(-1) for column in columns), len(y))


def holds_copies(inputs: np.ndarray, targets: np.ndarray) -> bool:
    """Whether rows of equal inputs and equal targets are copies; both are given by hashes.

    >>> x, noisy = np.array([1, 1, 2, 2, 3, 3], dtype=np.uint64), np.array([0, 1, 0, 0, 1, 0], dtype=np.uint64)
    >>> holds_copies(x, x), holds_copies(x, noisy), holds_copies(np.arange(6, dtype=np.uint64), noisy)
    (True, False, False)
    """
    _, of_input, n_rows = np.unique(inputs, return_inverse=True, return_counts=True)
    _, first, times = np.unique(rows_of(inputs, targets), return_index=True, return_counts=True)
    if len(first) == len(inputs):
        return False
    tied = n_rows > 1
    equal_pairs = np.bincount(of_input.reshape(-1)[first], weights=times * (times - 1.0), minlength=len(n_rows))[tied]
    equal = float((equal_pairs / (n_rows[tied] - 1)).sum() / n_rows[tied].sum())  # every row of a tie counts the same
    if equal >= 1 - DIFFERENT:
        return True
    _, counts = np.unique(targets[first], return_counts=True)
    return float((counts * (counts - 1.0)).sum()) <= RARE * len(first) * (len(first) - 1.0)


def rows_of(inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """A hash of inputs and targets together."""
    return mix_hash(mix_hash(inputs) ^ targets)
