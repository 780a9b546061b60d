"""The metric in which a model's kernels compare rows, and how fast they fall along each column.

A kernel of length-scales ℓ on rows that are mapped column by column and then multiplied by A sees two of them at the
squared distance (u − v)ᵀ M (u − v), M = Aᵀ diag(1/ℓ²) A. The diagonal of M says how fast the kernel falls along each
column. `mercer.selection` searches for metrics; `mercer.forward.relevance` measures the effect on predictions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mercer.kernels import Bias, Function, Kernel, Precomputed
from mercer.kernels.sparse_rows import Numbered
from mercer.preprocessing.inputs import InputMap
from mercer.preprocessing.read import TableData

#: Rows from which the spread of columns is taken.
SPREAD_ROWS = 4000


def sensitivity(kernel: Kernel, n_inputs: int) -> np.ndarray | None:
    """1/ℓ² for each input of the kernel; of sums and products, the sum of their parts' by variance.

    A kernel without length-scales sees all inputs alike. One that is any function of two rows says nothing: None.

    >>> from mercer.kernels import Bias, Gaussian, Linear
    >>> sensitivity(3 * Gaussian([1.0, 2.0]) + Linear() + Bias(), 2).tolist()
    [4.0, 1.75]
    """
    if isinstance(kernel, Function | Precomputed | Numbered):
        return None
    if isinstance(kernel, Bias):
        return np.zeros(n_inputs)
    parts = [sensitivity(one, n_inputs) for one in kernel.parts().values()]
    known = [one for one in parts if one is not None]
    if len(known) < len(parts):
        return None
    if known:
        return float(getattr(kernel, "variance", 1.0)) * np.sum(known, axis=0)
    lengths = np.asarray(getattr(kernel, "length_scale", 1.0), dtype=float)
    return np.broadcast_to(lengths, (n_inputs,)) ** -2.0


def metric(transform: np.ndarray | None, falls: np.ndarray) -> np.ndarray:
    """M = Aᵀ diag(1/ℓ²) A (D × D), A being the transform, given by its diagonal, as a matrix, or not at all.

    >>> metric(np.array([3.0, 0.0]), np.array([4.0, 4.0])).tolist()
    [[36.0, 0.0], [0.0, 0.0]]
    """
    A = np.ones(len(falls)) if transform is None else transform
    return np.diag(A * (falls * A)) if A.ndim == 1 else A.T @ (falls[:, None] * A)


def diagonal_shares(
    metrics: Sequence[np.ndarray], spreads: Sequence[np.ndarray], shares: Sequence[float]
) -> np.ndarray:
    """One number per input, of sum 1: diag(M) in units of one standard deviation of each column.

    Each of several metrics is brought to sum 1 first, since rough kernels have longer length-scales than smooth ones of
    the same reach, and counts by its share. A kernel that sees no input at all leaves all of them alike.

    >>> diagonal_shares([np.diag([3.0, 1.0])], [np.array([1.0, 1.0])], [0.5]).tolist()
    [0.75, 0.25]
    """
    each = zip(metrics, spreads, shares, strict=True)
    total = np.sum([share * of_sum_one(_of_one(np.diag(M)) * _of_one(s) ** 2) for M, s, share in each], axis=0)
    return of_sum_one(total)


def _of_one(numbers: np.ndarray) -> np.ndarray:
    """Numbers in units of the largest, whose square may be beyond float64."""
    largest = np.abs(numbers).max(initial=0.0)
    return numbers / largest if largest > 0 else numbers


def of_sum_one(numbers: np.ndarray) -> np.ndarray:
    """Non-negative numbers as shares; of nothing but zeros, equal ones."""
    numbers = _of_one(numbers)  # first, so that no sum of huge numbers overflows
    total = numbers.sum()
    return numbers / total if total > 0 else np.full(len(numbers), 1 / len(numbers))


def spread(inputs: InputMap, given: TableData) -> np.ndarray:
    """The standard deviation of each column as it is mapped, before any transform."""
    some = given.spaced(SPREAD_ROWS)
    Z, weight = (
        replace(inputs, transform=None).encode(given.rows.fetch(some).cpu()).numpy(),
        given.pick(given.weight, some),
    )
    size = np.abs(Z).max(0, initial=np.finfo(float).tiny)
    Z = Z / size
    return size * np.sqrt(np.average((Z - np.average(Z, axis=0, weights=weight)) ** 2, axis=0, weights=weight))
