"""Greedy sparse kernel models: `GreedyKernelRegressor` and `GreedyKernelClassifier` (Greedy02, Boost10)."""

from __future__ import annotations

from mercer.forward.estimator import ForwardClassifier, ForwardRegressor
from mercer.forward.greedy_base import Greedy


class GreedyKernelRegressor(Greedy, ForwardRegressor):
    r"""A kernel model on few basis vectors, chosen one by one (or a few at a time) from the rows.

    Minimises over the chosen set I and its weights

    .. math:: \tfrac12 \sum_n w_n (y_n - f(x_n))^2 + \tfrac\lambda2 \|f\|^2_{\mathcal H},
        \qquad f(x) = b + \sum_{i \in I} a_i k(x_i, x).

    Parameters
    ----------
    n_basis : int
        Basis vectors at most.
    criterion : "max-res", "mp", "boost", "one-dimensional", "info-gain", "ald", "ran", "ormp", "random" or a part
        Which row enters next.
    update : "full", "qr", "mrx" or "one"
        Which weights follow: all of them with the penalty in the RKHS, all of them by thin QR of the columns of
        K + σ²I (Nair et al. 2002), one minimal residual iteration, or only the newest weight.
    step_size : int or "auto"
        Basis vectors per pass over the rows; "auto" takes several where there are many rows, and all at once where
        they are random anyway.
    exchange : bool
        After each step try to replace the least useful vector (QR downdate and update).
    stopping : None, "mdl", "aic", a rule or several
        The size of smallest description length or Akaike information; the model is cut back to it.
    tol : float
        Stop when the residual norm falls to this share of the targets' norm.
    min_novelty : float
        A basis vector that lies in the span of those before it, up to this share of its norm, gets no weight; after
        twenty of them in turn the fit ends.
    prune : bool
        Afterwards drop, one at a time, vectors whose leaving lowers MDL (or AIC, if that is the stopping rule).
    refine : bool
        At the end move the basis vectors off their rows, together with kernel and noise, uphill on the evidence of
        the sparse model, by about `refine_iter` steps: far fewer vectors reach the same error. `path_predict` and
        `history_` keep to the rows chosen. Squared loss and equal weights.
    penalty : "rkhs", "gram" or "auto"
        λ‖f‖² or σ² on the diagonal of the Gram matrix; "auto" is what `update` is used with in its paper, where
        MDL and AIC go without σ² (so they do here, unless `regularization` is a number).
    validation_fraction, patience, time_budget, warm_start, verbose, callbacks
        As in `KernelBoostingRegressor`.
    kernel, regularization, tuning_rows, scale_inputs, device, dtype, memory_limit, random_state
        As in `KernelBoostingRegressor`.

    Attributes
    ----------
    basis_, basis_indices_, dual_coef_ : the expansion, basis vectors in the order of their entry
    history_ : number of basis vectors, residual norm, objective, MDL, AIC and seconds after each step
    stop_reason_ : why it stopped, in words

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


class GreedyKernelClassifier(Greedy, ForwardClassifier):
    r"""A kernel classifier on few basis vectors, chosen one by one (or a few at a time) from the rows.

    Classes are coded ±1 and fitted by the loss; several classes share their basis vectors. For a basis per class
    wrap it: ``OneVsRestClassifier(GreedyKernelClassifier())``. Parameters and attributes are those of
    `GreedyKernelRegressor`; further `classes_`.

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
