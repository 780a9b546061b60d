"""Duplicate rows: detect copies of rows, which must stay on one side of every split.

Rows of equal inputs and equal targets are copies (a bootstrap, oversampling, data entered twice) if equal inputs nearly
always have equal targets. Copies are merged into one row of their total weight, which is exact for every loss. Discrete
inputs recur with different targets: those rows are separate observations, even where their targets agree, and stay.
"""

from __future__ import annotations

import numpy as np

from mercer.data.hashes import hash_rows, mix_hash

#: Equal inputs come with equal targets if their pairs differ at most this share as often as pairs of any two rows: a
#: class of nearly all rows is that of most pairs.
DIFFERENT = 0.05
#: Targets that two rows share with no more than this chance recur by copying only, however often inputs recur.
RARE = 0.01


def hash_targets(y: np.ndarray) -> np.ndarray:
    """Hash each row's targets: numbers or labels, in one column or several."""
    columns = y.reshape(len(y), -1).T
    return hash_rows((np.unique(column, return_inverse=True)[1].reshape(-1) for column in columns), len(y))


def has_copies(inputs: np.ndarray, targets: np.ndarray) -> bool:
    """Whether rows of equal inputs and equal targets are copies; both are given as hashes.

    >>> x, noisy = np.array([1, 1, 2, 2, 3, 3], dtype=np.uint64), np.array([0, 1, 0, 0, 1, 0], dtype=np.uint64)
    >>> has_copies(x, x), has_copies(x, noisy), has_copies(np.arange(6, dtype=np.uint64), noisy)
    (True, False, False)
    >>> rare = np.where(np.arange(200) % 40 == 0, 1, 0).astype(np.uint64)  # most pairs of any two rows agree
    >>> has_copies(np.arange(200, dtype=np.uint64) % 50, rare), has_copies(np.arange(200, dtype=np.uint64) % 40, rare)
    (False, True)
    """
    _, of_input, n_rows = np.unique(inputs, return_inverse=True, return_counts=True)
    _, first, times = np.unique(hash_pairs(inputs, targets), return_index=True, return_counts=True)
    if len(first) == len(inputs):
        return False
    tied = n_rows > 1
    equal_pairs = np.bincount(of_input.reshape(-1)[first], weights=times * (times - 1.0), minlength=len(n_rows))[tied]
    equal = float((equal_pairs / (n_rows[tied] - 1)).sum() / n_rows[tied].sum())  # every tied row counts the same
    _, counts = np.unique(targets, return_counts=True)
    by_chance = float((counts * (counts - 1.0)).sum()) / (len(targets) * (len(targets) - 1.0))
    if equal >= 1 - DIFFERENT * (1 - by_chance):
        return True
    _, counts = np.unique(targets[first], return_counts=True)
    return float((counts * (counts - 1.0)).sum()) <= RARE * len(first) * (len(first) - 1.0)


def hash_pairs(inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Hash inputs and targets together, both given by their hashes."""
    return mix_hash(mix_hash(inputs) ^ targets)
