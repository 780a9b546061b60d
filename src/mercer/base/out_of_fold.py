"""Predictions of rows by models that were not fitted to them: refits in folds, or leave-one-out by leverages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.clock import Clock
from mercer.data.row_groups import RowGroups, Split
from mercer.engine import Sample
from mercer.linalg import cholesky
from mercer.progress import without_progress

#: Rows up to which a model is calibrated by refits in folds, and the number of folds.
FOLDED_ROWS, N_FOLDS = 1000, 5
#: Rows at most that have leave-one-out predictions.
LEFT_OUT_ROWS = 2000
#: With more rows, a single refit holds out about a tenth of them, at most this many.
HELD_OUT_ROWS = 2000
#: Refits of many rows where row groups are held out: a tenth of the rows would be too few groups.
GROUP_REFITS = 2

#: Largest leverage: residuals beyond it are rounding.
LARGEST = 1 - 1e-6


def leverages(phi: Tensor, weight: Tensor, penalty: Tensor, share: float = 1.0) -> Tensor:
    r"""Leverages :math:`h_i = w_i \phi_i^\top (\Phi^\top W \Phi / s + P)^{-1} \phi_i` of rows of features `phi`, n × m.

    The leave-one-out residual of row i is :math:`r_i / (1 - h_i)`. If the rows are only a `share` s of the fitted ones,
    their sum is extrapolated to all.
    """
    phi, weight = phi.double(), weight.double()
    gram = (phi * (weight / share)[:, None]).T @ phi + penalty.double()
    half = torch.linalg.solve_triangular(cholesky(gram)[0], phi.T, upper=False)
    return (weight * half.square().sum(0)).clamp(0.0, LARGEST)


def stratified_folds(labels: np.ndarray, n_folds: int, rng: np.random.Generator) -> np.ndarray:
    """The fold of each row, 0 … n_folds − 1: random and stratified by label, with no more folds than rows.

    >>> folds = stratified_folds(np.array(["a", "b", "a", "b"]), 2, np.random.default_rng(0))
    >>> sorted(folds[[0, 2]].tolist()), sorted(folds[[1, 3]].tolist())
    ([0, 1], [0, 1])
    """
    order = np.lexsort((rng.uniform(size=len(labels)), labels))
    folds = np.empty(len(labels), dtype=int)
    folds[order] = np.arange(len(labels)) % min(n_folds, max(len(labels), 1))
    return folds


def calibration_folds(labels: np.ndarray, folds: int = N_FOLDS) -> list[np.ndarray]:
    """The rows that each refit holds out: `folds` folds of all rows, or one fold of many rows.

    The only row of a label is never held out, since a refit without it could not know the label. Equal labels give
    equal folds, so that several models of one table are averaged row by row.
    """
    n, rng = len(labels), np.random.default_rng(0)
    _, label, counts = np.unique(labels, return_inverse=True, return_counts=True)
    n_folds, n_refits = (folds, folds) if n <= FOLDED_ROWS else (max(10, -(-n // HELD_OUT_ROWS)), 1)
    fold = stratified_folds(labels, n_folds, rng)
    fold[counts[label] == 1] = -1
    held_out = (np.flatnonzero(fold == k) for k in range(n_refits))
    return [rows for rows in held_out if len(rows)]


def calibration_splits(labels: np.ndarray, row_groups: RowGroups | None, folds: int) -> list[Split]:
    """The same by whole row groups, where there are any, or by stretches of time."""
    if row_groups is None:
        return [Split(fold, fold) for fold in calibration_folds(labels, folds)]
    return row_groups.splits(folds if len(labels) <= FOLDED_ROWS else GROUP_REFITS, most=HELD_OUT_ROWS)


def out_of_fold(
    labels: np.ndarray,
    refit: Callable[[np.ndarray], np.ndarray],
    clock: Clock,
    seconds: float,
    row_groups: RowGroups | None = None,
    folds: int = N_FOLDS,
) -> tuple[np.ndarray, np.ndarray] | None:
    """Rows and their out-of-fold values (n × p); ``refit(rows)`` returns the values of the rows that it holds out.

    Kernels, penalties and sizes stay those of the model. A fold begins only if the time left is enough, by the seconds
    of the fold before, or the `seconds` of the model for the first. None where no fold was possible.
    """
    rows: list[np.ndarray] = []
    values: list[np.ndarray] = []
    for left_out, scored in calibration_splits(labels, row_groups, folds):
        if clock.expired(needing=seconds):
            break
        before = clock.elapsed()
        with without_progress():
            values.append(refit(left_out)[np.isin(left_out, scored)])
        rows.append(scored)
        seconds = clock.elapsed() - before
    return (np.concatenate(rows), np.concatenate(values)) if rows else None


@dataclass(frozen=True)
class Refits(ABC):
    """Refits of a model without one fold of its rows, with the same kernels, penalties and sizes.

    `labels` are those of the rows of positive weight; `seconds` is the time that the model took.
    """

    sample: Sample
    labels: np.ndarray
    clock: Clock
    seconds: float
    folds: int

    @abstractmethod
    def refit(self, rows: np.ndarray) -> Any:
        """The model without these rows of the sample."""

    def out_of_fold(self, predict: Callable[[Any, Sample], np.ndarray]) -> tuple[np.ndarray, np.ndarray] | None:
        """Rows of the sample and their out-of-fold predictions (n × p) by ``predict(model, rows)``.

        None where there is no time for a refit, or no row can be held out.
        """
        alive = self.sample.alive

        def predicted(fold: np.ndarray) -> np.ndarray:
            return predict(self.refit(alive[fold]), self.sample.part(alive[fold]))

        found = out_of_fold(self.labels, predicted, self.clock, self.seconds, folds=self.folds)
        return None if found is None else (alive[found[0]], found[1])
