"""The mean of several models of one table, those left out that rows held out are better without."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mercer.border.calibration import cross_fitted
from mercer.border.targets import ClassTargets
from mercer.forward.task import Grown, Task, outside_of


def averaged(models: list[list[Grown]]) -> list[Grown]:
    """The mean of several models; inside each, members keep the shares they have there."""
    share = 1 / len(models)
    return [
        replace(one, member=replace(one.member, share=share * one.member.share)) for model in models for one in model
    ]


def best_average(task: Task, models: list[list[Grown]]) -> list[Grown]:
    """The mean of the best few models, as many as rows held out want, in the order in which they were grown.

    Models have other length-scales and other kernels, and one that went wrong is not worth the variance it saves.
    """
    if len(models) == 1:
        return models[0]
    ranked = sorted(range(len(models)), key=lambda k: _loss(task, models[k]))
    means = [averaged([models[k] for k in sorted(ranked[:n])]) for n in range(1, len(models) + 1)]
    return min(means, key=lambda mean: _loss(task, mean))


def _loss(task: Task, grown: list[Grown]) -> float:
    """The log loss of rows held out, or their mean square."""
    outside = outside_of(grown)
    if isinstance(task.targets, ClassTargets):
        return cross_fitted(task.targets, outside.values, outside.targets, outside.weight, task.loss)[0]
    squares = np.square(outside.targets - outside.values).sum(1)
    return float(outside.weight @ squares / outside.weight.sum())
