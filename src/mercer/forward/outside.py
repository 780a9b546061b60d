"""What a forward model says of rows it did not learn from: held out, left out by a formula, or, at last, of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mercer.forward.loop import ForwardFit
from mercer.forward.solve.exact import AllRows
from mercer.forward.stages import Final

#: Rows looked at, at most.
ROWS = 2000


@dataclass(frozen=True)
class Outside:
    """Values (n × p), coded targets and weights of some rows."""

    values: np.ndarray
    targets: np.ndarray
    weight: np.ndarray


def outside_values(fit: ForwardFit, final: Final) -> Outside:
    """Rows held out if there are any; of an exact solution rows left out in turn; else rows of the training table."""
    problem, held_out, learner = fit.problem, fit.validation, fit.learner
    left_out = learner.left_out if held_out is None and isinstance(learner, AllRows) else None
    mask = problem.weight > 0
    if held_out is not None:
        mask = torch.zeros_like(mask)
        mask[held_out] = True
    if left_out is not None:
        mask = mask & left_out.isfinite().all(1)
    rows = problem.rows.shard.spaced(mask, ROWS)
    if left_out is not None:
        values = left_out[rows]
    else:
        values = final.kernel(problem.basis(rows).double(), final.basis.double()) @ final.weights
    weight = problem.rows.pick(problem.weight, rows) if held_out is None else problem.weight.new_ones(len(rows))
    return Outside(_host(values), _host(problem.pick(problem.y, rows)), _host(weight))


def _host(values: Tensor) -> np.ndarray:
    return values.double().cpu().numpy()
