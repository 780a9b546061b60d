"""From decision values to probabilities: one temperature, fitted on rows that the model did not learn from."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_expit, log_softmax, softmax


def probabilities(values: np.ndarray, temperature: float) -> np.ndarray:
    """Class probabilities from decision values: a sigmoid for one column, softmax for more.

    >>> import numpy as np
    >>> probabilities(np.array([[0.0]]), 1.0).tolist()
    [[0.5, 0.5]]
    """
    if values.shape[1] == 1:
        p = expit(values[:, 0] / temperature)
        return np.column_stack([1 - p, p])
    return softmax(values / temperature, axis=1)


def fit_temperature(values: np.ndarray, Y: np.ndarray, weight: np.ndarray) -> float:
    """The temperature under which the classes `Y` (±1) are most likely; keeps the order of decision values.

    One number cannot move the decision, so predictions and probabilities agree.
    """

    def negative_log_likelihood(log_t: float) -> float:
        scaled = values / np.exp(log_t)
        if values.shape[1] == 1:
            return -float((weight * log_expit(Y * scaled)[:, 0]).sum())
        return -float((weight * np.where(Y > 0, log_softmax(scaled, axis=1), 0.0).sum(1)).sum())

    return float(np.exp(minimize_scalar(negative_log_likelihood, bounds=(-7.0, 7.0), method="bounded").x))
