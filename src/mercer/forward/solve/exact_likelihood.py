"""Exact kernel logistic and softmax regression on all rows, with out-of-fold predictions from the same factor."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

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
    """Dual coefficients, values, and out-of-fold values of all rows, n × p each."""

    A: Tensor
    values: Tensor
    left_out: Tensor


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
    n_folds = min(FOLDS, len(index))
    rows = torch.arange(len(index), device=X.device)
    fold = 1 + rows % n_folds
    weights = weight[:, None].repeat(1, 1 + n_folds)
    weights[rows, fold] = 0.0
    fit = KernelLikelihood(problem.kernel(X, X), Y, weights, problem.lam, problem.loss).fit(expired=expired)
    left_out = fit.values.gather(2, fold[:, None, None].expand(-1, Y.shape[1], 1))
    return LikelihoodSolution(fit.alpha[:, :, 0], fit.values[:, :, 0], left_out[:, :, 0])
