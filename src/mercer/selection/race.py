"""The race: which column map, metric, kernel and penalty suit a table; rows that were not fitted decide.

First every column map with a few kernels and no metric, on few rows, each left out in turn (closed form). The better
maps go on: gradients and evidence propose transforms, learned from some rows and judged by others. The best few run
once more on more rows, and the race ends in their weighted average. The constant and the linear predictor always run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.clock import Clock
from mercer.data.column_maps import KINDS
from mercer.selection import constants as c
from mercer.selection.closed_form import Judge, penalty_path
from mercer.selection.heat import Book, Candidate, Heat, best_of, loss_of
from mercer.selection.last_round import Race, RacedKernel, averaged, distinct, last_round, nothing
from mercer.selection.metric import distances, tile, typical
from mercer.selection.parallel import beside
from mercer.selection.race_rows import Rows
from mercer.selection.track import FAMILIES, Rung, Step

__all__ = ["RacedKernel", "Race", "race"]


def race(
    X: Tensor,
    Y: Tensor,
    weight: Tensor,
    *,
    classes: bool,
    rng: np.random.Generator,
    device: Any = "cpu",
    seconds: float | None = None,
    kept: Tensor | None = None,
    groups: Tensor | None = None,
    metric: str | None = "auto",
    kinds: Sequence[str] = KINDS,
) -> Race:
    """Find members for raw columns `X` (n × D) and centred targets `Y` (n × p: numbers or codes of classes).

    Columns that are `kept`, such as indicators of categories, are centred but not scaled; those of one of the `groups`
    (an index for each column) share a length-scale. `metric` says what runs beside the columns as they are: "diagonal"
    transforms, "full" ones, both ("auto") or nothing (None). `kinds` are the column maps that run.
    """
    rows, book = Rows(X, Y, weight, kept, rng, device, classes, groups), Book(Clock(seconds))
    if rows.n < 2:  # none would be left to judge by
        return Race([nothing(rows, 1.0)], book.report, 1.0, 1.0, None)
    if metric == "auto" and X.shape[1] > c.FULL_INPUTS:
        metric = "diagonal"
    heat = Heat(rows, book, metric, {})
    starts = _first_look(heat)
    rows.hurried = book.clock.expired(needing=c.USUAL * book.clock.elapsed())
    wanted = metric is not None and X.shape[1] > 1 and not rows.hurried
    # the longest piece of work begins first; where another map turns out to be better, its evidence goes on from there
    with beside(lambda: rows.evidence(kinds[0])) if wanted else nullcontext():
        plain = _looks(heat, kinds, starts)
    kinds = sorted(plain, key=lambda kind: best_of(plain[kind]))
    found = [one for at in plain.values() for one in at.values()]
    if metric is not None and not book.over():
        found += _with_metrics(heat, kinds[0], plain[kinds[0]])
        far, best = c.FAR * best_of(plain[kinds[0]]), min(found, key=loss_of)
        bases = [step.base.family for step in best.track.steps if step.base is not None]
        # what is that far from the best of all would not reach the last round
        evident = any(loss_of(one) <= c.FAR * loss_of(best) for one in found if one.track.path == "evidence")
        worth = {*bases, *(["evidence"] if evident else [])}
        if not book.over(0.4):
            near = [kind for kind in kinds[1:] if best_of(plain[kind]) <= far]
            told: dict[str, Any] = {"only": worth, "most": max(len(bases), 1)}
            more = [partial(_with_metrics, kind=kind, plain=plain[kind], **told) for kind in near]
            found += [one for some in heat.side_by_side(more) for one in some]
    finalists = distinct(sorted(found, key=loss_of))[: c.FINALISTS]
    if not rows.small:
        finalists = last_round(heat, finalists) or finalists[:1]
    return averaged(rows, finalists, book)


def _looks(heat: Heat, kinds: Sequence[str], starts: dict[str, Rung]) -> dict[str, dict[str, Candidate]]:
    """Every column map without a metric: the first one shows where the others start."""
    first, *others = kinds

    def look(heat: Heat, kind: str, families: Sequence[str]) -> dict[str, Candidate]:
        track = heat.rows.track(kind)
        found = heat.tried(track, kind, starts, families, c.TRIALS)
        track.forget()
        return found

    alike = [[family for family in starts if (family == "cityblock") is apart] for apart in (False, True)]
    plain: dict[str, dict[str, Candidate]] = {first: {}}
    for some in heat.side_by_side([partial(look, kind=first, families=families) for families in alike]):
        plain[first] |= some
    others = [] if heat.book.over(0.5) else others
    looks = [partial(look, kind=kind, families=tuple(starts)) for kind in others]
    return plain | dict(zip(others, heat.side_by_side(looks), strict=True))


def _first_look(heat: Heat) -> dict[str, Rung]:
    """Where families start: the rungs that few rows, each left out in turn, like best.

    The rough families always run; another runs where it comes close to the best of all.
    """
    rows = heat.rows
    n = min(rows.n, c.FIRST_ROWS)
    Y, w, Z = rows.Y[:n], rows.w[:n], rows.mapped["standard"][:n]
    judge, penalties = Judge(Y, w, rows.codes), torch.tensor(c.PENALTIES, dtype=torch.float64)

    def best(heat: Heat, family: str) -> tuple[float, Rung]:
        kernel, options = FAMILIES[family], []
        distance = Z if family == "linear" else distances(kernel, Z, Z).double()
        unit = typical(distance)
        for length in c.FIRST_LENGTHS[family]:
            factor = c.LENGTHS[family] * 2.0**length
            # with a constant: else a row of centred columns is minus the sum of the others, and so is its target
            K = Z @ Z.T / Z.shape[1] + 1.0 if family == "linear" else tile(kernel, distance, factor * unit)
            losses = judge(penalty_path(K, Y, w, penalties)).nan_to_num(math.inf)
            tried = [(float(loss), Rung(family, length, k)) for k, loss in enumerate(losses)]
            options.append(min(tried, key=lambda one: one[0] * one[1].price))
        heat.book.note(f"standard, none, {family}", n, min(options)[0])
        return min(options)

    families = list(c.FIRST_LENGTHS)
    found = dict(zip(families, heat.side_by_side([partial(best, family=f) for f in families]), strict=True))
    least = min(loss for loss, _ in found.values())
    return {f: rung for f, (loss, rung) in found.items() if f in c.ROUGH or loss < least * (1 + c.CLOSE)}


def _with_metrics(
    heat: Heat, kind: str, plain: dict[str, Candidate], only: set[str] | None = None, most: int = c.STEPS
) -> list[Candidate]:
    """The metrics of a column map: the evidence's, and gradients' as long as each step gains.

    City-block gradients give a diagonal metric, from no metric on; Euclidean ones a full metric, from the better of
    no metric and the evidence's on (which is diagonal: where only full ones are wanted, no more than a start). What the
    best map has shown is not asked again of the others: `only` names the families whose gradients are worth it, and
    "evidence" where that is; `most` is the number of gradient steps.
    """

    def asked(base: str, full: bool) -> bool:
        return heat.metric in ("auto", "full" if full else "diagonal") and (only is None or base in only)

    def diagonal(heat: Heat) -> list[Candidate]:
        return _climbed(heat, kind, plain, "cityblock", full=False, most=most) if asked("cityblock", False) else []

    def evident_and_full(heat: Heat) -> list[Candidate]:
        found: list[Candidate] = []
        at = plain
        if heat.rows.X.shape[1] > 1 and (only is None or "evidence" in only):
            rungs = {family: one.best.rung for family, one in plain.items()}
            track = plain["matern12"].track.stepped(heat.rows.evidence(kind))
            evident = heat.tried(track, kind, rungs, c.ROUGH, c.TRIALS_ON, wide=True)
            track.forget()
            found += evident.values() if heat.metric != "full" else ()
            at = evident if best_of(evident) < best_of(plain) else plain
        return found + (_climbed(heat, kind, at, "matern12", full=True, most=most) if asked("matern12", True) else [])

    return [one for some in heat.side_by_side([evident_and_full, diagonal]) for one in some]


def _climbed(heat: Heat, kind: str, at: dict[str, Candidate], base: str, full: bool, most: int) -> list[Candidate]:
    """Gradient steps of one kind, as long as they gain, at most so many."""
    families = ("matern32", "matern12") if full else ("cityblock", "matern32")
    found: list[Candidate] = []
    best = best_of(at)
    track, rungs = at[base].track, {family: one.best.rung for family, one in at.items()}
    for _ in range(most):
        if heat.book.over(0.7):
            break
        before, track = track, track.stepped(Step(rungs[base], full, c.POWERS[full][0]))
        before.forget()
        at = heat.tried(track, kind, rungs, families, c.TRIALS_ON)
        rungs |= {family: one.best.rung for family, one in at.items()}
        found += at.values()
        now = best_of(at)
        if now > best * (1 - c.GAIN):
            break
        best = now
    track.forget()
    return found
