"""Penalties for losses other than squared error.

Model selection proposes kernels and penalties by squared error, in closed form. Another loss has another scale and
needs another penalty. This last stage of the selection fits each kernel by the loss itself with several penalties, and
compares the best kernel with the average of all by the loss on held-out rows.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from mercer.clock import Clock
from mercer.data import ArrayRows
from mercer.engine import Sample
from mercer.forward import time_shares
from mercer.forward.model_selection import KernelMember, Selection, sample_of
from mercer.forward.problem import Problem
from mercer.forward.solve.exact import exact_likelihood
from mercer.forward.solve.polish import polish
from mercer.forward.task import Task
from mercer.kernels import Bias, Linear, Scaled, Sum
from mercer.linalg import cholesky
from mercer.selection.likelihood import FACTOR, MOST_STEPS
from mercer.selection.settings import DEFAULT_SETTINGS

#: Rows of the comparison, and the most Newton steps of a fit or passes of a cleaning. Losses that are fitted to all
#: rows at once are compared on as many rows as a last stage fits: of sixteen simulated tables of counts, errors are 6 %
#: lower than with 600 rows in two folds.
ROWS, STEPS = 600, 20
#: Leave-one-out residuals beyond this many standard deviations are gross errors. Smaller ones are left to the loss.
FENCE = 8 * 1.4826
#: The least gross error, in standard deviations of the targets without gross errors: without noise the fence is narrow.
LEAST = 1.0
#: Further selections with targets that earlier ones have freed from gross errors.
CLEANING_ROUNDS = 2


def select_by_loss(
    select: Callable[..., Selection],
    task: Task,
    Y: np.ndarray,
    rng: np.random.Generator,
    clock: Clock,
    *,
    cleans: bool,
) -> Selection:
    """Select from targets `Y`, and choose penalties by the loss; where `cleans`, again without gross errors in `Y`."""
    same_draws = deepcopy(rng)  # selections differ in their targets alone
    selection, cleaned = select(Y, rng=rng), Y
    gross = np.zeros(task.Y.shape, dtype=bool)
    for _ in range(CLEANING_ROUNDS if cleans else 0):
        if clock.expired(until=time_shares.LAST_CHOICE):
            break
        cleaned, before = without_gross_errors(selection, task, cleaned), gross
        gross = cleaned != task.Y
        if (gross == before).all():
            break
        weight = task.data.weight[: len(cleaned)]
        centred = cleaned - np.average(cleaned, axis=0, weights=weight)
        selection = select(centred, rng=deepcopy(same_draws))
    if gross.any():  # by the last kernels: a fit to such predictions is the fit without their rows
        selection = replace(selection, targets=without_gross_errors(selection, task, cleaned))
    return by_loss(selection, task.with_targets(selection), rng, clock)


def by_loss(selection: Selection, task: Task, rng: np.random.Generator, clock: Clock) -> Selection:
    """The same kernels with penalties of least held-out loss, or the best of them alone if that has less loss."""
    data = task.data
    in_memory = isinstance(data.rows, ArrayRows) and not (task.pairwise or data.shard.divided)
    if not in_memory or data.n_alive < 2 * DEFAULT_SETTINGS.last_folds or clock.expired(until=time_shares.LAST_CHOICE):
        return selection
    index = rng.permutation(data.draw(DEFAULT_SETTINGS.last_fit_rows if task.loss.newton else ROWS, rng))
    found = []
    for member in map(_with_constant, selection.members) if _needs_constant(selection, task) else selection.members:
        sample = sample_of(data, task.Y, member.inputs, task.plan, pairwise=False).part(index).in_tiles(task.plan)
        found.append(_best_penalty(member, replace(sample, validation_weight=sample.weight), task, clock))
    members = [member for member, _ in found]
    losses = [_loss(sample, values, task) for _, values in found]
    average = _loss(sample, torch.stack([member.share * values for member, values in found]).sum(0), task)
    best = int(np.argmin(losses))
    if average <= losses[best]:
        return replace(selection, members=members)
    return replace(selection, members=[replace(members[best], share=1.0)])


def _needs_constant(selection: Selection, task: Task) -> bool:
    """Whether selected linear kernels need a constant: logarithms of means are not centred where targets are."""
    return task.loss.link == "log" and bool(selection.report)


def _with_constant(member: KernelMember) -> KernelMember:
    linear = isinstance(member.kernel, Scaled) and isinstance(member.kernel.kernel, Linear)
    return replace(member, kernel=Sum(member.kernel, Bias())) if linear else member


def without_gross_errors(selection: Selection, task: Task, start: np.ndarray) -> np.ndarray:
    r"""Replace gross errors in targets by predictions without their rows; `start` are targets without the largest ones.

    A bounded loss slope does not protect an isolated row: a small penalty lets its own kernel function follow any
    target. Each row is therefore predicted without itself, in closed form. The residual is compared with its standard
    deviation :math:`[G^{-1}]_{ii}^{-1/2}` up to a factor, G = K + λD⁻¹, which is large where rows are few. The median
    size estimates this factor. Passes repeat until no row changes.
    """
    index = task.problem(selection.members[0]).candidates()
    rows = index.cpu().numpy()
    smoothers = [_leave_one_out(task.problem(member), index, member.share) for member in selection.members]
    deviation = sum(share * size for _, size, share in smoothers)
    Y, cleaned, gross = task.Y[rows], start[rows], None
    for _ in range(STEPS):
        values = sum(share * (cleaned - predict @ cleaned) for predict, _, share in smoothers)
        size = np.abs(Y - values)
        residual = size / deviation
        before, gross = gross, (residual > FENCE * np.median(residual, axis=0)) & (size > LEAST * cleaned.std(axis=0))
        cleaned = np.where(gross, values, Y)
        if before is not None and (gross == before).all():
            break
    found = task.Y.copy()
    found[rows] = cleaned
    return found


def _leave_one_out(problem: Problem, index: Tensor, share: float) -> tuple[np.ndarray, np.ndarray, float]:
    """The matrix of leave-one-out residuals, their standard deviations in units of the median one, and the share."""
    X = problem.rows.take(index).to(problem.plan.device, torch.float64)
    G = problem.kernel(X, X)
    G.diagonal().add_(problem.lam / problem.weight[index].double())
    inverse = torch.cholesky_inverse(cholesky(G)[0])
    precision = inverse.diagonal()[:, None]
    deviation = (precision.median() / precision).sqrt()
    return (inverse / precision).cpu().numpy(), deviation.cpu().numpy(), share


def _best_penalty(member: KernelMember, sample: Sample, task: Task, clock: Clock) -> tuple[KernelMember, Tensor]:
    """The member with the penalty of least held-out loss, by a search downhill, and its held-out predictions."""
    best, values = member, _held_out(member, sample, task)
    for factor in (FACTOR, 1 / FACTOR):
        for _ in range(MOST_STEPS):
            if clock.expired(until=time_shares.LAST_CHOICE):
                break
            trial = replace(best, lam=factor * best.lam)
            trial_values = _held_out(trial, sample, task)
            if _loss(sample, trial_values, task) >= _loss(sample, values, task):
                break
            best, values = trial, trial_values
        if best is not member:
            break
    return best, values


def _held_out(member: KernelMember, sample: Sample, task: Task) -> Tensor:
    """Out-of-fold predictions of all rows; NaN at rows that no fold scores."""
    values = torch.full_like(sample.Y, torch.nan)
    if task.loss.newton:
        problem = Problem(sample, member.kernel, member.lam, task.loss)
        index = problem.candidates()
        values[index] = exact_likelihood(problem, index).left_out.to(values)
        return values
    n_folds = DEFAULT_SETTINGS.last_folds
    if sample.row_groups is None:
        splits = [(rows, rows) for rows in torch.arange(len(sample.Y), device=sample.Y.device).tensor_split(n_folds)]
    else:
        splits = [(torch.as_tensor(s.left_out), torch.as_tensor(s.scored)) for s in sample.row_groups.splits(n_folds)]
    for left_out, scored in splits:
        weight = sample.weight.clone()
        weight[left_out] = 0.0
        problem = Problem(replace(sample, weight=weight), member.kernel, member.lam, task.loss)
        values[scored] = polish(problem, problem.candidates(), max_iter=STEPS).f[scored]
    return values


def _loss(sample: Sample, values: Tensor, task: Task) -> float:
    losses = task.loss.value(sample.Y, values).double().reshape(len(values), -1).mean(1)
    weight = torch.where(losses.isnan(), 0.0, sample.weight.double())
    return float(weight @ losses.nan_to_num() / weight.sum())
