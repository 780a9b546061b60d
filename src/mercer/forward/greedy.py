"""Greedy sparse kernel models: `GreedyKernelRegressor` and `GreedyKernelClassifier` (Greedy02, Boost10)."""

from __future__ import annotations

from typing import ClassVar

from mercer.base.classifier import DecisionClassifier
from mercer.base.estimator import face
from mercer.base.intervals import IntervalRegressor
from mercer.forward.greedy_base import Greedy


@face
class GreedyKernelRegressor(IntervalRegressor, Greedy):
    r"""A kernel model on few basis vectors, chosen one by one (or a few at a time) from the rows.

    Minimises over the chosen set I and its weights

    .. math:: \tfrac12 \sum_n w_n (y_n - f(x_n))^2 + \tfrac\lambda2 \|f\|^2_{\mathcal H},
        \qquad f(x) = b + \sum_{i \in I} a_i k(x_i, x).

    References
    ----------
    P. B. Nair, A. Choudhury and A. J. Keane, "Some greedy learning algorithms for sparse regression and
    classification with Mercer kernels", Journal of Machine Learning Research 3 (2002).

    Examples
    --------
    >>> from mercer import GreedyKernelRegressor
    >>> from mercer.datasets import make_sinc
    >>> X, y = make_sinc(random_state=0)
    >>> model = GreedyKernelRegressor(stopping="mdl", random_state=0).fit(X, y)
    >>> len(model.basis_) < 20, model.score(X, y) > 0.8
    (True, True)
    """


@face
class GreedyKernelClassifier(DecisionClassifier, Greedy):
    r"""A kernel classifier on few basis vectors, chosen one by one (or a few at a time) from the rows.

    Classes are coded ±1 and fitted by the loss; several classes share their basis vectors. For a basis per class
    wrap it: ``OneVsRestClassifier(GreedyKernelClassifier())``.

    References
    ----------
    P. B. Nair, A. Choudhury and A. J. Keane, "Some greedy learning algorithms for sparse regression and
    classification with Mercer kernels", Journal of Machine Learning Research 3 (2002).

    Examples
    --------
    >>> from mercer import GreedyKernelClassifier
    >>> from mercer.datasets import make_ripley
    >>> X, y = make_ripley(250, random_state=0)
    >>> X_test, y_test = make_ripley(1000, random_state=1)
    >>> model = GreedyKernelClassifier(stopping="mdl", random_state=0).fit(X, y)
    >>> bool(model.score(X_test, y_test) > 0.88), len(model.basis_) < 40
    (True, True)
    """

    _classes: ClassVar[bool] = True
