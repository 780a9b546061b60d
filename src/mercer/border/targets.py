"""Targets at the border: what users call y, and the numbers algorithms see."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_expit, log_softmax, softmax


@dataclass(frozen=True)
class RealTargets:
    """Numbers, centred and scaled to unit variance; one column per output."""

    mean: np.ndarray
    scale: float
    flat: bool

    @classmethod
    def of(cls, y: np.ndarray, weight: np.ndarray) -> RealTargets:
        Y = y.reshape(len(y), -1).astype(np.float64)
        mean = np.average(Y, axis=0, weights=weight)
        variance = float(np.average((Y - mean) ** 2, axis=0, weights=weight).mean())
        # a constant target has only rounding left once its mean is gone
        scale = variance**0.5 if variance > (1e-14 * float(np.abs(mean).max(initial=0.0))) ** 2 else 1.0
        return cls(mean, scale, y.ndim == 1)

    def encode(self, y: np.ndarray) -> np.ndarray:
        return (y.reshape(len(y), -1).astype(np.float64) - self.mean) / self.scale

    def decode(self, values: np.ndarray) -> np.ndarray:
        Y = values * self.scale + self.mean
        return Y[:, 0] if self.flat else Y


@dataclass(frozen=True)
class ClassTargets:
    """Classes as ±1: one column for two classes, one against the rest for more."""

    classes: np.ndarray

    def encode(self, y: np.ndarray) -> np.ndarray:
        if len(self.classes) == 2:
            return np.where(y == self.classes[1], 1.0, -1.0)[:, None]
        return np.where(y[:, None] == self.classes, 1.0, -1.0)

    def decode(self, values: np.ndarray) -> np.ndarray:
        if values.shape[1] == 1:
            return self.classes[(values[:, 0] > 0).astype(int)]
        return self.classes[values.argmax(1)]


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
