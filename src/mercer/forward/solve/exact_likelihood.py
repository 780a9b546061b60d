"""Exact kernel logistic and softmax regression on all rows, with out-of-fold predictions from the same factor."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from mercer.data.row_groups import Split
from mercer.engine import Plan
from mercer.forward.problem import Problem
from mercer.selection.likelihood import KernelLikelihood

#: Rows up to which two classes are fitted exactly on a CPU: Newton's method takes about ten times as long as ridge.
#: Several classes have as many columns, so that rows times their root count.
CPU_ROWS = 5000
#: Arrays of n × n float64 numbers held at a time: the kernel matrix, its factor, and copies while factoring.
COPIES = 4
#: Folds that predict each row.
FOLDS = 3


class LikelihoodSolution(NamedTuple):
    """Dual coefficients, values, and out-of-fold values of all rows, n × p each.

    `splits` are those of row groups, where only the scored rows have out-of-fold values.
    """

    A: Tensor
    values: Tensor
    left_out: Tensor
    splits: list[Split]


def group_splits(problem: Problem, index: Tensor, n_folds: int, most: float = math.inf) -> list[Split]:
    """Splits of the rows `index` that keep their groups together, as places among them; none without groups."""
    row_groups = problem.sample.row_groups
    return [] if row_groups is None else row_groups.take(index.cpu().numpy()).splits(n_folds, most=most)


def likelihood_rows(plan: Plan, n_outputs: int) -> int:
    """Rows up to which the exact solution of a likelihood is affordable."""
    affordable = (plan.memory_limit / (COPIES * 8)) ** 0.5
    most = plan.exact_rows() if plan.device.type == "cuda" else CPU_ROWS / n_outputs**0.5
    return int(min(affordable, most))


def exact_likelihood(
    problem: Problem, index: Tensor, expired: Callable[[], bool] = lambda: False
) -> LikelihoodSolution:
    """Minimise the penalised log likelihood over functions of all rows in `index`.

    Every fold is a problem of its own in which its rows have weight zero; all share products and one factor. Folds do
    not start from the solution of all rows: that would carry targets of left-out rows into their predictions.
    """
    X = problem.rows.take(index).to(problem.plan.device, torch.float64)
    Y, weight = problem.y[index].double(), problem.weight[index].double()
    splits = group_splits(problem, index, FOLDS)
    n_folds = len(splits) or min(FOLDS, len(index))
    rows = torch.arange(len(index), device=X.device)
    fold = torch.zeros_like(rows) if splits else 1 + rows % n_folds
    weights = weight[:, None].repeat(1, 1 + n_folds)
    for k, (out, scored) in enumerate(splits, 1):
        weights[out, k], fold[scored] = 0.0, k
    if not splits:
        weights[rows, fold] = 0.0
    fit = KernelLikelihood(problem.kernel(X, X), Y, weights, problem.lam, problem.loss).fit(expired=expired)
    left_out = fit.values.gather(2, fold[:, None, None].expand(-1, Y.shape[1], 1))
    left_out[fold == 0] = torch.nan  # never scored
    return LikelihoodSolution(fit.alpha[:, :, 0], fit.values[:, :, 0], left_out[:, :, 0], splits)
