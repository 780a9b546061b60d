"""Learners, which propose the next function (Boost10 steps 3a to 3c).

A function is a set of rows, weights on their kernel columns, and its values at all rows. S = 1 gives the
selection-based methods, S > 1 the ensemble-based ones.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mercer.clock import Clock
from mercer.data.source import RowSubset
from mercer.engine import KernelMatrix
from mercer.forward.absorb import Block
from mercer.forward.candidates import LocalRowCandidates, RowCandidates
from mercer.forward.combine import ChosenVectors, Combination, Separate, Sketch
from mercer.forward.criteria import Criterion, Random
from mercer.forward.span import Functions
from mercer.parts import Component, component, require

#: The size of a learner: a number, a number for each step (the last one repeats), or a function of the step.
Size = int | Sequence[int] | Callable[[int], int]
#: Rows above which passes over the columns dominate the cost, and the vectors that then enter in one pass.
MANY_ROWS, VECTORS_PER_PASS = 5000, 32
#: Rows above which a learner chooses among more candidate rows.
VERY_MANY_ROWS = 1_000_000


class Learner(Component):
    """Proposes the next functions, or None if no row is worth adding."""

    #: Whether its functions are stored in a checkpoint.
    resumable: ClassVar[bool] = True

    def set_deadline(self, clock: Clock, share: float) -> None:
        """End a long step when `share` of the time is spent.

        The steps of most learners are too short for that.
        """
        return

    @abstractmethod
    def next(self, block: Block, step: int, rng: np.random.Generator) -> Functions | None: ...


@component
class SingleVector(Learner):
    """One basis vector: the best candidate, or the first above a threshold.

    The first vector enters whatever its score, because a model needs at least one.
    """

    criterion: Criterion

    def next(self, block: Block, step: int, rng: np.random.Generator) -> Functions | None:
        n_available = block.n_available
        if n_available == 0:
            return None
        choose = self._first_above_threshold if self.criterion.threshold > 0 else self._best
        index = choose(block, n_available, rng, step)
        if index is None:
            return None
        A = torch.ones(1, 1, dtype=torch.float64, device=index.device)
        return Functions(index, A, block.problem.column(index))

    def _first_above_threshold(
        self, block: Block, n_available: int, rng: np.random.Generator, step: int
    ) -> Tensor | None:
        """The first row above the threshold in random order.

        If there is none, the first step takes the best row of the first draw.
        """
        shard, fallback = block.problem.rows.shard, None
        order = shard.nth(block.is_available, rng.permutation(n_available))
        for rows in order.split(self.criterion.n_candidates or len(order)):
            score = self.criterion.score(RowCandidates(block, rows, rng))
            above = (score > self.criterion.threshold).nonzero()[:1, 0]
            first = shard.group.broadcast(above if len(above) else above.new_full((1,), -1))
            if int(first) >= 0:
                return rows[first]
            if step == 0 and fallback is None:
                fallback = shard.group.broadcast(rows[score.argmax()][None])
        return fallback

    def _best(self, block: Block, n_available: int, rng: np.random.Generator, step: int) -> Tensor:
        """The candidate of best score, the same on every process."""
        n_candidates, shard = self.criterion.n_candidates, block.problem.rows.shard
        few = n_candidates is not None and n_candidates < n_available
        if not few and (self.criterion.scores_locally or not shard.divided):
            rows = block.available_rows()
            return shard.max(self.criterion.score(LocalRowCandidates(block, rows, rng)), rows)[1]
        positions = rng.choice(n_available, n_candidates, replace=False) if few else np.arange(n_available)
        candidates = shard.nth(block.is_available, positions)
        best = self.criterion.score(RowCandidates(block, candidates, rng)).argmax()
        return shard.group.broadcast(candidates[best][None])


@component
class Ensemble(Learner):
    """S of T rows, chosen by a criterion and combined (Boost10 section III-D).

    The T rows are drawn at random from those that are no basis vectors of the block, from all rows (`draw="all"`, as in
    the paper), or are those of largest residual (`draw="largest"`). With `gram_rows` the curvature K_NSᵀDK_NS of a
    learner is estimated from that many random rows and the S chosen ones, or from their distances (`Sketch`). Slopes
    and values use all rows, so the learner still descends, and absorption finds the step length. No array of size
    N × S is then formed: a learner costs two fused passes.
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
        # two passes, for the weights and for the values, take no longer than one that writes a tile of all rows
        passes = self.combination.passes
        K = problem.matrix(Z, uses=1 if sketch is not None and passes <= 2 else 1 + passes)
        Q = problem.gram(Z)
        at_basis = problem.pick(block.f, index).double()
        chosen = ChosenVectors(problem, K, Q, block.gradient(), at_basis, block.metric, sketch)
        A = broadcast(self.combination.weights(chosen))
        return Functions(index, A, K.product(A).T.contiguous())

    def _sketch(self, block: Block, index: Tensor, Z: Tensor, rng: np.random.Generator) -> Sketch | None:
        """A sample of rows for the curvature; None if it would save nothing.

        Each process contributes the sampled rows that it holds. The sample depends neither on memory nor on which
        process holds which rows.
        """
        problem, rows = block.problem, block.problem.rows
        n_rows = rows.shard.length(rows.n_rows)
        if self.gram_rows is None or n_rows <= 2 * (self.gram_rows + len(index)):
            return None
        numbers = torch.cat([index, block.draw_available(self.gram_rows, rng)])
        at, places = rows.shard.local(numbers)
        chosen = (torch.arange(len(numbers), device=numbers.device) < len(index))[at]
        metric = block.metric[places]
        sums = [weights.sum(dtype=torch.float64) for weights in (block.metric, metric[chosen], metric[~chosen])]
        all_rows, basis, drawn = rows.total(torch.stack(sums))
        metric = torch.where(chosen, metric, metric * ((all_rows - basis) / drawn).to(metric))
        share = (self.gram_rows + len(index)) / n_rows
        return Sketch(KernelMatrix(RowSubset(rows, places), problem.kernel, Z, problem.plan), metric, share)

    def _subset(self, block: Block, rng: np.random.Generator) -> Tensor:
        """The T rows from which the learner chooses."""
        if self.draw == "random":
            return block.draw_available(self.subset_size, rng)
        if self.draw == "all":
            n = block.problem.rows.shard.count(block.problem.distinct)
            drawn = rng.choice(n, min(self.subset_size, n), replace=False)
            return block.problem.rows.shard.nth(block.problem.distinct, drawn)
        shard, rows, n_available = block.problem.rows.shard, block.available_rows(), block.n_available
        if n_available <= self.subset_size:
            return shard.nth(block.is_available, np.arange(n_available))
        size = block.problem.loss.residual(block.problem.y[rows], block.f[rows]).square().sum(1)
        return shard.top_rows(size, rows, self.subset_size)


def vectors_per_pass(criterion: Criterion, n_rows: int) -> int:
    """Default number of basis vectors that enter in one pass over the rows.

    Several enter only if residuals or chance decide. A learner of several vectors scores them on a subset of the rows,
    ignores thresholds and candidate counts, and costs MP and BOOST a fifth of their accuracy.

    >>> from mercer.forward.criteria import ApproximateLinearDependence, MaxResidual
    >>> vectors_per_pass(MaxResidual(), 6000), vectors_per_pass(ApproximateLinearDependence(), 6000)
    (32, 1)
    """
    simple = criterion.uses_residual_only or isinstance(criterion, Random)
    return VECTORS_PER_PASS if simple and n_rows > MANY_ROWS else 1


def vector_learner(criterion: Criterion, step: int, n_basis: int) -> Learner:
    """A learner that adds `step` basis vectors at a time, `n_basis` in all."""
    if step == 1:
        return SingleVector(criterion)
    sizes = [min(step, n_basis - done) for done in range(0, n_basis, step)]  # the last one may be smaller
    draw = "largest" if criterion.n_candidates is None else "random"
    return Ensemble(criterion, Separate(), sizes, 16 * step, draw)


def size_at(size: Size, step: int) -> int:
    """The learner's size at a step.

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


class LearnerSizes(NamedTuple):
    """The most basis vectors of a learner, and the candidate rows for each of them."""

    most_vectors: int
    candidates_per_vector: int

    @classmethod
    def default(cls, n_rows: int, many_rows: int, device: str) -> LearnerSizes:
        """Sizes for a table.

        Above `VERY_MANY_ROWS`, twice as many vectors take twice as long for 2 % less error.
        """
        on_gpu = device == "cuda"
        if n_rows < many_rows:
            return cls(1000, 10) if on_gpu else cls(300, 10)
        if n_rows <= VERY_MANY_ROWS:
            return cls(4000, 10) if on_gpu else cls(500, 5)
        return cls(2000, 20) if on_gpu else cls(500, 5)


@dataclass(frozen=True)
class BoostingSettings:
    """Sizes of a fit, every "auto" resolved.

    `block_length` None refits all weights with every learner; `gram_rows` None takes the curvature from all rows;
    `penalty` None leaves the penalty to model selection.
    """

    n_learners: int
    learner_size: Size
    subset_size: int
    gram_rows: int | None
    block_length: int | None
    penalty: float | None
