"""Model selection by successive halving: propose candidates, score them on more and more rows, keep the best.

A candidate is a view of the inputs (column map and metric), a kernel family with its length-scale, and a penalty. Rows
that were not fitted score it. `docs/architecture.md` shows the table of stages.

Each proposal turns the pool of candidates into new ones, scored on the stage's rows. The grid proposes kernels and
penalties, and column maps transform single columns. A metric is a learned linear map of the inputs, diagonal or full.
There are three ways to learn one: the evidence (marginal likelihood) of a Gaussian process, the gradients of a fitted
model, and a descent on the held-out error itself.

Greedy averaging of the last candidates gives the ensemble, shrunk where chance may explain its gain.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.clock import Clock
from mercer.data.row_groups import RowGroups
from mercer.kernels import Bias, Kernel, Linear, Scaled, Sum
from mercer.progress import expect_steps, report_step
from mercer.selection.descent import Descent, folded
from mercer.selection.evidence_kernels import EvidenceFinalists
from mercer.selection.likelihood import LikelihoodCandidate
from mercer.selection.score import (
    Score,
    fitted_link,
    leave_one_out_path,
    mean_and_variance,
    shrinkage_factor,
)
from mercer.selection.search import Search, SelectionRows, in_background, run_parallel, survivors
from mercer.selection.settings import (
    DEFAULT_SETTINGS,
    FAMILIES,
    FIRST_LENGTHS,
    FLOAT32_PENALTY,
    LENGTHS,
    PENALTIES,
    ROUGH_FAMILIES,
    GridPoint,
    SelectionSettings,
    Stage,
)
from mercer.selection.view import (
    BY_LOSS,
    Candidate,
    EvidenceCandidate,
    Fold,
    LikelihoodEnsemble,
    MetricStep,
    SelectedEnsemble,
    SelectedKernel,
    Trial,
    View,
    mean_transform,
    tile,
)

#: A function that makes candidates of candidates, and the share of the time after which it is skipped.
Proposal = tuple[Callable[[Search, list[Candidate]], list[Candidate]], float]
Proposals = Sequence[Proposal]
#: Numbers of folds that mean leave-one-out and one set of held-out rows, and a number of rows that means all of them.
LEAVE_ONE_OUT, HOLD_OUT, ALL_ROWS = 0, 1, 0
#: Powers of a gradient metric, diagonal and full: the first is used in every stage, both in the last.
POWERS = {False: (1.0, 0.5), True: (0.5, 1.0)}
#: Families that are scored with a gradient metric, diagonal and full.
GRADIENT_FAMILIES = {False: ("cityblock", "matern32"), True: ("matern32", "matern12")}
#: A penalty under which a bias learns nothing: the constant prediction.
CONSTANT_PENALTY = 1e12


def select(
    X: Tensor,
    Y: Tensor,
    weight: Tensor,
    *,
    classes: bool,
    rng: np.random.Generator,
    device: Any = "cpu",
    seconds: float | None = None,
    keeps_unit: Tensor | None = None,
    column_groups: Tensor | None = None,
    metric: str | None = "auto",
    likelihood: bool = False,
    settings: SelectionSettings = DEFAULT_SETTINGS,
    row_groups: RowGroups | None = None,
) -> SelectedEnsemble:
    """Select kernels for raw columns `X` (n × D) and centred targets `Y` (n × p: numbers or class codes).

    Columns that `keeps_unit` marks, such as indicators of categories, are centred but not scaled; those of one group
    (`column_groups` has an index for each column) share a length-scale. `metric` allows "diagonal" metrics, "full"
    ones, both ("auto") or none (None). With `likelihood` the ensemble is also fitted by kernel logistic regression.
    Rows of one of `row_groups` are never on both sides of a split.
    """
    rows = SelectionRows(X, Y, weight, keeps_unit, column_groups, rng, device, classes, settings, row_groups)
    search = Search(rows, settings, Clock(seconds), metric, likelihood)
    if rows.n < 2:
        return constant_ensemble(search, 1.0)
    pool: list[Candidate] = []
    expect_steps("selection", sum(1 + len(proposals) for _, proposals in stages(search)))
    for number in range(len(stages(search))):
        if number == 1:
            search.short_of_time = search.clock.expired(
                needing=settings.total_over_first_stage * search.clock.elapsed()
            )
        stage, proposals = stages(search)[number]
        search.enter(stage)
        most = stage.max_survivors
        before = pool if most is None else survivors(settings.may_be_members(pool), most, settings)
        pool = rescore_survivors(search, before)
        if before and not pool:  # no time was left
            pool = before[:1]
            break
        report_step("selection")
        for propose, until in proposals:
            if not (pool and search.expired(until)):
                pool = pool + propose(search, pool)
            report_step("selection")
    members = settings.may_be_members(pool)
    return ensemble(search, members, smooth_candidates(search, members))


def stages(search: Search) -> list[tuple[Stage, Proposals]]:
    """The stages of a table: their rows, and the proposals that each of them scores.

    Tables of few rows score all rows in folds. The last stage of a large table has more rows where there is time.
    """
    rows, settings = search.rows, search.settings
    grid = Stage("grid", min(rows.n, settings.grid_rows), n_score=ALL_ROWS, folds=LEAVE_ONE_OUT)
    found: list[tuple[Stage, Proposals]] = [(grid, [(score_grid, 1.0)])]
    first: list[Proposal] = [(score_column_maps, 0.5)]
    if search.metric is not None:
        first += [(learn_metrics, 1.0), (learn_metrics_on_other_maps, 0.4)]
    last: list[Proposal] = [(take_further_gradient_steps, 1.0)]
    n_folds = settings.time_folds if rows.ordered else settings.n_folds
    if rows.n < settings.single_stage_below:
        stage = Stage("all rows", settings.last_fit_rows, n_score=ALL_ROWS, folds=n_folds, trials=settings.trials)
        return [*found, (stage, first)]
    if rows.ordered:  # a single stretch of time would decide by chance
        n_score, folds = math.ceil(2 * settings.fit_rows / n_folds), n_folds
    else:
        n_score, folds = 2 * settings.fit_rows, HOLD_OUT
    found += [(Stage("maps and metrics", settings.fit_rows, n_score, folds, settings.trials), first)]
    n_last = settings.n_last(rows.n, search.short_of_time)
    if rows.ordered:
        n_last = settings.last_fit_rows
        n_score = math.ceil(n_last / n_folds)
    elif rows.n < settings.folded_below:
        n_score, folds = ALL_ROWS, settings.last_folds
    else:
        n_score = n_last
        last += [(descend_on_held_out_error, 1.0)] if settings.descent else []
    return [*found, (Stage("last", n_last, n_score, folds, settings.last_trials, settings.survivors), last)]


def rescore_survivors(search: Search, pool: Sequence[Candidate]) -> list[Candidate]:
    """Learn metrics and models of the survivors again from the stage's rows, and tune their grid points."""
    points_by_view: dict[tuple[str, tuple[MetricStep, ...]], dict[str, GridPoint]] = {}
    for candidate in pool:
        key = candidate.view.column_map, candidate.view.steps
        points_by_view.setdefault(key, {})[candidate.family] = candidate.point

    def rescore(column_map: str, steps: tuple[MetricStep, ...], points: dict[str, GridPoint]) -> list[Candidate]:
        return [] if search.expired() else search.tuned_view(column_map, steps, points, search.stage.trials)

    if any(step.is_evidence for _, steps in points_by_view for step in steps):
        search.rows.evidence_step(search.stage)  # before views share it in parallel
    return search.run([partial(rescore, *key, points) for key, points in points_by_view.items()])


def score_grid(search: Search, pool: Sequence[Candidate]) -> list[Candidate]:
    """Score all families, length-scales and penalties on few rows by leave-one-out, or by folds of row groups."""
    rows, n, column_map = search.rows, search.stage.n_fit, search.settings.column_maps[0]
    Y, weight, Z = rows.Y[:n], rows.weight[:n], rows.mapped[column_map][:n]
    row_groups = rows.row_groups_of(torch.arange(n))
    splits = [] if row_groups is None else row_groups.splits(search.settings.time_folds)
    scored = torch.as_tensor(np.concatenate([split.scored for split in splits])) if splits else torch.arange(n)
    scored = scored.to(Y.device)
    score, penalties = Score(Y[scored], weight[scored], rows.codes), torch.tensor(PENALTIES, dtype=torch.float64)

    def best(family: str) -> list[Candidate]:
        began, trials = time.perf_counter(), list[Trial]()
        view = View(column_map, [Fold(Z, Y, weight, Z[:0])], score, [torch.ones_like(Z[0])])
        for length in (0,) if family == "linear" else FIRST_LENGTHS:
            if family == "linear":  # with a constant, or leave-one-out would see centred columns sum to zero
                K = Z @ Z.T / Z.shape[1] + 1.0
            else:
                distance = view.pair_distances(family)[0].double()
                K = tile(FAMILIES[family], distance, LENGTHS[family] * 2.0**length * view.unit(family))
            values = leave_one_out_path(K, Y, weight, penalties, splits)[:, scored]
            losses = score(values).nan_to_num(math.inf)
            k = int(losses.argmin())
            trials.append(Trial(GridPoint(family, length, k), float(losses[k]), values[k]))
        view.release()
        return [Candidate(view, min(trials, key=attrgetter("loss")), time.perf_counter() - began)]

    return search.run([partial(best, family) for family in search.settings.families])


def score_column_maps(search: Search, pool: Sequence[Candidate]) -> list[Candidate]:
    """Score every family on the other column maps; the evidence is maximised beside them."""
    starts = {candidate.family: candidate.point for candidate in pool}
    others = search.settings.column_maps[1:]
    tasks = [partial(search.tuned_view, column_map, (), starts, search.stage.trials) for column_map in others]
    if not search.uses_evidence or search.short_of_time:
        return search.run(tasks)
    with in_background(lambda: search.rows.evidence_step(search.stage)):
        return search.run(tasks)


def learn_metrics(search: Search, pool: Sequence[Candidate]) -> list[Candidate]:
    """Learn metrics on the best column map: by the evidence, and by gradients as long as each step gains.

    Gradients of the city-block kernel give a diagonal metric. Gradients of Matérn 1/2 give a full metric, starting
    from the evidence's where that is better than none.
    """
    column_map = min(pool, key=BY_LOSS).view.column_map
    without_metric = {c.family: c for c in pool if c.view.column_map == column_map and not c.view.steps}

    def diagonal() -> list[Candidate]:
        if "cityblock" not in without_metric or not search.permits(full=False):
            return []
        return _gradient_steps(search, without_metric["cityblock"], without_metric)

    def evidence_and_full() -> list[Candidate]:
        found: list[Candidate] = []
        start = without_metric
        if search.uses_evidence:
            view = without_metric["matern12"].view.stepped(search.rows.evidence_step(search.stage))
            points = {family: without_metric[family].point for family in ROUGH_FAMILIES if family in without_metric}
            tuned = search.tuned(view, points, search.settings.trials_after_step, wide=True)
            view.release()
            found += tuned if search.metric != "full" else []
            start = (
                {c.family: c for c in tuned}
                if _lowest_loss(tuned) < _lowest_loss(without_metric.values())
                else without_metric
            )
        return found + (_gradient_steps(search, start["matern12"], start) if search.permits(full=True) else [])

    return search.run([evidence_and_full, diagonal])


def _lowest_loss(candidates: Iterable[Candidate]) -> float:
    return min(candidate.loss for candidate in candidates)


def _gradient_steps(search: Search, base: Candidate, start: dict[str, Candidate]) -> list[Candidate]:
    """Steps of a gradient metric from the model of one family, as long as they gain."""
    full = base.family != "cityblock"
    points = {family: start[family].point for family in GRADIENT_FAMILIES[full] if family in start}
    found: list[Candidate] = []
    best, view = _lowest_loss(start.values()), base.view
    for _ in range(search.settings.gradient_steps):
        if search.expired(0.7):
            break
        previous = view
        view = view.stepped(MetricStep(points[base.family], full, POWERS[full][0]))
        previous.release()
        tuned = search.tuned(view, points, search.settings.trials_after_step)
        points = {candidate.family: candidate.point for candidate in tuned}
        found += tuned
        if _lowest_loss(tuned) > best * (1 - search.settings.min_gain):
            break
        best = _lowest_loss(tuned)
    view.release()
    return found


def learn_metrics_on_other_maps(search: Search, pool: Sequence[Candidate]) -> list[Candidate]:
    """Learn the best metric on other column maps that are nearly as good as the best one.

    On another map its gradient steps are taken without the evidence's step, so that ensemble members differ. The
    evidence's metric by itself is tried where its loss is near the best.
    """
    ranked = sorted(pool, key=BY_LOSS)
    near_ratio = search.settings.near_ratio
    without_metric = {c.view.column_map: c.loss for c in reversed(ranked) if not c.view.steps}
    leading = min(without_metric, key=lambda column_map: without_metric[column_map])
    near = [
        name
        for name in without_metric
        if name != leading and without_metric[name] <= near_ratio * without_metric[leading]
    ]
    models = [c for c in ranked if c.view.is_evidence_only and c.loss <= near_ratio * ranked[0].loss][:1]
    if any(not step.is_evidence for step in ranked[0].view.steps):
        models.append(ranked[0])

    def on_map(column_map: str, model: Candidate) -> list[Candidate]:
        gradient_steps = tuple(step for step in model.view.steps if not step.is_evidence)
        steps = gradient_steps or model.view.steps
        return search.tuned_view(column_map, steps, {model.family: model.point}, search.settings.trials_after_step)

    return search.run([partial(on_map, column_map, model) for column_map in near for model in models])


def take_further_gradient_steps(search: Search, pool: Sequence[Candidate]) -> list[Candidate]:
    """Take further gradient steps from the best candidate, by both powers: more rows carry more steps."""
    best = min(pool, key=BY_LOSS)
    full = best.family != "cityblock"
    if best.family == "linear" or not search.permits(full=full):
        return []

    def stepped(power: float) -> list[Candidate]:
        candidate, found = best, list[Candidate]()
        for _ in range(search.settings.gradient_steps):
            began = time.perf_counter()
            view = candidate.view.stepped(MetricStep(candidate.point, full, power))
            trial = view.tuned(candidate.point, search.stage.trials, search.settings.give_up_ratio * candidate.loss)
            view.release()
            found.append(Candidate(view, trial, time.perf_counter() - began))
            if search.expired() or trial.loss > candidate.loss * (1 - search.settings.min_gain):
                break
            candidate = found[-1]
        return found

    found = search.run([partial(stepped, power) for power in POWERS[full]])
    best.view.release()
    return found


def descend_on_held_out_error(search: Search, pool: Sequence[Candidate]) -> list[Candidate]:
    """Descend on the held-out error of the best candidate.

    A tiny penalty says that noise is tiny: the evidence has found the metric then.
    """
    least = 2 if search.metric == "full" else 1  # dimensions of a transform: a diagonal has one, a matrix two
    allowed = [c for c in pool if c.family != "linear" and c.view.transforms[0].ndim >= least]
    if not allowed:
        return []
    best = min(allowed, key=BY_LOSS)
    return [] if best.point.lam < FLOAT32_PENALTY else search.run([partial(_descended, search, best)])


def _descended(search: Search, candidate: Candidate) -> list[Candidate]:
    """The candidate after a descent on its fit rows, if that gains."""
    if search.expired():
        return []
    began, view, point = time.perf_counter(), candidate.view, candidate.point
    (fold,), (T,) = view.folds, view.transforms
    length = point.factor * view.unit(point.family)
    n = min(search.settings.last_fit_rows, 2 * search.rows.n // search.settings.last_divisor)
    rows, ends = np.arange(min(n, len(fold.X))), None
    if fold.row_groups is not None:
        rows, ends = folded(fold.row_groups.take(rows))
    kernel = FAMILIES[point.family]
    descent = Descent(
        kernel, length, point.lam, fold.X[rows], fold.Y[rows], fold.weight[rows], T, view.column_groups, ends
    )
    end = descent.minimise(search.expired) if descent.worthwhile else None
    if end is None:
        return []
    transform, lam = end
    steps = (*view.steps, MetricStep(point, descent=True))
    new = replace(view, transforms=[transform], steps=steps, previous=[T], units={})
    start = GridPoint.near(point.family, length / new.unit(point.family), lam)
    new.units[point.family == "cityblock"] = length / start.factor  # keeps the length-scale itself
    trial = new.tuned(start, search.stage.trials)
    new.release()
    return [Candidate(new, trial, time.perf_counter() - began)]


def smooth_candidates(search: Search, pool: Sequence[Candidate]) -> list[EvidenceCandidate]:
    """Kernels of largest evidence, where the best loss says that targets may be smooth; noisy targets have none."""
    settings, least = search.settings, _lowest_loss(pool)
    numbers = search.rows.codes is None and settings.evidence and search.metric != "full"
    if not numbers or least > settings.smooth_loss or search.expired(0.5):
        return []
    found = EvidenceFinalists(search).within(settings.give_up_ratio * least)
    search.report_scores(found)
    return found


def ensemble(
    search: Search, pool: Sequence[Candidate], of_evidence: Sequence[EvidenceCandidate] = ()
) -> SelectedEnsemble:
    """Average candidates by their held-out values; the constant where the average is not better."""
    rows, score = search.rows, pool[0].view.score
    ranked: list[Candidate | EvidenceCandidate] = sorted([*pool, *of_evidence], key=BY_LOSS)
    values = [candidate.values for candidate in ranked]
    zero = [] if rows.codes is not None else [torch.zeros_like(score.Y)]  # the link of classes shrinks by itself
    shares, loss = greedy_average(values + zero, score, search.settings)
    chosen = sorted((k for k in range(len(values)) if shares[k]), key=lambda k: -shares[k])
    average = sum((shares[k] * values[k] for k in chosen), torch.zeros_like(score.Y))
    link = None if rows.codes is None else fitted_link(rows.codes, average, score.Y, score.weight)
    noise_part = score.noise_part(average) if link is None else None
    factor = shrinkage_factor(score.gain(average, link), score.weight, noise_part)
    if loss >= score.constant or factor == 0:
        return constant_ensemble(search, score.constant)
    tasks = [partial(_refitted, rows, ranked[k], factor * shares[k]) for k in chosen]
    members = run_parallel(tasks, rows.device)
    found = SelectedEnsemble(members, search.report, loss)
    if not search.likelihood or search.expired():
        return found
    candidates = [candidate for candidate in (ranked[k] for k in chosen) if isinstance(candidate, Candidate)]
    kernels = [LikelihoodCandidate(search, candidate) for candidate in candidates]
    if link is None or len(kernels) < len(members):
        return found
    beaten = score.log_probability(average, link)
    return replace(found, by_likelihood=likelihood_ensemble(search, found, kernels, beaten))


def likelihood_ensemble(
    search: Search, by_squares: SelectedEnsemble, kernels: Sequence[LikelihoodCandidate], beaten: Tensor
) -> LikelihoodEnsemble:
    """The ensemble of the same kernels by kernel logistic regression, each with the penalty of least held-out loss.

    `beaten` are the log probabilities of the held-out rows' classes by least squares.
    """
    search.run([kernel.tuned for kernel in kernels])
    score = kernels[0].score
    order = sorted(range(len(kernels)), key=lambda k: kernels[k].loss)
    shares, loss = greedy_average([kernels[k].logits for k in order], score, search.settings)
    members, average = [], torch.zeros_like(score.Y)
    for k, share in zip(order, shares, strict=True):
        if share:
            average += share * kernels[k].logits
            kernel = Sum(by_squares.members[k].kernel, Bias(1.0))  # an intercept, nearly without a penalty
            members.append(replace(by_squares.members[k], kernel=kernel, penalty=kernels[k].lam, share=share))
    gain, variance = mean_and_variance(score.log_probability(average) - beaten, score.weight)
    return LikelihoodEnsemble(members, loss, float(gain), float(variance.sqrt()))


def constant_ensemble(search: Search, loss: float) -> SelectedEnsemble:
    """The constant prediction: a bias under a penalty that lets it learn nothing."""
    columns = search.rows.maps[search.settings.column_maps[0]]
    ones = torch.ones_like(columns.mean)
    member = SelectedKernel(columns, ones, Bias(1.0), CONSTANT_PENALTY, 1.0, loss, "constant")
    return SelectedEnsemble([member], search.report, loss)


def greedy_average(values: Sequence[Tensor], score: Score, settings: SelectionSettings) -> tuple[list[float], float]:
    """Shares of held-out values, best first, and the loss of their average (Caruana et al. 2004).

    Each draw takes the values that lower the loss of the average most, with replacement, until a draw gains too
    little.
    """
    counts = [1] + [0] * (len(values) - 1)
    total, best = values[0].clone(), float(score(values[0][None])[0])
    for draw in range(2, 3 * settings.members + 1):
        losses = score(torch.stack([(total + value) / draw for value in values]))
        k = int(losses.argmin())
        n_members = len(counts) - counts.count(0) + (counts[k] == 0)
        if not float(losses[k]) < best * (1 - settings.min_gain / draw) or n_members > settings.members:
            break
        counts[k] += 1
        total, best = total + values[k], float(losses[k])
    return [count / sum(counts) for count in counts], best


def _refitted(rows: SelectionRows, candidate: Candidate | EvidenceCandidate, share: float) -> SelectedKernel:
    """An ensemble member: the candidate's last metric step learned again from all rows, held-out ones included.

    Folds give the mean of their metrics. A descent is not repeated, since it takes far longer.
    """
    if isinstance(candidate, EvidenceCandidate):
        return replace(candidate.selected, share=share)
    view, point = candidate.view, candidate.point
    if view.steps and not view.steps[-1].descent:
        Z = rows.mapped[view.column_map][: rows.n_metric]
        fold = Fold(Z, rows.Y[: len(Z)], rows.weight[: len(Z)], Z[:0])
        if len(view.folds) > 1:
            view = View(view.column_map, [fold], view.score, [mean_transform(view)])
        else:
            start = View(view.column_map, [fold], view.score, view.previous, column_groups=rows.column_groups)
            view = start.stepped(view.steps[-1])
    kernel: Kernel
    if point.family == "linear":
        kernel = Scaled(Linear(), 1 / rows.X.shape[1])
    else:
        kernel = replace(FAMILIES[point.family], length_scale=point.factor * view.unit(point.family))
    transform = view.transforms[0].cpu()
    columns = rows.maps[view.column_map]
    return SelectedKernel(columns, transform, kernel, point.lam, share, candidate.loss, candidate.name)
