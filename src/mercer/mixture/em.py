"""The EM loop (Thesis09 tables 2-1 and 3-1): one pass over the rows per iteration, nothing kept per row.

`expectation` gives the objective of a mixture and, in the same pass, the sums over rows from which the M step makes the
next one. Responsibilities exist for one block at a time, so memory does not grow with the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mercer.clock import RUNNING, Clock, StopKind, StopReason
from mercer.engine import Plan, Sample, each_block
from mercer.mixture.experts import Experts, Sums
from mercer.mixture.features import Features, columns, on_device
from mercer.mixture.gates import Floor, Gates, gates_from_sums

#: Rows' worth of responsibility below which a component is removed.
DEAD = 1e-8
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
        parts = {"gates": self.gates, "floor": self.floor, "experts": self.experts}
        return replace(self, **{name: on_device(part, device) for name, part in parts.items()})

    def select(self, index: Tensor) -> Mixture:
        return replace(
            self, gates=self.gates.select(index), experts=self.experts.select(index), floor=self.floor.of(index)
        )

    def log_joint(self) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        """A function of a block's inputs, targets and features: log p(x, y, j), k × n."""
        log_gates = self._log_gates()

        def function(x: Tensor, y: Tensor, psi: Tensor) -> Tensor:
            densities = self.experts.log_density(x, y)
            return log_gates(x, psi) if densities is None else log_gates(x, psi).add_(densities)

        return function

    def log_gates(self) -> Callable[[Tensor], Tensor]:
        """A function of a block's inputs: log p(x, j), k × n."""
        log_gates = self._log_gates()

        def function(x: Tensor) -> Tensor:
            x = x.clamp(-FAR, FAR)
            return log_gates(x, self.layout.of(x))

        return function

    def _log_gates(self) -> Callable[[Tensor, Tensor], Tensor]:
        """A function of inputs and features: log p(x, j), as coefficients of the features if they are accurate."""
        if not self.gates.expandable:
            return lambda x, psi: self.gates.whitened(x)
        C = self.gates.coefficients(self.layout)
        return lambda x, psi: C @ psi[: self.layout.size]

    def block_rows(self, plan: Plan, width: int = 0) -> int:
        """Rows of a block that fits in cache with its features, responsibilities, experts and `width` more numbers."""
        return plan.tile_rows(self.layout.size + 3 * self.n_components + self.experts.width() + width)


@dataclass(frozen=True)
class Expectation:
    """Results of one pass: penalised log-likelihood, and sums for the M step."""

    objective: float
    moments: Tensor
    sums: Sums


def expectation(sample: Sample, mixture: Mixture, experts: Experts | None = None) -> Expectation:
    """The E step, and all sums over rows that the M step needs.

    With `experts` the sums are theirs and the objective is their penalised part of the expected log-likelihood, under
    the responsibilities of `mixture`.
    """
    log_joint, layout, inner = mixture.log_joint(), mixture.layout, experts is not None
    experts = mixture.experts if experts is None else experts

    def statistic(x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        psi = layout.of(x, experts.further(x, y))
        R, log_p = posterior(log_joint(x, y, psi))
        R *= w
        density = experts.log_density(x, y) if inner else None
        likelihood = w @ log_p if density is None else (R * density).sum()
        return likelihood, R @ psi.T, *experts.sums(x, y, R, psi)

    likelihood, moments, *others = sum_over_rows(sample, statistic, mixture.block_rows(sample.plan))
    return Expectation(float(likelihood - experts.penalty()), moments, tuple(others))


def sum_over_rows(
    sample: Sample, statistic: Callable[[Tensor, Tensor, Tensor], Sequence[Tensor]], block_rows: int
) -> list[Tensor]:
    """Sum over the rows of all processes the tensors that ``statistic(x, y, w)`` returns for a block of rows."""
    totals: list[Tensor] = []

    def visit(where: slice, block: Tensor) -> None:
        new = statistic(columns(block), sample.Y[where].T, sample.weight[where])
        if not totals:
            totals.extend(torch.zeros_like(value) for value in new)
        for total, value in zip(totals, new, strict=True):
            total.add_(value)

    each_block(sample.rows, sample.plan, block_rows, visit)
    if not totals:  # a process without rows takes part with sums over none
        visit(slice(0, 0), sample.rows.take(torch.arange(0)))
    return sample.rows.shard.group.sums(*totals)


def posterior(log_joint: Tensor) -> tuple[Tensor, Tensor]:
    """Responsibilities (eq. 2.12, 3.5), k × n, and log p of each row, by log-sum-exp; overwrites its argument."""
    largest = log_joint.amax(0)
    R = log_joint.sub_(largest).exp_()
    total = R.sum(0)
    return R.div_(total), largest.add_(total.log())


@dataclass(frozen=True)
class EMResult:
    """A fitted mixture, its penalised log-likelihood per unit of weight after each iteration, and why it stopped.

    `output_weights` are those that training fits after EM, if it does.
    """

    mixture: Mixture
    path: list[float]
    stop_reason: StopReason
    output_weights: Tensor | None = None

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
    clock = clock or Clock()
    any_callbacks = any(sample.rows.shard.group.gather(bool(callbacks)))
    began = clock.elapsed()
    state = expectation(sample, mixture)
    result = EMResult(mixture, [state.objective / sample.total_weight], RUNNING)
    pace = clock.elapsed() - began
    try:
        for _ in range(done, max_iter):
            if clock.expired(needing=pace, until=share):
                return replace(result, stop_reason=clock.stop_reason())
            began = clock.elapsed()
            slack = ROUNDING * (abs(state.objective) + sample.total_weight)
            for proposal in _proposals(sample, result.mixture, state, tol):
                trial = expectation(sample, proposal)
                if trial.objective >= state.objective - slack:
                    break
            else:
                why = StopReason("no step raises the likelihood any more", StopKind.EXHAUSTED)
                return replace(result, stop_reason=why)
            gain = (trial.objective - state.objective) / sample.total_weight
            state = trial
            result = EMResult(proposal, [*result.path, state.objective / sample.total_weight], RUNNING)
            pace = clock.elapsed() - began
            asked = [bool(callback(result)) for callback in callbacks]
            if any_callbacks and any(sample.rows.shard.group.gather(any(asked))):
                return replace(result, stop_reason=StopReason("a callback asked to stop", StopKind.CALLBACK))
            if gain < tol:
                sentence = f"the log-likelihood rose by less than tol={tol:g} per row"
                return replace(result, stop_reason=StopReason(sentence, StopKind.CONVERGED))
    except KeyboardInterrupt:
        clock.interrupt()
        return replace(result, stop_reason=clock.stop_reason() if clock.expired() else RUNNING)
    return replace(result, stop_reason=StopReason(f"max_iter={max_iter} iterations were done", StopKind.MAX_ITER))


def maximisation(mixture: Mixture, state: Expectation, step: float = 1.0) -> Mixture:
    """The M step: gates and experts of the next mixture."""
    gates = mixture.gates if mixture.fixed else gates_from_sums(state.moments, mixture.layout, mixture.floor)
    return replace(
        mixture, gates=gates, experts=mixture.experts.updated(state.moments, state.sums, mixture.layout, step)
    )


def iterated(sample: Sample, mixture: Mixture, tol: float) -> Experts:
    """Experts after several Newton steps, with the responsibilities of `mixture` held (IRLS, eq. 3.10 to 3.13).

    A step is halved where their part of the expected log-likelihood falls. They end when it rises by less than `tol`
    per unit of weight.
    """
    experts, step = mixture.experts, 1.0
    state = expectation(sample, mixture, experts)
    for _ in range(experts.newton_steps):
        trial = experts.updated(state.moments, state.sums, mixture.layout, step)
        found = expectation(sample, mixture, trial)
        gain = found.objective - state.objective
        if not gain > 0:
            step /= 2
            continue
        experts, state, step = trial, found, 1.0
        if gain < tol * sample.total_weight:
            break
    return experts


def _proposals(sample: Sample, mixture: Mixture, state: Expectation, tol: float) -> Iterator[Mixture]:
    """Propose next mixtures: the M step without components that have lost their rows, then shorter Newton steps.

    There is no proposal if all components are dead or sums are NaN. Components of fixed gates stay.
    """
    alive = (state.moments[:, 0] > DEAD * sample.mean_weight).nonzero()[:, 0]
    if mixture.fixed:
        alive = torch.arange(mixture.n_components, device=alive.device)
    if not len(alive):
        return
    if len(alive) < mixture.n_components:
        mixture = mixture.select(alive)
        state = replace(state, moments=state.moments[alive], sums=tuple(value[alive] for value in state.sums))
    if mixture.experts.newton_steps > 1:
        yield replace(maximisation(mixture, state), experts=iterated(sample, mixture, tol))
    step = 1.0
    while step >= SHORTEST_STEP:
        yield maximisation(mixture, state, step)
        if not mixture.experts.newton:
            return
        step /= 2
