"""How boosted models grow (Boost10, Boost06): sizes, members, first stage, further stages, further models."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral
from typing import Annotated, Any, ClassVar

import numpy as np
from torch import Tensor

from mercer.base.parameters import ANY_FUNCTION, AUTO, BOOL, NONE, integer, literal, number, part_of, sequence_of
from mercer.clock import Clock
from mercer.data import SparseRows
from mercer.engine import Plan
from mercer.engine.fused import compiled_ahead
from mercer.forward.average import best_average
from mercer.forward.checkpoint import Resumable
from mercer.forward.combine import Combination
from mercer.forward.criteria import Criterion
from mercer.forward.draws import rows_at_a_time, some_rows
from mercer.forward.estimator import SOLVING_SHARE, ForwardEstimator
from mercer.forward.focus import Focus
from mercer.forward.further import further
from mercer.forward.learners import Ensemble, Size
from mercer.forward.local_length_scales import nearer
from mercer.forward.loop import ForwardFit
from mercer.forward.members import Choice, Member, only, raced_members, tuned_member
from mercer.forward.path import FittedExpansion
from mercer.forward.problem import Problem
from mercer.forward.solve.exact import AllRows
from mercer.forward.solve.polish import polish
from mercer.forward.solve.predicted_time import affordable_polish_steps, exact_seconds
from mercer.forward.stopping import MaxSteps, Stopping
from mercer.forward.task import Grown, Task
from mercer.forward.trial_fits import by_pace
from mercer.kernels import Gaussian, Matern32, Stationary
from mercer.losses import Loss
from mercer.parts import require
from mercer.preprocessing.read import TableData
from mercer.selection.constants import RACES
from mercer.stop_reason import StopKind, StopReason

#: Shares of the time budget that are spent when the race ends, when a large table has been seen from near, and when
#: members have been tried on all rows.
RACING_SHARE, NEAR_SHARE, TRYING_SHARE = 0.35, 0.4, 0.6
#: Share of the time budget that one exact solution may take, as predicted; the least share that is spent when the
#: selection before it ends; and what is set aside for it, in units of the prediction.
EXACT_SHARE, SHORT_SHARE, PRUDENCE = 0.75, 0.15, 1.3
#: Steps of a polish at most, and the share of the time left that it may take where further stages wait for theirs.
POLISH_STEPS, POLISHING = 50, 0.3
#: Learners where nothing is said; from so many rows on they are larger, and their curvature is an estimate from some.
LEARNERS, MANY_ROWS, VERY_MANY_ROWS, GRAM_ROWS = 20, 100_000, 1_000_000, 10_000
#: Basis vectors of a learner at most, and the rows it is chosen from in units of its size: for fewer than `MANY_ROWS`,
#: for these, and for more than `VERY_MANY_ROWS`, where twice as many vectors take twice as long for 2 % less error.
LARGEST = {"cpu": (300, 500, 500), "cuda": (1000, 4000, 2000)}
DRAWN = {"cpu": (10, 5, 5), "cuda": (10, 10, 20)}
#: Kernel values of one pass up to which a polish is worth its passes in float64, on a CPU and on a GPU.
POLISHED = {"cpu": 1e9, "cuda": 3e9}
#: What large tables mostly choose: programs for it are compiled while they choose.
LIKELY = (Matern32(), Gaussian())
#: Learners that it takes to begin a further stage: a pass, one of each length-scale, and one to gain by it.
BEGINNING = 4


@dataclass(eq=False, repr=False)
class Boosting(Resumable, ForwardEstimator):
    """How boosted models grow; the faces below add only what their targets need.

    Parameters
    ----------
    n_learners : int or "auto", default "auto"
        Learners; "auto" takes 20, or one that holds every row (exact kernel ridge) where those are few enough.
    learner_size : int, sequence, function of the step, or "auto", default "auto"
        S, basis vectors per learner.
    subset_size : int or "auto", default "auto"
        T, random rows among which a learner chooses.
    criterion : str or Criterion, default "largest-residuals"
        How a learner chooses: "largest-residuals", "max-res", "mp", "boost", "info-gain", "random" or a part of
        `mercer.forward.criteria`.
    combination : str or Combination, default "mp"
        How its basis vectors become one function: "mp", "rayleigh", "cg" or a part of `mercer.forward.combine`.
    gram_rows : int, None or "auto", default "auto"
        Rows from which the curvature of a learner is estimated where `combination` is "mp"; its slopes and values are
        of all rows, so what the estimate misses the next learners mend. None takes all rows, which costs S times as
        much as everything else; so does "auto" below 100 000 rows, and takes 10 000 from there on.
    absorption : "full", "one", "blocks" or "auto", default "auto"
        Which weights are fitted again when a learner arrives: all, only its own, or those of its block of
        `block_length` learners.
    block_length : int, default 50
        L, learners of a block.
    shrinkage : float, default 1.0
        ν in (0, 1], the share of each step that is taken.
    focus : None, "margin", "hinge" or Focus, default None
        Each new block sees only rows of small margin (classification): the paper's, or all rows that the
        squared hinge loss still counts.
    polish : bool or "auto", default "auto"
        After boosting, improve all weights together by preconditioned conjugate gradients; where rows are held out,
        until their error stops falling. "auto" does so where there is memory for it.

    kernel : "auto", a name, a Kernel or a function, default "auto"
        With "auto", column maps, metrics, kernels and penalties race on some of the rows, and rows that were not fitted
        decide (`mercer.selection.race`); so they do unless `scale_inputs` is other than True. A name is that family,
        its parameters tuned by the evidence; a kernel object is taken as it is; "precomputed" says that `X` holds
        kernel values; a function of two tensors of rows gives the values between them
        (`mercer.kernels.Function`).
    metric : "auto", None, "diagonal" or "full", default "auto"
        In what metric inputs are compared, where kernels race: by columns as they are mapped (None), each times a
        factor found by evidence and gradients ("diagonal"), turned by the mean outer product of a model's gradients
        ("full"), or whichever of these held-out rows like best. A metric that gains nothing on them is never taken.
    n_kernels : int or "auto", default "auto"
        Kernels that the model averages, at most, where they race; "auto" takes as many as rows held out ask for.

    max_rows : int, None or "auto", default "auto"
        Rows that learners see at a time. Larger tables are drawn from, anew for every stage where everything else is
        left open, and of classes among many more rows those that are not told apart with ease. "auto" takes a million
        on a CPU and ten million on a GPU, fewer where memory or `time_budget` ask for it; None takes all rows.

    Attributes
    ----------
    polish_reason_ : str
        What came of the polish, in words.
    """

    n_learners: Annotated[int | str, AUTO | integer()] = "auto"
    _: KW_ONLY
    learner_size: Annotated[Size | str, AUTO | integer() | sequence_of(integer()) | ANY_FUNCTION] = "auto"
    subset_size: Annotated[int | str, AUTO | integer()] = "auto"
    criterion: Annotated[Any, part_of(Criterion)] = "largest-residuals"
    combination: Annotated[Any, part_of(Combination)] = "mp"
    gram_rows: Annotated[int | str | None, NONE | AUTO | integer()] = "auto"
    absorption: Annotated[str, literal("auto", "full", "one", "blocks")] = "auto"
    block_length: Annotated[int, integer()] = 50
    shrinkage: Annotated[float, number(0.0, 1.0, open_low=True)] = 1.0
    focus: Annotated[Any, NONE | part_of(Focus)] = None
    polish: Annotated[bool | str, BOOL | AUTO] = "auto"
    metric: Annotated[str | None, literal("auto", None, "diagonal", "full")] = "auto"
    n_kernels: Annotated[int | str, AUTO | integer()] = "auto"
    max_rows: Annotated[int | str | None, NONE | AUTO | integer(2)] = "auto"

    _growing: ClassVar[tuple[str, ...]] = (*ForwardEstimator._growing, "checkpoint", "n_learners", "polish")

    def _races(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "auto" and self.scale_inputs is True

    def _encodes_twice(self, n_rows: int) -> bool:
        """Whether categories have two codes, for a race each: where rows are so many that there is one race."""
        alone = self._races() and isinstance(self.n_kernels, str)
        return alone and RACES[-1][0] < n_rows < MANY_ROWS

    def _choose(self, task: Task, Y: np.ndarray, rng: np.random.Generator, budget: Clock) -> Choice:
        given, plan, sparse = task.given, task.plan, isinstance(task.given.rows, SparseRows)
        if not self._races() or sparse:
            wanted = "'auto' where X is sparse" if sparse else "'auto' unless kernel='auto' and scale_inputs=True"
            require(self.metric == "auto", "metric", wanted, self.metric)
            return tuned_member(given, Y, plan, self, rng)
        classes, lam, n_rows = self._classes, self.regularization, given.n_alive
        exact = self._exact(n_rows, Y.shape[1], given.rows.n_columns, plan, task.loss)
        large = not exact and (n_rows >= MANY_ROWS or plan.device.type == "cuda")
        options: dict[str, Any] = {"metric": self.metric, "large": large, "again": isinstance(self.n_kernels, str)}
        options["seconds"] = self._selection_seconds(task, budget)
        if large:
            for kernel in LIKELY:
                compiled_ahead(kernel, given.n_columns, plan)
        choice = raced_members(given, Y, plan, rng, classes=classes, regularization=lam, **options)
        if large and self.metric is not None:
            seconds = None if self.time_budget is None else budget.remaining(until=NEAR_SHARE)
            choice = nearer(choice, given, Y, plan, rng, seconds, free_penalty=isinstance(lam, str))
        choice = choice if isinstance(self.n_kernels, str) else only(choice, self.n_kernels)
        if not large or task.held_out is None or not self._sizes_are_open():
            return choice

        def begin(member: Member) -> ForwardFit:
            return self._growth(task.problem(member), task.held_out, rng)

        return by_pace(replace(task, choice=choice), begin, budget.remaining(until=TRYING_SHARE))

    def _selection_seconds(self, task: Task, budget: Clock) -> float | None:
        """Seconds for model selection: all that the fit of one model afterwards does not need, and a share at least."""
        if self.time_budget is None:
            return None
        given, p = task.given, task.Y.shape[1]
        if not self._exact(given.n_alive, p, given.rows.n_columns, task.plan, task.loss, math.inf):
            return budget.remaining(until=RACING_SHARE)
        needed = exact_seconds(given.n_alive, p, given.rows.n_columns, task.plan)
        return max(budget.remaining(until=SHORT_SHARE), budget.remaining(until=SOLVING_SHARE) - PRUDENCE * needed)

    def _exact(self, n_rows: int, n_outputs: int, n_columns: int, plan: Plan, loss: Loss, penalty: float = 0.0) -> bool:
        """Whether one learner holds all rows.

        Sizes are left open, the loss is squared, rows are few enough for the penalty, and there is time for it.
        """
        fits = self._sizes_are_open() and loss.quadratic and n_rows <= plan.exact_rows(penalty)
        if not fits or self.time_budget is None:
            return fits
        return exact_seconds(n_rows, n_outputs, n_columns, plan) <= EXACT_SHARE * self.time_budget

    def _sizes_are_open(self) -> bool:
        return self.learner_size == "auto" and self.n_learners == "auto"

    def _watches(self, given: TableData, n_outputs: int, plan: Plan, loss: Loss) -> bool:
        return self._sizes_are_open() and not self._exact(given.n_alive, n_outputs, given.rows.n_columns, plan, loss)

    def _learns_all(self, given: TableData, n_outputs: int, plan: Plan, loss: Loss, choice: Choice) -> bool:
        size = given.n_alive, n_outputs, given.rows.n_columns
        return all(self._exact(*size, plan, loss, one.lam) for one in choice.members)

    def _sizes(self, n_rows: int, plan: Plan) -> tuple[int, Size, int]:
        """Learners, their size and the subset each is chosen from, where the user left them open."""
        size: Any = self.learner_size
        where, many = plan.device.type, (n_rows >= MANY_ROWS) + (n_rows > VERY_MANY_ROWS)
        if isinstance(size, str):
            size = int(min(max(n_rows / 64, 50), LARGEST[where][many], n_rows))
        vectors = int(size) if isinstance(size, Integral) else 50
        subset: Any = self.subset_size
        if isinstance(subset, str):
            subset = max(DRAWN[where][many] * vectors, 500)
        require(vectors <= subset, "learner_size", f"at most subset_size={subset}", vectors)
        return LEARNERS if isinstance(self.n_learners, str) else self.n_learners, size, subset

    def _growth(self, problem: Problem, held_out: Tensor | None, rng: np.random.Generator) -> ForwardFit:
        require(self._classes or self.focus is None, "focus", "None for regression, which has no margins", self.focus)
        n_rows = problem.n_candidates
        penalty = 0.0 if problem.rows.shard.divided else problem.lam
        outputs, columns = problem.n_outputs, problem.rows.n_columns
        exact = self._exact(n_rows, outputs, columns, problem.plan, problem.loss, penalty)
        _, size, subset = self._sizes(n_rows, problem.plan)
        gram_rows: Any = self.gram_rows
        if isinstance(gram_rows, str):
            gram_rows = GRAM_ROWS if n_rows >= MANY_ROWS else None
        lengths = {"auto": 1, "one": 1, "full": None, "blocks": self.block_length}
        criterion = Criterion.resolve(self.criterion, "criterion")
        combination = Combination.resolve(self.combination, "combination")
        ensemble = Ensemble(criterion, combination, size, subset, gram_rows=gram_rows)
        return ForwardFit(
            problem,
            AllRows() if exact else ensemble,
            rng,
            block_length=lengths[self.absorption],
            shrinkage=self.shrinkage,
            focus=None if self.focus is None else Focus.resolve(self.focus, "focus"),
            validation=None if held_out is None else held_out.to(problem.plan.device),
        )

    def _rules(self, fit: ForwardFit) -> list[Stopping]:
        if isinstance(fit.learner, AllRows):
            exact = StopReason("all rows are basis vectors: the solution is exact", StopKind.EXACT)
            return [MaxSteps(1, why=exact)]
        n_learners = self._sizes(fit.problem.n_candidates, fit.problem.plan)[0]
        require(n_learners >= fit.n_steps, "n_learners", f"at least the {fit.n_steps} of the warm model", n_learners)
        return [MaxSteps(n_learners)]

    def _finish(self, fit: ForwardFit, final: FittedExpansion, budget: Clock) -> FittedExpansion:
        """All weights improved together, where that is asked for and there is memory and time for it."""
        steps, reason = self._polish_steps(fit, final.index, budget)
        if reason is not None:
            return replace(final, kept={"polish_reason_": reason})
        done = polish(
            fit.problem,
            final.index,
            final.weights,
            max_iter=steps,
            validation=fit.validation,
            expired=lambda: budget.expired(until=SOLVING_SHARE),
        )
        return replace(final, weights=done.weights, kept={"polish_reason_": done.stop_reason})

    def _further(self, task: Task, first: Grown, budget: Clock, share: float) -> list[Grown]:
        goes_on = self._goes_on(first.fit) and time_to_begin(first.fit, budget, share)
        return further(self, task, first, budget, share) if goes_on else []

    def _goes_on(self, fit: ForwardFit) -> bool:
        """Whether the model may grow beyond its first stage: everything was left open, and rows are watched."""
        open_ended = self._races() and self._sizes_are_open() and not self.warm_start and not fit.interrupted
        least_squares = fit.problem.loss.quadratic and isinstance(fit.problem.kernel, Stationary)
        return open_ended and least_squares and fit.validation is not None and not isinstance(fit.learner, AllRows)

    def _drawn(self, given: TableData, plan: Plan, rng: np.random.Generator) -> TableData:
        """The table, or some of its rows where it is too large to learn from whole."""
        if self.max_rows is None or given.shard.divided or self._pairwise or isinstance(given.rows, SparseRows):
            return given
        quadratic = Loss.resolve(self.loss, "loss").quadratic
        grows = self._races() and self._sizes_are_open() and quadratic and not self.warm_start
        n = rows_at_a_time(self.max_rows, given.n_columns, plan, self.time_budget)
        if given.n_alive <= n or not (grows or isinstance(self.max_rows, Integral)):
            return given
        return some_rows(given, n, rng, classes=self._classes)

    def _again(self, task: Task, grown: list[Grown], budget: Clock, rng: np.random.Generator) -> list[Grown]:
        """Further models, the best averaged with the first, while there is time for one more."""
        if self.time_budget is None or not self._goes_on(grown[0].fit):
            return grown

        def grow(member: Member) -> list[Grown]:
            return self._grown(task, member, self._growth(task.problem(member), task.held_out, rng), budget, 1.0)

        return best_average(task, grown, grow, budget)

    def _polish_steps(self, fit: ForwardFit, index: Tensor, budget: Clock) -> tuple[int, str | None]:
        """Steps of a polish at most, and why there are none."""
        m = len(index)
        if self.polish is False or isinstance(fit.learner, AllRows) or m == 0:
            return 0, "not asked for"
        if fit.interrupted:
            return 0, "left out: the fit was interrupted"
        n, plan = fit.problem.rows.shard.length(len(fit.problem.y)), fit.problem.plan
        if self.polish == "auto" and 4 * m**2 * 8 > plan.memory_limit // 4:
            return 0, f"left out: {m} basis vectors would take too much memory"
        if self.polish == "auto" and self._sizes_are_open() and n * m > POLISHED[plan.device.type]:
            return 0, f"left out: {m} basis vectors at {n} rows would take too long"
        left = budget.remaining()
        if math.isinf(left):
            return POLISH_STEPS, None
        steps = (
            affordable_polish_steps(fit.problem, index, left * (POLISHING if self._goes_on(fit) else 1.0))
            if left
            else 0
        )
        return min(steps, POLISH_STEPS), None if steps else "left out: the time budget does not allow a step of it"


def time_to_begin(fit: ForwardFit, budget: Clock, share: float) -> bool:
    """Whether a further stage has time to begin, by what a learner took so far."""
    return not budget.expired(needing=BEGINNING * fit.seconds / max(fit.n_steps, 1), until=share)
