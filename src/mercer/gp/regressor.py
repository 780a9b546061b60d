"""Sparse Gaussian process regression: `SparseGPRegressor` (Thesis09, chapter 4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, replace
from functools import partial
from typing import Annotated, Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mercer.base.estimator import estimator_dataclass, to_numpy
from mercer.base.parameters import AUTO, NONE, Rule, literal, number, part_of
from mercer.base.uncertainty import UncertainRegressor
from mercer.clock import Clock
from mercer.data import TensorRows
from mercer.engine import make_plan
from mercer.engine.plan import Sample, generator
from mercer.evidence.approximations import Approximation, Full, SubsetOfData
from mercer.evidence.coordinates import LEAST_NOISE, Evidence, Point
from mercer.evidence.cuda_graph import RegressionEvidence
from mercer.evidence.exact import log_evidence
from mercer.evidence.lbfgs import climb
from mercer.evidence.optimise import exact_evidence
from mercer.evidence.posterior import Posterior, draw, log_density
from mercer.evidence.sparse import exact_posterior, sparse_posterior
from mercer.evidence.starts import (
    PLAIN_NOISE,
    as_many_lengths,
    elsewhere,
    family_of,
    named_family,
    plain_start,
    spread_rows,
)
from mercer.forward.criteria import Criterion
from mercer.gp.dispersion import dispersion, rows_per_weight
from mercer.gp.estimator import InducingDistances, SparseGP, finite_numbers
from mercer.gp.leave_one_out import LogNormalMean, leave_one_out_intervals, positive_intervals, predictive_noise
from mercer.gp.model import FittedGP, fitted_attributes
from mercer.gp.search import rows_for_tuning
from mercer.gp.svgp import Likelihood, StochasticEvidence
from mercer.gp.task import GPTask
from mercer.kernels import Gaussian, Kernel, Linear, Scaled, Sum
from mercer.losses import FAR_MEANS, Loss, Poisson, Squared
from mercer.parts import is_auto, require, require_integer
from mercer.preprocessing.duplicates import merged
from mercer.preprocessing.inputs import PositiveTargets, RealTargets
from mercer.preprocessing.read import TableData, read_new
from mercer.preprocessing.validate import host
from mercer.selection import tune_kernel, tune_noise

#: Rows per inducing input up to which "auto" takes the full model: it has few parameters, so that its search takes
#: tens of evaluations where one that moves inducing inputs takes hundreds.
EXACT_RATIO = 3
#: Prior variance of a slope, for standardised inputs and targets, at which a search starts.
SLOPE_VARIANCE = 0.1
#: Rows that decide the family of a kernel; its parameters follow on all rows.
FAMILY_ROWS = 400
#: Noise, for targets of unit variance, below which these rows decide the parameters too.
LITTLE_NOISE = 1e-4
#: Noise at which a search of Titsias' bound starts if all rows are one part. With much noise it may take for noise
#: what few inducing inputs leave unexplained, and end there: 0.28 instead of 1.00 of the variance of a smooth function
#: of 40 rows. Many rows start with much noise: 100 steps of Adam reach 0.293 nats a row on pol instead of −0.043.
BOUND_NOISE = 0.01


def _is_row_noise(value: Any) -> bool:
    """Whether the value is a number of at least zero, or a vector of such numbers."""
    noise = finite_numbers(value)
    return noise is not None and noise.ndim <= 1 and bool((noise >= 0).all())


ROW_NOISE = Rule("a number of at least 0, or one for each row", _is_row_noise)


@estimator_dataclass
class SparseGPRegressor(InducingDistances, UncertainRegressor, SparseGP):
    r"""Gaussian process regression on few inducing inputs, with predictions that know their uncertainty.

    Maximises the log evidence of the targets under a sparse prior (Q = K_nm K_mm⁻¹ K_mn),

    .. math:: \log N\big(y;\, 0,\; Q + \alpha\,\mathrm{diag}(K - Q) + \sigma^2 W^{-1}\big),

    over the kernel's parameters, the noise variance σ² and, where they may move, the inducing inputs, in O(NM²)
    time and by blocks of rows. The family behind ``kernel="auto"`` (on at most 400 rows), and the parameters of a
    kernel that moves alone, are tuned by the exact evidence on `tuning_rows` rows first.

    Parameters
    ----------
    loss : "squared", "poisson" or "gamma", default "squared"
        Gaussian targets, counts, or positive numbers of constant coefficient of variation. The last two have the mean
        exp(f), and need ``approximation="svgp"`` ("auto" takes it) and a single output. Counts may be rates, with
        exposures as `sample_weight`. The variance of counts is φ ≥ 1 times their mean; φ is measured on rows that are
        left out.
    regularization : float or "auto", default "auto"
        Noise variance σ² of the standardised targets; a number stays as it is. For "gamma" it is the squared
        coefficient of variation, for "poisson" the dispersion φ (below): 1 is the Poisson distribution.
    alpha : None, float or array of shape (n,), default None
        Known noise variance of each training row, in squared units of the targets, which is added to σ². It is
        scikit-learn's `alpha`. Predictions for new targets add σ² alone.
    mean : "constant" or "linear", default "constant"
        Mean function. Targets are centred, and kernels by name have a constant. "linear" adds slopes with a Gaussian
        prior, integrated out: a linear kernel, whose variance follows the evidence where the kernel does. Away from
        the rows, predictions return to the mean.

    Attributes
    ----------
    approximation_ : str
        The prior used: what "auto" chose.
    noise_ : float
        Noise variance in squared units of the targets; for other losses than "squared" the dispersion φ: targets of
        mean μ have the variance φμ for "poisson" and φμ² for "gamma".
    predictive_noise_ : float
        Noise variance that predictions add to the function's variance: `noise_`, but for "variational" the one of
        largest leave-one-out likelihood, since its evidence charges the unexplained variance to the noise.

    References
    ----------
    Ma Li, "Computationally efficient models for high-dimensional and large-scale classification problems", thesis
    (2009), chapter 4.
    E. Snelson and Z. Ghahramani, "Sparse Gaussian processes using pseudo-inputs", NIPS 18 (2006).
    M. Titsias, "Variational learning of inducing variables in sparse Gaussian processes", AISTATS (2009).
    J. Hensman, N. Fusi and N. Lawrence, "Gaussian processes for big data", UAI (2013).

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import SparseGPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (150, 1))
    >>> model = SparseGPRegressor(12, random_state=0).fit(X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=150))
    >>> mean, std = model.predict([[0.5], [30.0]], return_std=True)
    >>> for x, m, s in zip([0.5, 30.0], mean, std):  # sin(0.5) = 0.48; no rows are near 30
    ...     print(f"x = {x}: {m:.1f} ± {s:.1f}")
    x = 0.5: 0.5 ± 0.1
    x = 30.0: 0.1 ± 1.1
    """

    _: KW_ONLY
    loss: Annotated[Any, part_of(Loss)] = "squared"
    regularization: Annotated[Any, AUTO | number(0.0, open_low=True, wanted="a positive number")] = "auto"
    alpha: Annotated[Any, NONE | ROW_NOISE] = None
    mean: Annotated[str, literal("constant", "linear")] = "constant"

    def _fitted(self, given: TableData, approximation: Approximation, clock: Clock) -> dict[str, Any]:
        """Fit to the table and return the fitted attributes."""
        known = np.empty((len(given.y), 0))
        if self.alpha is not None:
            y, known = given.y[:, :-1], given.y[:, -1:].astype(np.float64)
            given = replace(given, y=y[:, 0] if y.shape[1] == 1 else y)
        loss, targets = self._loss(), RealTargets.of(given.y, given.weight, given.shard)
        if loss.link == "log":
            require(given.y.ndim == 1, "y", f"one column for loss={loss.short_name!r}", given.y.shape)
            targets = PositiveTargets.of_power(given.y, given.weight, loss.variance_power(), given.shard)
        per_weight = rows_per_weight(given) if isinstance(loss, Poisson) else 1.0
        unit = float(targets.scale)  # its square may overflow, and the noise is infinite then
        given, both = merged(given, np.column_stack([targets.encode(given.y), known / unit / unit]))
        Y, *noise = np.split(both, [both.shape[1] - known.shape[1]], axis=1)
        relative = self._noise_given() is None and self.alpha is None and not isinstance(loss, Poisson)
        of_rows = None if self.alpha is None else noise[0][:, 0]
        inputs, task = self._task(given, Y, approximation, clock, relative=relative, noise=of_rows)
        if loss.quadratic:
            model = to_numpy(self._dense(task) if approximation.dense else self._sparse(task))
            intervals, squared_unit = leave_one_out_intervals(model, approximation, task.data, given), unit * unit
        else:
            model = to_numpy(self._latent(task, loss, targets, per_weight))
            intervals = positive_intervals(model, loss, task.data, given)
            squared_unit = float(np.exp((2 - loss.variance_power()) * targets.mean[0]))
        attributes = fitted_attributes([model], given, inputs, task.data.plan)
        attributes["log_marginal_likelihood_"] -= task.data.total_weight * _log_unit(loss, targets)
        return {
            **attributes,
            "targets_": targets,
            "approximation_": approximation.short_name,
            "noise_": model.noise * squared_unit,
            "predictive_noise_": model.predictive_noise * squared_unit,
            "intervals_": intervals,
        }

    def _loss(self) -> Loss:
        return Loss.resolve(self.loss, "loss")

    def _prior(self) -> Approximation:
        loss, approximation = self._loss(), super()._prior()
        require(loss.for_numbers, "loss", "one for regression, such as 'squared' or 'poisson'", self.loss)
        Likelihood.of(loss)  # refuses losses without one
        fits = loss.quadratic or approximation.stochastic
        require(fits, "approximation", f"'svgp' or 'auto' for loss={loss.short_name!r}", self.approximation)
        plain = self.alpha is None or not approximation.stochastic
        require(plain, "alpha", "None where approximation is 'svgp'", self.alpha)
        return approximation

    def _automatic(self) -> str:
        return "variational" if self._loss().quadratic else "svgp"

    def _for_rows(self, given: TableData, approximation: Approximation) -> Approximation:
        """ "auto" takes the full model if rows are few, the inducing inputs are left open and the loss is squared."""
        left_open = isinstance(self.inducing, str | Criterion) and self.optimize_inducing is not True
        few = not given.shard.divided and len(given.alive) <= EXACT_RATIO * self.n_inducing
        exact = self._chooses() and self._loss().quadratic and left_open and few
        return Full() if exact else approximation

    def _beside_noise(self, y: Any) -> Any:
        if self.alpha is None:
            return y
        require(y is not None, "y", "an array of targets where alpha is given", y)
        targets, noise = np.asarray(host(y)), np.asarray(host(self.alpha), dtype=np.float64)
        fits = noise.ndim == 0 or len(noise) == len(targets)
        require(fits, "alpha", f"one number, or one for each of {len(targets)} rows", f"{noise.size} numbers")
        return np.column_stack([targets, np.broadcast_to(noise, len(targets))])

    def _with_mean(self, kernel: Kernel) -> Kernel:
        """The kernel with that of the mean function."""
        return kernel if self.mean == "constant" else Sum(kernel, Scaled(Linear(), SLOPE_VARIANCE))

    def _noise_given(self) -> float | None:
        return None if isinstance(self.regularization, str) else float(self.regularization)

    # The start of a search

    def _tuned(self, task: GPTask, data: Sample, most: int) -> tuple[Kernel, float]:
        """Kernel and noise by the exact evidence on at most `most` rows of `data`."""
        chosen = rows_for_tuning(data, most, task.clock, task.rng)
        part = data.part(chosen)
        X, Y, weight = part.rows.take(np.arange(len(chosen))), part.Y, part.weight.cpu().numpy()
        given, first = self._noise_given(), data.rows.shard.group.first
        if isinstance(self.kernel, str) and self._tunes():
            seed = int(task.rng.integers(2**31))
            tuned = first(
                lambda: tune_kernel(
                    X,
                    Y,
                    self.kernel,
                    sample_weight=weight,
                    device=data.plan.device,
                    n_rows=max(len(chosen), 2),
                    ard=self.ard,
                    groups=data.column_groups,
                    max_iter=50,
                    tol=1e-6,
                    random_state=seed,
                )
            )
            return tuned.kernel, tuned.noise if given is None else given
        kernel = self._plain_kernel()
        if given is not None:
            return kernel, given
        noise = first(lambda: tune_noise(kernel, X, Y, sample_weight=weight, device=data.plan.device))
        return kernel, max(noise, LEAST_NOISE[data.plan.dtype])

    def _start(self, task: GPTask) -> tuple[Kernel, float]:
        """Kernel and noise from which all parts move.

        Tuning on few rows decides the family. If it finds a Gaussian and almost no noise, its kernel is the better
        start: much noise would hide what the inducing inputs leave unexplained. With rougher families they leave too
        much for the exact evidence to be near theirs (pol).
        """
        little = task.approximation.bound and not (task.approximation.stochastic or task.has_many_rows)
        family, plain_noise = named_family(self.kernel), BOUND_NOISE if little else PLAIN_NOISE
        if family is not None:
            return plain_start(family, spread_rows(task.data), self.ard, task.approximation.bound), plain_noise
        kernel, noise = self._tuned(task, task.data, min(FAMILY_ROWS, self.tuning_rows))
        if not is_auto(self.kernel):
            return kernel, max(noise, plain_noise)
        plain = plain_start(family_of(kernel), spread_rows(task.data), self.ard, task.approximation.bound)
        if task.clock.unlimited and noise < LITTLE_NOISE and family_of(kernel) is Gaussian:
            return as_many_lengths(kernel, plain), noise
        return plain, plain_noise

    def _free(self, approximation: Approximation) -> set[str]:
        free = {"kernel"} if self._tunes() else set()
        left_open = self._noise_given() is None and not isinstance(self._loss(), Poisson)  # theirs is found before
        if left_open and (self._tunes() or self.alpha is not None):
            free.add("noise")  # a start includes the known noise of rows
        return free | ({"basis"} if self._moves(approximation) else set())

    # Models

    def _sparse(self, task: GPTask) -> FittedGP:
        """Maximise the evidence over kernel, noise and inducing inputs, then make a pass over all rows."""
        data, approximation, free = task.data, task.approximation, self._free(task.approximation)
        kernel, noise = self._start(task) if len(free) == 3 else self._tuned(task, data, self.tuning_rows)
        start = self._point(self._with_mean(kernel), max(noise, LEAST_NOISE[data.plan.dtype]), data, noisy=True)

        def posterior(rows: Sample, at: Point) -> tuple[Posterior, float]:
            assert at.basis is not None
            return sparse_posterior(at.kernel, at.noise, at.basis, rows, approximation)

        evidence: Callable[[Sample], Evidence] = RegressionEvidence(approximation, inputs="basis" in free)
        if approximation.stochastic:  # at the end, the best q gives Titsias' bound and its posterior
            evidence = StochasticEvidence(Likelihood.of(Squared()), inputs="basis" in free)
        model, rows = self._maximise(task, evidence, posterior, start, free)
        if approximation.bound and "noise" in free:
            noise = predictive_noise(model.posterior, model.kernel, model.noise, rows)
            return replace(model, predictive_noise=noise)
        return model

    def _latent(self, task: GPTask, loss: Loss, targets: RealTargets, per_weight: float) -> FittedGP:
        """SVGP with a likelihood that is not Gaussian: maximise the bound, then make passes over all rows."""
        free, counts = self._free(task.approximation), isinstance(loss, Poisson)
        noise = self._count_noise(task, loss, targets, per_weight) if counts else self._noise_given() or PLAIN_NOISE
        evidence = StochasticEvidence(Likelihood.of(loss, noise if counts else None), inputs="basis" in free)
        kernel = self._with_mean(self._first_kernel(task, evidence, free))
        start = self._point(kernel, noise, task.data, noisy=not counts)
        return self._maximise(task, evidence, partial(evidence.posterior, rng=task.rng), start, free)[0]

    def _count_noise(self, task: GPTask, loss: Loss, targets: RealTargets, per_weight: float) -> float:
        """The dispersion of counts, given or measured, in units of their mean."""
        given, unit = self._noise_given(), float(np.exp(-targets.mean[0]))
        if given is not None:
            return given * unit
        start = self._point(self._with_mean(self._plain_start(task)), unit, task.data, noisy=False)
        free = self._free(task.approximation)
        return dispersion(task, loss, start, free, self.length_scale_prior, per_weight)

    def _dense(self, task: GPTask) -> FittedGP:
        """The full model, on all rows or on a subset: one factor of K + σ²W⁻¹."""
        n_starts = 1 + (self.n_restarts if task.approximation.short_name == "full" else 0)

        def density(model: FittedGP, data: Sample) -> float:
            return log_density(model.posterior, model.kernel, model.noise, data)

        return task.best_subset(partial(self._on_rows, task, n_starts), density, self._choosing_kernel())

    def _on_rows(self, task: GPTask, n_starts: int, index: np.ndarray) -> FittedGP:
        """The full model of these rows, from one start or the best of several."""
        part = task.data.part(index)
        X = part.rows.take(np.arange(len(index))).double()
        evidence, free = exact_evidence(X, part.Y, part.weight, part.noise), self._free(SubsetOfData())
        kernel, noise = self._tuned(task, part, self.tuning_rows)
        kernel = self._with_mean(kernel)
        after_step = self._after_step(task.clock)
        others = [elsewhere(kernel, task.rng) for _ in range(n_starts - 1 if free else 0)]
        climbs = (
            climb(
                evidence,
                self._point(start, noise, part, noisy=True),
                free=free,
                max_iter=self.max_iter,
                tol=self.tol,
                length_scale_prior=self.length_scale_prior,
                clock=task.clock,
                callback=after_step,
            )
            for start in (kernel, *others)
        )
        at = max(climbs, key=lambda point: point.value)
        shared = at.noise if part.noise is None else at.noise + part.noise
        posterior = exact_posterior(at.kernel, shared, X, part.Y, part.weight)
        return FittedGP(at.kernel, at.noise, posterior, at.value, index, at.why, at.n_iter, at.noise)

    # Evidence and new rows

    @property
    def theta_(self) -> np.ndarray:
        """Logarithms of the parameters of `kernel_`, then of the noise variance of standardised targets."""
        check_is_fitted(self)
        model: FittedGP = self._models[0]
        return np.log(np.concatenate([*map(np.ravel, model.kernel.tunable().values()), [model.noise]]))

    def log_marginal_likelihood(self, theta: Any = None, X: Any = None, y: Any = None) -> float:
        """Log evidence of targets `y` of rows `X` under parameters `theta` (None: those of the model).

        For sparse priors it is the evidence given the inducing inputs of the model, for "variational" Titsias' lower
        bound on that of the full model. `theta` has the order of `theta_`. A model keeps no training rows, so they are
        passed here; without any, the value that `fit` reached is returned. `alpha` is not part of it.

        >>> X = np.linspace(0, 6, 50)[:, None]
        >>> model = SparseGPRegressor(kernel="gaussian").fit(X, np.sin(X[:, 0]))
        >>> here = model.log_marginal_likelihood(model.theta_, X, np.sin(X[:, 0]))
        >>> bool(abs(here - model.log_marginal_likelihood()) < 1e-6 * abs(here))
        True
        """
        check_is_fitted(self)
        if X is None:
            require(theta is None, "X", "the rows at which theta is to be evaluated", None)
            return self.log_marginal_likelihood_
        model, now = self._models[0], self.theta_
        logs = now if theta is None else np.asarray(theta, dtype=np.float64)
        require(logs.shape == now.shape, "theta", f"{len(now)} numbers, as in theta_", logs.shape)
        sizes = np.cumsum([np.size(value) for value in model.kernel.tunable().values()])
        *pieces, noise = np.split(np.exp(logs), sizes)
        old = model.kernel.tunable().items()
        new = {name: piece.reshape(np.shape(v)).tolist() for (name, v), piece in zip(old, pieces, strict=True)}
        kernel, approximation = model.kernel.replaced(new), Approximation.resolve(self.approximation_, "approximation")
        source, Y = read_new(self, X), torch.as_tensor(self.targets_.encode(np.asarray(host(y), dtype=np.float64)))
        plan = make_plan(source.n_rows, self.device, "float64", self.memory_limit)
        rows, Y = self.inputs_.rows(source, plan), Y.to(plan.device)
        data = Sample(rows, Y, torch.ones(len(Y), dtype=torch.float64, device=plan.device), plan)
        loss, variance = self._loss(), float(noise[0])
        basis = torch.as_tensor(model.posterior.basis).to(plan.device, plan.dtype)
        if approximation.dense:
            value = log_evidence(kernel, variance, rows.take(np.arange(len(Y))).double(), Y)[0]
        elif loss.quadratic:
            value = sparse_posterior(kernel, variance, basis, data, approximation)[1]
        else:
            evidence = StochasticEvidence(Likelihood.of(loss))
            value = evidence.posterior(data, Point(kernel, variance, basis), np.random.default_rng(0))[1]
        return value - len(Y) * _log_unit(loss, self.targets_)

    def predict(
        self, X: Any, return_std: bool = False, return_cov: bool = False, include_noise: bool = True
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Means of the targets at new rows; with their standard deviations (n,) or their covariance (n × n).

        Both are those of new targets, noise included, unless ``include_noise=False`` asks for those of the function
        behind them. All outputs share them.
        """
        check_is_fitted(self)
        require(not (return_std and return_cov), "return_cov", "False where return_std is True", True)
        if isinstance(self.targets_, PositiveTargets):
            return self._predict_positive(X, return_std, return_cov, include_noise)
        model: FittedGP = self._models[0]
        [(mean, cov)] = self._moments(X, variances=return_std)
        decoded, noise = self.targets_.decode(mean), model.predictive_noise if include_noise else 0.0
        if return_std:
            return decoded, np.sqrt(cov[:, 0, 0] + noise) * self.targets_.scale
        if return_cov:
            full = model.posterior.covariance(model.kernel, self._few(X))
            full = full + noise * torch.eye(len(full), dtype=torch.float64)
            return decoded, full.numpy() * self.targets_.scale * self.targets_.scale
        return decoded

    def _log_normal(self, X: Any) -> LogNormalMean:
        """Means of positive targets at new rows, in units of the mean target."""
        [(mean, cov)] = self._moments(X)
        assert isinstance(self.targets_, PositiveTargets)
        return LogNormalMean(mean, cov[:, 0], self._models[0].noise, self.targets_.power)

    def _predict_positive(
        self, X: Any, return_std: bool, return_cov: bool, include_noise: bool
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        found, unit = self._log_normal(X), float(np.exp(self.targets_.mean[0]))
        decoded = self.targets_.decode(found.location)
        if return_std:
            return decoded, unit * (found.std if include_noise else found.function_std)[:, 0]
        if not return_cov:
            return decoded
        model: FittedGP = self._models[0]
        latent = model.posterior.covariance(model.kernel, self._few(X)).numpy()
        full = np.outer(decoded, decoded) * np.expm1(np.minimum(latent, FAR_MEANS))
        return decoded, full + np.diag((unit * found.noise_std[:, 0]) ** 2 if include_noise else 0 * decoded)

    def _location_and_scale(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        if isinstance(self.targets_, PositiveTargets):
            found = self._log_normal(X)
            return found.location, found.std
        [(mean, cov)] = self._moments(X)
        return mean, np.broadcast_to(np.sqrt(cov[:, 0] + self._models[0].predictive_noise), mean.shape)

    def _noise_and_model(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        if isinstance(self.targets_, PositiveTargets):
            found, unit = self._log_normal(X), np.exp(self.targets_.mean)
            return unit * found.noise_std, unit * found.function_std
        [(mean, cov)] = self._moments(X)
        noise = np.full_like(mean, np.sqrt(self._models[0].predictive_noise))
        return noise, np.broadcast_to(np.sqrt(cov[:, 0]), mean.shape)

    def _few(self, X: Any) -> Tensor:
        """New rows as the kernel sees them, few enough for a matrix of their covariances."""
        source = read_new(self, X)
        plan = make_plan(source.n_rows, "cpu", "float64", self.memory_limit)
        plan.require_square(source.n_rows)
        return self.inputs_.rows(source, plan).take(np.arange(source.n_rows))

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Draws of the function behind the targets at new rows: n × n_samples, or n × outputs × n_samples."""
        check_is_fitted(self)
        require_integer("n_samples", n_samples)
        model: FittedGP = self._models[0]
        X = self._few(X)
        mean, _ = model.posterior.moments(
            model.kernel, TensorRows(X), make_plan(len(X), "cpu", "float64"), variances=False
        )
        seed = int(generator(random_state).integers(2**31))
        drawn = draw(mean, model.posterior.covariance(model.kernel, X), n_samples, torch.Generator().manual_seed(seed))
        values = drawn.permute(1, 2, 0).numpy() * self.targets_.scale + self.targets_.mean[:, None]
        if isinstance(self.targets_, PositiveTargets):
            values = np.exp(np.minimum(values, self.targets_.mean[:, None] + FAR_MEANS))
        return values[:, 0] if self.targets_.flat else values


def _log_unit(loss: Loss, targets: RealTargets) -> float:
    """The logarithm by which the density of a row of coded targets exceeds that of targets; counts have no unit."""
    if isinstance(loss, Poisson):
        return 0.0
    return float(targets.mean[0]) if loss.link == "log" else len(targets.mean) * float(np.log(targets.scale))
