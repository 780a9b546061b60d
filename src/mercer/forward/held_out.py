"""Predictions of a forward model at rows it was not fitted to: held out, out of fold, or leave-one-out by a formula.

Probabilities are calibrated and intervals made from these. An exact solution knows its leave-one-out predictions. Other
models of few rows are refitted in folds, since their basis vectors were chosen by the very rows that are predicted. Of
many rows the basis stays as it is, and rows are left out by their leverages: an approximation, closer the more rows
there are for each basis vector.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mercer.base.out_of_fold import FOLDED_ROWS, LARGEST, leverages, out_of_fold
from mercer.clock import Clock
from mercer.data import TensorRows
from mercer.engine import KernelMatrix
from mercer.forward.loop import ForwardFit
from mercer.forward.solve.exact import AllRows
from mercer.forward.stages import Final

#: Rows looked at, at most, and at least where there is little memory.
ROWS, FEW_ROWS = 2000, 50
#: Rows held out that are enough for calibration by themselves.
ENOUGH_ROWS = 100
#: Basis vectors whose leverages are found at most: their algebra grows as the cube.
LEVERS = 2000
#: Basis vectors that a tile of these rows holds at a time.
TILED = 10_000

#: A model refitted without some rows, which it is then asked for.
Refit = Callable[[Tensor], Final]


@dataclass(frozen=True)
class Outside:
    """Values (n × p), coded targets and weights of some rows, and the rows themselves as the kernel sees them.

    `index` are their numbers in the table.
    """

    values: np.ndarray
    targets: np.ndarray
    weight: np.ndarray
    rows: Tensor
    index: Tensor | None = None

    def joined(self, other: Outside) -> Outside:
        """These rows and others."""
        assert self.index is not None
        assert other.index is not None
        return Outside(
            np.concatenate([self.values, other.values]),
            np.concatenate([self.targets, other.targets]),
            np.concatenate([self.weight, other.weight]),
            torch.cat([self.rows, other.rows]),
            torch.cat([self.index, other.index]),
        )


def outside_values(
    fit: ForwardFit,
    final: Final,
    single: np.ndarray | None = None,
    refit: Refit | None = None,
    clock: Clock | None = None,
    *,
    classes: bool = False,
) -> Outside:
    """Rows held out, if they are enough; else also training rows, leave-one-out or out of fold.

    `single` are targets of single rows, where those of the problem are means of several. `refit` gives the model
    refitted without some rows; None where that is too dear. Few rows of classes are asked out
    of fold even where leave-one-out is exact: kernel and penalty were chosen by leaving rows out one at a time.
    """
    watched = None if fit.validation is None else watched_values(fit, final, single, ROWS)
    if watched is not None and (len(watched.weight) >= ENOUGH_ROWS or refit is None):
        return watched
    exact = _leave_one_out(fit, single)
    found = None
    if refit is not None and (classes or exact is None):
        found = _out_of_fold(fit, single, refit, clock or Clock(), classes)
    found = found or exact or _by_leverage(fit, final, single)
    return found if watched is None else found.joined(watched)


def refittable(fit: ForwardFit, final: Final) -> bool:
    """Whether a model is cheap to refit in folds, and not yet stopped; a basis that has moved stays where it is."""
    divided = fit.problem.rows.shard.divided
    return fit.problem.n_candidates <= FOLDED_ROWS and not (divided or final.moved or fit.interrupted)


def watched_values(fit: ForwardFit, final: Final, single: np.ndarray | None, most: int) -> Outside:
    """Predictions of a model at its held-out rows, at most `most` of them."""
    problem = fit.problem
    mask = torch.zeros_like(problem.weight, dtype=torch.bool)
    mask[fit.validation] = True
    rows = problem.rows.shard.spaced(mask, most)
    seen = problem.basis(rows)
    values = KernelMatrix(TensorRows(seen), final.kernel, final.basis, problem.plan).product(final.weights)
    return _outside(fit, single, rows, values, seen)


def _leave_one_out(fit: ForwardFit, single: np.ndarray | None) -> Outside | None:
    """Leave-one-out predictions at some rows, where the solution is exact."""
    problem, learner = fit.problem, fit.learner
    left_out = learner.left_out if isinstance(learner, AllRows) else None
    if left_out is None:
        return None
    found = (problem.weight > 0) & left_out.isfinite().all(1)
    if not bool(found.any()):  # none of a single row
        return None
    rows = problem.rows.shard.spaced(found, ROWS)
    return _outside(fit, single, rows, left_out[rows], problem.basis(rows))


def _out_of_fold(
    fit: ForwardFit, single: np.ndarray | None, refit: Refit, clock: Clock, classes: bool
) -> Outside | None:
    """Values of rows by refits without them, where there is time for it."""
    problem, alive = fit.problem, fit.problem.candidates()
    codes = problem.y[alive]
    labels = (codes[:, 0] > 0) if codes.shape[1] == 1 else codes.argmax(1)
    labels = labels if classes else torch.zeros_like(labels)

    def values(fold: np.ndarray) -> np.ndarray:
        rows = alive[torch.as_tensor(fold, device=alive.device)]
        return _values(refit(rows), problem.basis(rows)).cpu().numpy()

    found = out_of_fold(labels.cpu().numpy(), values, clock, fit.seconds)
    if found is None:
        return None
    rows = alive[torch.as_tensor(found[0], device=alive.device)]
    return _outside(fit, single, rows, torch.as_tensor(found[1]), problem.basis(rows))


def _by_leverage(fit: ForwardFit, final: Final, single: np.ndarray | None) -> Outside:
    r"""Rows of the training table as if each had been left out, the basis vectors staying as they are.

    With :math:`g_i = w_i \phi_i^\top A^{-1} \phi_i`, A the Hessian of the objective, row i without itself has the value
    :math:`f_i - g_i r_i / (1 - V''_i g_i)` after one Newton step: exact for squared loss. A pinball loss has next to no
    curvature, so there the values are those of the fit.
    """
    problem = fit.problem
    mask, shard = problem.weight > 0, problem.rows.shard
    smooth = len(final.basis) > 0 and (problem.loss.quadratic or not problem.loss.for_numbers)
    cells = problem.plan.memory_limit // 64  # some copies of a tile and its square
    levers = min(len(final.basis), LEVERS, math.isqrt(cells // 2))
    wanted = min(max(ROWS, 2 * levers), max(cells // max(levers, 1), FEW_ROWS)) if smooth else ROWS
    share, rows = min(wanted / problem.n_candidates, 1.0), shard.spaced(mask, wanted)
    seen, y = problem.basis(rows), problem.pick(problem.y, rows).double()
    weight = problem.rows.pick(problem.weight, rows)
    values = _values(final, seen)
    if smooth:
        slope, curvature = (part(y, values) for part in (problem.loss.residual, problem.loss.curvature))
        curvature = curvature.expand_as(values)
        same = problem.loss.quadratic  # outputs then share their leverages
        for k in range(values.shape[1]):
            if k == 0 or not same:
                h = _leverages(final, seen, weight.double() * curvature[:, k], share, levers)
            bent = curvature[:, k].clamp(min=1e-12)
            values[:, k] -= slope[:, k] * (h / bent) / (1 - h)
    return _outside(fit, single, rows, values, seen)


def _outside(fit: ForwardFit, single: np.ndarray | None, rows: Tensor, values: Tensor, seen: Tensor) -> Outside:
    """Values of some rows with targets of single rows, where the problem's are means, and the weights of all rows."""
    problem = fit.problem
    targets = problem.y if single is None else torch.as_tensor(single).to(problem.y)
    weight = problem.weight if fit.validation is None else problem.counted()
    targets, weight = problem.pick(targets, rows), problem.rows.pick(weight, rows)
    f, y, w = (part.double().cpu().numpy() for part in (values, targets, weight))
    return Outside(f, y, w, seen, rows)


def _values(final: Final, rows: Tensor) -> Tensor:
    parts = zip(final.basis.split(TILED), final.weights.split(TILED), strict=True)
    total = rows.new_zeros(len(rows), final.weights.shape[1], dtype=torch.float64)
    return sum((final.kernel(rows.double(), Z.double()) @ W for Z, W in parts), total)


def _leverages(final: Final, rows: Tensor, weight: Tensor, share: float, levers: int) -> Tensor:
    """How far each row pulls the model at itself; of very many basis vectors some stand for all."""
    m = len(final.basis)
    Z = final.basis[torch.linspace(0, m - 1, min(m, levers)).long()].double()
    h = leverages(final.kernel(rows.double(), Z), weight, final.lam * final.kernel(Z, Z), share)
    return (h * (m / len(Z))).clamp(max=LARGEST)
