"""What the estimators on several empirical kernels share: grids, members in parallel, pairs of classes, votes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations, product
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from joblib import effective_n_jobs  # type: ignore[import-untyped]
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted
from tqdm.auto import tqdm

from mercer.border.calibration import fit_temperature, probabilities
from mercer.border.estimator import RowEstimator, require_number, require_whole
from mercer.border.targets import ClassTargets
from mercer.data import RowSource
from mercer.empirical.ensemble import Job, Member, ballot, choose, fit_job, make_jobs, tally, values
from mercer.empirical.hokashyap import Margins
from mercer.empirical.learners import ClassLearner, ViewLearner
from mercer.empirical.problem import RowSubset, ViewProblem, make_problem
from mercer.engine import Plan, make_plan
from mercer.parts import require

#: The values of c and λ among which MEKL13 chooses.
PAPER_GRID = tuple(2.0**k for k in range(-4, 5))
MULTICLASS = ("one-vs-one", "one-vs-rest")
#: Rows from which agreement and the temperature of probabilities are taken: enough for two digits.
SAMPLE_ROWS = 5000


class ViewEstimator(RowEstimator):
    """Members on random rows, trained in parallel; the faces say what is learnt and how members are heard."""

    kernels: Any
    c: Any
    coupling: Any
    n_members: int
    subset_size: Any
    n_folds: int
    n_jobs: int | None
    verbose: bool
    #: The least coupling under which what is minimised is convex.
    _least_coupling: ClassVar[float] = 0.0

    def _learner(self) -> ViewLearner:
        raise NotImplementedError

    def _check(self) -> dict[str, Any]:
        return {}

    def _coded(self, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Targets as numbers, one row each."""
        raise NotImplementedError

    def _problems(
        self, rows: RowSource, Y: np.ndarray, weight: np.ndarray, plan: Plan, original: np.ndarray, rng: Any
    ) -> list[ViewProblem]:
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

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fit to rows `X` (array, frame, tensor, file or row source) and targets `y`."""
        self._require_parameters()
        source, y, weight = self._read(X, y, sample_weight, **self._check())
        Y = self._coded(y, weight)
        source, Y, weight, original = self._merge(source, Y, weight)
        plan = make_plan(source.n_rows, self.device, self.dtype, self.memory_limit)
        self.dtype_ = str(plan.dtype).removeprefix("torch.")
        self._scale_columns(source, weight, plan, enabled=bool(self.scale_inputs))
        rows = self._prepared(source, plan)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        problems = self._problems(rows, Y, weight, plan, original, rng)
        self._choose(problems, int(rng.integers(2**31)))
        self._train(problems, rng)
        self._calibrate(rows, Y, weight, plan)
        return self

    def _problem(
        self, rows: RowSource, Y: np.ndarray, weight: np.ndarray, plan: Plan, original: np.ndarray, rng: Any
    ) -> ViewProblem:
        return make_problem(rows, Y, weight, self.kernels, plan, original, rng)

    def _choose(self, problems: list[ViewProblem], seed: int) -> None:
        """Set `c_`, `coupling_` and `subset_size_`: by cross-validation where several were given."""
        couplings = _several(self.coupling, PAPER_GRID) if len(problems[0].kernels) > 1 else [0.0]
        grid = list(product(_several(self.c, PAPER_GRID), couplings))
        chosen = choose(problems, self._learner(), _several(self.subset_size), grid, self.n_folds, seed)
        self.subset_size_, self.c_, self.coupling_ = chosen.size, float(chosen.c), float(chosen.lam)
        self.cv_scores_ = chosen.scores

    def _train(self, problems: list[ViewProblem], rng: np.random.Generator) -> None:
        H, learner = self.n_members, self._learner()
        # members trained at once share the memory
        shared = problems[0].plan.memory_limit // min(effective_n_jobs(self.n_jobs), len(problems) * H)
        plan = replace(problems[0].plan, memory_limit=max(shared, 2**20))
        problems = [replace(problem, plan=plan) for problem in problems]
        jobs = make_jobs(problems, learner, self.subset_size_, rng.integers(2**31, size=(len(problems), H)))
        with tqdm(total=len(problems) * H, disable=not self.verbose, desc="members", unit="") as bar:

            def train(job: Job) -> list[tuple[Member, np.ndarray]]:
                trained = fit_job(job, learner, self.c_, self.coupling_)
                bar.update(len(trained))
                return trained

            # threads: torch works outside Python's lock, and rows and factors need no copies
            made = Parallel(self.n_jobs, prefer="threads")(delayed(train)(job) for job in jobs)
        places = [place for job in jobs for place in job.places]
        trained = [one for several in made for one in several]
        members, f = zip(*(trained[at] for at in np.argsort(places)), strict=True)
        self.members_: list[list[Member]] = [list(members[i : i + H]) for i in range(0, len(members), H)]
        first = members[0]
        self.objective_path_, self.stop_reason_ = first.objective_path, first.stop_reason
        self.n_iter_ = max(len(member.objective_path) for member in members)
        self._hear(problems, [f[i : i + H] for i in range(0, len(f), H)])

    def _hear(self, problems: list[ViewProblem], f: list[Sequence[np.ndarray]]) -> None:
        """What classifiers make of their members' values at the training rows, n × P each."""

    def _calibrate(self, rows: RowSource, Y: np.ndarray, weight: np.ndarray, plan: Plan) -> None:
        """What classifiers add."""

    def _to_predict(self, X: Any) -> tuple[RowSource, Plan]:
        source = self._new_rows(X)
        plan = make_plan(source.n_rows, self.device, self.dtype_, self.memory_limit)
        return self._prepared(source, plan), plan


class ViewClassifier(ClassifierMixin, ViewEstimator):
    """Classes by votes: of members, and of pairs of classes where there are more than two."""

    multiclass: str
    learning_rate: float
    initial_margin: float
    tol: float
    max_iter: int
    callbacks: Any

    def _require_parameters(self) -> None:
        super()._require_parameters()
        require(self.multiclass in MULTICLASS, "multiclass", f"one of {list(MULTICLASS)}", self.multiclass)
        wanted = "a number above 0 and at most 1"  # beyond 1 the objective may rise
        require_number("learning_rate", self.learning_rate, wanted, np.nextafter(0, 1), np.nextafter(1, 2))
        require_number("initial_margin", self.initial_margin, "a number of at least 0", 0.0)
        require_number("tol", self.tol, "a number of at least 0", 0.0)
        require_whole("max_iter", self.max_iter)
        several = self.callbacks is None or isinstance(self.callbacks, Iterable)
        good = several and all(callable(callback) for callback in self.callbacks or ())
        require(good, "callbacks", "None or several functions of a sweep", self.callbacks)

    def _learner(self) -> ViewLearner:
        margins = Margins(self.initial_margin, self.learning_rate, self.tol, self.max_iter)
        return ClassLearner(margins, tuple(self.callbacks or ()))

    def _coded(self, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
        check_classification_targets(y)
        self.classes_ = np.unique(y[weight > 0])
        if len(self.classes_) < 2:
            raise ValueError(f"y must hold at least 2 classes, got 1 class: {self.classes_[0]!r}")
        # a class all of whose rows weigh nothing is none of ours; those rows take no part
        return np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)[:, None]

    def _problems(
        self, rows: RowSource, Y: np.ndarray, weight: np.ndarray, plan: Plan, original: np.ndarray, rng: Any
    ) -> list[ViewProblem]:
        code, n_classes = Y[:, 0], len(self.classes_)
        self._pairs = list(combinations(range(n_classes), 2)) if self.multiclass == "one-vs-one" else []
        if n_classes == 2 or not self._pairs:
            self._pairs = []
            signs = ClassTargets(np.arange(n_classes)).encode(code)
            return [self._problem(rows, signs, weight, plan, original, rng)]
        problems = []
        for a, b in self._pairs:
            index = np.flatnonzero((code == a) | (code == b))
            signs = np.where(code[index] == b, 1.0, -1.0)[:, None]
            part = RowSubset(rows, index)
            problems.append(self._problem(part, signs, weight[index], plan, original[index], rng))
        return problems

    def _hear(self, problems: list[ViewProblem], f: list[Sequence[np.ndarray]]) -> None:
        self.agreement_ = np.array([_agreement(*one) for one in zip(problems, f, strict=True)])

    def _calibrate(self, rows: RowSource, Y: np.ndarray, weight: np.ndarray, plan: Plan) -> None:
        index = _sample(weight)
        scores = self._one_column(self._scores(RowSubset(rows, index), plan))
        signs = ClassTargets(np.arange(len(self.classes_))).encode(Y[index, 0])
        self.temperature_ = fit_temperature(scores, signs, weight[index])

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
        return ClassTargets(self.classes_).decode(self._one_column(self._scores(*self._to_predict(X))))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities in the order of `classes_`, from votes and margins, calibrated on training rows."""
        check_is_fitted(self)
        return probabilities(self._one_column(self._scores(*self._to_predict(X))), self.temperature_)


def _agreement(problem: ViewProblem, f: Sequence[np.ndarray]) -> list[float]:
    """Weighted share of a problem's rows at which each member decides as all of them together."""
    n_classes = max(problem.targets.shape[1], 2)
    weight = problem.weight.double().cpu().numpy()
    together = tally(*ballot(f, n_classes)).argmax(1)
    return [float(weight @ (ballot([one], n_classes)[0].argmax(1) == together) / weight.sum()) for one in f]


def _sample(weight: np.ndarray) -> np.ndarray:
    """Evenly spread rows of positive weight, about `SAMPLE_ROWS` at most."""
    alive = np.flatnonzero(weight > 0)
    return alive[:: max(len(alive) // SAMPLE_ROWS, 1)]


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
