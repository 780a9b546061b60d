"""Ensembles of coupled least squares on several empirical kernels: `RPEMEKLRegressor`."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import torch

from mercer.base.estimator import estimator_dataclass
from mercer.base.intervals import Intervals
from mercer.base.out_of_fold import FOLDED_ROWS, LEFT_OUT_ROWS, leverages
from mercer.clock import Clock
from mercer.empirical.cross_validation import ParameterGrid
from mercer.empirical.ensemble import MemberEnsemble
from mercer.empirical.estimator import EnsembleEstimator, MemberRefits, RandomMembers, SeveralKernels, one_or_several
from mercer.empirical.learners import MemberLearner, NumberLearner
from mercer.empirical.training import Trained
from mercer.empirical.uncertainty import UncertainMembers
from mercer.engine.plan import Sample
from mercer.progress import step_callbacks


@estimator_dataclass
class RPEMEKLRegressor(UncertainMembers, RandomMembers, SeveralKernels, EnsembleEstimator):
    r"""The mean of H coupled multiple-kernel least squares fits, each on maps of p random rows; any number of targets.

    Our own counterpart of RPEMEKL. Every member minimises, exactly,

    .. math:: \sum_l \Big[\sum_n s_n (y_n - f_l(x_n))^2 + c\,\|w_l\|^2\Big]
        + \lambda \sum_l \sum_n s_n (f_l(x_n) - \bar f(x_n))^2, \qquad \bar f = \tfrac1M\sum_l f_l,

    with f_l(x) = w_lᵀΦ_l(x) + a_l, and predicts f̄. Targets are centred and scaled to unit variance. Without coupling
    (λ = 0) it is the mean of the kernels' own ridge regressions; as λ grows, the kernels' functions become one; λ = −1,
    the smallest value for which this is convex, fits f̄ alone: ridge regression with the mean of the kernels.

    Parameters
    ----------
    regularization : "auto", float, "paper" or several floats, default "auto"
        The penalty c: "auto" by leave-one-out errors in closed form; the best by cross-validation of several, "paper"
        being 2⁻⁴, …, 2⁴ times the mean weight of rows. Against a number, weights count as in scikit-learn's `Ridge`.
    coupling : float, "auto", "paper" or several floats, default -1.0
        λ ≥ −1; the default is most accurate where kernels differ in worth. "auto" takes the best of −1, 0 and 1 by
        leave-one-out errors, together with c; of several the best by cross-validation.

    References
    ----------
    Z. Wang, W. Jie, S. Chen and D. Gao, "Random projection ensemble learning with multiple empirical kernels",
    Knowledge-Based Systems 37 (2013), for the coupling and the members.

    Examples
    --------
    >>> from mercer import RPEMEKLRegressor
    >>> from mercer.datasets import make_sinc
    >>> X, y = make_sinc(random_state=0)
    >>> model = RPEMEKLRegressor(regularization=(0.01, 0.1, 1.0), random_state=0).fit(X, y)
    >>> print(f"R² = {model.score(X, y):.1f}")
    R² = 0.9
    >>> model.regularization_ in (0.01, 0.1, 1.0)
    True
    """

    regularization: Annotated[Any, one_or_several(0.0)] = "auto"
    coupling: Annotated[Any, one_or_several(-1.0)] = -1.0

    def _candidates(self) -> ParameterGrid:
        return ParameterGrid(
            self.kernels, self._penalty(), self.coupling, self.subset_size, self.n_members, (-1.0, 0.0, 1.0), False
        )

    def _learner(self, clock: Clock) -> MemberLearner:
        return NumberLearner(step_callbacks("passes") if self.callbacks else ())

    def _diagnostics(self, trained: list[Trained], ensemble: MemberEnsemble, refits: MemberRefits) -> dict[str, Any]:
        return {"intervals_": _intervals(ensemble, refits)}

    def _location_and_scale(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        values = self.ensemble_.values(*self._new(X))
        return values, np.ones_like(values)


def _intervals(ensemble: MemberEnsemble, refits: MemberRefits) -> Intervals:
    """Calibrate intervals on out-of-fold residuals of few rows, or on leave-one-out residuals of some of many."""
    sample = refits.task.sample
    found = refits.out_of_fold(MemberEnsemble.at) if sample.n_alive <= FOLDED_ROWS else None
    index = sample.spaced(LEFT_OUT_ROWS) if found is None else found[0]
    part = sample.part(index)
    values = ensemble.at(part) if found is None else found[1]
    kept = np.ones(len(values)) if found is not None else 1 - _leverages(ensemble, part, refits)
    return Intervals.calibrated(part, index, refits.task.given, values, 1.0, kept[:, None])


def _leverages(ensemble: MemberEnsemble, part: Sample, refits: MemberRefits) -> np.ndarray:
    """Leverages of the rows in the first member, which stands for all random members.

    A member that fits the mean of M functions, each with penalty c, is a ridge regression on all their kernel values
    with penalty cM; the coupling changes this little.
    """
    first = ensemble.machines[0][0]
    X = part.rows.take(np.arange(part.n_rows)).double()
    Z = first.basis.to(X)
    tiles = [(kernel(X, Z), kernel(Z, Z)) for kernel in first.kernels]
    penalty = torch.block_diag(*(refits.training.c * len(tiles) * square for _, square in tiles))
    share = part.n_rows / max(refits.task.sample.n_alive, 1)
    return leverages(torch.cat([tile for tile, _ in tiles], 1), part.weight, penalty, share).cpu().numpy()
