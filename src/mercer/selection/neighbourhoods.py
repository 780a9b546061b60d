"""Local length-scales: the evidence of neighbourhoods among all rows of a large table.

A few thousand rows out of half a million are far apart. Inputs that matter at such distances need not matter at the
distances that a model of all rows resolves. The rows nearest to one row are as dense as the table. The summed evidence
of several neighbourhoods under one kernel gives every input a length-scale for all rows, at the cost of small matrices.
Nearest neighbours among all rows decide whether it helps (`neighbours_error`). Its noise is the penalty for
all rows; a sparse sample would count variation that it cannot follow as noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.clock import Clock
from mercer.engine import each_block
from mercer.engine.plan import SAMPLE_ROWS, Sample, factored_rows
from mercer.evidence.coordinates import Evidence, Gradient, Point
from mercer.evidence.exact import log_evidence
from mercer.evidence.lbfgs import climb
from mercer.kernels import Kernel, Scaled, Stationary
from mercer.selection.evidence_search import NOISE_BOUNDS
from mercer.selection.settings import SelectionSettings
from mercer.selection.view import largest_factors

#: Centres drawn for each neighbourhood: neighbourhoods of nearly constant targets are dropped.
CENTRES = 2
#: Least variance of a neighbourhood's targets, as a share of the variance of all targets.
LEAST_VARIANCE = 0.05
#: Rows of a neighbourhood at most and at least.
MOST_ROWS, FEWEST_ROWS = 750, 100
#: Seconds at most (on a CPU, on a GPU), and steps of a search.
SECONDS, STEPS = (30.0, 10.0), 40
#: Cost of an evidence with its gradient, in Cholesky factorisations.
FACTORS = 4
#: Largest factor by which a coordinate is stretched or shrunk: neighbourhoods do not show effects of large distances.
MOST_CHANGE = 4.0
#: Noise at the start in units of the targets' variance, and length-scale at the start in units of the given kernel's.
START_NOISE, START_LENGTH = 0.1, 0.3
#: Neighbours that predict a query row.
NEIGHBOURS = 8
#: Query rows at least, at least without a time limit (on a CPU, on a GPU), and at most. Few query rows rank metrics by
#: chance.
FEWEST_QUERIES, UNLIMITED_QUERIES, MOST_QUERIES = 200, (1000, 2000), 20_000
#: Pairs of rows compared in a second on a slow machine (a CPU, a GPU), and rows of a block.
PAIRS_PER_SECOND, BLOCK = (1e8, 1e10), 4096


@dataclass(frozen=True)
class Neighbourhood:
    """Rows of a neighbourhood: inputs, centred targets in units of all targets' deviation, weights of mean one."""

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
    """Estimate factors on the coordinates of `sample` and a penalty; None if time or rows do not suffice.

    The factors keep the total variance of the coordinates, except for the bound on binary columns
    (`mercer.selection.view.largest_factors`).
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
    part = sample.part(sample.spaced(SAMPLE_ROWS))
    Z = part.rows.take(np.arange(part.n_rows)).double()
    variance, most = Z.var(0).cpu().numpy(), largest_factors(Z, float(np.mean(kernel.length_scale))).cpu().numpy()
    if not variance.any():
        return None
    found = sample.rows.shard.group.first(lambda: _maximise(parts, kernel, sample.column_groups, variance, clock))
    return replace(found, factors=np.minimum(found.factors, most))


def geometric_mean(estimates: Sequence[LocalScales]) -> LocalScales:
    """The geometric mean of several estimates, each from other neighbourhoods."""
    logs = np.mean([np.log(np.append(scales.factors, scales.penalty)) for scales in estimates], axis=0)
    return LocalScales(np.exp(logs[:-1]), float(np.exp(logs[-1])))


def neighbourhoods(sample: Sample, n_neighbourhoods: int, n_rows: int, rng: np.random.Generator) -> list[Neighbourhood]:
    """At most `n_neighbourhoods` neighbourhoods of `n_rows` rows around random centres, with targets that vary."""
    shard, parts = sample.rows.shard, list[Neighbourhood]()
    centres = rng.permutation(sample.draw(CENTRES * n_neighbourhoods, rng))
    unit = float(sample.part(sample.spaced(SAMPLE_ROWS)).Y.var(0, correction=0).mean()) ** 0.5
    for distance, index in zip(*nearest(sample, centres, n_rows), strict=True):
        here = distance.isfinite()  # a process may hold fewer rows, or none
        part = sample.part(shard.top_rows(-distance[here], index[here], n_rows).sort().values.cpu().numpy())
        X, Y, weight = part.rows.take(np.arange(n_rows)).double(), part.Y.double(), part.weight.double()
        Y = (Y - (weight[:, None] * Y).sum(0) / weight.sum()) / max(unit, 1e-300)
        if Y.var(0, correction=0).mean() > LEAST_VARIANCE:
            parts.append(Neighbourhood(X, Y, weight / weight.mean()))
        if len(parts) == n_neighbourhoods:
            break
    return parts


def summed_evidence(parts: Sequence[Neighbourhood]) -> Evidence:
    """The evidence of independent neighbourhoods that share the kernel and the noise."""

    def evidence(kernel: Kernel, noise: float, basis: None) -> Gradient:
        found = [log_evidence(kernel, noise, part.X, part.Y, part.weight) for part in parts]
        values, slopes, by_noise = zip(*found, strict=True)
        summed = {name: torch.stack([slope[name] for slope in slopes]).sum(0) for name in slopes[0]}
        return Gradient(sum(values), summed, sum(by_noise))

    return evidence


def _maximise(parts: list[Neighbourhood], kernel: Any, groups: Any, variance: np.ndarray, clock: Clock) -> LocalScales:
    """Factors and penalty of largest evidence: one length-scale first, then one for each coordinate."""
    evidence = summed_evidence(parts)
    length = START_LENGTH * float(np.mean(kernel.length_scale))
    options: dict[str, Any] = {"noise_bounds": NOISE_BOUNDS, "max_iter": STEPS, "clock": clock}
    common = climb(evidence, Point(Scaled(type(kernel)(length)), START_NOISE), tol=1e-4, **options)
    lengths = np.full(len(variance), common.kernel.tunable()["kernel__length_scale"]).tolist()
    start = common.kernel.replaced({"kernel__length_scale": lengths})
    found = climb(evidence, replace(common, kernel=start, groups=groups), tol=1e-5, **options)
    penalty = found.noise / float(found.kernel.tunable()["variance"])
    logs = -np.log(found.kernel.tunable()["kernel__length_scale"])
    most = np.log(MOST_CHANGE)
    factors = np.exp(np.clip(logs - logs[variance > 0].mean(), -most, most))
    factors *= np.sqrt(variance.sum() / float(factors**2 @ variance))
    return LocalScales(factors, penalty)


def query_rows(sample: Sample, rng: np.random.Generator, seconds: float | None = None) -> np.ndarray:
    """Draw the indices of query rows: as many as `seconds` allow, or none."""
    on_gpu = sample.plan.device.type == "cuda"
    per_second = int(PAIRS_PER_SECOND[on_gpu] / max(sample.n_rows, 1))
    n = min(max(per_second, UNLIMITED_QUERIES[on_gpu]), MOST_QUERIES)
    if seconds is not None:
        n = min(n, int(per_second * seconds))
    n = int(sample.rows.shard.group.min(n))
    return sample.draw(n if n >= FEWEST_QUERIES else 0, rng)


def neighbours_error(sample: Sample, queries: np.ndarray) -> float:
    """The mean squared error of query rows, each predicted by the mean of its nearest other rows.

    It scores a metric at the density of the whole table. Candidates fitted to ten thousand rows out of half a million
    are compared at larger distances than a model of all rows resolves. Nearest neighbours among all rows cost one pass,
    and rank metrics as the models fitted with them do.
    """
    distance, local = nearest(sample, queries, NEIGHBOURS + 1)
    shard, flat = sample.rows.shard, local.reshape(-1)
    if sample.n_rows:  # a process may hold none
        index, Y = torch.as_tensor(shard.global_indices(flat.cpu().numpy())), sample.Y[flat]
    else:
        index, Y = flat, sample.Y.new_zeros(len(flat), sample.Y.shape[1])
    shape = distance.shape
    of_process = distance.double().cpu(), index.reshape(shape).cpu(), Y.double().cpu().reshape(*shape, -1)
    distance, index, Y = (torch.cat(parts, 1) for parts in zip(*shard.group.gather(of_process), strict=True))
    distance = distance.masked_fill(index == torch.as_tensor(queries)[:, None], torch.inf)  # the query row itself
    neighbours = distance.topk(NEIGHBOURS, largest=False, sorted=False).indices
    mean = Y.gather(1, neighbours[:, :, None].expand(-1, -1, Y.shape[2])).mean(1)
    return float((mean - sample.part(queries).Y.double().cpu()).square().sum(1).mean())


def nearest(sample: Sample, centres: np.ndarray, n: int) -> tuple[Tensor, Tensor]:
    """Distances and local indices of this process's `n` rows nearest to each centre, from one pass over its rows."""
    Z = sample.part(centres).rows.take(np.arange(len(centres)))
    distance = Z.new_full((len(Z), n), torch.inf)
    index = torch.zeros(len(Z), n, dtype=torch.int64, device=Z.device)
    alive = sample.weight > 0

    def visit(where: slice, block: Tensor) -> None:
        nonlocal distance, index
        new = torch.cdist(Z, block.to(Z)).masked_fill_(~alive[where], torch.inf)
        new, in_block = new.topk(min(n, len(block)), largest=False)
        least = torch.cat([distance, new], 1).topk(n, largest=False)
        index = torch.cat([index, in_block + where.start], 1).gather(1, least.indices)
        distance = least.values

    size = max(sample.plan.tile_rows(4 * len(Z)), min(BLOCK, sample.plan.memory_limit // (64 * len(Z))))
    each_block(sample.rows, sample.plan, size, visit)
    return distance, index
