"""What the estimators on several empirical kernels share: grids, members in parallel, pairs of classes, votes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, product
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from mercer.border.budget import Budget
from mercer.border.calibration import fit_temperature, probabilities
from mercer.border.clock import Clock
from mercer.border.estimator import RowEstimator, require_number, require_whole
from mercer.border.targets import ClassTargets
from mercer.border.weights import penalty_in_units, unit_weights, warn_of_small_weights
from mercer.data import RowSource, spread_rows
from mercer.empirical.choice import choose
from mercer.empirical.coupled import LARGEST_COUPLING
from mercer.empirical.ensemble import Member, ballot, tally, values
from mercer.empirical.hokashyap import Margins
from mercer.empirical.learners import ClassLearner, Learner
from mercer.empirical.problem import MemberProblem, NearRows, Table
from mercer.empirical.training import Trained, Training
from mercer.engine import Plan, make_plan
from mercer.parts import require

#: The values of c and λ among which MEKL13 chooses.
PAPER_GRID = tuple(2.0**k for k in range(-4, 5))
#: What scikit-learn calls them is understood too.
MULTICLASS = {
    "auto": "auto",
    "one-vs-one": "one-vs-one",
    "one-vs-rest": "one-vs-rest",
    "ovo": "one-vs-one",
    "ovr": "one-vs-rest",
}
#: Classes up to which "auto" trains a machine for every pair of them, and up to which that can be asked for.
FEW_CLASSES, MOST_CLASSES = 45, 64
#: Rows from which agreement and the temperature of probabilities are taken: enough for two digits.
SAMPLE_ROWS = 5000


class EnsembleEstimator(RowEstimator):
    """Members on random rows, trained in parallel; the faces say what is learnt and how members are heard."""

    kernels: Any
    c: Any
    coupling: Any
    n_members: int
    subset_size: Any
    n_folds: int
    n_jobs: int | None
    time_budget: float | None
    verbose: bool
    #: The least coupling under which what is minimised is convex.
    _least_coupling: ClassVar[float] = 0.0

    def _learner(self, clock: Clock) -> Learner:
        raise NotImplementedError

    def _check(self) -> dict[str, Any]:
        return {}

    def _coded(self, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Targets as numbers, one row each."""
        raise NotImplementedError

    def _problems(self, table: Table, rng: np.random.Generator) -> list[MemberProblem]:
        """The problems each of which gets `n_members` members."""
        raise NotImplementedError

    def _require_parameters(self) -> None:
        """Refuse parameters out of range, before any data is looked at."""
        require_whole("n_members", self.n_members)
        require_whole("n_folds", self.n_folds, 2)
        for name, least in (("c", 0.0), ("coupling", self._least_coupling)):
            for value in _several(getattr(self, name), PAPER_GRID):
                require_number(name, value, f"'paper', one number of at least {least:g}, or several", least)
        for size in _several(self.subset_size):
            require_size(size)
        jobs = self.n_jobs
        whole = isinstance(jobs, Integral) and not isinstance(jobs, bool) and 0 < abs(int(jobs)) < 2**16
        require(jobs is None or whole, "n_jobs", "None or a whole number other than 0 (below 65536)", jobs)
        if self.time_budget is not None:
            wanted = "None or a number of seconds above 0"
            require_number("time_budget", self.time_budget, wanted, np.nextafter(0, 1))

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fit to rows `X` (array, frame, tensor, file or row source) and targets `y`."""
        clock = Clock(Budget(self.time_budget))
        self._require_parameters()
        source, y, weight = self._read(X, y, sample_weight, **self._check())
        weight, unit = unit_weights(weight)
        total = float(weight.sum())
        source, Y, weight, original = self._merge(source, self._coded(y, weight), weight)
        plan = make_plan(source.n_rows, self.device, self.dtype, self.memory_limit)
        self.dtype_ = str(plan.dtype).removeprefix("torch.")
        self._scale_columns(source, weight, plan, enabled=bool(self.scale_inputs))
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        table = Table(self._prepared(source, plan), Y, weight, original, plan)
        problems = self._problems(table, rng)
        c = self._choose(problems, int(rng.integers(2**31)), unit, total, clock)
        seeds = rng.integers(2**31, size=(len(problems), self.n_members))
        learner = self._learner(clock)
        training = Training(
            learner, self.subset_size_, c, self.coupling_, seeds, self.n_jobs, bool(self.verbose), clock
        )
        self._store(*training.run(problems))
        self._calibrate(table)
        return self

    def _choose(self, problems: list[MemberProblem], seed: int, unit: float, total: float, clock: Clock) -> float:
        """Set `c_`, `coupling_` and `subset_size_`, by cross-validation where several were given."""
        couplings = _several(self.coupling, PAPER_GRID) if len(problems[0].kernels) > 1 else [0.0]
        couplings = [min(float(lam), LARGEST_COUPLING) for lam in couplings]
        if isinstance(self.c, str):  # the paper's, whatever unit weights are written in
            penalties = {c: c * unit for c in PAPER_GRID}
        else:
            penalties = {penalty_in_units(float(c), unit): float(c) for c in _several(self.c)}
            warn_of_small_weights(min(penalties.values()), unit, total, "c")
        grid, sizes = list(product(penalties, couplings)), _several(self.subset_size)
        chosen = choose(problems, self._learner(clock), sizes, grid, self.n_folds, seed, clock)
        self.subset_size_, self.c_, self.coupling_ = chosen.size, penalties[chosen.c], chosen.lam
        self.cv_scores_ = chosen.scores
        return chosen.c

    def _store(self, trained: list[Trained], unfinished: str) -> None:
        self.members_: list[list[Member]] = [one.members for one in trained]
        first = self.members_[0][0]
        self.objective_path_ = first.objective_path
        self.stop_reason_ = unfinished or first.stop_reason
        self.n_iter_ = max(len(member.objective_path) for members in self.members_ for member in members)
        self._hear(trained)

    def _hear(self, trained: list[Trained]) -> None:
        """What classifiers make of their members' values at the training rows."""

    def _calibrate(self, table: Table) -> None:
        """What classifiers add."""

    def _to_predict(self, X: Any) -> tuple[RowSource, Plan]:
        source = self._new_rows(X)
        plan = make_plan(source.n_rows, self.device, self.dtype_, self.memory_limit)
        return NearRows(self._prepared(source, plan)), plan


class EnsembleClassifier(ClassifierMixin, EnsembleEstimator):
    """Classes by votes: of members, and of pairs of classes where there are more than two."""

    multiclass: str
    learning_rate: float
    initial_margin: float
    tol: float
    max_iter: int
    callbacks: Any

    def _require_parameters(self) -> None:
        super()._require_parameters()
        known = isinstance(self.multiclass, str) and self.multiclass in MULTICLASS
        require(known, "multiclass", f"one of {list(MULTICLASS)}", self.multiclass)
        wanted = "a number above 0 and at most 1"  # beyond 1 the objective may rise
        require_number("learning_rate", self.learning_rate, wanted, np.nextafter(0, 1), np.nextafter(1, 2))
        require_number("initial_margin", self.initial_margin, "a number of at least 0", 0.0)
        require_number("tol", self.tol, "a number of at least 0", 0.0)
        require_whole("max_iter", self.max_iter)
        several = self.callbacks is None or isinstance(self.callbacks, Iterable)
        good = several and all(callable(callback) for callback in self.callbacks or ())
        require(good, "callbacks", "None or several functions of a sweep", self.callbacks)

    def _learner(self, clock: Clock) -> Learner:
        margins = Margins(self.initial_margin, self.learning_rate, self.tol, self.max_iter)
        return ClassLearner(margins, tuple(self.callbacks or ()), clock)

    def _coded(self, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
        self._coding = ClassTargets.of(y, weight)
        self.classes_ = self._coding.classes
        self._pairs = _pairs(len(self.classes_), MULTICLASS[self.multiclass])
        return self._coding.numbers(y)[:, None]

    def _problems(self, table: Table, rng: np.random.Generator) -> list[MemberProblem]:
        number = table.targets[:, 0]
        if not self._pairs:
            return [table.problem(self._coding.encode(self.classes_[number]), self.kernels, rng)]
        order = np.argsort(number, kind="stable")
        own = np.split(order, np.searchsorted(number[order], np.arange(1, len(self.classes_))))
        problems = []
        for a, b in self._pairs:
            part = table.part(np.sort(np.concatenate([own[a], own[b]])))
            signs = np.where(part.targets == b, 1.0, -1.0)
            problems.append(part.problem(signs, self.kernels, rng))
        return problems

    def _hear(self, trained: list[Trained]) -> None:
        shares = [_agreement(one.problem, one.values) for one in trained]
        H = max(map(len, shares))  # fewer where time was up
        self.agreement_ = np.array([own + [np.nan] * (H - len(own)) for own in shares])

    def _calibrate(self, table: Table) -> None:
        some = table.part(spread_rows(table.weight, SAMPLE_ROWS))
        scores = self._one_column(self._scores(some.rows, some.plan))
        self.temperature_ = fit_temperature(scores, self._coding.encode(self.classes_[some.targets[:, 0]]), some.weight)

    def _scores(self, rows: RowSource, plan: Plan) -> np.ndarray:
        """Votes, and margins between equal votes, one column per class."""
        n_classes = len(self.classes_)
        if not self._pairs:
            return tally(*ballot(values(self.members_[0], rows, plan), n_classes))
        votes, margins = np.zeros((2, rows.n_rows, n_classes))
        for pair, members in zip(self._pairs, self.members_, strict=True):
            both, margin = ballot(values(members, rows, plan), 2)
            winner = tally(both, margin).argmax(1)
            votes[np.arange(rows.n_rows), np.array(pair)[winner]] += 1
            margins[:, list(pair)] += margin
        return tally(votes, margins)

    def _one_column(self, scores: np.ndarray) -> np.ndarray:
        return scores[:, 1:] - scores[:, :1] if len(self.classes_) == 2 else scores

    def decision_function(self, X: Any) -> np.ndarray:
        """Votes, and margins between equal votes: one column per class, or one number where there are two."""
        check_is_fitted(self)
        scores = self._one_column(self._scores(*self._to_predict(X)))
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> np.ndarray:
        """The class of each row, by majority (MEKL13 eq. 10)."""
        check_is_fitted(self)
        return self._coding.decode(self._one_column(self._scores(*self._to_predict(X))))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities in the order of `classes_`, from votes and margins, calibrated on training rows."""
        check_is_fitted(self)
        return probabilities(self._one_column(self._scores(*self._to_predict(X))), self.temperature_)


def _agreement(problem: MemberProblem, f: Sequence[np.ndarray]) -> list[float]:
    """Weighted share of a problem's rows at which each member decides as all of them together."""
    n_classes = max(problem.targets.shape[1], 2)
    weight = problem.weight.double().cpu().numpy()
    together = tally(*ballot(f, n_classes)).argmax(1)
    return [float(weight @ (ballot([one], n_classes)[0].argmax(1) == together) / weight.sum()) for one in f]


def _pairs(n_classes: int, multiclass: str) -> list[tuple[int, int]]:
    """The pairs of classes that have machines of their own; none where classes are told from all others together."""
    if multiclass == "one-vs-one" and n_classes > MOST_CLASSES:
        raise ValueError(
            f"multiclass must be 'auto' or 'one-vs-rest' for more than {MOST_CLASSES} classes, got 'one-vs-one' for "
            f"{n_classes}: {n_classes * (n_classes - 1) // 2} machines"
        )
    by_pairs = multiclass == "one-vs-one" or (multiclass == "auto" and n_classes <= FEW_CLASSES)
    return list(combinations(range(n_classes), 2)) if by_pairs and n_classes > 2 else []


def _several(choice: Any, paper: Sequence[float] = ()) -> list[Any]:
    """The candidates that a parameter names: one value, several, or the paper's."""
    if isinstance(choice, str) and choice == "paper" and paper:
        return list(paper)
    if isinstance(choice, Iterable) and not isinstance(choice, str | torch.Tensor):
        values = list(choice)
        require(len(values) > 0, "a list of candidates", "of at least one value", choice)
        return values
    return [choice]


def require_size(size: Any) -> None:
    """Refuse what is no number of rows: None, a whole number or a share."""
    whole = isinstance(size, Integral) and not isinstance(size, bool) and int(size) >= 1
    share = isinstance(size, Real) and not isinstance(size, Integral) and 0.0 < float(size) <= 1.0
    wanted = "None, a whole number of at least 1, a share above 0.0 and at most 1.0, or several of these"
    require(size is None or whole or share, "subset_size", wanted, size)
