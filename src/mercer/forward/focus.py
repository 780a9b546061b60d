"""Focus: each new block of learners is fitted to the rows of small margin only."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from mercer.forward.problem import Problem
from mercer.losses import squared_hinge
from mercer.parts import Component, component


class Focus(Component):
    """Rows with margin y·f below `margin`, at most a `share` of all rows.

    With several classes the margin of a row is its smallest one.
    """

    margin: float
    share: float

    def rows(self, problem: Problem, f: Tensor) -> Tensor:
        """Local indices of the rows of the focus, in order.

        There are at least 100, so that a perfect fit can continue.
        """
        shard, alive = problem.rows.shard, problem.n_candidates
        margins = problem.margins(f).min(1).values
        margins = torch.where(problem.weight > 0, margins, torch.inf)
        wanted = shard.count(margins < self.margin)
        size = max(min(wanted, int(self.share * alive)), min(alive, 100))
        if size == wanted:  # all of them, so no sorting is needed
            return (margins < self.margin).nonzero()[:, 0]
        return (margins <= shard.kth_value(margins, size)).nonzero()[:, 0]

    def loss(self, problem: Problem, f: Tensor, rows: Tensor) -> Tensor:
        """Loss of each validation row."""
        return problem.loss.value(problem.y[rows], f[rows]).sum(1)


@final
@component
class MarginFocus(Focus):
    """Rows that are misclassified or have a small margin (Boost10 section IV-B).

    The paper's text says 25 000 rows, "around half of the entire training set" of 522 910: a digit was lost in print,
    so the share is used here.
    """

    short_name = "margin"
    margin: float = 0.5
    share: float = 0.5


@final
@component
class HingeFocus(Focus):
    """All rows of margin below one, those with a positive squared hinge loss.

    On these rows that loss is the squared loss for targets ±1, so a learner fitted to them is a Newton step of the
    support vector machine; rows of larger margin cost nothing. On COVTYPE it halves the time per learner and lowers the
    error.
    """

    short_name = "hinge"
    margin: float = 1.0
    share: float = 1.0

    def loss(self, problem: Problem, f: Tensor, rows: Tensor) -> Tensor:
        return squared_hinge(problem.margins(f, rows), self.margin).sum(1)
