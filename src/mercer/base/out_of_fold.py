"""Predictions of rows by models that were not fitted to them: in folds of refits, or one at a time by leverages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.clock import Clock
from mercer.engine import Sample
from mercer.linalg import cholesky
from mercer.progress import without_progress

#: Rows up to which a model is refitted in folds to calibrate it, and the number of folds.
FOLDED_ROWS, N_FOLDS = 1000, 5
#: Of more rows about a tenth, and no more than this, is held out of a single refit.
HELD_OUT_ROWS = 2000

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


def calibration_folds(labels: np.ndarray) -> list[np.ndarray]:
    """The rows that each refit leaves out: all rows in turn, in five folds, or of many rows one part.

    The only row of a label stays, since no refit without it could know the label. The assignment is the same for equal
    labels, so that several models of one table are averaged row by row.

    >>> [len(fold) for fold in calibration_folds(np.zeros(12))], [len(f) for f in calibration_folds(np.zeros(5000))]
    ([3, 3, 2, 2, 2], [500])
    """
    n, rng = len(labels), np.random.default_rng(0)
    _, label, counts = np.unique(labels, return_inverse=True, return_counts=True)
    folds = stratified_folds(labels, N_FOLDS if n <= FOLDED_ROWS else max(10, -(-n // HELD_OUT_ROWS)), rng)
    folds[counts[label] == 1] = -1
    left_out = (np.flatnonzero(folds == k) for k in range(N_FOLDS if n <= FOLDED_ROWS else 1))
    return [rows for rows in left_out if len(rows)]


def out_of_fold(
    labels: np.ndarray, refit: Callable[[np.ndarray], np.ndarray], clock: Clock, seconds: float
) -> tuple[np.ndarray, np.ndarray] | None:
    """Rows and their values (n × p) by refits without them; ``refit(rows)`` gives those of the rows it leaves out.

    Kernels, penalties and sizes stay those of the model. A fold begins only if there is time for it, by what the last
    one took; `seconds` is what the model itself took. None where there is time for no fold, or no row to leave out.
    """
    rows: list[np.ndarray] = []
    values: list[np.ndarray] = []
    for fold in calibration_folds(labels):
        if clock.expired(needing=seconds):
            break
        before = clock.elapsed()
        with without_progress():
            values.append(refit(fold))
        rows.append(fold)
        seconds = clock.elapsed() - before
    return (np.concatenate(rows), np.concatenate(values)) if rows else None


@dataclass(frozen=True)
class Refits(ABC):
    """Refits of a model without some rows of its sample, with the kernels, penalties and sizes of the model.

    `labels` are those of the rows that count, and `seconds` is what the model itself took.
    """

    sample: Sample
    labels: np.ndarray
    clock: Clock
    seconds: float

    @abstractmethod
    def refit(self, rows: np.ndarray) -> Any:
        """The model without these rows of the sample."""

    def out_of_fold(self, predict: Callable[[Any, Sample], np.ndarray]) -> tuple[np.ndarray, np.ndarray] | None:
        """Rows of the sample and their predictions (n × p) by refits without them; ``predict(model, rows)``.

        None where there is no time for a refit, or no row to leave out.
        """
        alive = self.sample.alive

        def predicted(fold: np.ndarray) -> np.ndarray:
            return predict(self.refit(alive[fold]), self.sample.part(alive[fold]))

        found = out_of_fold(self.labels, predicted, self.clock, self.seconds)
        return None if found is None else (alive[found[0]], found[1])
