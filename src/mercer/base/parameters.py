"""Rules of parameters: a rule stands in the declaration of its parameter and is checked before any data is read.

    n_learners: Annotated[int | str, AUTO | integer()] = "auto"

tells the type to a reader, the default to scikit-learn, and the range to `check`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from numbers import Integral, Real
from os import PathLike
from typing import Any, get_type_hints

import numpy as np

from mercer.parts import Component, is_integer, require

#: Largest float: Python's integers beyond it cannot be converted to floats.
LARGEST = sys.float_info.max


@dataclass(frozen=True)
class Rule:
    """A condition and its description; ``a | b`` holds where either does."""

    wanted: str
    holds: Callable[[Any], bool]

    def __or__(self, other: Rule) -> Rule:
        return Rule(f"{self.wanted} or {other.wanted}", lambda value: self.holds(value) or other.holds(value))


def check(estimator: Any) -> None:
    """Refuse parameters out of range, each in a sentence with the value seen and the value wanted.

    >>> from mercer import KernelBoostingRegressor
    >>> check(KernelBoostingRegressor(n_learners=0))
    Traceback (most recent call last):
    ...
    ValueError: n_learners must be 'auto' or an integer of at least 1, got 0
    """
    cls: Any = type(estimator)
    for name, rule in rules_of(cls).items():
        value = getattr(estimator, name)
        require(rule.holds(value), name, rule.wanted, value)


@cache
def rules_of(cls: type) -> dict[str, Rule]:
    """The rule of each parameter that has one."""
    hints = get_type_hints(cls, include_extras=True)
    return {
        name: entry
        for name, hint in hints.items()
        for entry in getattr(hint, "__metadata__", ())
        if isinstance(entry, Rule)
    }


def literal(*values: Any) -> Rule:
    """One of these values, by type and value: 1 is not True."""
    shown = [repr(value) for value in values]
    words = shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}"

    def holds(value: Any) -> bool:
        kind = (bool, np.bool_) if isinstance(value, bool | np.bool_) else type(value)
        return any(isinstance(known, kind) and value == known for known in values if _plain(value))

    return Rule(words, holds)


def integer(least: int = 1) -> Rule:
    """An integer of at least `least`."""
    return Rule(f"an integer of at least {least}", lambda value: is_integer(value, least))


def number(
    low: float, high: float = LARGEST, *, wanted: str = "", open_low: bool = False, open_high: bool = False
) -> Rule:
    """A finite number from `low` to `high`, both included unless they are said to be open."""
    words = wanted or _range_words(low, high, open_low, open_high)

    def holds(value: Any) -> bool:
        if not isinstance(value, Real) or isinstance(value, bool | np.bool_):
            return False
        exact: Any = value  # compared as it is: a huge integer would not turn into a float
        above = low < exact if open_low else low <= exact
        return bool(above and (exact < high if open_high else exact <= high))

    return Rule(words, holds)


def part_of(kind: type[Component]) -> Rule:
    """A part of this kind or its short name."""
    names = sorted(kind.choices())
    return Rule(
        f"one of {names} or a {kind.__name__} object",
        lambda value: isinstance(value, kind) or (isinstance(value, str) and value in names),
    )


def sequence_of(rule: Rule) -> Rule:
    """A sequence of at least one value, each of which obeys `rule`."""

    def holds(value: Any) -> bool:
        if not isinstance(value, list | tuple | np.ndarray) or len(value) == 0:
            return False
        return all(rule.holds(item) for item in value)

    return Rule(f"several, each {rule.wanted}", holds)


def _plain(value: Any) -> bool:
    """Whether a value compares to one boolean: arrays and frames do not."""
    return value is None or isinstance(value, str | bool | np.bool_ | Real)


def _range_words(low: float, high: float, open_low: bool, open_high: bool) -> str:
    if high == LARGEST:
        return f"a number above {low:g}" if open_low else f"a number of at least {low:g}"
    first = f"above {low:g}" if open_low else f"of at least {low:g}"
    return f"a number {first} and {'below' if open_high else 'at most'} {high:g}"


AUTO = literal("auto")
NONE = literal(None)
BOOL = literal(True, False)
ANY_FUNCTION = Rule("a function", callable)
CALLBACKS = NONE | Rule(
    "a function or several",
    lambda value: callable(value) or (isinstance(value, Iterable) and all(callable(item) for item in value)),
)
FOLDER = Rule("the path of a folder", lambda value: isinstance(value, str | PathLike) and bool(str(value)))
COLUMNS = NONE | Rule(
    "several names or numbers of columns, or a mask",
    lambda value: (
        isinstance(value, list | tuple | np.ndarray)
        and np.ndim(value) <= 1
        and all(isinstance(item, str | Integral | np.bool_) for item in value)
    ),
)
CATEGORIES, TEXTS = literal("from_dtype") | COLUMNS, literal("from_values") | COLUMNS
CYCLES = NONE | Rule(
    "a dictionary of positive periods by the names or numbers of columns, such as {'hour': 24}",
    lambda value: (
        isinstance(value, dict)
        and all(isinstance(key, str | Integral) for key in value)
        and all(isinstance(p, Real) and not isinstance(p, bool) and 0 < float(p) < np.inf for p in value.values())
    ),
)
PLACES = (
    NONE
    | literal("from_names")
    | Rule(
        "pairs of columns, latitude and longitude, by name or number",
        lambda value: (
            isinstance(value, list | tuple)
            and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in value)
            and all(isinstance(item, str | Integral) for pair in value for item in pair)
        ),
    )
)
MONOTONE = NONE | Rule(
    "an array of -1, 0 and 1, or a dictionary of these by the names or numbers of columns",
    lambda value: (
        isinstance(value, dict | list | tuple | np.ndarray)
        and (not isinstance(value, np.ndarray) or value.ndim == 1)
        and all(
            is_integer(sign, -1) and int(sign) <= 1 for sign in (value.values() if isinstance(value, dict) else value)
        )
        and (not isinstance(value, dict) or all(isinstance(key, str | Integral) for key in value))
    ),
)
SECONDS = NONE | number(0.0, open_low=True, wanted="a positive number of seconds")
