"""A large table from near: the metric and the penalty of the member chosen, corrected at the density of all rows.

Neighbourhoods ask for length-scales (`mercer.tuning.nearby`), which are taken where the nearest of all rows predict
each other better with them (`mercer.tuning.neighbours`). Members of other kernels are not compared so: neighbours say
nothing of how long a kernel takes to grow (on two cores they chose the city-block kernel for COVTYPE, and 8.1 % were
wrong after eight minutes).
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from mercer.border.inputs import InputMap
from mercer.border.read import Given
from mercer.clock import Clock
from mercer.engine import Plan
from mercer.engine.sample import Sample
from mercer.forward.members import Choice, Member, sample_of
from mercer.tuning.nearby import Near, from_near
from mercer.tuning.neighbours import asked_rows, neighbours_error

#: Looks from near on a GPU where time is counted: the best serves the first model, and further models have the others'
#: length-scales and every kernel that saw the inputs as the first did, since models of the same err alike and their
#: average gains nothing.
LOOKS = 4
#: Share of the time for judgements.
JUDGING = 0.2
#: How far a penalty may fall.
MOST_LESS = 10.0


def nearer(
    choice: Choice, given: Given, Y: np.ndarray, plan: Plan, rng: np.random.Generator, seconds: float | None,
    free_penalty: bool = True,
) -> Choice:  # fmt: skip
    """The members chosen, their metric corrected, and what may serve further models.

    A penalty that is free falls to what neighbourhoods ask for, where that is less.
    """
    began, clock, report = time.perf_counter(), Clock(seconds, group=given.shard.group), list(choice.report)
    since = partial(_since, given)
    members = [*choice.members, *choice.spare]
    first = members[0]

    def sample(one: Member) -> Sample:
        return sample_of(given, Y, one.inputs, plan, pairwise=False)

    seen = sample(first)  # made once: its rows may be mapped into memory
    n_looks = LOOKS if seconds is not None and plan.device.type == "cuda" else 1
    asked = asked_rows(seen, rng, None if seconds is None else JUDGING * seconds / (1 + n_looks))
    if not len(asked):
        return choice

    def judged(one: Member) -> float:
        started, error = time.perf_counter(), neighbours_error(seen if one is first else sample(one), asked)
        line = {"candidate": f"{one.name}, by the nearest rows", "rows": given.n_alive, "loss": error}
        report.append(line | {"seconds": since(started)})
        return error

    found = (from_near(seen, first.kernel, rng, clock) for _ in range(n_looks))
    near = [_stretched(first, one, free_penalty) for one in found if one is not None]
    at_hand = judged(first) if near else 0.0
    errors = [judged(one) for one in near]
    better = [near[k] for k in np.argsort(errors) if errors[k] < at_hand]
    looks = better or [replace(first, lam=(near or [first])[0].lam)]
    alike = [one for one in members if _alike(one.inputs, first.inputs)]
    others = [one for one in members if not _alike(one.inputs, first.inputs)]
    ranked = [_seen_as(look, first, one) for look in looks for one in alike] + others
    return replace(choice, members=ranked[:1], spare=ranked[1:], report=report, seconds=choice.seconds + since(began))


def _since(given: Given, began: float) -> float:
    """Seconds since then, of the first process for all."""
    seconds: float = given.shard.group.first(lambda: time.perf_counter() - began)
    return seconds


def _alike(one: InputMap, other: InputMap) -> bool:
    """Whether two members of the race, which all have a transform, see the inputs alike."""
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
