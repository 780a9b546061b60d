"""Numbers of the model selection, and the grid of kernels and penalties that it moves on.

`docs/ablations.md` says how much those that were varied change errors and times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from mercer.kernels import Gaussian, Kernel, Laplacian, Linear, Matern12, Matern32

#: Kernel families. Those that learn metrics come first: a family far behind an earlier one is not tuned.
FAMILIES: dict[str, Kernel] = {
    "matern32": Matern32(), "matern12": Matern12(), "cityblock": Laplacian(), "gaussian": Gaussian(),
    "linear": Linear(),
}  # fmt: skip
#: Families that are scored with the evidence's metric.
ROUGH_FAMILIES = ("matern32", "matern12", "cityblock")
#: Penalties λ of a kernel of unit variance: every half decade.
PENALTIES = tuple(10.0 ** (k / 2) for k in range(-12, 2))
#: The middle length-scale of each family, in typical distances; steps are factors of two.
LENGTHS = {"gaussian": 0.8, "matern32": 1.4, "matern12": 5.6, "cityblock": 1.4, "linear": 1.0}
#: Steps of the length-scale that the first stage tries, and steps at most in either direction.
FIRST_LENGTHS, MOST_STEPS = (-1, 0, 1), 3
#: Least penalty, for targets of unit variance, at which single precision is accurate enough.
FLOAT32_PENALTY = 1e-4
#: Rows from which a table counts as large.
MANY_ROWS = 100_000


@dataclass(frozen=True)
class Stage:
    """Rows of one stage of successive halving: those that fit, and held-out rows that score.

    With several `folds` all rows score, each fold by models of the others; `n_fit` is then the most rows of a fit. In
    an order of time each fold scores `n_score` rows, or all of them (0), by models of earlier rows. Without folds (0)
    rows score by leave-one-out. At most `max_survivors` candidates of the stage before are scored again, or all of them
    (None), and `trials` grid points are tried for each.
    """

    name: str
    n_fit: int
    n_score: int
    folds: int = 1
    trials: int = 0
    max_survivors: int | None = None


@dataclass(frozen=True)
class SelectionSettings:
    """Every number of the search for column map, metric, kernel and penalty.

    Attributes
    ----------
    column_maps, families : tuple of str
        Column maps and kernel families that are tried.
    member_families : tuple of str
        Families of ensemble members. Others only learn metrics, and are members where no candidate is of these.
    grid_rows : int
        Rows of the first stage, which scores a grid of kernels and penalties by leave-one-out.
    fit_rows : int
        Rows that fit column maps and metrics; twice as many held-out rows score them.
    last_fit_rows, last_divisor, last_most_rows : int
        The last stage fits `n / last_divisor` rows, between the first and the last of these numbers, and as many
        held-out rows score them. The first number also bounds the rows of a descent and of kernel logistic regression.
    folded_below, single_stage_below : int
        Smaller tables score all rows in folds: in the last stage, or in a single stage.
    n_folds, last_folds, time_folds : int
        Folds of a single stage, of a last stage, and of every stage where rows have an order of time; the grid has as
        many where rows stay together.
    evidence : bool
        Whether the evidence proposes a metric.
    evidence_rows : int
        Rows of the evidence that proposes it.
    smooth_loss : float
        Smooth kernels are searched for if the best loss is at most this share of the targets' variance.
    gradient_steps : int
        Steps of a gradient metric before the last stage, and in it.
    full_metric_inputs : int
        Inputs at most for a full metric, whose root costs the cube of them.
    trials, trials_after_step, last_trials : int
        Grid points tried for a family: at first, after a step of the metric, and in the last stage or where another map
        shows the start.
    give_up_ratio : float
        A family with this many times the best loss is not tuned further.
    near_ratio : float
        A column map or a candidate with this many times the best loss does not survive a stage.
    distinct : float
        A candidate survives only if its values differ from a better one's by this share of the squared error.
    min_gain : float
        Share of the loss that a further step, an ensemble member or kernel logistic regression must gain.
    likelihood_classes : int
        Classes up to which it is tried: its time grows with them.
    survivors : int
        Candidates that reach the last stage, at most.
    descent : bool
        Whether large tables descend on the held-out error.
    members : int
        Members of the ensemble at most; its greedy averaging has three times as many draws.
    total_over_first_stage : float
        The whole selection takes about this many times as long as its first stage: with less time left, its last
        stage has fewer rows.
    repeated_rows : pair of int
        Mixed tables of classes average two selections with rows in different orders, but those with fewer rows than
        the first number, or more than the second, run one.
    many_rows : int
        Tables of this many rows take the stages of large tables, and larger learners.
    more_evidence_rows, more_fit_rows : pair of int
        Rows of the evidence and of fits when large tables score candidates again, on a CPU and on a GPU. As many
        held-out rows as a CPU fits score them.
    n_neighbourhoods : int
        Neighbourhoods that learn local length-scales.
    neighbourhood_share : float
        Rows of a neighbourhood at most, as a share of all rows.
    """

    column_maps: tuple[str, ...] = ("standard", "bend", "scores")
    families: tuple[str, ...] = tuple(FAMILIES)
    member_families: tuple[str, ...] = tuple(FAMILIES)
    grid_rows: int = 200
    fit_rows: int = 500
    last_fit_rows: int = 1500
    last_divisor: int = 6
    last_most_rows: int = 4000
    folded_below: int = 1400
    single_stage_below: int = 600
    n_folds: int = 3
    last_folds: int = 2
    time_folds: int = 5
    evidence: bool = True
    evidence_rows: int = 400
    smooth_loss: float = 0.5
    gradient_steps: int = 3
    full_metric_inputs: int = 1000
    trials: int = 5
    trials_after_step: int = 3
    last_trials: int = 1
    give_up_ratio: float = 1.05
    near_ratio: float = 1.25
    distinct: float = 0.03
    min_gain: float = 0.003
    likelihood_classes: int = 10
    survivors: int = 6
    descent: bool = True
    members: int = 3
    total_over_first_stage: float = 200.0
    repeated_rows: tuple[int, int] = (400, 8000)
    many_rows: int = MANY_ROWS
    more_evidence_rows: tuple[int, int] = (2000, 6000)
    more_fit_rows: tuple[int, int] = (3000, 10_000)
    n_neighbourhoods: int = 9
    neighbourhood_share: float = 0.01

    def n_selections(self, n_rows: int) -> int:
        """Selections that a mixed table of this many rows and of classes averages.

        >>> [SelectionSettings().n_selections(n) for n in (100, 1000, 10_000)]
        [1, 2, 1]
        """
        fewest, most = self.repeated_rows
        return 2 if fewest <= n_rows <= most else 1

    def may_be_members(self, pool: Sequence[Any]) -> list[Any]:
        """The candidates of `member_families`, or all where there are none."""
        return [candidate for candidate in pool if candidate.family in self.member_families] or list(pool)

    def n_last(self, n_rows: int, short_of_time: bool) -> int:
        """Rows that the last stage fits; fewer where time is short."""
        if short_of_time:
            return self.last_fit_rows
        return max(self.last_fit_rows, min(n_rows // self.last_divisor, self.last_most_rows))


DEFAULT_SETTINGS = SelectionSettings()


@dataclass(frozen=True)
class GridPoint:
    """A family with a length-scale and a penalty, as steps on the grid.

    `factor` is the length-scale in typical distances, `lam` the penalty, `dtype` the precision of kernel matrices.
    """

    family: str
    length: int
    penalty: int
    factor: float = field(init=False, compare=False)
    lam: float = field(init=False, compare=False)
    dtype: torch.dtype = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", LENGTHS[self.family] * 2.0**self.length)
        object.__setattr__(self, "lam", PENALTIES[self.penalty])
        object.__setattr__(self, "dtype", torch.float32 if self.lam >= FLOAT32_PENALTY else torch.float64)

    @classmethod
    def near(cls, family: str, factor: float, lam: float) -> GridPoint:
        """The point next to a length-scale, in typical distances, and a penalty."""
        length = round(math.log2(factor / LENGTHS[family]))
        penalty = min(range(len(PENALTIES)), key=lambda k: abs(math.log(PENALTIES[k] / lam)))
        return cls(family, min(max(length, -MOST_STEPS), MOST_STEPS), penalty)

    def moved(self, by_length: int, by_penalty: int) -> GridPoint | None:
        """The point some steps away; None outside the grid."""
        length, penalty = self.length + by_length, self.penalty + by_penalty
        inside = 0 <= penalty < len(PENALTIES) and abs(length) <= MOST_STEPS
        return GridPoint(self.family, length, penalty) if inside else None

    def with_penalty_moved(self, by_penalty: int) -> GridPoint:
        """The same length-scale with another penalty, as far as the grid goes."""
        return GridPoint(self.family, self.length, min(max(self.penalty + by_penalty, 0), len(PENALTIES) - 1))
