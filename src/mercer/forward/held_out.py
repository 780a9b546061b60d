"""Held-out, out-of-fold and leave-one-out predictions of forward models.

Calibration and prediction intervals use these predictions. An exact solution has leave-one-out predictions in closed
form. Other models of few rows are refitted in folds, because their basis vectors were chosen from the same rows. With
many rows the basis is kept and rows are left out by their leverages, an approximation that improves with the number of
rows per basis vector.

The same rows measure the rounding of predictions in float32. It grows with the kernel's variance, the weights and √m,
none of which is known before the fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from mercer.base.calibration import class_indices
from mercer.base.out_of_fold import FOLDED_ROWS, LARGEST, LEFT_OUT_ROWS, N_FOLDS, leverages, out_of_fold
from mercer.clock import Clock
from mercer.data import TensorRows
from mercer.engine import KernelMatrix, Plan
from mercer.forward.loop import ForwardFit
from mercer.forward.path import FittedExpansion
from mercer.forward.solve.exact import AllRows

#: Rows predicted at least where memory is short.
MIN_ROWS = 50
#: Validation rows that suffice for calibration by themselves.
ENOUGH_ROWS = 100
#: Basis vectors in one tile.
TILE_BASIS = 10_000
#: Rounding above this share of the model's error calls for float64: it adds 4e-4 to the mean squared error, a tenth of
#: the estimation error of 12 000 noisy rows (0.4 %, five inputs, Matérn 5/2).
ROUNDING_SHARE = 0.02
#: Rows on which rounding is measured.
ROUNDING_ROWS = 200

#: Refits the model without the given rows.
Refit = Callable[[Tensor], FittedExpansion]


@dataclass(frozen=True)
class HeldOutPredictions:
    """Predictions (n × p), coded targets and weights of held-out rows.

    `rows` are the rows in the kernel's coordinates, `index` their numbers in the table.
    """

    values: np.ndarray
    targets: np.ndarray
    weight: np.ndarray
    rows: Tensor
    index: Tensor

    def joined(self, other: HeldOutPredictions) -> HeldOutPredictions:
        """These rows followed by those of `other`."""
        return HeldOutPredictions(
            np.concatenate([self.values, other.values]),
            np.concatenate([self.targets, other.targets]),
            np.concatenate([self.weight, other.weight]),
            torch.cat([self.rows, other.rows]),
            torch.cat([self.index, other.index]),
        )


def held_out_predictions(
    fit: ForwardFit,
    final: FittedExpansion,
    row_targets: np.ndarray | None = None,
    refit: Refit | None = None,
    clock: Clock | None = None,
    *,
    classes: bool = False,
    folds: int = N_FOLDS,
) -> HeldOutPredictions:
    """Predict validation rows, or also training rows not used for fitting.

    Training rows are predicted out of fold or leave-one-out if there are few validation rows.

    `row_targets` are the targets of single rows if those of the problem are means of duplicates. `refit` refits the
    model without given rows; None if that is too expensive. Few rows of classes are predicted out of fold even if
    exact leave-one-out is available, because kernel and penalty were selected by leave-one-out.
    """
    validation = None if fit.validation is None else validation_predictions(fit, final, row_targets, LEFT_OUT_ROWS)
    if validation is not None and (len(validation.weight) >= ENOUGH_ROWS or refit is None):
        return validation
    exact = _leave_one_out(fit, row_targets)
    found = None
    few = fit.problem.n_candidates <= FOLDED_ROWS
    chosen_by_it = few and classes and fit.problem.loss.quadratic  # a likelihood has out-of-fold predictions
    if refit is not None and (chosen_by_it or exact is None):
        found = _out_of_fold(fit, row_targets, refit, clock or Clock(), classes, folds)
    found = found or exact or _by_leverage(fit, final, row_targets)
    return found if validation is None else found.joined(validation)


def can_refit(fit: ForwardFit, final: FittedExpansion) -> bool:
    """Whether refits in folds are affordable.

    They need few rows on one process, basis vectors that are rows, and no interrupt. Row groups need a refit even if
    rows are many: leverages leave single rows out.
    """
    divided = fit.problem.rows.shard.divided
    needed = fit.problem.n_candidates <= FOLDED_ROWS or fit.problem.sample.row_groups is not None
    return needed and not (divided or final.moved or fit.interrupted)


def validation_predictions(
    fit: ForwardFit, final: FittedExpansion, row_targets: np.ndarray | None, max_rows: int
) -> HeldOutPredictions:
    """Predict the validation rows of a fit, at most `max_rows` of them."""
    problem = fit.problem
    mask = torch.zeros_like(problem.weight, dtype=torch.bool)
    mask[fit.validation] = True
    rows = problem.rows.shard.spaced(mask, max_rows)
    X = problem.basis(rows)
    values = KernelMatrix(TensorRows(X), final.kernel, final.basis, problem.plan).product(final.weights)
    return with_targets(fit, row_targets, rows, values, X)


def _leave_one_out(fit: ForwardFit, row_targets: np.ndarray | None) -> HeldOutPredictions | None:
    """Leave-one-out predictions of an exact solution; None if there are none."""
    problem, learner = fit.problem, fit.learner
    left_out = learner.left_out if isinstance(learner, AllRows) else None
    if left_out is None:
        return None
    known = (problem.weight > 0) & left_out.isfinite().all(1)
    if not bool(known.any()):  # a single row has none
        return None
    rows = problem.rows.shard.spaced(known, LEFT_OUT_ROWS)
    return with_targets(fit, row_targets, rows, left_out[rows], problem.basis(rows))


def _out_of_fold(
    fit: ForwardFit, row_targets: np.ndarray | None, refit: Refit, clock: Clock, classes: bool, folds: int
) -> HeldOutPredictions | None:
    """Out-of-fold predictions by refits; None if there is no time for them."""
    problem, alive = fit.problem, fit.problem.candidates()
    codes = problem.y[alive].cpu().numpy()
    labels = class_indices(codes) if classes else np.zeros(len(codes), dtype=int)

    def values(fold: np.ndarray) -> np.ndarray:
        rows = alive[torch.as_tensor(fold, device=alive.device)]
        return _values(refit(rows), problem.basis(rows)).cpu().numpy()

    together = problem.sample.row_groups
    together = None if together is None else together.take(alive.cpu().numpy())
    found = out_of_fold(labels, values, clock, fit.seconds, together, folds)
    if found is None:
        return None
    rows = alive[torch.as_tensor(found[0], device=alive.device)]
    return with_targets(fit, row_targets, rows, torch.as_tensor(found[1]), problem.basis(rows))


def _by_leverage(fit: ForwardFit, final: FittedExpansion, row_targets: np.ndarray | None) -> HeldOutPredictions:
    r"""Approximate leave-one-out predictions with the basis vectors kept.

    With :math:`g_i = w_i \phi_i^\top A^{-1} \phi_i` and A the Hessian of the objective, one Newton step without row i
    gives :math:`f_i - g_i r_i / (1 - V''_i g_i)`, which is exact for the squared loss. A pinball loss has almost no
    curvature, so the fitted values are returned for it.
    """
    problem = fit.problem
    mask, shard = problem.weight > 0, problem.rows.shard
    loss = problem.loss
    smooth = len(final.basis) > 0 and (loss.quadratic or loss.link == "log" or not loss.for_numbers)
    cells = problem.plan.memory_limit // 64  # a few copies of a tile and its square
    n_basis = min(len(final.basis), LEFT_OUT_ROWS, math.isqrt(cells // 2))  # their algebra grows as the cube
    n_rows = min(max(LEFT_OUT_ROWS, 2 * n_basis), max(cells // max(n_basis, 1), MIN_ROWS)) if smooth else LEFT_OUT_ROWS
    share, rows = min(n_rows / problem.n_candidates, 1.0), shard.spaced(mask, n_rows)
    X, y = problem.basis(rows), problem.pick(problem.y, rows).double()
    weight = problem.rows.pick(problem.weight, rows)
    values = _values(final, X)
    if smooth:
        slope = problem.loss.residual(y, values)
        curvature = problem.loss.curvature(y, values).expand_as(values)
        same = problem.loss.quadratic  # outputs then share their leverages
        for k in range(values.shape[1]):
            if k == 0 or not same:
                h = _leverages(final, X, weight.double() * curvature[:, k], share, n_basis)
            values[:, k] -= slope[:, k] * (h / curvature[:, k].clamp(min=1e-12)) / (1 - h)
    return with_targets(fit, row_targets, rows, values, X)


def with_targets(
    fit: ForwardFit, row_targets: np.ndarray | None, rows: Tensor, values: Tensor, X: Tensor
) -> HeldOutPredictions:
    """Predictions `values` (n × p) at `rows`, whose inputs are `X`, with the targets and weights of these rows."""
    problem = fit.problem
    targets = problem.y if row_targets is None else torch.as_tensor(row_targets).to(problem.y)
    weight = problem.weight if fit.validation is None else problem.row_weights()
    targets, weight = problem.pick(targets, rows), problem.rows.pick(weight, rows)
    f, y, w = (array.double().cpu().numpy() for array in (values, targets, weight))
    return HeldOutPredictions(f, y, w, X, rows)


def _values(final: FittedExpansion, X: Tensor) -> Tensor:
    tiles = zip(final.basis.split(TILE_BASIS), final.weights.split(TILE_BASIS), strict=True)
    total = X.new_zeros(len(X), final.weights.shape[1], dtype=torch.float64)
    return sum((final.kernel(X.double(), Z.double()) @ W for Z, W in tiles), total)


def _leverages(final: FittedExpansion, X: Tensor, weight: Tensor, share: float, n_basis: int) -> Tensor:
    """Leverages of rows, estimated from `n_basis` of the basis vectors."""
    m = len(final.basis)
    Z = final.basis[torch.linspace(0, m - 1, min(m, n_basis)).long()].double()
    h = leverages(final.kernel(X.double(), Z), weight, final.lam * final.kernel(Z, Z), share)
    return (h * (m / len(Z))).clamp(max=LARGEST)


def rounding_errors(final: FittedExpansion, predictions: HeldOutPredictions, plan: Plan, share: float) -> np.ndarray:
    """Root mean square change of each output by float32 tiles of an expansion that counts by its `share`."""
    X = predictions.rows[:: max(len(predictions.rows) // ROUNDING_ROWS, 1)]

    def values(dtype: torch.dtype) -> torch.Tensor:
        tiles = replace(plan, dtype=dtype)
        matrix = KernelMatrix(TensorRows(X.to(dtype)), final.kernel, final.basis.to(dtype), tiles)
        return matrix.product(final.weights).double()

    change = share * (values(torch.float32) - values(torch.float64))
    return change.square().mean(0).sqrt().cpu().numpy()


def rounding_matters(errors: Sequence[np.ndarray], residuals: np.ndarray, weight: np.ndarray) -> bool:
    """Whether rounding exceeds `ROUNDING_SHARE` of the error of any output.

    `errors` are those of several expansions.

    >>> rounding_matters([np.array([0.03])], np.array([[1.0], [-1.0]]), np.ones(2))
    True
    >>> rounding_matters([np.array([0.01])], np.array([[1.0], [-1.0]]), np.ones(2))
    False
    """
    error = np.sqrt(np.average(residuals**2, axis=0, weights=weight))
    return bool((np.sqrt(np.sum(np.square(errors), axis=0)) > ROUNDING_SHARE * error).any())
