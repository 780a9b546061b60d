"""Fit a mixture by EM from several starts: partitions of rows by k-means++ or at random.

Starts are compared after `TRIAL_ITERATIONS` on at most `START_ROWS` rows; the best continues on all rows.
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
from mercer.mixture.em import EMResult, Mixture, fit_em
from mercer.mixture.experts import Experts
from mercer.mixture.features import Features, all_columns
from mercer.mixture.gates import Floor, gates_from_sums

#: Rows on which starts are compared.
START_ROWS = 20_000
#: EM iterations after which starts are compared.
TRIAL_ITERATIONS = 30
#: Most steps of k-means.
LLOYD_STEPS = 20


@dataclass(frozen=True)
class MixtureSettings:
    """The settings of a fit: everything but the data and the number of components."""

    kind: str = "full"
    floor: float = 1e-4
    n_init: int = 3
    max_iter: int = 200
    tol: float = 1e-5
    init: str = "k-means++"
    callbacks: Sequence[Callable[[EMResult], Any]] = ()
    #: Variances of the inputs, in the units of the rows.
    variance: Tensor = field(default_factory=lambda: torch.ones(0))
    #: The least variance that their rounding allows (`rounding_variance`), in the same units.
    rounding: Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.float64))
    #: λ, for weights as they are in the sample.
    ridge: float = 0.0
    clock: Clock = field(default_factory=Clock)
    #: Share of the time budget for EM.
    share: float = 1.0
    #: Number of classes; 0 for regression.
    n_classes: int = 0


def fit_mixture(
    sample: Sample,
    n_components: int,
    experts: Callable[[int], Experts],
    setting: MixtureSettings,
    rng: np.random.Generator,
    grown: Mixture | None = None,
) -> EMResult:
    """Fit by the best of several EM runs from `experts(k)`; a `grown` start competes with one other start."""
    part = _subsample(sample, rng)
    starts = [] if grown is None else [grown]
    for attempt in range(setting.n_init if n_components > 1 and grown is None else 1):
        style = ("k-means++", "targets", "random")[attempt % 3] if setting.init == "k-means++" else setting.init
        labels = partition(part, n_components, style, rng)
        starts.append(assigned(part, labels, experts, setting))
    return best_run(sample, part, starts, setting)


def fit_classes(
    sample: Sample, n_components: int, n_classes: int, setting: MixtureSettings, rng: np.random.Generator
) -> EMResult:
    """Fit `n_components` per class (GMC) by one EM run in which each component belongs to one class."""
    part = _subsample(sample, rng, by_class=True)
    starts = []
    for attempt in range(setting.n_init if n_components > 1 else 1):
        style = "random" if setting.init == "random" or attempt % 2 else "k-means++"
        labels = torch.zeros_like(part.weight, dtype=torch.int64)
        owner: list[int] = []
        for c in range(n_classes):
            rows = (part.Y[:, 0] == c).nonzero()[:, 0]
            if not bool((part.weight[rows] > 0).any()):  # all rows of the class may be held out
                continue
            within = partition(part.here(rows), n_components, style, rng)
            labels[rows] = within + len(owner)
            owner += [c] * (int(within.max()) + 1)
        classes = torch.tensor(owner, device=labels.device)
        owned = Owned((classes[:, None] == torch.arange(n_classes, device=labels.device)).to(torch.float64))
        starts.append(assigned(part, labels, lambda k: owned, setting, groups=classes))  # noqa: B023 (called at once)
    return best_run(sample, part, starts, setting)


def best_run(sample: Sample, part: Sample, starts: Sequence[Mixture], setting: MixtureSettings) -> EMResult:
    """Run EM to its end on all rows, from the start that is best after a few iterations on a part of them.

    No further start is tried once time is up.
    """
    clock = setting.clock
    run = partial(fit_em, tol=setting.tol, clock=clock, share=setting.share)
    run_on_all = partial(run, sample, max_iter=setting.max_iter, callbacks=setting.callbacks)
    shard = sample.rows.shard
    everything = part is sample or (shard.divided and part.rows.n_rows == shard.count(sample.weight > 0))
    if len(starts) == 1 and everything:
        return run_on_all(starts[0])
    n_trial = min(TRIAL_ITERATIONS if len(starts) > 1 else setting.max_iter, setting.max_iter)

    def tried(places: Sequence[int]) -> list[tuple[EMResult, bool] | None]:
        found: list[tuple[EMResult, bool] | None] = []
        for place in places:
            if found and clock.expired(needing=clock.elapsed() / 4, until=setting.share):  # for the run on all rows
                found.append(None)
                continue
            result = run(part, starts[place], max_iter=n_trial)
            cut_short = clock.expired(until=setting.share)
            found.append((result, cut_short))
        return found

    trials = [trial for trial in shard.group.share_work(len(starts), tried) if trial is not None]
    best = trials[0][0]
    for result, cut_short in trials[1:]:
        best = result if result.objective > best.objective and not cut_short else best
    before = best.path[:-1] if everything else []
    found = run_on_all(best.mixture.to(sample.plan.device), done=len(before))
    return replace(found, path=before + found.path)


def assigned(
    sample: Sample,
    labels: Tensor,
    experts: Callable[[int], Experts],
    setting: MixtureSettings,
    groups: Tensor | None = None,
) -> Mixture:
    """Make the mixture of a partition by an M step in which each component also has one row's weight of all rows.

    This weight keeps small components from starting without extent. Experts that take Newton steps start as given.
    """
    n = int(labels.max()) + 1
    made = experts(n)
    D = sample.rows.n_columns
    layout = Features(D, setting.kind in ("full", "tied") or made.needs_products)
    groups = torch.zeros(n, dtype=torch.int64, device=labels.device) if groups is None else groups
    variance = torch.where(setting.variance > 0, setting.variance, 1.0).to(labels.device)
    floor = Floor(setting.kind, torch.maximum(setting.floor * variance, setting.rounding.to(labels.device)), groups)
    x = all_columns(sample)
    psi = layout.of(x, made.further(x, sample.Y.T))
    R = (labels == torch.arange(n, device=labels.device)[:, None]) * sample.weight
    everywhere = sample.weight / sample.total_weight * sample.mean_weight
    moments = R @ psi.T
    moments += everywhere @ psi.T
    gates = gates_from_sums(moments[:, : layout.size], layout, floor)
    return Mixture(gates, made if made.newton else made.updated(moments, (), layout), floor, layout)


def partition(sample: Sample, k: int, style: str, rng: np.random.Generator) -> Tensor:
    """Label each row by k-means over the inputs, over inputs and targets, or by the nearest random row."""
    X = all_columns(sample).T
    if style == "targets":  # targets count as much as all inputs together
        X = torch.cat([X, X.shape[1] ** 0.5 * sample.Y], 1)
    w = sample.weight
    _, labels = k_means(X, w, k, rng) if style != "random" else _labelled(X, random_rows(X, w, k, rng))
    used = labels[w > 0].unique()  # labels with positive weight; rows of other labels join the first of them
    return torch.searchsorted(used, labels).clamp(max=len(used) - 1)


def k_means(X: Tensor, w: Tensor, k: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """At most k centres by Lloyd's steps from k-means++, and each row's nearest; fewer of few distinct rows."""
    centres, labels = _labelled(X, X[spread_out(X, min(k, len(X)), rng, w, distinct=True)])
    for _ in range(LLOYD_STEPS):
        mass = torch.zeros(len(centres), dtype=X.dtype, device=X.device).index_add_(0, labels, w)
        sums = torch.zeros_like(centres).index_add_(0, labels, w[:, None] * X)
        moved = torch.where(mass[:, None] > 0, sums / mass.clamp(min=1e-300)[:, None], centres)
        if torch.equal(moved, centres):
            break
        centres, labels = _labelled(X, moved)
    return centres, labels


def random_rows(X: Tensor, w: Tensor, k: int, rng: np.random.Generator) -> Tensor:
    """At most k distinct rows, a row of weight w with the chance of w rows."""
    rows, which = X[w > 0].unique(dim=0, return_inverse=True)
    chance = torch.zeros(len(rows), dtype=w.dtype, device=w.device).index_add_(0, which, w[w > 0]).cpu().numpy()
    return rows[rng.choice(len(rows), min(k, len(rows)), replace=False, p=chance / chance.sum())]


def _labelled(X: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """The centres, and the nearest one of each row."""
    return centres, torch.addmm(centres.square().sum(1), X, centres.T, alpha=-2).argmin(1)


def _subsample(sample: Sample, rng: np.random.Generator, by_class: bool = False) -> Sample:
    """Draw about `START_ROWS` rows of positive weight, with equal numbers per class if `by_class`."""
    shard, alive = sample.rows.shard, sample.weight > 0
    if sample.rows.n_rows <= START_ROWS and not shard.divided:
        return sample
    groups = [alive]
    if by_class:
        classes = sorted({c for found in shard.group.gather(sample.Y[alive, 0].unique().tolist()) for c in found})
        groups = [alive & (sample.Y[:, 0] == c) for c in classes]
    share = -(-START_ROWS // len(groups))
    return sample.part(torch.cat([shard.draw(group, share, rng) for group in groups]).sort().values)
