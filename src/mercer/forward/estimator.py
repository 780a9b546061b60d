"""Base of greedy and boosted estimators: `fit` from the checked table to the fitted attributes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mercer.base.estimator import BaseKernelEstimator
from mercer.base.parameters import AUTO, BOOL, NONE, check, integer, number, part_of
from mercer.clock import Clock
from mercer.codegen.cpu import freed_memory_kept
from mercer.data import ArrayRows, RowSource, current_group
from mercer.data.shard import ONE_PROCESS
from mercer.engine import Plan, make_plan
from mercer.engine.plan import chosen_device, generator
from mercer.forward import time_shares
from mercer.forward.by_loss import select_by_loss
from mercer.forward.checkpoint import Checkpoint, Fingerprint, WarmStartState
from mercer.forward.compress_members import Compressed
from mercer.forward.expansion import FEW_ROWS, TIMED_ROWS, Expansion, evaluate, evaluate_few, prediction_cost
from mercer.forward.fitted_attributes import fitted_attributes
from mercer.forward.held_out import Refit, can_refit, held_out_predictions
from mercer.forward.influence import InfluenceMixin
from mercer.forward.loop import ForwardFit, validation_loss
from mercer.forward.model_selection import KernelMember, Selection
from mercer.forward.partial_fit import PartialFitMixin
from mercer.forward.path import FittedExpansion
from mercer.forward.problem import Problem
from mercer.forward.solve.exact import AllRows
from mercer.forward.stopping import MaxSteps, Stopping, TimeBudget, Validation, interrupted
from mercer.forward.task import (
    FittedMember,
    Task,
    append_validation_rows,
    coded_targets,
    hold_out,
    normalise_weights,
    rescale_shares,
    resolve_loss,
    selection_targets,
    time_for_another,
)
from mercer.kernels.sparse_rows import SparseRowKernel
from mercer.losses import Loss, Squared
from mercer.parts import is_auto, require
from mercer.preprocessing.columns_read import HeldRows
from mercer.preprocessing.duplicates import fitting_group, merge_duplicate_inputs, plan_for
from mercer.preprocessing.inputs import Targets
from mercer.preprocessing.read import TableData, read, read_held_out, read_new
from mercer.preprocessing.validate import rates, read_row_groups
from mercer.progress import step_callbacks, with_progress
from mercer.selection.kernel_choice import is_precomputed


@dataclass(eq=False, repr=False, kw_only=True)
class ForwardEstimator(InfluenceMixin, PartialFitMixin, BaseKernelEstimator):
    """Base of models that are fitted step by step: a subclass defines `_begin_fit`, its stopping rules and `_finish`.

    Parameters
    ----------
    kernel : "auto", a name, a Kernel or a function, default "auto"
        "auto" and names are tuned by the evidence of a sample of `tuning_rows` rows. A kernel object is used unchanged.
        "precomputed" means that `X` holds kernel values. A function of two tensors of rows returns the kernel values
        between them (`mercer.kernels.Function`).
    regularization : float or "auto", default "auto"
        λ, the penalty on the squared norm of the function, for standardised targets, or positive ones of mean 1. With a
        number, `sample_weight` acts as in scikit-learn's `Ridge`; with "auto" only the ratios of the weights matter.
    tuning_rows : int, default 1000
        Number of rows on which kernel and penalty are tuned; the cost is cubic in it.
    loss : str or Loss, default "squared"
        V: "squared"; for classifiers also "logistic" and "squared-hinge". For regressors "poisson" (counts), "gamma"
        and "tweedie" (positive means), "huber" and "absolute" (gross errors in `y`), "pinball" (a quantile), or an
        object of a class of `mercer.losses` or one derived from `Loss`.
    validation_fraction : float, None or "auto", default "auto"
        Share of the rows held out as validation rows, which stop the fit and calibrate probabilities and intervals.
        "auto" takes a tenth (at most 2000 rows, or 2 % of very large tables) if sizes are left open and the solution is
        not exact; otherwise none.
    patience : int, default 10 (greedy models: 20)
        Number of steps without a lower validation loss after which the fit ends.
    warm_start : bool, default False
        Continue the last fit when `fit` is called again on the same rows; other rows or settings are refused.

    Attributes
    ----------
    basis_ : ndarray of shape (m, D)
        Basis vectors, in the units of `X`.
    basis_indices_ : ndarray of shape (m,)
        Row indices of the basis vectors in `X`.
    dual_coef_ : ndarray of shape (m, p)
        Weights of the basis vectors, for standardised targets.
    kernel_ : Kernel
        The kernel used, on standardised inputs.
    regularization_ : float
        The penalty used.
    expansions_ : tuple of Expansion
        The model, a sum of expansions, each with input map, kernel, basis vectors and weights. `basis_`, `dual_coef_`,
        `kernel_`, `inputs_` and `history_` describe the first one, which has the largest share.
    metric_ : ndarray of shape (D, D)
        M, the metric of the first kernel: rows u and v, with columns mapped by `inputs_`, have the squared distance
        (u − v)ᵀ M (u − v). M = AᵀA/ℓ², with A the transform of `inputs_`, if any, and ℓ the kernel's length-scales.
        None if the kernel is a function or precomputed.
    relevance_ : ndarray of shape (D,)
        How much predictions depend on each column of `X`: total-effect Sobol indices, divided by their sum, from at
        most 500 pairs of training rows. Classifiers use decision values; several outputs are summed in units of their
        standard deviations. A column without any effect has 0. None if the kernel is precomputed or `X` is a wide
        sparse matrix.
    background_ : ndarray of shape (at most 100, coordinates)
        Training rows as numbers: the reference rows of `shapley_values`, whose mean prediction is the base value.
    tuning_report_ : list of dict
        Report of the model selection, if there was one: candidate, rows, loss and seconds of each score. For
        classifiers the last line scores the model itself on held-out rows: their log loss, and `calibration_error`, the
        calibration error of its probabilities.
    targets_ : RealTargets, PositiveTargets, ClassTargets or LabelTargets
        Coding of the targets.
    inputs_ : InputMap
        Map from columns to kernel coordinates.
    n_steps_ : int
        Number of steps kept.
    history_ : dict of arrays
        Number of basis vectors, objective, residual norm, seconds, validation loss, MDL and AIC after each step.
    objective_path_ : ndarray
        The objective after each step.
    stop_reason_ : str
        Why the fit ended, as a sentence.
    cost_ : dict
        Number of basis vectors of all expansions ("n_basis"), their bytes, and microseconds of a prediction for one row
        ("microseconds_single") and per row of 1000 ("microseconds_per_row"), measured when asked for.
    tuning_seconds_ : float
        Seconds spent on model selection.
    """

    kernel: Any = "auto"
    regularization: Annotated[Any, AUTO | number(0.0)] = "auto"
    tuning_rows: Annotated[int, integer(2)] = 1000
    loss: Annotated[Any, part_of(Loss)] = "squared"
    validation_fraction: Annotated[Any, NONE | AUTO | number(0.0, 1.0, open_low=True, open_high=True)] = "auto"
    patience: Annotated[int, integer()] = 10
    warm_start: Annotated[bool, BOOL] = False

    #: Whether the targets are classes.
    _is_classifier: ClassVar[bool] = False
    #: Wide sparse tables stay sparse: kernels use inner products of rows.
    _accepts_wide_sparse: ClassVar[bool] = True
    #: Parameters that may change between two fits of one model with `warm_start=True`.
    _resumable_params: ClassVar[tuple[str, ...]] = ("patience", "time_budget", "verbose", "callbacks", "warm_start")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._pairwise
        return tags

    @property
    def _pairwise(self) -> bool:
        return is_precomputed(self.kernel)

    @abstractmethod
    def _begin_fit(self, problem: Problem, validation_rows: Tensor | None, rng: np.random.Generator) -> ForwardFit:
        """A fit before its first step, with its learner and its blocks."""

    @abstractmethod
    def _stopping_rules(self, fit: ForwardFit) -> list[Stopping]:
        """Rules that end a fit."""

    @abstractmethod
    def _finish(self, fit: ForwardFit, final: FittedExpansion, budget: Clock) -> FittedExpansion:
        """The model of the last step kept, improved if asked for."""

    @abstractmethod
    def _needs_validation(self, data: TableData, n_outputs: int, plan: Plan, loss: Loss) -> bool:
        """Whether `validation_fraction="auto"` holds rows out."""

    def _uses_all_rows(self, data: TableData, task: Task, selection: Selection) -> bool:
        """Whether the selected model is exact, so that held-out rows return to the fit."""
        return False

    @abstractmethod
    def _select(self, task: Task, Y: np.ndarray, rng: np.random.Generator, budget: Clock) -> Selection:
        """Select input map, kernel and penalty of every ensemble member from the targets `Y`."""

    def _subsample(self, data: TableData, plan: Plan, rng: np.random.Generator) -> TableData:
        """The table, or a sample of its rows if the model is not fitted to all of them at once."""
        return data

    def _selects_kernels(self) -> bool:
        """Whether column maps, metrics and kernels are selected; the codes of classes are then centred."""
        return False

    @with_progress
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        X_val: Any = None,
        y_val: Any = None,
        groups: Any = None,
        time_order: Any = None,
        gap: Any = None,
        exposure: Any = None,
    ) -> Self:
        """Fit to rows `X` (array, frame, tensor, file or row source) and targets `y`.

        A matrix `y` of zeros and ones has several labels per row (classifiers). `X_val`, `y_val`: validation rows in
        place of a `validation_fraction` of the training rows. They stop the fit and calibrate probabilities and
        intervals; `history_["validation"]` has their mean loss after each step. They do not change an exact solution.

        `groups`, one label for each row or the name of a column: rows of one group, such as a patient, are on one side
        of every split, fold and validation set, so that kernels, penalties, probabilities and intervals are those for
        new groups. `time_order`, numbers, dates or the name of a column, does the same for the future: rows are
        predicted by earlier rows alone, which end at least `gap` before them (in units of `time_order`; days for
        dates). A column that is named stays an input.

        `exposure`, a positive number for each row, such as years or kilometres, for `y` that grow in proportion to it
        (losses "poisson", "gamma", "tweedie"). The model predicts rates, `y` per unit of exposure; `y_val` are rates.

        With ``warm_start=True`` a second call on the same rows continues the first fit. Ctrl-C keeps the learners
        fitted so far and raises KeyboardInterrupt; during model selection it leaves an earlier model unchanged.
        """
        check(self)
        group = ONE_PROCESS if self._pairwise else current_group()  # kernel values refer to rows and columns alike
        budget = Clock(self.time_budget, group=group)
        row_groups = read_row_groups(X, groups, time_order, gap)
        y, sample_weight = rates(self._coding_loss(), X, y, sample_weight, exposure)
        data = read(self, X, y, sample_weight, classes=self._is_classifier, group=group, row_groups=row_groups)
        data, plan = plan_for(data, self)
        fitting = fitting_group(data, group)
        with freed_memory_kept(plan.keeps_freed_memory(data.n_alive)):
            if fitting.size == 1:
                attributes = self._fitted(data, plan, X_val, y_val, budget)
            else:  # a small table: one process fits for all
                attributes = fitting.first(lambda: self._fitted(data, plan, X_val, y_val, budget))
        self._keep(**attributes)
        budget.raise_interrupt()
        return self

    def _fitted(self, data: TableData, plan: Plan, X_val: Any, y_val: Any, budget: Clock) -> dict[str, Any]:
        """Begin or continue the fit, fit all ensemble members, and return every fitted attribute."""
        fingerprint = Fingerprint.of(self, data, X_val, y_val, self._resumable_params) if self.warm_start else None
        warm = getattr(self, "_warm", None) if fingerprint is not None else None
        fits: Iterable[ForwardFit]
        if warm is None:
            rng = generator(self.random_state, data.shard.group)
            sample = self._subsample(data, plan, rng)
            task, Y, all_rows = self._task(sample, plan, X_val, y_val, rng)
            select = self._select if task.loss.quadratic or not task.free_penalty else self._select_by_loss
            chosen = partial(select, task, Y, rng, budget)
            selection = chosen() if task.checkpoint is None else task.checkpoint.chosen(chosen, rng)
            if selection.by_likelihood:
                task = task.with_likelihood()
            if all_rows is not None and self._uses_all_rows(all_rows, task, selection):
                task = replace(task, data=all_rows, validation_rows=None)  # an exact solution needs no validation rows
            task = task.with_targets(selection)
            task = replace(task, selection=selection, full_table=None if sample is data else data)
            fits = self._start_fits(task, rng)
        else:
            warm.require_same(fingerprint)
            task, fits, rng = warm.task, warm.fits, warm.fits[0].rng
        parts = self._fit_members(task, fits, rng, budget)
        state = None if fingerprint is None else WarmStartState(fingerprint, task, [part.fit for part in parts])
        compressed = self._compressed(task, parts, budget)
        attributes = {**fitted_attributes(task, compressed.parts), **compressed.attributes()}
        return {**attributes, **self._kept_statistics(compressed.parts), "_warm": state}

    def _start_fits(self, task: Task, rng: np.random.Generator) -> Iterator[ForwardFit]:
        """Begin the fit of each ensemble member in turn, unless trial fits have begun the only one."""
        if task.selection.started_fit is not None:
            yield task.selection.started_fit
            return
        for member in task.selection.members:
            yield self._begin_fit(task.problem(member), task.validation_rows, rng)

    def _fit_members(
        self, task: Task, fits: Iterable[ForwardFit], rng: np.random.Generator, budget: Clock
    ) -> list[FittedMember]:
        """Fit the ensemble members while time allows; an interrupt keeps those that have a model."""
        members = task.selection.members
        parts: list[FittedMember] = []
        try:
            for place, (member, fit) in enumerate(zip(members, fits, strict=False)):
                if parts and not time_for_another(parts[-1].fit, budget, time_shares.SOLVING):
                    break
                until = (place + 1) / len(members)
                parts += self._fit_member(task, replace(member, place=place), fit, budget, until)
        except KeyboardInterrupt:
            if not parts:
                raise
            budget.interrupt()
        parts = rescale_shares(members, parts)
        if budget.interrupted:
            return parts
        try:
            return self._more_models(task, parts, budget, rng)
        except KeyboardInterrupt:
            budget.interrupt()
            return parts

    def _task(
        self, data: TableData, plan: Plan, X_val: Any, y_val: Any, rng: np.random.Generator
    ) -> tuple[Task, np.ndarray, TableData | None]:
        """Code the targets and hold out validation rows.

        Returns the task without its selection, the targets for the selection, and the table with all rows if it is not
        known yet whether the model needs validation rows.
        """
        targets = self._coded(data, self._coding_loss())
        Y = targets.encode(data.y)
        loss = resolve_loss(self._coding_loss(), Y.shape[1], classes=self._is_classifier)
        if self.updatable:
            self._require_updatable(loss, data.rows)
        noise = 1.0
        if not self._pairwise:
            data, Y, noise = merge_duplicate_inputs(data, Y, rng, by_targets=self._is_classifier or not loss.quadratic)
            plan = plan if data.shard.divided else plan_for(data, self)[1]
        may_hold_out = X_val is None and self.validation_fraction == "auto"
        holds_out = may_hold_out and self._needs_validation(data, Y.shape[1], plan, loss)
        checkpoint = None
        if getattr(self, "checkpoint", None) is not None:
            checkpoint = Checkpoint.open(self, data, X_val, y_val, rng)
        all_rows = None if data.shard.divided or not holds_out else normalise_weights(data, noise, self.regularization)
        data, Y, validation_rows = self._validation_split(data, targets, Y, X_val, y_val, holds_out, rng)
        data = normalise_weights(data, noise, self.regularization)
        free_dtype = is_auto(self.dtype)
        free_penalty = isinstance(self.regularization, str)
        task = Task(
            data, targets, Y, plan, loss, Selection([]), validation_rows, self._pairwise, free_dtype, free_penalty,
            checkpoint,
        )  # fmt: skip
        return task, selection_targets(data, Y, targets, loss), all_rows

    def _validation_split(
        self,
        data: TableData,
        targets: Any,
        Y: np.ndarray,
        X_val: Any,
        y_val: Any,
        needed: bool,
        rng: np.random.Generator,
    ) -> tuple[TableData, np.ndarray, Tensor | None]:
        """The table and its targets with validation rows of weight zero, and the places of these rows, if any."""
        if X_val is not None:
            X_val, y_val = read_held_out(self, data, X_val, y_val, classes=self._is_classifier)
            if self._is_classifier:
                targets.require_known(y_val, "y_val")
            return append_validation_rows(data, Y, X_val, targets.encode(y_val))
        fraction = self.validation_fraction
        if fraction is None or (isinstance(fraction, str) and not needed):
            return data, Y, None
        data, places = hold_out(data, Y, fraction, rng, classes=self._is_classifier)
        return data, Y, places

    def _coding_loss(self) -> Loss:
        """The loss that targets are coded for; model selection may replace "auto" by a likelihood."""
        return Squared() if self.loss == "auto" else Loss.resolve(self.loss, "loss")

    def _select_by_loss(self, task: Task, Y: np.ndarray, rng: np.random.Generator, budget: Clock) -> Selection:
        """Select by squared error, then choose the penalties by the loss; selections differ in their targets alone."""
        select = partial(self._select, task, budget=budget)
        return select_by_loss(select, task, Y, rng, budget, cleans=self._cleans_targets(task))

    def _cleans_targets(self, task: Task) -> bool:
        """Whether further selections see targets without gross errors."""
        return False

    def _coded(self, data: TableData, loss: Loss) -> Targets:
        """Coding of the targets."""
        return coded_targets(
            data, loss, classes=self._is_classifier, centred=self._selects_kernels() and loss.quadratic
        )

    def _fit_member(
        self, task: Task, member: KernelMember, fit: ForwardFit, budget: Clock, until: float
    ) -> list[FittedMember]:
        """Fit one ensemble member, stage by stage, and predict rows that it was not fitted to.

        It must end when the share `until` of the time budget is spent.
        """
        rules = self._stopping_rules(fit)
        if self.time_budget is not None:
            if isinstance(fit.learner, AllRows):
                fit.learner.clock = budget
            share = time_shares.LEARNERS if task.full_table is None else time_shares.SAMPLE_LEARNERS
            rules.append(TimeBudget(fit.seconds + share * budget.remaining(until=until), self.time_budget))
        if task.validation_rows is not None:
            rules.append(Validation(self.patience))
        total = next((rule.n_steps for rule in rules if isinstance(rule, MaxSteps)), None)
        if task.checkpoint is not None:
            task.checkpoint.follow(fit)
        why = fit.run(rules, step_callbacks("learners", total, lambda fit: fit.n_steps, validation_loss))
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
        targets, folds = task.row_targets, self._calibration_folds
        held_out = held_out_predictions(fit, final, targets, refit, budget, classes=self._is_classifier, folds=folds)
        parts = self._with_stages(task, FittedMember(member, fit, path, final, n_steps, why, held_out), budget, until)
        if task.checkpoint is not None and len(parts) > 1:
            task.checkpoint.finish()
        return parts

    def _refit(self, fit: ForwardFit, final: FittedExpansion, n_steps: int, budget: Clock) -> Refit | None:
        """A function that refits the model without some rows, in as many steps; None if that takes too long."""
        if not can_refit(fit, final) or self._can_be_refined(fit):
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

    def _can_be_refined(self, fit: ForwardFit) -> bool:
        """Whether refinement stages may follow; they predict validation rows alone, so such a fit is not refitted."""
        return False

    def _with_stages(self, task: Task, first: FittedMember, budget: Clock, until: float) -> list[FittedMember]:
        """The first stage, and refinement stages that are fitted to its residuals, if the model has any."""
        return [first]

    def _more_models(
        self, task: Task, first: list[FittedMember], budget: Clock, rng: np.random.Generator
    ) -> list[FittedMember]:
        """Fit further models and average them with the fitted one, if the model does so."""
        return first

    def _compressed(self, task: Task, parts: list[FittedMember], budget: Clock) -> Compressed:
        """The members with fewer basis vectors, if the model allows it."""
        return Compressed(parts)

    def _answers(self, X: Any, answer: Any, expansions: tuple[Expansion, ...] | None = None) -> np.ndarray:
        check_is_fitted(self)
        source, expansions = read_new(self, X), expansions or self.expansions_
        if self._predicts_at_once(source):
            return evaluate_few(expansions, source.take(np.arange(source.n_rows)), answer)
        plan = make_plan(source.n_rows, self.device, self.dtype_, self.memory_limit)
        return evaluate(expansions, source, plan, answer, pairwise=self._pairwise)

    def _predicts_at_once(self, source: RowSource) -> bool:
        """Whether these rows are so few that blocks need no plan: dense rows in the memory of a CPU."""
        stored = source.rows if isinstance(source, HeldRows) else source
        few = source.n_rows <= FEW_ROWS and isinstance(stored, ArrayRows)
        by_number = self._pairwise or isinstance(self.kernel_, SparseRowKernel)
        return few and not by_number and chosen_device(self.device).type == "cpu"

    def predict(self, X: Any) -> np.ndarray:
        """Predicted targets, of the shape `y` had in `fit`; for classifiers the class, or the labels, of each row."""
        return self._answers(X, lambda values: self.targets_.decode(values))  # asked for once the model is fitted

    def _location_and_scale(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        values = self._answers(X, np.asarray)
        return values, self.targets_.deviations(values)

    @property
    def cost_(self) -> dict[str, float]:
        """Basis vectors, bytes, and microseconds per row, measured now; no times for kernel values and sparse rows."""
        check_is_fitted(self)
        plan = make_plan(TIMED_ROWS, self.device, self.dtype_, self.memory_limit)
        return prediction_cost(self.expansions_, self.background_, plan)

    def staged_predict(self, X: Any) -> Iterator[np.ndarray]:
        """Predictions after each step, before any polish; ensemble members of fewer steps stay at their last step."""
        check_is_fitted(self)
        for stage in self._staged_values(X, range(1, self.n_steps_ + 1)):
            yield self.targets_.decode(stage)

    def _staged_values(self, X: Any, steps: Any) -> list[np.ndarray]:
        """Values of the model after each number of steps in `steps`, n × p each, from one pass over `X`."""
        steps, known = list(steps), hasattr(self, "_stages")
        require(known, "a model from a file", "saved with stages=True where earlier steps are asked for", "one without")
        staged = tuple(stage.at(steps) for stage in self._stages)
        return np.split(self._answers(X, np.asarray, staged), len(steps), axis=1)
