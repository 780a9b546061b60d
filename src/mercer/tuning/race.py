"""The race: which column map, metric, kernel and penalty suit a table; rows that were not fitted decide.

First every column map with a few kernels and no metric, on few rows, each left out in turn (closed form). The better
maps go on: gradients and evidence propose transforms, learned from some rows and judged by others. The best few run
once more on more rows, and the race ends in their weighted average. The constant and the linear predictor always run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.clock import Clock
from mercer.data.column_maps import KINDS, ColumnMap
from mercer.kernels import Bias, Kernel, Linear, Scaled
from mercer.progress import tell
from mercer.tuning import constants as c
from mercer.tuning.average import greedy_average
from mercer.tuning.closed_form import Judge, penalty_path
from mercer.tuning.link import FLOORS, Link, fitted_link
from mercer.tuning.metric import distances, tile, typical
from mercer.tuning.race_rows import Rows
from mercer.tuning.track import FAMILIES, Fold, Point, Step, Track, Trial


@dataclass(frozen=True)
class Member:
    """A kernel on mapped and transformed inputs, with its penalty and its share of the average."""

    columns: ColumnMap
    transform: Tensor
    kernel: Kernel
    penalty: float
    share: float
    loss: float
    name: str


@dataclass(frozen=True)
class Race:
    """What the race found: members, best first, and every candidate with its rows, loss and seconds."""

    members: list[Member]
    report: list[dict[str, Any]]
    loss: float
    constant: float
    link: Link | None


@dataclass
class Candidate:
    """A track of one column map and the best trial of one family on it."""

    kind: str
    track: Track
    best: Trial

    @property
    def name(self) -> str:
        steps = " + ".join(map(str, self.track.steps)) or "none"
        return f"{self.kind}, {steps}, {self.best.point.family}"


@dataclass
class _Book:
    """What ran so far, and whether there is time for more."""

    clock: Clock
    report: list[dict[str, Any]] = field(default_factory=list)
    last: float = 0.0

    def over(self, share: float = 1.0) -> bool:
        return self.clock.over(share=share) is not None

    def note(self, name: str, rows: int, loss: float) -> None:
        now = self.clock.spent()
        self.report.append({"candidate": name, "rows": rows, "loss": loss, "seconds": now - self.last})
        self.last = now
        tell("race", state=self.report[-1])


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
    metric: str | None = "auto",
    kinds: Sequence[str] = KINDS,
) -> Race:
    """Find members for raw columns `X` (n × D) and centred targets `Y` (n × p: numbers or codes of classes).

    Columns that are `kept`, such as indicators of categories, are centred but not scaled. `metric` says what runs
    beside the columns as they are: "diagonal" transforms, "full" ones, both ("auto") or nothing (None). `kinds` are
    the column maps that run.
    """
    rows, book = Rows(X, Y, weight, kept, rng, device, classes), _Book(Clock(seconds))
    if rows.n < 2:  # none would be left to judge by
        return Race([_nothing(rows, 1.0)], book.report, 1.0, 1.0, None)
    starts = _first_look(rows, book)
    plain = {kind: _tried(rows.track(kind), kind, starts, tuple(starts), c.TRIALS, book) for kind in kinds}
    kinds = sorted(kinds, key=lambda kind: min(map(_loss, plain[kind].values())))
    found = [one for at in plain.values() for one in at.values()]
    only: set[str] | None = None
    for place, kind in enumerate(kinds[: c.MAPS] if metric is not None else ()):
        if place == 0 or not book.over(0.4):
            found += _with_metrics(rows, kind, plain[kind], book, only, metric)
            only = {step.base.family for step in min(found, key=_loss).track.steps if step.base is not None}
    finalists = _distinct(sorted(found, key=_loss))[: c.FINALISTS]
    if not rows.folded:
        again = [candidate for one in finalists if (candidate := _again(rows, one, book)) is not None]
        finalists = _settled(sorted(again, key=_loss), book) or finalists[:1]
    return _averaged(rows, finalists, book)


def _loss(one: Candidate) -> float:
    return one.best.loss


def _first_look(rows: Rows, book: _Book) -> dict[str, Point]:
    """Where families start: the points that few rows, each left out in turn, like best.

    The rough families always run; another runs where it comes close to the best of all.
    """
    n = min(rows.n, c.FIRST_ROWS)
    Y, w, Z = rows.Y[:n], rows.w[:n], rows.mapped("standard")[:n]
    judge, penalties = Judge(Y, w, rows.codes), torch.tensor(c.PENALTIES, dtype=torch.float64)
    found: dict[str, tuple[float, Point]] = {}
    for family, lengths in c.FIRST_LENGTHS.items():
        kernel, options = FAMILIES[family], []
        distance = Z if family == "linear" else distances(kernel, Z, Z).double()
        unit = typical(distance)
        for length in lengths:
            factor = c.LENGTHS[family] * 2.0**length
            K = Z @ Z.T / Z.shape[1] if family == "linear" else tile(kernel, distance, factor * unit)
            losses = judge(penalty_path(K, Y, w, penalties)).nan_to_num(math.inf)
            options.append((float(losses.min()), Point(family, length, int(losses.argmin()))))
        found[family] = min(options)
        book.note(f"standard, none, {family}", n, found[family][0])
    best = min(loss for loss, _ in found.values())
    return {f: point for f, (loss, point) in found.items() if f in c.ROUGH or loss < best * (1 + c.CLOSE)}


def _tried(
    track: Track,
    kind: str,
    starts: dict[str, Point],
    families: tuple[str, ...],
    most: int,
    book: _Book,
    wide: bool = False,
) -> dict[str, Candidate]:
    """The best of each family near where it starts."""
    out = {}
    for family in families:
        trial = track.tuned(starts[family], most, wide)
        out[family] = Candidate(kind, track, trial)
        book.note(out[family].name, sum(len(f.X) for f in track.folds), trial.loss)
    return out


def _with_metrics(
    rows: Rows, kind: str, plain: dict[str, Candidate], book: _Book, only: set[str] | None, metric: str | None
) -> Iterator[Candidate]:
    """The metrics of a column map: the evidence's, and gradients' as long as each step gains.

    City-block gradients give a diagonal metric, from no metric on; Euclidean ones a full metric, from the better of
    no metric and the evidence's on (which is diagonal: where only full ones are wanted, no more than a start). `only`
    names the families whose gradients may be asked.
    """
    track, at = plain["matern12"].track, plain
    if rows.X.shape[1] > 1:
        points = {family: one.best.point for family, one in plain.items()}
        evident = _tried(track.stepped(rows.evidence(kind)), kind, points, c.ROUGH, c.TRIALS_ON, book, wide=True)
        if metric != "full":
            yield from evident.values()
        at = evident if min(map(_loss, evident.values())) < min(map(_loss, plain.values())) else plain
    for base, start, full, power in (("cityblock", plain, False, 1.0), ("matern12", at, True, 0.5)):
        if metric in ("auto", "full" if full else "diagonal") and (only is None or base in only):
            yield from _climbed(kind, start, Step(start[base].best.point, full, power), book)


def _climbed(kind: str, at: dict[str, Candidate], step: Step, book: _Book) -> Iterator[Candidate]:
    """Gradient steps of one kind, as long as they gain."""
    assert step.base is not None
    families = ("matern32", "matern12") if step.full else ("cityblock", "matern32")
    base, best = step.base.family, min(map(_loss, at.values()))
    track, points = at[base].track, {family: one.best.point for family, one in at.items()}
    for _ in range(c.STEPS):
        if book.over(0.7):
            return
        track = track.stepped(replace(step, base=points[base]))
        at = _tried(track, kind, points, families, c.TRIALS_ON, book)
        points |= {family: one.best.point for family, one in at.items()}
        yield from at.values()
        now = min(map(_loss, at.values()))
        if now > best * (1 - c.GAIN):
            return
        best = now


def _distinct(found: list[Candidate]) -> list[Candidate]:
    """The best candidate of each family and kind of metric of each map, in the order given."""
    seen, out = set(), []
    for one in found:
        last = one.track.steps[-1] if one.track.steps else None
        key = one.kind, one.best.point.family, str(last)
        if key not in seen:
            seen.add(key)
            out.append(one)
    return out


def _again(rows: Rows, one: Candidate, book: _Book) -> Candidate | None:
    """The same candidate with its transform and fit learned from more rows."""
    if book.over():
        return None
    track = rows.track(one.kind, last=True)
    for step in one.track.steps:
        track = track.stepped(step)
    found = Candidate(one.kind, track, track.trial(one.best.point))
    book.note(found.name, sum(len(f.X) for f in track.folds), found.best.loss)
    return found


def _settled(finalists: list[Candidate], book: _Book) -> list[Candidate]:
    """Length-scale and penalty of the better half once more, on the rows of the last round."""
    for place, one in enumerate(finalists):
        if place < c.SETTLED and not book.over():
            one.best = one.track.tuned(one.best.point, c.LAST_TRIALS)
            book.note(one.name, sum(len(f.X) for f in one.track.folds), one.best.loss)
        one.track.forget()
    return finalists


def _averaged(rows: Rows, finalists: list[Candidate], book: _Book) -> Race:
    """The race's end: an average of finalists, or the constant where none of them is better."""
    finalists = sorted(finalists, key=_loss)
    judge = finalists[0].track.judge
    constant = judge.constant
    if finalists[0].best.loss >= constant:
        prior = None if rows.codes is None else Link(rows.codes, FLOORS[0], 1.0)
        return Race([_nothing(rows, constant)], book.report, constant, constant, prior)
    values = [one.best.values for one in finalists]
    zero = [] if rows.codes is not None else [torch.zeros_like(judge.Y)]  # a link shrinks by itself
    shares, loss = greedy_average(values + zero, judge)
    chosen = sorted((k for k in range(len(values)) if shares[k]), key=lambda k: -shares[k])
    average = sum((shares[k] * values[k] for k in chosen), torch.zeros_like(judge.Y))
    link = None if rows.codes is None else fitted_link(rows.codes, average, judge.Y, judge.weight)
    return Race([_member(rows, finalists[k], shares[k]) for k in chosen], book.report, loss, constant, link)


def _nothing(rows: Rows, loss: float) -> Member:
    """The constant: a bias under a penalty that lets it learn nothing."""
    columns = rows.maps[KINDS[0]]
    return Member(columns, torch.ones_like(columns.mean), Bias(1.0), 1e12, 1.0, loss, "constant")


def _member(rows: Rows, one: Candidate, share: float) -> Member:
    """A member, the last step to its transform taken once more with all rows that the race may fit by."""
    track, point = one.track, one.best.point
    if track.steps or rows.folded:
        Z = rows.mapped(one.kind)[: c.METRIC_ROWS]
        fold = Fold(Z, rows.Y[: len(Z)], rows.w[: len(Z)], Z[:0])
        if rows.folded:
            again, steps = Track([fold], track.judge, [torch.ones_like(Z[0])]), track.steps
        else:
            again, steps = Track([fold], track.judge, track.before), track.steps[-1:]
        for step in steps:
            again = again.stepped(step)
        track = again
    kernel: Kernel
    if point.family == "linear":
        kernel = Scaled(Linear(), 1 / rows.X.shape[1])
    else:
        kernel = replace(FAMILIES[point.family], length_scale=point.factor * track.unit(point.family))
    return Member(rows.maps[one.kind], track.transforms[0].cpu(), kernel, point.lam, share, one.best.loss, one.name)
