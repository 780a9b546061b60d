"""Sparse Gaussian process regression: `SparseGPRegressor` (Thesis09, chapter 4)."""

from __future__ import annotations

from dataclasses import KW_ONLY
from functools import partial
from typing import Annotated, Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mercer.base.estimator import estimator_dataclass, to_numpy
from mercer.base.intervals import IntervalRegressor
from mercer.base.parameters import AUTO, number
from mercer.clock import Clock
from mercer.data import TensorRows
from mercer.engine import make_plan
from mercer.engine.sample import Sample, generator
from mercer.evidence.approximations import Approximation, SubsetOfData
from mercer.evidence.coordinates import LEAST_NOISE, Point
from mercer.evidence.cuda_graph import regression_evidence
from mercer.evidence.lbfgs import climb
from mercer.evidence.optimise import exact_evidence
from mercer.evidence.posterior import draw, log_density
from mercer.evidence.sparse import exact_posterior, sparse_posterior
from mercer.evidence.starts import PLAIN_NOISE, as_many_lengths, elsewhere, family_of, plain_kernel
from mercer.gp.estimator import SparseGP
from mercer.gp.left_out import left_out_intervals, predictive_noise
from mercer.gp.model import FittedGP, shown
from mercer.gp.search import FEW_INDUCING
from mercer.gp.task import GPTask
from mercer.gp.timed_rows import FinalPass, in_words, rows_for_tuning
from mercer.kernels import Gaussian, Kernel
from mercer.parts import require, require_integer
from mercer.preprocessing.duplicates import merged
from mercer.preprocessing.read import TableData, read_new
from mercer.preprocessing.targets import RealTargets
from mercer.selection import tune_kernel, tune_noise

#: Rows that tell the family of a kernel: its parameters are looked for afterwards, on all rows.
FAMILY_ROWS = 400
#: Noise, of unit variance of the targets, below which these rows tell the parameters too.
LITTLE_NOISE = 1e-4


@estimator_dataclass
class SparseGPRegressor(IntervalRegressor, SparseGP):
    r"""Gaussian process regression on few inducing inputs, with predictions that know their uncertainty.

    Maximises the log evidence of the targets under a sparse prior (Q = K_nm K_mm⁻¹ K_mn),

    .. math:: \log N\big(y;\, 0,\; Q + \alpha\,\mathrm{diag}(K - Q) + \sigma^2 W^{-1}\big),

    over the kernel's parameters, the noise variance σ² and, where they may move, the inducing inputs, in O(NM²)
    time and by blocks of rows. The family behind ``kernel="auto"`` (on at most 400 rows), and the parameters of a
    kernel that moves alone, are tuned by the exact evidence on `tuning_rows` rows first.

    Parameters
    ----------
    regularization : float or "auto", default "auto"
        Noise variance σ² of the standardised targets; a number stays as it is.

    Attributes
    ----------
    noise_ : float
        Noise variance in squared units of the targets.
    predictive_noise_ : float
        What predictions add to the function's variance: `noise_`, but for "variational" what the rows, each left out
        in turn, make most likely, since its evidence charges the noise with what is left unexplained.

    References
    ----------
    Ma Li, "Computationally efficient models for high-dimensional and large-scale classification problems", thesis
    (2009), chapter 4.
    E. Snelson and Z. Ghahramani, "Sparse Gaussian processes using pseudo-inputs", NIPS 18 (2006).
    M. Titsias, "Variational learning of inducing variables in sparse Gaussian processes", AISTATS (2009).

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import SparseGPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (150, 1))
    >>> model = SparseGPRegressor(12, random_state=0).fit(X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=150))
    >>> mean, std = model.predict([[0.5], [30.0]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(0.5)) < 0.1), bool(std[0] < 0.15), bool(std[1] > 3 * std[0])
    (True, True, True)
    """

    _: KW_ONLY
    regularization: Annotated[Any, AUTO | number(0.0, open_low=True, wanted="a positive number")] = "auto"

    def _fitted(self, given: TableData, approximation: Approximation, clock: Clock) -> dict[str, Any]:
        """All that a fit of this table leaves behind."""
        targets = RealTargets.of(given.y, given.weight, given.shard)
        given, Y = merged(given, targets.encode(given.y))
        inputs, task = self._task(given, Y, approximation, clock, relative=self._noise_given() is None)
        model = to_numpy(self._dense(task) if approximation.dense else self._sparse(task))
        attributes = shown([model], given, inputs, task.data.plan)
        # the evidence of the targets as they came: densities have the inverse unit of the targets
        weight = task.data.total_weight
        density_unit = weight * Y.shape[1] * float(np.log(targets.scale))
        attributes["log_marginal_likelihood_"] -= density_unit
        unit = float(targets.scale)  # its square may leave the range of float64, and a noise is infinite then
        return {
            **attributes,
            "targets_": targets,
            "noise_": model.noise * unit * unit,
            "predictive_noise_": model.predictive_noise * unit * unit,
            "intervals_": left_out_intervals(model, approximation, task.data, given.rows),
        }

    def _noise_given(self) -> float | None:
        return None if isinstance(self.regularization, str) else float(self.regularization)

    # Where a search starts

    def _tuned(self, task: GPTask, data: Sample, most: int) -> tuple[Kernel, float]:
        """Kernel and noise by the exact evidence on at most `most` rows of `data`."""
        chosen = rows_for_tuning(data, most, task.clock, task.rng)
        some = data.part(chosen)
        X, Y = some.rows.take(np.arange(len(chosen))), some.Y
        given, first = self._noise_given(), data.rows.shard.group.first
        options: dict[str, Any] = {"sample_weight": some.weight.cpu().numpy(), "device": data.plan.device}
        if isinstance(self.kernel, str) and self._tunes():
            options |= {
                "n_rows": max(len(chosen), 2),
                "ard": self.ard,
                "groups": data.groups,
                "max_iter": 50,
                "tol": 1e-6,
            }
            options["random_state"] = int(task.rng.integers(2**31))
            tuned = first(lambda: tune_kernel(X, Y, self.kernel, **options))
            return tuned.kernel, tuned.noise if given is None else given
        kernel, least = self._plain_kernel(), LEAST_NOISE[data.plan.dtype]
        return kernel, max(first(lambda: tune_noise(kernel, X, Y, **options)), least) if given is None else given

    def _begun(self, task: GPTask) -> tuple[Kernel, float, bool]:
        """Where a search that moves everything starts, and whether that is near its end.

        Tuning on few rows is asked for the family. Where it finds a Gaussian and next to no noise, its kernel is the
        better start: what a hundred inducing inputs leave unexplained is far more than such noise, and they would
        hide it. Of rougher families all of them leave too much for the exact evidence to be near theirs (pol).
        """
        data = task.data
        tuned: list[tuple[Kernel, float]] = []

        def ask() -> Kernel:
            tuned.append(self._tuned(task, data, min(FAMILY_ROWS, self.tuning_rows)))
            return tuned[0][0]

        plain = plain_kernel(self.kernel, data.rows, data.weight, ask, self.ard)
        if plain is None:
            kernel, noise = ask(), tuned[0][1]
            return kernel, max(noise, PLAIN_NOISE), False
        if not tuned or not task.clock.unlimited or self.n_inducing <= 2 * FEW_INDUCING:
            return plain, PLAIN_NOISE, False
        [(kernel, noise)] = tuned
        if noise >= LITTLE_NOISE or family_of(kernel) is not Gaussian:
            return plain, PLAIN_NOISE, False
        return as_many_lengths(kernel, plain), noise, True

    def _free(self, approximation: Approximation) -> set[str]:
        free = {"kernel"} if self._tunes() else set()
        if self._tunes() and self._noise_given() is None:
            free.add("noise")
        return free | ({"basis"} if self._moves(approximation) else set())

    # Models

    def _sparse(self, task: GPTask) -> FittedGP:
        """Kernel, noise and inducing inputs where the evidence leads them, and a last pass over all rows."""
        data, approximation, free = task.data, task.approximation, self._free(task.approximation)
        near = False
        if len(free) == 3:
            kernel, noise, near = self._begun(task)
        else:
            kernel, noise = self._tuned(task, data, self.tuning_rows)
        evidence = regression_evidence(approximation, inputs="basis" in free)
        start = Point(kernel, max(noise, LEAST_NOISE[data.plan.dtype]), groups=data.groups)
        posterior_of = partial(sparse_posterior, approximation=approximation)
        last = FinalPass.timed(
            lambda rows, Z: posterior_of(kernel, start.noise, Z, rows), self.n_inducing, data, task.clock
        )
        index, at = self._search(task, evidence, start, free, last.before(task.clock, data.n_total), near)
        rows = last.rows(data, task.clock, task.rng)
        assert at.basis is not None
        posterior, value = posterior_of(at.kernel, at.noise, at.basis, rows)
        noise = at.noise
        if approximation.bound and "noise" in free:
            noise = predictive_noise(posterior, at.kernel, at.noise, rows)
        why = in_words(at.why, rows, data)
        return FittedGP(at.kernel, at.noise, posterior, value, index, why, at.n_iter, noise)

    def _dense(self, task: GPTask) -> FittedGP:
        """The full model, on all rows or on a subset: one factor of K + σ²W⁻¹."""
        n_starts = 1 + (self.n_restarts if task.approximation.short_name == "full" else 0)

        def density(model: FittedGP, data: Sample) -> float:
            return log_density(model.posterior, model.kernel, model.noise, data)

        return task.best_subset(partial(self._on_rows, task, n_starts), density, self._choosing_kernel())

    def _on_rows(self, task: GPTask, n_starts: int, index: np.ndarray) -> FittedGP:
        """The full model of these rows, from one start or the best of several."""
        some = task.data.part(index)
        X = some.rows.take(np.arange(len(index))).double()
        evidence, free = exact_evidence(X, some.Y, some.weight), self._free(SubsetOfData())
        first = self._tuned(task, some, self.tuning_rows)
        further = (n_starts - 1) if free else 0
        starts = [first, *((elsewhere(first[0], task.rng), first[1]) for _ in range(further))]
        options: dict[str, Any] = {"free": free, "max_iter": self.max_iter, "tol": self.tol, "clock": task.clock}
        options |= {"length_scale_prior": self.length_scale_prior, "callback": self._seen(task.clock)}
        at = max(
            (climb(evidence, Point(*start, groups=some.groups), **options) for start in starts),
            key=lambda point: point.value,
        )
        posterior = exact_posterior(at.kernel, at.noise, X, some.Y, some.weight)
        return FittedGP(at.kernel, at.noise, posterior, at.value, index, at.why, at.n_iter, at.noise)

    # New rows

    def predict(
        self, X: Any, return_std: bool = False, return_cov: bool = False, include_noise: bool = True
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Means of the targets at new rows; with their standard deviations (n,) or their covariance (n × n).

        Both are those of new targets, noise included, unless ``include_noise=False`` asks for those of the function
        behind them. All outputs share them.
        """
        check_is_fitted(self)
        require(not (return_std and return_cov), "return_cov", "False where return_std is True", True)
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

    def _located(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        [(mean, cov)] = self._moments(X)
        return mean, np.broadcast_to(np.sqrt(cov[:, 0] + self._models[0].predictive_noise), mean.shape)

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
        return values[:, 0] if self.targets_.flat else values
