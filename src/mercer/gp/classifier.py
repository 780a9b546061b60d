"""Sparse Gaussian process classification: `SparseGPClassifier` (Thesis09, chapter 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from scipy.special import expit, roots_hermitenorm, softmax
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mercer.base.calibration import class_indices
from mercer.base.classifier import SetClassifier, fit_set_scores
from mercer.base.estimator import estimator_dataclass, to_numpy
from mercer.base.parameters import integer, literal
from mercer.base.probability_calibration import (
    LARGEST_EXPONENT,
    LabelledProbabilities,
    PowerAndBias,
    fit_power_and_bias,
    log_probabilities,
)
from mercer.base.uncertainty import ClassUncertaintyMixin, normal_draws
from mercer.clock import Clock
from mercer.engine.plan import Sample
from mercer.evidence.approximations import Approximation, ProjectedProcess
from mercer.evidence.coordinates import Evidence, Point
from mercer.evidence.laplace import LaplaceEvidence
from mercer.evidence.posterior import Posterior
from mercer.gp.estimator import InducingDistances, SparseGP
from mercer.gp.leave_one_out import CALIBRATION_ROWS, leave_one_out_latent
from mercer.gp.model import FittedGP, fitted_attributes
from mercer.gp.svgp import Likelihood, StochasticEvidence
from mercer.gp.task import GPTask
from mercer.kernels import Kernel
from mercer.losses import class_likelihood
from mercer.parts import require
from mercer.preprocessing.duplicates import merged
from mercer.preprocessing.inputs import ClassTargets
from mercer.preprocessing.read import TableData

#: Latent amplitudes are larger than class codes of ±1: the logistic function is still 0.12 at 2.
LATENT_VARIANCE = 4.0
#: Nodes of the Gauss–Hermite rule that averages a logistic function.
NODES = 64
#: The least pivot of a covariance as a share of its diagonal: smaller pivots are rounding errors.
LEAST_PIVOT = 1e-9


@estimator_dataclass
class SparseGPClassifier(InducingDistances, ClassUncertaintyMixin, SetClassifier, SparseGP):
    r"""Gaussian process classification on few inducing inputs by Laplace's method (SPGPC and its rivals).

    The classes' probability is the logistic (or softmax) function of latent functions whose prior is sparse; the
    posterior is a Gaussian at its mode f̂, and kernel and inducing inputs maximise the evidence

    .. math:: \log q(y) = \log p(y|\hat f) - \tfrac12 \hat f^\top C^{-1}\hat f
        - \tfrac12 \log|I + W^{1/2} C W^{1/2}|, \qquad C = Q + \alpha\,\mathrm{diag}(K - Q).

    There is no noise; "variational" is not offered, since Laplace's evidence is no bound. ``approximation="svgp"``
    replaces Laplace's method by a variational posterior, whose bound takes random batches of rows. A radial kernel by
    name starts plain (length-scales √(D/2)); "auto" takes the family with most evidence after a few steps. Under
    one-vs-rest, what is kept of each class's model is a list (`relevance_`: rows) in the order of `classes_`, and
    evidences are summed.

    Parameters
    ----------
    multi_class : "one_vs_rest" or "softmax", default "one_vs_rest"
        One binary model per class, each with its own kernel and inducing inputs, as in the thesis; or one joint model
        with a softmax likelihood (ours).

    Attributes
    ----------
    classes_ : ndarray
        The classes.
    calibration_ : PowerAndBias
        Map of the averaged probabilities to those of `predict_proba`, fitted to at most 2000 rows that are left out in
        closed form, kernel and inducing inputs being those of the model.

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
    >>> model = SparseGPClassifier(8, kernel="gaussian", random_state=0).fit(X, y)
    >>> print(f"accuracy {model.score(X_test, y_test):.1f}")
    accuracy 0.9
    >>> model.predict_proba(X_test).shape
    (1000, 2)
    """

    n_inducing: Annotated[int, integer()] = 100
    _: KW_ONLY
    multi_class: Annotated[str, literal("one_vs_rest", "softmax")] = "one_vs_rest"
    max_iter: Annotated[int, integer(0)] = 50

    _is_classifier: ClassVar[bool] = True

    def _fitted(self, given: TableData, approximation: Approximation, clock: Clock) -> dict[str, Any]:
        """Fit to the table and return the fitted attributes."""
        targets = ClassTargets.of(given.y, given.weight, given.shard)
        given, Y = merged(given, targets.encode(given.y))
        inputs, task = self._task(given, Y, approximation, clock, relative=self._tunes())
        fit = self._dense if approximation.dense else self._sparse
        models = [to_numpy(fit(class_task)) for class_task in self._class_tasks(task)]
        attributes = fitted_attributes(models, given, inputs, task.data.plan)
        calibrated = self._calibrated(task, models)
        return {**attributes, **calibrated, "targets_": targets, "classes_": targets.classes}

    def _calibrated(self, task: GPTask, models: list[FittedGP]) -> dict[str, Any]:
        """Calibration and set scores, from rows that are left out in closed form, or were not in the subset.

        The kernels have seen these rows, so they may not sharpen the probabilities of one model. Those of several
        one-versus-rest models are too flat once they are scaled to sum one.
        """
        index = task.data.spaced(CALIBRATION_ROWS)
        part = task.data.part(index)
        dense, columns = task.approximation.dense, part.Y.split(part.Y.shape[1] // len(models), dim=1)
        found = []
        for model, Y in zip(models, columns, strict=True):
            fitted = torch.as_tensor(np.isin(index, model.index) if dense else np.ones(len(index)))
            rows = replace(part, Y=Y, weight=part.weight * fitted.to(part.weight))
            alpha = 0.0 if dense else task.approximation.alpha
            dispersion = 1.0 if task.approximation.stochastic else None
            moments = leave_one_out_latent(model, alpha, rows, class_likelihood(Y.shape[1]), dispersion=dispersion)
            found.append(to_numpy(moments))
        log_p = log_probabilities(self._probabilities(*_joined(found)))
        true, weight = class_indices(part.Y.cpu().numpy()), part.weight.double().cpu().numpy()
        largest = LARGEST_EXPONENT if len(models) > 1 else 1.0
        link = fit_power_and_bias(LabelledProbabilities(log_p, true, weight), largest)
        return {"calibration_": link, "set_scores_": fit_set_scores(link.probabilities(log_p), true, weight)}

    def _prior(self) -> Approximation:
        approximation = super()._prior()
        offered = not approximation.bound or approximation.stochastic
        require(offered, "approximation", "other than 'variational' for classes", self.approximation)
        single = self.multi_class == "one_vs_rest" or not approximation.stochastic
        require(single, "multi_class", "'one_vs_rest' where approximation is 'svgp'", self.multi_class)
        return approximation

    def _automatic(self) -> str:
        return "spgp"

    def _class_tasks(self, task: GPTask) -> Iterator[GPTask]:
        """One task for all classes together, or one for each of them with an equal share of the remaining time."""
        p = task.data.Y.shape[1]
        if self.multi_class == "softmax" or p == 1:
            yield task
            return
        for c in range(p):
            yield replace(task, data=replace(task.data, Y=task.data.Y[:, [c]]), clock=task.clock.part(1 / (p - c)))

    def _dense(self, task: GPTask) -> FittedGP:
        """The full model, on all rows or on a subset."""
        n_restarts = 0 if task.approximation.short_name == "sd" else task.n_restarts

        def fitted(index: np.ndarray) -> FittedGP:
            part = task.data.part(index)
            Z = part.rows.take(np.arange(len(index)))
            # inducing inputs at all rows make Q equal to K and the projected process equal to the full one
            full = replace(task, data=part, approximation=ProjectedProcess(), inducing=Z, n_restarts=n_restarts)
            return replace(self._sparse(full), index=index)

        return task.best_subset(fitted, log_density, self._choosing_kernel())

    def _sparse(self, task: GPTask) -> FittedGP:
        """Maximise the evidence over kernel and inducing inputs, then make a pass over all rows."""
        data = task.data
        free = ({"kernel"} if self._tunes() else set()) | ({"basis"} if self._moves(task.approximation) else set())
        loss = class_likelihood(data.Y.shape[1])
        known: dict[str, Tensor] = {}
        svgp = StochasticEvidence(Likelihood.of(loss, 1.0), "basis" in free) if task.approximation.stochastic else None

        def laplace(rows: Sample) -> LaplaceEvidence:
            return LaplaceEvidence(rows, loss, task.approximation, inputs="basis" in free, known=known)

        def posterior(rows: Sample, at: Point) -> tuple[Posterior, float]:
            assert at.basis is not None
            return laplace(rows).posterior(at.kernel, at.basis) if svgp is None else svgp.posterior(rows, at, task.rng)

        evidence: Callable[[Sample], Evidence] = laplace if svgp is None else svgp
        start = self._point(self._first_kernel(task, evidence, free, _latent), 1.0, data, noisy=False)
        model, _ = self._maximise(task, evidence, posterior, start, free)
        return replace(model, noise=0.0, predictive_noise=0.0)  # classes have none

    def latent_mean_and_covariance(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Means (n × c) and covariances (n × c × c) of the latent functions; one of them for two classes."""
        check_is_fitted(self)
        return _joined(self._moments(X))

    def decision_function(self, X: Any) -> np.ndarray:
        """Log odds of the averaged probabilities: one number for two classes, one column per class for more."""
        p = self.predict_proba(X)
        odds = np.log(np.clip(p, 1e-300, 1.0)) - np.log(np.clip(1 - p, 1e-16, 1.0))
        return odds[:, 1] if p.shape[1] == 2 else odds

    def predict_proba(self, X: Any) -> np.ndarray:
        """Calibrated averages of class probabilities over the posterior (eq. 4.11), in the order of `classes_`."""
        check_is_fitted(self)
        p = self._probabilities(*self.latent_mean_and_covariance(X))
        return self._calibration.probabilities(log_probabilities(p))

    @property
    def _calibration(self) -> PowerAndBias:
        """The calibration of the model; files of version 0.2 have none."""
        return getattr(self, "calibration_", PowerAndBias.identity(len(self.classes_)))

    def _probabilities(self, mean: np.ndarray, cov: np.ndarray) -> np.ndarray:
        if self.multi_class == "softmax" and mean.shape[1] > 1:
            return mean_softmax(mean, cov)
        p = mean_logistic(mean, np.diagonal(cov, axis1=1, axis2=2))
        return np.concatenate([1 - p, p], 1) if p.shape[1] == 1 else p / p.sum(1, keepdims=True)

    def _probability_draws(self, X: Any) -> Iterator[np.ndarray]:
        mean, cov = self.latent_mean_and_covariance(X)
        roots, several = lower_roots(cov), mean.shape[1] > 1
        for z in normal_draws(mean.shape[1]):
            f = mean + roots @ z
            if several and self.multi_class == "softmax":
                yield softmax(f, axis=1)
            else:
                p = np.maximum(expit(f), np.finfo(float).tiny)
                yield p / p.sum(1, keepdims=True) if several else np.concatenate([1 - p, p], 1)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row."""
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(1)]


def _joined(found: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Means and covariances of all latent functions, from those of one model or of independent ones."""
    if len(found) == 1:
        return found[0]
    variances = np.stack([cov[:, 0, 0] for _, cov in found], 1)
    return np.concatenate([mean for mean, _ in found], 1), variances[:, :, None] * np.eye(len(found))


def _latent(kernel: Kernel) -> Kernel:
    """A kernel for class codes as one for latent functions."""
    outer = {k: LATENT_VARIANCE * max(v, 1e-2) for k, v in kernel.tunable().items() if k.endswith("variance")}
    return kernel.replaced(outer)


def log_density(model: FittedGP, data: Sample) -> float:
    """Log probability of the classes of unseen rows."""
    moments = model.posterior.moments(model.kernel, data.rows, data.plan)
    mean, cov = (part.cpu().numpy() for part in moments)
    Y, weight = data.Y.cpu().numpy(), data.weight.cpu().numpy()
    if mean.shape[1] == 1:
        return float(weight @ np.log(mean_logistic(Y * mean, cov[:, 0]))[:, 0])
    p = np.clip(mean_softmax(mean, cov), 1e-300, 1.0)
    return float((weight[:, None] * np.where(Y > 0, np.log(p), 0.0)).sum())


# Averages over Gaussian latent functions (eq. 4.11): sums with fixed nodes and a factorisation without a choice of
# signs, so that a row has the same probabilities on every machine, and an ONNX graph can repeat them.


def hermite_rule() -> tuple[np.ndarray, np.ndarray]:
    """Nodes for a standard normal variable and their weights, which sum to one."""
    nodes, weights = roots_hermitenorm(NODES)
    return nodes, weights / weights.sum()


def mean_logistic(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """E σ(f), f ~ N(mean, variance), by Gauss–Hermite quadrature; never zero, so that classes can be compared."""
    nodes, weights = hermite_rule()
    values = expit(mean[..., None] + np.sqrt(variance)[..., None] * nodes) @ weights
    return np.clip(values, 1e-300, 1.0)


def mean_softmax(mean: np.ndarray, cov: np.ndarray) -> np.ndarray:
    """E softmax(f), f ~ N(mean, cov), over a fixed set of draws, the same for every row (n × c from n × c × c)."""
    roots, centre = lower_roots(cov), np.ascontiguousarray(mean.T)
    out = np.zeros_like(centre)  # c × n: NumPy is many times slower at maxima of a few adjacent numbers
    for z in normal_draws(mean.shape[1]):
        f = centre + (roots @ z).T
        e = np.exp(f - f.max(0))
        out += e / e.sum(0)
    return np.ascontiguousarray((out / out.sum(0)).T)


def lower_roots(cov: np.ndarray) -> np.ndarray:
    """Lower triangular L with L Lᵀ = cov for each of n covariances; rounding errors of singular ones add no column."""
    n, c = cov.shape[:2]
    L, rest = np.zeros((n, c, c)), np.array(cov, dtype=np.float64)
    for j in range(c):
        pivot = np.maximum(rest[:, j, j], np.maximum(LEAST_PIVOT * cov[:, j, j], np.finfo(np.float64).tiny))
        L[:, j:, j] = rest[:, j:, j] / np.sqrt(pivot)[:, None]
        rest -= L[:, :, j, None] * L[:, None, :, j]
    return L
