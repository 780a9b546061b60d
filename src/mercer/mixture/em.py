"""The EM loop (Thesis09 tables 2-1 and 3-1): one pass over the rows per iteration, nothing kept per row.

`expectation` gives the objective of a mixture and, in the same pass, the sums over rows from which the M step makes the
next one. Responsibilities exist for one block at a time, so memory does not grow with the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.clock import RUNNING, Clock, StopKind, StopReason
from mercer.engine import Plan, Sample, each_block
from mercer.mixture.experts import Experts
from mercer.mixture.features import Features, columns
from mercer.mixture.gates import Floor, Gates, gates_from_sums, make_gates

#: Rows' worth of responsibility below which a component is moved elsewhere, and below which it is removed.
FAINT, DEAD = 0.5, 1e-8
#: Shortest share of a Newton step that is tried before the loop ends.
SHORTEST_STEP = 2.0**-12
#: Fall of the objective, relative to its size, that counts as rounding.
ROUNDING = 1e-11
#: Inputs are clipped to this many deviations: their squares times any precision stay finite.
FAR = 1e100


@dataclass(frozen=True)
class Mixture:
    """Gates and experts of k components; `floor` and `layout` go with their M steps, which keep `fixed` gates."""

    gates: Gates
    experts: Experts
    floor: Floor
    layout: Features
    fixed: bool = False

    @property
    def n_components(self) -> int:
        return self.gates.n_components

    def to(self, device: Any) -> Mixture:
        """The same mixture as tensors on a device; a fitted model holds arrays."""
        gates = Gates(**{name: torch.as_tensor(value, device=device) for name, value in vars(self.gates).items()})
        variance, groups = (torch.as_tensor(a, device=device) for a in (self.floor.variance, self.floor.groups))
        floor = Floor(self.floor.kind, variance, groups)
        return replace(self, gates=gates, floor=floor, experts=self.experts.to(device))

    def select(self, index: Tensor) -> Mixture:
        return replace(
            self, gates=self.gates.select(index), experts=self.experts.select(index), floor=self.floor.of(index)
        )

    def log_joint(self) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        """A function of a block's inputs, targets and features: log p(x, y, j), k × n."""
        linear = self.experts.coefficients(self.layout)
        if not (self.gates.expandable and self.experts.expandable):
            return lambda x, y, psi: _plus(self.gates.whitened(x), self.experts.log_density(x, y))
        C = self.gates.coefficients(self.layout)
        if linear is None:
            return lambda x, y, psi: _plus(C @ psi, self.experts.log_density(x, y))
        C = torch.cat([C + linear[:, : self.layout.size], linear[:, self.layout.size :]], 1)
        return lambda x, y, psi: C @ psi

    def log_gates(self) -> Callable[[Tensor], Tensor]:
        """A function of a block's inputs: log p(x, j), k × n."""
        if not self.gates.expandable:
            return lambda x: self.gates.whitened(x.clamp(-FAR, FAR))
        C = self.gates.coefficients(self.layout)
        return lambda x: C @ self.layout.of(x.clamp(-FAR, FAR))

    def block_rows(self, plan: Plan, width: int = 0) -> int:
        """Rows of a block that fits in cache with its features, responsibilities, experts and `width` more numbers."""
        return plan.tile_rows(self.layout.size + 3 * self.n_components + self.experts.width() + width)


@dataclass(frozen=True)
class Expectation:
    """Results of one pass: penalised log-likelihood, sums for the M step, and the row of least likelihood."""

    objective: float
    moments: Tensor
    sums: dict[str, Tensor]
    worst: int


def expectation(sample: Sample, mixture: Mixture) -> Expectation:
    """The E step, and all sums over rows that the M step needs."""
    log_joint, experts, layout = mixture.log_joint(), mixture.experts, mixture.layout
    totals: dict[str, Tensor] = {}
    worst = torch.full((), torch.inf, dtype=torch.float64, device=sample.plan.device)
    at = torch.zeros((), dtype=torch.int64, device=sample.plan.device)

    def visit(where: slice, block: Tensor) -> None:
        x, y, w = columns(block), sample.Y[where].T, sample.weight[where]
        psi = layout.of(x, experts.further(x, y))
        R, log_p = posterior(log_joint(x, y, psi))
        R *= w
        new = {"moments": R @ psi.T, "log_likelihood": w @ log_p, **experts.sums(x, y, R, psi)}
        if not totals:
            totals.update({name: torch.zeros_like(value) for name, value in new.items()})
        if len(w):
            lowest, row = torch.where(w > 0, log_p, torch.inf).min(0)
            at.copy_(torch.where(lowest < worst, row + where.start, at))
            worst.copy_(torch.minimum(lowest, worst))
        for name, value in new.items():
            totals[name].add_(value)

    each_block(sample.rows, sample.plan, mixture.block_rows(sample.plan), visit)
    if not totals:  # a process without rows takes part with sums over none
        visit(slice(0, 0), sample.rows.take(torch.arange(0)))
    summed, row = (totals, int(at)) if not sample.rows.shard.divided else _of_all(sample, totals, worst, int(at))
    objective = float(summed.pop("log_likelihood") - experts.penalty())
    return Expectation(objective, summed.pop("moments"), summed, row)


def _of_all(sample: Sample, totals: dict[str, Tensor], worst: Tensor, place: int) -> tuple[dict[str, Tensor], int]:
    """Sum over the rows of all processes, and find the row of least likelihood of all, by one collective."""
    shard = sample.rows.shard
    number = int(shard.global_indices(np.array([place]))[0]) if sample.rows.n_rows else 0
    lowest = worst.new_zeros(shard.group.size, 2)  # of each process, which fills its own place
    lowest[shard.group.rank, 0], lowest[shard.group.rank, 1] = worst, number
    *sums, lowest = shard.group.sums(*totals.values(), lowest)
    return dict(zip(totals, sums, strict=True)), int(min(lowest.tolist())[1])


def posterior(log_joint: Tensor) -> tuple[Tensor, Tensor]:
    """Responsibilities (eq. 2.12, 3.5), k × n, and log p of each row, by log-sum-exp; overwrites its argument."""
    largest = log_joint.amax(0)
    R = log_joint.sub_(largest).exp_()
    total = R.sum(0)
    return R.div_(total), largest.add_(total.log())


@dataclass(frozen=True)
class EMResult:
    """A fitted mixture, its penalised log-likelihood per unit of weight after each iteration, and why it stopped."""

    mixture: Mixture
    path: list[float]
    stop_reason: StopReason
    worst: int = 0

    @property
    def objective(self) -> float:
        return self.path[-1]


def fit_em(
    sample: Sample,
    mixture: Mixture,
    max_iter: int = 200,
    tol: float = 1e-5,
    callbacks: Sequence[Callable[[EMResult], Any]] = (),
    done: int = 0,
    clock: Clock | None = None,
    share: float = 1.0,
) -> EMResult:
    """Raise the penalised log-likelihood from `mixture` on until it rises by less than `tol` per unit of weight.

    It never falls but for rounding: an iteration that loses more than `ROUNDING` is rejected. `done` of the `max_iter`
    iterations count as made before. The mixture of the last iteration is kept when its `share` of the time on the
    `clock` is used up, or the user interrupts.
    """
    clock_is_local, clock = clock is None, clock or Clock()
    any_callbacks = any(sample.rows.shard.group.gather(bool(callbacks)))
    began = clock.elapsed()
    state = expectation(sample, mixture)
    result = EMResult(mixture, [state.objective / sample.total_weight], RUNNING, state.worst)
    pace, moves = clock.elapsed() - began, 2 * mixture.n_components
    try:
        for _ in range(done, max_iter):
            if clock.expired(needing=pace, until=share):
                return replace(result, stop_reason=clock.stop_reason())
            began = clock.elapsed()
            slack = ROUNDING * (abs(state.objective) + sample.total_weight)
            for moved, proposal in _proposals(sample, result.mixture, state, moves > 0):
                moves -= moved
                trial = expectation(sample, proposal)
                if trial.objective >= state.objective - slack:
                    break
            else:
                why = StopReason("no step raises the likelihood any more", StopKind.EXHAUSTED)
                return replace(result, stop_reason=why)
            gain = (trial.objective - state.objective) / sample.total_weight
            state = trial
            result = EMResult(proposal, [*result.path, state.objective / sample.total_weight], RUNNING, state.worst)
            pace = clock.elapsed() - began
            asked = [bool(callback(result)) for callback in callbacks]
            if any_callbacks and any(sample.rows.shard.group.gather(any(asked))):
                return replace(result, stop_reason=StopReason("a callback asked to stop", StopKind.CALLBACK))
            if gain < tol and not moved:
                sentence = f"the log-likelihood rose by less than tol={tol:g} per row"
                return replace(result, stop_reason=StopReason(sentence, StopKind.CONVERGED))
    except KeyboardInterrupt:
        if clock_is_local:  # no caller could raise it
            raise
        clock.interrupt()
        return replace(result, stop_reason=clock.stop_reason() if clock.expired() else RUNNING)
    return replace(result, stop_reason=StopReason(f"max_iter={max_iter} iterations were done", StopKind.MAX_ITER))


def maximisation(mixture: Mixture, state: Expectation, step: float = 1.0) -> Mixture:
    """The M step: gates and experts of the next mixture."""
    gates = mixture.gates if mixture.fixed else gates_from_sums(state.moments, mixture.layout, mixture.floor)
    return replace(
        mixture, gates=gates, experts=mixture.experts.updated(state.moments, state.sums, mixture.layout, step)
    )


def _proposals(sample: Sample, mixture: Mixture, state: Expectation, may_move: bool) -> Iterator[tuple[bool, Mixture]]:
    """Propose next mixtures: an empty component moved to the worst row, the M step, then shorter Newton steps.

    Dead components are removed; one of them may return as the component that is moved. There is no proposal if all
    components are dead or sums are NaN. Components of fixed gates stay where they are.
    """
    rows = state.moments[:, 0] / sample.mean_weight
    if mixture.fixed:
        rows = torch.ones_like(rows)
    alive = (rows > DEAD).nonzero()[:, 0]
    if not len(alive):
        return
    lost = len(alive) < len(rows)
    if lost:
        mixture = mixture.select(alive)
        sums = {name: value[alive] for name, value in state.sums.items()}
        state, rows = replace(state, moments=state.moments[alive], sums=sums), rows[alive]
    if may_move and (lost or float(rows.min()) < FAINT):
        every = torch.arange(len(rows), device=rows.device)
        after = maximisation(mixture, state)
        if lost:
            after = after.select(torch.cat([every, rows.argmax()[None]]))
        yield True, _moved(sample, after, len(rows) if lost else int(rows.argmin()), state.worst)
    step = 1.0
    while step >= SHORTEST_STEP:
        yield False, maximisation(mixture, state, step)
        if not mixture.experts.newton:
            return
        step /= 2


def _moved(sample: Sample, mixture: Mixture, j: int, row: int) -> Mixture:
    """Move component j to a row, with one row's weight and half the mean extent; its expert is unchanged."""
    gates, share = mixture.gates, sample.mean_weight / sample.total_weight
    means, weights, covariances = gates.means.clone(), gates.weights.clone(), gates.covariances.clone()
    means[j] = columns(sample.rows.fetch(torch.tensor([row])))[:, 0]
    shape = (-1,) + (1,) * (covariances.ndim - 1)
    covariances[j] = (gates.weights.reshape(shape) * gates.covariances).sum(0) / 4
    weights[j] = 0.0
    weights = weights / weights.sum().clamp(min=1e-300) * (1 - share)
    weights[j] = share
    return replace(mixture, gates=make_gates(weights, means, covariances, mixture.floor))


def _plus(log_gates: Tensor, log_experts: Tensor | None) -> Tensor:
    return log_gates if log_experts is None else log_gates.add_(log_experts)
