"""The end of a race: the best few run once more on more rows, and become the members of an average."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from mercer.data.column_maps import KINDS, ColumnMap
from mercer.kernels import Bias, Kernel, Linear, Scaled
from mercer.selection import constants as c
from mercer.selection.average import greedy_average
from mercer.selection.descent import SINGLE, Descent
from mercer.selection.heat import Book, Candidate, Heat, loss_of
from mercer.selection.link import FLOORS, Link, fitted_link
from mercer.selection.metric import power_of
from mercer.selection.parallel import side_by_side
from mercer.selection.race_rows import Rows
from mercer.selection.shrinkage import believed
from mercer.selection.track import FAMILIES, Fold, Rung, Step, Track


@dataclass(frozen=True)
class RacedKernel:
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

    members: list[RacedKernel]
    report: list[dict[str, Any]]
    loss: float
    constant: float
    link: Link | None


def distinct(found: list[Candidate]) -> list[Candidate]:
    """Candidates in the order given, without those far behind the first and those that say what one before them says.

    With errors of mean square e and differences of mean square d, an average of two has an error of e − d/4.
    """
    out: list[Candidate] = []
    for one in found:
        F, Y = one.best.values, one.track.judge.Y
        least = c.NEAR * float((F - Y).square().mean())
        if loss_of(one) <= c.FAR * loss_of(found[0]) and all(
            float((F - other.best.values).square().mean()) > least for other in out[: c.FINALISTS]
        ):
            out.append(one)
    return out


def last_round(heat: Heat, finalists: list[Candidate]) -> list[Candidate]:
    """The same candidates with transform and fit learned from more rows, those of one track together."""
    tracks: dict[tuple[str, tuple[Step, ...]], list[Candidate]] = {}
    for one in finalists:
        tracks.setdefault((one.kind, one.track.steps), []).append(one)

    def again(heat: Heat, kind: str, steps: tuple[Step, ...], members: list[Candidate]) -> list[Candidate]:
        if heat.book.over():
            return []
        track, out = heat.rows.walked(kind, steps), []
        for one in members:
            out.append(Candidate(kind, track, track.trial(one.best.rung)))
            heat.note(out[-1])
        track.forget()
        return out

    def settled(heat: Heat, one: Candidate) -> None:
        if not heat.book.over():
            one.best = one.track.tuned(one.best.rung, c.LAST_TRIALS)
            one.track.forget()
            heat.note(one)

    if evident := [kind for kind, steps in tracks if any(step.base is None for step in steps)]:
        heat.rows.evidence(evident[0], last=True)  # where other maps start: made before they run side by side
    tasks = [partial(again, kind=kind, steps=steps, members=some) for (kind, steps), some in tracks.items()]
    found = sorted((one for some in heat.side_by_side(tasks) for one in some), key=loss_of)
    heat.side_by_side([partial(settled, one=one) for one in found[: c.SETTLED]])
    further = [partial(_onward, one=one, power=power) for one in found[: c.ONWARD] for power in _powers(heat, one)]
    found += [one for some in heat.side_by_side(further) for one in some]
    descents = [partial(_descended, one=one) for one in _leading(heat, found)]
    return found + [one for some in heat.side_by_side(descents) for one in some]


def _powers(heat: Heat, one: Candidate) -> Sequence[float]:
    """The powers of the metric by which a candidate goes on; in the rounds before, of fewer rows, only the first."""
    family = one.best.rung.family
    full = family != "cityblock"
    return () if family == "linear" or heat.metric not in ("auto", "full" if full else "diagonal") else c.POWERS[full]


def _onward(heat: Heat, one: Candidate, power: float) -> list[Candidate]:
    """Further steps by the gradients of a candidate's own model, as long as they gain; more rows carry more steps."""
    found: list[Candidate] = []
    for _ in range(c.STEPS_ON):
        if heat.book.over():
            break
        track = one.track.stepped(Step(one.best.rung, one.best.rung.family != "cityblock", power))
        one.track.forget()
        new = Candidate(one.kind, track, track.tuned(one.best.rung, c.LAST_TRIALS, c.BEHIND * loss_of(one)))
        track.forget()
        heat.note(new)
        if loss_of(new) > loss_of(one) * (1 - c.GAIN):
            break
        found.append(new)
        one = new
    return found


def _leading(heat: Heat, found: list[Candidate]) -> list[Candidate]:
    """The best candidate of each kind of distance, where rows judge that had no say in the transform."""
    if heat.rows.folded or heat.metric is None:
        return []
    least = 2 if heat.metric == "full" else 1  # what a metric may be, a descent from it is
    found = sorted((one for one in found if one.best.rung.family != "linear"), key=loss_of)
    kinds = {
        one.best.rung.family == "cityblock": one for one in reversed(found) if one.track.transforms[0].ndim >= least
    }
    near = [one for one in kinds.values() if loss_of(one) <= c.DESCENT_FAR * loss_of(found[0])]
    return [one for one in near if one.best.rung.lam >= SINGLE]  # the evidence has said all of so little noise


def _descended(heat: Heat, one: Candidate) -> list[Candidate]:
    """The candidate after a descent on rows it is fitted by, where that leads anywhere."""
    if heat.book.over():
        return []
    before, (family, _, _) = one.track, one.best.rung
    (fold,), (T,), length = before.folds, before.transforms, one.best.rung.factor * before.unit(family)
    some = slice(min(c.DESCENT_ROWS, heat.rows.n // c.DESCENT_PART))
    descent = Descent(
        FAMILIES[family], length, one.best.rung.lam, fold.X[some], fold.Y[some], fold.weight[some], T, before.groups
    )
    if not descent.worth or (end := descent.descended(heat.book.over)) is None:
        return []
    turn, lam = end
    track = replace(
        before,
        transforms=[turn],
        steps=(*before.steps, Step(one.best.rung, descent=True)),
        before=[T],
        tried={},
        units={},
    )
    start = Rung.near(family, length / track.unit(family), lam)
    track.units[family == "cityblock"] = length / start.factor  # the length-scale itself is kept, not that of a rung
    new = Candidate(one.kind, track, track.tuned(start, c.LAST_TRIALS))
    track.forget()
    heat.note(new)
    return [new]


def averaged(rows: Rows, finalists: list[Candidate], book: Book) -> Race:
    """The race's end: an average of finalists, as far as it is to be believed; the constant where it is not better."""
    finalists = sorted(finalists, key=loss_of)
    judge = finalists[0].track.judge
    constant = judge.constant
    values = [one.best.values for one in finalists]
    zero = [] if rows.codes is not None else [torch.zeros_like(judge.Y)]  # a link shrinks by itself
    shares, loss = greedy_average(values + zero, judge)
    chosen = sorted((k for k in range(len(values)) if shares[k]), key=lambda k: -shares[k])
    average = sum((shares[k] * values[k] for k in chosen), torch.zeros_like(judge.Y))
    link = None if rows.codes is None else fitted_link(rows.codes, average, judge.Y, judge.weight)
    luck = judge.luck(average) if link is None else None
    factor = believed(judge.gain(average, link), judge.weight, luck)
    if loss >= constant or factor == 0:
        prior = None if rows.codes is None else Link(rows.codes, FLOORS[0], 1.0)
        return Race([nothing(rows, constant)], book.report, constant, constant, prior)
    members = side_by_side([partial(_member, rows, finalists[k], factor * shares[k]) for k in chosen], rows.device)
    return Race(members, book.report, loss, constant, link)


def nothing(rows: Rows, loss: float) -> RacedKernel:
    """The constant: a bias under a penalty that lets it learn nothing."""
    columns = rows.maps[KINDS[0]]
    return RacedKernel(columns, torch.ones_like(columns.mean), Bias(1.0), 1e12, 1.0, loss, "constant")


def together(track: Track) -> Tensor:
    """One transform for the transforms of all folds: by the mean of their metrics."""
    step = track.steps[-1]
    twice = round(2 / step.power)
    metrics = [torch.diag(T**twice) if T.ndim == 1 else torch.linalg.matrix_power(T, twice) for T in track.transforms]
    return power_of(torch.stack(metrics).mean(0), step.power, track.transforms[0].ndim == 2)


def _member(rows: Rows, one: Candidate, share: float) -> RacedKernel:
    """A member: of folds the mean of their transforms, else its last step taken once more with all rows to fit by.

    A descent is not: it takes far longer.
    """
    track, rung = one.track, one.best.rung
    if track.steps and not track.steps[-1].descent:
        Z = rows.mapped[one.kind][: rows.metric]
        fold = Fold(Z, rows.Y[: len(Z)], rows.w[: len(Z)], Z[:0])
        if rows.folded:
            track = Track([fold], track.judge, [together(track)])
        else:
            track = Track([fold], track.judge, track.before, groups=rows.groups).stepped(track.steps[-1])
    kernel: Kernel
    if rung.family == "linear":
        kernel = Scaled(Linear(), 1 / rows.X.shape[1])
    else:
        kernel = replace(FAMILIES[rung.family], length_scale=rung.factor * track.unit(rung.family))
    return RacedKernel(rows.maps[one.kind], track.transforms[0].cpu(), kernel, rung.lam, share, one.best.loss, one.name)
