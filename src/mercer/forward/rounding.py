"""The precision of predictions: float64 where the rounding of float32 tiles would show, measured on the fitted model.

Rounding in an expansion of m terms grows with the kernel's variance, the weights and √m, none of which is known before
the fit. An exact solution is found in float64 whatever the tiles, so most of its digits are lost in `predict` or not at
all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from mercer.data import TensorRows
from mercer.engine import KernelMatrix, Plan
from mercer.forward.held_out import Outside
from mercer.forward.stages import Final

#: Rounding of predictions shows above this share of the model's error: it adds 4e-4 to the mean squared error, a tenth
#: of what 12 000 rows with noise leave between the fit and the truth (0.4 %, five inputs, Matérn 5/2).
SHOWS = 0.02
#: Rows on which rounding is measured.
MEASURED_ROWS = 200


def rounded(final: Final, outside: Outside, plan: Plan, share: float = 1.0) -> np.ndarray:
    """By how much float32 tiles change the values of an expansion at some rows, root mean square of each output."""
    rows = outside.rows[:: max(len(outside.rows) // MEASURED_ROWS, 1)]

    def values(dtype: torch.dtype) -> torch.Tensor:
        tiles = replace(plan, dtype=dtype)
        matrix = KernelMatrix(TensorRows(rows.to(dtype)), final.kernel, final.basis.to(dtype), tiles)
        return matrix.product(final.weights).double()

    change = share * (values(torch.float32) - values(torch.float64))
    return change.square().mean(0).sqrt().cpu().numpy()


def shows(changes: Sequence[np.ndarray], residuals: np.ndarray, weight: np.ndarray) -> bool:
    """Whether rounding of any output, `changes` of several expansions, is above `SHOWS` of its error.

    >>> shows([np.array([0.03])], np.array([[1.0], [-1.0]]), np.ones(2))
    True
    >>> shows([np.array([0.01])], np.array([[1.0], [-1.0]]), np.ones(2))
    False
    """
    error = np.sqrt(np.average(residuals**2, axis=0, weights=weight))
    return bool((np.sqrt(np.sum(np.square(changes), axis=0)) > SHOWS * error).any())
