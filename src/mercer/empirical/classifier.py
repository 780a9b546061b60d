"""What the classifiers on empirical kernels share: Ho-Kashyap steps, pairs of classes, votes and probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from mercer.base.calibration import fit_calibration
from mercer.base.classifier import DecisionClassifier
from mercer.base.parameters import integer, literal, number
from mercer.clock import Clock
from mercer.empirical.ensemble import MemberEnsemble, agreement
from mercer.empirical.estimator import EnsembleEstimator, MemberRefits
from mercer.empirical.hokashyap import Margins
from mercer.empirical.learners import ClassLearner, MemberLearner
from mercer.empirical.problem import MULTICLASS, class_pairs
from mercer.empirical.training import Trained
from mercer.progress import step_callbacks

#: Training rows from which the temperature is taken where there is no time to train again: enough for two digits.
SAMPLE_ROWS = 5000


@dataclass(eq=False, repr=False, kw_only=True)
class EnsembleClassifier(DecisionClassifier, EnsembleEstimator):
    """Classes by votes: of members, and of pairs of classes where there are more than two.

    Decision values are votes, and margins between equal votes.

    Parameters
    ----------
    multiclass : "auto", "one-vs-one" ("ovo") or "one-vs-rest" ("ovr"), default "auto"
        One machine per pair of classes, on that pair's rows (as in the paper), or one per class on shared maps; "auto"
        takes pairs up to 45 classes; more than 64 cannot be asked for.
    learning_rate : float, default 0.99
        The paper's ρ, above 0 and at most 1: beyond it the objective may rise.
    initial_margin : float, default 1e-6
        The paper's b¹, the margin beyond 1 from which all rows start.
    tol : float, default 1e-3
        Steps end where the objective falls by less than this share.
    max_iter : int, default 100
        Steps at most.

    Attributes
    ----------
    agreement_ : ndarray of shape (machines, H)
        Weighted share of the training rows at which each member decides as the vote does.
    calibration_ : Temperature or Shrunk
        What turns decision values into probabilities, fitted to those of members that were trained without the rows: in
        five folds up to 1000 rows, without about a tenth of more rows. Where a time budget leaves no time for that, it
        is fitted to training rows.
    """

    multiclass: Annotated[str, literal(*MULTICLASS)] = "auto"
    learning_rate: Annotated[float, number(0.0, 1.0, open_low=True)] = 0.99
    initial_margin: Annotated[float, number(0.0)] = 1e-6
    tol: Annotated[float, number(0.0)] = 1e-3
    max_iter: Annotated[int, integer()] = 100

    _classes: ClassVar[bool] = True

    def _learner(self, clock: Clock) -> MemberLearner:
        margins = Margins(self.initial_margin, self.learning_rate, self.tol, self.max_iter)
        heard = step_callbacks("passes", step=lambda sweep: sweep.iteration) if self.callbacks else ()
        return ClassLearner(margins, heard, clock)

    def _pairs(self, n_classes: int) -> list[tuple[int, int]]:
        return class_pairs(n_classes, self.multiclass)

    def _judged(self, trained: list[Trained], ensemble: MemberEnsemble, refits: MemberRefits) -> dict[str, Any]:
        shares = [agreement(one.values, one.problem.sample.weight.double().cpu().numpy()) for one in trained]
        H = max(map(len, shares))  # fewer where time was up
        sample, found = refits.task.sample, refits.out_of_fold(MemberEnsemble.at)
        part = sample.part(sample.spaced(SAMPLE_ROWS) if found is None else found[0])
        values = ensemble.at(part) if found is None else found[1]
        Y, weight = (one.double().cpu().numpy() for one in (part.Y, part.weight))
        return {
            "agreement_": np.array([own + [np.nan] * (H - len(own)) for own in shares]),
            "calibration_": fit_calibration(refits.task.targets, values, Y, weight),
        }
