"""Sparse Gaussian process regression: `SparseGPRegressor` (Thesis09, chapter 4)."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mercer.border.estimator import require_whole
from mercer.border.targets import RealTargets
from mercer.data import TensorRows
from mercer.engine import make_plan
from mercer.engine.sample import Sample
from mercer.evidence.approximations import Approximation, SubsetOfData
from mercer.evidence.clock import Clock
from mercer.evidence.coordinates import LEAST_NOISE, LENGTH_SCALE_PRIOR, Point
from mercer.evidence.lbfgs import climb
from mercer.evidence.optimise import exact_evidence
from mercer.evidence.posterior import draw, log_density
from mercer.evidence.recorded import regression_evidence
from mercer.evidence.sparse import exact_posterior, sparse_posterior
from mercer.evidence.starts import PLAIN_NOISE, elsewhere, plain_kernel
from mercer.gp.estimator import FAMILY_ROWS, FittedGP, SparseGP, on_host
from mercer.gp.final_pass import FinalPass, in_words
from mercer.gp.predictive_noise import predictive_noise
from mercer.kernels import Kernel, as_kernel
from mercer.parts import require
from mercer.tuning import tune_kernel, tune_noise


class SparseGPRegressor(RegressorMixin, SparseGP):
    r"""Gaussian process regression on few inducing inputs, with predictions that know their uncertainty.

    Maximises the log evidence of the targets under a sparse prior (Q = K_nm K_mm⁻¹ K_mn),

    .. math:: \log N\big(y;\, 0,\; Q + \alpha\,\mathrm{diag}(K - Q) + \sigma^2 W^{-1}\big),

    over the kernel's parameters, the noise variance σ² and, where they may move, the inducing inputs, in O(NM²)
    time and by blocks of rows.

    Parameters
    ----------
    n_inducing : int
        Inducing inputs M; also the rows of the subset for ``approximation="sd"``.
    approximation : "spgp", "variational", "pp", "sr", "sd", "full" or a part
        SPGP (α = 1); Titsias' bound (α = 0, less tr(K − Q)/2σ²; ours); projected process and subset of regressors
        (α = 0), which differ in the variance of new rows; the full model on a subset or on all rows.
    inducing : "k-means++", "random", a selection criterion ("max-res", "mp", …) or an array of shape (M, D)
        Where the inducing inputs start. For "sd" an array holds the rows of `X` that the model sees.
    optimize_inducing, optimize_kernel : bool or "auto"
        Whether they follow the evidence. "auto": inducing inputs under SPGP and the bound; the kernel and the noise
        where `kernel` is a name.
    kernel : "auto", a name, a kernel or a callable
        The family behind "auto" (on at most 400 rows), and the parameters of a kernel that moves alone, are tuned by
        the exact evidence on `tuning_rows` rows first; a kernel refers to standardised inputs and targets of unit
        variance.
    regularization : "auto" or float
        Noise variance σ² of the standardised targets; a number stays as it is.
    ard : bool or "auto"
        One length-scale per input; see `tune_kernel`.
    max_iter, tol : int, float
        Steps of Adam on random parts of the rows, and the relative gain at which the steps of L-BFGS on all rows that
        follow end. Where more than 200 inducing inputs move, Adam moves a hundred of them first, and the others join
        when kernel and noise are nearly right. Where inducing inputs stand still and rows are few, all steps are of
        L-BFGS.
    length_scale_prior : float or None
        Standard deviation of the logarithms of a kernel's length-scales around their mean, before any data: inputs
        that do not matter would otherwise have any length-scale. None: the evidence alone decides.
    n_restarts : int
        Further starts, from other rows and length-scales; the one that ends with the most evidence is kept (of several
        subsets for "sd", the one under whose model other rows are most likely).
    time_budget : float or None
        Seconds for the whole of `fit`, tuning included; where they are few, fewer rows are tuned on, the search ends
        early, and the last pass sees as many rows as it can. `stop_reason_` says so.
    scale_inputs : bool or "standard"
        As in `KernelBoostingRegressor`: "standard" leaves columns with heavy tails as they are.
    device, dtype, memory_limit, random_state, verbose, callbacks : as everywhere
        Callbacks receive a point (kernel, noise, basis) after each step.

    Attributes
    ----------
    basis_, basis_indices_ : inducing inputs, and the rows they started from
    kernel_, noise_ : tuned kernel, and noise variance in squared units of the targets
    predictive_noise_ : what predictions add to the function's variance: `noise_`, but for "variational" what the rows,
        each left out in turn, make most likely, since its evidence charges the noise with what is left unexplained
    relevance_ : inverse length-scales of the standardised inputs, how much each matters
    log_marginal_likelihood_ : evidence of the targets as they came
    stop_reason_ : why the search ended, in words; an interrupt (Ctrl-C) keeps the best point so far

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
    >>> X = rng.uniform(-3, 3, (300, 1))
    >>> model = SparseGPRegressor(12, random_state=0).fit(X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=300))
    >>> mean, std = model.predict([[0.5], [30.0]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(0.5)) < 0.1), bool(std[0] < 0.15), bool(std[1] > 3 * std[0])
    (True, True, True)
    """

    def __init__(
        self,
        n_inducing: int = 500,
        *,
        approximation: Any = "spgp",
        inducing: Any = "k-means++",
        optimize_inducing: bool | str = "auto",
        optimize_kernel: bool | str = "auto",
        kernel: Any = "auto",
        regularization: Any = "auto",
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
        super().__init__(
            n_inducing, approximation=approximation, inducing=inducing, optimize_inducing=optimize_inducing,
            optimize_kernel=optimize_kernel, kernel=kernel, ard=ard, tuning_rows=tuning_rows, max_iter=max_iter,
            tol=tol, length_scale_prior=length_scale_prior, n_restarts=n_restarts, time_budget=time_budget,
            scale_inputs=scale_inputs, device=device, dtype=dtype, memory_limit=memory_limit,
            random_state=random_state, verbose=verbose, callbacks=callbacks,
        )  # fmt: skip
        self.regularization = regularization

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> SparseGPRegressor:
        """Fit to rows `X` (array, frame, tensor, file or row source) and targets `y` of one column or several."""
        approximation = self._require_parameters()
        clock = Clock(self.time_budget)
        source, y, weight = self._read(X, y, sample_weight, multi_output=True, y_numeric=True)
        self._coding = RealTargets.of(y, weight)
        source, Y, weight, original = self._merge(source, self._coding.encode(y), weight)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        data = self._data(source, Y, weight, approximation, relative=self.regularization == "auto")
        fitted = self._dense if approximation.dense else self._sparse
        model = fitted(data, approximation, rng, clock)
        self._store([replace(model, posterior=on_host(model.posterior))])
        self.basis_indices_ = original[model.index]
        self.noise_ = model.noise * self._coding.scale**2
        self.predictive_noise_ = model.predictive_noise * self._coding.scale**2
        self.log_marginal_likelihood_ -= float(data.weight.sum()) * Y.shape[1] * float(np.log(self._coding.scale))
        return self

    def _require_parameters(self) -> Approximation:
        given: Any = self.regularization
        if isinstance(given, str):
            require(given == "auto", "regularization", "'auto' or a number", given)
        else:
            good = isinstance(given, int | float | np.number) and bool(0 < given <= sys.float_info.max)
            require(good, "regularization", "'auto' or a positive number", given)
        return super()._require_parameters()

    def _tuned(
        self, data: Sample, most: int, rng: np.random.Generator, clock: Clock, max_iter: int = 50
    ) -> tuple[Kernel, float]:
        """Kernel and noise by the exact evidence on at most `most` rows: where the search starts."""
        chosen = self._rows_for_tuning(data, most, clock, rng)
        some = data.part(chosen)
        X, Y = some.rows.take(np.arange(len(chosen))), some.Y
        given = None if isinstance(self.regularization, str) else float(self.regularization)
        options: dict[str, Any] = {"sample_weight": some.weight.cpu().numpy(), "device": data.plan.device}
        if isinstance(self.kernel, str) and self._tunes():
            options |= {"n_rows": max(len(chosen), 2), "ard": self.ard, "max_iter": max_iter, "tol": 1e-6}
            tuned = tune_kernel(X, Y, self.kernel, random_state=int(rng.integers(2**31)), **options)
            return tuned.kernel, tuned.noise if given is None else given
        kernel = as_kernel("gaussian" if self.kernel == "auto" else self.kernel)
        least = LEAST_NOISE[data.plan.dtype]
        return kernel, max(tune_noise(kernel, X, Y, **options), least) if given is None else given

    def _plain(self, data: Sample, rng: np.random.Generator, clock: Clock) -> tuple[Kernel, float]:
        """Where a search that moves everything starts; tuning is asked at most for the family."""
        tuned = partial(self._tuned, data, min(FAMILY_ROWS, self.tuning_rows), rng, clock)
        kernel = plain_kernel(self.kernel, data.rows, data.weight, lambda: tuned()[0], self.ard)
        if kernel is not None:
            return kernel, PLAIN_NOISE
        kernel, noise = tuned()
        return kernel, max(noise, PLAIN_NOISE)

    def _free(self, approximation: Approximation) -> set[str]:
        free = {"kernel"} if self._tunes() else set()
        if self._tunes() and isinstance(self.regularization, str):
            free.add("noise")
        return free | ({"basis"} if self._moves(approximation) else set())

    def _sparse(self, data: Sample, approximation: Approximation, rng: np.random.Generator, clock: Clock) -> FittedGP:
        free = self._free(approximation)
        everything = len(free) == 3
        kernel, noise = self._plain(data, rng, clock) if everything else self._tuned(data, self.tuning_rows, rng, clock)
        evidence = regression_evidence(approximation, inputs="basis" in free)
        start = Point(kernel, max(noise, LEAST_NOISE[data.plan.dtype]))
        posterior_of = partial(sparse_posterior, approximation=approximation)
        last = FinalPass.timed(lambda rows, Z: posterior_of(kernel, start.noise, Z, rows), self.n_inducing, data, clock)
        before = last.before(clock, data.rows.n_rows)
        index, at = self._search(evidence, start, self._place(data, rng), data, free, rng, before)
        rows = last.rows(data, clock, rng)
        assert at.basis is not None
        posterior, value = posterior_of(at.kernel, at.noise, at.basis, rows)
        noise = at.noise
        if approximation.bound and "noise" in free:
            noise = predictive_noise(posterior, at.kernel, at.noise, rows)
        why = in_words(at.why, rows, data)
        return FittedGP(at.kernel, at.noise, posterior, value, index, why, at.n_iter, noise)

    def _dense(self, data: Sample, approximation: Approximation, rng: np.random.Generator, clock: Clock) -> FittedGP:
        """The full model, on all rows or on a subset: one factor of K + σ²W⁻¹."""
        n_starts = 1 + (self.n_restarts if approximation.short_name == "full" else 0)
        fitted = partial(self._on_rows, data, n_starts=n_starts, rng=rng, clock=clock)
        return self._best_subset(fitted, _density, data, approximation, rng)

    def _on_rows(
        self, data: Sample, index: np.ndarray, n_starts: int, rng: np.random.Generator, clock: Clock
    ) -> FittedGP:
        """The full model of these rows, from one start or the best of several."""
        some = data.part(index)
        X = some.rows.take(np.arange(len(index))).double()
        evidence, free = exact_evidence(X, some.Y, some.weight), self._free(SubsetOfData())
        first = self._tuned(some, self.tuning_rows, rng, clock)
        starts = [first, *((elsewhere(first[0], rng), first[1]) for _ in range((n_starts - 1) if free else 0))]
        with self._watched() as seen:
            options: dict[str, Any] = {"free": free, "max_iter": self.max_iter, "tol": self.tol, "clock": clock}
            options |= {"length_scale_prior": self.length_scale_prior, "callback": seen}
            at = max((climb(evidence, Point(*start), **options) for start in starts), key=lambda point: point.value)
        posterior = exact_posterior(at.kernel, at.noise, X, some.Y, some.weight)
        return FittedGP(at.kernel, at.noise, posterior, at.value, index, at.why, at.n_iter, at.noise)

    def predict(
        self, X: Any, return_std: bool = False, return_cov: bool = False, include_noise: bool = True
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Means of the targets at new rows; with their standard deviations (n,) or their covariance (n × n).

        Both are those of new targets, noise included, unless ``include_noise=False`` asks for those of the function
        behind them. All outputs share them.
        """
        check_is_fitted(self)
        require(not (return_std and return_cov), "return_cov", "False where return_std is True", True)
        model = self._models[0]
        mean, cov = self._moments(X, model, spread=return_std)
        decoded, noise = self._coding.decode(mean), model.predictive_noise if include_noise else 0.0
        if return_std:
            return decoded, np.sqrt(cov[:, 0, 0] + noise) * self._coding.scale
        if return_cov:
            full = model.posterior.covariance(model.kernel, self._few(X))
            full = full + noise * torch.eye(len(full), dtype=torch.float64)
            return decoded, full.numpy() * self._coding.scale**2
        return decoded

    def _few(self, X: Any) -> Tensor:
        source = self._new_rows(X)
        plan = make_plan(source.n_rows, "cpu", "float64", self.memory_limit)
        plan.require_square(source.n_rows)
        return self._prepared(source, plan).take(np.arange(source.n_rows))

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Draws of the function behind the targets at new rows: n × n_samples, or n × outputs × n_samples."""
        check_is_fitted(self)
        require_whole("n_samples", n_samples)
        model = self._models[0]
        X = self._few(X)
        mean, _ = model.posterior.moments(
            model.kernel, TensorRows(X), make_plan(len(X), "cpu", "float64"), spread=False
        )
        seed = int(check_random_state(random_state).randint(2**31))
        drawn = draw(mean, model.posterior.covariance(model.kernel, X), n_samples, torch.Generator().manual_seed(seed))
        values = drawn.permute(1, 2, 0).numpy() * self._coding.scale + self._coding.mean[:, None]
        return values[:, 0] if self._coding.flat else values


def _density(model: FittedGP, data: Sample) -> float:
    return log_density(model.posterior, model.kernel, model.noise, data)
