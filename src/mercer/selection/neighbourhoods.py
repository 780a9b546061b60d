"""Local length-scales: the evidence of neighbourhoods among all rows of a large table.

Some thousand rows out of half a million are far apart, and inputs that matter at such distances need not matter at the
distances that a model of all rows resolves. The rows nearest to one of them are as dense as the table. The evidence of
several such neighbourhoods under one kernel gives every input a length-scale that all rows can use, at the price of
small matrices. Nearest rows of the whole table decide whether it helps (`mercer.selection.neighbours`). The noise that
goes with it is the penalty for all rows: variation that few rows cannot follow is noise to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.clock import Clock
from mercer.engine.plan import factored_rows
from mercer.engine.sample import Sample
from mercer.evidence.coordinates import Evidence, Gradient, Point
from mercer.evidence.exact import log_evidence
from mercer.evidence.lbfgs import climb
from mercer.kernels import Kernel, Scaled, Stationary
from mercer.selection.metric import largest_factors
from mercer.selection.neighbours import nearest
from mercer.selection.settings import SelectionSettings

#: Centres drawn for each neighbourhood: those of nearly one target are no use.
CANDIDATES = 2
#: The variance of targets in a neighbourhood, of that of all, from which on it counts.
LEAST_VARIANCE = 0.05
#: Rows of a neighbourhood at most and at least.
MOST_ROWS, FEWEST_ROWS = 750, 100
#: Rows whose spread is that of all.
SPREAD_ROWS = 10_000
#: Seconds that it may take, and steps of a climb.
SECONDS, STEPS = (30.0, 10.0), 40
#: Factors of a matrix that an evidence with its gradient costs as much as.
FACTORS = 4
#: How much a coordinate may be stretched or shrunk: what shows from afar alone is not seen from near.
MOST_CHANGE = 4.0
#: Noise, of unit variance of the targets, at which climbs begin, and the length-scale, of that of the kernel at hand.
NOISE, LENGTH = 0.1, 0.3
NOISE_BOUNDS = (1e-6, 10.0)


@dataclass(frozen=True)
class Neighbourhood:
    """A neighbourhood: rows as a kernel sees them, targets less their mean in units of all, weights of mean one."""

    X: Tensor
    Y: Tensor
    weight: Tensor


@dataclass(frozen=True)
class LocalScales:
    """Factors on coordinates, and the penalty of a kernel of unit variance."""

    factors: np.ndarray
    penalty: float


def neighbourhood_scales(
    sample: Sample, kernel: Kernel, rng: np.random.Generator, clock: Clock, settings: SelectionSettings
) -> LocalScales | None:
    """Factors on the coordinates of `sample` and the penalty that neighbourhoods ask for; None without time or rows.

    Coordinates times their factors have the variance that they had, all together; less where two values would be
    farther apart than a kernel sees.
    """
    on_gpu = sample.plan.device.type == "cuda"
    seconds = min(SECONDS[on_gpu], clock.remaining())
    n_rows = factored_rows(seconds / (settings.n_neighbourhoods * STEPS * FACTORS), on_gpu)
    n_rows = min(n_rows, MOST_ROWS, int(settings.neighbourhood_share * sample.n_alive))
    if n_rows < FEWEST_ROWS or not isinstance(kernel, Stationary) or sample.rows.n_columns < 2:
        return None
    parts = neighbourhoods(sample, settings.n_neighbourhoods, n_rows, rng)
    if not parts:
        return None
    some = sample.part(sample.spaced(SPREAD_ROWS))
    Z = some.rows.take(np.arange(some.n_rows)).double()
    spread, most = Z.var(0).cpu().numpy(), largest_factors(Z, float(np.mean(kernel.length_scale))).cpu().numpy()
    if not spread.any():
        return None
    found = sample.rows.shard.group.first(lambda: _climbed(parts, kernel, sample.groups, spread, clock))
    return replace(found, factors=np.minimum(found.factors, most))


def geometric_mean(looks: Sequence[LocalScales]) -> LocalScales:
    """What several looks have in common, the geometric mean of what each asks for: none is misled by its places alone.

    >>> both = geometric_mean([LocalScales(np.array([1.0, 2.0]), 0.01), LocalScales(np.array([1.0, 8.0]), 0.04)])
    >>> both.factors.round(6), round(both.penalty, 6)
    (array([1., 4.]), 0.02)
    """
    logs = np.mean([np.log(np.append(one.factors, one.penalty)) for one in looks], axis=0)
    return LocalScales(np.exp(logs[:-1]), float(np.exp(logs[-1])))


def neighbourhoods(sample: Sample, n_neighbourhoods: int, n_rows: int, rng: np.random.Generator) -> list[Neighbourhood]:
    """At most so many neighbourhoods of `n_rows` rows, each around a row at random, whose targets are not all alike.

    >>> from mercer.data import TensorRows
    >>> from mercer.engine import Sample, make_plan
    >>> X = torch.arange(1000.0)[:, None]
    >>> sample = Sample(TensorRows(X), X.double(), torch.ones(1000), make_plan(1000, device="cpu", dtype="float64"))
    >>> near = neighbourhoods(sample, 3, 400, np.random.default_rng(0))
    >>> [float(part.X.max() - part.X.min()) for part in near]
    [399.0, 399.0, 399.0]
    """
    shard, parts = sample.rows.shard, list[Neighbourhood]()
    centres = rng.permutation(sample.draw(CANDIDATES * n_neighbourhoods, rng))
    unit = float(sample.part(sample.spaced(SPREAD_ROWS)).Y.var(0, correction=0).mean()) ** 0.5
    for far, places in zip(*nearest(sample, centres, n_rows), strict=True):
        here = far.isfinite()  # a process may hold fewer rows, or none
        part = sample.part(shard.top_rows(-far[here], places[here], n_rows).sort().values.cpu().numpy())
        X, Y, weight = part.rows.take(np.arange(n_rows)).double(), part.Y.double(), part.weight.double()
        Y = (Y - (weight[:, None] * Y).sum(0) / weight.sum()) / max(unit, 1e-300)
        if Y.var(0, correction=0).mean() > LEAST_VARIANCE:
            parts.append(Neighbourhood(X, Y, weight / weight.mean()))
        if len(parts) == n_neighbourhoods:
            break
    return parts


def summed_evidence(parts: Sequence[Neighbourhood]) -> Evidence:
    """The evidence of neighbourhoods that know nothing of each other but the kernel and the noise."""

    def at(kernel: Kernel, noise: float, basis: None) -> Gradient:
        found = [log_evidence(kernel, noise, part.X, part.Y, part.weight) for part in parts]
        slopes = {name: torch.stack([slope[1][name] for slope in found]).sum(0) for name in found[0][1]}
        return Gradient(sum(one[0] for one in found), slopes, sum(one[2] for one in found))

    return at


def _climbed(parts: list[Neighbourhood], kernel: Any, groups: Any, spread: np.ndarray, clock: Clock) -> LocalScales:
    """Factors and penalty from the evidence of neighbourhoods: one length-scale first, then one for each coordinate."""
    evidence = summed_evidence(parts)
    length = LENGTH * float(np.mean(kernel.length_scale))
    shared: dict[str, Any] = {"noise_bounds": NOISE_BOUNDS, "max_iter": STEPS, "clock": clock}
    common = climb(evidence, Point(Scaled(type(kernel)(length)), NOISE), tol=1e-4, **shared)
    lengths = np.full(len(spread), common.kernel.tunable()["kernel__length_scale"]).tolist()
    start = common.kernel.replaced({"kernel__length_scale": lengths})
    found = climb(evidence, replace(common, kernel=start, groups=groups), tol=1e-5, **shared)
    penalty = found.noise / float(found.kernel.tunable()["variance"])
    logs = -np.log(found.kernel.tunable()["kernel__length_scale"])
    most = np.log(MOST_CHANGE)
    factors = np.exp(np.clip(logs - logs[spread > 0].mean(), -most, most))
    factors *= np.sqrt(spread.sum() / float(factors**2 @ spread))
    return LocalScales(factors, penalty)
