"""Kernel boosting: `KernelBoostingRegressor` and `KernelBoostingClassifier` (Boost10, Boost06)."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from numbers import Integral
from typing import Annotated, Any, ClassVar

import numpy as np
from torch import Tensor

from mercer.base.estimator import estimator_dataclass
from mercer.base.parameters import ANY_FUNCTION, AUTO, BOOL, NONE, integer, literal, number, part_of, sequence_of
from mercer.clock import Clock, StopKind, StopReason
from mercer.data import SparseRows
from mercer.engine import Plan
from mercer.engine.fused import compiled_ahead
from mercer.engine.plan import SAMPLE_ROWS
from mercer.forward import time_shares
from mercer.forward.absorb import Block
from mercer.forward.checkpoint import Resumable
from mercer.forward.combine import Combination
from mercer.forward.compress_members import Compressible
from mercer.forward.criteria import Criterion
from mercer.forward.estimator import ForwardEstimator
from mercer.forward.large_tables import LocalLengthScales, select_by_learning_curve
from mercer.forward.loop import BoostingSettings, Ensemble, Focus, ForwardFit, LearnerSizes, Size
from mercer.forward.model_selection import EnsembleSearch, KernelMember, Selection, single_kernel
from mercer.forward.monotone import MonotoneRegression, require_constrainable
from mercer.forward.path import FittedExpansion
from mercer.forward.problem import Problem
from mercer.forward.refinement_stages import RefinementSettings, RefinementStages, best_average, time_to_begin
from mercer.forward.smooth_kernels import smooth_selection
from mercer.forward.solve.exact import AllRows, affordable_polish_steps, exact_seconds
from mercer.forward.solve.polish import polish
from mercer.forward.stage_sampling import draw_sample
from mercer.forward.stopping import MaxSteps, Stopping
from mercer.forward.task import FittedMember, Task
from mercer.forward.uncertainty import UncertainDecisions, UncertainExpansions
from mercer.kernels import Gaussian, Matern32, Stationary
from mercer.losses import Logistic, Loss
from mercer.parts import is_auto, require, warn
from mercer.preprocessing.monotonic import has_signs
from mercer.preprocessing.read import TableData
from mercer.selection.settings import DEFAULT_SETTINGS, SelectionSettings

#: The most steps of a polish.
POLISH_STEPS = 50
#: Kernels that are selected most often for large tables. Their programs are compiled during the selection.
LIKELY_KERNELS = (Matern32(), Gaussian())
#: Families of differentiable kernels, for slopes with a sign in large tables: those of rough kernels jump.
SMOOTH_FAMILIES = ("matern32", "gaussian", "linear")
#: Time of exact kernel logistic regression beside that of kernel ridge regression.
LIKELIHOOD_TIMES = 8.0


@dataclass(eq=False, repr=False)
class Boosting(Resumable, Compressible, ForwardEstimator):
    """Parameters and steps that boosted regressors and classifiers share.

    Parameters
    ----------
    n_learners : int or "auto", default "auto"
        Number of learners. "auto" takes 20, or one learner of all rows (exact kernel ridge) if the table is small
        enough.
    learner_size : int, sequence, function of the step, or "auto", default "auto"
        S, basis vectors per learner.
    subset_size : int or "auto", default "auto"
        T, number of random rows among which a learner chooses its basis vectors.
    redraw : bool, default False
        Draw the T rows from all rows, as the paper does. Otherwise basis vectors of the block are not drawn again.
    criterion : str or Criterion, default "largest-residuals"
        How a learner chooses basis vectors: "largest-residuals", "max-res", "mp", "boost", "info-gain", "random" or an
        object of `mercer.forward.criteria`.
    combination : str or Combination, default "mp"
        How the basis vectors of a learner become one function: "mp", "rayleigh", "cg" or an object of
        `mercer.forward.combine`.
    gram_rows : int, None or "auto", default "auto"
        Number of rows from which the curvature of a learner is estimated if `combination` is "mp". Gradients and values
        use all rows, so later learners correct the error of the estimate. None uses all rows, which costs S times as
        much as the rest of the step. "auto" uses all rows below 100 000 rows, and 10 000 rows otherwise.
    absorption : "full", "one", "blocks" or "auto", default "auto"
        Which weights are refitted when a learner is added: all weights, only those of the new learner, or those of its
        block of `block_length` learners. "auto" is "one".
    block_length : int, default 50
        L, number of learners per block.
    block_penalty : bool, default False
        Penalise each block's function alone, as the paper does, instead of the whole model.
    shrinkage : float, default 1.0
        ν in (0, 1], the factor of each step.
    focus : None, "margin", "hinge" or Focus, default None
        Fit each new block to rows of small margin only (classification). "margin" is the rule of the paper; "hinge"
        takes all rows of positive squared hinge loss.
    polish : bool or "auto", default "auto"
        After boosting, improve all weights jointly by preconditioned conjugate gradients. With validation rows this
        stops when their error stops falling. "auto" does so if memory and time allow it.
    kernel : "auto", a name, a Kernel or a function, default "auto"
        "auto" selects column maps, metrics, kernels and penalties by successive halving: candidates are fitted to a
        sample of the rows and compared on held-out rows (`mercer.selection.halving`). This needs `scale_inputs=True`;
        otherwise "auto" tunes a kernel by the evidence. A name gives a kernel family whose parameters are tuned by the
        evidence. A kernel object is used unchanged. "precomputed" means that `X` holds kernel values. A function of two
        tensors of rows returns the kernel values between them (`mercer.kernels.Function`).
    metric : "auto", None, "diagonal" or "full", default "auto"
        Metric of the inputs, if kernels are selected. None keeps the mapped columns, "diagonal" scales each column by a
        factor found by evidence and gradients, "full" transforms them by the mean outer product of a model's gradients,
        and "auto" takes the metric of lowest held-out loss. A metric that does not lower this loss is never used.
    n_kernels : int or "auto", default "auto"
        The most kernels that the model averages, if kernels are selected. "auto" takes the number of lowest held-out
        loss.
    n_selections : int or "auto", default "auto"
        Model selections whose ensembles are averaged. Each has the rows in another random order, so other rows fit and
        score its candidates. Unlike bagging, all rows fit the weights of every kernel. Errors fall (`docs/choose.md`),
        and the time of a fit is multiplied. "auto" takes 2 for classes on tables of 400 to 8000 rows with categories,
        otherwise 1. Large tables, which have no exact solution, take one selection.
    max_rows : int, None or "auto", default "auto"
        The most rows that learners are fitted to at a time. A larger table is sampled, and every refinement stage draws
        a new sample if kernel and sizes are left at "auto". A classifier then prefers rows of small margin, found among
        many more rows. "auto" takes a million rows on a CPU and ten million on a GPU, fewer if memory or `time_budget`
        require it. None takes all rows.
    local_stage : bool, default True
        Whether a stage that is exact within cells of about a thousand rows may follow the learners of a large table, if
        kernel and sizes are left at "auto" and validation rows gain by it (`mercer.forward.local_stage`). Its basis
        vectors are all rows, and `mercer.shapley_values` refuses such a model.

    Attributes
    ----------
    polish_reason_ : str
        Result of the polish, or why there was none, as a sentence.
    """

    n_learners: Annotated[int | str, AUTO | integer()] = "auto"
    _: KW_ONLY
    learner_size: Annotated[Size | str, AUTO | integer() | sequence_of(integer()) | ANY_FUNCTION] = "auto"
    subset_size: Annotated[int | str, AUTO | integer()] = "auto"
    redraw: Annotated[bool, BOOL] = False
    criterion: Annotated[Any, part_of(Criterion)] = "largest-residuals"
    combination: Annotated[Any, part_of(Combination)] = "mp"
    gram_rows: Annotated[int | str | None, NONE | AUTO | integer()] = "auto"
    absorption: Annotated[str, literal("auto", "full", "one", "blocks")] = "auto"
    block_length: Annotated[int, integer()] = 50
    block_penalty: Annotated[bool, BOOL] = False
    shrinkage: Annotated[float, number(0.0, 1.0, open_low=True)] = 1.0
    focus: Annotated[Any, NONE | part_of(Focus)] = None
    polish: Annotated[bool | str, BOOL | AUTO] = "auto"
    metric: Annotated[str | None, literal("auto", None, "diagonal", "full")] = "auto"
    n_kernels: Annotated[int | str, AUTO | integer()] = "auto"
    n_selections: Annotated[int | str, AUTO | integer()] = "auto"
    max_rows: Annotated[int | str | None, NONE | AUTO | integer(2)] = "auto"
    local_stage: Annotated[bool, BOOL] = True

    _selection_settings: ClassVar[SelectionSettings] = DEFAULT_SETTINGS
    _refinement_settings: ClassVar[RefinementSettings] = RefinementSettings()
    _resumable_params: ClassVar[tuple[str, ...]] = (
        *ForwardEstimator._resumable_params,
        "checkpoint",
        "n_learners",
        "polish",
    )

    def _selects_kernels(self) -> bool:
        return is_auto(self.kernel) and self.scale_inputs is True

    def _encodes_twice(self, n_rows: int) -> bool:
        """Whether categories get two encodings, with one selection each: if the rows allow only one selection."""
        settings = self._selection_settings
        selects_ensemble = self._selects_kernels() and self.n_kernels == "auto"
        return selects_ensemble and settings.repeated_rows[1] < n_rows < settings.many_rows

    def _select(self, task: Task, Y: np.ndarray, rng: np.random.Generator, budget: Clock) -> Selection:
        data, sparse = task.data, isinstance(task.data.rows, SparseRows)
        wanted = "None for regression and for several labels per row"
        require(self.focus is None or task.has_classes, "focus", wanted, self.focus)
        if not self._selects_kernels() or sparse:
            wanted = "'auto' where X is sparse" if sparse else "'auto' unless kernel='auto' and scale_inputs=True"
            require(self.metric == "auto", "metric", wanted, self.metric)
            require(self.n_selections == "auto", "n_selections", wanted, self.n_selections)
            return single_kernel(data, Y, task.plan, self, rng)
        if self._is_large(task):
            return self._select_for_large_table(task, Y, rng, budget)
        search, n_selections = self._search(task, Y, rng, budget), self._n_selections(task)
        if self._is_constrained:
            return smooth_selection(search.ensemble(n_selections), task, Y)
        ensemble = search.ensemble if data.shard.group.size == 1 else search.ensemble_for_group
        return self._at_most_n_kernels(ensemble(n_selections))

    def _n_selections(self, task: Task) -> int:
        """Selections whose ensembles are averaged."""
        if self.n_selections != "auto":
            return int(self.n_selections)
        averages = task.has_classes and task.data.layout is not None and self.n_kernels == "auto"
        return self._selection_settings.n_selections(task.data.n_alive) if averages else 1

    def _select_for_large_table(self, task: Task, Y: np.ndarray, rng: np.random.Generator, budget: Clock) -> Selection:
        """Select one kernel, correct its metric on all rows, and compare kernels by trial fits."""
        data, plan = task.data, task.plan
        if self.n_selections not in ("auto", 1):
            warn(f"n_selections is 1 on a table of {data.n_alive} rows, whose solution is not exact")
        for kernel in LIKELY_KERNELS:
            compiled_ahead(kernel, data.n_columns, plan)
        search = self._search(task, Y, rng, budget)
        selection = search.single()
        if self.metric is not None and data.row_groups is None:  # nearest rows are often of the same group
            seconds = None if self.time_budget is None else budget.remaining(until=time_shares.TUNING)
            clock = Clock(seconds, group=data.shard.group)
            stage = LocalLengthScales(data, Y, plan, rng, clock, search.penalty is None, self._selection_settings)
            selection = stage.refine(selection)
        selection = self._at_most_n_kernels(selection)
        if task.validation_rows is None or not self._sizes_are_open():
            return selection

        def begin(member: KernelMember) -> ForwardFit:
            return self._begin_fit(task.problem(member), task.validation_rows, rng)

        seconds = budget.remaining(until=time_shares.LAST_CHOICE)
        return select_by_learning_curve(replace(task, selection=selection), begin, seconds)

    def _search(self, task: Task, Y: np.ndarray, rng: np.random.Generator, budget: Clock) -> EnsembleSearch:
        """The search for the ensemble of a table."""
        penalty = self._settings(task.data.n_alive, task.plan).penalty
        settings = self._selection_settings
        if self._is_constrained and self._is_large(task):
            settings = replace(settings, member_families=SMOOTH_FAMILIES)
        likelihood = (
            task.has_classes
            and self.loss == "auto"
            and not self.updatable
            and penalty is None
            and task.data.shard.group.size == 1
            and task.Y.shape[1] <= settings.likelihood_classes
            and self._exact(*task.size, task.plan, Logistic())
        )
        rows = task.data, Y, task.plan, rng, task.has_classes
        seconds = self._selection_seconds(task, budget)
        return EnsembleSearch(*rows, self.metric, penalty, seconds, likelihood, settings)

    def _at_most_n_kernels(self, selection: Selection) -> Selection:
        return selection if self.n_kernels == "auto" else selection.largest(int(self.n_kernels))

    def _is_large(self, task: Task) -> bool:
        """Whether the stages of large tables apply: no exact solution, and many rows or a GPU."""
        if self._exact(*task.size, task.plan, task.loss):
            return False
        return task.data.n_alive >= self._selection_settings.many_rows or task.plan.device.type == "cuda"

    def _selection_seconds(self, task: Task, budget: Clock) -> float | None:
        """Seconds for model selection: the time that the fit of one model leaves, at least `time_shares.SHORT`."""
        if self.time_budget is None:
            return None
        exact = self._exact(*task.size, task.plan, task.loss, math.inf)
        if not (exact and task.loss.quadratic):  # other losses choose their penalties afterwards, by many fits
            return budget.remaining(until=time_shares.SELECTION)
        needed = exact_seconds(*task.size, task.plan)
        return max(
            budget.remaining(until=time_shares.SHORT),
            budget.remaining(until=time_shares.SOLVING) - time_shares.SAFETY_FACTOR * needed,
        )

    def _exact(self, n_rows: int, n_outputs: int, n_columns: int, plan: Plan, loss: Loss, penalty: float = 0.0) -> bool:
        """Whether one learner of all rows gives the exact solution.

        It does if sizes are left open, the loss is squared or a likelihood, rows are few enough for the penalty, and
        time allows it.
        """
        most = plan.exact_rows(penalty) if loss.quadratic else plan.likelihood_rows(n_outputs) if loss.newton else 0
        fits = self._sizes_are_open() and n_rows <= most
        if not fits or self.time_budget is None:
            return fits
        times = 1.0 if loss.quadratic else LIKELIHOOD_TIMES
        return times * exact_seconds(n_rows, n_outputs, n_columns, plan) <= time_shares.EXACT * self.time_budget

    def _cleans_targets(self, task: Task) -> bool:
        exact = self._selects_kernels() and self._exact(*task.size, task.plan, task.loss)
        return exact and task.loss.robust and not task.data.shard.divided

    def _sizes_are_open(self) -> bool:
        return self.learner_size == "auto" and self.n_learners == "auto"

    def _needs_validation(self, data: TableData, n_outputs: int, plan: Plan, loss: Loss) -> bool:
        return self._sizes_are_open() and not self._exact(data.n_alive, n_outputs, data.rows.n_columns, plan, loss)

    def _uses_all_rows(self, data: TableData, task: Task, selection: Selection) -> bool:
        size = data.n_alive, task.Y.shape[1], data.rows.n_columns
        whole = data.row_groups is None  # otherwise conjugate gradients leave no rows out
        penalties = [member.lam if whole else 0.0 for member in selection.members]
        return all(self._exact(*size, task.plan, task.loss, penalty) for penalty in penalties)

    def _learner_sizes(self, n_rows: int, plan: Plan) -> LearnerSizes:
        return LearnerSizes.default(n_rows, self._selection_settings.many_rows, plan.device.type)

    def _settings(self, n_rows: int, plan: Plan) -> BoostingSettings:
        """Resolve every "auto" for a problem of this many rows."""
        default = self._learner_sizes(n_rows, plan)
        many_rows = n_rows >= self._selection_settings.many_rows
        size: Any = self.learner_size
        if isinstance(size, str):
            size = int(min(max(n_rows / 64, 50), default.most_vectors, n_rows))
        vectors = int(size) if isinstance(size, Integral) else 50
        subset, gram_rows = self.subset_size, self.gram_rows
        if isinstance(subset, str):
            subset = max(default.candidates_per_vector * vectors, 500)
        if isinstance(gram_rows, str):
            gram_rows = SAMPLE_ROWS if many_rows else None
        require(vectors <= subset, "learner_size", f"at most subset_size={subset}", vectors)
        n_learners, block_lengths = self.n_learners, {"auto": 1, "one": 1, "full": None, "blocks": self.block_length}
        return BoostingSettings(
            n_learners=self._refinement_settings.first_learners if isinstance(n_learners, str) else n_learners,
            learner_size=size,
            subset_size=subset,
            gram_rows=gram_rows,
            block_length=block_lengths[self.absorption],
            penalty=None if isinstance(self.regularization, str) else float(self.regularization),
        )

    def _begin_fit(self, problem: Problem, validation_rows: Tensor | None, rng: np.random.Generator) -> ForwardFit:
        n_rows = problem.n_candidates
        penalty = 0.0 if problem.rows.shard.divided or problem.sample.row_groups is not None else problem.lam
        columns = problem.rows.n_columns
        exact = self._exact(n_rows, problem.n_outputs, columns, problem.plan, problem.loss, penalty)
        settings = self._settings(n_rows, problem.plan)
        criterion = Criterion.resolve(self.criterion, "criterion")
        combination = Combination.resolve(self.combination, "combination")
        draw = "all" if self.redraw else "random"
        sizes = settings.learner_size, settings.subset_size
        ensemble = Ensemble(criterion, combination, *sizes, draw, settings.gram_rows)
        return ForwardFit(
            problem,
            AllRows() if exact else ensemble,
            rng,
            block_length=settings.block_length,
            shrinkage=self.shrinkage,
            focus=self._focus(),
            make_block=partial(Block, own_penalty=self.block_penalty),
            validation=None if validation_rows is None else validation_rows.to(problem.plan.device),
        )

    def _stopping_rules(self, fit: ForwardFit) -> list[Stopping]:
        if isinstance(fit.learner, AllRows):
            exact = StopReason("all rows are basis vectors: the solution is exact", StopKind.EXACT)
            return [MaxSteps(1, why=exact)]
        n_learners = self._settings(fit.problem.n_candidates, fit.problem.plan).n_learners
        require(n_learners >= fit.n_steps, "n_learners", f"at least the {fit.n_steps} of the warm model", n_learners)
        return [MaxSteps(n_learners)]

    def _finish(self, fit: ForwardFit, final: FittedExpansion, budget: Clock) -> FittedExpansion:
        """Improve all weights jointly, if asked for and if memory and time allow it."""
        steps, reason = self._polish_steps(fit, final.index, budget)
        if reason is not None:
            return replace(final, kept={"polish_reason_": reason})
        expired = partial(budget.expired, until=time_shares.SOLVING)
        at = fit.problem, final.index, final.weights
        done = polish(*at, max_iter=steps, validation=fit.validation, expired=expired)
        return replace(final, weights=done.weights, kept={"polish_reason_": done.stop_reason})

    def _with_stages(self, task: Task, first: FittedMember, budget: Clock, until: float) -> list[FittedMember]:
        if not self._can_be_refined(first.fit) or not time_to_begin(first.fit, budget, until):
            return [first]

        def begin(problem: Problem, validation: Tensor | None) -> ForwardFit:
            return self._begin_fit(problem, validation, first.fit.rng)

        settings, focus = self._refinement_settings, self._focus()
        local = self.local_stage and not self._is_constrained  # slopes jump between cells
        stages = RefinementStages(begin, settings, budget, until, task.has_classes, focus, local=local)
        return stages.refine(first, task)

    @property
    def _is_constrained(self) -> bool:
        """Whether slopes have signs (`mercer.forward.monotone`)."""
        given = getattr(self, "monotonic_cst", None)
        return given is not None and has_signs(given)

    def _focus(self) -> Focus | None:
        return None if self.focus is None else Focus.resolve(self.focus, "focus")

    def _can_be_refined(self, fit: ForwardFit) -> bool:
        if not self._kernel_and_sizes_are_open() or fit.interrupted or fit.validation is None:
            return False
        least_squares = fit.problem.loss.quadratic and isinstance(fit.problem.kernel, Stationary)
        return least_squares and not isinstance(fit.learner, AllRows)

    def _subsample(self, data: TableData, plan: Plan, rng: np.random.Generator) -> TableData:
        """The table, or a sample of its rows if it has more than `max_rows`."""
        if getattr(self, "monotonic_cst", None) is not None:
            require_constrainable(self, data)
        if self.max_rows is None or data.shard.divided or self._pairwise or isinstance(data.rows, SparseRows):
            return data
        if self.max_rows != "auto":
            n = int(self.max_rows)
        elif self._kernel_and_sizes_are_open() and self._coding_loss().quadratic:
            n = plan.stage_rows(data.n_columns, self.time_budget)
        else:
            return data
        one_class_each = self._is_classifier and data.y.ndim == 1
        return data if data.n_alive <= n else draw_sample(data, n, rng, classes=one_class_each)

    def _kernel_and_sizes_are_open(self) -> bool:
        """Whether kernel and sizes are left open in a fit that is not to be continued."""
        return self._selects_kernels() and self._sizes_are_open() and not (self.warm_start or self.updatable)

    def _more_models(
        self, task: Task, first: list[FittedMember], budget: Clock, rng: np.random.Generator
    ) -> list[FittedMember]:
        """Fit further models while time allows it, and average the best of them with the first."""
        if self.time_budget is None or not self._can_be_refined(first[0].fit):
            return first

        def fit_model(member: KernelMember) -> list[FittedMember]:
            begun = self._begin_fit(task.problem(member), task.validation_rows, rng)
            return self._fit_member(task, member, begun, budget, 1.0)

        return best_average(task, first, fit_model, budget, self._refinement_settings.max_models)

    def _polish_steps(self, fit: ForwardFit, index: Tensor, budget: Clock) -> tuple[int, str | None]:
        """The most steps of a polish, and the reason if there are none."""
        m = len(index)
        if self.polish is False or isinstance(fit.learner, AllRows) or m == 0:
            return 0, "not asked for"
        if fit.interrupted:
            return 0, "left out: the fit was interrupted"
        n, plan = fit.problem.rows.shard.length(len(fit.problem.y)), fit.problem.plan
        if self.polish == "auto" and 4 * m**2 * 8 > plan.memory_limit // 4:
            return 0, f"left out: {m} basis vectors would take too much memory"
        if self.polish == "auto" and self._sizes_are_open() and not plan.polish_pays(n, m):
            return 0, f"left out: {m} basis vectors at {n} rows would take too long"
        left = budget.remaining()
        if math.isinf(left):
            return POLISH_STEPS, None
        seconds = left * (time_shares.BETWEEN_STAGES if self._can_be_refined(fit) else 1.0)
        steps = affordable_polish_steps(fit.problem, index, seconds) if left else 0
        return min(steps, POLISH_STEPS), None if steps else "left out: the time budget does not allow a step of it"


@estimator_dataclass
class KernelBoostingRegressor(UncertainExpansions, MonotoneRegression, Boosting):
    r"""Kernel regression by boosting with ensembles of basis vectors.

    Minimises over functions of the RKHS, learner by learner,

    .. math:: \sum_n w_n V(y_n, f(x_n)) + \tfrac\lambda2 \|f\|^2_{\mathcal H} .

    Each learner picks `learner_size` basis vectors among `subset_size` random rows by their residuals,
    combines them into one function and adds it (Sun and Yao 2010, section III-D). At the end all weights
    may be improved jointly (`polish`).

    References
    ----------
    P. Sun and X. Yao, "Sparse approximation through boosting for learning large scale kernel machines",
    IEEE Transactions on Neural Networks 21 (2010). The defaults here differ from the paper's, which are
    ``n_learners=500, learner_size=50, subset_size=500, criterion="max-res", combination="rayleigh",
    absorption="full", polish=False``. Those of their earlier paper (ICDM 2006) are ``n_learners=150,
    learner_size=200, criterion="info-gain", combination=ConjugateGradients(200)``, the rest the same.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import KernelBoostingRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-2, 2, (400, 2))
    >>> y = np.sin(2 * X[:, 0]) * X[:, 1]
    >>> model = KernelBoostingRegressor(random_state=0).fit(X[:300], y[:300])
    >>> print(f"R² = {model.score(X[300:], y[300:]):.2f}")
    R² = 1.00
    """


@estimator_dataclass
class KernelBoostingClassifier(UncertainDecisions, Boosting):
    r"""Kernel classification by boosting with ensembles of basis vectors.

    Classes are coded ±1 and fitted by least squares as in `KernelBoostingRegressor`. Where the exact solution is
    possible, kernel logistic regression (softmax for several classes) takes its place if it has less log loss on
    held-out rows (`loss="auto"`). Several classes share basis vectors and kernel
    products, with one column of weights each. The paper's settings for COVTYPE are ``learner_size=50,
    subset_size=2000, criterion="mp", combination="rayleigh", absorption="blocks", block_length=50, n_learners=5000,
    focus="margin", polish=False``.

    References
    ----------
    P. Sun and X. Yao, "Sparse approximation through boosting for learning large scale kernel machines",
    IEEE Transactions on Neural Networks 21 (2010).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mercer import KernelBoostingClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = KernelBoostingClassifier(random_state=0).fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2]) > 0.9
    True
    >>> model.predict_proba(X[:1]).shape
    (1, 3)
    """

    _: KW_ONLY
    loss: Annotated[Any, AUTO | part_of(Loss)] = "auto"

    _is_classifier: ClassVar[bool] = True
