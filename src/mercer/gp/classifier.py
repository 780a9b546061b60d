"""Sparse Gaussian process classification: `SparseGPClassifier` (Thesis09, chapter 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mercer.base.classifier import WeighsClasses
from mercer.base.estimator import estimator_dataclass, to_numpy
from mercer.base.parameters import integer, literal
from mercer.clock import Clock
from mercer.engine.sample import Sample
from mercer.evidence.approximations import Approximation, ProjectedProcess
from mercer.evidence.coordinates import Point
from mercer.evidence.laplace import LaplaceEvidence
from mercer.evidence.starts import plain_kernel
from mercer.gp.averages import mean_logistic, mean_softmax
from mercer.gp.estimator import SparseGP
from mercer.gp.family import best_family
from mercer.gp.model import FittedGP, shown
from mercer.gp.task import GPTask
from mercer.gp.timed_rows import FinalPass, in_words
from mercer.kernels import Kernel, Scaled, as_kernel
from mercer.losses import Logistic, Softmax
from mercer.parts import require
from mercer.preprocessing.duplicates import merged
from mercer.preprocessing.read import TableData
from mercer.preprocessing.targets import ClassTargets

#: Latent amplitudes are larger than class codes of ±1: the logistic function is still 0.12 at 2.
LATENT_VARIANCE = 4.0


@estimator_dataclass
class SparseGPClassifier(WeighsClasses, ClassifierMixin, SparseGP):
    r"""Gaussian process classification on few inducing inputs by Laplace's method (SPGPC and its rivals).

    The classes' probability is the logistic (or softmax) function of latent functions whose prior is sparse; the
    posterior is a Gaussian at its mode f̂, and kernel and inducing inputs maximise the evidence

    .. math:: \log q(y) = \log p(y|\hat f) - \tfrac12 \hat f^\top C^{-1}\hat f
        - \tfrac12 \log|I + W^{1/2} C W^{1/2}|, \qquad C = Q + \alpha\,\mathrm{diag}(K - Q).

    There is no noise; "variational" is not offered, since Laplace's evidence is no bound. A radial kernel by name
    starts plain (length-scales √(D/2)); "auto" takes the family with most evidence after a few steps. Under
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
    >>> bool(model.score(X_test, y_test) > 0.88), model.predict_proba(X_test).shape
    (True, (1000, 2))
    """

    n_inducing: Annotated[int, integer()] = 100
    _: KW_ONLY
    multi_class: Annotated[str, literal("one_vs_rest", "softmax")] = "one_vs_rest"
    max_iter: Annotated[int, integer(0)] = 50

    _classes: ClassVar[bool] = True

    def _fitted(self, given: TableData, approximation: Approximation, clock: Clock) -> dict[str, Any]:
        """All that a fit of this table leaves behind."""
        targets = ClassTargets.of(given.y, given.weight, given.shard)
        given, Y = merged(given, targets.encode(given.y))
        inputs, task = self._task(given, Y, approximation, clock, relative=self._tunes())
        models = [to_numpy(self._model(one)) for one in self._shares(task)]
        return {**shown(models, given, inputs, task.data.plan), "targets_": targets, "classes_": targets.classes}

    def _prior(self) -> Approximation:
        approximation = super()._prior()
        require(not approximation.bound, "approximation", "other than 'variational' for classes", self.approximation)
        return approximation

    def _shares(self, task: GPTask) -> Iterator[GPTask]:
        """One task for all classes together, or one for each of them with an equal share of the time left."""
        p = task.data.Y.shape[1]
        if self.multi_class == "softmax" or p == 1:
            yield task
            return
        for c in range(p):
            yield replace(task, data=replace(task.data, Y=task.data.Y[:, [c]]), clock=task.clock.part(1 / (p - c)))

    def _model(self, task: GPTask) -> FittedGP:
        """One binary model, or one joint model of several classes."""
        if not task.approximation.dense:
            return self._searched(task)
        again = 0 if task.approximation.short_name == "sd" else task.n_restarts

        def fitted(index: np.ndarray) -> FittedGP:
            some = task.data.part(index)
            Z = some.rows.take(np.arange(len(index)))
            # on rows of their own, Q is K and the projected process is the full one
            alone = replace(task, data=some, approximation=ProjectedProcess(), inducing=Z, n_restarts=again)
            return replace(self._searched(alone), index=index)

        return task.best_subset(fitted, log_density, self._choosing_kernel())

    def _searched(self, task: GPTask) -> FittedGP:
        """Kernel and inducing inputs where the evidence leads them."""
        data, clock = task.data, task.clock
        free = ({"kernel"} if self._tunes() else set()) | ({"basis"} if self._moves(task.approximation) else set())
        loss = Logistic() if data.Y.shape[1] == 1 else Softmax()

        known: dict[str, Tensor] = {}

        def evidence(rows: Sample) -> LaplaceEvidence:
            return LaplaceEvidence(rows, loss, task.approximation, inputs="basis" in free, known=known)

        kernel = self._first_kernel(task, evidence, free)
        last = FinalPass.timed(lambda rows, Z: evidence(rows).posterior(kernel, Z), task.n_inducing, data, clock)
        start = Point(kernel, groups=data.groups)
        index, at = self._search(task, evidence, start, free, last.before(clock, data.n_total))
        rows = last.rows(data, clock, task.rng)
        assert at.basis is not None
        posterior, value = evidence(rows).posterior(at.kernel, at.basis)
        return FittedGP(at.kernel, 0.0, posterior, value, index, in_words(at.why, rows, data), at.n_iter)

    def _first_kernel(self, task: GPTask, evidence: Callable[[Sample], LaplaceEvidence], free: set[str]) -> Kernel:
        """Where the search starts: plain for a kernel by name, or ("auto") the winner of a race of families."""
        if not (isinstance(self.kernel, str) and self._tunes()):
            return self._plain_kernel()
        data = task.data
        if self.kernel == "auto":
            shared: dict[str, Any] = {"free": free, "length_scale_prior": self.length_scale_prior}
            return best_family(task, evidence, _latent, self.ard, self.tuning_rows, **shared)
        plain = plain_kernel(self.kernel, data.rows, data.weight, lambda: as_kernel(self.kernel), self.ard)
        return _latent(Scaled(as_kernel(self.kernel)) if plain is None else plain)

    def latent_mean_and_covariance(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Means (n × c) and covariances (n × c × c) of the latent functions; one of them for two classes."""
        check_is_fitted(self)
        found = self._moments(X)
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
            return mean_softmax(mean, cov)
        p = mean_logistic(mean, np.diagonal(cov, axis1=1, axis2=2))
        return np.concatenate([1 - p, p], 1) if p.shape[1] == 1 else p / p.sum(1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row."""
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(1)]


def _latent(kernel: Kernel) -> Kernel:
    """A kernel for class codes as one for latent functions."""
    outer = {k: LATENT_VARIANCE * max(v, 1e-2) for k, v in kernel.tunable().items() if k.endswith("variance")}
    return kernel.replaced(outer)


def log_density(model: FittedGP, data: Sample) -> float:
    """Log probability of the classes of rows that the model has not seen."""
    moments = model.posterior.moments(model.kernel, data.rows, data.plan)
    mean, cov = (part.cpu().numpy() for part in moments)
    Y, weight = data.Y.cpu().numpy(), data.weight.cpu().numpy()
    if mean.shape[1] == 1:
        return float(weight @ np.log(mean_logistic(Y * mean, cov[:, 0]))[:, 0])
    p = np.clip(mean_softmax(mean, cov), 1e-300, 1.0)
    return float((weight[:, None] * np.where(Y > 0, np.log(p), 0.0)).sum())
