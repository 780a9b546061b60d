"""Candidates of the selection, and its result: ensemble members."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from torch import Tensor

from mercer.data.column_maps import ColumnMap
from mercer.kernels import Kernel
from mercer.selection.score import Link
from mercer.selection.view import Trial, View

#: The key that ranks candidates, best first.
BY_LOSS = attrgetter("loss")


@dataclass
class Candidate:
    """A view of the inputs and the best grid point of one family on it, with its score."""

    view: View
    trial: Trial
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.loss, self.point = self.trial.loss, self.trial.point
        self.family = self.point.family

    @property
    def n_fit(self) -> int:
        return self.view.n_fit

    @property
    def values(self) -> Tensor:
        """Values at the rows that score."""
        return self.trial.values

    @property
    def name(self) -> str:
        return f"{self.view.column_map}, {self.view.metric}, {self.family}"


@dataclass(frozen=True)
class SelectedKernel:
    """A kernel on mapped and transformed inputs, with its penalty and its share of the ensemble."""

    columns: ColumnMap
    transform: Tensor
    kernel: Kernel
    penalty: float
    share: float
    loss: float
    name: str


@dataclass(frozen=True)
class LikelihoodEnsemble:
    """Selected kernels with penalties for kernel logistic regression, and their held-out log loss.

    `gain` is the mean by which it is below the log loss of least squares, `error` the standard error of this mean.
    """

    members: list[SelectedKernel]
    loss: float
    gain: float
    error: float


@dataclass(frozen=True)
class EvidenceCandidate:
    """A kernel that the evidence found, as it will be fitted, with its values at the rows that score."""

    selected: SelectedKernel
    values: Tensor = field(repr=False)
    n_fit: int
    seconds: float = 0.0

    @property
    def name(self) -> str:
        return self.selected.name

    @property
    def loss(self) -> float:
        return self.selected.loss


@dataclass(frozen=True)
class SelectedEnsemble:
    """Selected kernels, best first, and a report line for every candidate of every stage.

    `by_likelihood` are the same kernels with penalties for kernel logistic regression, if that was tried.
    """

    members: list[SelectedKernel]
    report: list[dict[str, Any]] = field(repr=False)
    loss: float
    constant: float
    link: Link | None
    by_likelihood: LikelihoodEnsemble | None = field(default=None, repr=False)
