"""Base of the sparse Gaussian processes: parameters, rows in kernel coordinates, search and prediction."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import torch

from mercer.base.estimator import BaseKernelEstimator
from mercer.base.parameters import AUTO, NONE, Rule, check, integer, literal, number, part_of
from mercer.clock import Clock
from mercer.data import current_group
from mercer.data.shard import ONE_PROCESS
from mercer.engine import make_plan
from mercer.engine.plan import Sample, generator
from mercer.evidence.approximations import Approximation
from mercer.evidence.coordinates import LENGTH_SCALE_PRIOR, Evidence, Point
from mercer.evidence.posterior import Posterior
from mercer.evidence.priors import ParameterPrior, resolve_priors
from mercer.evidence.starts import named_family, plain_start, spread_rows
from mercer.forward.criteria import Criterion
from mercer.forward.uncertainty import BasisDistances
from mercer.gp.model import FittedGP
from mercer.gp.search import FinalPass, SparseSearch, best_family
from mercer.gp.task import GPTask
from mercer.kernels import Gaussian, Kernel, Scaled, as_kernel
from mercer.parts import is_auto, require
from mercer.preprocessing.duplicates import MERGED_ROWS, agreed_plan, collect_small_table, exact_sums, fitting_group
from mercer.preprocessing.inputs import InputMap, find_inputs
from mercer.preprocessing.read import TableData, read, read_new
from mercer.preprocessing.validate import host, unit_weights
from mercer.progress import step_callbacks, with_progress


def finite_numbers(value: Any) -> np.ndarray | None:
    """The value as an array of at least one finite number, in at most two dimensions; None for other values."""
    try:
        numbers = np.asarray(host(value), dtype=np.float64)
    except (TypeError, ValueError, OverflowError):  # 10**400 is a number that no float can hold
        return None
    return numbers if numbers.ndim <= 2 and numbers.size > 0 and bool(np.isfinite(numbers).all()) else None


def _is_inducing(value: Any) -> bool:
    """Whether the value names a choice of rows, is a criterion, or holds finite points."""
    if isinstance(value, str | Criterion):
        return isinstance(value, Criterion) or value in ROW_CHOICES
    points = finite_numbers(value)
    return points is not None and points.ndim > 0


ROW_CHOICES = ("random", "k-means++", "variance", *sorted(set(Criterion.choices()) - {"random"}))
INDUCING = Rule(f"one of {list(ROW_CHOICES)}, a Criterion or an array of finite numbers", _is_inducing)
PRIORS = Rule(
    "a dict of names and priors, such as {'length_scale': ('gamma', 3, 6)}",
    lambda value: isinstance(value, dict) and all(map(ParameterPrior.is_one, value.values())),
)
SWITCH_OR_AUTO = literal(True, False, "auto")


class InducingDistances(BasisDistances):
    """Distances from the inducing inputs, of the first class where there are several models."""

    inputs_: ClassVar[InputMap]
    _models: ClassVar[list[FittedGP]]

    def _basis_of_distances(self) -> tuple[Kernel, InputMap, np.ndarray]:
        first = self._models[0]
        return first.kernel, self.inputs_, np.asarray(first.posterior.basis, dtype=np.float64)


@dataclass(eq=False, repr=False)
class SparseGP(BaseKernelEstimator):
    """A sparse Gaussian process; subclasses add the likelihood of their targets.

    Parameters
    ----------
    n_inducing : int, default 500 (classifiers: 100)
        Inducing inputs M; also the rows of the subset for ``approximation="sd"``.
    approximation : "auto", a name or an Approximation, default "auto"
        "spgp" (α = 1); "variational", Titsias' bound (α = 0, less tr(K − Q)/2σ²; ours, for numbers only); "pp" and
        "sr", projected process and subset of regressors (α = 0), which differ in the variance of new rows; "sd" and
        "full", the full model on a subset or on all rows; "svgp", a variational posterior of the inducing inputs'
        function values, by natural gradients on random batches of rows (ours). "auto" is "spgp" for classes. For
        numbers it is "full" where rows are at most three times the inducing inputs, otherwise "variational", and
        "svgp" for other losses than the squared one.
    inducing : str, Criterion or array of shape (M, D), default "k-means++"
        Where the inducing inputs start: "k-means++", "variance" (greedily the rows of largest variance given those
        before), "random", a selection criterion ("max-res", "mp", …), or an array of them. For "sd" an array holds the
        rows of `X` that the model sees.
    optimize_inducing : bool or "auto", default "auto"
        Whether the inducing inputs follow the evidence; "auto": under SPGP and the bound.
    optimize_kernel : bool or "auto", default "auto"
        Whether the kernel (and the noise, where it is left open) follows the evidence; "auto": where `kernel` is a
        name.
    kernel : "auto", a name, a Kernel or a function, default "auto"
        A kernel object refers to standardised inputs and targets of unit variance.
    ard : bool or "auto", default "auto"
        One length-scale per input; "auto" where there are rows enough for it.
    tuning_rows : int, default 1000
        Rows on which kernels are tuned or compared before the search.
    max_iter : int, default 100 (classifiers: 50)
        Steps of Adam on random parts of the rows, and the largest number of steps of L-BFGS on all rows after it (a
        quarter of it where inducing inputs move by another evidence than Titsias' bound, which would fit the noise).
        L-BFGS runs alone where inducing inputs stand still and rows are few. "svgp" takes ten times as many steps on
        batches of 1000 rows or more, or L-BFGS alone where all rows are at most four batches.
    tol : float, default 1e-6
        The relative gain at which the steps of L-BFGS end. Sparse models also end when ten steps gain less than
        0.0005 nats a row.
    length_scale_prior : float or None, default 2.0
        Standard deviation of the logarithms of a kernel's length-scales around their mean, before any data: inputs
        that do not matter would otherwise have any length-scale. None: the evidence alone decides.
    priors : dict or None, default None
        Priors of parameters in standardised units, for example ``{"length_scale": ("gamma", 3, 6), "noise":
        ("lognormal", -4, 1)}``: "gamma" (shape, rate), "inverse_gamma" (shape, scale), "lognormal" (mean and standard
        deviation of the logarithm) or "half_normal" (standard deviation). Names are "noise", "length_scale",
        "variance" and other parameters of the kernel, as in ``kernel_.tunable()``. Searches then maximise the
        posterior density; `log_marginal_likelihood_` stays without priors.
    n_restarts : int, default 0
        Further starts, from other rows and length-scales; the one that ends with the most evidence is kept (of several
        subsets for "sd", the one under whose model other rows are most likely).
    time_budget : float or None, default None
        Seconds for the whole of `fit`, tuning included; where they are few, fewer rows are tuned on, the search ends
        early, and the last pass takes as many rows as time allows. `stop_reason_` reports it.

    Attributes
    ----------
    basis_ : ndarray of shape (M, D)
        Inducing inputs, in the inputs' own units.
    basis_indices_ : ndarray
        The rows they are or started from; empty where they were given.
    dual_coef_ : ndarray of shape (M, p)
        Their weights in the posterior mean, for standardised targets.
    kernel_ : Kernel
        The kernel used, on standardised inputs.
    relevance_ : ndarray of shape (D,)
        How much the mean prediction depends on each column of `X`: shares of total-effect Sobol indices, of sum 1,
        from at most 500 pairs of training rows. A column without any effect has 0. Each latent function of a
        one-versus-rest classifier has a row of its own.
    inverse_length_scales_ : ndarray of shape (D,)
        1/λ_d of the standardised inputs, by which `ARDSelector` ranks them. A column of several coordinates has the
        root of their sum of squares. Equal numbers where the kernel has one length-scale or none.
    background_ : ndarray of shape (at most 100, coordinates)
        Training rows, as numbers: `shapley_values` refer to the mean prediction on them.
    log_marginal_likelihood_ : float
        The evidence of the targets.
    inputs_ : InputMap
        How inputs are coded.
    targets_ : RealTargets or ClassTargets
        How targets are coded.
    dtype_ : str
        Precision of kernel values.
    n_iter_ : int
        Steps of the search.
    stop_reason_ : str
        Why the search ended, in words.
    """

    n_inducing: Annotated[int, integer()] = 500
    _: KW_ONLY
    approximation: Annotated[Any, AUTO | part_of(Approximation)] = "auto"
    inducing: Annotated[Any, INDUCING] = "k-means++"
    optimize_inducing: Annotated[bool | str, SWITCH_OR_AUTO] = "auto"
    optimize_kernel: Annotated[bool | str, SWITCH_OR_AUTO] = "auto"
    kernel: Any = "auto"
    ard: Annotated[bool | str, SWITCH_OR_AUTO] = "auto"
    tuning_rows: Annotated[int, integer(2)] = 1000
    max_iter: Annotated[int, integer(0)] = 100
    tol: Annotated[float, number(0.0, 1.0, open_high=True)] = 1e-6
    length_scale_prior: Annotated[float | None, NONE | number(1e-3, 1e3, wanted="a number from 0.001 to 1000")] = (
        LENGTH_SCALE_PRIOR
    )
    priors: Annotated[Any, NONE | PRIORS] = None
    n_restarts: Annotated[int, integer(0)] = 0

    #: Whether the targets are classes.
    _is_classifier: ClassVar[bool] = False

    @with_progress
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit to rows `X` (array, frame, tensor, file or row source) and classes or numbers `y`.

        Ctrl-C during the search keeps the best point so far and raises KeyboardInterrupt; before it, nothing changes.
        """
        check(self)
        approximation = self._prior()
        group = ONE_PROCESS if approximation.dense else current_group()  # dense models see few rows, every process all
        clock = Clock(self.time_budget, group=group)
        table = read(self, X, self._beside_noise(y), sample_weight, classes=self._is_classifier, group=group)
        given = collect_small_table(table, MERGED_ROWS)
        approximation = self._for_rows(given, approximation)
        made = partial(self._fitted, given, approximation, clock)
        self._keep(**fitting_group(given, group).first(made))
        clock.raise_interrupt()
        return self

    def _beside_noise(self, y: Any) -> Any:
        """The targets as they are read; those of rows of known noise have it as a further column."""
        return y

    @abstractmethod
    def _fitted(self, given: TableData, approximation: Approximation, clock: Clock) -> dict[str, Any]:
        """Fit to the table and return the fitted attributes."""

    # Parameters as the algorithms need them

    def _prior(self) -> Approximation:
        """The approximation, once the other parameters are checked against it."""
        choice = self._automatic() if self._chooses() else self.approximation
        approximation = Approximation.resolve(choice, "approximation")
        if approximation.short_name == "full":
            named = isinstance(self.inducing, str | Criterion)
            require(named, "inducing", "a name where approximation is 'full', which takes all rows", "an array")
        if approximation.dense:
            require(self.optimize_inducing is not True, "optimize_inducing", "False where inputs are rows", True)
        return approximation

    def _chooses(self) -> bool:
        return is_auto(self.approximation)

    @abstractmethod
    def _automatic(self) -> str:
        """The sparse prior behind ``approximation="auto"``, by the likelihood."""

    def _for_rows(self, given: TableData, approximation: Approximation) -> Approximation:
        """The approximation for this number of rows: "auto" may take another one."""
        return approximation

    def _moves(self, approximation: Approximation) -> bool:
        """Whether the inducing inputs move: by default under SPGP and the variational bound."""
        if isinstance(self.optimize_inducing, str):
            return not approximation.dense and (approximation.alpha > 0 or approximation.bound)
        return bool(self.optimize_inducing)

    def _tunes(self) -> bool:
        """Whether the kernel moves: by default if only its name is given."""
        if isinstance(self.optimize_kernel, str):
            return isinstance(self.kernel, str)
        return bool(self.optimize_kernel)

    def _plain_kernel(self) -> Kernel:
        """The kernel before tuning."""
        return as_kernel("gaussian" if is_auto(self.kernel) else self.kernel)

    def _choosing_kernel(self) -> Kernel:
        """The kernel by which rows are chosen before tuning."""
        return as_kernel("gaussian" if isinstance(self.kernel, str) else self.kernel)

    def _first_kernel(
        self,
        task: GPTask,
        evidence: Callable[[Sample], Evidence],
        free: set[str],
        latent: Callable[[Kernel], Kernel] = lambda kernel: kernel,
    ) -> Kernel:
        """The kernel at which the search of a latent function starts: plain for a name; "auto" compares families.

        `latent` makes a kernel for standardised targets one for latent functions.
        """
        if self._tunes() and is_auto(self.kernel):
            return best_family(task, evidence, latent, self.ard, self.tuning_rows, free, self.length_scale_prior)
        return self._plain_start(task, latent)

    def _plain_start(self, task: GPTask, latent: Callable[[Kernel], Kernel] = lambda kernel: kernel) -> Kernel:
        """The kernel at which a search starts if no families are compared: "auto" is a Gaussian kernel."""
        if not (isinstance(self.kernel, str) and self._tunes()):
            return self._plain_kernel()
        family = Gaussian if self.kernel == "auto" else named_family(self.kernel)
        if family is None:
            return latent(Scaled(as_kernel(self.kernel)))
        return latent(plain_start(family, spread_rows(task.data), self.ard))

    # Rows and search

    def _task(
        self,
        given: TableData,
        Y: np.ndarray,
        approximation: Approximation,
        clock: Clock,
        *,
        relative: bool,
        noise: np.ndarray | None = None,
    ) -> tuple[InputMap, GPTask]:
        """Code the rows for the kernel; `relative` weights are divided by their mean, so their unit is irrelevant."""
        if relative:
            given = replace(given, weight=unit_weights(given.weight, given.shard)[0])
        automatic = is_auto(self.dtype)
        dtype = "float64" if approximation.dense and automatic else self.dtype
        plan = exact_sums(agreed_plan(given, self, dtype), given, dtype)
        inputs = find_inputs(given, Y, plan, self.scale_inputs, may_bend=isinstance(self.kernel, str))
        # copies, since torch refuses read-only arrays
        Y, weight = (np.array(part, dtype=np.float64) for part in (Y, given.weight))
        targets, weights = (torch.as_tensor(part, device=plan.device) for part in (Y, weight))
        groups = None if given.layout is None else given.layout.group
        known = None if noise is None else torch.as_tensor(np.array(noise), device=plan.device)
        data = Sample(inputs.rows(given.rows, plan), targets, weights, plan, groups, noise=known)
        inducing = self.inducing
        if not isinstance(inducing, str | Criterion):
            points = np.atleast_2d(np.array(host(inducing), dtype=np.float64))
            columns = given.rows.n_columns
            require(points.shape[1] == columns, "inducing", f"of {columns} columns", points.shape)
            inducing = inputs.kernel_rows(points, plan)
        rng = generator(self.random_state, given.shard.group)
        return inputs, GPTask(data, approximation, inducing, self.n_inducing, self.n_restarts, rng, clock)

    def _point(self, kernel: Kernel, noise: float, data: Sample, *, noisy: bool) -> Point:
        """The start of a search; `noisy` tells whether the likelihood has a noise variance."""
        return Point(kernel, noise, groups=data.column_groups, priors=resolve_priors(self.priors, kernel, noisy))

    def _maximise(
        self,
        task: GPTask,
        evidence: Callable[[Sample], Evidence],
        posterior: Callable[[Sample, Point], tuple[Posterior, float]],
        start: Point,
        free: set[str],
    ) -> tuple[FittedGP, Sample]:
        """Maximise the evidence, then make a final pass; return the model and the rows of that pass."""
        data = task.data
        last = FinalPass.timed(
            lambda rows, Z: posterior(rows, replace(start, basis=Z)), task.n_inducing, data, task.clock
        )
        clock = last.before(task.clock, data.n_total)
        limits = self.max_iter, self.tol, self.length_scale_prior, clock
        search = SparseSearch(task, evidence, free, *limits, self._after_step(clock))
        index, at = search.run(start)
        rows = last.rows(data, task.clock, task.rng)
        found, value = posterior(rows, at)
        seen = f"the last pass saw {rows.rows.n_rows} of {data.n_total} rows"
        why = at.why if rows is data else at.why.noting(seen)
        return FittedGP(at.kernel, at.noise, found, value, index, why, at.n_iter, at.noise), rows

    def _after_step(self, clock: Clock) -> Callable[[Point], None]:
        """The function that a search calls after each step: all callbacks, any of which may stop it."""
        callbacks = step_callbacks("evidence")

        def after_step(point: Point) -> None:
            stops = [bool(callback(point)) for callback in callbacks]
            if any(stops) if clock.group is None else any(clock.group.gather(any(stops))):
                clock.interrupt(by_key=False)

        return after_step

    # New rows

    def _moments(self, X: Any, *, variances: bool = True) -> list[tuple[np.ndarray, np.ndarray]]:
        """Means (n × p) and covariances of the outputs (n × c × c) at new rows, of each model."""
        source = read_new(self, X)
        plan = make_plan(source.n_rows, self.device, self.dtype_, self.memory_limit)
        rows = self.inputs_.rows(source, plan)
        models: list[FittedGP] = self._models
        found = [model.posterior.moments(model.kernel, rows, plan, variances) for model in models]
        return [(mean.cpu().numpy(), cov.cpu().numpy()) for mean, cov in found]
