"""Calibration: the map from decision values to probabilities, fitted to held-out or out-of-fold decision values.

A temperature suits decision values of any scale. Least squares on centred codes estimates probabilities themselves, so
a floor and an exponent take its place there (`mercer.selection.score`). Both are shrunk where rows are few: the
temperature is fitted to Platt's smoothed targets. On the calibration rows the log loss is never above that of the
class frequencies, towards which probabilities are shrunk where they would be worse (`Shrunk`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_expit, log_softmax, softmax

from mercer.preprocessing.inputs import ClassTargets, LabelTargets
from mercer.selection.score import Codes, fitted_link, logit_losses, shrinkage_factor

#: Least share of shrinkage; less is not worth another record in the model.
LEAST_SHARE = 0.01
#: The least probability whose logarithm is taken.
TINY = np.finfo(float).tiny
#: Relative margin by which the predicted class stays the most probable one after shrinking.
MARGIN = 1e-5


def fit_temperature(values: np.ndarray, Y: np.ndarray, weight: np.ndarray) -> float:
    """The temperature that maximises the likelihood of the classes `Y` (±1).

    Targets are smoothed as by Platt: each class gets one more row of every class, so that no temperature is zero,
    however well a few rows are separated. One temperature keeps the order of decision values, so predictions and
    probabilities agree.
    """
    true, weight = class_indices(Y), weight / weight[weight > 0].mean()
    n_classes = max(Y.shape[1], 2)
    size = np.bincount(true, weights=weight, minlength=n_classes)
    soft = (np.eye(n_classes) * size[:, None] + 1) / (size[:, None] + n_classes)  # a row for each class
    soft = soft[true]

    def negative_log_likelihood(log_t: float) -> float:
        scaled = values / np.exp(log_t)
        if values.shape[1] == 1:
            logs = np.column_stack([log_expit(-scaled), log_expit(scaled)])
        else:
            logs = log_softmax(scaled, axis=1)
        return -float(weight @ (soft * logs).sum(1))

    return float(np.exp(minimize_scalar(negative_log_likelihood, bounds=(-7.0, 7.0), method="bounded").x))


def class_indices(Y: np.ndarray) -> np.ndarray:
    """The index of each row's class, from codes n × p that are largest there."""
    return (Y[:, 0] > 0).astype(int) if Y.shape[1] == 1 else Y.argmax(1)


@dataclass(frozen=True)
class Temperature:
    """A sigmoid (one column) or softmax (more columns) of decision values divided by a temperature.

    >>> Temperature().probabilities(np.array([[0.0]])).tolist()
    [[0.5, 0.5]]
    """

    temperature: float = 1.0

    def probabilities(self, decisions: np.ndarray) -> np.ndarray:
        if decisions.shape[1] == 1:
            p = expit(decisions[:, 0] / self.temperature)
            return np.column_stack([1 - p, p])
        return softmax(decisions / self.temperature, axis=1)


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


@dataclass(frozen=True)
class Shrunk:
    """Probabilities of `link` shrunk towards `rates`: (1 − share) p + share · rates.

    The class of largest p stays the most probable one, so that probabilities and predictions agree: its probability is
    raised to just above that of the others.

    >>> Shrunk(Temperature(), 0.5, np.array([0.2, 0.8])).probabilities(np.array([[1.0], [-1.0]])).round(3)
    array([[0.234, 0.766],
           [0.5  , 0.5  ]])
    """

    link: Temperature | FloorAndPower
    share: float
    rates: np.ndarray

    def probabilities(self, decisions: np.ndarray) -> np.ndarray:
        p = self.link.probabilities(decisions)
        mixed = (1 - self.share) * p + self.share * self.rates
        rows, predicted = np.arange(len(p)), p.argmax(1)
        raised = (1 + MARGIN) * mixed.max(1)
        mixed[rows, predicted] = np.where(mixed.argmax(1) == predicted, mixed[rows, predicted], raised)
        return mixed / mixed.sum(1, keepdims=True)


@dataclass(frozen=True)
class LabelLinks:
    """The link of each label, where rows have several: probabilities of their presence, n × L."""

    links: tuple[Temperature | FloorAndPower | Shrunk, ...]

    def probabilities(self, decisions: np.ndarray) -> np.ndarray:
        each = [link.probabilities(decisions[:, [k]])[:, 1] for k, link in enumerate(self.links)]
        return np.column_stack(each)


def shrink_towards_rates(
    link: Any, decisions: np.ndarray, true: np.ndarray, weight: np.ndarray, chosen: int = 1
) -> Any:
    """`link`, shrunk by the share of its gain over the class frequencies (`rates`) that may be chance.

    The gain of d numbers that were `chosen` by n rows is d/n by chance. With the rest g of the mean gain and its
    standard error e, James and Stein shrink by the share ½ (e/g)². Probabilities are shrunk towards equal ones, which
    keep the decision, unless the rates are better by more than chance. If the rates alone are still better on these
    rows, more of them is mixed in. The log loss is convex in their share and ends at that of the rates, so the result
    is no worse on these rows, except for those whose decision is kept.
    """
    alive = weight > 0
    decisions, true, weight = decisions[alive], true[alive], weight[alive] / weight[alive].sum()
    probability = link.probabilities(decisions)
    n_classes, n_rows = probability.shape[1], 1 / float((weight**2).sum())
    rates = class_rates(true, weight, n_classes, 1 / n_rows)
    p, rate = probability[np.arange(len(true)), true], rates[true]  # of the true class

    def loss(q: np.ndarray) -> float:
        return -float(weight @ np.log(np.maximum(q, TINY)))

    share = shrinkage_share(np.log(np.maximum(p, TINY) / rate), weight, chosen / n_rows)
    target, mixed = np.full(n_classes, 1 / n_classes), (1 - share) * p + share / n_classes
    by_rates = (1 - share) * p + share * rate
    if loss(mixed) > loss(by_rates) + (n_classes - 1) / n_rows:
        target, mixed = rates, by_rates
    more = 0.0
    if loss(mixed) > loss(rate):
        more = float(minimize_scalar(lambda m: loss((1 - m) * mixed + m * rate), bounds=(0.0, 1.0), method="bounded").x)
        more = more if loss((1 - more) * mixed + more * rate) < loss(rate) else 1.0
    kept = (1 - more) * (1 - share)
    both = (1 - more) * share * target + more * rates  # towards which both shrinkages together shrink
    return link if kept > 1 - LEAST_SHARE else Shrunk(link, 1 - kept, both / both.sum())


def class_rates(true: np.ndarray, weight: np.ndarray, n_classes: int, least: float) -> np.ndarray:
    """Frequencies of the classes; those that none of these rows has share `least`, so that they stay possible."""
    rates = np.bincount(true, weights=weight, minlength=n_classes)
    absent = rates == 0
    rates[absent] = least / max(absent.sum(), 1)
    return rates / rates.sum()


def shrinkage_share(gain: np.ndarray, weight: np.ndarray, chance: float) -> float:
    """The share of a gain that may be chance, ½ (standard error / (gain − chance))²; weights have sum one."""
    return 1 - shrinkage_factor(torch.as_tensor(gain - chance), torch.as_tensor(weight))


def calibration_error(p: np.ndarray, truth: np.ndarray, weight: np.ndarray, bins: int = 15) -> float:
    """Expected calibration error: the mean error of the largest probability, by bins of it.

    `p` is n × classes, `truth` the index of each row's class.

    >>> calibration_error(np.array([[0.2, 0.8], [0.2, 0.8]]), np.array([1, 0]), np.ones(2))
    0.3...
    """
    sure, right = p.max(1), p.argmax(1) == truth
    which = np.minimum((sure * bins).astype(int), bins - 1)
    gap = np.bincount(which, weights=weight * (sure - right), minlength=bins)
    return float(np.abs(gap).sum() / weight.sum())


def cross_fitted(
    targets: ClassTargets,
    values: np.ndarray,
    Y: np.ndarray,
    weight: np.ndarray,
    first_half: np.ndarray | None = None,
    *,
    log_odds: bool = False,
) -> tuple[float, float]:
    """Log loss and calibration error of rows, each half calibrated by the other half: every second row, or a mask."""
    p = np.empty((len(Y), len(targets.classes)))
    first = np.arange(len(Y)) % 2 == 0 if first_half is None else first_half
    for half, others in ((first, ~first), (~first, first)):
        link = fit_calibration(targets, values[others], Y[others], weight[others], log_odds=log_odds)
        p[half] = link.probabilities(targets.decisions(values[half]))
    truth = class_indices(targets.decisions(Y))
    logs = np.log(np.clip(p[np.arange(len(p)), truth], 1e-15, None))
    return float(-(weight @ logs) / weight.sum()), calibration_error(p, truth, weight)


def fit_calibration(
    targets: ClassTargets, values: Any, Y: np.ndarray, weight: np.ndarray, chosen: int = 1, *, log_odds: bool = False
) -> Any:
    """Fit the map from held-out or out-of-fold `values` to probabilities of the classes `Y` (coded, n × p).

    `chosen` is the number of parameters that these rows chose: the map's, and those that the model was tuned by. Values
    of models that maximise a likelihood are `log_odds` already.
    """
    alive = weight > 0
    if not alive.any():
        return Temperature()
    decisions, codes, weight = (values + targets.offset)[alive], (Y + targets.offset)[alive], weight[alive]
    true = class_indices(codes)
    link = _log_odds_link(decisions, true, weight) if log_odds else _link(targets, decisions, codes, weight)
    return shrink_towards_rates(link, decisions, true, weight, chosen)


def fit_label_links(
    targets: LabelTargets, values: Any, Y: np.ndarray, weight: np.ndarray, chosen: int = 1
) -> LabelLinks:
    """Fit the map of each label from held-out `values` to the probability of its presence."""
    decisions, codes = targets.decisions(values), targets.decisions(Y)
    links = []
    for k, mean in enumerate(targets.mean):
        label = ClassTargets(targets.classes[k], np.array([mean]))
        links.append(fit_calibration(label, decisions[:, [k]] - mean, codes[:, [k]] - mean, weight, chosen))
    return LabelLinks(tuple(links))


def _log_odds_link(decisions: np.ndarray, true: np.ndarray, weight: np.ndarray) -> Temperature:
    """The temperature of least log loss; near one, unless its gain exceeds chance."""
    F, classes, w = torch.as_tensor(decisions), torch.as_tensor(true), torch.as_tensor(weight)
    factor = float(logit_losses(F, classes, w / w.sum())[1])
    rows = np.arange(len(true))
    p, q = (Temperature(t).probabilities(decisions)[rows, true] for t in (1 / factor, 1.0))
    gain = torch.as_tensor(np.log(np.maximum(p, TINY) / np.maximum(q, TINY)))
    return Temperature(factor ** -shrinkage_factor(gain, w))


def _link(targets: ClassTargets, decisions: np.ndarray, codes: np.ndarray, weight: np.ndarray) -> Any:
    if np.all(targets.offset == 0):
        return Temperature(fit_temperature(decisions, codes, weight))
    p = codes.shape[1]
    ends = torch.full((p,), -1.0, dtype=torch.float64), torch.full((p,), 2.0, dtype=torch.float64)
    link = fitted_link(Codes(*ends), *(torch.as_tensor(a) for a in (decisions, codes, weight)))
    return FloorAndPower(link.floor / max(p, 2), link.exponent)  # a link's floor is in units of 1/classes
