"""Ho-Kashyap classifiers on maps of all rows: `MHKSClassifier` and `MultiKernelMHKSClassifier` (MEKL13)."""

from __future__ import annotations

from typing import Any

from mercer.empirical.estimator import EnsembleClassifier


class MHKSClassifier(EnsembleClassifier):
    r"""Regularised Ho-Kashyap classifier (MHKS) in the coordinates of one kernel.

    Minimises over weights ω̃, a bias and margins b ≥ 0, with targets φ = ±1,

    .. math:: \sum_n s_n \big(\varphi_n(\tilde\omega^\top\Phi(x_n) + \omega_0) - 1 - b_n\big)^2 + c\,\|\tilde\omega\|^2.

    Rows beyond the margin are not pulled back to it: b grows where they are. A linear kernel gives Łeski's
    classifier.

    Parameters
    ----------
    kernel : a kernel, a short name or a callable
        A radial kernel by name has the mean distance between rows as length-scale.
    c : float, "paper" or several floats
        The penalty; the best by cross-validation of several, "paper" being 2⁻⁴, …, 2⁴ times the mean weight of rows.
        Against a number, weights count as in scikit-learn's `Ridge`.
    subset_size : None, int, float or several
        Rows that make the map: all for None, a share for a float; the best of several by cross-validation.
    n_folds : int
        Folds of that cross-validation.
    multiclass : "auto", "one-vs-one" ("ovo") or "one-vs-rest" ("ovr")
        One machine per pair of classes, on that pair's rows (as in the paper), or one per class on shared maps; "auto"
        takes pairs up to 45 classes; more than 64 cannot be asked for.
    learning_rate, initial_margin, tol, max_iter : float, float, float, int
        The paper's ρ and b¹; it stops where the objective falls by less than the share `tol`.
    n_jobs : int or None
        Machines trained at once, in threads.
    time_budget : float or None
        Seconds that `fit` may take in all: machines then see as many rows and basis vectors as there is time for.
    scale_inputs, device, dtype, memory_limit, random_state, verbose
        As everywhere.
    callbacks : functions of a `Sweep` (its iteration and objective), called after each pass; a true answer stops it

    Attributes
    ----------
    classes_ : the classes
    members_ : trained machines, a list per pair of classes (or one list); each has `kernels`, `basis`,
        `basis_indices`, `dual_coef`, `bias`, `kernel_norms`, `agreement`, `objective_path` (for weights of mean one)
    c_, coupling_, subset_size_ : the values used; `cv_scores_` the rows right of every candidate
    objective_path_, n_iter_, stop_reason_ : of the first machine

    References
    ----------
    J. Łeski, "Ho-Kashyap classifier with generalization control", Pattern Recognition Letters 24 (2003).

    Examples
    --------
    >>> from mercer import MHKSClassifier
    >>> from mercer.datasets import make_ripley
    >>> X, y = make_ripley(250, random_state=0)
    >>> model = MHKSClassifier(random_state=0).fit(X, y)
    >>> bool(model.score(*make_ripley(1000, random_state=1)) > 0.88)
    True
    """

    coupling = 0.0
    n_members = 1

    def __init__(
        self,
        kernel: Any = "gaussian",
        c: Any = 1.0,
        *,
        subset_size: Any = None,
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
        self.kernel = kernel
        self.c = c
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

    @property
    def kernels(self) -> Any:
        return [self.kernel]


class MultiKernelMHKSClassifier(EnsembleClassifier):
    r"""MultiK-MHKS: one Ho-Kashyap classifier per kernel, on maps of all rows, drawn towards their mean.

    Minimises eq. (5) of MEKL13 over the weights, biases and margins b_l ≥ 0 of M kernels,

    .. math:: \sum_l \Big[\sum_n s_n(\varphi_n f_l(x_n) - 1 - b_{ln})^2 + c\,\|\tilde\omega_l\|^2\Big]
        + \lambda \sum_l \sum_n s_n \big(f_l(x_n) - \bar f(x_n)\big)^2, \qquad \bar f = \tfrac1M\sum_l f_l,

    and decides by the sign of f̄. Its maps cost N³ operations and N² numbers per kernel; for more than a few thousand
    rows take `RPEMEKLClassifier`.

    Parameters
    ----------
    kernels : "paper", or a kernel, name or callable, or several
        "paper": the normalised linear kernel and Gaussians at the mean distance between rows and at a tenth of it.
        For a penalty c_l of its own scale a kernel: c/c_l times k_l.
    c, coupling : float, "paper" or several floats
        The penalty c and the coupling λ; the best pair by cross-validation of several, "paper" being 2⁻⁴, …, 2⁴.
    n_folds, multiclass, learning_rate, initial_margin, tol, max_iter, n_jobs, time_budget : as in `MHKSClassifier`
    scale_inputs, device, dtype, memory_limit, random_state, verbose, callbacks : as in `MHKSClassifier`

    Attributes
    ----------
    classes_ : the classes
    members_, c_, coupling_, cv_scores_, objective_path_, n_iter_, stop_reason_ : as in `MHKSClassifier`

    References
    ----------
    Z. Wang, S. Chen and T. Sun, "MultiK-MHKS: a novel multiple kernel learning algorithm", IEEE Transactions on
    Pattern Analysis and Machine Intelligence 30 (2008).

    Examples
    --------
    >>> from mercer import MultiKernelMHKSClassifier
    >>> from mercer.datasets import make_ripley
    >>> X, y = make_ripley(250, random_state=0)
    >>> model = MultiKernelMHKSClassifier().fit(X, y)
    >>> model.members_[0][0].agreement.shape
    (3,)
    """

    subset_size = None
    n_members = 1

    def __init__(
        self,
        kernels: Any = "paper",
        c: Any = 1.0,
        coupling: Any = 1.0,
        *,
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
