"""How much counts vary beyond a Poisson distribution: the dispersion φ of Var y = φ E y.

Counts of people vary more than a Poisson distribution allows, and its likelihood then takes noise for structure. So the
Poisson loss is divided by φ (quasi-likelihood, Wedderburn 1974). φ is Pearson's statistic of rows that are left out,
divided by the mean of y/μ, which small means do not inflate (Fletcher 2012). It depends on the fit, and the fit on it:
fits to some rows start with the dispersion of a constant mean, the largest of all, until it falls no more.

R. Wedderburn, "Quasi-likelihood functions, generalized linear models, and the Gauss–Newton method", Biometrika 61
(1974).
D. Fletcher, "Estimating overdispersion when fitting a generalized linear model to sparse data", Biometrika 99 (2012).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mercer.engine.plan import Sample
from mercer.evidence.coordinates import Point
from mercer.gp.leave_one_out import LogNormalMean, leave_one_out_latent
from mercer.gp.model import FittedGP
from mercer.gp.search import SparseSearch
from mercer.gp.svgp import Likelihood, StochasticEvidence
from mercer.gp.task import GPTask
from mercer.losses import Loss
from mercer.preprocessing.read import TableData

#: Rows and inducing inputs of the fits, and their steps.
ROWS, INDUCING, STEPS = 1000, 50, 20
#: Fits at most, and the share by which φ must fall for another one.
FITS, LEAST_FALL = 6, 0.1
#: Share of a time budget.
SHARE = 0.2


def rows_per_weight(given: TableData) -> float:
    """Rows of a unit of weight: one for counts, whose weights repeat rows. Weights of rates are exposures."""
    total = given.shard.total
    if total(float((given.y != np.floor(given.y)).sum())) == 0:
        return 1.0
    return total(len(given.alive)) / total(float(given.weight.sum()))


def dispersion(
    task: GPTask, loss: Loss, start: Point, free: set[str], length_scale_prior: float | None, per_weight: float
) -> float:
    """φ in units of the coded targets, at least `start.noise`, the unit of counts.

    A unit of weight is `per_weight` rows: one where weights repeat rows, another number where they are exposures.
    """
    data, rng, n = task.data, task.rng, task.data.n_alive
    if n > ROWS or data.rows.shard.divided:
        data = data.part(data.draw(min(n, ROWS), rng))
    seed, clock, least = int(rng.integers(2**31)), task.clock.part(SHARE), start.noise

    def fitted(phi: float) -> FittedGP:
        same_rng = np.random.default_rng(seed)
        part = replace(task, data=data, inducing="k-means++", n_inducing=INDUCING, n_restarts=0, rng=same_rng)
        evidence = StochasticEvidence(Likelihood.of(loss, phi), inputs=False)
        search = SparseSearch(part, evidence, free & {"kernel"}, STEPS, 0.0, length_scale_prior, clock)
        index, at = search.run(replace(start, noise=phi))
        posterior, value = evidence.posterior(data, at, same_rng)
        return FittedGP(at.kernel, phi, posterior, value, index, at.why)

    def without_each_row(phi: float) -> np.ndarray:
        moments = leave_one_out_latent(fitted(phi), 0.0, data, loss, dispersion=phi)
        mean, cov = (part.cpu().numpy() for part in moments)
        return np.exp(LogNormalMean(mean, cov[:, 0], phi, loss.variance_power()).location)

    def found() -> float:
        phi = max(_pearson(np.ones((data.n_rows, 1)), data, per_weight), least)
        for _ in range(FITS):
            last, mean = phi, without_each_row(phi)
            phi = min(max(_pearson(mean, data, per_weight), least), last)
            if phi > (1 - LEAST_FALL) * last or clock.expired():
                break
        return phi

    return task.data.rows.shard.group.first(found)


def _pearson(mean: np.ndarray, data: Sample, per_weight: float) -> float:
    """Σ w (y − μ)²/μ over Σ w y/μ; zero where nothing was counted, which tells nothing."""
    Y, weight = data.Y.double().cpu().numpy(), data.weight.double().cpu().numpy()[:, None]
    counted = float((weight * Y / mean).sum())
    return float((weight * (Y - mean) ** 2 / mean).sum()) / counted / per_weight if counted > 0 else 0.0
