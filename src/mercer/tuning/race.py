"""The race: which column map, metric, kernel and penalty suit a table; rows that were not fitted decide.

First every column map with a few kernels and no metric, on few rows, each left out in turn (closed form). The better
maps go on: gradients and evidence propose transforms, learned from some rows and judged by others. The best few run
once more on more rows, and the race ends in their weighted average. The constant and the linear predictor always run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.data.column_maps import KINDS, ColumnMap
from mercer.kernels import Bias, Kernel, Linear, Scaled
from mercer.tuning import constants as c
from mercer.tuning.closed_form import Judge, penalty_path
from mercer.tuning.link import Link, fitted_link
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


class _Clock:
    def __init__(self, seconds: float | None) -> None:
        self.began = self.last = time.perf_counter()
        self.seconds = math.inf if seconds is None else seconds
        self.report: list[dict[str, Any]] = []

    def over(self, share: float = 1.0) -> bool:
        return time.perf_counter() - self.began > share * self.seconds

    def note(self, name: str, rows: int, loss: float) -> None:
        now = time.perf_counter()
        self.report.append({"candidate": name, "rows": rows, "loss": loss, "seconds": now - self.last})
        self.last = now


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
) -> Race:
    """Find members for raw columns `X` (n × D) and centred targets `Y` (n × p: numbers or codes of classes).

    Columns that are `kept`, such as indicators of categories, are centred but not scaled.
    """
    rows, clock = Rows(X, Y, weight, kept, rng, device, classes), _Clock(seconds)
    starts = _first_look(rows, clock)
    kinds = sorted(starts, key=lambda kind: min(loss for loss, _ in starts[kind].values()))
    found: list[Candidate] = []
    only: set[str] | None = None
    for place, kind in enumerate(kinds[: c.MAPS]):
        if place == 0 or not clock.over(0.4):
            found += _with_metrics(rows, kind, _likely(starts[kind]), clock, only)
            only = {step.base.family for step in min(found, key=_loss).track.steps if step.base is not None}
    found.sort(key=_loss)
    finalists = _distinct(found)[: c.FINALISTS]
    if not rows.folded:
        again = [candidate for one in finalists if (candidate := _again(rows, one, clock)) is not None]
        finalists = _settled(sorted(again, key=_loss), clock) or finalists[:1]
    return _averaged(rows, finalists, clock)


def _loss(one: Candidate) -> float:
    return one.best.loss


def _likely(starts: dict[str, tuple[float, Point]]) -> dict[str, Point]:
    """Where families start: the three rough ones, and another where it was ahead of them."""
    best = min(loss for loss, _ in starts.values())
    return {f: p for f, (loss, p) in starts.items() if f in c.ROUGH or loss < best * (1 + c.CLOSE)}


def _first_look(rows: Rows, clock: _Clock) -> dict[str, dict[str, tuple[float, Point]]]:
    """For every column map and family, the loss and point that few rows, each left out in turn, like best."""
    n = min(rows.n, c.FIRST_ROWS)
    Y, w = rows.Y[:n], rows.w[:n]
    judge, penalties = Judge(Y, w, rows.codes), torch.tensor(c.PENALTIES, dtype=torch.float64)
    found: dict[str, dict[str, tuple[float, Point]]] = {}
    for kind in KINDS:
        Z = rows.mapped(kind)[:n]
        found[kind] = {}
        shared = {key: distances(FAMILIES[key], Z, Z).double() for key in ("matern32", "cityblock")}
        units = {key: typical(d) for key, d in shared.items()}
        for family, lengths in c.FIRST_LENGTHS.items():
            key = "cityblock" if family == "cityblock" else "matern32"
            options = []
            for length in lengths:
                factor = c.LENGTHS[family] * 2.0**length
                K = (
                    Z @ Z.T / Z.shape[1]
                    if family == "linear"
                    else tile(FAMILIES[family], shared[key], factor * units[key])
                )
                losses = judge(penalty_path(K, Y, w, penalties)).nan_to_num(math.inf)
                best = int(losses.argmin())
                options.append((float(losses[best]), Point(family, length, best)))
            found[kind][family] = min(options)
            clock.note(f"{kind}, none, {family}", n, found[kind][family][0])
    return found


def _with_metrics(
    rows: Rows, kind: str, starts: dict[str, Point], clock: _Clock, only: set[str] | None
) -> Iterator[Candidate]:
    """Every track of a column map: no metric, evidence, and gradients from there, each as long as it gains."""

    def tried(track: Track, families: tuple[str, ...], most: int) -> dict[str, Candidate]:
        out = {}
        for family in families:
            trial = track.tuned(starts[family], most)
            starts[family] = trial.point
            out[family] = Candidate(kind, track, trial)
            clock.note(out[family].name, sum(len(f.X) for f in track.folds), trial.loss)
        return out

    def climbed(track: Track, at: dict[str, Candidate], base: str, full: bool, power: float) -> Iterator[Candidate]:
        families = ("matern32", "matern12") if full else ("cityblock", "matern32")
        best = min(one.best.loss for one in at.values())
        for _ in range(c.STEPS):
            if clock.over(0.7):
                return
            track = track.stepped(Step(at[base].best.point, full, power))
            at = tried(track, families, c.TRIALS_ON)
            yield from at.values()
            now = min(one.best.loss for one in at.values())
            if now > best * (1 - c.GAIN):
                return
            best = now

    plain = rows.track(kind)
    at = tried(plain, tuple(starts), c.TRIALS)
    yield from at.values()
    before = dict(starts)
    if only is None or "cityblock" in only:
        yield from climbed(plain, at, "cityblock", False, 1.0)
    starts.update(before)
    if rows.X.shape[1] > 1:
        evident = plain.stepped(rows.evidence(plain.folds))
        by_evidence = tried(evident, ("matern32", "matern12", "cityblock"), c.TRIALS_ON)
        yield from by_evidence.values()
        better = min(one.best.loss for one in by_evidence.values()) < min(one.best.loss for one in at.values())
        track, at = (evident, by_evidence) if better else (plain, at)
        if only is None or "matern12" in only:
            yield from climbed(track, at, "matern12", True, 0.5)


def _distinct(found: list[Candidate]) -> list[Candidate]:
    """The best candidate of each family and kind of metric of each map, best first."""
    seen, out = set(), []
    for one in found:
        last = one.track.steps[-1] if one.track.steps else None
        key = one.kind, one.best.point.family, str(last)
        if key not in seen:
            seen.add(key)
            out.append(one)
    return out


def _again(rows: Rows, one: Candidate, clock: _Clock) -> Candidate | None:
    """The same candidate with its transform and fit learned from more rows."""
    if clock.over():
        return None
    track = rows.track(one.kind, last=True)
    for step in one.track.steps:
        track = track.stepped(step)
    found = Candidate(one.kind, track, track.trial(one.best.point))
    clock.note(found.name, sum(len(f.X) for f in track.folds), found.best.loss)
    return found


def _settled(finalists: list[Candidate], clock: _Clock) -> list[Candidate]:
    """Length-scale and penalty of the better half once more, on the rows of the last round."""
    for place, one in enumerate(finalists):
        if place < c.SETTLED and not clock.over():
            one.best = one.track.tuned(one.best.point, c.LAST_TRIALS)
            clock.note(one.name, sum(len(f.X) for f in one.track.folds), one.best.loss)
        one.track.forget()
    return finalists


def _averaged(rows: Rows, finalists: list[Candidate], clock: _Clock) -> Race:
    """Greedy averaging with replacement (Caruana et al. 2004), as long as a further draw gains."""
    judge = rows.track(KINDS[0], last=not rows.folded).judge
    constant = judge.constant
    zero = torch.zeros_like(judge.Y)
    finalists = sorted(finalists, key=_loss)
    if not finalists or finalists[0].best.loss >= constant:
        return Race([_nothing(rows, constant)], clock.report, constant, constant, None)
    values = [one.best.values for one in finalists] + [zero]
    counts = [0] * len(values)
    counts[0], total, best = 1, values[0].clone(), finalists[0].best.loss
    for draw in range(2, c.DRAWS + 1):
        losses = judge(torch.stack([(total + value) / draw for value in values]))
        k = int(losses.argmin())
        size = sum(count > 0 for count in counts[:-1]) + (counts[k] == 0)
        if float(losses[k]) > best * (1 - c.GAIN / draw) or size > c.MEMBERS:
            break
        counts[k] += 1
        total, best = total + values[k], float(losses[k])
    drawn = sum(counts)
    chosen = sorted((k for k in range(len(finalists)) if counts[k]), key=lambda k: -counts[k])
    members = [_member(rows, finalists[k], counts[k] / drawn) for k in chosen]
    link = None if rows.codes is None else fitted_link(rows.codes, total / drawn, judge.Y, judge.weight)
    return Race(members, clock.report, best, constant, link)


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
