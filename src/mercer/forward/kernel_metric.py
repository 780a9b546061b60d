"""The metric of a model's kernel, and its decay along each column.

For a kernel with length-scales ℓ on rows that are mapped column by column and multiplied by A, the squared distance of
two rows is (u − v)ᵀ M (u − v) with M = Aᵀ diag(1/ℓ²) A. The diagonal of M is the decay of the kernel along each column.
`mercer.selection` searches for metrics; `mercer.forward.relevance` measures effects on predictions.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mercer.engine.plan import SAMPLE_ROWS
from mercer.kernels import Bias, Function, Kernel, Precomputed
from mercer.kernels.sparse_rows import SparseRowKernel
from mercer.preprocessing.inputs import InputMap
from mercer.preprocessing.read import TableData


def sensitivity(kernel: Kernel, n_inputs: int) -> np.ndarray | None:
    """1/ℓ² for each input of the kernel.

    For sums and products it is the variance-weighted sum over their parts.

    It is one for all inputs of a kernel without length-scales, and None for an arbitrary function of two rows.
    """
    if isinstance(kernel, Function | Precomputed | SparseRowKernel):
        return None
    if isinstance(kernel, Bias):
        return np.zeros(n_inputs)
    parts = [sensitivity(part, n_inputs) for part in kernel.parts().values()]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    if known:
        return float(getattr(kernel, "variance", 1.0)) * np.sum(known, axis=0)
    lengths = np.asarray(getattr(kernel, "length_scale", 1.0), dtype=float)
    return np.broadcast_to(lengths, (n_inputs,)) ** -2.0


def metric_matrix(transform: np.ndarray | None, sensitivities: np.ndarray) -> np.ndarray:
    """M = Aᵀ diag(1/ℓ²) A (D × D).

    The transform A is a diagonal, a matrix, or None for the identity.
    """
    A = np.ones(len(sensitivities)) if transform is None else transform
    return np.diag(A * (sensitivities * A)) if A.ndim == 1 else A.T @ (sensitivities[:, None] * A)


def diagonal_shares(M: np.ndarray, spreads: np.ndarray) -> np.ndarray:
    """Shares of the inputs in the diagonal of M, of sum 1.

    The diagonal is taken in units of the standard deviation of each column.

    All inputs have equal shares if the diagonal is zero.
    """
    shares = _scaled(_scaled(np.diag(M)) * _scaled(spreads) ** 2)
    total = shares.sum()
    return shares / total if total > 0 else np.full(len(shares), 1 / len(shares))


def _scaled(numbers: np.ndarray) -> np.ndarray:
    """Numbers in units of the largest, so that neither squares nor sums overflow."""
    largest = np.abs(numbers).max(initial=0.0)
    return numbers / largest if largest > 0 else numbers


def column_spread(inputs: InputMap, data: TableData) -> np.ndarray:
    """Standard deviation of each mapped column, before the transform."""
    index = data.spaced(SAMPLE_ROWS)
    Z = replace(inputs, transform=None).encode(data.rows.fetch(index).cpu()).numpy()
    weight = data.pick(data.weight, index)
    size = np.abs(Z).max(0, initial=np.finfo(float).tiny)
    Z = Z / size
    return size * np.sqrt(np.average((Z - np.average(Z, axis=0, weights=weight)) ** 2, axis=0, weights=weight))
