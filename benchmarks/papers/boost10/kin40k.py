"""Boost10 tables IV and V and figures 2, 4 and 5, all on KIN40K: selection-based methods beside ensembles.

36 000 / 4000 rows, the kernel of equation 33 tuned by evidence on 1000 training rows. The paper's 200 s on its machine
are the time in which MAX-RES, one vector a step, reaches 700 basis vectors (its tables IV and V put it there); the same
yardstick is used here. Figures 4 and 5 are of OUTAOUAIS in the paper, which is not to be had.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))
from regression import Curve, Redrawn, Table, curve, problem

from mercer.forward.combine import JointPursuit, Rayleigh, Separate
from mercer.forward.criteria import (
    ApproximateLinearDependence,
    LargestResiduals,
    MatchingPursuit,
    MaxResidual,
    Random,
    ResourceAllocating,
)
from mercer.forward.learners import Ensemble, Learner, SingleVector
from mercer.forward.problem import Problem

YARDSTICK = 700  # basis vectors of MAX-RES in the paper's 200 s

#: The papers' own steps: one vector at a time, all weights refitted; ensembles of 50 from 500 by eq. 25.
AS_PRINTED: dict[str, tuple[Learner, int, int | None]] = {
    "random": (SingleVector(Random()), 1000, None),
    "mp": (SingleVector(MatchingPursuit(60)), 1000, None),
    "max-res": (SingleVector(MaxResidual()), 1000, None),
    "ald": (SingleVector(ApproximateLinearDependence()), 1000, None),
    "ran": (SingleVector(ResourceAllocating(n_candidates=1)), 1000, None),  # few are passed over, each is dear
    "ensemble": (Redrawn(MaxResidual(), Rayleigh(), 50, 500), 500, None),
}
#: What this package does today: 32 vectors a pass, ensembles of 500 by eq. 29 without refitting.
OURS: dict[str, tuple[Learner, int, int | None]] = {
    "random": (Ensemble(Random(), Separate(), 32, 512), 32, None),
    "mp": (Ensemble(MatchingPursuit(), Separate(), 32, 512), 32, None),
    "max-res": (Ensemble(MaxResidual(), Separate(), 32, 512, "largest"), 32, None),
    "ald": (Ensemble(ApproximateLinearDependence(), Separate(), 32, 512), 32, None),
    "ran": (Ensemble(ResourceAllocating(), Separate(), 32, 512), 32, None),
    "ensemble": (Ensemble(LargestResiduals(), JointPursuit(), 500, 5000), 60, 1),
}
GROUPS: dict[str, dict[str, Any]] = {"printed": AS_PRINTED, "ours": OURS, "subsets": {}}
#: Figure 5: other sizes of the subset, S a tenth of it.
SUBSETS = (250, 500, 1000, 2000)


def measure(seed: int, group: str) -> dict[str, Any]:
    """The curves of one split, thinned: of the paper's steps, of ours, or of other subsets."""
    table = Table.of("kin40k", seed)
    given, test = problem(table, seed), table.test
    if group == "subsets":
        return {str(T): subset_curve(given, test, T, seed).thinned() for T in SUBSETS}
    return {name: curve(given, test, *how, seed=seed).thinned() for name, how in GROUPS[group].items()}


def subset_curve(given: Problem, test: Any, T: int, seed: int, n_learners: int = 200) -> Curve:
    return curve(given, test, Redrawn(MaxResidual(), Rayleigh(), T // 10, T), n_learners, seed=seed)
