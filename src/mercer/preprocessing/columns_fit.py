"""Choose the codes of a table's columns by their kinds, levels, missing values and dates, once, in `fit`.

A column that tells rows nothing (constant, a copy of another column, an identifier) is left out, and its description
says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

import numpy as np

from mercer.data.raw import CATEGORICAL, FEW_ROWS, RawColumn, as_levels, is_identifier
from mercer.data.row_groups import RowGroups
from mercer.parts import require
from mercer.preprocessing.columns import (
    BooleanCode,
    Code,
    ColumnDescription,
    Counts,
    Cyclic,
    CyclicNumber,
    DayNumber,
    DayTargetMean,
    Missing,
    OneHot,
    Place,
    Rank,
    TableMap,
    TargetMean,
    Value,
    level_indices,
    period_start,
)
from mercer.preprocessing.columns_read import column_index, column_indices
from mercer.preprocessing.columns_targets import CrossFit
from mercer.preprocessing.text import Text, is_free_text

#: A column of at most this many levels is one-hot encoded; one of more levels gets target means and frequencies. Fewer
#: lose accuracy on columns of states and countries (docs/ablations.md).
MOST_LEVELS = 60
#: Periods of dates in days, and how many periods the rows must span.
CYCLES, SPANNED = (1.0, 7.0, 365.2425), 1.5
#: Periods in days whose mean targets are coordinates where `single_values_matter`: an event of one afternoon is neither
#: a trend nor a cycle.
PARTS_OF_A_DAY = (1.0, 0.25)

#: Fewest distinct values whose target means are tried, and fewest rows per value.
FEWEST_VALUES, ROWS_PER_VALUE = 9, 10
#: Neighbouring values on each side whose mean, with the value itself, represents a smooth function.
NEIGHBOURS = 1
#: Rows by whose weight the mean of a value is shrunk towards that of its neighbours.
SHRINKAGE_ROWS = 10.0
#: Share of the targets' variance that target means of single values must gain; without it means of smooth columns add
#: error (docs/ablations.md).
VALUES_GAIN = 0.003
#: Names of latitudes and longitudes that `spherical_features="from_names"` finds, in small letters.
LATITUDES, LONGITUDES = ("latitude", "lat"), ("longitude", "long", "lon", "lng")


@dataclass(frozen=True)
class EncodedTable:
    """A table's map, the coordinates of the rows of `fit`, and the cross-fitted target means among them."""

    table: TableMap
    X: np.ndarray
    means: CrossFit | None


def encode_table(
    columns: Sequence[RawColumn],
    targets: np.ndarray | None,
    weight: np.ndarray,
    *,
    twice: bool = False,
    row_groups: RowGroups | None = None,
    declared: DeclaredCodes | None = None,
) -> EncodedTable:
    """Fit a map to the rows of positive weight; `targets` (n × p) are those of target means, or None.

    With `twice`, one-hot encoded columns get target means and frequencies too, for models that see one or the other.
    Columns of `declared` codes get these.
    """
    alive = weight > 0
    weight = weight / weight[alive].mean()
    together = None if row_groups is None else row_groups.take(alive)
    declared = DeclaredCodes() if declared is None else declared
    chooser = _CodeChooser(None if targets is None else targets[alive], weight[alive], twice, together, declared)
    seen = [replace(column, values=column.values[alive]) for column in columns]
    chosen = [chooser.choose(index, column) for index, column in enumerate(seen)]
    codes = tuple(code for found, _ in chosen for code in found)
    table = TableMap(codes, tuple(described for _, described in chosen))
    reasons = "; ".join(f"{column.name!r} {column.map}" for column in table.described)
    require(bool(codes), "X", "a table with at least one column to learn from", reasons[:500])
    means = CrossFit.of(table, columns, targets, row_groups)
    if means is None:
        return EncodedTable(table, table.encode(columns), None)
    table = means.fitted(table, weight)
    return EncodedTable(table, means.patched(table, table.encode(columns), weight), means)


@dataclass
class _CodeChooser:
    """Choose the codes of columns in their order, since a copy of an earlier column is left out."""

    targets: np.ndarray | None
    weight: np.ndarray
    twice: bool
    row_groups: RowGroups | None
    declared: DeclaredCodes
    #: Names of the columns so far, by a hash of their values, or of the rows in which they are missing.
    _names: dict[bytes, str] = field(default_factory=dict)

    def choose(self, index: int, column: RawColumn) -> tuple[list[Code], ColumnDescription]:
        """The codes of a column, none where it is left out, and its description."""
        paired = index in self.declared.places or index in self.declared.places.values()
        text = index in self.declared.texts or (index in self.declared.maybe_texts and is_free_text(column))
        reason = "" if paired else self._reason_to_drop(column, text)
        chosen = () if reason else self._text(index, column) if text else self._codes(index, column)
        codes = [code for code in chosen if not self._repeats(code, column)]
        reason = reason or ("" if codes else "missing in the same rows as another column")
        words = f"left out: {reason}" if reason else " + ".join(code.description for code in codes)
        if paired:
            what = "latitude" if index in self.declared.places else "longitude"
            others = [code.description for code in codes if not isinstance(code, Place)]
            words = " + ".join([f"{what} of a place on the sphere", *others])
        n_levels = len(np.unique(column.values[~column.missing])) if column.kind in CATEGORICAL else 0
        missing, kind = float(column.missing.mean()), "text" if text else column.kind
        return codes, ColumnDescription(column.name, kind, n_levels, missing, words, column.zone)

    def _text(self, index: int, column: RawColumn) -> Iterator[Code]:
        """The words of free text; texts that repeat are levels too."""
        yield Text.of(index, column, self.weight, 0 if self.targets is None else self.targets.shape[1])
        if self.targets is not None and not is_identifier(len(np.unique(column.values[~column.missing])), column):
            yield from self._category(index, column)

    def _codes(self, index: int, column: RawColumn) -> Iterator[Code]:
        """The codes of a column that is not left out."""
        if column.kind == "category":
            yield from self._category(index, column)
            return
        known = ~column.missing
        if index in self.declared.periods:
            yield CyclicNumber(index, self.declared.periods[index])
        elif index in self.declared.places:
            yield Place(index, self.declared.places[index])
        elif index in self.declared.places.values():
            pass  # the code of the latitude has both
        elif column.kind == "ordered":
            yield from self._ordered(index, column, known)
        elif column.kind == "date":
            yield from self._date(index, column, known)
        else:
            yield from self._number(index, column, known)
        if not known.all():
            yield Missing(index)

    def _ordered(self, index: int, column: RawColumn, known: np.ndarray) -> Iterator[Code]:
        levels = tuple(column.levels[code] for code in np.unique(column.values[known]))
        if len(levels) > 1:
            ranks = level_indices(column, levels)[known].astype(np.float64)
            yield Rank(index, levels, _median(ranks, self.weight[known]))

    def _date(self, index: int, column: RawColumn, known: np.ndarray) -> Iterator[Code]:
        """A trend, the cycles that rows span, and target means of single days."""
        values = column.values[known]
        yield DayNumber(index, _median(values, self.weight[known]))
        span = float(np.ptp(values))
        has_times = bool((values % 1 > 0).any())
        yield from (Cyclic(index, days) for days in CYCLES if span >= SPANNED * days and (days > 1 or has_times))
        for days in PARTS_OF_A_DAY if has_times else PARTS_OF_A_DAY[:1]:
            starts = replace(column, values=period_start(values, days))
            yield from self._single_values(DayTargetMean, index, starts, known, days=days)

    def _number(self, index: int, column: RawColumn, known: np.ndarray) -> Iterator[Code]:
        values = column.values[known]
        if np.ptp(values) > 0:
            fill = _median(values, self.weight[known])
            yield BooleanCode(index, fill) if column.kind == "bool" else Value(index, fill)
            yield from self._single_values(TargetMean, index, replace(column, values=values), known)

    def _single_values(
        self, kind: type[TargetMean], index: int, column: RawColumn, known: np.ndarray, **options: float
    ) -> Iterator[Code]:
        """Target means of single numbers or days, where they predict better than those of their neighbours."""
        together = None if self.row_groups is None else self.row_groups.take(known)
        if self.targets is None or not single_values_matter(
            column.values, self.targets[known], self.weight[known], together
        ):
            return
        levels, n_outputs = as_levels(column).levels, self.targets.shape[1]
        yield kind(index, levels, False, np.zeros((len(levels), n_outputs)), np.zeros(n_outputs), **options)

    def _category(self, index: int, column: RawColumn) -> Iterator[Code]:
        """One-hot codes of few levels; target means and frequencies of many."""
        has_missing = bool(column.missing.any())
        levels = tuple(sorted(column.levels[code] for code in np.unique(column.values[~column.missing])))
        n = len(levels) + has_missing
        at = level_indices(column, levels)
        counts = np.bincount(np.where(at < 0, len(levels), at), weights=self.weight, minlength=n)[:n]
        many = n > MOST_LEVELS
        if not many:
            yield OneHot(index, levels, has_missing)
        elif self.targets is None:
            frequent = np.sort(np.argsort(-counts[: len(levels)], kind="stable")[: MOST_LEVELS - has_missing])
            yield OneHot(index, tuple(levels[k] for k in frequent), has_missing)
        both = self.twice and 2 < n <= MOST_LEVELS and self.targets is not None
        if self.targets is not None and (both or many):
            n_outputs = self.targets.shape[1]
            yield TargetMean(index, levels, has_missing, np.zeros((n, n_outputs)), np.zeros(n_outputs))
        if both or many:
            yield Counts(index, levels, has_missing, np.log1p(counts))

    def _repeats(self, code: Code, column: RawColumn) -> bool:
        """Whether a missing indicator is that of an earlier column."""
        if not isinstance(code, Missing):
            return False
        key = b"missing" + blake2b(code.encode(column).tobytes()).digest()
        return self._names.setdefault(key, column.name) != column.name

    def _reason_to_drop(self, column: RawColumn, text: bool) -> str:
        """Why a column holds no information, or none that is new; empty where it does."""
        missing, values = column.missing, column.values
        if bool(missing.all()):
            return "all values are missing"
        distinct = np.unique(values[~missing])
        if len(distinct) == 1 and not missing.any():
            return "constant"
        if text and not any(column.levels[code].strip() for code in distinct):
            return "no words"
        if column.kind == "category" and not text and is_identifier(len(distinct), column):  # before it is a copy
            return f"an identifier: {_own_values(column, distinct)}"
        key = _column_hash(column)
        if key in self._names:
            return f"the same as {self._names[key]!r}"
        self._names[key] = column.name
        return f"an identifier: {_own_values(column, distinct)}" if self._counts_rows(column, distinct) else ""

    def _counts_rows(self, column: RawColumn, distinct: np.ndarray) -> bool:
        """Whether numbers count the rows without any relation to the targets."""
        n, targets = int((~column.missing).sum()), self.targets
        if column.kind != "number" or len(distinct) < n or n <= FEW_ROWS or targets is None:
            return False
        if not (distinct == np.floor(distinct)).all() or distinct[-1] - distinct[0] >= 2 * n:
            return False
        Y = targets[np.argsort(column.values, kind="stable")[:n]]
        Y = Y - Y.mean(0)
        square = (Y**2).sum(0)
        neighbours = (Y[1:] * Y[:-1]).sum(0) / np.maximum(square, 1e-300)  # correlation of consecutive targets
        trend = (Y * (np.arange(n) - (n - 1) / 2)[:, None]).sum(0) / np.maximum(square * n**3 / 12, 1e-300) ** 0.5
        return bool((np.maximum(np.abs(neighbours), np.abs(trend)) < 3 / n**0.5).all())


def _column_hash(column: RawColumn) -> bytes:
    """A hash of a column's values; levels count by their order of appearance, whatever their names."""
    values = column.values
    if column.kind in CATEGORICAL:
        distinct, first = np.unique(values[~column.missing], return_index=True)
        rank = np.empty(int(values.max()) + 2)
        rank[distinct] = np.argsort(np.argsort(first))
        rank[-1] = -1
        values = rank[values]
    kind = column.kind if column.kind in CATEGORICAL else "number"
    return kind.encode() + blake2b((values + 0.0).tobytes()).digest()


def _own_values(column: RawColumn, distinct: np.ndarray) -> str:
    """How many values are different, in words."""
    all_differ = len(distinct) == int((~column.missing).sum())
    return "every row has its own value" if all_differ else "nearly every row has its own value"


def _median(values: np.ndarray, weight: np.ndarray) -> float:
    """The least value with at least half of the weight at or below it."""
    order = np.argsort(values, kind="stable")
    share = np.cumsum(weight[order])
    return float(values[order[np.searchsorted(share, 0.5 * share[-1] * (1 - 1e-12))]])


def single_values_matter(
    values: np.ndarray, targets: np.ndarray, weight: np.ndarray, row_groups: RowGroups | None = None
) -> bool:
    """Whether the mean target of a single value predicts held-out rows better than that of its neighbours.

    Examples are capital gains of exactly 7298, prices of 9.99, and integer codes. A smooth function of the column
    misses what such values mean. `values` has no missing ones.

    >>> x = np.random.default_rng(0).integers(0, 40, 2000).astype(float)
    >>> odd, smooth = (x % 2)[:, None], x[:, None]
    >>> single_values_matter(x, odd, np.ones(2000)), single_values_matter(x, smooth, np.ones(2000))
    (True, False)
    """
    distinct, index = np.unique(values, return_inverse=True)
    n = len(distinct)
    if not FEWEST_VALUES <= n <= len(values) / ROWS_PER_VALUE:
        return False
    gain = np.zeros(targets.shape[1])
    fold = np.random.default_rng(0).permutation(len(values)) if row_groups is None else row_groups.folds(2)
    half = fold % 2 == 0
    for fit in (half, ~half):
        counts = np.bincount(index[fit], weights=weight[fit], minlength=n)
        sums = np.column_stack([np.bincount(index[fit], weights=weight[fit] * t, minlength=n) for t in targets[fit].T])
        mean = sums.sum(0) / max(counts.sum(), 1e-300)
        smooth = (_neighbour_sums(sums) + mean) / (_neighbour_sums(counts[:, None]) + 1.0)
        single = (sums + SHRINKAGE_ROWS * smooth) / (counts[:, None] + SHRINKAGE_ROWS)
        held_out, w, T = index[~fit], weight[~fit, None], targets[~fit]
        gain += (w * ((T - smooth[held_out]) ** 2 - (T - single[held_out]) ** 2)).sum(0)
    spread = (weight[:, None] * (targets - np.average(targets, axis=0, weights=weight)) ** 2).sum(0)
    return bool((gain > VALUES_GAIN * np.maximum(spread, 1e-300)).any())


def _neighbour_sums(sums: np.ndarray) -> np.ndarray:
    """For each value the sum over itself and its neighbours on both sides."""
    total = np.vstack([np.zeros((1, sums.shape[1])), np.cumsum(sums, axis=0)])
    index = np.arange(len(sums))
    low, high = np.maximum(index - NEIGHBOURS, 0), np.minimum(index + NEIGHBOURS + 1, len(sums))
    return total[high] - total[low]


@dataclass(frozen=True)
class DeclaredCodes:
    """The period of each cyclic column, the longitude of each latitude, and text, by the numbers of columns."""

    periods: dict[int, float] = field(default_factory=dict)
    places: dict[int, int] = field(default_factory=dict)
    texts: frozenset[int] = frozenset()
    maybe_texts: frozenset[int] = frozenset()  # columns of levels that are examined

    @classmethod
    def of(cls, estimator: Any, columns: Sequence[RawColumn]) -> DeclaredCodes:
        """Those that an estimator names; refuse columns that are not numbers, or named twice."""
        names = [column.name for column in columns]
        cyclic, pairs = getattr(estimator, "cyclic_features", None), getattr(estimator, "spherical_features", None)
        periods = {column_index(c, names, "cyclic_features"): float(p) for c, p in (cyclic or {}).items()}
        found = _named_pairs(names) if isinstance(pairs, str) else pairs or ()
        places = {}
        for latitude, longitude in found:
            index = column_index(latitude, names, "spherical_features")
            places[index] = column_index(longitude, names, "spherical_features")
        used = [*periods, *places, *places.values()]
        for index in used:
            kind, name = columns[index].kind, columns[index].name
            numeric = kind in ("number", "bool")
            require(numeric, f"column {name!r} of X", "of numbers where it is a cycle or a place", f"of kind {kind!r}")
            once = used.count(index) == 1
            require(once, f"column {name!r} of X", "named once in cyclic_features and spherical_features", "twice")
        texts, levels = (column_indices(estimator, kind, names) for kind in ("text_features", "categorical_features"))
        for index in texts:
            name, kind = columns[index].name, columns[index].kind
            wanted = "of text, and no category, where text_features names it"
            text = kind in CATEGORICAL and index not in levels
            require(text, f"column {name!r} of X", wanted, f"of kind {kind!r}")
        maybe = set() if getattr(estimator, "text_features", None) is None else set(range(len(columns))) - levels
        return cls(periods, places, frozenset(texts), frozenset(k for k in maybe if columns[k].kind == "category"))


def _named_pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs whose names differ in "latitude" and "longitude", or short forms of these, alone.

    >>> _named_pairs(["start_lat", "start_lng", "Latitude", "age", "Longitude", "platform"])
    [('start_lat', 'start_lng'), ('Latitude', 'Longitude')]
    """
    small = [name.lower() for name in names]
    pairs = []
    for index, name in enumerate(small):
        word = next((word for word in LATITUDES if name == word or name.endswith(f"_{word}")), None)
        partners = [] if word is None else [name[: -len(word)] + other for other in LONGITUDES]
        found = np.flatnonzero(np.isin(small, partners))
        pairs += [(names[index], names[found[0]])] if len(found) else []
    return pairs
