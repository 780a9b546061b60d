"""A large table from near: the metric and the penalty of the member chosen, corrected at the density of all rows.

Neighbourhoods ask for length-scales (`mercer.selection.neighbourhoods`), which are taken where the nearest of all rows
predict each other better with them (`mercer.selection.neighbours`). Members of other kernels are not compared so:
neighbours say nothing of how long a kernel takes to grow (on two cores they chose the city-block kernel for COVTYPE,
and 8.1 % were wrong after eight minutes). That is tried (`mercer.forward.trial_fits`), and all who will be are looked
at here.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from mercer.clock import Clock
from mercer.engine import Plan
from mercer.engine.sample import Sample
from mercer.forward.members import Choice, Member, sample_of
from mercer.forward.trial_fits import contenders
from mercer.preprocessing.inputs import InputMap
from mercer.preprocessing.read import TableData
from mercer.selection.neighbourhoods import Near, agreed, from_near
from mercer.selection.neighbours import asked_rows, neighbours_error

#: Looks from near on a GPU where time is counted: the best of them, or what they agree on, serves the first model, and
#: further models have the others' length-scales and every kernel that saw the inputs as the first did, since models of
#: the same err alike and their average gains nothing. COVTYPE, by tenths of its training rows: models have 1.45 to
#: 1.70 % of errors with single looks, the better the earlier neighbours rank them, and 1.45 to 1.65 % with what four
#: agree on.
LOOKS = 4
#: Share of the time for judgements.
JUDGING = 0.2
#: How far a penalty may fall.
MOST_LESS = 10.0


def nearer(
    choice: Choice, given: TableData, Y: np.ndarray, plan: Plan, rng: np.random.Generator, seconds: float | None,
    free_penalty: bool = True,
) -> Choice:  # fmt: skip
    """The members chosen, their metric corrected, and what may serve further models.

    A penalty that is free falls to what neighbourhoods ask for, where that is less.
    """
    began, clock, report = time.perf_counter(), Clock(seconds, group=given.shard.group), list(choice.report)
    since = partial(_since, given)
    asking = contenders(choice)
    kinds = _kinds([*choice.members, *choice.spare])
    kinds.sort(key=lambda kind: not any(one is other for one in kind for other in asking))  # the others last
    n_kinds = len(_kinds(asking))
    several = seconds is not None and plan.device.type == "cuda"
    n_looks = LOOKS if several else 1
    n_judged = n_kinds * (1 + n_looks + several)  # those at hand, and what looks agree on

    def sample(one: Member) -> Sample:
        return sample_of(given, Y, one.inputs, plan, pairwise=False)

    seen = sample(kinds[0][0])  # made once: its rows may be mapped into memory
    asked = asked_rows(seen, rng, None if seconds is None else JUDGING * seconds / n_judged)
    if not len(asked):
        return choice

    def judged(one: Member, rows: Sample) -> float:
        started, error = time.perf_counter(), neighbours_error(rows, asked)
        line = {"candidate": f"{one.name}, by the nearest rows", "rows": given.n_alive, "loss": error}
        report.append(line | {"seconds": since(started)})
        return error

    def looked(first: Member, rows: Sample) -> list[Member]:
        """A member as looks from near want it, the best first; as it is where none is better."""
        found = [one for _ in range(n_looks) if (one := from_near(rows, first.kernel, rng, clock)) is not None]
        found += [agreed(found)] if len(found) > 1 else []
        near = [_stretched(first, one, free_penalty) for one in found]
        at_hand = judged(first, rows) if near else 0.0
        errors = [judged(one, sample(one)) for one in near]
        better = [near[k] for k in np.argsort(errors) if errors[k] < at_hand]
        return better or [replace(first, lam=(near or [first])[0].lam)]

    looks = [looked(kind[0], sample(kind[0]) if place else seen) for place, kind in enumerate(kinds[:n_kinds])]
    ranked = [
        _seen_as(own[rank], kind[0], one)
        for rank in range(max(map(len, looks)))
        for own, kind in zip(looks, kinds, strict=False)
        if rank < len(own)
        for one in kind
    ]
    ranked += [one for kind in kinds[n_kinds:] for one in kind]
    clock.raise_interrupt()  # there is no model yet that could be kept
    return replace(choice, members=ranked[:1], spare=ranked[1:], report=report, seconds=choice.seconds + since(began))


def _since(given: TableData, began: float) -> float:
    """Seconds since then, of the first process for all."""
    seconds: float = given.shard.group.first(lambda: time.perf_counter() - began)
    return seconds


def _kinds(members: list[Member]) -> list[list[Member]]:
    """Members of the race, which all have a transform, by how they see the inputs; the best kind first."""
    kinds: list[list[Member]] = []
    for one in members:
        kind = next((kind for kind in kinds if _alike(one.inputs, kind[0].inputs)), None)
        if kind is None:
            kinds.append([one])
        else:
            kind.append(one)
    return kinds


def _alike(one: InputMap, other: InputMap) -> bool:
    assert one.transform is not None
    assert other.transform is not None
    return one.columns is other.columns and np.array_equal(one.transform, other.transform)


def _seen_as(look: Member, first: Member, one: Member) -> Member:
    """A member with the metric, and at most the penalty, of a look at the first one."""
    name = one.name + look.name.removeprefix(first.name)
    return replace(one, inputs=look.inputs, lam=min(one.lam, look.lam), name=name)


def _stretched(one: Member, near: Near, free_penalty: bool) -> Member:
    """A member as neighbourhoods want it."""
    turn: Any = one.inputs.transform
    turn = near.factors * turn if turn.ndim == 1 else near.factors[:, None] * turn
    lam = min(one.lam, max(near.penalty, one.lam / MOST_LESS)) if free_penalty else one.lam
    return replace(one, inputs=replace(one.inputs, transform=turn), lam=lam, name=f"{one.name}, from near")
