"""Uncertainty of classes, in parts: entropy of the probabilities, and of the functions behind them.

With probabilities p(f) of functions f that are known up to a Gaussian, the entropy of the mean probabilities has two
parts: the mean entropy of p(f), which is noise, and the mutual information of class and f, which more rows would lower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.special import entr
from scipy.stats import norm, qmc
from sklearn.utils.validation import check_is_fitted

from mercer.base.classifier import DecisionClassifier
from mercer.data import SparseRows, TensorRows
from mercer.engine import make_plan
from mercer.forward.expansion import Expansion, Objective, evaluate
from mercer.forward.uncertainty import FunctionVariance, Uncertainty, relative_distances
from mercer.kernels import Kernel
from mercer.parts import require
from mercer.preprocessing.inputs import InputMap
from mercer.preprocessing.read import read_new

#: Draws that average over functions.
DRAWS = 512


def normal_draws(n_classes: int) -> np.ndarray:
    """Quasi-random normal draws (draws × classes), the same at every call."""
    points = qmc.Sobol(n_classes, scramble=True, seed=0).random(DRAWS)
    return norm.ppf(np.clip(points, 1e-9, 1 - 1e-9))


def split_entropy(draws: Iterator[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean entropy, mutual information and entropy of the mean, from draws of probabilities (n × C each).

    >>> certain = [np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])]
    >>> [float(part[0].round(3)) for part in split_entropy(iter(certain))]
    [0.0, 0.693, 0.693]
    """
    first = next(draws)
    n_draws, sum_p, sum_entropy = 1, first.copy(), entr(first).sum(1)
    for p in draws:
        n_draws += 1
        sum_p += p
        sum_entropy += entr(p).sum(1)
    noise, total = sum_entropy / n_draws, entr(sum_p / n_draws).sum(1)
    return noise, np.maximum(total - noise, 0.0), total


class ClassUncertaintyMixin:
    """The method `predict_uncertainty` of kernel classifiers.

    Their `_probability_draws(X)` yields probabilities (n × C) of functions that are drawn.
    """

    _probability_draws: Callable[[Any], Iterator[np.ndarray]]
    _basis_of_distances: Callable[[], tuple[Kernel, InputMap, np.ndarray]]

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Uncertainty of classes in parts: entropy of the noise and of the model, distance from the basis vectors.

        The entropy of the probabilities (in nats) is noise, which more rows would not lower, plus the mutual
        information of class and function. The function is a Gaussian process with this kernel, penalty and basis
        vectors, which stand for all rows if they are fewer. Entropies are means over 512 fixed draws.

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
        distance = relative_distances(*self._basis_of_distances(), source)
        return Uncertainty(noise, model, total, distance, distance > 1)


class UncertainDecisions(ClassUncertaintyMixin, DecisionClassifier):
    """The uncertainty of boosted and greedy classifiers."""

    expansions_: ClassVar[tuple[Expansion, ...]]
    background_: ClassVar[np.ndarray]
    device: Any
    memory_limit: Any
    _objectives: ClassVar[tuple[Objective, ...]]

    def _basis_of_distances(self) -> tuple[Kernel, InputMap, np.ndarray]:
        first = self.expansions_[0]
        return first.kernel, first.inputs, np.asarray(first.basis, dtype=np.float64)

    def _probability_draws(self, X: Any) -> Iterator[np.ndarray]:
        pairwise = getattr(self, "_pairwise", False)
        require(not pairwise, "kernel", "other than 'precomputed' for predict_uncertainty", "precomputed")
        known = hasattr(self, "_objectives")
        require(known, "the model", "fitted again to have predict_uncertainty", "a file of version 0.2.0")
        decisions = self._answers(X, self.targets_.decisions)
        deviation = self._deviation(X)
        for z in normal_draws(decisions.shape[1]):
            yield self.calibration_.probabilities(decisions + deviation * z)

    def _deviation(self, X: Any) -> np.ndarray:
        """Standard deviations of decision values (n × p, or n × 1 if outputs share them)."""
        source, training_rows = read_new(self, X), TensorRows(torch.as_tensor(self.background_))
        plan = make_plan(source.n_rows, self.device, "float64", self.memory_limit)
        at_rows = torch.as_tensor(self.targets_.decisions(evaluate(self.expansions_, training_rows, plan)))
        shares = np.array([objective.share for objective in self._objectives])
        out: np.ndarray = np.zeros((source.n_rows, 1))
        for share, expansion, objective in zip(shares / shares.sum(), self.expansions_, self._objectives, strict=True):
            variance = FunctionVariance(expansion, objective, plan)
            if objective.loss.likelihood:  # the prior variance of log odds is k/λ
                size = np.full((1, at_rows.shape[1]), objective.lam)
            else:  # the variance of codes ±1 around their mean d is 1 − d²
                left = (1 - at_rows.clamp(-1, 1).square()).mean(0).numpy()
                whole = variance.noise + variance.mean_of_new_rows(training_rows)
                size = whole / np.maximum(left, np.finfo(float).tiny)[None]
            out = out + share * np.sqrt(variance.at(source).cpu().numpy()[:, None] / size)
        return out
