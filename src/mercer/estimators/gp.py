"""Sparse Gaussian processes: `SparseGPRegressor` and `SparseGPClassifier` (Thesis09, chapters 4 and 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.special import expit, roots_hermitenorm
from scipy.stats import norm, qmc
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from tqdm.auto import tqdm

from mercer.component import require
from mercer.engine import Plan, make_plan
from mercer.estimators.greedy import GreedyKernelRegressor
from mercer.estimators.rows import RowEstimator, require_number, require_whole
from mercer.estimators.targets import ClassTargets, RealTargets
from mercer.forward.criteria import Criterion
from mercer.gp.approximations import Approximation, ProjectedProcess
from mercer.gp.climb import LEAST_NOISE, Point, climb, spread_out
from mercer.gp.evidence import exact_posterior, sparse_evidence, sparse_posterior
from mercer.gp.inducing import Gradient
from mercer.gp.laplace import LaplaceEvidence
from mercer.gp.likelihoods import Bernoulli, Categorical
from mercer.gp.posterior import Posterior, draw
from mercer.kernels import Kernel, as_kernel
from mercer.sources import RowSource, TensorRows
from mercer.tuning import log_evidence, tune_kernel, tune_noise

#: Latent amplitudes are larger than class codes of ±1: the logistic function is still 0.12 at 2.
LATENT_VARIANCE = 4.0
#: Where a climb of Titsias' bound starts: share of the tuned variances, and noise of targets of unit variance.
EASED_VARIANCE, EASED_NOISE = 0.125, 0.3
#: Nodes of the Gauss–Hermite rule that averages a logistic function, and draws that average a softmax.
NODES, DRAWS = 64, 512


@dataclass(frozen=True)
class Rows:
    """Training rows as algorithms see them."""

    rows: RowSource
    Y: Tensor
    weight: Tensor
    plan: Plan

    def part(self, index: np.ndarray) -> Rows:
        where = torch.as_tensor(index, device=self.plan.device)
        block = self.rows.take(index).to(self.plan.device, self.plan.dtype)
        return Rows(TensorRows(block), self.Y[where], self.weight[where], self.plan)


@dataclass(frozen=True)
class Fitted:
    """One Gaussian process after fitting."""

    kernel: Kernel
    noise: float
    posterior: Posterior
    log_evidence: float
    index: np.ndarray  # of the rows that the inducing inputs are or started from
    why: str
    n_iter: int = 1


class _SparseGP(RowEstimator):
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
        max_iter: int = 50,
        tol: float = 1e-6,
        time_budget: float | None = None,
        scale_inputs: bool = True,
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
        require_number("tol", self.tol, "a number of at least 0", 0.0)
        for name in ("optimize_inducing", "optimize_kernel", "ard"):
            value = getattr(self, name)
            require(value in (True, False, "auto"), name, "True, False or 'auto'", value)
        if self.time_budget is not None:
            wanted = "None or a positive number of seconds"
            require_number("time_budget", self.time_budget, wanted, np.nextafter(0, 1))
        several = self.callbacks is None or isinstance(self.callbacks, Iterable)
        good = several and all(callable(callback) for callback in self.callbacks or ())
        require(good, "callbacks", "None or several functions of a point of the search", self.callbacks)
        if isinstance(self.inducing, str):
            names = ["random", "k-means++", *sorted(set(Criterion.choices()) - {"random"})]
            require(self.inducing in names, "inducing", f"one of {names}, a Criterion or an array", self.inducing)
        approximation = Approximation.resolve(self.approximation, "approximation")
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

    def _data(self, source: RowSource, Y: np.ndarray, weight: np.ndarray, approximation: Approximation) -> Rows:
        dtype = "float64" if approximation.dense and self.dtype == "auto" else self.dtype
        plan = make_plan(source.n_rows, self.device, dtype, self.memory_limit)
        self._scale_columns(source, weight, plan, enabled=self.scale_inputs)
        self.dtype_ = str(plan.dtype).removeprefix("torch.")
        on_device: dict[str, Any] = {"device": plan.device, "dtype": torch.float64}
        return Rows(
            self._prepared(source, plan), torch.as_tensor(Y, **on_device), torch.as_tensor(weight, **on_device), plan
        )

    def _inducing_rows(self, data: Rows, kernel: Kernel, noise: float, m: int, rng: Any) -> np.ndarray:
        """Rows at which the inducing inputs start."""
        alive = np.flatnonzero(data.weight.cpu().numpy() > 0)
        m = min(m, len(alive))
        if m == len(alive):
            return alive
        choice = self.inducing
        if isinstance(choice, str) and choice in ("random", "k-means++"):
            pool = alive if len(alive) <= 20 * m else rng.choice(alive, 20 * m, replace=False)
            if choice == "random":
                return rng.choice(pool, m, replace=False)
            scale = _relevance(kernel, data.rows.n_columns)
            return pool[
                spread_out(data.rows.take(pool).double() * torch.as_tensor(scale, device=data.plan.device), m, rng)
            ]
        greedy = GreedyKernelRegressor(
            m, criterion=choice, kernel=kernel, regularization=max(noise, 1e-4), scale_inputs=False,
            device=data.plan.device, dtype=self.dtype_, memory_limit=self.memory_limit, random_state=rng,
        )  # fmt: skip
        found = greedy.fit(data.rows, data.Y.cpu().numpy(), data.weight.cpu().numpy()).basis_indices_
        rest = np.setdiff1d(alive, found)
        return np.concatenate([found, rng.choice(rest, m - len(found), replace=False)])

    def _start(self, data: Rows, kernel: Kernel, noise: float, m: int, rng: Any) -> tuple[np.ndarray, Tensor]:
        """Rows and inducing inputs (in scaled units) at which the search starts."""
        if isinstance(self.inducing, str | Criterion):
            index = self._inducing_rows(data, kernel, noise, m, rng)
            return index, data.rows.take(index).to(data.plan.device, data.plan.dtype)
        given = np.atleast_2d(np.asarray(self.inducing, dtype=np.float64))
        require(given.shape[1] == data.rows.n_columns, "inducing", f"of {data.rows.n_columns} columns", given.shape)
        Z = (given - self.input_mean_) / self.input_scale_
        return np.arange(0), torch.as_tensor(Z, device=data.plan.device, dtype=data.plan.dtype)

    def _search(
        self,
        evidence: Callable[[Rows], Callable[[Kernel, float, Tensor], Gradient]],
        start: Point,
        data: Rows,
        free: set[str],
        rng: Any,
    ) -> Point:
        """Uphill on the evidence: the first steps on a part of the rows, which is cheap, the rest on all of them.

        More steps on the part would settle on the shorter description that few rows ask for.
        """
        n, m = data.rows.n_rows, len(start.basis)
        few = max(16 * m, 4000)
        stages = [(data, self.max_iter)]
        if n > 2 * few and free:
            part = data.part(np.sort(rng.choice(n, few, replace=False)))
            stages = [(part, max(self.max_iter // 4, 1)), (data, self.max_iter)]
        point = start
        with tqdm(total=sum(k for _, k in stages), disable=not self.verbose, desc="evidence", unit=" steps") as bar:

            def seen(point: Point) -> None:
                bar.update()
                for callback in self.callbacks or ():
                    callback(point)

            for rows, steps in stages:
                point = climb(
                    evidence(rows), point, data.plan, free=free, max_iter=steps, tol=self.tol,
                    time_budget=self.time_budget, callback=seen,
                )  # fmt: skip
        return point

    # --- new rows ---------------------------------------------------------------------------------------

    def _moments(self, X: Any, model: Fitted, spread: bool = True) -> tuple[np.ndarray, np.ndarray]:
        source = self._new_rows(X)
        plan = make_plan(source.n_rows, self.device, self.dtype_, self.memory_limit)
        mean, cov = model.posterior.moments(model.kernel, self._prepared(source, plan), plan, spread)
        return mean.cpu().numpy(), cov.cpu().numpy()

    def _store(self, models: list[Fitted]) -> None:
        """What all faces show: inducing inputs in the inputs' own units, weights, kernel, evidence, reason."""
        self._models = models
        one = len(models) == 1
        bases = [m.posterior.basis.double().numpy() * self.input_scale_ + self.input_mean_ for m in models]
        relevances = [_relevance(m.kernel, self.n_features_in_) for m in models]
        self.basis_ = bases[0] if one else bases
        self.dual_coef_ = models[0].posterior.weights.numpy() if one else [m.posterior.weights.numpy() for m in models]
        self.kernel_ = models[0].kernel if one else [m.kernel for m in models]
        self.relevance_ = relevances[0] if one else np.stack(relevances)
        self.log_marginal_likelihood_ = float(sum(m.log_evidence for m in models))
        self.n_iter_ = max(max(m.n_iter for m in models), 1)
        self.stop_reason_ = models[0].why if one else "; ".join(dict.fromkeys(m.why for m in models))


def _relevance(kernel: Kernel, n_inputs: int) -> np.ndarray:
    """Inverse length-scales of standardised inputs; ones for kernels without them."""
    scales = [v for name, v in kernel.tunable().items() if name.endswith("length_scale")]
    return np.broadcast_to(1 / np.asarray(scales[0], dtype=float), (n_inputs,)).copy() if scales else np.ones(n_inputs)


def _eased(kernel: Kernel) -> Kernel:
    """The kernel with smaller outer variances, where a climb of the bound starts.

    The bound counts unexplained variance against the model. From the full model's own parameters it first flees to
    long length-scales and comes back slowly; from a low amplitude and much noise it does not.
    """
    variances = {name: v for name, v in kernel.tunable().items() if name.endswith("variance")}
    return kernel.replaced({name: float(np.clip(v * EASED_VARIANCE, 1e-3, None)) for name, v in variances.items()})


def _on_host(posterior: Posterior) -> Posterior:
    host = {name: None if (t := getattr(posterior, name)) is None else t.cpu() for name in posterior.__annotations__}
    return replace(posterior, **host)


class SparseGPRegressor(RegressorMixin, _SparseGP):
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
        Names are tuned by the exact evidence on `tuning_rows` rows first; a kernel refers to standardised inputs and
        targets of unit variance.
    regularization : "auto" or float
        Noise variance σ² of the standardised targets; a number stays as it is.
    ard : bool or "auto"
        One length-scale per input; see `tune_kernel`.
    max_iter, tol, time_budget
        L-BFGS steps on all rows (and a quarter as many on a part of them before, where there are many rows), the
        relative gain at which they end, and seconds for each of the two.
    scale_inputs, device, dtype, memory_limit, random_state, verbose, callbacks : as everywhere
        Callbacks receive a point (kernel, noise, basis) after each step.

    Attributes
    ----------
    basis_, basis_indices_ : inducing inputs, and the rows they started from
    kernel_, noise_ : tuned kernel, and noise variance in squared units of the targets
    relevance_ : inverse length-scales of the standardised inputs, how much each matters
    log_marginal_likelihood_ : evidence of the targets as they came
    stop_reason_ : why the search ended, in words

    References
    ----------
    M. Li, "Sparse Gaussian processes and mixtures of radial basis functions", thesis (2009), chapter 4.
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
        max_iter: int = 50,
        tol: float = 1e-6,
        time_budget: float | None = None,
        scale_inputs: bool = True,
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
            tol=tol, time_budget=time_budget, scale_inputs=scale_inputs, device=device, dtype=dtype,
            memory_limit=memory_limit, random_state=random_state, verbose=verbose, callbacks=callbacks,
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
        self._store([replace(found, posterior=_on_host(found.posterior))])
        self.basis_indices_ = original[found.index]
        self.noise_ = found.noise * self._coding.scale**2
        self.log_marginal_likelihood_ -= float(weight.sum()) * Y.shape[1] * float(np.log(self._coding.scale))
        return self

    def _tuned(self, data: Rows, rng: Any, n_rows: int, max_iter: int = 50) -> tuple[Kernel, float]:
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

    def _free(self, approximation: Approximation) -> set[str]:
        free = {"kernel"} if self._tunes() else set()
        if self._tunes() and isinstance(self.regularization, str):
            free.add("noise")
        return free | ({"basis"} if self._moves(approximation) else set())

    def _sparse(self, data: Rows, approximation: Approximation, rng: Any) -> Fitted:
        kernel, noise = self._tuned(data, rng, self.tuning_rows)
        index, Z = self._start(data, kernel, noise, self.n_inducing, rng)
        data.plan.require_square(len(Z))
        free = self._free(approximation)
        if approximation.bound and free >= {"kernel", "noise"}:
            kernel, noise = _eased(kernel), max(noise, EASED_NOISE)

        def evidence(rows: Rows) -> Callable[[Kernel, float, Tensor], Gradient]:
            return partial(
                sparse_evidence, rows=rows.rows, Y=rows.Y, plan=rows.plan, approximation=approximation,
                weight=rows.weight, inputs="basis" in free,
            )  # fmt: skip

        at = self._search(evidence, Point(kernel, max(noise, LEAST_NOISE[data.plan.dtype]), Z), data, free, rng)
        posterior = sparse_posterior(
            at.kernel, at.noise, at.basis, data.rows, data.Y, data.plan, approximation, data.weight
        )
        return Fitted(at.kernel, at.noise, posterior, at.value, index, at.why, at.n_iter)

    def _dense(self, data: Rows, approximation: Approximation, rng: Any) -> Fitted:
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
        return Fitted(kernel, noise, posterior, value, index, why)

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
        decoded, noise = self._coding.decode(mean), model.noise if include_noise else 0.0
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


class SparseGPClassifier(ClassifierMixin, _SparseGP):
    r"""Gaussian process classification on few inducing inputs by Laplace's method (SPGPC and its rivals).

    The classes' probability is the logistic (or softmax) function of latent functions whose prior is sparse; the
    posterior is a Gaussian at its mode f̂, and kernel and inducing inputs maximise the evidence

    .. math:: \log q(y) = \log p(y|\hat f) - \tfrac12 \hat f^\top C^{-1}\hat f
        - \tfrac12 \log|I + W^{1/2} C W^{1/2}|, \qquad C = Q + \alpha\,\mathrm{diag}(K - Q).

    Parameters
    ----------
    n_inducing, approximation, inducing, optimize_inducing, optimize_kernel, kernel, ard : as in `SparseGPRegressor`
        There is no noise; "variational" is not offered, since Laplace's evidence is no bound. A named kernel is tuned
        on class codes first, then by Laplace's evidence.
    multi_class : "one_vs_rest" or "softmax"
        One binary model per class, each with its own kernel and inducing inputs, as in the thesis; or one joint model
        with a softmax likelihood (ours).
    tuning_rows, max_iter, tol, time_budget : as in `SparseGPRegressor`
    scale_inputs, device, dtype, memory_limit, random_state, verbose, callbacks : as everywhere

    Attributes
    ----------
    classes_ : the classes
    basis_, kernel_, relevance_ : as in `SparseGPRegressor`; a list (or rows) of one per class under one-vs-rest
    log_marginal_likelihood_ : Laplace's evidence, summed over one-vs-rest models
    stop_reason_ : why the search ended, in words

    References
    ----------
    M. Li, "Sparse Gaussian processes and mixtures of radial basis functions", thesis (2009), chapter 5.
    C. E. Rasmussen and C. K. I. Williams, "Gaussian Processes for Machine Learning" (2006), chapter 3.

    Examples
    --------
    >>> from mercer import SparseGPClassifier
    >>> from mercer.datasets import make_ripley
    >>> X, y = make_ripley(250, random_state=0)
    >>> X_test, y_test = make_ripley(1000, random_state=1)
    >>> model = SparseGPClassifier(8, random_state=0).fit(X, y)
    >>> bool(model.score(X_test, y_test) > 0.88), model.predict_proba(X_test).shape
    (True, (1000, 2))
    """

    def __init__(
        self,
        n_inducing: int = 100,
        *,
        approximation: Any = "spgp",
        inducing: Any = "k-means++",
        optimize_inducing: bool | str = "auto",
        optimize_kernel: bool | str = "auto",
        multi_class: str = "one_vs_rest",
        kernel: Any = "auto",
        ard: bool | str = "auto",
        tuning_rows: int = 1000,
        max_iter: int = 50,
        tol: float = 1e-6,
        time_budget: float | None = None,
        scale_inputs: bool = True,
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
            tol=tol, time_budget=time_budget, scale_inputs=scale_inputs, device=device, dtype=dtype,
            memory_limit=memory_limit, random_state=random_state, verbose=verbose, callbacks=callbacks,
        )  # fmt: skip
        self.multi_class = multi_class

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> SparseGPClassifier:
        """Fit to rows `X` (array, frame, tensor, file or row source) and classes `y`."""
        approximation = self._require_parameters()
        choices = ("one_vs_rest", "softmax")
        require(self.multi_class in choices, "multi_class", f"one of {list(choices)}", self.multi_class)
        require(not approximation.bound, "approximation", "other than 'variational' for classes", self.approximation)
        source, y, weight = self._read(X, y, sample_weight)
        check_classification_targets(y)
        self.classes_ = np.unique(y[weight > 0])
        if len(self.classes_) < 2:
            raise ValueError(f"y must hold at least 2 classes, got 1 class: {self.classes_[0]!r}")
        self._coding = ClassTargets(self.classes_)
        source, Y, weight, original = self._merge(source, self._coding.encode(y), weight)
        rng = check_random_state(self.random_state)
        data = self._data(source, Y, weight, approximation)
        joint = self.multi_class == "softmax" or Y.shape[1] == 1
        tasks = [data] if joint else [replace(data, Y=data.Y[:, [c]]) for c in range(Y.shape[1])]
        models = [self._one(task, approximation, rng) for task in tasks]
        self._store([replace(m, posterior=_on_host(m.posterior)) for m in models])
        self.basis_indices_ = [original[m.index] for m in models] if len(models) > 1 else original[models[0].index]
        return self

    def _one(self, data: Rows, approximation: Approximation, rng: Any) -> Fitted:
        """One binary model, or one joint model of several classes."""
        if approximation.dense:  # the model sees these rows alone
            m = data.rows.n_rows if approximation.short_name == "full" else self.n_inducing
            index = self._inducing_rows(data, as_kernel("gaussian"), 0.1, m, rng)
            data = data.part(index)
            kernel, Z = self._first_kernel(data, rng), data.rows.take(np.arange(len(index)))
        else:
            kernel = self._first_kernel(data, rng)
            index, Z = self._start(data, kernel, 0.1, self.n_inducing, rng)
        data.plan.require_square(len(Z) * data.Y.shape[1])
        free = ({"kernel"} if self._tunes() else set()) | ({"basis"} if self._moves(approximation) else set())
        # on rows of their own, Q is K and the projected process is the full one
        prior = ProjectedProcess() if approximation.dense else approximation
        likelihood = Bernoulli() if data.Y.shape[1] == 1 else Categorical()

        def evidence(rows: Rows) -> LaplaceEvidence:
            return LaplaceEvidence(
                rows.rows, rows.Y, rows.weight, rows.plan, likelihood, prior, inputs="basis" in free
            )  # fmt: skip

        at = self._search(evidence, Point(kernel, 1.0, Z), data, free, rng)
        posterior, value = evidence(data).posterior(at.kernel, at.basis)
        return Fitted(at.kernel, 0.0, posterior, value, index, at.why, at.n_iter)

    def _first_kernel(self, data: Rows, rng: Any) -> Kernel:
        if not (isinstance(self.kernel, str) and self._tunes()):
            return as_kernel("gaussian" if self.kernel == "auto" else self.kernel)
        weight = data.weight.cpu().numpy()
        alive = np.flatnonzero(weight > 0)
        chosen = alive if len(alive) <= self.tuning_rows else rng.choice(alive, self.tuning_rows, replace=False)
        some = data.part(chosen)
        tuned = tune_kernel(
            some.rows.take(np.arange(len(chosen))), some.Y, self.kernel, sample_weight=weight[chosen],
            n_rows=self.tuning_rows, ard=self.ard, max_iter=50, device=data.plan.device, random_state=rng,
        )  # fmt: skip
        outer = {k: LATENT_VARIANCE * max(v, 1e-2) for k, v in tuned.kernel.tunable().items() if k.endswith("variance")}
        return tuned.kernel.replaced(outer)

    def latent_mean_and_covariance(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Means (n × c) and covariances (n × c × c) of the latent functions; one of them for two classes."""
        check_is_fitted(self)
        found = [self._moments(X, model) for model in self._models]
        if len(found) == 1:
            return found[0]
        variances = np.stack([cov[:, 0, 0] for _, cov in found], 1)
        return np.concatenate([mean for mean, _ in found], 1), variances[:, :, None] * np.eye(len(found))

    def decision_function(self, X: Any) -> np.ndarray:
        """Log odds of the averaged probabilities: one number for two classes, one column per class for more."""
        p = self.predict_proba(X)
        odds = np.log(np.clip(p, 1e-300, 1.0)) - np.log(np.clip(1 - p, 1e-16, 1.0))
        return odds[:, 1] if p.shape[1] == 2 else odds

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities averaged over the posterior (eq. 4.11), in the order of `classes_`."""
        check_is_fitted(self)
        mean, cov = self.latent_mean_and_covariance(X)
        if self.multi_class == "softmax" and mean.shape[1] > 1:
            return _mean_softmax(mean, cov)
        p = _mean_logistic(mean, np.diagonal(cov, axis1=1, axis2=2))
        return np.concatenate([1 - p, p], 1) if p.shape[1] == 1 else p / p.sum(1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row."""
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(1)]


def _mean_logistic(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """E σ(f), f ~ N(mean, variance), by Gauss–Hermite quadrature; kept off zero, so that classes can be compared."""
    nodes, weights = roots_hermitenorm(NODES)
    values = expit(mean[..., None] + np.sqrt(variance)[..., None] * nodes) @ (weights / weights.sum())
    return np.clip(values, 1e-300, 1.0)


def _mean_softmax(mean: np.ndarray, cov: np.ndarray) -> np.ndarray:
    """E softmax(f) over a fixed set of quasi-random normal draws, the same for every row."""
    points = qmc.Sobol(mean.shape[1], scramble=True, seed=0).random(DRAWS)
    normal = norm.ppf(np.clip(points, 1e-9, 1 - 1e-9))
    values, vectors = np.linalg.eigh(cov)
    roots = vectors * np.sqrt(np.clip(values, 0, None))[:, None, :]
    out = np.zeros_like(mean)
    for z in normal:
        f = mean + roots @ z
        e = np.exp(f - f.max(1, keepdims=True))
        out += e / e.sum(1, keepdims=True)
    return out / out.sum(1, keepdims=True)
