"""Which coordinates the columns of a table get: kinds, levels, gaps and dates are looked at once, in `fit`.

Nothing is left out silently: a column that tells rows nothing (constant, a copy of another one, an identifier) is named
in the table's description with the reason. Free text is left out with a warning: it says something, but not as levels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np

from mercer.data.raw import FEW_ROWS, LEVELLED, RawColumn, as_levels, names_rows
from mercer.parts import require, warn
from mercer.preprocessing.columns import Described, TableMap
from mercer.preprocessing.columns_codes import (
    BooleanCode,
    Code,
    Counts,
    Cyclic,
    DayNumber,
    DayTargetMean,
    Missing,
    OneHot,
    Rank,
    TargetMean,
    Value,
    beginning,
    places,
)
from mercer.preprocessing.columns_sentinels import sentinel
from mercer.preprocessing.columns_targets import CrossFit
from mercer.preprocessing.columns_values import single_values_matter

#: A column of at most this many levels is one-hot encoded; one of more levels gets target means and frequencies.
#: Target means beside one-hot codes gain nothing from 9 levels on: adult (3000 rows) 1 − AUC 0.096 instead of 0.092,
#: hotel_rates (2500 rows) the same error. With a limit of 30, churn (51 states) has 5 % more 1 − AUC, hotel_rates 1.3 %
#: more error, adult (41 countries) 0.4 % less (2000 rows, four splits).
MOST_LEVELS = 60
#: What levels are that have so many words and are different in nearly every row; how many of them are looked at, and
#: what users can do.
FREE_TEXT, WORDS_OF_TEXT, TEXT_LEVELS = "free text", 3, 1000
ENCODE = "Encode it first, for example by scikit-learn's TfidfVectorizer in a pipeline, or drop it"
#: Cycles of dates in days, and how many of them the rows must span.
CYCLES, SPANNED = (1.0, 7.0, 365.2425), 1.5
#: Days, and parts of them, whose mean targets stand beside the time where they say more than their neighbours' do: what
#: happened on one afternoon is neither a trend nor a cycle.
PARTS_OF_A_DAY = (1.0, 0.25)


@dataclass(frozen=True)
class Coded:
    """A table's map, the coordinates of the rows of `fit`, and how the targets' means among them were made."""

    table: TableMap
    X: np.ndarray
    means: CrossFit | None


def code_table(
    columns: Sequence[RawColumn], targets: np.ndarray | None, weight: np.ndarray, *, twice: bool = False
) -> Coded:
    """Fit a map to the rows of positive weight; `targets` (n × p) are what levels are averaged over, if anything.

    With `twice`, levels that have coordinates have means and frequencies too, for models that see one or the other.
    """
    alive = weight > 0
    weight = weight / weight[alive].mean()
    seen = [replace(column, values=column.values[alive]) for column in columns]
    T = None if targets is None else targets[alive]
    codes: list[Code] = []
    described: list[Described] = []
    known: dict[bytes, str] = {}
    for place, column in enumerate(seen):
        why = _left_out(column, known, T)
        mine = [] if why else list(_codes(place, column, weight[alive], T, twice))
        mine = [code for code in mine if not (isinstance(code, Missing) and _seen(code.encode(column), known, column))]
        why = why or ("" if mine else "missing in the same rows as another column")
        words = f"left out: {why}" if why else " + ".join(code.description for code in mine)
        n_levels = len(np.unique(column.values[~column.missing])) if column.kind in LEVELLED else 0
        gone = float(column.missing.mean())
        described.append(Described(column.name, column.kind, n_levels, gone, words, column.zone))
        codes += mine
    texts = [one.name for one in described if FREE_TEXT in one.map]
    reasons = "; ".join(f"{one.name!r} {one.map}" for one in described)
    advice = f". {ENCODE}" if texts else ""
    require(bool(codes), "X", "a table with at least one column to learn from", reasons[:500] + advice)
    for name in texts:
        warn(f"column {name!r} of X was left out. It is {FREE_TEXT}: every row has its own value. {ENCODE}")
    table = TableMap(tuple(codes), tuple(described))
    means = CrossFit.of(table, columns, targets)
    if means is None:
        return Coded(table, table.encode(columns), None)
    table = means.fitted(table, weight)
    return Coded(table, means.patched(table, table.encode(columns), weight), means)


def _codes(
    place: int, column: RawColumn, weight: np.ndarray, targets: np.ndarray | None, twice: bool
) -> Iterator[Code]:
    """The codes of a column that says something."""
    odd = sentinel(column.values, targets, weight) if column.kind == "number" else np.nan
    missing = column.missing | (column.values == odd)
    gap = bool(missing.any())
    if column.kind == "category":
        yield from _levels(place, column, weight, gap, None if targets is None else targets.shape[1], twice)
        return
    if column.kind == "ordered":
        levels = tuple(column.levels[code] for code in np.unique(column.values[~missing]))
        rank = places(column, levels)[~missing]
        if len(levels) > 1:
            yield Rank(place, levels, _median(rank.astype(np.float64), weight[~missing]))
    else:
        values = column.values[~missing]
        fill = _median(values, weight[~missing])
        if column.kind == "date":
            yield DayNumber(place, fill)
            span = float(np.ptp(values))
            at_times = bool((values % 1 > 0).any())
            yield from (Cyclic(place, d) for d in CYCLES if span >= SPANNED * d and (d > 1 or at_times))
            for part in PARTS_OF_A_DAY if at_times else PARTS_OF_A_DAY[:1]:
                begun = replace(column, values=beginning(values, part))
                yield from _single(DayTargetMean, place, begun, targets, missing, weight, days=part)
        elif np.ptp(values) > 0:
            yield BooleanCode(place, fill) if column.kind == "bool" else Value(place, fill, odd)
            yield from _single(TargetMean, place, replace(column, values=values), targets, missing, weight)
    if gap:
        yield Missing(place, odd)


def _single(
    kind: type[TargetMean],
    place: int,
    column: RawColumn,
    targets: np.ndarray | None,
    missing: np.ndarray,
    weight: np.ndarray,
    **further: float,
) -> Iterator[Code]:
    """TargetMean of the targets of single numbers or days, where they say more one by one than their neighbours do."""
    if targets is not None and single_values_matter(column.values, targets[~missing], weight[~missing]):
        levels, outputs = as_levels(column).levels, targets.shape[1]
        yield kind(place, levels, False, np.zeros((len(levels), outputs)), np.zeros(outputs), **further)


def _levels(
    place: int, column: RawColumn, weight: np.ndarray, gap: bool, outputs: int | None, twice: bool
) -> Iterator[Code]:
    """Few levels by themselves; many by the means of their targets and by how often they come."""
    levels = tuple(sorted(column.levels[code] for code in np.unique(column.values[~column.missing])))
    n = len(levels) + gap
    at = places(column, levels)
    counts = np.bincount(np.where(at < 0, len(levels), at), weights=weight, minlength=n)[:n]
    both = twice and 2 < n <= MOST_LEVELS and outputs is not None
    if n <= MOST_LEVELS:
        yield OneHot(place, levels, gap)
    elif outputs is None:  # nothing to average: the most frequent levels stand for themselves
        often = np.sort(np.argsort(-counts[: len(levels)], kind="stable")[: MOST_LEVELS - gap])
        yield OneHot(place, tuple(levels[k] for k in often), gap)
    if outputs is not None and (both or n > MOST_LEVELS):
        yield TargetMean(place, levels, gap, np.zeros((n, outputs)), np.zeros(outputs))
    if both or n > MOST_LEVELS:
        yield Counts(place, levels, gap, np.log1p(counts))


def _left_out(column: RawColumn, known: dict[bytes, str], targets: np.ndarray | None) -> str:
    """Why a column says nothing, or nothing new; empty where it does."""
    missing, values = column.missing, column.values
    if bool(missing.all()):
        return "all values are missing"
    distinct, first = np.unique(values[~missing], return_index=True)
    if len(distinct) == 1 and not missing.any():
        return "constant"
    canonical = values
    if column.kind in LEVELLED:  # by the order of appearance, so that other names for the same levels are found
        rank = np.empty(int(values.max()) + 2)
        rank[distinct] = np.argsort(np.argsort(first))
        rank[-1] = -1
        canonical = rank[values]
    if column.kind == "category" and names_rows(len(distinct), column):  # before it is taken for a copy of another
        return f"{FREE_TEXT if _is_free_text(column) else 'an identifier'}: {_own_values(column, distinct)}"
    kind = column.kind if column.kind in LEVELLED else "number"
    key = kind.encode() + blake2b((canonical + 0.0).tobytes()).digest()
    if key in known:
        return f"the same as {known[key]!r}"
    known[key] = column.name
    return f"an identifier: {_own_values(column, distinct)}" if _counts_rows(column, distinct, targets) else ""


def _own_values(column: RawColumn, distinct: np.ndarray) -> str:
    """How often values are different, in words."""
    all_differ = len(distinct) == int((~column.missing).sum())
    return "every row has its own value" if all_differ else "nearly every row has its own value"


def _is_free_text(column: RawColumn) -> bool:
    """Whether most values are several words; only some levels are looked at."""
    return float(np.median([len(level.split()) for level in column.levels[:TEXT_LEVELS]])) >= WORDS_OF_TEXT


def _seen(indicator: np.ndarray, known: dict[bytes, str], column: RawColumn) -> bool:
    """Whether another column is missing in the same rows."""
    key = b"missing" + blake2b(indicator.tobytes()).digest()
    return known.setdefault(key, column.name) != column.name


def _counts_rows(column: RawColumn, distinct: np.ndarray, targets: np.ndarray | None) -> bool:
    """Whether numbers count the rows without saying anything of the targets."""
    n = int((~column.missing).sum())
    if column.kind != "number" or len(distinct) < n or n <= FEW_ROWS or targets is None:
        return False
    counting = bool((distinct == np.floor(distinct)).all()) and distinct[-1] - distinct[0] < 2 * n
    if not counting:
        return False
    Y = targets[np.argsort(column.values, kind="stable")[:n]]
    Y = Y - Y.mean(0)
    alike = (Y[1:] * Y[:-1]).sum(0) / np.maximum((Y**2).sum(0), 1e-300)  # neighbours in this order
    trend = (Y * (np.arange(n) - (n - 1) / 2)[:, None]).sum(0) / np.maximum((Y**2).sum(0) * n**3 / 12, 1e-300) ** 0.5
    return bool((np.maximum(np.abs(alike), np.abs(trend)) < 3 / n**0.5).all())


def _median(values: np.ndarray, weight: np.ndarray) -> float:
    """The least value with at least half of the weight at or below it."""
    order = np.argsort(values, kind="stable")
    share = np.cumsum(weight[order])
    return float(values[order[np.searchsorted(share, 0.5 * share[-1] * (1 - 1e-12))]])
