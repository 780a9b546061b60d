"""The race: which column map, metric, kernel and penalty suit a table; rows that were not fitted decide.

First every column map with a few kernels and no metric, on few rows, each left out in turn (closed form). The better
maps go on: gradients and evidence propose transforms, learned from some rows and judged by others. The best few run
once more on more rows, and the race ends in their weighted average. The constant and the linear predictor always run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from mercer.data.column_maps import KINDS, ColumnMap
from mercer.kernels import Bias, Kernel, Linear, Scaled
from mercer.tuning import constants as c
from mercer.tuning.average import greedy_average
from mercer.tuning.closed_form import Judge, penalty_path
from mercer.tuning.link import FLOORS, Link, fitted_link
from mercer.tuning.metric import distances, tile, typical
from mercer.tuning.race_rows import Rows
from mercer.tuning.side_by_side import side_by_side
from mercer.tuning.track import FAMILIES, Fold, Point, Step, Track, Trial

T = TypeVar("T")


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
        return f"{self.kind}, {self.track.path}, {self.best.point.family}"


class _Clock:
    """The time a race may take, and its report; a branch keeps lines of its own."""

    def __init__(self, seconds: float | None) -> None:
        self.began = self.last = time.perf_counter()
        self.seconds = math.inf if seconds is None else seconds
        self.report: list[dict[str, Any]] = []

    def branch(self) -> _Clock:
        new = _Clock(None)
        new.began, new.seconds = self.began, self.seconds
        return new

    def over(self, share: float = 1.0) -> bool:
        return time.perf_counter() - self.began > share * self.seconds

    def note(self, name: str, rows: int, loss: float) -> None:
        now = time.perf_counter()
        self.report.append({"candidate": name, "rows": rows, "loss": loss, "seconds": now - self.last})
        self.last = now


@dataclass
class _Heat:
    """What candidates are tried with: the rows, the clock, the metrics asked for, and where families have ended."""

    rows: Rows
    clock: _Clock
    metric: str | None
    ends: dict[tuple[str, str], Point]

    def side_by_side(self, tasks: Sequence[Callable[[_Heat], T]]) -> list[T]:
        """Tasks with a clock and ends of their own, put together in the order given."""
        heats = [replace(self, clock=self.clock.branch(), ends=dict(self.ends)) for _ in tasks]

        def started(task: Callable[[_Heat], T], heat: _Heat) -> T:
            heat.clock.last = time.perf_counter()
            return task(heat)

        found = side_by_side([partial(started, *pair) for pair in zip(tasks, heats, strict=True)], self.rows.device)
        for heat in heats:
            self.clock.report += heat.clock.report
            self.ends = heat.ends | self.ends
        self.clock.last = time.perf_counter()
        return found

    def tried(
        self, track: Track, kind: str, starts: dict[str, Point], families: Sequence[str], most: int, wide: bool = False
    ) -> dict[str, Candidate]:
        """The best of each family near where it starts, or where it ended after the same steps of another map."""
        out, steps = {}, track.path
        for family in families:
            known = self.ends.get((steps, family))
            trial = track.tuned(starts[family], most, wide) if known is None else track.tuned(known, c.TRIALS_AGAIN)
            self.ends.setdefault((steps, family), trial.point)
            out[family] = Candidate(kind, track, trial)
            self.clock.note(out[family].name, sum(len(f.X) for f in track.folds), trial.loss)
        return out


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
    rows, clock = Rows(X, Y, weight, kept, rng, device, classes, groups), _Clock(seconds)
    if rows.n < 2:  # none would be left to judge by
        return Race([_nothing(rows, 1.0)], clock.report, 1.0, 1.0, None)
    heat = _Heat(rows, clock, metric, {})
    starts = _first_look(rows, clock)
    first, *others = kinds
    look = lambda heat, kind: heat.tried(rows.track(kind), kind, starts, tuple(starts), c.TRIALS)  # noqa: E731
    plain = {first: look(heat, first)}
    plain |= dict(zip(others, heat.side_by_side([partial(look, kind=kind) for kind in others]), strict=True))
    kinds = sorted(kinds, key=lambda kind: best_of(plain[kind]))
    found = [one for at in plain.values() for one in at.values()]
    if metric is not None:
        found += _with_metrics(heat, kinds[0], plain[kinds[0]], None)
        only = {step.base.family for step in min(found, key=_loss).track.steps if step.base is not None}
        if not clock.over(0.4):
            near = [kind for kind in kinds[1:] if best_of(plain[kind]) <= c.FAR * best_of(plain[kinds[0]])]
            more = [partial(_with_metrics, kind=kind, plain=plain[kind], only=only) for kind in near]
            found += [one for some in heat.side_by_side(more) for one in some]
    finalists = _distinct(sorted(found, key=_loss))[: c.FINALISTS]
    if not rows.small:
        finalists = _last_round(heat, finalists) or finalists[:1]
    return _averaged(rows, finalists, clock)


def _loss(one: Candidate) -> float:
    return one.best.loss


def best_of(found: dict[str, Candidate]) -> float:
    """The least loss of several families."""
    return min(map(_loss, found.values()))


def _first_look(rows: Rows, clock: _Clock) -> dict[str, Point]:
    """Where families start: the points that few rows, each left out in turn, like best.

    The rough families always run; another runs where it comes close to the best of all.
    """
    n = min(rows.n, c.FIRST_ROWS)
    Y, w, Z = rows.Y[:n], rows.w[:n], rows.mapped["standard"][:n]
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
        clock.note(f"standard, none, {family}", n, found[family][0])
    best = min(loss for loss, _ in found.values())
    return {f: point for f, (loss, point) in found.items() if f in c.ROUGH or loss < best * (1 + c.CLOSE)}


def _with_metrics(heat: _Heat, kind: str, plain: dict[str, Candidate], only: set[str] | None) -> list[Candidate]:
    """The metrics of a column map: the evidence's, and gradients' as long as each step gains.

    City-block gradients give a diagonal metric, from no metric on; Euclidean ones a full metric, from the better of
    no metric and the evidence's on (which is diagonal: where only full ones are wanted, no more than a start). `only`
    names the families whose gradients may be asked.
    """
    def asked(base: str, full: bool) -> bool:
        return heat.metric in ("auto", "full" if full else "diagonal") and (only is None or base in only)

    def diagonal(heat: _Heat) -> list[Candidate]:
        return _climbed(heat, kind, plain, "cityblock", full=False) if asked("cityblock", False) else []

    def evident_and_full(heat: _Heat) -> list[Candidate]:
        at, found = plain, []
        if heat.rows.X.shape[1] > 1:
            points = {family: one.best.point for family, one in plain.items()}
            track = plain["matern12"].track.stepped(heat.rows.evidence(kind))
            evident = heat.tried(track, kind, points, c.ROUGH, c.TRIALS_ON, wide=True)
            found += evident.values() if heat.metric != "full" else ()
            at = evident if best_of(evident) < best_of(plain) else plain
        return found + (_climbed(heat, kind, at, "matern12", full=True) if asked("matern12", True) else [])

    return [one for some in heat.side_by_side([evident_and_full, diagonal]) for one in some]


def _climbed(heat: _Heat, kind: str, at: dict[str, Candidate], base: str, full: bool) -> list[Candidate]:
    """Gradient steps of one kind, as long as they gain."""
    families = ("matern32", "matern12") if full else ("cityblock", "matern32")
    best, found = best_of(at), []
    track, points = at[base].track, {family: one.best.point for family, one in at.items()}
    for _ in range(c.STEPS):
        if heat.clock.over(0.7):
            break
        track = track.stepped(Step(points[base], full, 0.5 if full else 1.0))
        at = heat.tried(track, kind, points, families, c.TRIALS_ON)
        points |= {family: one.best.point for family, one in at.items()}
        found += at.values()
        now = best_of(at)
        if now > best * (1 - c.GAIN):
            break
        best = now
    return found


def _distinct(found: list[Candidate]) -> list[Candidate]:
    """Candidates in the order given, without those far behind the first and those that say what one before them says.

    With errors of mean square e and differences of mean square d, an average of two has an error of e − d/4.
    """
    out: list[Candidate] = []
    for one in found:
        F, Y = one.best.values, one.track.judge.Y
        least = c.NEAR * float((F - Y).square().mean())
        if _loss(one) <= c.FAR * _loss(found[0]) and all(
            float((F - other.best.values).square().mean()) > least for other in out[: c.FINALISTS]
        ):
            out.append(one)
    return out


def _last_round(heat: _Heat, finalists: list[Candidate]) -> list[Candidate]:
    """The same candidates with transform and fit learned from more rows, those of one track together."""
    tracks: dict[tuple[str, tuple[Step, ...]], list[Candidate]] = {}
    for one in finalists:
        tracks.setdefault((one.kind, one.track.steps), []).append(one)

    def again(heat: _Heat, kind: str, steps: tuple[Step, ...], members: list[Candidate]) -> list[Candidate]:
        if heat.clock.over():
            return []
        track, out = heat.rows.walked(kind, steps), []
        for one in members:
            out.append(Candidate(kind, track, track.trial(one.best.point)))
            heat.clock.note(out[-1].name, sum(len(f.X) for f in track.folds), out[-1].best.loss)
        return out

    def settled(heat: _Heat, one: Candidate, place: int) -> list[Candidate]:
        if not heat.clock.over():
            one.best = one.track.tuned(one.best.point, c.LAST_TRIALS)
            heat.clock.note(one.name, sum(len(f.X) for f in one.track.folds), one.best.loss)
        return [one, *(_onward(heat, one) if place < c.ONWARD and heat.metric is not None else ())]

    tasks = [partial(again, kind=kind, steps=steps, members=some) for (kind, steps), some in tracks.items()]
    found = sorted((one for some in heat.side_by_side(tasks) for one in some), key=_loss)
    best = heat.side_by_side([partial(settled, one=one, place=k) for k, one in enumerate(found[: c.SETTLED])])
    found = [one for some in best for one in some] + found[c.SETTLED :]
    for one in found:
        one.track.forget()
    return found


def _onward(heat: _Heat, one: Candidate) -> Iterator[Candidate]:
    """Further steps by the gradients of a candidate's own model, as long as they gain; more rows carry more steps."""
    family = one.best.point.family
    full = family != "cityblock"
    if family == "linear" or heat.metric not in ("auto", "full" if full else "diagonal"):
        return
    for _ in range(c.STEPS_ON):
        if heat.clock.over():
            return
        track = one.track.stepped(Step(one.best.point, full, 0.5 if full else 1.0))
        new = Candidate(one.kind, track, track.tuned(one.best.point, c.LAST_TRIALS))
        heat.clock.note(new.name, sum(len(f.X) for f in track.folds), new.best.loss)
        if _loss(new) > _loss(one) * (1 - c.GAIN):
            return
        yield new
        one = new


def _averaged(rows: Rows, finalists: list[Candidate], clock: _Clock) -> Race:
    """The race's end: an average of finalists, or the constant where none of them is better."""
    finalists = sorted(finalists, key=_loss)
    judge = finalists[0].track.judge
    constant = judge.constant
    if finalists[0].best.loss >= constant:
        prior = None if rows.codes is None else Link(rows.codes, FLOORS[0], 1.0)
        return Race([_nothing(rows, constant)], clock.report, constant, constant, prior)
    values = [one.best.values for one in finalists]
    zero = [] if rows.codes is not None else [torch.zeros_like(judge.Y)]  # a link shrinks by itself
    shares, loss = greedy_average(values + zero, judge)
    chosen = sorted((k for k in range(len(values)) if shares[k]), key=lambda k: -shares[k])
    average = sum((shares[k] * values[k] for k in chosen), torch.zeros_like(judge.Y))
    link = None if rows.codes is None else fitted_link(rows.codes, average, judge.Y, judge.weight)
    return Race([_member(rows, finalists[k], shares[k]) for k in chosen], clock.report, loss, constant, link)


def _nothing(rows: Rows, loss: float) -> Member:
    """The constant: a bias under a penalty that lets it learn nothing."""
    columns = rows.maps[KINDS[0]]
    return Member(columns, torch.ones_like(columns.mean), Bias(1.0), 1e12, 1.0, loss, "constant")


def _member(rows: Rows, one: Candidate, share: float) -> Member:
    """A member, the last step to its transform taken once more with all rows that the race may fit by."""
    track, point = one.track, one.best.point
    if track.steps or rows.folded:
        Z = rows.mapped[one.kind][: c.METRIC_ROWS]
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
