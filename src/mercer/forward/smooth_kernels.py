"""Replace the selected kernels by a differentiable one, for functions whose slopes have signs.

Slopes of Laplacian and Matérn 1/2 kernels jump at every basis vector. One kernel therefore replaces the selected
ensemble: of its differentiable members, and of kernels exp(−Σ|x − z|^p/ℓ^p) with p = 1.75 in the coordinates of each
member, the one of least leave-one-out error. With long length-scales these are nearly sums of functions of one
column, like Laplacian kernels, and smooth.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from mercer.forward.model_selection import KernelMember, Selection, sample_of
from mercer.forward.task import Task
from mercer.kernels import Laplacian, Matern12, Separable
from mercer.selection.score import leave_one_out_path
from mercer.selection.settings import PENALTIES

#: The exponent of the kernel exp(−Σ|x − z|^p/ℓ^p) that replaces Laplacian kernels, whose slopes jump at basis vectors.
POWER = 1.75
#: Rows on which its length-scale and penalty are chosen, and length-scales in units of that of the rough kernel.
SMOOTHING_ROWS, FACTORS = 400, (0.5, 1.0, 2.0, 4.0, 8.0)
#: Leave-one-out errors within this factor of the least count as equal.
NEARLY = 1.01
#: Folds for rows in groups or in an order of time, where single rows are not left out.
SMOOTHING_FOLDS = 5


def smooth_selection(selection: Selection, task: Task, Y: np.ndarray) -> Selection:
    """The differentiable kernel of least leave-one-out error in the coordinates of any member of the selection.

    Of nearly equal ones a member is preferred, which the selection chose from more rows, and then the largest penalty,
    which is solved fastest.
    """
    members = selection.members
    found = [candidate for member in members for candidate in smooth_candidates(member, task, Y)]
    least = min(loss for loss, _ in found)
    nearly = [candidate for loss, candidate in found if loss <= NEARLY * least]
    kernels = [member.kernel for member in members]
    best = max(nearly, key=lambda found: (found.kernel in kernels, found.lam))
    return replace(selection, members=[replace(best, share=1.0)])


def smooth_candidates(member: KernelMember, task: Task, Y: np.ndarray) -> Iterator[tuple[float, KernelMember]]:
    """Leave-one-out errors of the member, unless it is rough, and of smooth kernels with its coordinates."""
    kernel: Any = member.kernel
    sample = sample_of(task.data, Y, member.inputs, task.plan, pairwise=False)
    part = sample.part(sample.spaced(SMOOTHING_ROWS))
    X, weight = part.rows.take(np.arange(part.n_rows)).double(), part.weight
    splits = [] if part.row_groups is None else part.row_groups.splits(SMOOTHING_FOLDS)
    trials = [] if isinstance(kernel, Laplacian | Matern12) else [kernel]
    lengths = np.asarray(getattr(kernel, "length_scale", 1.0))
    trials += [Separable((factor * lengths).tolist(), p=POWER, q=POWER) for factor in FACTORS]
    for trial in trials:
        penalties = [member.lam] if trial is kernel or not task.free_penalty else PENALTIES
        values = leave_one_out_path(trial(X, X), part.Y, weight, torch.tensor(penalties), splits)
        errors = (values - part.Y).square().sum(2)
        losses = (weight * errors.nan_to_num()).sum(1) / (weight * errors.isfinite()).sum(1)
        for loss, lam in zip(losses.tolist(), penalties, strict=True):
            yield loss, replace(member, kernel=trial, lam=lam)
