"""What sparse Gaussian processes share at the border: where they start, how they climb, what they keep."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from mercer.border.estimator import RowEstimator, require_whole
from mercer.data import RowSource
from mercer.engine import make_plan
from mercer.engine.sample import Sample
from mercer.evidence.approximations import Approximation
from mercer.evidence.clock import Clock
from mercer.evidence.coordinates import LENGTH_SCALE_PRIOR, Evidence, Point
from mercer.evidence.exact import log_evidence
from mercer.evidence.posterior import Posterior
from mercer.forward.criteria import Criterion
from mercer.gp.inducing_rows import choose_rows, find_rows, relevance_of
from mercer.gp.search import Place, Search
from mercer.kernels import Kernel, as_kernel
from mercer.parts import require

#: Rows that tell the family of a kernel: its parameters are looked for afterwards, on all rows.
FAMILY_ROWS = 400
#: Evaluations of the exact evidence that tuning takes, and the share of the time left that it may.
TUNING_EVALUATIONS, TUNING_SHARE = 120, 0.2
#: Rows on which evaluations are timed, and rows outside of subsets that judge them.
TIMED_ROWS, JUDGED_ROWS = 200, 2000


@dataclass(frozen=True)
class FittedGP:
    """One Gaussian process after fitting."""

    kernel: Kernel
    noise: float
    posterior: Posterior
    log_evidence: float
    index: np.ndarray  # of the rows that the inducing inputs are or started from
    why: str
    n_iter: int = 1
    predictive_noise: float = 0.0  # of new targets


class SparseGP(RowEstimator):
    """How sparse Gaussian processes are started, climbed and asked; the faces add what their targets need."""

    def __init__(
        self,
        n_inducing: int = 500,
        *,
        approximation: Any = "spgp",
        inducing: Any = "k-means++",
        optimize_inducing: bool | str = "auto",
        optimize_kernel: bool | str = "auto",
        kernel: Any = "auto",
        ard: bool | str = "auto",
        tuning_rows: int = 1000,
        max_iter: int = 100,
        tol: float = 1e-6,
        length_scale_prior: float | None = LENGTH_SCALE_PRIOR,
        n_restarts: int = 0,
        time_budget: float | None = None,
        scale_inputs: bool | str = True,
        device: Any = "auto",
        dtype: Any = "auto",
        memory_limit: Any = None,
        random_state: Any = None,
        verbose: bool = False,
        callbacks: Any = None,
    ) -> None:
        self.n_inducing = n_inducing
        self.approximation = approximation
        self.inducing = inducing
        self.optimize_inducing = optimize_inducing
        self.optimize_kernel = optimize_kernel
        self.kernel = kernel
        self.ard = ard
        self.tuning_rows = tuning_rows
        self.max_iter = max_iter
        self.tol = tol
        self.length_scale_prior = length_scale_prior
        self.n_restarts = n_restarts
        self.time_budget = time_budget
        self.scale_inputs = scale_inputs
        self.device = device
        self.dtype = dtype
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    # --- before any data --------------------------------------------------------------------------------

    def _require_parameters(self) -> Approximation:
        require_whole("n_inducing", self.n_inducing)
        require_whole("tuning_rows", self.tuning_rows, 2)
        require_whole("max_iter", self.max_iter, 0)
        require_whole("n_restarts", self.n_restarts, 0)
        self._require_scaling()
        good = isinstance(self.tol, Real) and 0 <= self.tol < 1
        require(good, "tol", "a number of at least 0 and below 1", self.tol)
        prior = self.length_scale_prior
        good = prior is None or (isinstance(prior, Real) and 1e-3 <= prior <= 1e3)
        require(good, "length_scale_prior", "None or a number from 0.001 to 1000", prior)
        for name in ("optimize_inducing", "optimize_kernel", "ard"):
            value = getattr(self, name)
            require(value in (True, False, "auto"), name, "True, False or 'auto'", value)
        budget = self.time_budget
        good = budget is None or (isinstance(budget, Real) and 0 < budget <= 1e18)
        require(good, "time_budget", "None or a positive number of seconds", budget)
        several = self.callbacks is None or isinstance(self.callbacks, Iterable)
        good = several and all(callable(callback) for callback in self.callbacks or ())
        require(good, "callbacks", "None or several functions of a point of the search", self.callbacks)
        if isinstance(self.inducing, str):
            names = ["random", "k-means++", *sorted(set(Criterion.choices()) - {"random"})]
            require(self.inducing in names, "inducing", f"one of {names}, a Criterion or an array", self.inducing)
        approximation = Approximation.resolve(self.approximation, "approximation")
        if approximation.short_name == "full":
            named = isinstance(self.inducing, str | Criterion)
            require(named, "inducing", "a name where approximation is 'full', which takes all rows", "an array")
        if approximation.dense:
            require(self.optimize_inducing is not True, "optimize_inducing", "False where inputs are rows", True)
        return approximation

    def _moves(self, approximation: Approximation) -> bool:
        """Whether the inducing inputs leave the rows: by default where the evidence asks for it."""
        if isinstance(self.optimize_inducing, str):
            return not approximation.dense and (approximation.alpha > 0 or approximation.bound)
        return bool(self.optimize_inducing)

    def _tunes(self) -> bool:
        if isinstance(self.optimize_kernel, str):
            return isinstance(self.kernel, str)
        return bool(self.optimize_kernel)

    # --- rows, start and search -------------------------------------------------------------------------

    def _data(
        self, source: RowSource, Y: np.ndarray, weight: np.ndarray, approximation: Approximation, relative: bool
    ) -> Sample:
        """Rows as the kernel sees them; `relative` weights have mean one, so that their scale means nothing."""
        if relative:
            weight = weight / weight[weight > 0].mean()
        dtype = "float64" if approximation.dense and self.dtype == "auto" else self.dtype
        plan = make_plan(source.n_rows, self.device, dtype, self.memory_limit)
        self._scale_columns(source, weight, plan, bool(self.scale_inputs), self._bend(source, Y, weight, plan))
        self.dtype_ = str(plan.dtype).removeprefix("torch.")
        on_device: dict[str, Any] = {"device": plan.device, "dtype": torch.float64}
        return Sample(
            self._prepared(source, plan), torch.as_tensor(Y, **on_device), torch.as_tensor(weight, **on_device), plan
        )

    def _rows_for_tuning(self, data: Sample, most: int, clock: Clock, rng: np.random.Generator) -> np.ndarray:
        """At most `most` random rows of positive weight; fewer where their tuning would take too much of the time."""
        if np.isfinite(clock.end) and len(data.alive) > TIMED_ROWS:
            some = data.part(data.spaced(TIMED_ROWS))
            X, Y = some.rows.take(np.arange(TIMED_ROWS)).double(), some.Y
            evaluate = lambda: log_evidence(as_kernel("gaussian"), 0.1, X, Y)  # noqa: E731
            evaluate()  # libraries load on first use
            began = time.perf_counter()
            evaluate()
            each = TUNING_SHARE * clock.left() / TUNING_EVALUATIONS
            growth = (each / (time.perf_counter() - began)) ** (1 / 3)  # the cost grows as the cube of the rows
            most = min(most, max(int(TIMED_ROWS * growth), TIMED_ROWS // 2))
        return data.draw(most, rng)

    def _place(self, data: Sample, rng: np.random.Generator) -> Place:
        """What draws the rows and inducing inputs (in scaled units) at which searches start."""
        if not isinstance(self.inducing, str | Criterion):
            Z = self._given(data).to(data.plan.device, data.plan.dtype)
            return lambda kernel, noise, m: (np.arange(0), Z)

        def drawn(kernel: Kernel, noise: float, m: int) -> tuple[np.ndarray, Tensor]:
            index = choose_rows(self.inducing, data, kernel, noise, m, rng)
            return index, data.rows.take(index).to(data.plan.device, data.plan.dtype)

        return drawn

    def _given(self, data: Sample) -> Tensor:
        given = np.atleast_2d(np.asarray(self.inducing, dtype=np.float64))
        require(given.shape[1] == data.rows.n_columns, "inducing", f"of {data.rows.n_columns} columns", given.shape)
        return self._standardised(given)

    def _subset(self, data: Sample, approximation: Approximation, rng: np.random.Generator) -> np.ndarray:
        """The rows that a dense model sees: all, those given, or those that a plain kernel chooses."""
        if approximation.short_name == "full":
            return data.alive
        if not isinstance(self.inducing, str | Criterion):
            return find_rows(self._given(data), data)
        plain = as_kernel("gaussian" if isinstance(self.kernel, str) else self.kernel)
        return choose_rows(self.inducing, data, plain, 0.1, self.n_inducing, rng)

    def _best_subset(
        self,
        fitted: Callable[[np.ndarray], FittedGP],
        density: Callable[[FittedGP, Sample], float],
        data: Sample,
        approximation: Approximation,
        rng: np.random.Generator,
    ) -> FittedGP:
        """The dense model of one subset, or of several the one under which other rows are most likely.

        Evidences of different rows say nothing about which rows serve best.
        """
        first = self._subset(data, approximation, rng)
        data.plan.require_square(len(first))
        rest = np.setdiff1d(data.alive, first)
        redrawn = approximation.short_name == "sd" and isinstance(self.inducing, str | Criterion) and len(rest) > 0
        if not (redrawn and self.n_restarts):
            return fitted(first)
        subsets = [first, *(self._subset(data, approximation, rng) for _ in range(self.n_restarts))]
        others = data.part(rng.choice(rest, min(len(rest), JUDGED_ROWS), replace=False))
        return max(map(fitted, subsets), key=lambda model: density(model, others))

    def _search(
        self,
        evidence: Callable[[Sample], Evidence],
        start: Point,
        place: Place,
        data: Sample,
        free: set[str],
        rng: np.random.Generator,
        clock: Clock,
        n_restarts: int | None = None,
    ) -> tuple[np.ndarray, Point]:
        """`Search.run` with a bar and the user's callbacks."""
        redraws = isinstance(self.inducing, str | Criterion)
        with self._watched() as seen:
            return Search(
                evidence, place, data, free, self.n_inducing, self.max_iter, self.tol, self.length_scale_prior,
                rng, clock, redraws, self.n_restarts if n_restarts is None else n_restarts, seen,
            ).run(start)  # fmt: skip

    @contextmanager
    def _watched(self) -> Iterator[Callable[[Point], None]]:
        """What is called after each step of a search: the bar and the user's callbacks."""
        with tqdm(disable=not self.verbose, desc="evidence", unit=" steps") as bar:

            def seen(point: Point) -> None:
                bar.update()
                for callback in self.callbacks or ():
                    callback(point)

            yield seen

    # --- new rows ---------------------------------------------------------------------------------------

    def _moments(self, X: Any, model: FittedGP, spread: bool = True) -> tuple[np.ndarray, np.ndarray]:
        source = self._new_rows(X)
        plan = make_plan(source.n_rows, self.device, self.dtype_, self.memory_limit)
        mean, cov = model.posterior.moments(model.kernel, self._prepared(source, plan), plan, spread)
        return mean.cpu().numpy(), cov.cpu().numpy()

    def _store(self, models: list[FittedGP]) -> None:
        """What all faces show: inducing inputs in the inputs' own units, weights, kernel, evidence, reason."""
        self._models = models
        one = len(models) == 1
        bases = [self._in_own_units(m.posterior.basis) for m in models]
        relevances = [relevance_of(m.kernel, self.n_features_in_) for m in models]
        self.basis_ = bases[0] if one else bases
        self.dual_coef_ = models[0].posterior.weights.numpy() if one else [m.posterior.weights.numpy() for m in models]
        self.kernel_ = models[0].kernel if one else [m.kernel for m in models]
        self.relevance_ = relevances[0] if one else np.stack(relevances)
        self.log_marginal_likelihood_ = float(sum(m.log_evidence for m in models))
        self.n_iter_ = max(max(m.n_iter for m in models), 1)
        self.stop_reason_ = models[0].why if one else "; ".join(dict.fromkeys(m.why for m in models))


def on_host(posterior: Posterior) -> Posterior:
    explained, scatter = (None if t is None else t.cpu() for t in (posterior.explained, posterior.scatter))
    return Posterior(posterior.basis.cpu(), posterior.weights.cpu(), explained, scatter)
