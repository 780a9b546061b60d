"""The ensemble of a selection: greedy averaging of the last candidates, shrunk where chance may explain its gain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from mercer.kernels import Bias, Kernel, Linear, Scaled, Sum
from mercer.selection.likelihood import LikelihoodCandidate
from mercer.selection.metric import metric_root
from mercer.selection.parallel import run_parallel
from mercer.selection.score import FLOORS, Link, Score, fitted_link, mean_and_variance, shrinkage_factor
from mercer.selection.search import Search, SelectionRows
from mercer.selection.settings import FAMILIES, SelectionSettings
from mercer.selection.view import (
    BY_LOSS,
    Candidate,
    EvidenceCandidate,
    Fold,
    LikelihoodEnsemble,
    SelectedEnsemble,
    SelectedKernel,
    View,
)

#: A penalty under which a bias learns nothing: the constant prediction.
CONSTANT_PENALTY = 1e12


def ensemble(
    search: Search, pool: Sequence[Candidate], of_evidence: Sequence[EvidenceCandidate] = ()
) -> SelectedEnsemble:
    """Average candidates by their held-out values; the constant where the average is not better."""
    rows, score = search.rows, pool[0].view.score
    ranked: list[Candidate | EvidenceCandidate] = sorted([*pool, *of_evidence], key=BY_LOSS)
    values = [candidate.values for candidate in ranked]
    zero = [] if rows.codes is not None else [torch.zeros_like(score.Y)]  # a link shrinks by itself
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
    found = SelectedEnsemble(members, search.report, loss, score.constant, link)
    if not search.likelihood or search.expired():
        return found
    kernels = [LikelihoodCandidate(search, candidate) for k in chosen if isinstance(candidate := ranked[k], Candidate)]
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
    rows = search.rows
    columns = rows.maps[search.settings.column_maps[0]]
    ones = torch.ones_like(columns.mean)
    member = SelectedKernel(columns, ones, Bias(1.0), CONSTANT_PENALTY, 1.0, loss, "constant")
    link = None if rows.codes is None else Link(rows.codes, FLOORS[0], 1.0)
    return SelectedEnsemble([member], search.report, loss, loss, link)


def greedy_average(values: Sequence[Tensor], score: Score, settings: SelectionSettings) -> tuple[list[float], float]:
    """Shares of held-out values, best first, and the loss of their average (Caruana et al. 2004).

    Each draw takes the values that lower the loss of the average most, with replacement, until a draw gains too
    little.

    >>> y = torch.tensor([[1.0], [-1.0], [2.0], [-2.0]])
    >>> shift = torch.full_like(y, 0.5)
    >>> greedy_average([y + shift, y - shift, 0 * y], Score(y, torch.ones(4)), SelectionSettings())
    ([0.5, 0.5, 0.0], 0.0)
    """
    counts = [1] + [0] * (len(values) - 1)
    total, best = values[0].clone(), float(score(values[0][None])[0])
    for draw in range(2, settings.draws + 1):
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
            start = View(view.column_map, [fold], view.score, view.previous, groups=rows.groups)
            view = start.stepped(view.steps[-1])
    kernel: Kernel
    if point.family == "linear":
        kernel = Scaled(Linear(), 1 / rows.X.shape[1])
    else:
        kernel = replace(FAMILIES[point.family], length_scale=point.factor * view.unit(point.family))
    transform = view.transforms[0].cpu()
    columns = rows.maps[view.column_map]
    return SelectedKernel(columns, transform, kernel, point.lam, share, candidate.loss, candidate.name)


def mean_transform(view: View) -> Tensor:
    """One transform for those of all folds, by the mean of their metrics."""
    step = view.steps[-1]
    twice = round(2 / step.power)
    metrics = [torch.diag(T**twice) if T.ndim == 1 else torch.linalg.matrix_power(T, twice) for T in view.transforms]
    return metric_root(torch.stack(metrics).mean(0), step.power, view.transforms[0].ndim == 2)
