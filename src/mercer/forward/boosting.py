"""Kernel boosting: `KernelBoostingRegressor` and `KernelBoostingClassifier` (Boost10, Boost06)."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral
from typing import Annotated, Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin
from torch import Tensor

from mercer.border.budget import Budget
from mercer.border.classes import DecisionClassifier
from mercer.border.face import face
from mercer.border.read import Given
from mercer.border.rules import ANY_FUNCTION, AUTO, FOLDER, NOTHING, SWITCH, literal, number, part_of, several_of, whole
from mercer.engine import Plan
from mercer.forward.checkpoint import Checkpoint, fingerprint
from mercer.forward.combine import Combination
from mercer.forward.criteria import Criterion
from mercer.forward.estimator import ForwardEstimator
from mercer.forward.focus import Focus
from mercer.forward.learners import Ensemble, Size
from mercer.forward.loop import ForwardFit
from mercer.forward.members import Choice, only, raced_members, tuned_member
from mercer.forward.problem import Problem
from mercer.forward.solve.exact import AllRows
from mercer.forward.solve.polish import polish
from mercer.forward.stages import Final
from mercer.forward.stopping import MaxSteps, Stopping
from mercer.losses import Loss
from mercer.parts import require

#: Share of the time budget that the race may take.
RACING_SHARE = 0.4
#: Operations a second that a factor is counted on to take, and the share of the time budget for one of them.
EXACT_RATE, EXACT_SHARE = 5e9, 0.15
#: Steps of a polish at most.
POLISH_STEPS = 50
#: Learners where nothing is said.
LEARNERS = 20


@dataclass(eq=False, repr=False)
class Boosting(ForwardEstimator):
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
        decide (`mercer.tuning.race`); so they do unless `scale_inputs` is other than True. A name is that family, its
        parameters tuned by the evidence; a kernel object is taken as it is; "precomputed" says that `X` holds kernel
        values; a function of two arrays of rows gives the values between them.
    metric : "auto", None, "diagonal" or "full", default "auto"
        In what metric inputs are compared, where kernels race: by columns as they are mapped (None), each times a
        factor found by evidence and gradients ("diagonal"), turned by the mean outer product of a model's gradients
        ("full"), or whichever of these held-out rows like best. A metric that gains nothing on them is never taken.
    n_kernels : int or "auto", default "auto"
        Kernels that the model averages, at most, where they race; "auto" takes as many as rows held out ask for.
    checkpoint : path or None, default None
        A folder in which the state of the fit is kept after each learner. A fit that was interrupted or killed goes on
        from there when it is started again on the same rows and parameters, on any number of processes; another
        fit's folder is refused.

    Attributes
    ----------
    polish_reason_ : str
        What came of the polish, in words.
    """

    n_learners: Annotated[int | str, AUTO | whole()] = "auto"
    _: KW_ONLY
    learner_size: Annotated[Size | str, AUTO | whole() | several_of(whole()) | ANY_FUNCTION] = "auto"
    subset_size: Annotated[int | str, AUTO | whole()] = "auto"
    criterion: Annotated[Any, part_of(Criterion)] = "largest-residuals"
    combination: Annotated[Any, part_of(Combination)] = "mp"
    absorption: Annotated[str, literal("auto", "full", "one", "blocks")] = "auto"
    block_length: Annotated[int, whole()] = 50
    shrinkage: Annotated[float, number(0.0, 1.0, open_low=True)] = 1.0
    focus: Annotated[Any, NOTHING | part_of(Focus)] = None
    polish: Annotated[bool | str, SWITCH | AUTO] = "auto"
    metric: Annotated[str | None, literal("auto", None, "diagonal", "full")] = "auto"
    n_kernels: Annotated[int | str, AUTO | whole()] = "auto"
    checkpoint: Annotated[Any, NOTHING | FOLDER] = None

    _spreads: ClassVar[bool] = True
    _growing: ClassVar[tuple[str, ...]] = (*ForwardEstimator._growing, "n_learners", "polish", "checkpoint")

    def _checkpoint(self, given: Given, targets: Any, X_val: Any, rng: np.random.Generator) -> Checkpoint | None:
        if self.checkpoint is None:
            return None
        y = targets.numbers(given.y) if self._classes else given.y
        seen = fingerprint(self, given, y, X_val, self._growing)
        return Checkpoint.open(self.checkpoint, given.shard.group, seen, rng)

    def _races(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "auto" and self.scale_inputs is True

    def _choose(self, given: Given, Y: np.ndarray, plan: Plan, rng: np.random.Generator, budget: Budget) -> Choice:
        if not self._races():
            require(self.metric == "auto", "metric", "'auto' unless kernel='auto' and scale_inputs=True", self.metric)
            return tuned_member(given, Y, plan, self, rng)
        options: dict[str, Any] = {
            "metric": self.metric,
            "seconds": None if self.time_budget is None else budget.left(RACING_SHARE),
        }
        classes, lam = self._classes, self.regularization
        choice = raced_members(given, Y, plan, rng, classes=classes, regularization=lam, **options)
        return choice if isinstance(self.n_kernels, str) else only(choice, self.n_kernels)

    def _exact(self, n_rows: int, plan: Plan, loss: Loss) -> bool:
        """Whether one learner holds all rows: sizes left open, least squares, and few enough rows."""
        affordable = plan.exact_rows
        if self.time_budget is not None:
            affordable = min(affordable, int((3 * EXACT_RATE * EXACT_SHARE * self.time_budget) ** (1 / 3)))
        return self._sizes_are_open() and loss.quadratic and n_rows <= affordable

    def _sizes_are_open(self) -> bool:
        return self.learner_size == "auto" and self.n_learners == "auto"

    def _watches(self, n_rows: int, plan: Plan, loss: Loss) -> bool:
        return self._sizes_are_open() and not self._exact(n_rows, plan, loss)

    def _sizes(self, n_rows: int) -> tuple[int, Size, int]:
        """Learners, their size and the subset each is chosen from, where the user left them open."""
        size: Any = self.learner_size
        if isinstance(size, str):
            size = int(min(max(n_rows / 64, 50), 300, n_rows))
        vectors = int(size) if isinstance(size, Integral) else 50
        subset: Any = max(10 * vectors, 500) if isinstance(self.subset_size, str) else self.subset_size
        require(vectors <= subset, "learner_size", f"at most subset_size={subset}", vectors)
        return LEARNERS if isinstance(self.n_learners, str) else self.n_learners, size, subset

    def _growth(self, problem: Problem, held_out: Tensor | None, rng: np.random.Generator) -> ForwardFit:
        require(self._classes or self.focus is None, "focus", "None for regression, which has no margins", self.focus)
        shared = problem.rows.shard.spread
        require(not shared or self.focus is None, "focus", "None where processes share the rows", self.focus)
        n_rows = problem.n_candidates
        exact = self._exact(n_rows, problem.plan, problem.loss)
        _, size, subset = self._sizes(n_rows)
        lengths = {"auto": 1, "one": 1, "full": None, "blocks": self.block_length}
        criterion = Criterion.resolve(self.criterion, "criterion")
        combination = Combination.resolve(self.combination, "combination")
        return ForwardFit(
            problem,
            AllRows(leaves_out=self._classes) if exact else Ensemble(criterion, combination, size, subset),
            rng,
            block_length=lengths[self.absorption],
            shrinkage=self.shrinkage,
            focus=None if self.focus is None else Focus.resolve(self.focus, "focus"),
            validation=None if held_out is None else held_out.to(problem.plan.device),
        )

    def _rules(self, fit: ForwardFit) -> list[Stopping]:
        exact = isinstance(fit.learner, AllRows)
        n_learners = 1 if exact else self._sizes(fit.problem.n_candidates)[0]
        require(n_learners >= fit.n_steps, "n_learners", f"at least the {fit.n_steps} of the warm model", n_learners)
        return [MaxSteps(n_learners)]

    def _finish(self, fit: ForwardFit, final: Final, budget: Budget) -> Final:
        """All weights improved together, where that is asked for and there is memory and time for it."""
        problem, m = fit.problem, len(final.index)
        reason = self._why_not_polish(fit, m, budget)
        if reason is not None:
            return replace(final, kept={"polish_reason_": reason})
        steps = int(min(POLISH_STEPS, _affordable_steps(fit, budget)))
        done = polish(problem, final.index, final.weights, max_iter=steps, validation=fit.validation)
        return replace(final, weights=done.weights, kept={"polish_reason_": done.stop_reason})

    def _why_not_polish(self, fit: ForwardFit, m: int, budget: Budget) -> str | None:
        if self.polish is False or isinstance(fit.learner, AllRows) or m == 0:
            return "not asked for"
        if fit.interrupted:
            return "left out: the fit was interrupted"
        if self.polish == "auto" and 4 * m**2 * 8 > fit.problem.plan.memory_limit // 4:
            return f"left out: {m} basis vectors would take too much memory"
        if _affordable_steps(fit, budget) < 1:
            return "left out: the time budget is spent"
        return None


def _affordable_steps(fit: ForwardFit, budget: Budget) -> float:
    """Steps for which time is left: each takes about as long as growing did, and so does what comes before them."""
    left = fit.problem.rows.shard.group.first(budget.left)
    return left if math.isinf(left) else int(left / max(fit.seconds, 1e-6)) - 1


@face
class KernelBoostingRegressor(RegressorMixin, Boosting):
    r"""Boosting whose learners are ensembles of basis vectors.

    Minimises over functions of the RKHS, learner by learner,

    .. math:: \sum_n w_n V(y_n, f(x_n)) + \tfrac\lambda2 \|f\|^2_{\mathcal H} .

    Each learner picks `learner_size` basis vectors among `subset_size` random rows by their residuals,
    combines them into one function and adds it (Sun and Yao 2010, section III-D). At the end all weights
    may be polished together.

    References
    ----------
    P. Sun and X. Yao, "Sparse approximation through boosting for learning large scale kernel machines",
    IEEE Transactions on Neural Networks 21 (2010). The defaults here are not the paper's: its own are
    ``n_learners=500, learner_size=50, subset_size=500, criterion="max-res", combination="rayleigh",
    absorption="full", polish=False``.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import KernelBoostingRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-2, 2, (400, 2))
    >>> y = np.sin(2 * X[:, 0]) * X[:, 1]
    >>> model = KernelBoostingRegressor(random_state=0).fit(X[:300], y[:300])
    >>> bool(model.score(X[300:], y[300:]) > 0.99)
    True
    """


@face
class KernelBoostingClassifier(DecisionClassifier, Boosting):
    r"""Boosting whose learners are ensembles of basis vectors, for two or more classes.

    Classes are coded ±1 and fitted as `KernelBoostingRegressor` fits numbers; several classes share basis vectors and
    kernel products, one column of weights each. The paper's settings for COVTYPE are ``learner_size=50,
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
    >>> bool(model.score(X[1::2], y[1::2]) > 0.9), model.predict_proba(X[:1]).shape
    (True, (1, 3))
    """

    _classes: ClassVar[bool] = True
