"""Kernel boosting: `KernelBoostingRegressor` and `KernelBoostingClassifier` (Boost10, Boost06)."""

from __future__ import annotations

from typing import ClassVar

from mercer.base.classifier import DecisionClassifier
from mercer.base.estimator import estimator_dataclass
from mercer.base.intervals import IntervalRegressor
from mercer.forward.boosting_base import Boosting


@estimator_dataclass
class KernelBoostingRegressor(IntervalRegressor, Boosting):
    r"""Boosting whose learners are ensembles of basis vectors.

    Minimises over functions of the RKHS, learner by learner,

    .. math:: \sum_n w_n V(y_n, f(x_n)) + \tfrac\lambda2 \|f\|^2_{\mathcal H} .

    Each learner picks `learner_size` basis vectors among `subset_size` random rows by their residuals,
    combines them into one function and adds it (Sun and Yao 2010, section III-D). At the end all weights
    may be polished together.

    References
    ----------
    P. Sun and X. Yao, "Sparse approximation through boosting for learning large scale kernel machines",
    IEEE Transactions on Neural Networks 21 (2010). The defaults here are not the paper's: its own are
    ``n_learners=500, learner_size=50, subset_size=500, criterion="max-res", combination="rayleigh",
    absorption="full", polish=False``. Those of their earlier paper (ICDM 2006) are ``n_learners=150,
    learner_size=200, criterion="info-gain", combination=ConjugateGradients(200)``, the rest the same.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import KernelBoostingRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-2, 2, (400, 2))
    >>> y = np.sin(2 * X[:, 0]) * X[:, 1]
    >>> model = KernelBoostingRegressor(random_state=0).fit(X[:300], y[:300])
    >>> bool(model.score(X[300:], y[300:]) > 0.99)
    True
    """


@estimator_dataclass
class KernelBoostingClassifier(DecisionClassifier, Boosting):
    r"""Boosting whose learners are ensembles of basis vectors, for two or more classes.

    Classes are coded ±1 and fitted as `KernelBoostingRegressor` fits numbers; several classes share basis vectors and
    kernel products, one column of weights each. The paper's settings for COVTYPE are ``learner_size=50,
    subset_size=2000, criterion="mp", combination="rayleigh", absorption="blocks", block_length=50, n_learners=5000,
    focus="margin", polish=False``.

    References
    ----------
    P. Sun and X. Yao, "Sparse approximation through boosting for learning large scale kernel machines",
    IEEE Transactions on Neural Networks 21 (2010).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mercer import KernelBoostingClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = KernelBoostingClassifier(random_state=0).fit(X[::2], y[::2])
    >>> bool(model.score(X[1::2], y[1::2]) > 0.9), model.predict_proba(X[:1]).shape
    (True, (1, 3))
    """

    _classes: ClassVar[bool] = True
