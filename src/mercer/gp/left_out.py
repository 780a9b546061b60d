r"""What a Gaussian process would say of its rows, each left out in turn, all else staying as it is.

With latent variance :math:`v_i = (k_{ii} - q_{ii}) + g_i`, g the part that the posterior brings, and the noise
:math:`\Lambda_i = \alpha (k_{ii} - q_{ii}) + \sigma^2/w_i` that the targets are fitted with, row i has the leverage
:math:`h_i = g_i/\Lambda_i`; left out, its residual is :math:`r_i/(1 - h_i)` and g becomes :math:`g_i/(1 - h_i)`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from torch import Tensor

from mercer.border.intervals import Intervals
from mercer.border.left_out import LARGEST
from mercer.engine.sample import Sample
from mercer.evidence.approximations import Approximation
from mercer.gp.model import FittedGP

#: Rows that are asked at most, and as many as make other rows than those of a subset worth asking.
ASKED_ROWS, ENOUGH_ROWS = 2000, 100


def left_out_intervals(model: FittedGP, approximation: Approximation, data: Sample) -> Intervals:
    """Residuals over standard deviations of new targets, which are the scale of this family."""
    if approximation.dense:
        return _dense(model, data)
    some = data.part(data.spaced(ASKED_ROWS))
    posterior = model.posterior
    mean, total = posterior.moments(model.kernel, some.rows, some.plan)
    _, brought = replace(posterior, explained=None).moments(model.kernel, some.rows, some.plan)
    g, rest = brought[:, 0, 0], (total - brought)[:, 0, 0].clamp(min=0)
    fitted_noise = approximation.alpha * rest + model.noise / some.weight.double()
    left = 1 - (g / fitted_noise).clamp(max=LARGEST)
    std = (rest + g / left + model.predictive_noise).sqrt()
    return _scores((some.Y.double() - mean) / left[:, None], std, some.weight)


def _dense(model: FittedGP, data: Sample) -> Intervals:
    """Rows that the subset left alone, or those of the full model by its own formula."""
    others = np.setdiff1d(data.alive, model.index)
    fresh = len(others) >= ENOUGH_ROWS
    rows = others if fresh else model.index
    some = data.part(rows[np.linspace(0, len(rows) - 1, min(len(rows), ASKED_ROWS)).astype(int)])
    mean, total = model.posterior.moments(model.kernel, some.rows, some.plan)
    v, noise = total[:, 0, 0], model.noise / some.weight.double()
    left = v.new_ones(len(v)) if fresh else 1 - (v / noise).clamp(max=LARGEST)
    return _scores((some.Y.double() - mean) / left[:, None], (v / left + model.predictive_noise).sqrt(), some.weight)


def _scores(residuals: Tensor, std: Tensor, weight: Tensor) -> Intervals:
    r, s, w = (part.double().cpu().numpy() for part in (residuals, std, weight))
    return Intervals.of(r / np.maximum(s, np.finfo(float).tiny)[:, None], w)
