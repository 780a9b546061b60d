"""Base of greedy and boosted estimators: one fit, its history, stages and warm starts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mercer.base.estimator import BaseKernelEstimator
from mercer.base.parameters import AUTO, BOOL, NONE, check, integer, number, part_of
from mercer.clock import Clock
from mercer.data import WHOLE, current_group
from mercer.data.group import ALONE
from mercer.engine import Plan, make_plan
from mercer.forward.by_loss import by_loss
from mercer.forward.expansion import Expansion, evaluate
from mercer.forward.held_out import Refit, can_refit, held_out_predictions
from mercer.forward.loop import ForwardFit
from mercer.forward.model_selection import KernelMember, Selection, Unspecified
from mercer.forward.path import FittedExpansion
from mercer.forward.problem import Problem
from mercer.forward.stopping import MaxSteps, Stopping, TimeBudget, Validation, interrupted
from mercer.forward.task import (
    FittedMember,
    Task,
    around_constant,
    clip_far_targets,
    fitted,
    normalise_weights,
    resolve_loss,
    selection_targets,
    validation_split,
)
from mercer.forward.warm_start import Fingerprint, Warm
from mercer.losses import Loss
from mercer.parts import require
from mercer.preprocessing.collect import plan_for
from mercer.preprocessing.duplicates import merge_duplicate_inputs
from mercer.preprocessing.read import TableData, read, read_new
from mercer.preprocessing.targets import Targets, code_targets
from mercer.progress import step_callbacks, with_progress
from mercer.selection.kernel_choice import is_precomputed

#: Share of the time budget after which no learner is added: the rest is for polish and calibration.
GROWING_SHARE = 0.7
#: Share of the time budget that is spent when an exact solution ends; calibration and intervals follow.
SOLVING_SHARE = 0.9


@dataclass(eq=False, repr=False, kw_only=True)
class ForwardEstimator(BaseKernelEstimator):
    """A kernel expansion grown step by step; a family says how (`_begin_fit`) and how it ends (`_finish`).

    Parameters
    ----------
    kernel : "auto", a name, a Kernel or a function, default "auto"
        "auto" and names are tuned on some of the rows, by the evidence; a kernel object is taken as it is;
        "precomputed" says that `X` holds kernel values; a function of two tensors of rows gives the values between them
        (`mercer.kernels.Function`).
    regularization : float or "auto", default "auto"
        λ, the penalty on the squared norm of the function, for standardised targets. With a number, `sample_weight`
        counts as in scikit-learn's `Ridge`; with "auto" only the ratios of the weights matter.
    tuning_rows : int, default 1000
        Rows on which kernel and penalty are tuned; the cost grows as their cube.
    loss : str or Loss, default "squared"
        V: "squared"; for classes also "logistic" and "squared-hinge", for numbers "pinball" (a quantile), or a part of
        `mercer.losses`.
    validation_fraction : float, None or "auto", default "auto"
        Share of the rows held out to watch the error, to stop the fit and to calibrate probabilities. "auto" takes a
        tenth, at most 2000 rows, where sizes are left open and the model is not solved exactly; else none.
    patience : int
        Steps without a gain on the rows held out after which the fit ends.
    warm_start : bool, default False
        A further `fit` on the same rows goes on where the last one stopped; other rows or settings are refused.

    Attributes
    ----------
    basis_ : ndarray of shape (m, D)
        Basis vectors, in the inputs' own units.
    basis_indices_ : ndarray of shape (m,)
        Their rows in `X`.
    dual_coef_ : ndarray of shape (m, p)
        Their weights, for standardised targets.
    kernel_ : Kernel
        The kernel used, on standardised inputs.
    regularization_ : float
        The penalty used.
    expansions_ : tuple of Expansion
        The model itself, a sum: inputs as each kernel sees them, the kernel, its basis vectors and weights. What is
        called `basis_`, `dual_coef_`, `kernel_`, `inputs_` and `history_` belongs to the first, that of largest share.
    metric_ : ndarray of shape (D, D)
        M, by which the first kernel compares rows u and v, their columns mapped (standardised or as `inputs_` says):
        by (u − v)ᵀ M (u − v). M = AᵀA/ℓ², with A the transform of `inputs_`, if any, and ℓ the kernel's length-scales.
        There is none where the kernel is a function or precomputed.
    relevance_ : ndarray of shape (D,)
        How much predictions depend on each column of `X`: shares of total-effect Sobol indices, of sum 1, from at
        most 500 pairs of training rows. For classifiers the decision values count; several outputs are summed in units
        of their standard deviations. A column without any effect has 0. There is none where the kernel is precomputed
        or `X` is a wide sparse matrix.
    background_ : ndarray of shape (at most 100, coordinates)
        Training rows, as numbers: `shapley_values` refer to the mean prediction on them.
    tuning_report_ : list of dict
        The race, where there was one: candidate, rows, loss and seconds of each. For classes the last line is the
        model itself on rows it did not learn from: their log loss, and `calibration_error`, by how much its
        probabilities are off.
    targets_ : RealTargets or ClassTargets
        How targets are coded.
    inputs_ : InputMap
        How inputs are coded.
    n_steps_ : int
        Steps kept.
    history_ : dict of arrays
        Basis vectors, objective, residual norm, seconds, validation error, MDL and AIC after each step.
    objective_path_ : ndarray
        The objective after each step.
    stop_reason_ : str
        Why the fit ended, in words.
    tuning_seconds_ : float
        Seconds spent on tuning.
    """

    kernel: Any = "auto"
    regularization: Annotated[Any, AUTO | number(0.0)] = "auto"
    tuning_rows: Annotated[int, integer(2)] = 1000
    loss: Annotated[Any, part_of(Loss)] = "squared"
    validation_fraction: Annotated[Any, NONE | AUTO | number(0.0, 1.0, open_low=True, open_high=True)] = "auto"
    patience: Annotated[int, integer()] = 10
    warm_start: Annotated[bool, BOOL] = False

    #: Whether the targets are classes.
    _classes: ClassVar[bool] = False
    #: Wide sparse tables stay sparse: rows are seen by products of them.
    _by_products: ClassVar[bool] = True
    #: What a further fit of a warm model may change.
    _resumable_params: ClassVar[tuple[str, ...]] = ("patience", "time_budget", "verbose", "callbacks", "warm_start")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._pairwise
        return tags

    @property
    def _pairwise(self) -> bool:
        return is_precomputed(self.kernel)

    # What a family fills in

    @abstractmethod
    def _begin_fit(self, problem: Problem, held_out: Tensor | None, rng: np.random.Generator) -> ForwardFit:
        """A fit before its first step: learner, blocks, and how they see the problem."""

    @abstractmethod
    def _stopping_rules(self, fit: ForwardFit) -> list[Stopping]:
        """When a fit ends."""

    @abstractmethod
    def _finish(self, fit: ForwardFit, final: FittedExpansion, budget: Clock) -> FittedExpansion:
        """The model of the last step kept, improved where that was asked for."""

    @abstractmethod
    def _needs_validation(self, data: TableData, n_outputs: int, plan: Plan, loss: Loss) -> bool:
        """Whether rows are held out although nobody asked for it."""

    def _uses_all_rows(self, data: TableData, task: Task, selection: Selection) -> bool:
        """Whether what was chosen needs no rows held out, although something else might have."""
        return False

    @abstractmethod
    def _select(self, task: Task, Y: np.ndarray, rng: np.random.Generator, budget: Clock) -> Selection:
        """Inputs, kernel and penalty of every member, by targets `Y`, for a task that has none yet."""

    def _subsample(self, data: TableData, plan: Plan, rng: np.random.Generator) -> TableData:
        """The table, or some of its rows where a family does not learn from all of them at once."""
        return data

    def _checkpoint(self, data: TableData, targets: Any, X_val: Any, y_val: Any, rng: np.random.Generator) -> Any:
        """Where the state of the fit is kept, if anywhere."""
        return None

    def _selects_kernels(self) -> bool:
        """Whether column maps, metrics and kernels race; the codes of classes are then centred."""
        return False

    @with_progress
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, X_val: Any = None, y_val: Any = None) -> Self:
        """Fit to rows `X` (array, frame, tensor, file or row source) and targets `y`.

        `X_val`, `y_val`: validation rows in place of a `validation_fraction` of the training rows. They stop the fit
        and calibrate probabilities and intervals; `history_["validation"]` holds their mean loss after each step. An
        exact solution has nothing to stop, so they do not change its predictions. With
        ``warm_start=True`` a second call on the same rows goes on where the first one stopped. Ctrl-C keeps the
        learners made so far and raises KeyboardInterrupt; while kernels are being chosen there are none yet, and an
        earlier model stays.
        """
        check(self)
        group = ALONE if self._pairwise else current_group()  # kernel values belong to rows and columns alike
        budget = Clock(self.time_budget, group=group)
        data, plan = plan_for(read(self, X, y, sample_weight, numeric=not self._classes, group=group), self)
        if data.shard is WHOLE and group.size > 1:  # a small table: one process fits for all
            attributes = group.first(lambda: self._fitted(data, plan, X_val, y_val, budget))
        else:
            attributes = self._fitted(data, plan, X_val, y_val, budget)
        self._keep(**attributes)
        budget.raise_interrupt()
        return self

    def _fitted(self, data: TableData, plan: Plan, X_val: Any, y_val: Any, budget: Clock) -> dict[str, Any]:
        """Every fitted attribute."""
        seen = Fingerprint.of(self, data, X_val, y_val, self._resumable_params) if self.warm_start else None
        warm = getattr(self, "_warm", None) if seen is not None else None
        if warm is None:
            rng = self._generator(data.shard.group)
            sample = self._subsample(data, plan, rng)
            task, Y, all_rows = self._task(sample, plan, X_val, y_val, rng)
            select = self._select if task.loss.quadratic or not task.left_open.penalty else self._select_by_loss
            if task.checkpoint is None:
                selection = select(task, Y, rng, budget)
            else:
                selection = task.checkpoint.chosen(partial(select, task, Y, rng, budget), rng)
            if all_rows is not None and self._uses_all_rows(all_rows, task, selection):
                task = replace(task, data=all_rows, held_out=None)  # an exact solution needs no validation rows
            task = replace(task, selection=selection, full_table=None if sample is data else data)
            members, started = task.selection.members, task.selection.started_fit
            problems = (task.problem(member) for member in members)
            fits = [started] if started else (self._begin_fit(problem, task.held_out, rng) for problem in problems)
        else:
            warm.require_same(seen)
            task, fits, rng, members = warm.task, warm.fits, warm.fits[0].rng, warm.task.selection.members
        found: list[FittedMember] = []
        try:
            for place, (member, fit) in enumerate(zip(members, fits, strict=False)):
                if found and not _time_for_another(found[-1].fit, budget):
                    break
                share = (place + 1) / len(members)
                found += self._fit_member(task, replace(member, place=place), fit, budget, share)
            if not budget.interrupted:
                found = self._more_models(task, _with_all_shares(members, found), budget, rng)
        except KeyboardInterrupt:
            if not found:
                raise
            budget.interrupt()
        found = _with_all_shares(members, found) if budget.interrupted else found
        state = None if seen is None else Warm(seen, task, [part.fit for part in found])
        return {**fitted(task, found), "_warm": state}

    def _task(
        self, data: TableData, plan: Plan, X_val: Any, y_val: Any, rng: np.random.Generator
    ) -> tuple[Task, np.ndarray, TableData | None]:
        """Code the targets and hold out validation rows.

        Returns the task without its selection, the targets that the selection sees, and the table with all rows where
        validation rows were held out only in case the model needs them.
        """
        targets = self._coded(data, Loss.resolve(self.loss, "loss"))
        Y = targets.encode(data.y)
        loss = resolve_loss(self.loss, Y.shape[1], classes=self._classes)
        noise = 1.0
        if not self._pairwise:
            data, Y, noise = merge_duplicate_inputs(data, Y, rng, by_targets=self._classes or not loss.quadratic)
            plan = plan if data.shard.divided else plan_for(data, self)[1]
        open_ended = X_val is None and self.validation_fraction == "auto"
        holds_out = open_ended and self._needs_validation(data, Y.shape[1], plan, loss)
        checkpoint = self._checkpoint(data, targets, X_val, y_val, rng)
        in_case = holds_out and not data.shard.divided
        all_rows = normalise_weights(data, noise, self.regularization) if in_case else None
        data, Y, held_out = validation_split(self, data, targets, Y, X_val, y_val, holds_out, rng)
        data = normalise_weights(data, noise, self.regularization)
        free_dtype = isinstance(self.dtype, str) and self.dtype == "auto"
        left_open = Unspecified(free_dtype, isinstance(self.regularization, str))
        task = Task(data, targets, Y, plan, loss, Selection([]), held_out, self._pairwise, left_open, checkpoint)
        return task, selection_targets(data, Y, targets, loss), all_rows

    def _select_by_loss(self, task: Task, Y: np.ndarray, rng: np.random.Generator, budget: Clock) -> Selection:
        """Select by squared error, then choose the penalties by the loss."""
        return by_loss(self._select(task, Y, rng, budget), task, rng, budget)

    def _coded(self, data: TableData, loss: Loss) -> Targets:
        """How targets are coded: numbers centred and scaled, classes as ±1."""
        centred = self._selects_kernels() and loss.quadratic
        y = clip_far_targets(data, loss)
        targets = code_targets(y, data.weight, classes=self._classes, centred=centred, shard=data.shard)
        return around_constant(targets, data, loss)

    def _fit_member(
        self, task: Task, member: KernelMember, fit: ForwardFit, budget: Clock, share: float
    ) -> list[FittedMember]:
        """One member from its first step to its last, stage by stage, and what it says of rows it did not learn from.

        `share` is the part of the time budget that may be spent when it ends.
        """
        rules = self._stopping_rules(fit)
        if self.time_budget is not None:
            fit.learner.set_deadline(budget, SOLVING_SHARE)
            rules.append(TimeBudget(fit.seconds + GROWING_SHARE * budget.remaining(until=share), self.time_budget))
        if task.held_out is not None:
            rules.append(Validation(self.patience))
        total = next((rule.n_steps for rule in rules if isinstance(rule, MaxSteps)), None)
        if task.checkpoint is not None:
            task.checkpoint.follow(fit)
        why = fit.run(rules, step_callbacks("learners", total, lambda fit: fit.n_steps))
        if fit.interrupted:
            budget.interrupt()
        if task.checkpoint is not None:
            task.checkpoint.finish()
        n_steps = min([k for rule in rules if (k := rule.best(fit.history)) is not None], default=fit.n_steps)
        path = fit.path()
        final = FittedExpansion.at(path, n_steps, fit.problem)
        try:
            final = self._finish(fit, final, budget)
            refit = self._refit(fit, final, n_steps, budget)
        except KeyboardInterrupt:
            fit.interrupted, why = True, interrupted(n_steps)
            budget.interrupt()
            refit = None
        held_out = held_out_predictions(fit, final, task.single, refit, budget, classes=self._classes)
        first = FittedMember(member, fit, path, final, n_steps, why, held_out)
        further = self._refinement_stages(task, first, budget, share)
        if task.checkpoint is not None and further:
            task.checkpoint.finish()
        return [first, *further]

    def _refit(self, fit: ForwardFit, final: FittedExpansion, n_steps: int, budget: Clock) -> Refit | None:
        """How the model is refitted without some rows, in as many steps; None where it is too large for that."""
        if not can_refit(fit, final) or self._goes_on(fit):
            return None

        def refitted(rows: Tensor) -> FittedExpansion:
            weight = fit.problem.weight.clone()
            weight[rows] = 0.0
            problem = fit.problem.with_sample(weight=weight)
            again = self._begin_fit(problem, fit.validation, np.random.default_rng(0))
            rules = [*self._stopping_rules(again), MaxSteps(n_steps)]
            if self.time_budget is not None:
                rules.append(TimeBudget(budget.remaining(), self.time_budget))
            again.run(rules)
            if again.interrupted:
                budget.interrupt()
            return self._finish(again, FittedExpansion.at(again.path(), again.n_steps, problem), budget)

        return refitted

    def _goes_on(self, fit: ForwardFit) -> bool:
        """Whether further stages may build on this one: their values are known of rows held out alone."""
        return False

    def _refinement_stages(self, task: Task, first: FittedMember, budget: Clock, share: float) -> list[FittedMember]:
        """Stages that build on the first, of families that have them."""
        return []

    def _more_models(
        self, task: Task, grown: list[FittedMember], budget: Clock, rng: np.random.Generator
    ) -> list[FittedMember]:
        """Further models to be averaged with what was grown, of families that have them."""
        return grown

    def _answers(self, X: Any, answer: Any, expansions: tuple[Expansion, ...] | None = None) -> np.ndarray:
        check_is_fitted(self)
        source = read_new(self, X)
        plan = make_plan(source.n_rows, self.device, self.dtype_, self.memory_limit)
        return evaluate(expansions or self.expansions_, source, plan, answer, pairwise=self._pairwise)

    def predict(self, X: Any) -> np.ndarray:
        """Predicted targets, of the shape `y` had in `fit`; for classifiers the class of each row."""
        check_is_fitted(self)
        return self._answers(X, self.targets_.decode)

    def _located(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        values = self._answers(X, np.asarray)
        return values, np.ones_like(values)

    def staged_predict(self, X: Any) -> Iterator[np.ndarray]:
        """Predictions after each step, before any polish; members that have fewer steps stay at their last one."""
        check_is_fitted(self)
        for stage in self._staged_values(X, range(1, self.n_steps_ + 1)):
            yield self.targets_.decode(stage)

    def _staged_values(self, X: Any, steps: Any) -> Iterator[np.ndarray]:
        """Values of the model after each of some numbers of steps, n × p each, from one pass over `X`."""
        check_is_fitted(self)
        steps, known = list(steps), hasattr(self, "_stages")
        require(known, "a model from a file", "saved with stages=True where earlier steps are asked for", "one without")
        staged = tuple(one.at(steps) for one in self._stages)
        yield from np.split(self._answers(X, np.asarray, staged), len(steps), axis=1)


def _time_for_another(fit: ForwardFit, budget: Clock) -> bool:
    """Whether there is time for another exact solution; models that grow step by step end by themselves."""
    return not budget.interrupted and (
        fit.learner.resumable or not budget.expired(needing=fit.seconds, until=SOLVING_SHARE)
    )


def _with_all_shares(members: list[KernelMember], grown: list[FittedMember]) -> list[FittedMember]:
    """Members that were grown, with the shares of those that an interrupt or the time budget left out."""
    places = {one.member.place for one in grown}
    if len(places) >= len(members):
        return grown
    factor = sum(one.share for one in members) / sum(members[place].share for place in places)
    return [replace(one, member=replace(one.member, share=factor * one.member.share)) for one in grown]
