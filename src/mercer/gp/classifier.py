"""Sparse Gaussian process classification: `SparseGPClassifier` (Thesis09, chapter 5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import expit, roots_hermitenorm
from scipy.stats import norm, qmc
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from mercer.border.targets import ClassTargets
from mercer.engine.sample import Sample
from mercer.evidence.approximations import Approximation, ProjectedProcess
from mercer.evidence.clock import Clock
from mercer.evidence.coordinates import LENGTH_SCALE_PRIOR, Point
from mercer.evidence.laplace import LaplaceEvidence
from mercer.evidence.starts import plain_kernel
from mercer.gp.estimator import FittedGP, SparseGP, on_host
from mercer.gp.family import best_family
from mercer.gp.final_pass import FinalPass, in_words
from mercer.gp.search import Place
from mercer.kernels import Kernel, Scaled, as_kernel
from mercer.losses import Logistic, Softmax
from mercer.parts import require

#: Latent amplitudes are larger than class codes of ±1: the logistic function is still 0.12 at 2.
LATENT_VARIANCE = 4.0
#: Nodes of the Gauss–Hermite rule that averages a logistic function, and draws that average a softmax.
NODES, DRAWS = 64, 512


class SparseGPClassifier(ClassifierMixin, SparseGP):
    r"""Gaussian process classification on few inducing inputs by Laplace's method (SPGPC and its rivals).

    The classes' probability is the logistic (or softmax) function of latent functions whose prior is sparse; the
    posterior is a Gaussian at its mode f̂, and kernel and inducing inputs maximise the evidence

    .. math:: \log q(y) = \log p(y|\hat f) - \tfrac12 \hat f^\top C^{-1}\hat f
        - \tfrac12 \log|I + W^{1/2} C W^{1/2}|, \qquad C = Q + \alpha\,\mathrm{diag}(K - Q).

    Parameters
    ----------
    n_inducing, approximation, inducing, optimize_inducing, optimize_kernel, kernel, ard : as in `SparseGPRegressor`
        There is no noise; "variational" is not offered, since Laplace's evidence is no bound. A radial kernel by
        name starts plain (length-scales √(D/2)); "auto" takes the family with most evidence after a few steps.
    multi_class : "one_vs_rest" or "softmax"
        One binary model per class, each with its own kernel and inducing inputs, as in the thesis; or one joint model
        with a softmax likelihood (ours).
    tuning_rows : int
        Rows on which families are compared.
    max_iter, tol, length_scale_prior, n_restarts, time_budget : as in `SparseGPRegressor`
    scale_inputs, device, dtype, memory_limit, random_state, verbose, callbacks : as in `SparseGPRegressor`

    Attributes
    ----------
    classes_ : the classes
    basis_, kernel_, relevance_ : as in `SparseGPRegressor`; a list (or rows) of one per class under one-vs-rest
    log_marginal_likelihood_ : Laplace's evidence, summed over one-vs-rest models
    stop_reason_ : why the search ended, in words

    References
    ----------
    Ma Li, "Computationally efficient models for high-dimensional and large-scale classification problems", thesis
    (2009), chapter 5.
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
        self.multi_class = multi_class

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> SparseGPClassifier:
        """Fit to rows `X` (array, frame, tensor, file or row source) and classes `y`."""
        approximation = self._require_parameters()
        choices = ("one_vs_rest", "softmax")
        require(self.multi_class in choices, "multi_class", f"one of {list(choices)}", self.multi_class)
        require(not approximation.bound, "approximation", "other than 'variational' for classes", self.approximation)
        clock = Clock(self.time_budget)
        source, y, weight = self._read(X, y, sample_weight)
        check_classification_targets(y)
        self.classes_ = np.unique(y[weight > 0])
        if len(self.classes_) < 2:
            raise ValueError(f"y must hold at least 2 classes, got 1 class: {self.classes_[0]!r}")
        self._coding = ClassTargets(self.classes_)
        source, Y, weight, original = self._merge(source, self._coding.encode(y), weight)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        data = self._data(source, Y, weight, approximation, relative=self._tunes())
        joint = self.multi_class == "softmax" or Y.shape[1] == 1
        tasks = [data] if joint else [replace(data, Y=data.Y[:, [c]]) for c in range(Y.shape[1])]
        models = [
            self._one(task, approximation, rng, clock.part(1 / (len(tasks) - done))) for done, task in enumerate(tasks)
        ]
        self._store([replace(m, posterior=on_host(m.posterior)) for m in models])
        self.basis_indices_ = [original[m.index] for m in models] if len(models) > 1 else original[models[0].index]
        return self

    def _one(self, data: Sample, approximation: Approximation, rng: np.random.Generator, clock: Clock) -> FittedGP:
        """One binary model, or one joint model of several classes."""
        if not approximation.dense:
            return self._searched(data, approximation, self._place(data, rng), rng, clock, self._moves(approximation))

        def fitted(index: np.ndarray) -> FittedGP:
            some = data.part(index)
            Z = some.rows.take(np.arange(len(index)))
            again = 0 if approximation.short_name == "sd" else None
            # on rows of their own, Q is K and the projected process is the full one
            model = self._searched(some, ProjectedProcess(), lambda *_: (index, Z), rng, clock, False, again)
            return replace(model, index=index)

        return self._best_subset(fitted, log_density, data, approximation, rng)

    def _searched(
        self,
        data: Sample,
        approximation: Approximation,
        place: Place,
        rng: np.random.Generator,
        clock: Clock,
        moves: bool,
        n_restarts: int | None = None,
    ) -> FittedGP:
        """Kernel and inducing inputs where the evidence leads them."""
        free = ({"kernel"} if self._tunes() else set()) | ({"basis"} if moves else set())
        loss = Logistic() if data.Y.shape[1] == 1 else Softmax()

        def evidence(rows: Sample) -> LaplaceEvidence:
            return LaplaceEvidence(rows, loss, approximation, inputs="basis" in free)

        kernel = self._first_kernel(evidence, data, free, rng, clock)
        last = FinalPass.timed(lambda rows, Z: evidence(rows).posterior(kernel, Z), self.n_inducing, data, clock)
        before = last.before(clock, data.rows.n_rows)
        index, at = self._search(evidence, Point(kernel), place, data, free, rng, before, n_restarts)
        rows = last.rows(data, clock, rng)
        assert at.basis is not None
        posterior, value = evidence(rows).posterior(at.kernel, at.basis)
        return FittedGP(at.kernel, 0.0, posterior, value, index, in_words(at.why, rows, data), at.n_iter)

    def _first_kernel(
        self,
        evidence: Callable[[Sample], LaplaceEvidence],
        data: Sample,
        free: set[str],
        rng: np.random.Generator,
        clock: Clock,
    ) -> Kernel:
        """Where the search starts: plain for a kernel by name, or ("auto") the winner of a race of families."""
        if not (isinstance(self.kernel, str) and self._tunes()):
            return as_kernel("gaussian" if self.kernel == "auto" else self.kernel)
        if self.kernel == "auto":
            shared: dict[str, Any] = {"free": free, "length_scale_prior": self.length_scale_prior}
            return best_family(evidence, data, _latent, self.ard, self.tuning_rows, rng, clock, **shared)
        plain = plain_kernel(self.kernel, data.rows, data.weight, lambda: as_kernel(self.kernel), self.ard)
        return _latent(Scaled(as_kernel(self.kernel)) if plain is None else plain)

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


def _latent(kernel: Kernel) -> Kernel:
    """A kernel for class codes as one for latent functions."""
    outer = {k: LATENT_VARIANCE * max(v, 1e-2) for k, v in kernel.tunable().items() if k.endswith("variance")}
    return kernel.replaced(outer)


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


def log_density(model: FittedGP, data: Sample) -> float:
    """Log probability of the classes of rows that the model has not seen."""
    moments = model.posterior.moments(model.kernel, data.rows, data.plan)
    mean, cov = (part.cpu().numpy() for part in moments)
    Y, weight = data.Y.cpu().numpy(), data.weight.cpu().numpy()
    if mean.shape[1] == 1:
        return float(weight @ np.log(_mean_logistic(Y * mean, cov[:, 0]))[:, 0])
    p = np.clip(_mean_softmax(mean, cov), 1e-300, 1.0)
    return float((weight[:, None] * np.where(Y > 0, np.log(p), 0.0)).sum())
