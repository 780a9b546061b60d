"""What the estimators on several empirical kernels share at the border: one fit, its choices, members, votes."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from itertools import product
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from mercer.base.estimator import BaseKernelEstimator
from mercer.base.out_of_fold import Refits
from mercer.base.parameters import NONE, check, integer
from mercer.clock import Clock
from mercer.data import RowSource, current_group
from mercer.data.group import ALONE, Group
from mercer.empirical.choice import Ranges, choose, several
from mercer.empirical.ensemble import MemberEnsemble
from mercer.empirical.learners import MemberLearner
from mercer.empirical.parameters import JOBS, one_or_several
from mercer.empirical.problem import MemberProblem, member_problem, pair_problems
from mercer.empirical.training import Trained, Training
from mercer.engine import Plan, make_plan
from mercer.engine.sample import Sample
from mercer.preprocessing.collect import collect_small_table
from mercer.preprocessing.duplicates import merged
from mercer.preprocessing.inputs import InputMap, find_inputs
from mercer.preprocessing.read import TableData, read, read_new
from mercer.preprocessing.targets import code_targets
from mercer.preprocessing.weights import unit_weights
from mercer.progress import with_progress
from mercer.stop_reason import StopReason


@dataclass(frozen=True)
class EnsembleTask:
    """The table given, how it is coded, and the pairs of classes that have machines of their own, if any.

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
    """The same members, trained again without some rows."""

    task: EnsembleTask
    training: Training
    problems: list[MemberProblem]

    @classmethod
    def of(cls, task: EnsembleTask, training: Training, problems: list[MemberProblem], seconds: float) -> MemberRefits:
        codes = task.sample.Y[task.sample.alive].cpu().numpy()
        labels = (codes[:, 0] > 0).astype(int) if codes.shape[1] == 1 else codes.argmax(1)
        labels = labels if task.n_classes else np.zeros_like(labels)
        return cls(task.sample, labels, training.clock, seconds, task, training, problems)

    def refit(self, rows: np.ndarray) -> MemberEnsemble:
        training = replace(self.training, learner=self.training.learner.unheard())
        places = self.task.given.places(rows)
        trained, _ = training.run([_without(problem, places) for problem in self.problems])
        return MemberEnsemble([one.members for one in trained], self.task.pairs, self.task.n_classes)


def _without(problem: MemberProblem, rows: np.ndarray) -> MemberProblem:
    """A problem in which these rows of the table weigh nothing."""
    left = torch.as_tensor(np.isin(problem.original, rows), device=problem.sample.weight.device)
    return replace(problem, sample=replace(problem.sample, weight=torch.where(left, 0.0, problem.sample.weight)))


@dataclass(eq=False, repr=False, kw_only=True)
class EnsembleEstimator(BaseKernelEstimator):
    """Members on random rows, trained in parallel; the faces say what is learnt and how members are heard.

    Parameters
    ----------
    c : None, float, "paper" or several floats, default None
        An older name of `regularization`; None leaves it to that one.
    n_folds : int, default 5
        Folds of the cross-validation that chooses between several candidates.
    n_jobs : int or None, default None
        Members trained at once, in threads.
    scale_inputs : bool or "standard", default True
        Whether all columns are standardised; True and "standard" are the same here.
    time_budget : float or None, default None
        Seconds that `fit` may take, everything counted: machines then see as many rows and basis vectors as there is
        time for.

    Attributes
    ----------
    ensemble_ : MemberEnsemble
        The model itself: the members of each machine, and the pair of classes that it tells apart, if it is for two.
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
        What held-out rows said of every candidate: the weight of the rows right, or minus the squared error.
    objective_path_ : ndarray
        The objective of the first member after each step.
    n_iter_ : int
        Steps of the member that took most.
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
    _classes: ClassVar[bool] = False

    # What a face fills in

    @abstractmethod
    def _candidates(self) -> Ranges:
        """What is fixed and what is left open: kernels, c, λ, p, H."""

    @abstractmethod
    def _learner(self, clock: Clock) -> MemberLearner:
        """What is learnt in the coordinates of a map."""

    def _penalty(self) -> Any:
        """What is said of the penalty, under either name."""
        penalty: Any = self.regularization if self.c is None else self.c
        return penalty

    @property
    def c_(self) -> float:
        """The penalty used."""
        check_is_fitted(self)
        return float(self.regularization_)

    def _pairs(self, n_classes: int) -> list[tuple[int, int]]:
        """The pairs of classes that have machines of their own, if any."""
        return []

    def _judged(self, trained: list[Trained], ensemble: MemberEnsemble, refits: MemberRefits) -> dict[str, Any]:
        """Fitted attributes that describe the members on the rows of `fit` and out of fold."""
        return {}

    # Fitting

    @with_progress
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit to rows `X` (array, frame, tensor, file or row source) and targets `y`."""
        check(self)
        group = current_group()
        clock, rng = Clock(self.time_budget, group=group), self._generator(group)
        task = self._task(X, y, sample_weight, group)
        problems = self._problems(task, rng)
        training, choices = self._training(task, problems, rng, clock)
        before = clock.elapsed()
        trained, unfinished = training.run(problems)
        refits = MemberRefits.of(task, training, problems, clock.elapsed() - before)
        return self._keep(**self._described(refits, trained, unfinished), **choices)

    def _task(self, X: Any, y: Any, sample_weight: Any, group: Group) -> EnsembleTask:
        """Read the table and code it."""
        own = group if isinstance(X, RowSource) and X.shard.divided else ALONE
        given = read(
            self, X, y, sample_weight, numeric=not self._classes, group=own
        )  # every process has all rows and some members
        given = collect_small_table(given, given.shard.length(given.rows.n_rows))
        weight, unit = unit_weights(given.weight)
        targets = code_targets(given.y, weight, classes=self._classes)
        given, Y = merged(replace(given, weight=weight), targets.encode(given.y))
        plan = make_plan(given.rows.n_rows, self.device, self.dtype, self.memory_limit)
        inputs = find_inputs(given, Y, plan, self.scale_inputs, may_bend=False)
        coded, w = (torch.as_tensor(part, dtype=torch.float64, device=plan.device) for part in (Y, given.weight))
        sample = Sample(inputs.rows(given.rows, plan), coded, w, plan)
        n_classes = len(targets.classes) if self._classes else 0
        return EnsembleTask(given, targets, inputs, sample, unit, n_classes, self._pairs(n_classes))

    def _problems(self, task: EnsembleTask, rng: np.random.Generator) -> list[MemberProblem]:
        """One for every machine."""
        original = task.given.places(np.arange(task.sample.n_rows))
        kernels = self._candidates().kernels
        if task.pairs:
            return pair_problems(task.sample, original, task.pairs, kernels, rng)
        return [member_problem(task.sample, original, kernels, rng)]

    def _training(
        self, task: EnsembleTask, problems: list[MemberProblem], rng: np.random.Generator, clock: Clock
    ) -> tuple[Training, dict[str, Any]]:
        """How members are trained after the choice among candidates, and what is kept of it."""
        wanted, learner, group = self._candidates(), self._learner(clock), clock.group
        penalties = wanted.penalties(task.unit, task.sample.total_weight)
        grid = list(product(penalties, wanted.couplings(len(problems[0].kernels))))
        seed = int(rng.integers(2**31))
        chosen = group.first(
            lambda: choose(problems, learner, several(wanted.subset_size), grid, self.n_folds, seed, clock)
        )
        seeds = rng.integers(2**31, size=(len(problems), wanted.n_members))
        training = Training(learner, chosen.size, chosen.c, chosen.lam, seeds, self.n_jobs, clock, group)
        return training, {"regularization_": penalties[chosen.c], "cv_scores_": chosen.scores}

    def _described(self, refits: MemberRefits, trained: list[Trained], unfinished: StopReason | None) -> dict[str, Any]:
        """All that a fit leaves behind."""
        task, training = refits.task, refits.training
        ensemble = MemberEnsemble([one.members for one in trained], task.pairs, task.n_classes)
        first = ensemble.machines[0][0]
        return {
            **task.given.columns(),
            **self._judged(trained, ensemble, refits),
            "targets_": task.targets,
            "inputs_": task.inputs,
            "dtype_": str(task.sample.plan.dtype).removeprefix("torch."),
            "classes_": task.targets.classes if self._classes else None,
            "ensemble_": ensemble,
            "members_": ensemble.machines,
            "coupling_": training.lam,
            "subset_size_": 1.0 if training.size is None else training.size,
            "objective_path_": first.objective_path,
            "n_iter_": max(len(member.objective_path) for members in ensemble.machines for member in members),
            "stop_reason_": unfinished or first.stop_reason,
        }

    # Predicting

    def _new(self, X: Any) -> tuple[RowSource, Plan]:
        """New rows as the kernels see them, and how to work through them."""
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
