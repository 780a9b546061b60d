"""State of a model selection: its rows, those that fit and score in each stage, its settings and its report.

Tasks run in parallel threads, one core for each. Matrices of a few hundred rows leave a second core idle most of the
time; two tasks at once do not. Results come in the order of the tasks and do not depend on the number of threads.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from mercer.clock import Clock
from mercer.data.column_maps import fit_column_map
from mercer.data.row_groups import RowGroups
from mercer.linalg.minimise import libraries
from mercer.progress import ValidationLoss, report_candidate
from mercer.selection.evidence_search import relevances
from mercer.selection.score import Score, codes_of
from mercer.selection.settings import GridPoint, SelectionSettings, Stage
from mercer.selection.view import BY_LOSS, Candidate, EvidenceCandidate, Fold, MetricStep, View

T = TypeVar("T")


@dataclass
class Search:
    """A selection under way.

    `tuned_points` maps a metric's name and a family to the grid point tuned on the first column map: other column maps
    start there. `best` is the least loss of the stage. Tasks that run in parallel only read them.
    """

    rows: SelectionRows
    settings: SelectionSettings
    clock: Clock
    metric: str | None
    likelihood: bool = False
    stage: Stage = field(init=False)
    report: list[dict[str, Any]] = field(default_factory=list)
    tuned_points: dict[tuple[str, str], GridPoint] = field(default_factory=dict)
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
        self.stage, self.best, self.tuned_points = stage, math.inf, {}

    def run(self, tasks: Sequence[Callable[[], list[Candidate]]]) -> list[Candidate]:
        """Score candidates in parallel, and report them in the order of their tasks."""
        found = [candidate for part in run_parallel(tasks, self.rows.device) for candidate in part]
        self.report_scores(found)
        for candidate in found:
            self.tuned_points.setdefault((candidate.view.metric_name, candidate.family), candidate.point)
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

        Only the first family of a `wide` search tries distant penalties; its change of the penalty is where the others
        start.
        """
        give_up_above = math.inf if self.stage.folds > 1 else self.settings.give_up_ratio * self.best
        found: list[Candidate] = []
        penalty_change = 0
        for family, start in starts.items():
            began = time.perf_counter()
            known = self.tuned_points.get((view.metric_name, family))
            if known is None:
                start = start.with_penalty_moved(penalty_change)
                trial = view.tuned(start, most, give_up_above, wide and not found)
                penalty_change = trial.point.penalty - start.penalty if wide and not found else penalty_change
            else:
                trial = view.tuned(known, self.settings.last_trials, give_up_above)
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


class SelectionRows:
    """Rows in random order on the selection's device, with column maps fitted once.

    `keeps_unit` marks columns such as indicators of categories, which are centred but not scaled. Columns of one group
    (`column_groups` has an index for each column), such as the levels of a category, share a length-scale. Rows of one
    of `row_groups` are on one side of every split.
    """

    def __init__(
        self,
        X: Tensor,
        Y: Tensor,
        weight: Tensor,
        keeps_unit: Tensor | None,
        column_groups: Tensor | None,
        rng: np.random.Generator,
        device: Any,
        classes: bool,
        settings: SelectionSettings,
        row_groups: RowGroups | None = None,
    ) -> None:
        used = (weight > 0).nonzero()[:, 0]
        order = used[torch.from_numpy(rng.permutation(len(used))).to(used.device)]
        maps = run_parallel(
            [partial(fit_column_map, kind, X, weight, keeps_unit) for kind in settings.column_maps], X.device
        )
        self.maps = dict(zip(settings.column_maps, maps, strict=True))
        self.X, self.Y = X[order].double().to(device), Y[order].double().to(device)
        self.weight = weight[order].double().to(device)
        self.weight = self.weight / self.weight.mean()
        self.n, self.device, self.settings = len(order), device, settings
        self.column_groups = None if column_groups is None else column_groups.to(device)
        self.codes = codes_of(self.Y) if classes else None
        n_last = settings.n_last(self.n, short_of_time=False)
        n_seen = max(n_last, self.n_evidence) + max(n_last, 2 * settings.fit_rows)
        self.row_groups = None if row_groups is None else row_groups.take(order.cpu().numpy())
        if self.row_groups is not None:
            n_seen, self._seed = self.n, int(rng.integers(2**31))
        self.splits = cache(self._splits)
        self.mapped = {kind: self.maps[kind](self.X[: max(n_seen, self.n_metric)]) for kind in settings.column_maps}
        self._evidence: dict[int, MetricStep] = {}

    @property
    def n_evidence(self) -> int:
        """Rows of the evidence that proposes a metric."""
        return min(self.settings.evidence_rows, self.n // 2)

    @property
    def n_metric(self) -> int:
        """Rows that learn the metric of an ensemble member."""
        n_last = self.settings.n_last(self.n, short_of_time=False)
        return max(2 * self.settings.last_fit_rows, 3 * n_last // 2)

    def parts(self, stage: Stage) -> list[tuple[Tensor, Tensor]]:
        """Indices of fit rows and of scoring rows, for each fold."""
        index = torch.arange(self.n, device=self.X.device)
        if self.row_groups is not None:
            n_score = stage.n_score or self.n
            return [(fit[: stage.n_fit], score[:n_score]) for fit, score in self.splits(stage.folds)]
        if stage.folds > 1:
            pieces = index.tensor_split(stage.folds)
            return [(torch.cat([q for q in pieces if q is not p])[: stage.n_fit], p) for p in pieces]
        n_fit = min(stage.n_fit, self.n // 2)
        n_seen = max(n_fit, self.n_evidence)  # no row scores a metric that it helped to learn
        return [(index[:n_fit], index[n_seen : n_seen + stage.n_score])]

    def _splits(self, n_folds: int) -> list[tuple[Tensor, Tensor]]:
        """All fit rows and all scoring rows of each fold, in random order; row groups are never divided."""
        assert self.row_groups is not None
        most = np.inf if n_folds > 1 else min(self.settings.n_last(self.n, short_of_time=False), self.n // 2)
        found = self.row_groups.splits(n_folds, most=most, seed=self._seed)
        fitted = [np.delete(np.arange(self.n), split.left_out) for split in found]
        pairs = zip(fitted, (split.scored for split in found), strict=True)
        return [(torch.as_tensor(f, device=self.device), torch.as_tensor(s, device=self.device)) for f, s in pairs]

    def score(self, stage: Stage) -> Score:
        """The score of values at a stage's scoring rows."""
        scoring = torch.cat([score for _, score in self.parts(stage)])
        return Score(self.Y[scoring], self.weight[scoring], self.codes)

    def view(self, column_map: str, stage: Stage, steps: tuple[MetricStep, ...] = ()) -> View:
        """The view of a column map on a stage's rows, after learning these steps of the metric from them."""
        Z, parts = self.mapped[column_map], self.parts(stage)
        folds = [Fold(Z[fit], self.Y[fit], self.weight[fit], Z[score], self.row_groups_of(fit)) for fit, score in parts]
        score = self.score(stage)
        ones = [torch.ones_like(folds[0].X[0]) for _ in parts]
        view = View(column_map, folds, score, ones, column_groups=self.column_groups)
        for step in steps:
            view = view.stepped(self.evidence_step(stage) if step.is_evidence else step)
        return view

    @property
    def ordered(self) -> bool:
        """Whether later rows score models of earlier ones."""
        return self.row_groups is not None and self.row_groups.ordered

    def row_groups_of(self, index: Tensor) -> RowGroups | None:
        """The row groups of these rows."""
        return None if self.row_groups is None else self.row_groups.take(index.cpu().numpy())

    def evidence_step(self, stage: Stage) -> MetricStep:
        """The step to the length-scales of largest evidence on the first column map; it serves all maps."""
        if stage.folds not in self._evidence:
            Z = self.mapped[self.settings.column_maps[0]]
            first = torch.arange(self.n, device=self.X.device) if self.row_groups is None else self.splits(1)[0][0]
            learning = [fit for fit, _ in self.parts(stage)] if stage.folds > 1 else [first]
            samples = [fit[: self.n_evidence] for fit in learning]
            tasks = [partial(relevances, Z[fit], self.Y[fit], self.weight[fit], self.column_groups) for fit in samples]
            found = run_parallel(tasks) if len(tasks) > 1 else [run_on_one_core(tasks[0])]
            self._evidence[stage.folds] = MetricStep(None, relevances=tuple(found))
        return self._evidence[stage.folds]


def run_parallel(tasks: Sequence[Callable[[], T]], device: Any = "cpu") -> list[T]:
    """Run tasks in parallel and return their results in order."""
    threads = min(torch.get_num_threads(), len(tasks))
    if threads < 2 or torch.device(device).type != "cpu":  # one task keeps a GPU busy
        results = []
        for task in tasks:  # a comprehension would be one frame more on the way to the first kernel matrix
            results.append(task())
        return results
    with _single_core_threads(threads) as pool:
        return [future.result() for future in [pool.submit(copy_context().run, task) for task in tasks]]


def run_on_one_core(task: Callable[[], T]) -> T:
    """Run a task of small matrices on one core: sixteen threads take thirty times as long for 200 rows.

    >>> from mercer.selection.search import run_on_one_core
    >>> run_on_one_core(torch.get_num_threads)
    1
    """
    if torch.get_num_threads() == 1:
        return task()
    with _single_core_threads(1) as pool:
        return pool.submit(copy_context().run, task).result()


@contextmanager
def in_background(task: Callable[[], object]) -> Iterator[None]:
    """Run a task on a CPU thread of its own beside the block; both have ended when the block ends."""
    threads = torch.get_num_threads()
    if threads < 2:
        yield
        task()
        return
    with _single_core_threads(1) as pool:
        torch.set_num_threads(threads)  # the limit may have changed this thread's number as well
        future = pool.submit(copy_context().run, task)
        yield
        future.result()


@contextmanager
def _single_core_threads(n: int) -> Iterator[ThreadPoolExecutor]:
    """A pool of `n` threads that use one core each; afterwards torch has the number of threads it had before."""
    before = torch.get_num_threads()
    try:
        with (
            libraries().limit(limits=1, user_api="blas"),
            ThreadPoolExecutor(n, initializer=torch.set_num_threads, initargs=(1,)) as pool,
        ):
            yield pool
    finally:
        torch.set_num_threads(before)  # new threads inherit what the last one set
