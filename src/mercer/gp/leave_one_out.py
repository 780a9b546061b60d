r"""Leave-one-out predictions of a Gaussian process in closed form: its kernel and inducing inputs stay as they are.

With latent variance :math:`v_i = (k_{ii} - q_{ii}) + g_i`, g the part that the posterior adds, and the noise
:math:`\Lambda_i = \alpha (k_{ii} - q_{ii}) + \sigma^2/w_i` of the fit, row i has the leverage
:math:`h_i = g_i/\Lambda_i`. Without row i its residual is :math:`r_i/(1 - h_i)` and g becomes :math:`g_i/(1 - h_i)`.

Positive targets have means exp(f). Their moments and intervals are in units of the mean target. A target of mean μ has
the variance φ μ^p: p = 1 for counts, whose φ is their dispersion over the mean count, and p = 2 for the gamma
distribution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from mercer.base.intervals import CalibrationRows, Intervals
from mercer.base.out_of_fold import LARGEST
from mercer.engine.plan import Sample
from mercer.evidence.approximations import Approximation
from mercer.evidence.posterior import Posterior
from mercer.gp.model import FittedGP
from mercer.gp.svgp import expected_loss
from mercer.kernels import Kernel
from mercer.losses import FAR_MEANS, Loss
from mercer.preprocessing.read import TableData

#: Largest number of rows that calibrate intervals, and the least number of rows outside a subset that replace its own.
CALIBRATION_ROWS, ENOUGH_ROWS = 2000, 100
#: Newton steps to the mode of a row under SPGP; they converge quadratically.
NEWTON_STEPS = 10
#: Rows that determine the noise of predictions, a single number.
NOISE_ROWS = 10_000
#: The noise of predictions is within this factor of that of the evidence.
NOISE_RANGE = 1e4


@dataclass(frozen=True)
class LeaveOneOut:
    """Rows with their means, 1 − leverage, and the variances of the latent function without each row."""

    rows: Sample
    mean: Tensor
    kept: Tensor
    variance: Tensor

    @property
    def residuals(self) -> Tensor:
        return (self.rows.Y.double() - self.mean) / self.kept[:, None]


def leave_one_out_intervals(model: FittedGP, approximation: Approximation, data: Sample, table: TableData) -> Intervals:
    """Calibrate intervals on leave-one-out residuals over the standard deviations of new targets."""
    if approximation.dense:
        index, found = _dense(model, data)
    else:
        index = data.spaced(CALIBRATION_ROWS)
        part = data.part(index)
        noise = _noise(part, model.noise) / part.weight.double()
        found = _sparse(model.posterior, model.kernel, part, approximation.alpha, noise)
    std = (found.variance + _noise(found.rows, model.predictive_noise)).sqrt()
    mean, scale, kept = (values.double().cpu().numpy() for values in (found.mean, std[:, None], found.kept[:, None]))
    return Intervals.calibrated(found.rows, index, table, mean, scale, kept)


def _noise(rows: Sample, shared: float) -> Tensor | float:
    """The noise variance of each row: that of all rows and its known part."""
    return shared if rows.noise is None else shared + rows.noise


def _sparse(posterior: Posterior, kernel: Kernel, rows: Sample, alpha: float, noise: Tensor | float) -> LeaveOneOut:
    mean, total = posterior.moments(kernel, rows.rows, rows.plan)
    _, added = replace(posterior, explained=None).moments(kernel, rows.rows, rows.plan)
    g, rest = added[:, 0, 0], (total - added)[:, 0, 0].clamp(min=0)
    kept = 1 - (g / (alpha * rest + noise)).clamp(max=LARGEST)
    return LeaveOneOut(rows, mean, kept, rest + g / kept)


def _dense(model: FittedGP, data: Sample) -> tuple[np.ndarray, LeaveOneOut]:
    """Rows outside the subset of a dense model if they are enough, otherwise its own rows in closed form."""
    others = np.setdiff1d(data.alive, model.index)
    unseen = len(others) >= ENOUGH_ROWS
    numbers = others if unseen else model.index
    index = numbers[np.linspace(0, len(numbers) - 1, min(len(numbers), CALIBRATION_ROWS)).astype(int)]
    rows = data.part(index)
    mean, total = model.posterior.moments(model.kernel, rows.rows, rows.plan)
    v, noise = total[:, 0, 0], _noise(rows, model.noise) / rows.weight.double()
    kept = v.new_ones(len(v)) if unseen else 1 - (v / noise).clamp(max=LARGEST)
    return index, LeaveOneOut(rows, mean, kept, v / kept)


def leave_one_out_latent(
    model: FittedGP, alpha: float, rows: Sample, loss: Loss, *, dispersion: float | None = None
) -> tuple[Tensor, Tensor]:
    r"""Means (n × p) and covariances (n × p × p) of the latent functions of classes without each row.

    Laplace's method replaces a row by a Gaussian of curvature W and slope a at the mode. Removing it from the posterior
    N(h, S) of A u leaves the covariance :math:`S(I - DS)^{-1}`, :math:`D = w W (I + \Delta W)^{-1}`, and the mean
    h less this covariance times wa. Rows of weight zero were not fitted, and stay. SVGP, which is
    told by its `dispersion`, averages curvature and slope over the posterior of the row.
    """
    h, total = model.posterior.moments(model.kernel, rows.rows, rows.plan)
    _, S = replace(model.posterior, explained=None).moments(model.kernel, rows.rows, rows.plan)
    p, y, weight = h.shape[1], rows.Y.double(), rows.weight.double()
    eye = torch.eye(p, dtype=torch.float64, device=h.device)
    delta = alpha * (total - S)[:, :1, :1].clamp(min=0)
    if dispersion is None:
        f = h
        for _ in range(NEWTON_STEPS):  # f = h + Δ a(f), the mode of a row
            W, a = loss.hessian(y, f), loss.residual(y, f)
            f = f + torch.linalg.solve(eye + delta * W, (h + delta[:, 0] * a - f)[:, :, None])[:, :, 0]
        W, a = loss.hessian(y, f), loss.residual(y, f)
    else:
        site = expected_loss(loss, y, h, total[:, 0])
        W, a = site.curvature[:, :, None] / dispersion, site.slope / dispersion
    D = weight[:, None, None] * torch.linalg.solve(eye + delta * W, W)
    s, U = torch.linalg.eigh(S.expand(-1, p, p))
    root = U * s.clamp(min=0).sqrt()[:, None]
    taken, V = torch.linalg.eigh(root.transpose(1, 2) @ D @ root)
    root = root @ V
    kept = (root / (1 - taken.clamp(0.0, LARGEST))[:, None]) @ root.transpose(1, 2)
    return h - (kept @ (weight[:, None] * a)[:, :, None])[:, :, 0], total - S + kept


def predictive_noise(posterior: Posterior, kernel: Kernel, noise: float, data: Sample) -> float:
    r"""The variance s² of new targets that makes the leave-one-out targets of the rows most likely.

    Titsias' bound charges what few inducing inputs leave unexplained to the noise, and predictions then add the
    unexplained variance again: on KIN40K with 512 inducing inputs intervals of 95 % cover 97.6 %. Here α is zero, so
    that :math:`\Lambda_i = \sigma^2`, and a row of weight w counts as w rows.
    """
    rows = data.part(data.spaced(NOISE_ROWS))
    found = _sparse(posterior, kernel, rows, 0.0, _noise(rows, noise))
    square, weight = found.residuals.square().mean(1), found.rows.weight.double()

    def loss(log_noise: float) -> float:
        v = found.variance + _noise(rows, math.exp(log_noise))
        return float((weight * (v.log() + square / v)).sum() / weight.sum())

    middle, reach = math.log(noise), math.log(NOISE_RANGE)
    bounds = middle - reach, middle + reach
    return math.exp(minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-4}).x)


@dataclass(frozen=True)
class LogNormalMean:
    """A mean exp(f) with f ~ N(mean, variance), and targets of variance φ exp(p f); arrays of one shape.

    >>> found = LogNormalMean(np.zeros(1), np.zeros(1), noise=0.25, power=1.0)
    >>> found.location.tolist(), found.function_std.tolist(), found.noise_std.tolist()
    ([0.0], [0.0], [0.5])
    """

    mean: np.ndarray
    variance: np.ndarray
    noise: float
    power: float

    @property
    def location(self) -> np.ndarray:
        """log E exp(f)."""
        return np.clip(self.mean + 0.5 * self.variance, -FAR_MEANS, FAR_MEANS)

    @property
    def function_std(self) -> np.ndarray:
        """Standard deviation of exp(f)."""
        return np.exp(self.location) * np.sqrt(np.expm1(np.minimum(self.variance, FAR_MEANS)))

    @property
    def noise_std(self) -> np.ndarray:
        """Standard deviation of targets around their mean: √(φ E exp(p f))."""
        exponent = self.power * self.mean + 0.5 * self.power**2 * self.variance
        return np.sqrt(self.noise * np.exp(np.clip(exponent, -2 * FAR_MEANS, 2 * FAR_MEANS)))

    @property
    def std(self) -> np.ndarray:
        """Standard deviation of new targets."""
        return np.hypot(self.function_std, self.noise_std)


def positive_intervals(model: FittedGP, loss: Loss, data: Sample, table: TableData) -> Intervals:
    """Calibrate intervals on residuals of rows that are left out in closed form, over their standard deviations."""
    index = data.spaced(CALIBRATION_ROWS)
    rows = data.part(index)
    moments = leave_one_out_latent(model, 0.0, rows, loss, dispersion=model.noise)
    mean, cov = (part.cpu().numpy() for part in moments)
    found = LogNormalMean(mean, cov[:, 0], model.noise, loss.variance_power())
    Y, weight = (part.double().cpu().numpy() for part in (rows.Y, rows.weight))
    calibration = CalibrationRows.of(rows.rows.take(np.arange(rows.n_rows)), table, index)
    return Intervals.fitted(Y - np.exp(found.location), found.std, found.location, weight, calibration)
