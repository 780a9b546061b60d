"""Sparse Gaussian process regression: `SparseGPRegressor` (Thesis09, chapter 4)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mercer.border.estimator import require_number, require_whole
from mercer.border.targets import RealTargets
from mercer.data import TensorRows
from mercer.engine import make_plan
from mercer.engine.sample import Sample
from mercer.evidence.approximations import Approximation
from mercer.evidence.coordinates import LEAST_NOISE
from mercer.evidence.posterior import draw
from mercer.evidence.recorded import regression_evidence
from mercer.evidence.sparse import exact_posterior, sparse_posterior
from mercer.evidence.starts import PLAIN_NOISE, plain_kernel
from mercer.gp.estimator import Fitted, SparseGP, on_host
from mercer.gp.predictive_noise import predictive_noise
from mercer.kernels import Kernel, as_kernel
from mercer.parts import require
from mercer.tuning import log_evidence, tune_kernel, tune_noise


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
        Where the inducing inputs start.
    optimize_inducing, optimize_kernel : bool or "auto"
        Whether they follow the evidence. "auto": inducing inputs under SPGP and the bound; the kernel and the noise
        where `kernel` is a name.
    kernel : "auto", a name, a kernel or a callable
        The family behind "auto", and the parameters of a kernel that moves alone, are tuned by the exact evidence on
        `tuning_rows` rows first; a kernel refers to standardised inputs and targets of unit variance.
    regularization : "auto" or float
        Noise variance σ² of the standardised targets; a number stays as it is.
    ard : bool or "auto"
        One length-scale per input; see `tune_kernel`.
    max_iter, tol, time_budget
        Steps of Adam on random parts of the rows (a quarter as many of L-BFGS on all rows follow), the relative gain
        at which the latter end, and seconds for both. Where inducing inputs stand still and rows are few, all steps
        are of L-BFGS.
    n_restarts : int
        Further starts, from other rows and length-scales; the one that ends with the most evidence is kept.
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
    stop_reason_ : why the search ended, in words

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
        max_iter: int = 200,
        tol: float = 1e-6,
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
            tol=tol, n_restarts=n_restarts, time_budget=time_budget, scale_inputs=scale_inputs, device=device,
            dtype=dtype, memory_limit=memory_limit, random_state=random_state, verbose=verbose, callbacks=callbacks,
        )  # fmt: skip
        self.regularization = regularization

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> SparseGPRegressor:
        """Fit to rows `X` (array, frame, tensor, file or row source) and targets `y` of one column or several."""
        approximation = self._require_parameters()
        if isinstance(self.regularization, str):
            require(self.regularization == "auto", "regularization", "'auto' or a number", self.regularization)
        else:
            require_number("regularization", self.regularization, "'auto' or a positive number", np.nextafter(0, 1))
        source, y, weight = self._read(X, y, sample_weight, multi_output=True, y_numeric=True)
        self._coding = RealTargets.of(y, weight)
        source, Y, weight, original = self._merge(source, self._coding.encode(y), weight)
        rng = check_random_state(self.random_state)
        data = self._data(source, Y, weight, approximation)
        found = self._dense(data, approximation, rng) if approximation.dense else self._sparse(data, approximation, rng)
        self._store([replace(found, posterior=on_host(found.posterior))])
        self.basis_indices_ = original[found.index]
        self.noise_ = found.noise * self._coding.scale**2
        self.predictive_noise_ = found.predictive_noise * self._coding.scale**2
        self.log_marginal_likelihood_ -= float(weight.sum()) * Y.shape[1] * float(np.log(self._coding.scale))
        return self

    def _tuned(self, data: Sample, rng: Any, n_rows: int, max_iter: int = 50) -> tuple[Kernel, float]:
        """Kernel and noise by the exact evidence on some rows: the start of the search, or all of it."""
        weight = data.weight.cpu().numpy()
        alive = np.flatnonzero(weight > 0)
        chosen = alive if len(alive) <= n_rows else rng.choice(alive, n_rows, replace=False)
        some = data.part(chosen)
        X, Y = some.rows.take(np.arange(len(chosen))), some.Y
        given = None if isinstance(self.regularization, str) else float(self.regularization)
        options: dict[str, Any] = {"sample_weight": weight[chosen], "device": data.plan.device}
        least = LEAST_NOISE[data.plan.dtype]
        if isinstance(self.kernel, str) and self._tunes():
            tuned = tune_kernel(
                X, Y, self.kernel, n_rows=n_rows, ard=self.ard, max_iter=max_iter, random_state=rng, **options
            )
            return tuned.kernel, tuned.noise if given is None else given
        kernel = as_kernel("gaussian" if self.kernel == "auto" else self.kernel)
        return kernel, max(tune_noise(kernel, X, Y, **options), least) if given is None else given

    def _plain(self, data: Sample, rng: Any) -> tuple[Kernel, float]:
        """Where a search that moves everything starts; tuning is asked at most for the family."""
        tuned = partial(self._tuned, data, rng, self.tuning_rows)
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

    def _sparse(self, data: Sample, approximation: Approximation, rng: Any) -> Fitted:
        free = self._free(approximation)
        kernel, noise = self._plain(data, rng) if len(free) == 3 else self._tuned(data, rng, self.tuning_rows)
        evidence = regression_evidence(approximation, inputs="basis" in free)
        place = partial(self._start, data, kernel, noise, self.n_inducing, rng)
        index, at = self._search(evidence, kernel, max(noise, LEAST_NOISE[data.plan.dtype]), place, data, free, rng)
        posterior = sparse_posterior(at.kernel, at.noise, at.basis, data, approximation)
        spread = at.noise
        if approximation.bound and "noise" in free:
            spread = predictive_noise(posterior, at.kernel, at.noise, data)
        return Fitted(at.kernel, at.noise, posterior, at.value, index, at.why, at.n_iter, spread)

    def _dense(self, data: Sample, approximation: Approximation, rng: Any) -> Fitted:
        """The full model, on all rows or on a subset: one factor of K + σ²W⁻¹."""
        m = data.rows.n_rows if approximation.short_name == "full" else self.n_inducing
        data.plan.require_square(min(m, data.rows.n_rows))
        index = self._inducing_rows(data, *self._rough(), m, rng)
        some = data.part(index)
        kernel, noise = self._tuned(some, rng, max(len(index), 2), max(self.max_iter, 1))
        X = some.rows.take(np.arange(len(index))).double()
        value, _, _ = log_evidence(kernel, noise, X, some.Y, some.weight)
        posterior = exact_posterior(kernel, noise, X, some.Y, some.weight)
        why = f"the exact evidence was climbed by at most {self.max_iter} steps" if self._tunes() else "nothing to tune"
        return Fitted(kernel, noise, posterior, value, index, why, predictive_noise=noise)

    def _rough(self) -> tuple[Kernel, float]:
        """A kernel by which rows of a subset are chosen before any is tuned."""
        return as_kernel("gaussian" if isinstance(self.kernel, str) else self.kernel), 0.1

    def predict(
        self, X: Any, return_std: bool = False, return_cov: bool = False, include_noise: bool = True
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Means of the targets at new rows; with their standard deviations (n,) or their covariance (n × n).

        Both are those of new targets, noise included, unless ``include_noise=False`` asks for those of the function
        behind them. All outputs share them.
        """
        check_is_fitted(self)
        require(not (return_std and return_cov), "return_cov", "False where return_std is True", True)
        (model,) = self._models
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
        (model,) = self._models
        X = self._few(X)
        mean, _ = model.posterior.moments(
            model.kernel, TensorRows(X), make_plan(len(X), "cpu", "float64"), spread=False
        )
        seed = int(check_random_state(random_state).randint(2**31))
        drawn = draw(mean, model.posterior.covariance(model.kernel, X), n_samples, torch.Generator().manual_seed(seed))
        values = drawn.permute(1, 2, 0).numpy() * self._coding.scale + self._coding.mean[:, None]
        return values[:, 0] if self._coding.flat else values
