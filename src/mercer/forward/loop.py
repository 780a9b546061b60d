"""The forward loop: add learners to a kernel model one by one.

See Boost10 section III-D and Greedy02 Algorithm 2.

One loop serves greedy selection and boosting; they differ in the learner, the length of a block and the stopping rules.
A `ForwardFit` can be continued after it has stopped.

With a focus, each new block of learners is fitted to the rows of small margin only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from mercer.clock import StopKind, StopReason
from mercer.forward.absorb import Block
from mercer.forward.learners import Learner
from mercer.forward.path import ExpansionPath
from mercer.forward.problem import Problem
from mercer.forward.stopping import History, Stopping, interrupted
from mercer.losses import squared_hinge
from mercer.parts import Component, component
from mercer.progress import ValidationLoss

Callback = Callable[["ForwardFit"], Any]


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
        self._pending: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
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
        watching = any(rule.watches for rule in stopping) or bool(callbacks)
        self._began = time.perf_counter() - self.seconds
        while (why := next(filter(None, (rule.reason(self.history) for rule in stopping)), None)) is None:
            try:
                if not self.step():
                    why = StopReason("no further row is worth adding as a basis vector", StopKind.EXHAUSTED)
                    break
                if watching:
                    self.flush()
                asked = [bool(callback(self)) for callback in callbacks]
            except KeyboardInterrupt:
                if not self.n_steps:
                    raise
                self.interrupted, why = True, interrupted(self.n_steps)
                break
            if any(self.problem.rows.shard.group.gather(any(asked))):
                why = StopReason("a callback asked to stop", StopKind.CALLBACK)
                break
        self.flush()
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
        novelty = block.span.novelty
        if self.block_length is not None and len(block.terms) >= self.block_length:
            self._close_block(block, penalty)
        self._record(penalty, novelty, len(new.index))
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
        held_out = residual.new_zeros(())
        if self.validation is not None:
            held_out = self.held_out_loss()
        self._pending.append((problem.objective(self.f, penalty), residual, held_out, novelty))
        history.n_basis.append((history.n_basis[-1] if history.n_basis else 0) + n_new)
        history.seconds.append(problem.rows.shard.group.first(lambda: time.perf_counter() - self._began))

    def held_out_loss(self) -> Tensor:
        """Mean loss of the validation rows: that of the focus, if there is one."""
        problem, rows = self.problem, self.validation
        assert rows is not None
        if self.focus is not None:
            return problem.validation_mean(self.focus.loss(problem, self.f, rows), rows)
        return problem.validation_mean(problem.loss.value(problem.y[rows], self.f[rows]), rows)

    def flush(self) -> None:
        """Copy the recorded numbers from the device to the host."""
        for objective, residual, held_out, novelty in self._pending:
            self.history.objective.append(float(objective))
            self.history.residual_norm.append(float(residual))
            self.history.novelty.append(novelty.tolist())
            if self.validation is not None:
                self.history.validation.append(float(held_out))
        self._pending.clear()

    def path(self) -> ExpansionPath:
        """The model after any number of steps."""
        return ExpansionPath.of([*self.blocks, *([self.current] if self.current is not None else [])])


def validation_loss(fit: ForwardFit) -> ValidationLoss | None:
    """The mean loss of the validation rows after the last step and the least one; None without such rows."""
    losses = fit.history.validation
    return ValidationLoss(losses[-1], min(losses)) if losses else None
