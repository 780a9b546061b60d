"""Kernel boosting: `KernelBoostingRegressor` and `KernelBoostingClassifier` (Boost10, Boost06)."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
from torch import Tensor

from mercer.border.estimator import require_whole
from mercer.forward.combine import Combination
from mercer.forward.criteria import Criterion
from mercer.forward.estimator import ForwardClassifier, ForwardEstimator, ForwardRegressor
from mercer.forward.focus import Focus
from mercer.forward.learners import Ensemble, Size
from mercer.forward.loop import ForwardFit
from mercer.forward.problem import Problem
from mercer.forward.solve.exact import AllRows
from mercer.forward.solve.polish import polish
from mercer.forward.stopping import MaxSteps, Stopping
from mercer.parts import require

ABSORPTIONS = ("auto", "full", "one", "blocks")


class _Boosting(ForwardEstimator):
    """How boosted models grow; the faces below add only what their targets need."""

    def __init__(
        self,
        n_learners: int | str = "auto",
        *,
        learner_size: Size | str = "auto",
        subset_size: int | str = "auto",
        criterion: Any = "largest-residuals",
        combination: Any = "mp",
        absorption: str = "auto",
        block_length: int = 50,
        shrinkage: float = 1.0,
        loss: Any = "squared",
        focus: Any = None,
        polish: bool | str = "auto",
        validation_fraction: float | None = None,
        patience: int = 10,
        time_budget: float | None = None,
        warm_start: bool = False,
        kernel: Any = "auto",
        regularization: Any = "auto",
        tuning_rows: int = 1000,
        scale_inputs: bool | str = True,
        device: Any = "auto",
        dtype: Any = "auto",
        memory_limit: Any = None,
        random_state: Any = None,
        verbose: bool = False,
        callbacks: Any = None,
    ) -> None:
        self.n_learners = n_learners
        self.learner_size = learner_size
        self.subset_size = subset_size
        self.criterion = criterion
        self.combination = combination
        self.absorption = absorption
        self.block_length = block_length
        self.shrinkage = shrinkage
        self.loss = loss
        self.focus = focus
        self.polish = polish
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.time_budget = time_budget
        self.warm_start = warm_start
        self.kernel = kernel
        self.regularization = regularization
        self.tuning_rows = tuning_rows
        self.scale_inputs = scale_inputs
        self.device = device
        self.dtype = dtype
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    def _require_parameters(self) -> None:
        super()._require_parameters()
        for name in ("n_learners", "subset_size"):
            value = getattr(self, name)
            if isinstance(value, str):
                require(value == "auto", name, "'auto' or a number", value)
            else:
                require_whole(name, value)
        self._require_size()
        require_whole("block_length", self.block_length)
        good = isinstance(self.shrinkage, Real) and 0 < float(self.shrinkage) <= 1
        require(good, "shrinkage", "a number in (0, 1]", self.shrinkage)
        require(self.absorption in ABSORPTIONS, "absorption", f"one of {list(ABSORPTIONS)}", self.absorption)

    def _require_size(self) -> None:
        size: Any = self.learner_size
        if isinstance(size, str):
            require(size == "auto", "learner_size", "'auto', a number, a sequence or a function", size)
        elif isinstance(size, Sequence):
            require(len(size) > 0, "learner_size", "a sequence of at least one number", size)
            for one in size:
                require_whole("learner_size", one)
        elif not callable(size):
            require_whole("learner_size", size)

    def _exact(self, problem: Problem) -> bool:
        """Whether one learner holds all rows: sizes left open, least squares, and few enough rows."""
        free = self.learner_size == "auto" and self.n_learners == "auto"
        return free and problem.loss.quadratic and self._n_rows <= problem.plan.exact_rows

    def _sizes(self, n_rows: int) -> tuple[int, Size, int]:
        """Learners, their size and the subset each is chosen from, where the user left them open."""
        size: Any = self.learner_size
        if isinstance(size, str):
            size = int(min(max(n_rows / 64, 50), 300, n_rows))
        number = int(size) if isinstance(size, Integral) else 50
        subset = self.subset_size
        if isinstance(subset, str):
            subset = max(10 * number, 500)
        learners = self.n_learners
        if isinstance(learners, str):
            learners = 20
        require(number <= subset, "learner_size", f"at most subset_size={subset}", number)
        return learners, size, subset

    def _start(self, problem: Problem, validation: Tensor | None, rng: np.random.Generator) -> ForwardFit:
        self._n_rows = int((problem.weight > 0).sum())
        _, size, subset = self._sizes(self._n_rows)
        lengths = {"auto": 1, "one": 1, "full": None, "blocks": self.block_length}
        criterion = Criterion.resolve(self.criterion, "criterion")
        combination = Combination.resolve(self.combination, "combination")
        self._one_learner = self._exact(problem)
        problem = problem if self._one_learner else self._steadied(problem)
        learner = AllRows() if self._one_learner else Ensemble(criterion, combination, size, subset)
        return ForwardFit(
            problem,
            learner,
            rng,
            block_length=lengths[self.absorption],
            shrinkage=self.shrinkage,
            focus=None if self.focus is None else Focus.resolve(self.focus, "focus"),
            validation=validation,
        )

    def _rules(self) -> list[Stopping]:
        return [MaxSteps(1 if self._one_learner else self._sizes(self._n_rows)[0])]

    def _finish(self, fit: ForwardFit, index: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        require(self.polish in (True, False, "auto"), "polish", "True, False or 'auto'", self.polish)
        self.polish_reason_ = "not asked for"
        if self.polish is False or self._one_learner or len(index) == 0:
            return super()._finish(fit, index, weights)
        if self.polish == "auto" and 4 * len(index) ** 2 * 8 > fit.problem.plan.memory_limit // 4:
            self.polish_reason_ = f"left out: {len(index)} basis vectors would take too much memory"
            return super()._finish(fit, index, weights)
        done = polish(fit.problem, index, weights, validation=fit.validation)
        self.polish_reason_ = done.stop_reason
        return super()._finish(fit, index, done.weights)


class KernelBoostingRegressor(_Boosting, ForwardRegressor):
    r"""Boosting whose learners are ensembles of basis vectors.

    Minimises over functions of the RKHS, learner by learner,

    .. math:: \sum_n w_n V(y_n, f(x_n)) + \tfrac\lambda2 \|f\|^2_{\mathcal H} .

    Each learner picks `learner_size` basis vectors among `subset_size` random rows by their residuals,
    combines them into one function and adds it (Sun and Yao 2010, section III-D). At the end all weights
    may be polished together.

    Parameters
    ----------
    n_learners : int or "auto"
        Learners; "auto" takes 20, or one that holds every row (exact kernel ridge) where those are few enough.
    learner_size : int, sequence, function of the step, or "auto"
        S, basis vectors per learner.
    subset_size : int or "auto"
        T, random rows among which a learner chooses.
    criterion : "largest-residuals", "max-res", "mp", "boost", "info-gain", "random", … or a part
        How a learner chooses.
    combination : "mp", "rayleigh", "cg" or a part
        How its basis vectors become one function.
    absorption : "full", "one", "blocks" or "auto"
        Which weights are fitted again when a learner arrives: all, only its own, or those of its block of
        `block_length` learners.
    shrinkage : float in (0, 1]
        ν, the share of each step that is taken.
    loss : "squared", "logistic", "squared-hinge" or a part
    focus : None, "margin", "hinge" or Focus
        Each new block sees only rows of small margin (classification): the paper's, or all rows that the
        squared hinge loss still counts.
    polish : bool or "auto"
        After boosting, improve all weights together by preconditioned conjugate gradients; where rows are held out,
        until their error stops falling.
    validation_fraction, patience : float or None, int
        Hold out a share of the rows and stop when their error has not fallen for `patience` learners.
    time_budget : float or None
        Seconds of boosting.
    warm_start : bool
        A second `fit` with more learners goes on where the first stopped.
    kernel, regularization, tuning_rows
        "auto" or a name: tuned by `tune_kernel` on `tuning_rows` rows; a kernel object: taken as it is.
    scale_inputs : bool or "standard"
        True standardises all columns and, where the kernel is tuned and held-out rows speak for it, bends those with
        heavy tails before (`mercer.data.heavy_tails`); "standard" only standardises.
    device, dtype, memory_limit, random_state, verbose, callbacks
        As everywhere in the package; callbacks receive the fit after each learner and stop it by
        returning true.

    Attributes
    ----------
    basis_, basis_indices_, dual_coef_ : the expansion (in standardised targets)
    kernel_, regularization_ : what was tuned or given
    history_, objective_path_, tuning_seconds_, stop_reason_, polish_reason_ : what happened

    References
    ----------
    P. Sun and X. Yao, "Sparse approximation through boosting for learning large scale kernel machines",
    IEEE Transactions on Neural Networks 21 (2010). The defaults here are not the paper's: its own are
    ``n_learners=500, learner_size=50, subset_size=500, criterion="max-res", combination="rayleigh",
    absorption="full", polish=False``.

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

    def _require_parameters(self) -> None:
        super()._require_parameters()
        require(self.focus is None, "focus", "None for regression, which has no margins", self.focus)


class KernelBoostingClassifier(_Boosting, ForwardClassifier):
    r"""Boosting whose learners are ensembles of basis vectors, for two or more classes.

    Classes are coded ±1; several classes share basis vectors and kernel products, one column of weights
    each. Parameters and attributes are those of `KernelBoostingRegressor`; further `classes_` and
    `temperature_`, the number that turns decision values into probabilities. The paper's settings for
    COVTYPE are ``learner_size=50, subset_size=2000, criterion="mp", combination="rayleigh",
    absorption="blocks", block_length=50, n_learners=5000, focus="margin", polish=False``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mercer import KernelBoostingClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = KernelBoostingClassifier(random_state=0).fit(X[::2], y[::2])
    >>> bool(model.score(X[1::2], y[1::2]) > 0.9), model.predict_proba(X[:1]).shape
    (True, (1, 3))
    """
