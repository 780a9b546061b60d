"""Learners: where the next function comes from (Boost10 steps 3a to 3c).

A function is a set of rows, weights on their kernel columns, and its values at all rows. S = 1 gives
the selection-based methods, S > 1 the ensemble-based ones.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from mercer.clock import Clock
from mercer.data.source import RowSubset
from mercer.engine import KernelMatrix
from mercer.forward.absorb import Block
from mercer.forward.candidates import RowCandidates, RowsAtHand
from mercer.forward.combine import ChosenVectors, Combination, Separate, Sketch
from mercer.forward.criteria import Criterion, Random
from mercer.forward.span import Functions
from mercer.parts import Component, component, require

#: The size of a learner: a number, one number per step (the last one goes on), or a function of the step.
Size = int | Sequence[int] | Callable[[int], int]
#: Rows above which passes over the columns are what costs, and the vectors that then enter in one pass.
SINGLE_ROWS, TOGETHER = 5000, 32


class Learner(Component):
    """Proposes the next functions for a block of a fit, or None when no row is worth adding."""

    #: Whether what it proposed is worth keeping in a checkpoint.
    resumes: ClassVar[bool] = True

    def end_by(self, clock: Clock, share: float) -> None:
        """End a long step when `share` of the time is spent; most learners take steps too short to ask."""
        return

    @abstractmethod
    def next(self, block: Block, step: int, rng: np.random.Generator) -> Functions | None: ...


@component
class SingleVector(Learner):
    """One basis vector: the best of the candidates by a criterion, or the first above its threshold.

    The first vector enters whatever its score: a model without any would say nothing, not even that targets are zero.
    """

    criterion: Criterion

    def next(self, block: Block, step: int, rng: np.random.Generator) -> Functions | None:
        n_open = block.n_open
        if n_open == 0:
            return None
        pick = self._acceptable if self.criterion.threshold > 0 else self._best
        index = pick(block, n_open, rng, step)
        if index is None:
            return None
        one = torch.ones(1, 1, dtype=torch.float64, device=index.device)
        return Functions(index, one, block.problem.column(index))

    def _acceptable(self, block: Block, n_open: int, rng: np.random.Generator, step: int) -> Tensor | None:
        """The first row above the threshold, in random order; at the first step the best of the first draw, else."""
        shard, fallback = block.problem.rows.shard, None
        order = shard.nth(block.is_open, rng.permutation(n_open))
        for some in order.split(self.criterion.n_candidates or len(order)):
            score = self.criterion.score(RowCandidates(block, some, rng))
            above = (score > self.criterion.threshold).nonzero()[:1, 0]
            first = shard.group.broadcast(above if len(above) else above.new_full((1,), -1))
            if int(first) >= 0:
                return some[first]
            if step == 0 and fallback is None:
                fallback = shard.group.broadcast(some[score.argmax()][None])
        return fallback

    def _best(self, block: Block, n_open: int, rng: np.random.Generator, step: int) -> Tensor:
        """The number of the row of best score among the candidates, on every process the same."""
        wanted, shard = self.criterion.n_candidates, block.problem.rows.shard
        few = wanted is not None and wanted < n_open
        if not few and (self.criterion.at_hand or not shard.divided):
            places = block.open_rows()
            return shard.max(self.criterion.score(RowsAtHand(block, places, rng)), places)[1]
        drawn = rng.choice(n_open, wanted, replace=False) if few else np.arange(n_open)
        numbers = shard.nth(block.is_open, drawn)
        best = self.criterion.score(RowCandidates(block, numbers, rng)).argmax()
        return shard.group.broadcast(numbers[best][None])


@component
class Ensemble(Learner):
    """S of T rows, chosen by a criterion on their residuals and combined (Boost10 section III-D).

    The T rows are drawn at random, or are those of largest residual (`draw="largest"`); unlike in the paper, rows that
    are basis vectors of the block already are not drawn again. With `gram_rows` the curvature
    K_NSᵀDK_NS of a learner is estimated, from that many random rows and the S chosen ones or from their distances
    (`Sketch`); slopes and values are of all rows, so the learner still descends, and absorption finds how far. Nothing
    of the size N × S is then formed: a learner costs two fused passes.
    """

    criterion: Criterion
    combination: Combination
    size: Size = 50
    subset_size: int = 500
    draw: str = "random"
    gram_rows: int | None = None

    def next(self, block: Block, step: int, rng: np.random.Generator) -> Functions | None:
        problem = block.problem
        subset = self._subset(block, rng)
        if len(subset) == 0:
            return None
        S = min(size_at(self.size, step), len(subset))
        residual = problem.loss.residual(problem.pick(problem.y, subset), problem.pick(block.f, subset))
        local = self.criterion.select(problem.kernel, problem.basis(subset), residual, problem.lam, S, rng)
        broadcast = problem.rows.shard.group.broadcast
        index = broadcast(subset[local])
        Z = problem.basis(index)
        sketch = self._sketch(block, index, Z, rng)
        # two passes, one for the weights and one for the values, take no longer than one that writes a tile of all rows
        passes = self.combination.passes
        K = problem.matrix(Z, uses=1 if sketch is not None and passes <= 2 else 1 + passes)
        Q = problem.gram(Z)
        at_basis = problem.pick(block.f, index).double()
        chosen = ChosenVectors(problem, K, Q, block.gradient(), at_basis, block.metric, sketch)
        A = broadcast(self.combination.weights(chosen))
        return Functions(index, A, K.product(A).T.contiguous())

    def _sketch(self, block: Block, index: Tensor, Z: Tensor, rng: np.random.Generator) -> Sketch | None:
        """Some rows that stand for all of them in the curvature, where that is asked for and saves anything.

        Each process brings those that it holds, and reads as many at a time as its memory allows: which rows they are
        must depend neither on that memory nor on who holds them.
        """
        problem, rows = block.problem, block.problem.rows
        n_rows = rows.shard.length(rows.n_rows)
        if self.gram_rows is None or n_rows <= 2 * (self.gram_rows + len(index)):
            return None
        numbers = torch.cat([index, block.drawn(self.gram_rows, rng)])
        at, places = rows.shard.local(numbers)
        chosen, own = (torch.arange(len(numbers), device=numbers.device) < len(index))[at], block.metric[places]
        parts = [one.sum(dtype=torch.float64) for one in (block.metric, own[chosen], own[~chosen])]
        all_rows, basis, drawn = rows.total(torch.stack(parts))
        metric = torch.where(chosen, own, own * ((all_rows - basis) / drawn).to(own))
        share = (self.gram_rows + len(index)) / n_rows
        return Sketch(KernelMatrix(RowSubset(rows, places), problem.kernel, Z, problem.plan), metric, share)

    def _subset(self, block: Block, rng: np.random.Generator) -> Tensor:
        if self.draw == "random":
            return block.drawn(self.subset_size, rng)
        shard, rows, n_open = block.problem.rows.shard, block.open_rows(), block.n_open
        if n_open <= self.subset_size:
            return shard.nth(block.is_open, np.arange(n_open))
        size = block.problem.loss.residual(block.problem.y[rows], block.f[rows]).square().sum(1)
        return shard.top_rows(size, rows, self.subset_size)


def vectors_a_pass(criterion: Criterion, n_rows: int) -> int:
    """Basis vectors that enter in one pass over the rows, where nobody says how many.

    Several enter only where the residuals or chance decide. A learner of several vectors scores them on a subset of the
    rows, where thresholds and numbers of candidates play no part, and costs MP and BOOST a fifth of their accuracy.

    >>> from mercer.forward.criteria import ApproximateLinearDependence, MaxResidual
    >>> vectors_a_pass(MaxResidual(), 6000), vectors_a_pass(ApproximateLinearDependence(), 6000)
    (32, 1)
    """
    plain = criterion.residual_alone or isinstance(criterion, Random)
    return TOGETHER if plain and n_rows > SINGLE_ROWS else 1


def vector_learner(criterion: Criterion, step: int, n_basis: int) -> Learner:
    """Basis vectors one by one, or `step` at a time with weights of their own, `n_basis` in all."""
    if step == 1:
        return SingleVector(criterion)
    sizes = [min(step, n_basis - done) for done in range(0, n_basis, step)]  # the last one may be smaller
    draw = "largest" if criterion.n_candidates is None else "random"
    return Ensemble(criterion, Separate(), sizes, 16 * step, draw)


def size_at(size: Size, step: int) -> int:
    """The learner's size at a step, whichever way it was given.

    >>> size_at([10, 20], 5), size_at(lambda step: 2 * step, 5)
    (20, 10)
    """
    if callable(size):
        number = int(size(step))
        require(number >= 1, f"the learner's size at step {step}", "at least 1", number)
        return number
    if isinstance(size, Sequence):
        return int(size[min(step, len(size) - 1)])
    return int(size)
