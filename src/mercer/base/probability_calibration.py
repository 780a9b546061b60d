"""Calibration of models that estimate class probabilities themselves: a floor, an exponent, and a bias of each class.

Probabilities of densities and of latent functions are too extreme, and their error differs from class to class. The
calibrated ones are p ∝ r ((p̂ + floor)/r)^exponent e^bias with the class frequencies r. The exponent zero gives r
itself, so that a model without information ends at the class frequencies; a temperature alone would end at equal
probabilities. The floor bounds the influence of rows whose class has no density at all, which one temperature cannot.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from mercer.base.calibration import class_rates, shrinkage_share

#: Logarithms of the floors that are tried.
LOG_FLOORS = tuple(-(2.0**k) for k in range(10))
#: Largest exponent.
LARGEST_EXPONENT = 3.0
#: Variance of the biases before any row is seen.
BIAS_VARIANCE = 1.0
#: Rows of unknown class for each class, against certainty from a few rows without a mistake (Agresti and Coull, 1998).
UNKNOWN_ROWS = 2.0


@dataclass(frozen=True)
class PowerAndBias:
    """p ∝ (p̂ + floor)^exponent e^bias, of the logarithms of p̂ (n × classes).

    >>> PowerAndBias.identity(2).probabilities(np.log([[0.8, 0.2]])).round(3)
    array([[0.8, 0.2]])
    >>> PowerAndBias(-50.0, 0.5, np.log([1.0, 2.0])).probabilities(np.log([[0.8, 0.2]])).round(3)
    array([[0.5, 0.5]])
    """

    log_floor: float
    exponent: float
    bias: np.ndarray

    @classmethod
    def identity(cls, n_classes: int) -> PowerAndBias:
        return cls(float(np.log(np.finfo(float).tiny)), 1.0, np.zeros(n_classes))

    def probabilities(self, log_p: np.ndarray) -> np.ndarray:
        return softmax(self.exponent * np.logaddexp(log_p, self.log_floor) + self.bias, axis=1)


@dataclass(frozen=True)
class LabelledProbabilities:
    """Logarithms of estimated probabilities (n × classes), the index of each row's class, and weights."""

    log_p: np.ndarray
    true: np.ndarray
    weight: np.ndarray

    @property
    def alive(self) -> LabelledProbabilities:
        """The rows of positive weight, whose mean becomes one."""
        kept = self.weight > 0
        weight = self.weight[kept]
        return LabelledProbabilities(
            self.log_p[kept], self.true[kept], weight / weight.mean() if len(weight) else weight
        )

    @property
    def rates(self) -> np.ndarray:
        """Frequencies of the classes; those without a row share one row."""
        share = self.weight / self.weight.sum()
        return class_rates(self.true, share, self.log_p.shape[1], float((share**2).sum()))

    def gain(self, link: PowerAndBias, rates: np.ndarray) -> np.ndarray:
        """How much larger the log probability of each row's class is under `link` than under `rates`."""
        log_p = np.log(np.maximum(link.probabilities(self.log_p), np.finfo(float).tiny))
        return log_p[np.arange(len(self.true)), self.true] - np.log(rates)[self.true]


def log_probabilities(p: np.ndarray) -> np.ndarray:
    """Logarithms of probabilities (n × classes), whose rows are scaled to sum one, clipped away from zero."""
    return np.log(np.maximum(p / p.sum(1, keepdims=True), np.finfo(float).tiny))


def fit_power_and_bias(held_out: LabelledProbabilities, largest_exponent: float = LARGEST_EXPONENT) -> PowerAndBias:
    """Fit floor, exponent and biases to held-out rows, and shrink them to the class frequencies.

    The shrinkage is the share of the gain over the frequencies that may be chance, after d/2n are taken off: the gain
    that d = classes − 1 biases have by chance on n rows (Wilks). A `largest_exponent` of one lets held-out rows weaken
    the probabilities alone, where the model's kernels have seen these rows.
    """
    rows = held_out.alive
    n_classes = held_out.log_p.shape[1]
    if not len(rows.true):
        return PowerAndBias.identity(n_classes)
    rates = rows.rates
    trials, theta = [], np.concatenate([[0.5], np.zeros(n_classes)])
    for log_floor in LOG_FLOORS:  # the solution of one floor is near that of the next
        value, theta, link = _fitted(rows, rates, log_floor, largest_exponent, theta)
        trials.append((value, link))
    found = min(trials, key=lambda trial: trial[0])[1]
    weight = rows.weight / rows.weight.sum()
    chance = 0.5 * (n_classes - 1) * float(weight @ weight)
    share = shrinkage_share(rows.gain(found, rates), weight, chance)
    # log odds over the rates are 1 − share times as large: the log loss is convex in the share
    bias = (1 - share) * found.bias + share * np.log(rates)
    return PowerAndBias(found.log_floor, (1 - share) * found.exponent, bias)


def _fitted(
    rows: LabelledProbabilities, rates: np.ndarray, log_floor: float, largest_exponent: float, start: np.ndarray
) -> tuple[float, np.ndarray, PowerAndBias]:
    """The penalised log loss of the best exponent and biases with this floor, a convex problem, these, and the link."""
    n_classes, log_rates = len(rates), np.log(rates)
    excess = np.logaddexp(rows.log_p, log_floor) - log_rates
    n_rows = rows.weight.sum()
    unknown = UNKNOWN_ROWS * n_classes
    wanted = (n_rows * np.eye(n_classes)[rows.true] + unknown * rates) / (n_rows + unknown)

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        exponent, bias = theta[0], theta[1:]
        log_p = log_softmax(log_rates + exponent * excess + bias, axis=1)
        slope = rows.weight[:, None] * (np.exp(log_p) - wanted)
        value = -(rows.weight @ (wanted * log_p).sum(1)) + 0.5 * bias @ bias / BIAS_VARIANCE
        return value, np.concatenate([[(slope * excess).sum()], slope.sum(0) + bias / BIAS_VARIANCE])

    bounds = [(0.0, largest_exponent)] + [(None, None)] * n_classes
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
    exponent, bias = float(found.x[0]), found.x[1:]
    return float(found.fun), found.x, PowerAndBias(log_floor, exponent, (1 - exponent) * log_rates + bias)
