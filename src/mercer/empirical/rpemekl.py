"""Random projection ensembles with several empirical kernels (MEKL13): `RPEMEKLClassifier`, `RPEMEKLRegressor`."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from mercer.border.clock import Clock
from mercer.border.targets import RealTargets
from mercer.empirical.ensemble import values
from mercer.empirical.estimator import EnsembleClassifier, EnsembleEstimator
from mercer.empirical.learners import Learner, NumberLearner
from mercer.empirical.problem import MemberProblem, Table


class RPEMEKLClassifier(EnsembleClassifier):
    r"""RPEMEKL: a majority vote of H coupled multiple-kernel classifiers, each on maps of p random rows.

    Every member minimises the objective of `MultiKernelMHKSClassifier` over all rows, in coordinates made of p rows.
    A fit costs N p² instead of N³ operations, and memory is O(N) beyond p × p matrices and blocks of rows.

    Parameters
    ----------
    kernels : as in `MultiKernelMHKSClassifier`
    c, coupling : float, "paper" or several floats
        The penalty c and the coupling λ; the best pair by cross-validation of several, "paper" being 2⁻⁴, …, 2⁴. Maps
        and moments are shared by all pairs.
    n_members : int
        H.
    subset_size : int, float, None or several
        p: a number, a share of the rows (of the two classes, under one-vs-one), or all; the best of several by
        cross-validation.
    n_folds, multiclass, learning_rate, initial_margin, tol, max_iter, n_jobs, time_budget : as in `MHKSClassifier`
    scale_inputs, device, dtype, memory_limit, random_state, verbose, callbacks : as in `MHKSClassifier`

    Attributes
    ----------
    agreement_ : share of the training rows at which a member decides as the vote does, machines × H
    As in `MHKSClassifier` otherwise.

    References
    ----------
    Z. Wang, W. Jie, S. Chen and D. Gao, "Random projection ensemble learning with multiple empirical kernels",
    Knowledge-Based Systems 37 (2013), table 1.

    Examples
    --------
    >>> from mercer import RPEMEKLClassifier
    >>> from mercer.datasets import make_ripley
    >>> X, y = make_ripley(250, random_state=0)
    >>> model = RPEMEKLClassifier(c="paper", coupling="paper", subset_size=50, random_state=0).fit(X, y)
    >>> bool(model.score(*make_ripley(1000, random_state=1)) > 0.88), len(model.members_[0])
    (True, 3)
    """

    def __init__(
        self,
        kernels: Any = "paper",
        c: Any = 1.0,
        coupling: Any = 1.0,
        *,
        n_members: int = 3,
        subset_size: Any = 300,
        n_folds: int = 5,
        multiclass: str = "auto",
        learning_rate: float = 0.99,
        initial_margin: float = 1e-6,
        tol: float = 1e-3,
        max_iter: int = 100,
        n_jobs: int | None = None,
        time_budget: float | None = None,
        scale_inputs: bool = True,
        device: Any = "auto",
        dtype: Any = "auto",
        memory_limit: Any = None,
        random_state: Any = None,
        verbose: bool = False,
        callbacks: Any = None,
    ) -> None:
        self.kernels = kernels
        self.c = c
        self.coupling = coupling
        self.n_members = n_members
        self.subset_size = subset_size
        self.n_folds = n_folds
        self.multiclass = multiclass
        self.learning_rate = learning_rate
        self.initial_margin = initial_margin
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.time_budget = time_budget
        self.scale_inputs = scale_inputs
        self.device = device
        self.dtype = dtype
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks


class RPEMEKLRegressor(RegressorMixin, EnsembleEstimator):
    r"""The mean of H coupled multiple-kernel least squares fits, each on maps of p random rows; any number of targets.

    Our own counterpart of RPEMEKL. Every member minimises, exactly,

    .. math:: \sum_l \Big[\sum_n s_n (y_n - f_l(x_n))^2 + c\,\|w_l\|^2\Big]
        + \lambda \sum_l \sum_n s_n (f_l(x_n) - \bar f(x_n))^2, \qquad \bar f = \tfrac1M\sum_l f_l,

    with f_l(x) = w_lᵀΦ_l(x) + a_l, and predicts f̄. Targets are centred and scaled to unit variance. Without coupling
    (λ = 0) it is the mean of the kernels' own ridge regressions; as λ grows, the kernels' functions become one; λ = −1,
    the least value under which this is convex, fits f̄ alone: ridge regression with the mean of the kernels.

    Parameters
    ----------
    kernels, n_members, subset_size : as in `RPEMEKLClassifier`
    c, coupling : float, "paper" or several floats
        The penalty c and the coupling λ ≥ −1 (the default, most accurate where kernels differ in worth); the best pair
        by cross-validation of several, "paper" being 2⁻⁴, …, 2⁴.
    n_folds, n_jobs, time_budget, scale_inputs, device, dtype, memory_limit, random_state, verbose
        As in `RPEMEKLClassifier`.

    Attributes
    ----------
    members_ : one list of trained members, as in `RPEMEKLClassifier`
    c_, coupling_, subset_size_, cv_scores_ : what cross-validation chose, and minus the squared errors it saw
    objective_path_, stop_reason_ : of the first member

    References
    ----------
    Z. Wang, W. Jie, S. Chen and D. Gao, "Random projection ensemble learning with multiple empirical kernels",
    Knowledge-Based Systems 37 (2013), for the coupling and the members.

    Examples
    --------
    >>> from mercer import RPEMEKLRegressor
    >>> from mercer.datasets import make_sinc
    >>> X, y = make_sinc(random_state=0)
    >>> model = RPEMEKLRegressor(c=(0.01, 0.1, 1.0), random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.8), model.c_ in (0.01, 0.1, 1.0)
    (True, True)
    """

    def __init__(
        self,
        kernels: Any = "paper",
        c: Any = 0.1,
        coupling: Any = -1.0,
        *,
        n_members: int = 3,
        subset_size: Any = 300,
        n_folds: int = 5,
        n_jobs: int | None = None,
        time_budget: float | None = None,
        scale_inputs: bool = True,
        device: Any = "auto",
        dtype: Any = "auto",
        memory_limit: Any = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.kernels = kernels
        self.c = c
        self.coupling = coupling
        self.n_members = n_members
        self.subset_size = subset_size
        self.n_folds = n_folds
        self.n_jobs = n_jobs
        self.time_budget = time_budget
        self.scale_inputs = scale_inputs
        self.device = device
        self.dtype = dtype
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.verbose = verbose

    _least_coupling = -1.0

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _learner(self, clock: Clock) -> Learner:
        return NumberLearner()

    def _check(self) -> dict[str, Any]:
        return {"multi_output": True, "y_numeric": True}

    def _coded(self, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
        self._coding = RealTargets.of(y, weight)
        return self._coding.encode(y)

    def _problems(self, table: Table, rng: np.random.Generator) -> list[MemberProblem]:
        return [table.problem(table.targets, self.kernels, rng)]

    def predict(self, X: Any) -> np.ndarray:
        """Predicted targets, of the shape `y` had in `fit`."""
        check_is_fitted(self)
        rows, plan = self._to_predict(X)
        return self._coding.decode(np.mean(values(self.members_[0], rows, plan), axis=0))
