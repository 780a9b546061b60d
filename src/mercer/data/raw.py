"""Columns of a user's table before encoding: numbers, dates, or integer codes of levels, from any library."""

from __future__ import annotations

import datetime
import numbers
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np

from mercer.parts import require, warn

DAY = 86_400.0
#: Fields of text files that mean a missing value.
MISSING_FIELDS = ("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "<NA>", "#N/A", "?")
#: Booleans as text, as data frames write them, in any case.
BOOLEANS = ("false", "true")
#: Dates as text, by ISO 8601; times may have an offset from UTC.
DATE = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[-+]\d\d:?[0-5]\d)?)?")
#: Numbers as text, to NumPy as well as to Python; infinity is refused later, as it is among numbers.
NUMBER = re.compile(r"\s*[-+]?((\d+\.?\d*|\.\d+)(e[-+]?\d+)?|inf(inity)?|nan)\s*", re.IGNORECASE)
#: A number with one comma.
COMMA = re.compile(r"\s*[-+]?\d+,\d+\s*")
_MONEY, _AMOUNT = "(?:[$€£¥₹]|USD|EUR|GBP|CHF)", r"(?:\d+(?:[.,]\d+)?|\d{1,3}(?:[,.' ]\d{3})+(?:[.,]\d+)?)"
_DAY, _CLOCK = r"(?:\d\d?([./-])\d\d?\1(?:\d{4}|\d\d)|\d{4}/\d\d?/\d\d?)", r"\d\d?:[0-5]\d(?::[0-5]\d(?:\.\d+)?)?"
#: Amounts, times and dates that are written for people, by what converts them.
WRITTEN = {
    "pandas.to_numeric after removing all but digits, signs and the decimal point": re.compile(
        rf"[-+(]?\s*{_MONEY}?\s*[-+]?{_AMOUNT}(?:\s?(?:%|{_MONEY})|\s[a-zA-Z]{{1,4}})?\)?"
    ),
    "pandas.to_timedelta, which takes hh:mm:ss": re.compile(_CLOCK),
    "pandas.to_datetime with the format of your dates": re.compile(
        rf"(?=\d)(?:{_DAY}[ T]?)?(?:{_CLOCK})?(?:\s?[AaPp][Mm])?"
    ),
}
#: A column with a level for nearly every row is an identifier, where there are more than a few rows.
IDENTIFIER_SHARE, FEW_ROWS = 0.9, 30
#: Fewer distinct numbers with a decimal point than this, written as text, are levels ("3.11").
FEW_NUMBERS = 10
#: Types of objects that hold several values.
NESTED = (list, dict, set, np.ndarray)
#: Numbers beyond this, such as the largest float that stands for "no data", are read as this: differences, sums and
#: multiples of a few of them stay finite.
LARGEST = 2.0**1020
#: Integers beyond this are not all exact as float64.
EXACT = 2**53
#: Words for the values of columns without levels.
KINDS = {"number": "numbers", "bool": "booleans", "date": "days since 1970"}
#: Kinds of columns whose values are integer codes of levels.
CATEGORICAL = ("category", "ordered")


@dataclass(frozen=True)
class RawColumn:
    """A column before encoding.

    `values` are float64 with NaN for missing ones (numbers; booleans as 0 and 1; dates in days since 1970, in local
    time of their time zone), or integer codes of the `levels` with −1 for missing ones.
    """

    name: str
    kind: str  # "number", "bool", "date", "category" or "ordered"
    values: np.ndarray
    levels: tuple[str, ...] = ()
    zone: str = ""
    text: bool = False  # undeclared levels, which may be numbers or dates written as text
    integers: bool = False  # levels that are integers, some of them beyond `EXACT`

    @property
    def missing(self) -> np.ndarray:
        return self.values < 0 if self.kind in CATEGORICAL else np.isnan(self.values)

    @property
    def example(self) -> str:
        """The kind of the values and the first one, for an error message."""
        first = self.values[~self.missing][0]
        if self.kind in CATEGORICAL:
            return f"levels such as {self.levels[first]!r}"
        return f"{KINDS[self.kind]} such as {first:.6g}"


def as_levels(column: RawColumn) -> RawColumn:
    """Turn a column of numbers into one of levels."""
    if column.kind in CATEGORICAL:
        return column
    seen, codes = np.unique(column.values[~column.missing], return_inverse=True)
    values = np.full(len(column.values), -1)
    values[~column.missing] = codes
    return RawColumn(column.name, "category", values, tuple(_number_name(value) for value in seen))


def dates_as_levels(column: RawColumn, known: Sequence[str]) -> RawColumn:
    """Turn dates into levels by their text, where the levels `known` from `fit` include dates.

    >>> at = RawColumn("at", "date", np.array([18262.0, 18262.5]))
    >>> dates_as_levels(at, ("2020-01-01", "soon")).levels
    ('2020-01-01', '2020-01-01 12:00:00')
    """
    if column.kind != "date" or not any(map(DATE.fullmatch, known)):
        return column
    missing, known_names = column.missing, frozenset(known)
    times = np.round(np.where(missing, 0.0, column.values) * DAY * 1e6).astype("datetime64[us]").tolist()
    names = [_date_name(str(time), known_names) for time in times]
    codes, levels = factorize([None if gone else name for gone, name in zip(missing, names, strict=True)])
    return RawColumn(column.name, "category", codes, levels)


def _date_name(time: str, known: frozenset[str]) -> str:
    """The date without midnight, where it is known by that name."""
    day = time.removesuffix(" 00:00:00")
    return day if day in known else time


def as_numbers(column: RawColumn) -> RawColumn:
    """Turn a column of levels into numbers; refused unless every level is one."""
    known = parse_numbers(column)
    if known.kind in CATEGORICAL:
        wanted = "numbers, dates or booleans where categorical_features=None"
        require(False, f"column {column.name!r} of X", wanted, f"levels such as {column.levels[0]!r}")
    return known


def parse_numbers(column: RawColumn) -> RawColumn:
    """Turn a column of levels into numbers, if every level is a number or means a missing value."""
    if column.kind not in CATEGORICAL:
        return column
    numbers = []
    for level in column.levels:
        missing = level.strip() in MISSING_FIELDS
        if not missing and not is_number(level):
            return column
        numbers.append(np.nan if missing else float(level))
    return RawColumn(column.name, "number", np.array([*numbers, np.nan])[column.values])


def parse_text(column: RawColumn) -> RawColumn:
    """Interpret a column of text in `fit`: dates; numbers with decimals, or nearly all distinct; else levels.

    >>> import numpy as np
    >>> prices = tuple(f"{price}.5" for price in range(10, 30))
    >>> parse_text(RawColumn("price", "category", np.arange(20), (*prices[:-1], "?"), text=True)).values[-2:].tolist()
    [28.5, nan]
    >>> parse_text(RawColumn("shop", "category", np.arange(20) % 9, tuple("123456789"), text=True)).kind
    'category'
    """
    column = parse_dates(column)
    if not column.text or not column.levels:
        return column
    n_levels = len(column.levels)
    padded = any(re.match(r"[-+]?0\d", level) for level in column.levels)
    decimals = any("." in level for level in column.levels) and n_levels > FEW_NUMBERS
    if column.integers or (not padded and (decimals or is_identifier(n_levels, column))):
        found = parse_numbers(column)
        column = column if _merges_integers(found, n_levels) else found
    if n_levels > FEW_NUMBERS and column.kind == "category":
        _warn_of_written_numbers(column)
    return column


def _merges_integers(column: RawColumn, n_levels: int) -> bool:
    """Whether numbers that were different as text are equal as float64, where large ones are among them."""
    distinct = np.unique(column.values[~column.missing])
    return column.kind == "number" and len(distinct) < n_levels and bool((np.abs(distinct) > EXACT).any())


def _warn_of_written_numbers(column: RawColumn) -> None:
    """Warn where nearly all rows of a column of levels hold numbers, dates or times that are written for people."""
    counts = np.bincount(column.values[~column.missing], minlength=len(column.levels))
    for advice, pattern in WRITTEN.items():
        found = np.array([pattern.fullmatch(level.strip()) is not None for level in column.levels])
        odd = [level for level in compress(column.levels, found) if not is_number(level)]
        if not odd and any("." in level for level in compress(column.levels, found)):  # a word among decimal numbers
            odd, advice = list(compress(column.levels, ~found)), "pandas.to_numeric(…, errors='coerce')"
        if odd and counts[found].sum() > IDENTIFIER_SHARE * counts.sum():
            seen = (
                f"column {column.name!r} of X holds text such as {odd[len(odd) // 2]!r}, so all of it is read as levels"
            )
            warn(f"{seen} without an order: convert it by {advice}, or name it in categorical_features")
            return


def is_identifier(n_levels: int, column: RawColumn) -> bool:
    """Whether a column has so many levels that it identifies rows."""
    return n_levels > max(IDENTIFIER_SHARE * int((~column.missing).sum()), FEW_ROWS)


def parse_dates(column: RawColumn) -> RawColumn:
    """Turn a column of levels into dates, if every level is one; else return it unchanged.

    Times with an offset from UTC are converted to UTC.

    >>> levels = ("2020-01-01", "2020-01-02 12:00")
    >>> parse_dates(RawColumn("at", "category", np.array([1, -1, 0]), levels)).values.tolist()
    [18263.5, nan, 18262.0]
    >>> parse_dates(RawColumn("at", "category", np.array([0]), ("2020-01-02T12:00-06:00",))).values.tolist()
    [18263.75]
    """
    if column.kind != "category" or not column.levels or not all(map(DATE.fullmatch, column.levels)):
        return column
    try:
        times = [datetime.datetime.fromisoformat(level) for level in column.levels]
        known = np.array([*map(without_zone, times), None], dtype="datetime64[us]")
    except (ValueError, OverflowError):  # a thirteenth month
        return column
    zone = "UTC" if any(time.tzinfo for time in times) else ""
    return RawColumn(column.name, "date", days(known)[column.values], zone=zone)


def without_zone(value: Any) -> Any:
    """A date, or the time in UTC where it has a zone."""
    return value if getattr(value, "tzinfo", None) is None else value.astimezone(datetime.UTC).replace(tzinfo=None)


def object_column(name: str, values: np.ndarray, missing: np.ndarray) -> RawColumn:
    """Read a column of Python objects: dates, times or numbers if all of them are, else levels by their text."""
    present, known = values[~missing], values.copy()
    known[missing] = None
    kinds = {type(value) for value in present}
    if kinds and all(issubclass(kind, datetime.date) for kind in kinds):
        return _python_dates(name, known)
    if kinds and all(issubclass(kind, datetime.timedelta) for kind in kinds):
        return RawColumn(name, "number", days(np.array(known, dtype="timedelta64[us]")))
    if {kind.__name__ for kind in kinds} == {"Period"}:  # those of pandas become their first instants
        return _python_dates(name, [None if value is None else value.to_timestamp() for value in known])
    if kinds == {datetime.time}:  # as durations since midnight
        return RawColumn(name, "number", np.array([np.nan if at is None else _share_of_day(at) for at in known]))
    real = bool(kinds) and all(issubclass(kind, numbers.Real) or kind.__name__ == "Decimal" for kind in kinds)
    integers = False
    if real or not kinds:
        full = np.full(len(values), np.nan)
        full[~missing] = _floats(name, present)
        integers = bool((np.abs(full) > EXACT).any()) and all(issubclass(kind, numbers.Integral) for kind in kinds)
    if (real or not kinds) and not integers:
        only_booleans = bool(kinds) and all(issubclass(kind, bool | np.bool_) for kind in kinds)
        return RawColumn(name, "bool" if only_booleans else "number", full)
    for kind in kinds:
        require(not issubclass(kind, NESTED), f"column {name!r} of X", "of single values", kind.__name__)
        is_complex = issubclass(kind, numbers.Complex) and not issubclass(kind, numbers.Real)
        require(not is_complex, f"column {name!r} of X", "real numbers: complex data not supported", kind.__name__)
    codes, levels = factorize(known)
    text = all(issubclass(kind, str | numbers.Real) for kind in kinds)
    return RawColumn(name, "category", codes, levels, text=text, integers=integers)


def integer_column(name: str, floats: np.ndarray, integers: Callable[[], Iterable[Any]]) -> RawColumn:
    """Read a column of integers: numbers, or levels by all their digits where some are beyond `EXACT`."""
    if not (np.abs(floats) > EXACT).any():
        return RawColumn(name, "number", floats)
    return object_column(name, np.array([*integers(), None], dtype=object)[:-1], np.isnan(floats))


def _floats(name: str, present: np.ndarray) -> np.ndarray:
    try:
        return present.astype(np.float64)
    except OverflowError:
        far = max(present, key=abs)
        raise ValueError(
            f"column {name!r} of X must be numbers up to 1.8e308, got one of {len(str(far))} digits"
        ) from None


def _python_dates(name: str, values: Iterable[Any]) -> RawColumn:
    """Read dates and times of Python, in local time of their time zone; None is missing."""
    zones = {str(zone) for value in values if (zone := getattr(value, "tzinfo", None)) is not None}
    require(len(zones) <= 1, f"column {name!r} of X", "dates of one time zone", sorted(zones))
    plain = [value.replace(tzinfo=None) if isinstance(value, datetime.datetime) else value for value in values]
    return RawColumn(name, "date", days(np.array(plain, dtype="datetime64[us]")), zone="".join(zones))


def _share_of_day(at: datetime.time) -> float:
    return (3600 * at.hour + 60 * at.minute + at.second + at.microsecond / 1e6) / DAY


def zone_name(zone: str) -> str:
    """Unify the names that libraries give to a time zone.

    >>> zone_name("Etc/UTC") == zone_name("+00:00"), zone_name("UTC+01:00")
    (True, '+01:00')
    """
    short = zone.removeprefix("Etc/").removeprefix("UTC").removeprefix("Zulu")
    return "" if short in ("+00:00", "Z") else short


def text_column(name: str, fields: np.ndarray) -> RawColumn:
    """Read a column of a text file: numbers, dates or booleans if every field is one or missing; else levels.

    >>> text_column("at", np.array(["2020-01-01", "", "2020-01-03"])).values.tolist()
    [18262.0, nan, 18264.0]
    """
    words, place = np.unique(fields, return_inverse=True)
    place = place.reshape(-1)
    missing = np.isin(words, MISSING_FIELDS)
    codes = np.where(missing, -1, np.cumsum(~missing) - 1)[place]
    levels = RawColumn(name, "category", codes, tuple(words[~missing].tolist()), text=True)
    found = parse_numbers(parse_dates(levels))
    found = levels if _merges_integers(found, len(levels.levels)) else found
    if found is levels and all(level.lower() in BOOLEANS for level in levels.levels):
        truth = [level.lower() == "true" for level in levels.levels]
        return RawColumn(name, "bool", np.array([*truth, np.nan])[codes])
    return found


def is_number(text: str) -> bool:
    """Whether a text is a number or NaN.

    >>> [is_number(word) for word in ("-1e3", "nan", "oak", "1_000", "")]
    [True, True, False, False, False]
    """
    return NUMBER.fullmatch(text) is not None


def comma_advice(value: Any) -> str:
    """What to do about a number of a file that has a comma; nothing about other values.

    >>> comma_advice("2.5"), comma_advice("2,5")
    ('', "; pandas.read_csv reads numbers with commas: decimal=',' or thousands=','")
    """
    known = COMMA.fullmatch(str(value)) is not None
    return "; pandas.read_csv reads numbers with commas: decimal=',' or thousands=','" if known else ""


def factorize(values: Iterable[Any]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return integer codes of values by their text, and the sorted names of the levels; None is missing."""
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
        except UnicodeDecodeError:  # replaced bytes could merge two levels
            raise ValueError(f"levels of bytes must be text in UTF-8, got {value!r}: decode them first") from None
    if isinstance(value, numbers.Integral):
        return str(int(value))
    return _number_name(float(value)) if isinstance(value, numbers.Real) else str(value)


def _number_name(value: float) -> str:
    """Name a level that is a number: 3 and 3.0 are the same level."""
    return str(int(value)) if np.isfinite(value) and value == int(value) else repr(float(value))


def days(values: np.ndarray) -> np.ndarray:
    """Convert times in microseconds to days, NaT to NaN."""
    since_epoch = values.astype(np.int64).astype(np.float64) / (1e6 * DAY)
    return np.where(np.isnat(values), np.nan, since_epoch)


def is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))
