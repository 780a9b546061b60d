"""State of a model selection: its rows, settings, clock and stage, and the report it writes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mercer.clock import Clock
from mercer.progress import ValidationLoss, report_candidate
from mercer.selection.candidate import BY_LOSS, Candidate, EvidenceCandidate
from mercer.selection.grid import GridPoint
from mercer.selection.parallel import run_parallel
from mercer.selection.rows import SelectionRows
from mercer.selection.settings import SelectionSettings, Stage
from mercer.selection.view import MetricStep, View


@dataclass
class Search:
    """A selection under way.

    `known` has the grid point at which a family ended after the same steps of the metric on another column map; `best`
    is the least loss of the stage. Tasks that run in parallel only read them.
    """

    rows: SelectionRows
    settings: SelectionSettings
    clock: Clock
    metric: str | None
    likelihood: bool = False
    stage: Stage = field(init=False)
    report: list[dict[str, Any]] = field(default_factory=list)
    known: dict[tuple[str, str], GridPoint] = field(default_factory=dict)
    best: float = math.inf
    short_of_time: bool = False

    def __post_init__(self) -> None:
        if self.metric == "auto" and self.rows.X.shape[1] > self.settings.full_metric_inputs:
            self.metric = "diagonal"

    @property
    def uses_evidence(self) -> bool:
        """Whether the evidence may propose a metric."""
        return self.metric is not None and self.settings.evidence and self.rows.X.shape[1] > 1

    def permits(self, *, full: bool) -> bool:
        """Whether the user allows metrics of this form."""
        return self.metric in ("auto", "full" if full else "diagonal")

    def expired(self, until: float = 1.0) -> bool:
        """Whether this share of the time is spent."""
        return self.clock.expired(until=until)

    def enter(self, stage: Stage) -> None:
        """Begin a stage: losses of other rows no longer compare."""
        self.stage, self.best, self.known = stage, math.inf, {}

    def run(self, tasks: Sequence[Callable[[], list[Candidate]]]) -> list[Candidate]:
        """Score candidates in parallel, and report them in the order of their tasks."""
        found = [candidate for part in run_parallel(tasks, self.rows.device) for candidate in part]
        self.report_scores(found)
        for candidate in found:
            self.known.setdefault((candidate.view.metric, candidate.family), candidate.point)
        return found

    def report_scores(self, found: Sequence[Candidate | EvidenceCandidate]) -> None:
        """Write a line of the report for each candidate."""
        for candidate in found:
            line = {"candidate": candidate.name, "stage": self.stage.name, "rows": candidate.n_fit}
            self.report.append(line | {"loss": candidate.loss, "seconds": candidate.seconds})
            self.best = min(self.best, candidate.loss)
            report_candidate("selection", self.report[-1], ValidationLoss(candidate.loss, self.best))

    def tuned_view(
        self, column_map: str, steps: tuple[MetricStep, ...], starts: Mapping[str, GridPoint], most: int
    ) -> list[Candidate]:
        """Learn these steps of the metric on a column map, and tune families on the view, which is then released."""
        view = self.rows.view(column_map, self.stage, steps)
        found = self.tuned(view, starts, most)
        view.release()
        return found

    def tuned(self, view: View, starts: Mapping[str, GridPoint], most: int, wide: bool = False) -> list[Candidate]:
        """The best grid point of each family near its start, or near where it ended on another column map.

        Only the first family of a `wide` search tries distant penalties: a metric changes all families alike.
        """
        give_up_above = math.inf if self.stage.folds > 1 else self.settings.give_up_ratio * self.best
        found: list[Candidate] = []
        penalty_change = 0
        for family, start in starts.items():
            began = time.perf_counter()
            known = self.known.get((view.metric, family))
            if known is None:
                start = start.with_penalty_moved(penalty_change)
                trial = view.tuned(start, most, give_up_above, wide and not found)
                penalty_change = trial.point.penalty - start.penalty if wide and not found else penalty_change
            else:
                trial = view.tuned(known, self.settings.trials_from_known, give_up_above)
            give_up_above = min(give_up_above, self.settings.give_up_ratio * trial.loss)
            found.append(Candidate(view, trial, time.perf_counter() - began))
        return found


def survivors(pool: Sequence[Candidate], most: int, settings: SelectionSettings) -> list[Candidate]:
    """The best candidates that differ: none far behind the best, none that predicts what a better one predicts.

    With errors of mean square e and differences of mean square d, an average of two candidates has an error of
    e − d/4, so small differences gain nothing.
    """
    ranked = sorted(pool, key=BY_LOSS)
    kept: list[Candidate] = []
    for candidate in ranked:
        F, Y = candidate.trial.values, candidate.view.score.Y
        least = settings.distinct * float((F - Y).square().mean())
        near = candidate.loss <= settings.near_ratio * ranked[0].loss
        if near and all(float((F - better.trial.values).square().mean()) > least for better in kept[:most]):
            kept.append(candidate)
    return kept[:most]
