"""The forward loop: add learners to a kernel model one by one.

See Boost10 section III-D and Greedy02 Algorithm 2.

One loop serves greedy selection and boosting; they differ in the learner, the length of a block and the stopping rules.
A `ForwardFit` can be continued after it has stopped.

With a focus, each new block of learners is fitted to the rows of small margin only.

Learners propose the next function (Boost10 steps 3a to 3c): a set of rows, weights on their kernel columns, and its
values at all rows. S = 1 gives the selection-based methods, S > 1 the ensemble-based ones.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from mercer.clock import StopKind, StopReason
from mercer.data.source import RowSubset
from mercer.engine import KernelMatrix
from mercer.forward.absorb import Block
from mercer.forward.candidates import LocalRowCandidates, RowCandidates
from mercer.forward.combine import ChosenVectors, Combination, Separate, Sketch
from mercer.forward.criteria import Criterion, Random
from mercer.forward.path import ExpansionPath
from mercer.forward.problem import Problem
from mercer.forward.span import Functions
from mercer.forward.stopping import History, Stopping, interrupted
from mercer.losses import squared_hinge
from mercer.parts import Component, component, require
from mercer.progress import ValidationLoss

#: The size of a learner: a number, a number for each step (the last one repeats), or a function of the step.
Size = int | Sequence[int] | Callable[[int], int]
#: Rows above which passes over the columns dominate the cost.
PASS_BOUND_ROWS = 5000
#: Vectors that then enter in one pass.
VECTORS_PER_PASS = 32
#: Rows above which a learner chooses among more candidate rows.
HUGE_TABLE_ROWS = 1_000_000
Callback = Callable[["ForwardFit"], Any]


class Learner(Component):
    """Proposes the next functions, or None if no row is worth adding."""

    #: Whether its functions are stored in a checkpoint.
    resumable: ClassVar[bool] = True

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
        size = self.criterion.n_candidates or len(order)
        for start in range(0, len(order), size):
            rows = order[start : start + size]
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
        draw_sketch = partial(self._sketch, block, index, Z, rng) if self._saves_by_sketch(block, len(index)) else None
        # two passes, for the weights and for the values, take no longer than one that writes a tile of all rows
        passes = self.combination.passes
        K = problem.matrix(Z, uses=1 if draw_sketch is not None and passes <= 2 else 1 + passes)
        at_basis = problem.pick(block.f, index).double()
        chosen = ChosenVectors(problem, K, block.gradient(), at_basis, block.metric, draw_sketch)
        A = broadcast(self.combination.weights(chosen))
        return Functions(index, A, K.product(A).T.contiguous())

    def _saves_by_sketch(self, block: Block, size: int) -> bool:
        """Whether sampled rows and the learner's basis vectors are fewer than half of all rows."""
        rows = block.problem.rows
        return self.gram_rows is not None and rows.shard.length(rows.n_rows) > 2 * (self.gram_rows + size)

    def _sketch(self, block: Block, index: Tensor, Z: Tensor, rng: np.random.Generator) -> Sketch:
        """A sample of rows for the curvature.

        Each process contributes the sampled rows that it holds. The sample depends neither on memory nor on which
        process holds which rows.
        """
        problem, rows = block.problem, block.problem.rows
        assert self.gram_rows is not None
        numbers = torch.cat([index, block.draw_available(self.gram_rows, rng)])
        at, places = rows.shard.local(numbers)
        chosen = (torch.arange(len(numbers), device=numbers.device) < len(index))[at]
        metric = block.metric[places]
        sums = [weights.sum(dtype=torch.float64) for weights in (block.metric, metric[chosen], metric[~chosen])]
        all_rows, basis, drawn = rows.total(torch.stack(sums))
        metric = torch.where(chosen, metric, metric * ((all_rows - basis) / drawn).to(metric))
        share = (self.gram_rows + len(index)) / rows.shard.length(rows.n_rows)
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
    return VECTORS_PER_PASS if simple and n_rows > PASS_BOUND_ROWS else 1


def vector_learner(criterion: Criterion, step: int, n_basis: int) -> Learner:
    """A learner that adds `step` basis vectors at a time, `n_basis` in all."""
    if step == 1:
        return SingleVector(criterion)
    sizes = [min(step, n_basis - done) for done in range(0, n_basis, step)]  # the last one may be smaller
    draw = "largest" if criterion.n_candidates is None else "random"
    return Ensemble(criterion, Separate(), sizes, 16 * step, draw)


def size_at(size: Size, step: int) -> int:
    """The learner's size at a step."""
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

        Above `HUGE_TABLE_ROWS`, twice as many vectors take twice as long for 2 % less error.
        """
        on_gpu = device == "cuda"
        if n_rows < many_rows:
            return cls(1000, 10) if on_gpu else cls(300, 10)
        if n_rows <= HUGE_TABLE_ROWS:
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


class ForwardFit:
    """The state of a fit: blocks, model values `f` at all rows, and history."""

    def __init__(
        self,
        problem: Problem,
        learner: Learner,
        rng: np.random.Generator,
        *,
        block_length: int | None = None,
        shrinkage: float = 1.0,
        focus: Focus | None = None,
        validation: Tensor | None = None,
        capacity: int = 64,
        make_block: Callable[..., Block] = Block,
    ) -> None:
        self.problem, self.learner, self.rng = problem, learner, rng
        self.block_length, self.shrinkage, self.focus, self.capacity = block_length, shrinkage, focus, capacity
        self.validation, self.make_block = validation, make_block
        self.f = torch.zeros_like(problem.y)
        self.blocks: list[Block] = []
        self.current: Block | None = None
        self.norm2 = torch.zeros((), dtype=torch.float64, device=problem.plan.device)
        self.history = History(n_rows=problem.sample.total_weight)
        self._began = time.perf_counter()
        self.interrupted = False
        self.after_step: Callback | None = None  # called after every step

    @property
    def n_steps(self) -> int:
        return len(self.history.seconds)

    @property
    def seconds(self) -> float:
        """Seconds of all steps so far."""
        return self.history.seconds[-1] if self.history.seconds else 0.0

    def run(self, stopping: Sequence[Stopping], callbacks: Sequence[Callback] = ()) -> StopReason:
        """Add learners until a rule ends the fit; return its reason."""
        self._began = time.perf_counter() - self.seconds
        while (why := next(filter(None, (rule.reason(self.history) for rule in stopping)), None)) is None:
            try:
                if not self.step():
                    why = StopReason("no further row is worth adding as a basis vector", StopKind.EXHAUSTED)
                    break
                asked = [bool(callback(self)) for callback in callbacks]
            except KeyboardInterrupt:
                if not self.n_steps:
                    raise
                self.interrupted, why = True, interrupted(self.n_steps)
                break
            if any(self.problem.rows.shard.group.gather(any(asked))):
                why = StopReason("a callback asked to stop", StopKind.CALLBACK)
                break
        return why

    def step(self) -> bool:
        """Propose, absorb and record one learner; False if there is none."""
        block = self.current if self.current is not None else self._open_block()
        new = self.learner.next(block, self.n_steps, self.rng)
        if new is None:
            return False
        block.absorb(new, self.shrinkage)
        penalty = self.norm2 + block.penalty()
        if block.subset is None:
            self.f = block.f
        else:
            self.f[block.subset] = block.f  # the other rows are updated when the block ends
        if self.block_length is not None and len(block.terms) >= self.block_length:
            self._close_block(block, penalty)
        self._record(penalty, block.span.novelty, len(new.index))
        if self.after_step is not None:
            self.after_step(self)
        return True

    def _open_block(self) -> Block:
        """Start a block on all rows, or on the rows of the focus and the validation rows."""
        problem, subset, f = self.problem, None, self.f
        if self.focus is not None and (self.blocks or problem.codes is not None):
            subset = self.focus.rows(problem, self.f)
            if self.validation is not None:  # of weight zero, but their predictions must be up to date
                subset = torch.cat([subset, self.validation]).unique()
            problem, f = problem.subset(subset), self.f[subset]
        b = self.problem.n_outputs
        capacity = self.capacity if self.block_length is None else min(self.block_length * b, self.capacity)
        self.current = block = self.make_block(problem, f, capacity, subset)
        block.full_shard = self.problem.rows.shard
        return block

    def _close_block(self, block: Block, penalty: Tensor) -> None:
        """End the block: update the model at all other rows and free its memory."""
        if block.subset is not None:
            path, device = ExpansionPath.of([block]), block.subset.device
            index = torch.as_tensor(path.rows, device=device)
            W = torch.as_tensor(path.weights(path.n_steps), device=device)
            others = torch.ones(len(self.f), dtype=torch.bool, device=device)
            others[block.subset] = False
            rest = others.nonzero()[:, 0]
            self.f[rest] += self.problem.subset(rest).matrix(self.problem.basis(index)).product(W)
        self.norm2 = penalty
        block.release()
        self.blocks.append(block)
        self.current = None

    def _record(self, penalty: Tensor, novelty: Tensor, n_new: int) -> None:
        problem, history = self.problem, self.history
        error = problem.loss.residual(problem.y, self.f)
        residual = problem.rows.total((problem.weight[:, None] * error.square()).sum(dtype=torch.float64)).sqrt()
        held_out = [] if self.validation is None else [self.held_out_loss()]
        objective = problem.objective(self.f, penalty)
        history.objective.append(float(objective))
        history.residual_norm.append(float(residual))
        history.validation += held_out
        history.novelty.append(novelty.tolist())
        history.n_basis.append((history.n_basis[-1] if history.n_basis else 0) + n_new)
        history.seconds.append(problem.rows.shard.group.first(lambda: time.perf_counter() - self._began))

    def held_out_loss(self) -> float:
        """Mean loss of the validation rows: that of the focus, if there is one."""
        problem, rows = self.problem, self.validation
        assert rows is not None
        if self.focus is not None:
            return float(problem.validation_mean(self.focus.loss(problem, self.f, rows), rows))
        return float(problem.validation_mean(problem.loss.value(problem.y[rows], self.f[rows]), rows))

    def path(self) -> ExpansionPath:
        """The model after any number of steps."""
        return ExpansionPath.of([*self.blocks, *([self.current] if self.current is not None else [])])


def validation_loss(fit: ForwardFit) -> ValidationLoss | None:
    """The mean loss of the validation rows after the last step and the least one; None without such rows."""
    losses = fit.history.validation
    return ValidationLoss(losses[-1], min(losses)) if losses else None
