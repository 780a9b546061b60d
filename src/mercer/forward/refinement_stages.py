"""Refinement stages: fit the residuals of a model with the same or shorter length-scales while validation loss falls.

Each stage is fitted to the residuals of the stages before it. After every few learners, one learner of a shorter
length-scale is tried on the current residuals. The validation rows decide whether the model continues with the current
kernel, continues with the shorter length-scale, or is complete. Short length-scales make learners in different places
independent, which boosting needs; long ones generalise from few rows. The model is the sum of all stages, each with its
own penalty.

A table with more rows than a stage is fitted to is sampled again for every stage (`mercer.forward.stage_sampling`).
`docs/ablations.md` has the measurements behind the numbers.

With time left, further models of the table are fitted and averaged, as far as their loss on validation rows falls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.base.calibration import cross_fitted
from mercer.clock import Clock, StopKind, StopReason
from mercer.data import TensorRows
from mercer.engine.plan import SAMPLE_ROWS
from mercer.forward import time_shares
from mercer.forward.held_out import HeldOutPredictions, held_out_predictions, validation_predictions
from mercer.forward.large_tables import extrapolate_loss
from mercer.forward.local_stage import local_stage
from mercer.forward.loop import Focus, ForwardFit, HingeFocus, validation_loss
from mercer.forward.model_selection import KernelMember
from mercer.forward.path import FittedExpansion
from mercer.forward.problem import Problem
from mercer.forward.stage_sampling import StageSampler
from mercer.forward.stopping import MaxSteps, Stopping, TimeBudget
from mercer.forward.task import FittedMember, Task, ensemble_predictions
from mercer.kernels.partitioned import Partitioned
from mercer.progress import step_callbacks
from mercer.selection.more_rows import scaled

#: Time that a refinement stage needs to begin, in learners: a pass, one learner per length-scale, and one more.
STAGE_LEARNERS = 4
#: A local stage takes as long as this many kernel values of boosting for each row (COVTYPE, two cores).
LOCAL_VALUES = 10_000
#: Begins a fit to a problem with validation rows.
BeginFit = Callable[[Problem, Tensor | None], ForwardFit]
#: Share of the budget that must remain for a candidate that was not fitted yet. A model that is cut short is scored
#: like any other.
UNTRIED_SHARE = 0.1


@dataclass(frozen=True)
class RefinementSettings:
    """Numbers of a boosted model's first learners, refinement stages and further models.

    Attributes
    ----------
    first_learners : learners before the first check, by default
    length_factor : factor of the length-scales that is tried at every check
    further_length_factors : factors that are tried only after `max_idle_checks` checks without gain
    learners_per_check : learners between two trials of a shorter length-scale
    min_ratio : least gain of the first learner of a new stage, in units of the mean gain of the current learners
    min_gain : least gain of a learner, as a share of the validation loss
    max_idle_checks : checks in a row without that gain after which the current kernel is done
    sample_power : `min_gain` is lower for sampled tables, by this power of the share of rows in a sample
    separable_error : validation error below which stages of a classifier are fitted to rows of small margin only
    max_models : models that are fitted within a time budget, at most
    cell_rows : rows of a cell of the local stage at most, on a CPU and on a GPU
    local_rows : rows of a local stage at most, about as many where they are drawn from a larger table
    extrapolation_factors : boosting is extrapolated to this many times its first learners, as many as it may take on a
        CPU and on a GPU, and runs before a local stage if it then has less loss
    """

    first_learners: int = 20
    length_factor: float = 0.6
    further_length_factors: tuple[float, ...] = (0.36, 0.216)
    learners_per_check: int = 10
    min_ratio: float = 2.0
    min_gain: float = 5e-4
    max_idle_checks: int = 2
    sample_power: float = 0.25
    separable_error: float = 0.1
    max_models: int = 32
    cell_rows: tuple[int, int] = (1500, 16_384)
    local_rows: int = 1_500_000
    extrapolation_factors: tuple[int, int] = (3, 50)


@dataclass
class RefinementStages:
    """The refinement stages of one model, and what they share.

    `begin` begins a fit. The stages end when the share `until` of the `clock` is spent. `focus` restricts stages to
    rows of small margin. `sampler` draws other rows for each stage; `model` holds the complete stages, for which it
    needs predictions. `fits` are the refinement stages so far.
    """

    begin: BeginFit
    settings: RefinementSettings = field(default_factory=RefinementSettings)
    clock: Clock = field(default_factory=Clock)
    until: float = 1.0
    classes: bool = False
    focus: Focus | None = None
    checkpoint: Any = None
    sampler: StageSampler | None = None
    local: bool = True
    first_losses: list[float] = field(default_factory=list)
    model: list[FittedExpansion] = field(default_factory=list)
    fits: list[ForwardFit] = field(default_factory=list)

    def refine(self, first: FittedMember, task: Task) -> list[FittedMember]:
        """The first stage of a model and stages that are fitted to its residuals.

        An ensemble gains only a member's share of what the member gains, so `min_gain` is divided by it. A model of a
        sampled table may take longer, since more rows are to make it better.
        """
        min_gain = self.settings.min_gain / first.member.share
        if task.full_table is not None:
            min_gain *= (task.data.n_alive / task.full_table.n_alive) ** self.settings.sample_power
            self.sampler = StageSampler.after(first, task, classes=self.classes)
        self.settings = replace(self.settings, min_gain=min_gain)
        self.checkpoint = task.checkpoint
        self.model, self.first_losses = [first.final], first.fit.history.validation
        parts = self._local_stage_of_table(first, task)
        if parts:
            return parts
        problem = first.fit.problem
        if self.classes:  # margins are products with the codes ±1, not with centred targets
            problem = replace(problem, codes=problem.y + torch.as_tensor(task.targets.offset).to(problem.y))
        f = problem.matrix(first.final.basis).product(first.final.weights)
        return [first, *completed(first, self.fit(problem, f, first.fit.validation))]

    def fit(self, problem: Problem, f: Tensor, validation: Tensor | None) -> list[ForwardFit]:
        """Fit stages to the residuals of a model with values `f` until none lowers the validation loss enough."""
        if self.focus is None:
            self.focus = self._separable_focus(problem, f, validation)
        local, may_be_local = None, problem.n_candidates <= self.settings.local_rows
        try:
            if may_be_local:
                local = self._local_stage(problem, f, validation)
            if local is not None and self._is_ahead(local):
                return [local]
            begun = self._first_stage(problem, f, validation)
            if begun is not None:
                self.fits = [self._on_new_rows(begun)]
                self._add_stages()
                if may_be_local:
                    last = self.fits[-1]
                    local = self._local_stage(last.problem, last.f, last.validation)
            if local is not None:
                self.fits.append(local)
        except KeyboardInterrupt:
            if not self.fits:
                raise
            self.fits[-1].interrupted = True
        if self.fits and self.fits[-1].interrupted:
            self.clock.interrupt()
        return self.fits

    def _local_stage(self, problem: Problem, f: Tensor, validation: Tensor | None) -> ForwardFit | None:
        """A stage that is exact within cells, on the residuals of values `f`, if it gains enough."""
        if validation is None or not self.local or not problem.loss.quadratic:
            return None
        size = self.settings.cell_rows[problem.plan.device.type == "cuda"]
        return local_stage(
            problem, f, validation, size, self.settings.min_gain, self.clock, time_shares.SOLVING * self.until
        )

    def _is_ahead(self, local: ForwardFit) -> bool:
        """Whether the local stage has less validation loss than boosting is extrapolated to reach."""
        factor = self.settings.extrapolation_factors[local.problem.plan.device.type == "cuda"]
        n_learners = factor * len(self.first_losses)
        return local.history.validation[-1] < extrapolate_loss(self.first_losses, n_learners)

    def _local_stage_of_table(self, first: FittedMember, task: Task) -> list[FittedMember]:
        """The first learners of the first stage, and a local stage on all rows of a table that was sampled.

        Time decides how many rows there are, and of how many learners they are the residuals. Empty on a GPU, if memory
        or time do not suffice, or if the local stage is not ahead.
        """
        table, problem = task.full_table, first.fit.problem
        if self.sampler is None or table is None or not self.local or problem.plan.device.type == "cuda":
            return []
        n_basis = np.array(first.fit.history.n_basis[: first.n_steps])
        rate = 2 * n_basis[-1] * problem.n_candidates / first.fit.seconds  # a learner takes two passes
        values = rate * self.clock.remaining(until=time_shares.SOLVING * self.until) / time_shares.SAFETY_FACTOR
        n_rows = min(table.n_alive, self.settings.local_rows, values / (LOCAL_VALUES + n_basis[0]))
        if n_rows < problem.n_candidates or not problem.plan.holds_rows(int(n_rows), table.n_columns):
            return []
        n_steps = max(int(np.searchsorted(n_basis, values / n_rows - LOCAL_VALUES, side="right")), 1)
        final = FittedExpansion.at(first.path, n_steps, problem)
        residuals, validation = self.sampler.random_rows([final], int(n_rows))
        residuals = replace(residuals, kernel=problem.kernel)
        local = self._local_stage(residuals, torch.zeros_like(residuals.y), validation)
        if local is None or not self._is_ahead(local):
            return []
        held_out = held_out_predictions(first.fit, final, task.row_targets)
        first = replace(first, final=final, n_steps=n_steps, held_out=held_out)
        return [first, *completed(first, [local])]

    def _add_stages(self) -> None:
        """Add learners to the last stage and begin further stages, until none lowers the validation loss enough."""
        n_idle = 0
        while self._add_learners(self.fits[-1]):
            current = self.fits[-1]
            done = False
            had_focus = self.focus is not None
            if not had_focus:
                self.focus = self._separable_focus(current.problem, current.f, current.validation)
            if self.focus is not None and not had_focus:  # the classes have become separable
                following, _ = _first_learner(self._next_stage(current, 1.0))
            else:
                gain = _mean_gain(current.history.validation, self.settings.learners_per_check)
                least = self.settings.min_gain * current.history.validation[-1]
                n_idle = n_idle + 1 if gain <= least else 0  # both are zero once the loss is zero
                done = n_idle == self.settings.max_idle_checks
                wanted = least if done else max(self.settings.min_ratio * gain, least)
                following = self._shorter_stage(current, wanted, done)
            if following is not None:
                self.fits.append(self._on_new_rows(following))
                n_idle = 0
            elif done:
                break

    def _add_learners(self, fit: ForwardFit) -> bool:
        """Add learners to a stage up to the next check; return whether there is time for more."""
        wanted = fit.n_steps + self.settings.learners_per_check
        rules: list[Stopping] = [MaxSteps(wanted)]
        budget = self.clock.seconds
        if budget is not None:
            seconds = max(self.clock.remaining(until=self.until) - (1 - time_shares.STAGES) * budget, 0.0)
            rules.append(TimeBudget(fit.seconds + seconds, budget))
        fit.run(rules, step_callbacks("learners", wanted, lambda fit: fit.n_steps, validation_loss))
        return fit.n_steps == wanted and not fit.interrupted

    def _on_new_rows(self, begun: ForwardFit) -> ForwardFit:
        """Begin a stage again on newly drawn rows of the table, if it is sampled and time allows it."""
        if self.sampler is None:
            return begun
        for fit in self.fits[len(self.model) - 1 :]:  # the first of the model is the first stage
            self.model.append(FittedExpansion.at(fit.path(), fit.n_steps, fit.problem))
        kernel_values = begun.problem.plan.kernel_values(
            time_shares.BETWEEN_STAGES * self.clock.remaining(until=self.until)
        )
        drawn = self.sampler.problem(self.model, begun.problem.kernel, kernel_values)
        if drawn is None:
            return begun
        fit = self._begin(*drawn)
        if not fit.step():
            return begun
        return fit

    def _separable_focus(self, problem: Problem, f: Tensor, validation: Any) -> Focus | None:
        """Rows of positive squared hinge loss, if few validation rows are misclassified and rows are in memory."""
        if not self.classes or not isinstance(problem.rows, TensorRows):
            return None
        wrong = (problem.margins(f, validation).amin(1) <= 0).double()
        return (
            HingeFocus() if float(problem.validation_mean(wrong, validation)) < self.settings.separable_error else None
        )

    def _begin(self, problem: Problem, validation: Tensor | None) -> ForwardFit:
        fit = self.begin(problem, validation)
        fit.focus = self.focus
        if self.checkpoint is not None:
            self.checkpoint.follow(fit)
        return fit

    def _first_stage(self, problem: Problem, f: Tensor, validation: Tensor | None) -> ForwardFit | None:
        """One learner of the length-scale of largest gain, the current one or a shorter one; None if none gains."""
        for factors in ((1.0, self.settings.length_factor), self.settings.further_length_factors):
            kernels = (scaled(problem.kernel, factor) for factor in factors)
            fit, gain = _best(self._begin(problem.residual_problem(f, kernel), validation) for kernel in kernels)
            if fit is not None and gain > self.settings.min_gain * fit.history.validation[-1]:
                return fit
        return None

    def _next_stage(self, fit: ForwardFit, factor: float) -> ForwardFit:
        """Begin a fit to the residuals of another, with length-scales times `factor`."""
        residuals = fit.problem.residual_problem(fit.f, scaled(fit.problem.kernel, factor))
        return self._begin(residuals, fit.validation)

    def _shorter_stage(self, current: ForwardFit, least: float, done: bool) -> ForwardFit | None:
        """A stage of shorter length-scales after its first learner, if that gains more than `least`."""
        factors = (self.settings.length_factor, *(self.settings.further_length_factors if done else ()))
        following, gain = _best(self._next_stage(current, factor) for factor in factors)
        return following if gain > least else None


def time_to_begin(fit: ForwardFit, budget: Clock, until: float) -> bool:
    """Whether a refinement stage has time to begin, given the mean time of a learner so far."""
    return not budget.expired(needing=STAGE_LEARNERS * fit.seconds / max(fit.n_steps, 1), until=until)


def _mean_gain(losses: list[float], n_learners: int) -> float:
    """Mean decrease of the validation loss by each of the last learners."""
    n = min(n_learners, len(losses) - 1)
    return (losses[-1 - n] - losses[-1]) / n


def _best(fits: Iterable[ForwardFit]) -> tuple[ForwardFit | None, float]:
    """The fit whose first learner gains most, and that gain."""
    return max((_first_learner(fit) for fit in fits), key=lambda pair: pair[1])


def _first_learner(fit: ForwardFit) -> tuple[ForwardFit | None, float]:
    """A fit after its first learner, and the decrease of the validation loss; None if there is no learner."""
    before = fit.held_out_loss()
    if not fit.step():
        return None, 0.0
    return fit, before - fit.history.validation[-1]


def completed(first: FittedMember, fits: list[ForwardFit]) -> list[FittedMember]:
    """Stages as parts of a model, the last one cut back to the step of least validation loss."""
    stages, before = [], first.n_steps
    for fit in fits:
        n_steps = int(np.argmin(fit.history.validation)) + 1 if fit is fits[-1] else fit.n_steps
        path = fit.path()
        final = FittedExpansion.at(path, n_steps, fit.problem)
        stage = "stage" if len(fits) == 1 else "stages"
        sentence = f"learners of {len(fits)} further {stage} gained ever less on rows held out"
        why = StopReason(sentence, StopKind.MINIMUM)
        held_out = held_out_predictions(fit, final)  # of the validation rows, which stages always have
        member = replace(first.member, kernel=fit.problem.kernel, name=f"{first.member.name}, finer")
        stages.append(FittedMember(member, fit, path, final, n_steps, why, held_out, before))
        before += n_steps
    return stages


def best_average(
    task: Task,
    first: list[FittedMember],
    fit_model: Callable[[KernelMember], list[FittedMember]],
    budget: Clock,
    max_models: int,
) -> list[FittedMember]:
    """Average the best of several models: the first one, and further ones while time allows, at most `max_models`.

    Each candidate of the selection is fitted once, runners-up too. Then the candidates whose models the average keeps
    are fitted again, with other random numbers. A candidate that would take too long is skipped.
    """
    candidates = [*task.selection.members, *task.selection.runners_up]
    targets = task.row_targets
    models, predictions = [first], [model_predictions(first, targets)]
    seconds = {candidates[0].name: budget.elapsed() - task.selection.seconds}

    def has_time(member: KernelMember) -> bool:
        needed = UNTRIED_SHARE * (budget.seconds or 0.0)
        if isinstance(first[-1].member.kernel, Partitioned):  # a local stage cannot be cut short
            needed = max(needed, time_shares.SAFETY_FACTOR * min(seconds.values()))
        if member.name in seconds:
            needed = time_shares.SAFETY_FACTOR * seconds[member.name]
        interrupted = models[-1][-1].fit.interrupted
        return not interrupted and len(models) < max_models and budget.remaining(until=time_shares.STAGES) > needed

    queue, best, n_scored = candidates[1:] or candidates, [0], 0
    while n_scored < len(models):  # the last round added a model
        n_scored = len(models)
        for member in queue:
            if not has_time(member):
                continue
            began, place = budget.elapsed(), len(task.selection.members) - 1 + len(models)
            models.append(fit_model(replace(member, share=1.0, place=place)))
            predictions.append(model_predictions(models[-1], targets))
            seconds[member.name] = budget.elapsed() - began
        if n_scored < len(models):
            best = best_subset(task, predictions)
            queue = [models[k][0].member for k in best]
    return models[0] if len(models) == 1 else averaged([models[k] for k in best])


def averaged(models: Sequence[list[FittedMember]]) -> list[FittedMember]:
    """The mean of several models; ensemble members of each keep their shares in it."""
    factor = 1 / len(models)
    return [
        replace(part, member=replace(part.member, share=factor * part.member.share))
        for model in models
        for part in model
    ]


def model_predictions(model: list[FittedMember], row_targets: np.ndarray) -> HeldOutPredictions:
    """Predictions of a model, all of its stages and members together, at validation rows with their targets.

    There are at most 10 000 of them: 2000 rows do not separate error rates of 1.55 and 1.75 %.
    """
    targets = [row_targets, *[None] * (len(model) - 1)]
    parts = [
        replace(part, held_out=validation_predictions(part.fit, part.final, y, SAMPLE_ROWS))
        for part, y in zip(model, targets, strict=True)
    ]
    return ensemble_predictions(parts)


def best_subset(task: Task, predictions: Sequence[HeldOutPredictions]) -> list[int]:
    """Indices of the models whose mean has the least validation loss: the best `n`, for the best `n`.

    Models differ in length-scales and kernels. A poor model adds more error than it saves variance.
    """
    ranked = sorted(range(len(predictions)), key=lambda k: _loss(task, predictions[k]))

    def loss_of_mean(n: int) -> float:
        values = np.mean([predictions[k].values for k in ranked[:n]], axis=0)
        return _loss(task, replace(predictions[0], values=values))

    n_best = min(range(1, len(predictions) + 1), key=loss_of_mean)
    return sorted(ranked[:n_best])


def _loss(task: Task, held_out: HeldOutPredictions) -> float:
    """The log loss of validation rows for classes, their mean squared error for numbers."""
    if task.has_classes:
        return cross_fitted(task.targets, held_out.values, held_out.targets, held_out.weight)[0]
    squares = np.square(held_out.targets - held_out.values).sum(1)
    return float(held_out.weight @ squares / held_out.weight.sum())
