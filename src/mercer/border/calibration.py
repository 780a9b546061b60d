"""From decision values to probabilities, by numbers fitted on rows that the model did not learn from.

A temperature for decision values of any scale. Least squares on centred codes estimates the probabilities themselves,
so there a floor and an exponent take its place (`mercer.tuning.link`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_expit, log_softmax, softmax

from mercer.border.targets import ClassTargets
from mercer.losses import Logistic, Loss, Softmax
from mercer.tuning.link import Codes, fitted_link


def probabilities(values: np.ndarray, temperature: float) -> np.ndarray:
    """Class probabilities from decision values: a sigmoid for one column, softmax for more.

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


@dataclass(frozen=True)
class Temperature:
    """Decision values divided by one number, then a sigmoid or softmax."""

    temperature: float = 1.0

    def probabilities(self, decisions: np.ndarray) -> np.ndarray:
        return probabilities(decisions, self.temperature)


@dataclass(frozen=True)
class FloorAndPower:
    """p ∝ max(p̂, floor)^exponent, where p̂ = (1 + decision) / 2.

    >>> FloorAndPower(0.01, 1.0).probabilities(np.array([[0.5]]))
    array([[0.25, 0.75]])
    """

    floor: float
    exponent: float

    def probabilities(self, decisions: np.ndarray) -> np.ndarray:
        p = (1 + decisions) / 2
        p = np.column_stack([1 - p, p]) if p.shape[1] == 1 else p
        return softmax(self.exponent * np.log(np.maximum(p, self.floor)), axis=1)


def calibration_error(p: np.ndarray, truth: np.ndarray, weight: np.ndarray, bins: int = 15) -> float:
    """Expected calibration error: by how much the probability of the likeliest class is off, on average over its bins.

    `p` is n × classes, `truth` the place of each row's class.

    >>> calibration_error(np.array([[0.2, 0.8], [0.2, 0.8]]), np.array([1, 0]), np.ones(2))
    0.3...
    """
    sure, right = p.max(1), p.argmax(1) == truth
    which = np.minimum((sure * bins).astype(int), bins - 1)
    gap = np.bincount(which, weights=weight * (sure - right), minlength=bins)
    return float(np.abs(gap).sum() / weight.sum())


def cross_fitted(
    targets: ClassTargets, values: np.ndarray, Y: np.ndarray, weight: np.ndarray, loss: Loss
) -> tuple[float, float]:
    """Log loss and calibration error of the probabilities of rows, each half calibrated by the other one."""
    p = np.empty((len(Y), len(targets.classes)))
    for half in (slice(0, None, 2), slice(1, None, 2)):
        others = np.ones(len(Y), dtype=bool)
        others[half] = False
        link = fit_calibration(targets, values[others], Y[others], weight[others], loss)
        p[half] = link.probabilities(targets.decisions(values[half]))
    codes = targets.decisions(Y)
    truth = (codes[:, 0] > 0).astype(int) if codes.shape[1] == 1 else codes.argmax(1)
    own = np.log(np.clip(p[np.arange(len(p)), truth], 1e-15, None))
    return float(-(weight @ own) / weight.sum()), calibration_error(p, truth, weight)


def fit_calibration(targets: ClassTargets, values: Any, Y: np.ndarray, weight: np.ndarray, loss: Loss) -> Any:
    """What makes the classes `Y` (coded, n × p) most likely from the values of a model that did not learn from them."""
    if isinstance(loss, Logistic | Softmax) or len(Y) == 0:
        return Temperature()
    decisions, codes = values + targets.offset, Y + targets.offset
    if np.all(targets.offset == 0):
        return Temperature(fit_temperature(decisions, codes, weight))
    ends = torch.full((Y.shape[1],), -1.0, dtype=torch.float64), torch.full((Y.shape[1],), 2.0, dtype=torch.float64)
    link = fitted_link(Codes(*ends), *(torch.as_tensor(a) for a in (decisions, codes, weight)))
    return FloorAndPower(link.floor / max(Y.shape[1], 2), link.exponent)  # a link's floor is in shares of 1/classes
