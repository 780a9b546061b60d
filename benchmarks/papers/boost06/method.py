"""Boost06's experiment: one kernel ridge model grown by MP selection beside boosted small ones, on the same kernel.

The boosted models are the paper's: D = 200 vectors each, chosen by information gain from a random subset, their weights
by conjugate gradients (at most D steps, eq. 21), all models' weights refitted when one enters, M = 150. The single
model takes one vector at a time by eq. 18 among κ = 59 candidates. The paper is silent (or garbled in our copy) on the
subset's size and on its table 2, the number of vectors at which the single model ran out of memory: ours are 500, as
in the authors' later paper, and 1000.
"""

from __future__ import annotations

from papers.regression import Table, curve, problem

from mercer.forward.combine import ConjugateGradients, JointPursuit
from mercer.forward.criteria import InformationGain, MatchingPursuit
from mercer.forward.loop import Ensemble, Learner, SingleVector

D, M, T, KAPPA, LARGEST = 200, 150, 500, 59, 1000
Points = dict[str, list[float]]


def single() -> Learner:
    return SingleVector(MatchingPursuit(KAPPA))


def boosted(size: int = D, subset: int = T) -> Learner:
    """Conjugate gradients end after `size` steps, or when the residual is a thousandth: only the direction counts."""
    return Ensemble(InformationGain(), ConjugateGradients(size, tol=1e-3), size, subset, "all")


#: On which the paper is silent: the rows of the subset, and the weights of a learner.
WAYS: dict[str, Learner] = {f"{rows} rows": boosted(D, rows) for rows in (250, 1000, 2000)} | {
    "exact weights": Ensemble(InformationGain(), JointPursuit(), D, T, "all")
}


def grown(table: str, seed: int, learner: Learner, steps: int) -> Points:
    """The curve of one split, thinned."""
    rows = Table.of(table, seed)
    return curve(problem(rows, seed), rows.test, learner, steps, seed=seed).thinned()


def cell(table: str, model: str, seed: int, steps: int | None = None) -> Points:
    """A curve of table 3; its first `steps` alone if that many are asked for."""
    learner, all_steps = (single(), LARGEST) if model == "single" else (boosted(), M)
    return grown(table, seed, learner, steps or all_steps)


def to_memory(seed: int, largest: int = 1800) -> Points:
    """The single model on KIN40K up to what the paper's 512 MB could hold: 36 000 rows of so many 8-byte numbers."""
    return grown("kin40k", seed, single(), largest)


def other_way(way: str, seed: int, steps: int = M) -> Points:
    return grown("kin40k", seed, WAYS[way], steps)
