"""Positive targets whose mean is exp(f): their moments where f is normal, and their intervals.

Numbers are in units of the mean target. A target of mean μ has the variance φ μ^p: p = 1 for counts, whose φ is one
over the mean count, and p = 2 for the gamma distribution.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mercer.base.intervals import CalibrationRows, Intervals
from mercer.engine.sample import Sample
from mercer.gp.leave_one_out import CALIBRATION_ROWS, leave_one_out_latent
from mercer.gp.model import FittedGP
from mercer.losses import FAR_MEANS, Loss
from mercer.preprocessing.read import TableData


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
