"""Rows left out: in folds of a cross-validation, or one at a time by leverages, from one factor of a system."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mercer.linalg import cholesky

#: No leverage is above this: what is left of a residual then is rounding.
LARGEST = 1 - 1e-6


def leverages(phi: Tensor, weight: Tensor, penalty: Tensor, share: float = 1.0) -> Tensor:
    r"""Leverages :math:`h_i = w_i \phi_i^\top (\Phi^\top W \Phi / s + P)^{-1} \phi_i` of rows of features `phi`, n × m.

    Without row i the residual of row i is :math:`r_i / (1 - h_i)`. Where the rows are only a `share` s of those that
    were fitted, their sum stands for all.

    >>> leverages(torch.ones(4, 1), torch.ones(4), torch.zeros(1, 1)).tolist()  # a mean of four numbers
    [0.25, 0.25, 0.25, 0.25]
    """
    phi, weight = phi.double(), weight.double()
    gram = (phi * (weight / share)[:, None]).T @ phi + penalty.double()
    half = torch.linalg.solve_triangular(cholesky(gram)[0], phi.T, upper=False)
    return (weight * half.square().sum(0)).clamp(0.0, LARGEST)


def stratified_folds(labels: np.ndarray, n_folds: int, rng: np.random.Generator) -> np.ndarray:
    """The fold of each row, 0 … n_folds − 1: random, each with as equal a share of every label as can be.

    There are never more folds than rows.

    >>> folds = stratified_folds(np.array(["a", "b", "a", "b"]), 2, np.random.default_rng(0))
    >>> sorted(folds[[0, 2]].tolist()), sorted(folds[[1, 3]].tolist())
    ([0, 1], [0, 1])
    """
    order = np.lexsort((rng.uniform(size=len(labels)), labels))
    folds = np.empty(len(labels), dtype=int)
    folds[order] = np.arange(len(labels)) % min(n_folds, max(len(labels), 1))
    return folds
