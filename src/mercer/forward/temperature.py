"""The temperature of a forward model's probabilities, from rows it did not learn from wherever there are any."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from mercer.border.calibration import fit_temperature
from mercer.forward.loop import ForwardFit
from mercer.forward.task import Final, Task
from mercer.losses import Logistic, Softmax

#: Rows looked at, at most.
ROWS = 5000


def temperature(task: Task, fit: ForwardFit, final: Final) -> float:
    """What decision values are divided by; logistic losses need nothing of the kind."""
    problem = fit.problem
    if isinstance(problem.loss, Logistic | Softmax) or len(final.basis) == 0:
        return 1.0
    held_out = fit.validation
    rows = problem.candidates() if held_out is None else held_out
    rows = rows[:: max(len(rows) // ROWS, 1)]
    values = final.kernel(problem.basis(rows).double(), final.basis.double()) @ final.weights
    weight = problem.weight[rows] if held_out is None else problem.weight.new_ones(len(rows))
    return fit_temperature(*(_host(a) for a in (values, problem.y[rows], weight)))


def _host(values: Tensor) -> np.ndarray:
    return values.double().cpu().numpy()
