"""What a forward model says of rows it did not learn from: held out, left out by a formula, or, at last, of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mercer.border.left_out import LARGEST, leverages
from mercer.data import TensorRows
from mercer.engine import KernelMatrix
from mercer.forward.loop import ForwardFit
from mercer.forward.solve.exact import AllRows
from mercer.forward.stages import Final

#: Rows looked at, at most, and at least where there is little memory.
ROWS, FEW_ROWS = 2000, 50
#: Basis vectors whose leverages are found at most: their algebra grows as the cube.
LEVERS = 2000
#: Basis vectors that a tile of these rows holds at a time.
TILED = 10_000


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


def outside_values(fit: ForwardFit, final: Final, single: np.ndarray | None = None, *, numbers: bool) -> Outside:
    """Rows held out if there are any; of an exact solution rows left out in turn; else rows of the training table.

    Numbers fitted by least squares are then left out by their leverages, the basis vectors staying as they are.
    Targets may be means of several rows: `single` are those of one each.
    """
    if fit.validation is not None:
        return watched_values(fit, final, single, ROWS)
    problem, learner = fit.problem, fit.learner
    left_out = learner.left_out if isinstance(learner, AllRows) else None
    mask, shard = problem.weight > 0, problem.rows.shard
    targets = problem.y if single is None else torch.as_tensor(single).to(problem.y)
    if left_out is not None and bool((known := mask & left_out.isfinite().all(1)).any()):  # none of a single row
        rows = shard.spaced(known, ROWS)
        return Outside(*_host(left_out[rows], targets[rows], problem.weight[rows]), problem.basis(rows))
    fair = numbers and problem.loss.quadratic and len(final.basis) > 0
    cells = problem.plan.memory_limit // 64  # some copies of a tile and its square
    levers = min(len(final.basis), LEVERS, math.isqrt(cells // 2))
    wanted = min(max(ROWS, 2 * levers), max(cells // max(levers, 1), FEW_ROWS)) if fair else ROWS
    share, rows = min(wanted / problem.n_candidates, 1.0), shard.spaced(mask, wanted)
    seen, y = problem.basis(rows), problem.pick(problem.y, rows).double()
    weight = problem.rows.pick(problem.weight, rows)
    values = _values(final, seen)
    if fair:
        pull = _leverages(final, seen, weight, share, levers)
        values = y - (y - values) / (1 - pull[:, None])
    return Outside(*_host(values, problem.pick(targets, rows), weight), seen, fair)


def watched_values(fit: ForwardFit, final: Final, single: np.ndarray | None, most: int) -> Outside:
    """What a model says of its rows held out, of `most` of them."""
    problem = fit.problem
    targets = problem.y if single is None else torch.as_tensor(single).to(problem.y)
    mask = torch.zeros_like(problem.weight, dtype=torch.bool)
    mask[fit.validation] = True
    rows = problem.rows.shard.spaced(mask, most)
    seen = problem.basis(rows)
    values = KernelMatrix(TensorRows(seen), final.kernel, final.basis, problem.plan).product(final.weights)
    weight = problem.sample.watched
    weight = torch.ones(len(rows)) if weight is None else problem.rows.pick(weight, rows)
    return Outside(*_host(values, problem.pick(targets, rows), weight), seen)


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


def _host(values: Tensor, targets: Tensor, weight: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    values, targets, weight = (part.double().cpu() for part in (values, targets, weight))
    return values.numpy(), targets.numpy(), weight.numpy()
