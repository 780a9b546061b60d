"""Penalties for losses other than squared error: each candidate kernel is fitted by the loss itself, and scored by it.

Kernels and penalties are proposed by squared error, in closed form. The scale of another loss differs, and so does the
penalty that suits it: the last stage of the selection compares penalties, and the best kernel with the average of all,
by the loss on held-out rows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from mercer.clock import Clock
from mercer.data import ArrayRows
from mercer.engine import Sample
from mercer.forward.model_selection import KernelMember, Selection, sample_of
from mercer.forward.problem import Problem
from mercer.forward.solve.polish import polish
from mercer.forward.task import Task

#: Rows of the comparison and its folds; Newton steps of a fit.
ROWS, FOLDS, STEPS = 600, 2, 20
#: A step in the penalty, and how many are taken at most in one direction.
FACTOR, MOST = 10**0.5, 6
#: Share of a time budget after which no further penalty is tried.
SHARE = 0.5


def by_loss(choice: Selection, task: Task, rng: np.random.Generator, clock: Clock) -> Selection:
    """The same kernels with penalties of least held-out loss, or the best of them alone where that loses less."""
    given = task.data
    if task.pairwise or given.shard.divided or not isinstance(given.rows, ArrayRows) or given.n_alive < 2 * FOLDS:
        return choice
    index = rng.permutation(given.draw(ROWS, rng))
    found = []
    for member in choice.members:
        sample = sample_of(given, task.Y, member.inputs, task.plan, pairwise=False).part(index).in_tiles(task.plan)
        found.append(_best_penalty(member, replace(sample, watched=sample.weight), task, clock))
    members = [member for member, _ in found]
    losses = [_loss(sample, values, task) for _, values in found]
    average = _loss(sample, torch.stack([one.share * values for one, values in found]).sum(0), task)
    best = int(np.argmin(losses))
    if average <= losses[best]:
        return replace(choice, members=members)
    return replace(choice, members=[replace(members[best], share=1.0)])


def _best_penalty(member: KernelMember, sample: Sample, task: Task, clock: Clock) -> tuple[KernelMember, Tensor]:
    """The member under the penalty of least held-out loss, searched downhill, and its held-out values."""
    best, values = member, _held_out(member, sample, task)
    for factor in (FACTOR, 1 / FACTOR):
        for _ in range(MOST):
            if clock.expired(until=SHARE):
                break
            trial = replace(best, lam=factor * best.lam)
            seen = _held_out(trial, sample, task)
            if _loss(sample, seen, task) >= _loss(sample, values, task):
                break
            best, values = trial, seen
        if best is not member:
            break
    return best, values


def _held_out(member: KernelMember, sample: Sample, task: Task) -> Tensor:
    """Values at all rows, each from the rows of other folds."""
    values = torch.zeros_like(sample.Y)
    for rows in torch.arange(len(sample.Y), device=sample.Y.device).tensor_split(FOLDS):
        weight = sample.weight.clone()
        weight[rows] = 0.0
        problem = Problem(replace(sample, weight=weight), member.kernel, member.lam, task.loss)
        values[rows] = polish(problem, problem.candidates(), max_iter=STEPS).f[rows]
    return values


def _loss(sample: Sample, values: Tensor, task: Task) -> float:
    losses = task.loss.value(sample.Y, values).double().reshape(len(values), -1).mean(1)
    return float(sample.weight.double() @ losses / sample.weight.sum())
