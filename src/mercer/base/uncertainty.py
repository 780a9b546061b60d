"""Uncertainty of predictions in parts: noise of targets, uncertainty of the function, distance from the rows of fit.

For classes with probabilities p(f) of functions f that are known up to a Gaussian, the entropy of the mean
probabilities has two parts: the mean entropy of p(f), which is noise, and the mutual information of class and f, which
more rows would lower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import entr
from scipy.stats import norm, qmc
from sklearn.utils.validation import check_is_fitted

from mercer.base.intervals import IntervalRegressor
from mercer.data import RowSource, SparseRows
from mercer.parts import require
from mercer.preprocessing.read import read_new

#: Levels of the quantiles of scores that are a standard deviation below and above the mean of normal ones.
ONE_DEVIATION = norm.cdf([-1.0, 1.0])
#: The share of the rows of a fit within their reach: rows beyond it are far from them.
WITHIN = 0.99
#: The least mean curvature of a loss: that of probabilities of 1e-6.
LEAST_CURVATURE = 1e-6
#: Draws that average over functions.
DRAWS = 512


def normal_draws(n_classes: int) -> np.ndarray:
    """Quasi-random normal draws (draws × classes), the same at every call."""
    points = qmc.Sobol(n_classes, scramble=True, seed=0).random(DRAWS)
    return norm.ppf(np.clip(points, 1e-9, 1 - 1e-9))


def split_entropy(draws: Iterator[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean entropy, mutual information and entropy of the mean, from draws of probabilities (… × C each).

    >>> certain = [np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])]
    >>> [float(part[0].round(3)) for part in split_entropy(iter(certain))]
    [0.0, 0.693, 0.693]
    """
    first = next(draws)
    n_draws, sum_p, sum_entropy = 1, first.copy(), entr(first).sum(-1)
    for p in draws:
        n_draws += 1
        sum_p += p
        sum_entropy += entr(p).sum(-1)
    noise, total = sum_entropy / n_draws, entr(sum_p / n_draws).sum(-1)
    return noise, np.maximum(total - noise, 0.0), total


@dataclass(frozen=True)
class Uncertainty:
    """Parts of the uncertainty of predictions, and how far rows are from those of the fit.

    Attributes
    ----------
    noise : ndarray of shape (n,) or (n, p)
        Standard deviation of targets around the function, which more rows would not lower; in units of the target. For
        classes the mean entropy of the probabilities, in nats.
    model : ndarray of shape (n,) or (n, p)
        Standard deviation of the function itself, which more rows near x would lower. For classes the mutual
        information of class and function.
    total : ndarray of shape (n,) or (n, p)
        Standard deviation of new targets, √(noise² + model²). For classes the entropy of the mean probabilities, noise
        + model.
    distance : ndarray of shape (n,)
        Distance to the nearest basis vector as the kernel sees it; 99 % of the basis vectors are nearer than 1 to
        another one. NaN where the kernel has no distance or there are fewer than ten basis vectors. For mixtures the
        Mahalanobis distance from the nearest gate; 99 % of the training rows are nearer than 1.
    outside : ndarray of shape (n,)
        Whether the distance is above 1: the model extrapolates.
    """

    noise: np.ndarray
    model: np.ndarray
    total: np.ndarray
    distance: np.ndarray
    outside: np.ndarray


class UncertainRegressor(IntervalRegressor):
    """A regressor whose uncertainty has parts; its `_noise_and_model(X)` returns both, n × p, in coded units."""

    _noise_and_model: Callable[[Any], tuple[np.ndarray, np.ndarray]]
    #: Distance of rows from those of `fit`, in units of the distance that is usual among these.
    _relative_distances: Callable[[RowSource], np.ndarray]

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Uncertainty of predictions in parts: noise of targets, the function itself, distance from the basis vectors.

        The noise is estimated from held-out residuals, like `predict_interval`, and follows their local size; it is
        that of rows of the mean `sample_weight`. The standard deviation of the function is that of a Gaussian process
        with this kernel, noise and basis vectors. It is exact for Gaussian processes and for exact solutions; for
        models of fewer basis vectors these stand for all rows. It grows with the distance from the rows of `fit`, where
        intervals promise nothing. Mixtures have that of their output weights, with the gates taken as known.

        Examples
        --------
        >>> import numpy as np
        >>> from mercer import KernelBoostingRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-2, 2, (300, 1))
        >>> y = np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=300)
        >>> model = KernelBoostingRegressor(kernel="gaussian", random_state=0).fit(X, y)
        >>> found = model.predict_uncertainty([[0.0], [5.0]])
        >>> found.outside.tolist(), bool(found.model[1] > 3 * found.model[0])
        ([False, True], True)
        >>> bool(0.15 < found.noise[0] < 0.25)
        True
        """
        check_is_fitted(self)
        source = read_new(self, X)
        require(not isinstance(source, SparseRows), "X", "dense for predict_uncertainty", "a wide sparse matrix")
        noise, model = (self.targets_.scale * part for part in self._noise_and_model(X))
        if self.targets_.flat:
            noise, model = noise[:, 0], model[:, 0]
        distance = self._relative_distances(source)
        return Uncertainty(noise, model, np.hypot(noise, model), distance, distance > 1)

    def _score_deviation(self) -> np.ndarray:
        """Standard deviation of the scores of held-out residuals, for each output."""
        low, high = self.intervals_.quantiles(ONE_DEVIATION).T
        return (high - low) / 2


class ClassUncertaintyMixin:
    """The method `predict_uncertainty` of classifiers.

    Their `_probability_draws(X)` yields probabilities (n × C) of functions that are drawn.
    """

    _probability_draws: Callable[[Any], Iterator[np.ndarray]]
    _relative_distances: Callable[[RowSource], np.ndarray]

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Uncertainty of classes in parts: entropy of the noise and of the model, distance from the basis vectors.

        The entropy of the probabilities (in nats) is noise, which more rows would not lower, plus the mutual
        information of class and function. The function is a Gaussian process with this kernel, penalty and basis
        vectors, which stand for all rows if they are fewer. Entropies are means over 512 fixed draws. Where rows have
        several labels, each label has its own, n × L.

        Examples
        --------
        >>> from mercer import KernelBoostingClassifier
        >>> from mercer.datasets import make_ripley
        >>> X, y = make_ripley(250, random_state=0)
        >>> model = KernelBoostingClassifier(kernel="gaussian", random_state=0).fit(X, y)
        >>> found = model.predict_uncertainty([[-0.7, 0.3], [9.0, 9.0]])
        >>> found.outside.tolist(), bool(found.model[1] > 3 * found.model[0])
        ([False, True], True)
        """
        check_is_fitted(self)
        source = read_new(self, X)
        require(not isinstance(source, SparseRows), "X", "dense for predict_uncertainty", "a wide sparse matrix")
        noise, model, total = split_entropy(self._probability_draws(X))
        distance = self._relative_distances(source)
        return Uncertainty(noise, model, total, distance, distance > 1)
