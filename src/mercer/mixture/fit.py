"""Where EM starts: k-means++ and random partitions of a sample of the rows, several of them, the best one kept.

Runs are compared after `TRIAL_ITERATIONS` on at most `START_ROWS` rows; only the best goes on, over all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.clock import Clock
from mercer.engine import Sample
from mercer.linalg import spread_out
from mercer.mixture.class_experts import Owned
from mercer.mixture.em import EMResult, Mixture, columns, fit_em
from mercer.mixture.experts import Experts
from mercer.mixture.features import Features
from mercer.mixture.gates import Floor, gates_from_sums

#: Rows on which restarts run.
START_ROWS = 20_000
#: EM iterations after which starts are compared.
TRIAL_ITERATIONS = 30
LLOYD_STEPS = 20


@dataclass(frozen=True)
class Setting:
    """What a user decides about a fit: everything but the data and the number of components."""

    kind: str = "full"
    floor: float = 1e-4
    n_init: int = 3
    max_iter: int = 200
    tol: float = 1e-5
    init: str = "k-means++"
    callbacks: Sequence[Callable[[EMResult], Any]] = ()
    #: Variances of the inputs, in the units of the rows.
    variance: Tensor = field(default_factory=lambda: torch.ones(0))
    #: What their rounding leaves unknown, in the same units.
    rounding: Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.float64))
    #: λ, for weights as they are in the sample.
    ridge: float = 0.0
    clock: Clock = field(default_factory=Clock)
    #: How much of the time is EM's.
    share: float = 1.0
    #: Classes among the targets; of numbers none.
    n_classes: int = 0


@dataclass(frozen=True)
class Fitted:
    """A run of EM, and output weights where they are fitted on top of it."""

    result: EMResult
    readout: Tensor | None = None

    @property
    def mixture(self) -> Mixture:
        return self.result.mixture


def fit_mixture(
    sample: Sample,
    n_components: int,
    experts: Callable[[int], Experts],
    setting: Setting,
    rng: np.random.Generator,
    grown: Mixture | None = None,
) -> EMResult:
    """The best of several EM runs; `experts(k)` are the experts they start with. A start `grown` needs one rival."""
    few = _subsample(sample, rng)
    starts = [] if grown is None else [grown]
    for attempt in range(setting.n_init if n_components > 1 and grown is None else 1):
        style = ("k-means++", "targets", "random")[attempt % 3] if setting.init == "k-means++" else setting.init
        labels = partition(few, n_components, style, rng)
        starts.append(assigned(few, labels, experts, setting))
    return best_run(sample, few, starts, setting)


def fit_classes(
    sample: Sample, n_components: int, n_classes: int, setting: Setting, rng: np.random.Generator
) -> EMResult:
    """A mixture of `n_components` for every class (GMC), by one EM run over components that each own their class."""
    few = _subsample(sample, rng, by_class=True)
    starts = []
    for attempt in range(setting.n_init if n_components > 1 else 1):
        style = "random" if setting.init == "random" or attempt % 2 else "k-means++"
        labels = torch.zeros_like(few.weight, dtype=torch.int64)
        owner: list[int] = []
        for c in range(n_classes):
            rows = (few.Y[:, 0] == c).nonzero()[:, 0]
            if not bool((few.weight[rows] > 0).any()):  # rows held out may have been all of a class
                continue
            own = partition(few.here(rows), n_components, style, rng)
            labels[rows] = own + len(owner)
            owner += [c] * (int(own.max()) + 1)
        classes = torch.tensor(owner, device=labels.device)
        owned = Owned((classes[:, None] == torch.arange(n_classes, device=labels.device)).to(torch.float64))
        starts.append(assigned(few, labels, lambda k: owned, setting, groups=classes))  # noqa: B023 (called at once)
    return best_run(sample, few, starts, setting)


def best_run(sample: Sample, few: Sample, starts: Sequence[Mixture], setting: Setting) -> EMResult:
    """EM from the start that is ahead after a few iterations on some of the rows, to its end on all of them.

    Once time is up no further start is tried.
    """
    clock = setting.clock
    run = partial(fit_em, tol=setting.tol, clock=clock, share=setting.share)
    watched = partial(run, sample, max_iter=setting.max_iter, callbacks=setting.callbacks)
    shard = sample.rows.shard
    everything = few is sample or (shard.divided and few.rows.n_rows == shard.count(sample.weight > 0))
    if len(starts) == 1 and everything:
        return watched(starts[0])
    trial = min(TRIAL_ITERATIONS if len(starts) > 1 else setting.max_iter, setting.max_iter)

    def tried(places: Sequence[int]) -> list[tuple[EMResult, bool] | None]:
        found: list[tuple[EMResult, bool] | None] = []
        for place in places:
            if found and clock.expired(needing=clock.elapsed() / 4, until=setting.share):  # all rows want theirs
                found.append(None)
                continue
            one = run(few, starts[place], max_iter=trial)
            ended = clock.expired(until=setting.share)  # which says nothing about where it would have got
            found.append((one, ended))
        return found

    trials = [one for one in shard.group.share_work(len(starts), tried) if one is not None]
    best = trials[0][0]
    for one, ended in trials[1:]:
        best = one if one.objective > best.objective and not ended else best
    before = best.path[:-1] if everything else []
    found = watched(best.mixture.to(sample.plan.device), done=len(before))
    return replace(found, path=before + found.path)


def assigned(
    sample: Sample, labels: Tensor, experts: Callable[[int], Experts], setting: Setting, groups: Tensor | None = None
) -> Mixture:
    """The mixture of a partition: an M step from it, in which each component also sees one row's worth of all rows.

    That row keeps small components from starting with no extent; experts that take Newton steps start as given.
    """
    n = int(labels.max()) + 1
    made = experts(n)
    D = sample.rows.n_columns
    layout = Features(D, setting.kind in ("full", "tied") or made.needs_products)
    groups = torch.zeros(n, dtype=torch.int64, device=labels.device) if groups is None else groups
    variance = torch.where(setting.variance > 0, setting.variance, 1.0).to(labels.device)
    floor = Floor(setting.kind, torch.maximum(setting.floor * variance, setting.rounding.to(labels.device)), groups)
    x = columns(sample.rows.take(torch.arange(sample.rows.n_rows)))
    psi = layout.of(x, made.further(x, sample.Y.T))
    R = (labels == torch.arange(n, device=labels.device)[:, None]) * sample.weight
    everywhere = sample.weight / sample.total_weight * sample.mean_weight
    moments = R @ psi.T
    moments += everywhere @ psi.T
    gates = gates_from_sums(moments[:, : layout.size], layout, floor)
    return Mixture(gates, made if made.newton else made.updated(moments, {}, layout), floor, layout)


def partition(sample: Sample, k: int, style: str, rng: np.random.Generator) -> Tensor:
    """A label for each row: of k-means over the inputs, over inputs and targets, or of the nearest random row."""
    X = columns(sample.rows.take(torch.arange(sample.rows.n_rows))).T
    if style == "targets":  # which count as much as all inputs together
        X = torch.cat([X, X.shape[1] ** 0.5 * sample.Y], 1)
    w = sample.weight
    centres = seeds(X, w, k, rng, apart=style != "random")
    for _ in range(LLOYD_STEPS if style != "random" else 0):
        labels = _nearest(X, centres)
        R = (labels == torch.arange(len(centres), device=X.device)[:, None]) * w
        mass = R.sum(1, keepdim=True)
        moved = torch.where(mass > 0, (R @ X) / mass.clamp(min=1e-300), centres)
        if torch.equal(moved, centres):
            break
        centres = moved
    labels = _nearest(X, centres)
    used = labels[w > 0].unique()  # parts that hold any weight; a row of none goes with the first of them
    return torch.searchsorted(used, labels).clamp(max=len(used) - 1)


def seeds(X: Tensor, w: Tensor, k: int, rng: np.random.Generator, apart: bool = True) -> Tensor:
    """Rows to start from (at most k, all different): k-means++, or random ones where they need not be far apart."""
    if apart:
        return X[spread_out(X, k, rng, w, distinct=True)]
    rows, which = X[w > 0].unique(dim=0, return_inverse=True)
    chance = torch.zeros(len(rows), dtype=w.dtype, device=w.device).index_add_(0, which, w[w > 0]).cpu().numpy()
    return rows[rng.choice(len(rows), min(k, len(rows)), replace=False, p=chance / chance.sum())]


def _nearest(X: Tensor, centres: Tensor) -> Tensor:
    return torch.addmm(centres.square().sum(1), X, centres.T, alpha=-2).argmin(1)


def _subsample(sample: Sample, rng: np.random.Generator, by_class: bool = False) -> Sample:
    """At most about `START_ROWS` rows that count; of every class alike where that is asked for."""
    shard, alive = sample.rows.shard, sample.weight > 0
    if sample.rows.n_rows <= START_ROWS and not shard.divided:
        return sample
    parts = [alive]
    if by_class:
        classes = sorted({c for found in shard.group.gather(sample.Y[alive, 0].unique().tolist()) for c in found})
        parts = [alive & (sample.Y[:, 0] == c) for c in classes]
    share = -(-START_ROWS // len(parts))
    return sample.part(torch.cat([shard.draw(part, share, rng) for part in parts]).sort().values)
