"""Model selection by successive halving: propose candidates, score them on more and more rows, keep the best.

A candidate is a view of the inputs (column map and metric), a kernel family with its length-scale, and a penalty. Rows
that were not fitted score it. `docs/architecture.md` shows the table of stages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from mercer.clock import Clock
from mercer.data.row_groups import RowGroups
from mercer.progress import expect_steps, report_step
from mercer.selection import proposals
from mercer.selection.candidate import Candidate, SelectedEnsemble
from mercer.selection.ensemble import constant_ensemble, ensemble
from mercer.selection.evidence_kernels import evidence_candidates
from mercer.selection.rows import SelectionRows
from mercer.selection.search import Search, survivors
from mercer.selection.settings import DEFAULT_SETTINGS, SelectionSettings, Stage

#: A proposal, and the share of the time after which it is left out.
Proposals = Sequence[tuple[Callable[[Search, list[Candidate]], list[Candidate]], float]]


def select(
    X: Tensor,
    Y: Tensor,
    weight: Tensor,
    *,
    classes: bool,
    rng: np.random.Generator,
    device: Any = "cpu",
    seconds: float | None = None,
    keeps_unit: Tensor | None = None,
    groups: Tensor | None = None,
    metric: str | None = "auto",
    likelihood: bool = False,
    settings: SelectionSettings = DEFAULT_SETTINGS,
    row_groups: RowGroups | None = None,
) -> SelectedEnsemble:
    """Select kernels for raw columns `X` (n × D) and centred targets `Y` (n × p: numbers or class codes).

    Columns that `keeps_unit` marks, such as indicators of categories, are centred but not scaled; those of one group
    (`groups` has an index for each column) share a length-scale. `metric` allows "diagonal" metrics, "full" ones, both
    ("auto") or none (None). With `likelihood` the ensemble is also fitted by kernel logistic regression. Rows of one of
    `row_groups` are never on both sides of a split.
    """
    rows = SelectionRows(X, Y, weight, keeps_unit, groups, rng, device, classes, settings, row_groups)
    search = Search(rows, settings, Clock(seconds), metric, likelihood)
    if rows.n < 2:
        return constant_ensemble(search, 1.0)
    pool: list[Candidate] = []
    expect_steps("selection", sum(1 + len(proposed) for _, proposed in stages(search)))
    search.short_of_time = False
    for stage, proposed in stages(search):
        search.enter(stage)
        before = pool if stage.takes is None else survivors(pool, stage.takes, settings)
        pool = proposals.rescore_survivors(search, before)
        if before and not pool:  # no time was left
            pool = before[:1]
            break
        report_step("selection")
        for propose, until in proposed:
            if not (pool and search.expired(until)):
                pool = pool + propose(search, pool)
            report_step("selection")
    return ensemble(search, pool, evidence_candidates(search, pool))


def stages(search: Search) -> Iterator[tuple[Stage, Proposals]]:
    """The stages of a table: their rows, and the proposals that each of them scores.

    Tables of few rows score all rows in folds. The last stage of a large table has more rows where there is time.
    """
    rows, settings = search.rows, search.settings
    yield Stage("grid", min(rows.n, settings.grid_rows), 0, folds=0), [(proposals.score_grid, 1.0)]
    search.short_of_time = search.clock.expired(settings.usual * search.clock.elapsed())
    first: Proposals = [(proposals.score_column_maps, 0.5)]
    if search.metric is not None:
        first = [*first, (proposals.learn_metrics, 1.0), (proposals.learn_metrics_on_other_maps, 0.4)]
    n_folds = settings.time_folds if rows.ordered else settings.n_folds
    if rows.n < settings.single_stage_below:
        yield Stage("all rows", settings.last_fit_rows, 0, n_folds, settings.trials), first
        return
    last: Proposals = [(proposals.take_further_gradient_steps, 1.0)]
    if rows.ordered:  # a single stretch of time would decide by chance
        n_scores = (-(-n // n_folds) for n in (settings.score_rows, settings.last_score_rows))
        yield Stage("maps and metrics", settings.fit_rows, next(n_scores), n_folds, settings.trials), first
        n_fit, most = settings.last_fit_rows, settings.survivors
        yield Stage("last", n_fit, next(n_scores), n_folds, settings.last_trials, most), last
        return
    yield Stage("maps and metrics", settings.fit_rows, settings.score_rows, 1, settings.trials), first
    n_last = settings.n_last(rows.n, search.short_of_time)
    if rows.n < settings.folded_below:
        yield Stage("last", n_last, 0, settings.last_folds, settings.last_trials, settings.survivors), last
    else:
        n_score = max(n_last, settings.last_score_rows)
        stage = Stage("last", n_last, n_score, 1, settings.last_trials, settings.survivors)
        yield stage, [*last, (proposals.descend_on_held_out_error, 1.0)]
