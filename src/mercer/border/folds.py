"""Folds of a cross-validation: the one place that deals rows out."""

from __future__ import annotations

import numpy as np


def stratified_folds(labels: np.ndarray, n_folds: int, rng: np.random.Generator) -> np.ndarray:
    """The fold of each row, 0 … n_folds − 1: random, each with as equal a share of every label as can be.

    There are never more folds than rows.

    >>> import numpy as np
    >>> folds = stratified_folds(np.array(["a", "b", "a", "b"]), 2, np.random.default_rng(0))
    >>> sorted(folds[[0, 2]].tolist()), sorted(folds[[1, 3]].tolist())
    ([0, 1], [0, 1])
    """
    order = np.lexsort((rng.uniform(size=len(labels)), labels))
    folds = np.empty(len(labels), dtype=int)
    folds[order] = np.arange(len(labels)) % min(n_folds, max(len(labels), 1))
    return folds
