"""64-bit hashes of rows and tables: the same on every machine, in every process, in any order of the rows.

By them copies of rows are found, which must stay on one side of every split. Rows of equal inputs and equal targets are
copies (a bootstrap, oversampling, data entered twice) if equal inputs nearly always have equal targets. Copies are
merged into one row of their total weight, which is exact for every loss. Discrete inputs recur with different targets:
those rows are separate observations, even where their targets agree, and stay.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import numpy as np

#: The hash of no column at all (the golden ratio, as in splitmix64).
START = np.uint64(0x9E3779B97F4A7C15)
#: Equal inputs come with equal targets if their pairs differ at most this share as often as pairs of any two rows: a
#: class of nearly all rows is that of most pairs.
DIFFERENT = 0.05
#: Targets that two rows share with no more than this chance recur by copying only, however often inputs recur.
RARE = 0.01


def hash_rows(columns: Iterable[np.ndarray], n_rows: int) -> np.ndarray:
    """Hash each row of columns of numbers or text; a million distinct rows collide with probability 3e-8.

    >>> hash_rows([np.array([0.0, -0.0, 1.0])], 3).tolist() == hash_rows([np.array([0, 0, 1])], 3).tolist()
    True
    """
    mixed = np.full(n_rows, START)
    for column in columns:
        mixed = mix_hash(mixed + START ^ _bits(column))
    return mixed


def hash_table(values: Any, numbers: np.ndarray | None = None) -> np.uint64:
    """Sum the hashes of all rows, each mixed with the number of its row.

    Sums over parts of a table add up (modulo 2⁶⁴) to that of the table.

    >>> whole, rows = np.array([[1.0, "a"], [2.0, "b"]], dtype=object), np.arange(2)
    >>> bool(hash_table(whole) == hash_table(whole[1:], rows[1:]) + hash_table(whole[:1], rows[:1]))
    True
    """
    values = np.atleast_1d(np.asarray(values))
    n = len(values)
    columns = values.reshape(n, -1).T if n else ()
    places = (np.arange(n) if numbers is None else numbers).astype(np.uint64)
    return mix_hash(hash_rows(columns, n) ^ mix_hash(places + START)).sum(dtype=np.uint64)


def hash_text(text: str) -> int:
    """Hash a text to 64 bits."""
    return int.from_bytes(blake2b(text.encode("utf-8", errors="replace"), digest_size=8).digest(), "little")


def hash_ranks(X: np.ndarray) -> np.ndarray:
    """Hash each row by the ranks of its values.

    It depends neither on the order of rows and columns nor on the unit or origin of a column. Sorted by it, the same
    table in another order has its rows at the same indices, by which random numbers choose.

    >>> X = np.array([[3.0, 1.0], [2.0, 5.0]])
    >>> bool((hash_ranks(X) == hash_ranks(10 * X[:, ::-1])).all())
    True
    """
    total = np.zeros(len(X), dtype=np.uint64)
    for column in X.T:
        rank = np.unique(column, return_inverse=True)[1].astype(np.uint64) + np.uint64(1)
        bits = _shift_and_multiply(rank * START, 30, 0xBF58476D1CE4E5B9)
        total += bits ^ (bits >> np.uint64(27))
    return total


def mix_hash(bits: np.ndarray) -> np.ndarray:
    """Mix 64-bit words by the steps of splitmix64, a permutation."""
    bits = _shift_and_multiply(bits, 30, 0xBF58476D1CE4E5B9)
    bits = _shift_and_multiply(bits, 27, 0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def _shift_and_multiply(bits: np.ndarray, shift: int, factor: int) -> np.ndarray:
    return (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)


def _bits(column: np.ndarray) -> np.ndarray:
    """The bits of numbers, where 0 and -0 are equal; of other values, the hashes of their text."""
    if column.dtype.kind in "biuf":
        return (column.astype(np.float64) + 0.0).view(np.uint64)
    levels, place = np.unique(column.astype(str), return_inverse=True)
    return np.array([hash_text(level) for level in levels], dtype=np.uint64)[place.reshape(-1)]


def hash_targets(y: np.ndarray) -> np.ndarray:
    """Hash each row's targets: numbers or labels, in one column or several.

    >>> len(set(hash_targets(np.array([2**53, 2**53 + 1])).tolist()))  # one number in double precision
    2
    """
    columns = y.reshape(len(y), -1).T
    if y.dtype.kind in "iu":  # in halves, which double precision holds
        whole = columns.astype(np.int64)
        return hash_rows([*(whole >> 32), *(whole & 0xFFFFFFFF)], len(y))
    return hash_rows(columns, len(y))


def has_copies(inputs: np.ndarray, targets: np.ndarray) -> bool:
    """Whether rows of equal inputs and equal targets are copies; both are given as hashes.

    >>> x, noisy = np.array([1, 1, 2, 2, 3, 3], dtype=np.uint64), np.array([0, 1, 0, 0, 1, 0], dtype=np.uint64)
    >>> has_copies(x, x), has_copies(x, noisy), has_copies(np.arange(6, dtype=np.uint64), noisy)
    (True, False, False)
    >>> rare = np.where(np.arange(200) % 40 == 0, 1, 0).astype(np.uint64)  # most pairs of any two rows agree
    >>> has_copies(np.arange(200, dtype=np.uint64) % 50, rare), has_copies(np.arange(200, dtype=np.uint64) % 40, rare)
    (False, True)
    """
    tied = repeated(inputs)
    if not tied.any():
        return False
    tied_inputs, tied_targets = inputs[tied], targets[tied]
    _, of_input, n_rows = np.unique(tied_inputs, return_inverse=True, return_counts=True)
    _, first, times = np.unique(hash_pairs(tied_inputs, tied_targets), return_index=True, return_counts=True)
    if len(first) == len(tied_inputs):
        return False
    equal_pairs = np.bincount(of_input.reshape(-1)[first], weights=times * (times - 1.0), minlength=len(n_rows))
    equal = float((equal_pairs / (n_rows - 1)).sum() / n_rows.sum())  # every tied row counts the same
    different = np.concatenate([targets[~tied], tied_targets[first]])
    return equal >= 1 - DIFFERENT * (1 - _agreement(targets)) or _agreement(different) <= RARE


def repeated(hashes: np.ndarray) -> np.ndarray:
    """The mask of hashes that occur more than once: sorting values is several times as fast as `argsort`.

    >>> repeated(np.array([3, 1, 3, 2])).tolist()
    [True, False, True, False]
    """
    ordered = np.sort(hashes)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(twice):
        return np.zeros(len(hashes), dtype=bool)
    return twice[np.searchsorted(twice, hashes).clip(max=len(twice) - 1)] == hashes


def _agreement(targets: np.ndarray) -> float:
    """The chance that two different rows have equal targets; a single row agrees with none."""
    n, (_, counts) = len(targets), np.unique(targets, return_counts=True)
    return float((counts * (counts - 1.0)).sum()) / max(n * (n - 1.0), 1.0)


def hash_pairs(inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Hash inputs and targets together, both given by their hashes."""
    return mix_hash(mix_hash(inputs) ^ targets)
