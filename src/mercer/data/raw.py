"""A column of a user's table as it came: numbers, dates, or codes of named levels, whatever library held it."""

from __future__ import annotations

import datetime
import numbers
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mercer.parts import require

DAY = 86_400.0
#: Fields of text files that say that there is no value.
NOTHING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?")
#: Dates as text, by ISO 8601; times may be so many hours and minutes ahead of UTC.
DATE = re.compile(r"(\d{4}-\d\d-\d\d(?P<time>[ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?)(?(time)(Z|([-+]\d\d):?([0-5]\d))?)")
#: Numbers as text; those without end are refused as such numbers are.
NUMBER = re.compile(r"\s*[-+]?((\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|inf(inity)?)\s*", re.IGNORECASE)
#: Levels that are nearly as many as the rows are names of rows, where these are more than a few.
NAMES_OF_ROWS, FEW_ROWS = 0.9, 30
#: Fewer different numbers with a decimal point than this, written as text, are names of levels ("3.11").
FEW_NUMBERS = 10
#: Types of objects that hold several values.
NESTED = (list, dict, set, np.ndarray)
#: Numbers beyond this, such as the largest float that stands for "no data", are read as this: differences, sums and
#: multiples of a few of them stay finite.
LARGEST = 2.0**1020
#: Kinds of columns whose values are codes of levels.
LEVELLED = ("category", "ordered")


@dataclass(frozen=True)
class RawColumn:
    """A column as it came.

    `values` are float64 with NaN where one is missing (numbers; truth values as 0 and 1; dates in days since 1970, by
    the clock of their time zone), or integers that name one of the `levels`, −1 where one is missing.
    """

    name: str
    kind: str  # "number", "bool", "date", "category" or "ordered"
    values: np.ndarray
    levels: tuple[str, ...] = ()
    zone: str = ""
    text: bool = False  # levels that nobody declared: they may be numbers or dates written as text

    @property
    def missing(self) -> np.ndarray:
        return self.values < 0 if self.kind in LEVELLED else np.isnan(self.values)


def as_levels(column: RawColumn) -> RawColumn:
    """A column whose values, be they numbers, are names of levels."""
    if column.kind in LEVELLED:
        return column
    seen, codes = np.unique(column.values[~column.missing], return_inverse=True)
    values = np.full(len(column.values), -1)
    values[~column.missing] = codes
    return RawColumn(column.name, "category", values, tuple(_number_name(value) for value in seen))


def as_named_dates(column: RawColumn, known: Sequence[str]) -> RawColumn:
    """Dates as levels by their text, where dates are among the levels `known`: one of many types had them in `fit`.

    >>> at = RawColumn("at", "date", np.array([18262.0, 18262.5]))
    >>> as_named_dates(at, ("2020-01-01", "soon")).levels
    ('2020-01-01', '2020-01-01 12:00:00')
    """
    if column.kind != "date" or not any(map(DATE.fullmatch, known)):
        return column
    gone, days_known = column.missing, frozenset(known)
    at = np.round(np.where(gone, 0.0, column.values) * DAY * 1e6).astype("datetime64[us]").tolist()
    names = [day if (day := str(one).removesuffix(" 00:00:00")) in days_known else str(one) for one in at]
    codes, levels = factored([None if none else name for none, name in zip(gone, names, strict=True)])
    return RawColumn(column.name, "category", codes, levels)


def as_numbers(column: RawColumn) -> RawColumn:
    """A column of levels as numbers, where the name of every level is one."""
    if column.kind not in LEVELLED:
        return column
    known = written_numbers(column)
    if known.kind in LEVELLED:
        wanted = "numbers, dates or truth values where categorical_features=None"
        require(False, f"column {column.name!r} of X", wanted, f"levels such as {column.levels[0]!r}")
    return known


def written_numbers(column: RawColumn) -> RawColumn:
    """A column of levels as numbers, where the name of every level is one or says that there is none."""
    gone = [level.strip() in NOTHING for level in column.levels]
    if not all(none or NUMBER.fullmatch(level) for none, level in zip(gone, column.levels, strict=True)):
        return column
    known = [np.nan if none else float(level) for none, level in zip(gone, column.levels, strict=True)]
    return RawColumn(column.name, "number", np.array([*known, np.nan])[column.values])


def as_written(column: RawColumn) -> RawColumn:
    """What text says in `fit`: dates; numbers, where they have decimals or each row its own; else levels.

    >>> import numpy as np
    >>> prices = tuple(f"{price}.5" for price in range(10, 30))
    >>> as_written(RawColumn("price", "category", np.arange(20), (*prices[:-1], "?"), text=True)).values[-2:].tolist()
    [28.5, nan]
    >>> as_written(RawColumn("shop", "category", np.arange(20) % 9, tuple("123456789"), text=True)).kind
    'category'
    """
    column = as_dates(column)
    if not column.text or not column.levels:
        return column
    n_levels, padded = len(column.levels), any(re.match(r"[-+]?0\d", level) for level in column.levels)
    decimals = any("." in level for level in column.levels) and n_levels > FEW_NUMBERS
    return written_numbers(column) if not padded and (decimals or names_rows(n_levels, column)) else column


def names_rows(n_levels: int, column: RawColumn) -> bool:
    """Whether levels are so many that they are names of rows."""
    return n_levels > max(NAMES_OF_ROWS * int((~column.missing).sum()), FEW_ROWS)


def as_dates(column: RawColumn) -> RawColumn:
    """A column of levels as dates, where the name of every level is one, as text files write them; else as it is.

    Times with a difference from UTC are instants, by the clock of UTC.

    >>> as_dates(RawColumn("at", "category", np.array([1, -1, 0]), ("2020-01-01", "2020-01-02 12:00"))).values.tolist()
    [18263.5, nan, 18262.0]
    >>> as_dates(RawColumn("at", "category", np.array([0]), ("2020-01-02T12:00-06:00",))).values.tolist()
    [18263.75]
    """
    if column.kind != "category" or not column.levels:
        return column
    found: list[re.Match[str]] = []
    for level in column.levels:
        if (match := DATE.fullmatch(level)) is None:
            return column
        found.append(match)
    try:
        known = np.array([*(match[1] for match in found), "NaT"], dtype="datetime64[us]")
    except ValueError:  # a thirteenth month
        return column
    ahead = [_minutes(match[6], match[7]) / (24 * 60) for match in found]
    zone = "UTC" if any(match[5] for match in found) else ""
    return RawColumn(column.name, "date", (days(known) - [*ahead, 0.0])[column.values], zone=zone)


def _minutes(hours: str | None, minutes: str | None) -> int:
    """How far a clock is ahead of UTC; nothing where it does not say so."""
    return 0 if hours is None else 60 * int(hours) + int(f"{hours[0]}{minutes}")


def objects(name: str, values: np.ndarray, missing: np.ndarray) -> RawColumn:
    """A column of Python's objects: what all of them are, or else levels named by their text."""
    there = values[~missing]
    kinds = {type(value) for value in there}
    if kinds and all(issubclass(kind, datetime.date) for kind in kinds):
        return _python_dates(name, values, missing)
    if kinds == {datetime.time}:  # as durations since midnight
        clock = [np.nan if gone else _of_a_day(value) for value, gone in zip(values, missing, strict=True)]
        return RawColumn(name, "number", np.array(clock))
    real = bool(kinds) and all(issubclass(kind, numbers.Real) or kind.__name__ == "Decimal" for kind in kinds)
    if real or not kinds:
        full = np.full(len(values), np.nan)
        full[~missing] = _floats(name, there)
        only_truth = bool(kinds) and all(issubclass(kind, bool | np.bool_) for kind in kinds)
        return RawColumn(name, "bool" if only_truth else "number", full)
    for kind in kinds:
        require(not issubclass(kind, NESTED), f"column {name!r} of X", "of single values", kind.__name__)
        plane = issubclass(kind, numbers.Complex) and not issubclass(kind, numbers.Real)
        require(not plane, f"column {name!r} of X", "real numbers: complex data not supported", kind.__name__)
    codes, levels = factored([None if gone else value for value, gone in zip(values, missing, strict=True)])
    return RawColumn(name, "category", codes, levels, text=all(issubclass(kind, str | numbers.Real) for kind in kinds))


def _floats(name: str, there: np.ndarray) -> np.ndarray:
    try:
        return there.astype(np.float64)
    except OverflowError:
        far = max(there, key=abs)
        raise ValueError(
            f"column {name!r} of X must be numbers up to 1.8e308, got one of {len(str(far))} digits"
        ) from None


def _python_dates(name: str, values: np.ndarray, missing: np.ndarray) -> RawColumn:
    """Dates and times of Python, by the clock of the zone that the first of them has."""
    zones = {str(one) for value in values[~missing] if (one := getattr(value, "tzinfo", None)) is not None}
    require(len(zones) <= 1, f"column {name!r} of X", "dates of one time zone", sorted(zones))
    plain = [
        None if gone else value.replace(tzinfo=None) if isinstance(value, datetime.datetime) else value
        for value, gone in zip(values, missing, strict=True)
    ]
    return RawColumn(name, "date", days(np.array(plain, dtype="datetime64[us]")), zone="".join(zones))


def _of_a_day(at: datetime.time) -> float:
    return (3600 * at.hour + 60 * at.minute + at.second + at.microsecond / 1e6) / DAY


def zone_name(zone: str) -> str:
    """One name for what libraries call a time zone in several ways.

    >>> zone_name("Etc/UTC") == zone_name("+00:00"), zone_name("UTC+01:00")
    (True, '+01:00')
    """
    short = zone.removeprefix("Etc/").removeprefix("UTC").removeprefix("Zulu")
    return "" if short in ("+00:00", "Z") else short


def text_column(name: str, fields: np.ndarray) -> RawColumn:
    """A column of a text file: numbers, dates or truth values where every field is one, or nothing; else levels.

    >>> text_column("at", np.array(["2020-01-01", "", "2020-01-03"])).values.tolist()
    [18262.0, nan, 18264.0]
    """
    words, place = np.unique(fields, return_inverse=True)
    gone, place = np.isin(words, NOTHING), place.reshape(-1)
    levelled = RawColumn(
        name, "category", np.where(gone, -1, np.cumsum(~gone) - 1)[place], tuple(words[~gone].tolist())
    )
    dates = as_dates(levelled)
    if dates.kind == "date":
        return dates
    for kind, cast in (("number", float), ("date", np.datetime64), ("bool", _truth)):
        try:
            known = np.array([None if g else cast(word) for word, g in zip(words, gone, strict=True)])
        except ValueError:
            continue
        if kind != "date":
            return RawColumn(name, kind, known.astype(np.float64)[place])
        return RawColumn(name, kind, days(known.astype("datetime64[us]"))[place])
    return levelled


def _truth(word: str) -> float:
    """One or zero for the words that frames write for truth values."""
    return float(("false", "true").index(word.lower()))


def factored(values: Iterable[Any]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Codes of the values by their text, and the names of the levels in order; None is missing."""
    place: dict[str, int] = {}
    codes = [-1 if value is None else place.setdefault(_name(value), len(place)) for value in values]
    names = sorted(place)
    rank = np.empty(len(names) + 1, dtype=np.int64)
    rank[[place[name] for name in names]] = np.arange(len(names))
    rank[-1] = -1
    return rank[np.array(codes, dtype=np.int64)], tuple(names)


def level_names(levels: Sequence[Any]) -> tuple[str, ...]:
    return tuple(map(_name, levels))


def _name(value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:  # with bytes replaced, two levels would be one
            raise ValueError(f"levels of bytes must be text in UTF-8, got {value!r}: decode them first") from None
    return _number_name(float(value)) if isinstance(value, numbers.Real) else str(value)


def _number_name(value: float) -> str:
    """The name of a level that is a number: 3 and 3.0 are one level."""
    return str(int(value)) if np.isfinite(value) and value == int(value) else repr(float(value))


def days(values: np.ndarray) -> np.ndarray:
    """Times in microseconds as days, NaN where there is none."""
    whole = values.astype(np.int64).astype(np.float64) / (1e6 * DAY)
    return np.where(np.isnat(values), np.nan, whole)


def is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))
