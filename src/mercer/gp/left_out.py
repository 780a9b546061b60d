r"""What a Gaussian process would say of its rows, each left out in turn, all else staying as it is.

With latent variance :math:`v_i = (k_{ii} - q_{ii}) + g_i`, g the part that the posterior brings, and the noise
:math:`\Lambda_i = \alpha (k_{ii} - q_{ii}) + \sigma^2/w_i` that the targets are fitted with, row i has the leverage
:math:`h_i = g_i/\Lambda_i`; left out, its residual is :math:`r_i/(1 - h_i)` and g becomes :math:`g_i/(1 - h_i)`.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy.optimize import minimize_scalar
from torch import Tensor

from mercer.base.intervals import CalibrationRows, Intervals
from mercer.base.out_of_fold import LARGEST
from mercer.data import RowSource
from mercer.engine.sample import Sample
from mercer.evidence.approximations import Approximation
from mercer.evidence.posterior import Posterior
from mercer.gp.model import FittedGP
from mercer.kernels import Kernel

#: Rows that are asked at most, and as many as make other rows than those of a subset worth asking.
ASKED_ROWS, ENOUGH_ROWS = 2000, 100
#: Rows that are asked for one number, the noise, which needs no more.
NOISE_ROWS = 10_000
#: The noise of predictions is within this factor of that of the evidence.
NOISE_RANGE = 1e4


def left_out_intervals(model: FittedGP, approximation: Approximation, data: Sample, given: RowSource) -> Intervals:
    """Residuals over standard deviations of new targets, which are the scale of this family, and a local one."""
    if approximation.dense:
        return _dense(model, data, given)
    index = data.spaced(ASKED_ROWS)
    some, mean, g, rest = _parts(model.posterior, model.kernel, data, index)
    fitted_noise = approximation.alpha * rest + model.noise / some.weight.double()
    left = 1 - (g / fitted_noise).clamp(max=LARGEST)
    std = (rest + g / left + model.predictive_noise).sqrt()
    shown = CalibrationRows.of(some.rows.take(np.arange(some.n_rows)), given, index)
    return _scores((some.Y.double() - mean) / left[:, None], std, mean, some.weight, shown)


def _parts(
    posterior: Posterior, kernel: Kernel, data: Sample, index: np.ndarray
) -> tuple[Sample, Tensor, Tensor, Tensor]:
    """Some rows, their means, and both parts of their latent variances: what the posterior brings, and the rest."""
    some = data.part(index)
    mean, total = posterior.moments(kernel, some.rows, some.plan)
    _, brought = replace(posterior, explained=None).moments(kernel, some.rows, some.plan)
    return some, mean, brought[:, 0, 0], (total - brought)[:, 0, 0].clamp(min=0)


def _dense(model: FittedGP, data: Sample, given: RowSource) -> Intervals:
    """Rows that the subset left alone, or those of the full model by its own formula."""
    others = np.setdiff1d(data.alive, model.index)
    fresh = len(others) >= ENOUGH_ROWS
    rows = others if fresh else model.index
    index = rows[np.linspace(0, len(rows) - 1, min(len(rows), ASKED_ROWS)).astype(int)]
    some = data.part(index)
    mean, total = model.posterior.moments(model.kernel, some.rows, some.plan)
    v, noise = total[:, 0, 0], model.noise / some.weight.double()
    left = v.new_ones(len(v)) if fresh else 1 - (v / noise).clamp(max=LARGEST)
    std = (v / left + model.predictive_noise).sqrt()
    shown = CalibrationRows.of(some.rows.take(np.arange(some.n_rows)), given, index)
    return _scores((some.Y.double() - mean) / left[:, None], std, mean, some.weight, shown)


def _scores(residuals: Tensor, std: Tensor, mean: Tensor, weight: Tensor, shown: CalibrationRows) -> Intervals:
    r, s, f, w = (part.double().cpu().numpy() for part in (residuals, std, mean, weight))
    return Intervals.fitted(r, s[:, None], f, w, shown)


def predictive_noise(posterior: Posterior, kernel: Kernel, noise: float, data: Sample) -> float:
    r"""The variance s² of new targets under which those of the rows, each left out in turn, are most likely.

    Titsias' bound charges what few inducing inputs leave unexplained to the noise, and predictions then add the
    unexplained variance again: on KIN40K with 512 inducing inputs intervals of 95 % cover 97.6 %. Here α is zero, so
    that :math:`\Lambda_i = \sigma^2`, and a row of weight w counts as w rows.
    """
    some, mean, g, rest = _parts(posterior, kernel, data, data.spaced(NOISE_ROWS))
    left = 1 - (g / noise).clamp(max=LARGEST)
    square = ((some.Y.double() - mean) / left[:, None]).square().mean(1)
    variance, weight = rest + g / left, some.weight.double()

    def surprise(log_noise: float) -> float:
        v = variance + math.exp(log_noise)
        return float((weight * (v.log() + square / v)).sum() / weight.sum())

    middle, reach = math.log(noise), math.log(NOISE_RANGE)
    found = minimize_scalar(
        surprise, bounds=(middle - reach, middle + reach), method="bounded", options={"xatol": 1e-4}
    )
    return math.exp(found.x)
