"""Ho-Kashyap classifiers on maps of all rows: `MHKSClassifier` and `MultiKernelMHKSClassifier` (MEKL13)."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Annotated, Any

from mercer.base.estimator import estimator_dataclass
from mercer.base.parameters import sequence_of
from mercer.empirical.choice import Ranges
from mercer.empirical.classifier import EnsembleClassifier
from mercer.empirical.parameters import ROWS, SeveralKernels, one_or_several


@estimator_dataclass
class MHKSClassifier(EnsembleClassifier):
    r"""Regularised Ho-Kashyap classifier (MHKS) in the coordinates of one kernel.

    Minimises over weights ω̃, a bias and margins b ≥ 0, with targets φ = ±1,

    .. math:: \sum_n s_n \big(\varphi_n(\tilde\omega^\top\Phi(x_n) + \omega_0) - 1 - b_n\big)^2 + c\,\|\tilde\omega\|^2.

    Rows beyond the margin are not pulled back to it: b grows where they are. A linear kernel gives Łeski's
    classifier.

    Parameters
    ----------
    kernel : a kernel, a name or a function, default "gaussian"
        A radial kernel by name has the mean distance between rows as length-scale.
    regularization : float, "paper" or several floats, default 1.0
        The penalty c; the best by cross-validation of several, "paper" being 2⁻⁴, …, 2⁴ times the mean weight of rows.
        Against a number, weights count as in scikit-learn's `Ridge`.
    subset_size : None, int, float or several, default None
        Rows that make the map: all for None, a share for a float; the best of several by cross-validation.

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

    kernel: Any = "gaussian"
    regularization: Annotated[Any, one_or_several(0.0)] = 1.0
    _: KW_ONLY
    subset_size: Annotated[Any, ROWS | sequence_of(ROWS)] = None

    def _candidates(self) -> Ranges:
        return Ranges([self.kernel], self._penalty(), subset_size=self.subset_size)


@estimator_dataclass
class MultiKernelMHKSClassifier(SeveralKernels, EnsembleClassifier):
    r"""MultiK-MHKS: one Ho-Kashyap classifier per kernel, on maps of all rows, drawn towards their mean.

    Minimises eq. (5) of MEKL13 over the weights, biases and margins b_l ≥ 0 of M kernels,

    .. math:: \sum_l \Big[\sum_n s_n(\varphi_n f_l(x_n) - 1 - b_{ln})^2 + c\,\|\tilde\omega_l\|^2\Big]
        + \lambda \sum_l \sum_n s_n \big(f_l(x_n) - \bar f(x_n)\big)^2, \qquad \bar f = \tfrac1M\sum_l f_l,

    and decides by the sign of f̄. Its maps cost N³ operations and N² numbers per kernel; for more than a few thousand
    rows take `RPEMEKLClassifier`.

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

    def _candidates(self) -> Ranges:
        return Ranges(self.kernels, self._penalty(), self.coupling)
