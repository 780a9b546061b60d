"""Base of the estimators on several empirical kernels: parameters, the fit, cross-validation, prediction."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, replace
from itertools import product
from numbers import Integral
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from mercer.base.estimator import BaseKernelEstimator
from mercer.base.out_of_fold import Refits
from mercer.base.parameters import NONE, Rule, check, integer, literal, number, sequence_of
from mercer.clock import Clock, StopReason
from mercer.data import RowSource, current_group
from mercer.data.shard import ONE_PROCESS, Group
from mercer.empirical.cross_validation import ParameterGrid, choose, several
from mercer.empirical.ensemble import MemberEnsemble
from mercer.empirical.kernel_map import ROWS
from mercer.empirical.learners import MemberLearner
from mercer.empirical.problem import MemberProblem, member_problem, pair_problems
from mercer.empirical.training import Trained, Training
from mercer.engine import Plan, make_plan
from mercer.engine.plan import Sample, generator
from mercer.forward.expansion import Objective
from mercer.losses import Squared
from mercer.preprocessing.duplicates import collect_small_table, merged
from mercer.preprocessing.inputs import InputMap, code_targets, find_inputs
from mercer.preprocessing.read import TableData, read, read_new
from mercer.preprocessing.validate import unit_weights
from mercer.progress import with_progress


def one_or_several(least: float) -> Rule:
    """Leave-one-out, the paper's grid, or a number of at least `least`, or several."""
    return literal("auto", "paper") | number(least) | sequence_of(number(least))


def _is_jobs(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and 0 < abs(int(value)) < 2**16


JOBS = NONE | Rule("an integer other than 0 (below 65536)", _is_jobs)


@dataclass(eq=False, repr=False)
class SeveralKernels:
    """Parameters of estimators that couple several kernels.

    Parameters
    ----------
    kernels : "auto", "paper", a kernel, name or function, or several, default "auto"
        "auto": a Gaussian at one width for all columns and one at a length-scale over each column's relevance, both
        with a linear kernel added; the width, and whether one of them is used at two widths instead, by leave-one-out
        errors in closed form on at most 1000 rows. "paper": the normalised linear kernel and Gaussians at the mean
        distance between rows and at a tenth of it. To give kernel l a penalty c_l, scale it: c/c_l times k_l.
    regularization : "auto", float, "paper" or several floats, default "auto"
        The penalty c: "auto" by leave-one-out errors in closed form, of classes as ±1; the best by cross-validation of
        several, "paper" being 2⁻⁴, …, 2⁴ times the mean weight of rows. Against a number, weights count as in
        scikit-learn's `Ridge`.
    coupling : "auto", float, "paper" or several floats, default "auto"
        λ ≥ 0, which shrinks the kernels' functions towards their mean: "auto" by leave-one-out errors, together with
        c; the best by cross-validation of several. All pairs of candidates share maps and moments.
    """

    kernels: Any = "auto"
    regularization: Annotated[Any, one_or_several(0.0)] = "auto"
    coupling: Annotated[Any, one_or_several(0.0)] = "auto"


@dataclass(eq=False, repr=False)
class RandomMembers:
    """Parameters of estimators whose members use random rows.

    Parameters
    ----------
    n_members : int, default 3
        H, the number of members of each machine.
    subset_size : int, float, None or several, default 300
        p, random rows that make the maps of a member: a number, a share of the rows (of the two classes, under
        one-vs-one), or all for None; the best of several by cross-validation.
    """

    _: KW_ONLY
    n_members: Annotated[int, integer()] = 3
    subset_size: Annotated[Any, ROWS | sequence_of(ROWS)] = 300


@dataclass(frozen=True)
class EnsembleTask:
    """The table, its coding, and the pairs of classes with a machine each, if any.

    Weights are divided by `unit`; `n_classes` is 0 for numbers.
    """

    given: TableData
    targets: Any
    inputs: InputMap
    sample: Sample
    unit: float
    n_classes: int
    pairs: list[tuple[int, int]]


@dataclass(frozen=True)
class MemberRefits(Refits):
    """Refits of the same members without some of the rows."""

    task: EnsembleTask
    training: Training
    problems: list[MemberProblem]

    @classmethod
    def of(
        cls, task: EnsembleTask, training: Training, problems: list[MemberProblem], seconds: float, folds: int
    ) -> MemberRefits:
        codes = task.sample.Y[task.sample.alive].cpu().numpy()
        labels = (codes[:, 0] > 0).astype(int) if codes.shape[1] == 1 else codes.argmax(1)
        labels = labels if task.n_classes else np.zeros_like(labels)
        return cls(task.sample, labels, training.clock, seconds, folds, task, training, problems)

    def refit(self, rows: np.ndarray) -> MemberEnsemble:
        training = replace(self.training, learner=self.training.learner.unheard())
        places = self.task.given.original_indices(rows)
        trained, _ = training.run([problem.without(places) for problem in self.problems])
        return MemberEnsemble([machine.members for machine in trained], self.task.pairs, self.task.n_classes)


@dataclass(eq=False, repr=False, kw_only=True)
class EnsembleEstimator(BaseKernelEstimator):
    """An ensemble of members, trained in parallel; subclasses choose the learner and the attributes they add.

    Parameters
    ----------
    c : None, float, "paper" or several floats, default None
        An older name of `regularization`; None leaves it to that one.
    n_folds : int, default 5
        Folds of the cross-validation that selects among several candidates.
    n_jobs : int or None, default None
        Members trained at once, in threads.
    scale_inputs : bool or "standard", default True
        Whether all columns are standardised; True and "standard" are the same here.
    time_budget : float or None, default None
        Seconds that the whole of `fit` may take; it limits the rows and basis vectors of each machine.

    Attributes
    ----------
    ensemble_ : MemberEnsemble
        The model itself: the members of each machine, and its pair of classes, if it has one.
    members_ : list of lists of EnsembleMember
        The members of each machine: a machine per pair of classes, or one. Each has `kernels`, `basis`,
        `basis_indices`, `dual_coef`, `bias`, `kernel_norms`, `agreement`, `objective_path` (for weights of mean one).
    regularization_ : float
        The penalty used; `c_` is the same number.
    coupling_ : float
        The coupling used; 0 for one kernel.
    subset_size_ : int or float
        The number or share of rows used for maps: 1.0 for all of them.
    cv_scores_ : ndarray of shape (sizes, pairs of c and λ)
        Score of every candidate on held-out rows: the weight of the rows right, or minus the squared error.
    leave_one_out_report_ : list of dict
        Kernels, c, λ and leave-one-out error of each trial of "auto"; empty without one.
    objective_path_ : ndarray
        The objective of the first member after each step.
    n_iter_ : int
        Largest number of steps of a member.
    stop_reason_ : str
        Why the first member ended, or what the time budget left undone, in words.
    targets_ : RealTargets or ClassTargets
        How targets are coded.
    inputs_ : InputMap
        How inputs are coded.
    """

    c: Annotated[Any, NONE | one_or_several(0.0)] = None
    n_folds: Annotated[int, integer(2)] = 5
    n_jobs: Annotated[int | None, JOBS] = None

    #: Whether the targets are classes.
    _is_classifier: ClassVar[bool] = False

    # Hooks of subclasses

    @abstractmethod
    def _candidates(self) -> ParameterGrid:
        """Kernels, c, λ, p and H, each with one or several values."""

    @abstractmethod
    def _learner(self, clock: Clock) -> MemberLearner:
        """The learner in the coordinates of a map."""

    def _penalty(self) -> Any:
        """The penalty, given under either name."""
        penalty: Any = self.regularization if self.c is None else self.c
        return penalty

    @property
    def c_(self) -> float:
        """The penalty used."""
        check_is_fitted(self)
        return float(self.regularization_)

    def _pairs(self, n_classes: int) -> list[tuple[int, int]]:
        """The pairs of classes with a machine each, if any."""
        return []

    def _diagnostics(self, trained: list[Trained], ensemble: MemberEnsemble, refits: MemberRefits) -> dict[str, Any]:
        """Fitted attributes that describe the members on the rows of `fit` and out of fold."""
        return {}

    # Fitting

    @with_progress
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit to rows `X` (array, frame, tensor, file or row source) and targets `y`."""
        check(self)
        group = current_group()
        clock, rng = Clock(self.time_budget, group=group), generator(self.random_state, group)
        task = self._task(X, y, sample_weight, group)
        candidates, report = self._candidates().resolved(task.sample, task.unit, clock, rng)
        problems = self._problems(task, candidates.kernels, rng)
        training, choices = self._training(task, candidates, problems, rng, clock)
        before = clock.elapsed()
        trained, unfinished = training.run(problems)
        refits = MemberRefits.of(task, training, problems, clock.elapsed() - before, self._calibration_folds)
        return self._keep(**self._described(refits, trained, unfinished), **choices, leave_one_out_report_=report)

    def _task(self, X: Any, y: Any, sample_weight: Any, group: Group) -> EnsembleTask:
        """Read the table and code it."""
        # every process has all rows and trains a share of the members
        readers = group if isinstance(X, RowSource) and X.shard.divided else ONE_PROCESS
        given = read(self, X, y, sample_weight, classes=self._is_classifier, group=readers)
        given = collect_small_table(given, given.shard.length(given.rows.n_rows))
        weight, unit = unit_weights(given.weight)
        targets = code_targets(given.y, weight, classes=self._is_classifier)
        given, Y = merged(replace(given, weight=weight), targets.encode(given.y))
        plan = make_plan(given.rows.n_rows, self.device, self.dtype, self.memory_limit)
        inputs = find_inputs(given, Y, plan, self.scale_inputs, may_bend=False)
        coded, w = (torch.as_tensor(part, dtype=torch.float64, device=plan.device) for part in (Y, given.weight))
        groups = None if given.layout is None else given.layout.group
        sample = Sample(inputs.rows(given.rows, plan), coded, w, plan, groups)
        n_classes = len(targets.classes) if self._is_classifier else 0
        return EnsembleTask(given, targets, inputs, sample, unit, n_classes, self._pairs(n_classes))

    def _problems(self, task: EnsembleTask, kernels: Any, rng: np.random.Generator) -> list[MemberProblem]:
        """One problem for every machine."""
        original = task.given.original_indices(np.arange(task.sample.n_rows))
        if task.pairs:
            return pair_problems(task.sample, original, task.pairs, kernels, rng)
        return [member_problem(task.sample, original, kernels, rng)]

    def _training(
        self,
        task: EnsembleTask,
        candidates: ParameterGrid,
        problems: list[MemberProblem],
        rng: np.random.Generator,
        clock: Clock,
    ) -> tuple[Training, dict[str, Any]]:
        """Select c, λ and p; return how members are trained, and the fitted attributes of the selection."""
        learner, group = self._learner(clock), clock.group
        penalties = candidates.penalties(task.unit, task.sample.total_weight)
        grid = list(product(penalties, candidates.couplings(len(problems[0].kernels))))
        sizes, seed = several(candidates.subset_size), int(rng.integers(2**31))
        chosen = group.first(lambda: choose(problems, learner, sizes, grid, self.n_folds, seed, clock))
        seeds = rng.integers(2**31, size=(len(problems), candidates.n_members))
        training = Training(learner, chosen.size, chosen.c, chosen.lam, seeds, self.n_jobs, clock, group)
        return training, {"regularization_": penalties[chosen.c], "cv_scores_": chosen.scores}

    def _described(self, refits: MemberRefits, trained: list[Trained], unfinished: StopReason | None) -> dict[str, Any]:
        """The fitted attributes."""
        task, training = refits.task, refits.training
        ensemble = MemberEnsemble([machine.members for machine in trained], task.pairs, task.n_classes)
        first = ensemble.machines[0][0]
        return {
            **task.given.columns(),
            **self._diagnostics(trained, ensemble, refits),
            "targets_": task.targets,
            "inputs_": task.inputs,
            "dtype_": str(task.sample.plan.dtype).removeprefix("torch."),
            "classes_": task.targets.classes if self._is_classifier else None,
            "ensemble_": ensemble,
            "_objectives": tuple(
                Objective(Squared(), training.c, 1.0, 1.0, problem.sample.total_weight) for problem in refits.problems
            ),
            "members_": ensemble.machines,
            "coupling_": training.lam,
            "subset_size_": 1.0 if training.size is None else training.size,
            "objective_path_": first.objective_path,
            "n_iter_": max(len(member.objective_path) for members in ensemble.machines for member in members),
            "stop_reason_": unfinished or first.stop_reason,
        }

    # Predicting

    def _new(self, X: Any) -> tuple[RowSource, Plan]:
        """New rows in kernel coordinates, and the plan of work on them."""
        source = read_new(self, X)
        plan = make_plan(source.n_rows, self.device, self.dtype_, self.memory_limit)
        return self.inputs_.rows(source, plan), plan

    def _answers(self, X: Any, answer: Any) -> np.ndarray:
        check_is_fitted(self)
        return answer(self.ensemble_.values(*self._new(X)))

    def predict(self, X: Any) -> np.ndarray:
        """Predicted targets, of the shape `y` had in `fit`; for classifiers the class of each row, by majority."""
        check_is_fitted(self)
        return self._answers(X, self.targets_.decode)
