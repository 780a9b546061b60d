"""Ho-Kashyap classifiers on empirical kernels (MEKL13): on maps of all rows, and ensembles on maps of random rows."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from torch import Tensor

from mercer.base.classifier import fit_probabilities
from mercer.base.estimator import estimator_dataclass
from mercer.base.parameters import BOOL, integer, literal, number, sequence_of
from mercer.clock import Clock
from mercer.empirical.cross_validation import ParameterGrid
from mercer.empirical.ensemble import MemberEnsemble, agreement
from mercer.empirical.estimator import EnsembleEstimator, MemberRefits, RandomMembers, SeveralKernels, one_or_several
from mercer.empirical.hokashyap import Margins
from mercer.empirical.kernel_map import ROWS
from mercer.empirical.learners import ClassLearner, MemberLearner
from mercer.empirical.problem import MULTICLASS, class_pairs
from mercer.empirical.training import Trained
from mercer.empirical.uncertainty import UncertainVotes
from mercer.parts import is_auto
from mercer.progress import step_callbacks

#: Training rows that fit the temperature if there is no time to train again: enough for two digits.
SAMPLE_ROWS = 5000


@dataclass(eq=False, repr=False, kw_only=True)
class EnsembleClassifier(UncertainVotes, EnsembleEstimator):
    """Classes by votes of members and, for more than two classes, of pairs of classes.

    Decision values are votes; margins break ties.

    Parameters
    ----------
    multiclass : "auto", "one-vs-one" ("ovo") or "one-vs-rest" ("ovr"), default "auto"
        One machine per pair of classes, on that pair's rows (as in the paper), or one per class on shared maps; "auto"
        takes pairs up to 3 classes, and pairs of more than 64 are refused.
    learning_rate : float, default 0.99
        The paper's ρ, above 0 and at most 1: beyond it the objective may rise.
    initial_margin : float, default 1e-6
        The paper's b¹, the margin beyond 1 from which all rows start.
    tol : float, default 1e-3
        Relative decrease of the objective at which the steps end.
    max_iter : int, default 100
        Largest number of steps.
    literal : bool, default False
        Start and stop as table 1 of the paper has it: from vectors of unit length, until the objective changes by at
        most `tol` itself. Otherwise each kernel starts from its own solution.

    Attributes
    ----------
    agreement_ : ndarray of shape (machines, H)
        Weighted share of the training rows at which each member decides as the vote does.
    calibration_ : Temperature or Shrunk
        Map of decision values to probabilities, fitted to out-of-fold values: in five folds up to 1000 rows, otherwise
        with about a tenth of the rows held out. If a time budget leaves no time for refits, training rows are used.
    """

    multiclass: Annotated[str, literal(*MULTICLASS)] = "auto"
    learning_rate: Annotated[float, number(0.0, 1.0, open_low=True)] = 0.99
    initial_margin: Annotated[float, number(0.0)] = 1e-6
    tol: Annotated[float, number(0.0)] = 1e-3
    max_iter: Annotated[int, integer()] = 100
    literal: Annotated[bool, BOOL] = False

    _is_classifier: ClassVar[bool] = True

    def _learner(self, clock: Clock) -> MemberLearner:
        margins = Margins(self.initial_margin, self.learning_rate, self.tol, self.max_iter, self.literal)
        callbacks = step_callbacks("passes", step=lambda sweep: sweep.iteration) if self.callbacks else ()
        return ClassLearner(callbacks, margins, clock)

    def _pairs(self, n_classes: int) -> list[tuple[int, int]]:
        return class_pairs(n_classes, self.multiclass)

    def _diagnostics(self, trained: list[Trained], ensemble: MemberEnsemble, refits: MemberRefits) -> dict[str, Any]:
        shares = [agreement(machine.values, _on_host(machine.problem.sample.weight)) for machine in trained]
        H = max(map(len, shares))  # fewer for machines that time ran out for
        sample, found = refits.task.sample, refits.out_of_fold(MemberEnsemble.at)
        part = sample.part(sample.spaced(SAMPLE_ROWS) if found is None else found[0])
        values = ensemble.at(part) if found is None else found[1]
        return {
            "agreement_": np.array([share + [np.nan] * (H - len(share)) for share in shares]),
            **fit_probabilities(refits.task.targets, values, _on_host(part.Y), _on_host(part.weight)),
        }


def _on_host(values: Tensor) -> np.ndarray:
    return values.double().cpu().numpy()


@estimator_dataclass
class MHKSClassifier(EnsembleClassifier):
    r"""Regularised Ho-Kashyap classifier (MHKS) in the coordinates of one kernel.

    Minimises over weights ω̃, a bias and margins b ≥ 0, with targets φ = ±1,

    .. math:: \sum_n s_n \big(\varphi_n(\tilde\omega^\top\Phi(x_n) + \omega_0) - 1 - b_n\big)^2 + c\,\|\tilde\omega\|^2.

    Rows beyond the margin cost nothing: their b grows. A linear kernel gives Łeski's classifier.

    Parameters
    ----------
    kernel : "auto", a kernel, a name or a function, default "auto"
        "auto": the mean of a Gaussian at one width for all columns and one at a length-scale over each column's
        relevance, with a linear kernel added; the width by leave-one-out errors in closed form on at most 1000 rows.
        A radial kernel by name has the mean distance between rows as length-scale.
    regularization : "auto", float, "paper" or several floats, default "auto"
        The penalty c: "auto" by leave-one-out errors in closed form, of classes as ±1; the best by cross-validation of
        several, "paper" being 2⁻⁴, …, 2⁴ times the mean weight of rows. Against a number, weights count as in
        scikit-learn's `Ridge`.
    subset_size : int, None, float or several, default 500
        Rows that make the map, at random: all for None, a share for a float; the best of several by cross-validation.

    References
    ----------
    J. Łeski, "Ho-Kashyap classifier with generalization control", Pattern Recognition Letters 24 (2003).

    Examples
    --------
    >>> from mercer import MHKSClassifier
    >>> from mercer.datasets import make_ripley
    >>> X, y = make_ripley(250, random_state=0)
    >>> model = MHKSClassifier(random_state=0).fit(X, y)
    >>> print(f"accuracy {model.score(*make_ripley(1000, random_state=1)):.1f}")
    accuracy 0.9
    """

    kernel: Any = "auto"
    regularization: Annotated[Any, one_or_several(0.0)] = "auto"
    _: KW_ONLY
    subset_size: Annotated[Any, ROWS | sequence_of(ROWS)] = 500

    def _candidates(self) -> ParameterGrid:
        kernels = self.kernel if is_auto(self.kernel) else [self.kernel]
        return ParameterGrid(kernels, self._penalty(), subset_size=self.subset_size, merged=True)


@estimator_dataclass
class MultiKernelMHKSClassifier(SeveralKernels, EnsembleClassifier):
    r"""MultiK-MHKS: one Ho-Kashyap classifier per kernel, on maps of all rows, shrunk towards their mean.

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
    >>> model.members_[0][0].agreement.shape  # one width, and relevances
    (2,)
    """

    def _candidates(self) -> ParameterGrid:
        return ParameterGrid(self.kernels, self._penalty(), self.coupling)


@estimator_dataclass
class RPEMEKLClassifier(RandomMembers, SeveralKernels, EnsembleClassifier):
    r"""RPEMEKL: a majority vote of H coupled multiple-kernel classifiers, each on maps of p random rows.

    Every member minimises the objective of `MultiKernelMHKSClassifier` over all rows, in coordinates made of p rows.
    A fit costs N p² instead of N³ operations, and memory is O(N) beyond p × p matrices and blocks of rows.

    References
    ----------
    Z. Wang, W. Jie, S. Chen and D. Gao, "Random projection ensemble learning with multiple empirical kernels",
    Knowledge-Based Systems 37 (2013), table 1.

    Examples
    --------
    >>> from mercer import RPEMEKLClassifier
    >>> from mercer.datasets import make_ripley
    >>> X, y = make_ripley(250, random_state=0)
    >>> model = RPEMEKLClassifier("paper", "paper", "paper", subset_size=50, random_state=0).fit(X, y)
    >>> print(f"accuracy {model.score(*make_ripley(1000, random_state=1)):.1f}")
    accuracy 0.9
    >>> len(model.members_[0])
    3
    """

    def _candidates(self) -> ParameterGrid:
        return ParameterGrid(self.kernels, self._penalty(), self.coupling, self.subset_size, self.n_members)
