"""Members of a model: which inputs, kernel and penalty each has, as given, by evidence, or by the race.

A kernel object is taken as it is; a family that is named is tuned by the evidence; where everything is left open,
column maps, metrics and kernels race.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.clock import Clock
from mercer.data import SparseRows
from mercer.engine import Plan
from mercer.engine.sample import Sample
from mercer.forward.expansion import with_row_index
from mercer.forward.problem import Problem
from mercer.forward.sparse_rows import sparse_row_kernel
from mercer.kernels import Kernel
from mercer.losses import Loss
from mercer.preprocessing.inputs import InputMap, find_inputs
from mercer.preprocessing.read import TableData
from mercer.selection import precise
from mercer.selection.constants import FAR, RACED_AGAIN, RACES
from mercer.selection.kernel_choice import choose_kernel, is_precomputed, is_tuned

#: Rows that the race may see: column maps are fitted to them, the rest looks at far fewer.
RACE_ROWS = 20_000
#: The fewest that it sees, and the memory that it takes: in bytes, for each of some thousand rows at most, and for all.
FEWEST_RACE_ROWS, RACE_BYTES, RACE_MEMORY = 200, 160 << 10, 1 << 30
#: Share of the seconds for choosing that the race takes where more rows have a say after it.
RACE_SHARE = 0.5
#: Share of the time budget for tuning by evidence.
TUNING_SHARE = 0.4
#: What a column map has for columns that nothing is known of.
NEUTRAL = {"centre": 0.0, "width": 1.0, "mean": 0.0, "spread": 1.0, "knots": 0.0, "levels": 0.0}
#: Rows from which is judged whether float32 tiles hold the model.
PRECISION_ROWS = 1000
#: The largest penalty, in units of all weights together: beyond, no digit of a function is left.
HEAVIEST = 1e10


@dataclass(frozen=True)
class Member:
    """One kernel model of an average: how it sees the inputs, its kernel, penalty and share."""

    inputs: InputMap
    kernel: Kernel
    lam: float
    share: float = 1.0
    name: str = ""
    place: int = 0


@dataclass(frozen=True)
class Free:
    """What the user left open: the precision of tiles, and the penalty."""

    dtype: bool
    penalty: bool


@dataclass(frozen=True)
class Choice:
    """The members chosen, the seconds that took, the table of all candidates, and members that were nearly as good.

    `begun` is the fit of the first member, where choosing it took some learners (`mercer.forward.trial_fits`).
    """

    members: list[Member]
    seconds: float = 0.0
    report: list[dict[str, Any]] = field(default_factory=list)
    spare: list[Member] = field(default_factory=list)
    begun: Any = None


def tuned_member(
    given: TableData, Y: np.ndarray, plan: Plan, settings: Any, rng: np.random.Generator, choose: Any = choose_kernel
) -> Choice:
    """One member: inputs standardised as asked for, kernel and penalty given or tuned by the evidence.

    Within a time budget tuning takes `TUNING_SHARE` of it, and columns are not bent, which would take as long.
    """
    began = time.perf_counter()
    seconds = None if settings.time_budget is None else TUNING_SHARE * settings.time_budget
    if isinstance(given.rows, SparseRows):
        made = sparse_row_kernel(given, Y, plan, settings, rng, seconds)
        return Choice([Member(*made[:3])], made[3])
    pairwise = is_precomputed(settings.kernel)
    scaling = False if pairwise else settings.scale_inputs
    inputs = find_inputs(given, Y, plan, scaling, may_bend=is_tuned(settings.kernel) and seconds is None)
    sample = sample_of(given, Y, inputs, plan, pairwise=pairwise)
    chosen = choose(sample, settings.kernel, settings.regularization, settings.tuning_rows, rng, seconds)
    taken = given.shard.group.first(lambda: time.perf_counter() - began)
    return Choice([Member(inputs, chosen.kernel, chosen.lam)], taken)


def raced_members(
    given: TableData,
    Y: np.ndarray,
    plan: Plan,
    rng: np.random.Generator,
    *,
    classes: bool,
    regularization: Any = "auto",
    large: bool = False,
    again: bool = False,
    **options: Any,
) -> Choice:
    """The members that held-out rows like best (`mercer.selection.race`), with a penalty of their own or the one given.

    `options` are the race's own: `metric`, `kinds` of column maps, and `seconds` that it may take. Of a `large` table
    one member is kept, chosen again by more rows (`mercer.selection.more_rows`); processes of a group divide that work.
    With `again` a mixed table that is not large and has all the time runs several races, and their averages are
    averaged; so are those of two races where columns are coded twice (`Layout.views`).
    """
    from mercer.selection.more_rows import by_evidence, on_more_rows
    from mercer.selection.race import race

    began, group = time.perf_counter(), given.shard.group
    some = given.draw(affordable_rows(plan.memory_limit), rng)
    X = given.rows.fetch(some).double().cpu()
    y, weight = (torch.as_tensor(given.pick(values, some)) for values in (Y, given.weight))
    coded: dict[str, Any] = {}
    if (layout := given.layout) is not None:
        coded = {"kept": torch.as_tensor(layout.keeps_unit), "groups": torch.as_tensor(layout.group)}

    clock = Clock(options.pop("seconds", None))
    shared: dict[str, Any] = {"device": plan.device, "clock": clock, "memory": plan.memory_limit}
    shared["seed"] = int(rng.integers(2**31)) if large else 0

    n_races = _races(given) if again and coded and not large else 1
    views = [torch.ones(X.shape[1], dtype=torch.bool)]
    if layout is not None and layout.views:
        views = [torch.as_tensor(view) for view in (layout.views[:1] if large else layout.views)]
    first = views[0]  # all that a large table's members see
    own_X, own_coded = (X[:, first], _of(coded, first)) if large else (X, coded)

    def raced() -> tuple[Any, ...]:
        seconds = None if clock.seconds is None else clock.remaining(until=RACE_SHARE if large else 1.0)
        how: dict[str, Any] = {"classes": classes, "rng": rng, "device": plan.device, "seconds": seconds}
        several: list[Any] = []
        started = time.perf_counter()
        for view in views * n_races:
            took, started = time.perf_counter() - started, time.perf_counter()
            if several and clock.expired(needing=took):
                break
            found = race(X[:, view], y, weight, **(how | _of(coded, view) | options))
            several.append((found, found.members if large else [in_all_columns(one, view) for one in found.members]))
        report = [line for found, _ in several for line in found.report]
        if len(views) > 1:  # a coding that is far behind the other has no say
            least = min(found.loss for found, _ in several)
            several = [one for one in several if one[0].loss <= FAR * least]
        members = [replace(one, share=one.share / len(several)) for _, own in several for one in own]
        return members, report, rng.bit_generator.state

    work: list[Callable[[], Any]] = (
        [raced, partial(by_evidence, own_X, y, weight, **shared, **own_coded)] if large else [raced]
    )
    (chosen, report, rng.bit_generator.state), *further = group.share_work(
        len(work), lambda own: [work[k]() for k in own]
    )
    spare: list[Any] = []
    if large:
        more = on_more_rows(own_X, y, weight, [*chosen, *further[0]], **shared, group=group)
        chosen, spare = ([in_all_columns(one, first) for one in own] for own in ([more.best], more.nearly))
        report = report + more.report
    clock.raise_interrupt()  # there is no model yet that could be kept
    penalty = None if isinstance(regularization, str) else float(regularization)
    return Choice(
        [_as_member(one, penalty) for one in sorted(chosen, key=lambda one: -one.share)],
        group.first(lambda: time.perf_counter() - began),
        report,
        [_as_member(one, penalty) for one in spare],
    )


def affordable_rows(memory: int) -> int:
    """Rows that may be drawn for the selection within so many bytes.

    Two threads took 72, 90 and 480 MiB for 590, 1390 and 3000 rows of ten columns, and less than 1 GiB for all.

    >>> affordable_rows(64 << 20), affordable_rows(512 << 20), affordable_rows(1 << 30)
    (409, 3276, 20000)
    """
    return RACE_ROWS if memory >= RACE_MEMORY else max(memory // RACE_BYTES, FEWEST_RACE_ROWS)


def _of(coded: dict[str, Any], view: Tensor) -> dict[str, Any]:
    """What is known of some columns."""
    return {name: values[view] for name, values in coded.items()}


def in_all_columns(one: Any, view: Tensor) -> Any:
    """A member that saw some columns as one of all columns: the others have no weight in its metric."""
    if bool(view.all()):
        return one

    def wide(values: Tensor | None, fill: float) -> Tensor | None:
        if values is None:
            return None
        out = values.new_full((len(view), *values.shape[1:]), fill)
        out[view] = values
        return out

    maps, turn = one.columns, one.transform
    columns = replace(maps, **{name: wide(getattr(maps, name), fill) for name, fill in NEUTRAL.items()})
    if maps.knots is not None:
        row = torch.arange(maps.knots.shape[1]).to(maps.knots)
        columns.knots[~view], columns.levels[~view] = row, row
    transform = turn.new_zeros((len(view),) * turn.ndim)
    if turn.ndim == 1:
        transform[view] = turn
    else:
        transform[view.nonzero(), view.nonzero().T] = turn
    return replace(one, columns=columns, transform=transform)


def _races(given: TableData) -> int:
    """How many races a table of this many rows runs."""
    n = given.n_alive
    return next((times for most, times in RACES if RACED_AGAIN <= n <= most), 1)


def _as_member(one: Any, penalty: float | None) -> Member:
    """A member of the race, with the penalty it ran with or another."""
    D = len(one.columns.mean)
    inputs = InputMap(np.zeros(D), np.ones(D), one.columns, one.transform.double().cpu().numpy())
    return Member(inputs, one.kernel, one.penalty if penalty is None else penalty, one.share, one.name)


def sample_of(given: TableData, Y: np.ndarray, inputs: InputMap, plan: Plan, *, pairwise: bool) -> Sample:
    """The rows as a member's kernel sees them, with targets and weights."""
    rows = with_row_index(given.rows, plan) if pairwise else inputs.rows(given.rows, plan)
    on_device: dict[str, Any] = {"device": plan.device, "dtype": torch.float64}
    groups = None if pairwise or given.layout is None else given.layout.group
    watched = None if given.validation_weight is None else torch.as_tensor(given.validation_weight, **on_device)
    coded, weight = torch.as_tensor(Y, **on_device), torch.as_tensor(given.weight, **on_device)
    return Sample(rows, coded, weight, plan, groups, watched)


def problem_of(
    member: Member, given: TableData, Y: np.ndarray, plan: Plan, loss: Loss, free: Free, *, pairwise: bool = False
) -> Problem:
    """What a member minimises, in tiles whose rounding does not show (`mercer.selection.precision`)."""
    sample = sample_of(given, Y, member.inputs, plan, pairwise=pairwise)
    some = sample.part(sample.spaced(PRECISION_ROWS))
    table = some.rows.take(np.arange(some.n_rows)), some.Y, some.weight
    n_alive, group = sample.n_alive, sample.rows.shard.group
    dtype, lam = group.first(lambda: _precision(plan, member, table, n_alive, free))
    fine = replace(plan, dtype=dtype)
    if fine.dtype != plan.dtype:
        sample = sample_of(given, Y, member.inputs, fine, pairwise=pairwise)
    heaviest = HEAVIEST * sample.total_weight
    return Problem(sample.in_tiles(fine), member.kernel, min(float(lam), heaviest), loss)


def _precision(plan: Plan, member: Member, table: Any, n_rows: int, free: Free) -> tuple[torch.dtype, float]:
    X, Y, weight = table
    left = {"free_dtype": free.dtype, "free_penalty": free.penalty}
    fine, lam = precise(plan, member.kernel, member.lam, X, Y, weight, n_rows, **left)
    return fine.dtype, float(lam)


def only(choice: Choice, n: int) -> Choice:
    """The `n` members of largest share, their shares made to sum to one."""
    kept = sorted(choice.members, key=lambda one: -one.share)[:n]
    total = sum(one.share for one in kept)
    return replace(choice, members=[replace(one, share=one.share / total) for one in kept])
