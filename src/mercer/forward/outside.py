"""What a forward model says of rows it did not learn from: held out, left out by a formula, or, at last, of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mercer.border.left_out import LARGEST, leverages
from mercer.forward.loop import ForwardFit
from mercer.forward.solve.exact import AllRows
from mercer.forward.stages import Final

#: Rows looked at, at most, and at least where there is little memory.
ROWS, FEW_ROWS = 2000, 50
#: Basis vectors whose leverages are found at most: their algebra grows as the cube.
LEVERS = 2000


@dataclass(frozen=True)
class Outside:
    """Values (n × p), coded targets and weights of some rows, and the rows themselves as the kernel sees them.

    `fair` says that the model did not learn from them, or that its values are as if it had not.
    """

    values: np.ndarray
    targets: np.ndarray
    weight: np.ndarray
    rows: Tensor
    fair: bool = True


def outside_values(fit: ForwardFit, final: Final, *, numbers: bool) -> Outside:
    """Rows held out if there are any; of an exact solution rows left out in turn; else rows of the training table.

    Numbers fitted by least squares are then left out by their leverages, the basis vectors staying as they are.
    """
    problem, held_out, learner = fit.problem, fit.validation, fit.learner
    left_out = learner.left_out if held_out is None and isinstance(learner, AllRows) else None
    rows = problem.candidates() if held_out is None else held_out
    if left_out is not None:
        rows = rows[left_out[rows].isfinite().all(1)]
        rows = rows[_spaced(len(rows), ROWS)]
        return _outside(left_out[rows], problem.y[rows], problem.weight[rows], problem.basis(rows))
    if held_out is not None:
        rows = rows[_spaced(len(rows), ROWS)]
        seen = problem.basis(rows)
        return _outside(_values(final, seen), problem.y[rows], torch.ones(len(rows)), seen)
    fair = numbers and problem.loss.quadratic and len(final.basis) > 0
    cells = problem.plan.memory_limit // 64  # some copies of a tile and its square
    levers = min(len(final.basis), LEVERS, math.isqrt(cells // 2))
    wanted = min(max(ROWS, 2 * levers), max(cells // max(levers, 1), FEW_ROWS)) if fair else ROWS
    share, rows = min(wanted / len(rows), 1.0), rows[_spaced(len(rows), wanted)]
    seen, y, weight = problem.basis(rows), problem.y[rows].double(), problem.weight[rows]
    values = _values(final, seen)
    if fair:
        values = y - (y - values) / (1 - _leverages(final, seen, weight, share, levers)[:, None])
    return _outside(values, y, weight, seen, fair)


def _values(final: Final, rows: Tensor) -> Tensor:
    return final.kernel(rows.double(), final.basis.double()) @ final.weights


def _leverages(final: Final, rows: Tensor, weight: Tensor, share: float, levers: int) -> Tensor:
    """How far each row pulls the model at itself; of very many basis vectors some stand for all."""
    m = len(final.basis)
    Z = final.basis[_spaced(m, levers)].double()
    h = leverages(final.kernel(rows.double(), Z), weight, final.lam * final.kernel(Z, Z), share)
    return (h * (m / len(Z))).clamp(max=LARGEST)


def _spaced(n: int, wanted: int) -> Tensor:
    return torch.linspace(0, n - 1, min(n, wanted)).long()


def _outside(values: Tensor, y: Tensor, weight: Tensor, rows: Tensor, fair: bool = True) -> Outside:
    f, targets, w = (part.double().cpu().numpy() for part in (values, y, weight))
    return Outside(f, targets, w, rows, fair)
