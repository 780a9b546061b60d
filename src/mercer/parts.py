"""The base of every interchangeable part: kernels, losses, criteria, updates, stopping rules.

A part is a dataclass whose fields are scikit-learn parameters, so that `clone`, `repr` and
names such as ``kernel__length_scale`` in a grid search work. It is responsible for being
found by a short name and for refusing bad values in a sentence; it never fits anything.
"""

from __future__ import annotations

import re
import sys
import warnings
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Self, dataclass_transform

from sklearn.base import BaseEstimator

#: Whole numbers end up as sizes and indices, which are of 64 bits.
LARGEST_WHOLE = 2**63 - 1
#: Characters that terminals and browsers obey instead of showing them; the last ones turn the direction of text.
CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
#: Characters of a bad value that its error message shows.
SHOWN = 200


@dataclass_transform()
def part(cls: type) -> Any:
    """Make a class a part: a dataclass that keeps scikit-learn's `repr` and compares by identity."""
    return dataclass(eq=False, repr=False)(cls)


class Part(BaseEstimator):
    """A part with parameters; concrete classes carry a `short_name` by which users may choose them.

    A class marked with `typing.final` is complete: a class derived from it could change half of what belongs together
    (a formula and its gradient), so it is refused. Derive from the abstract parent instead.
    """

    short_name: ClassVar[str] = ""
    #: Other names that users may know the part by.
    aliases: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for parent in cls.__bases__:
            if getattr(parent, "__final__", False):
                raise TypeError(f"{parent.__name__} is final, {cls.__name__} must derive from its abstract parent")

    @classmethod
    def choices(cls) -> dict[str, type[Self]]:
        """Every part of this kind that can be named, by its short name and its aliases."""
        found: dict[str, type[Self]] = {}
        for sub in cls.__subclasses__():
            found |= sub.choices()
        return found | {name: cls for name in (cls.short_name, *cls.aliases) if name}

    @classmethod
    def resolve(cls, choice: Any, parameter: str) -> Self:
        """Return `choice` itself if it is a part of this kind, else the part of that short name."""
        if isinstance(choice, cls):
            return choice
        names = cls.choices()
        if isinstance(choice, str) and choice in names:
            return names[choice]()
        if isinstance(choice, type) and issubclass(choice, cls):
            raise ValueError(f"{parameter} must be an object such as {choice.__name__}(), got the class itself")
        raise ValueError(f"{parameter} must be one of {sorted(names)} or a {cls.__name__} object, got {_shown(choice)}")


def warn(message: str) -> None:
    """Warn the user, naming the line that called this package, however deep in it the reason was found."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "mercer":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, UserWarning, stacklevel=level)


def require(condition: bool, parameter: str, wanted: str, seen: Any) -> None:
    """Refuse a parameter in one sentence that names the value wanted and the value seen."""
    if not condition:
        raise ValueError(f"{parameter} must be {wanted}, got {_shown(seen)}")


def require_whole(parameter: str, value: Any, least: int = 1) -> None:
    """Refuse what is not a whole number of at least `least`."""
    require(is_whole(value, least), parameter, f"a whole number of at least {least}", value)


def is_whole(value: Any, least: int = 1) -> bool:
    """Whether this is a whole number (True is none) of at least `least` that fits into 64 bits."""
    return isinstance(value, Integral) and not isinstance(value, bool) and least <= int(value) <= LARGEST_WHOLE


def require_number(parameter: str, value: Any, wanted: str, low: float) -> None:
    """Refuse what is not a finite number of at least `low`."""
    require(low <= as_float(value) < float("inf"), parameter, wanted, value)


def as_float(value: Any) -> float:
    """A real number as a float; NaN, which lies in no range, for anything else and for what no float can hold."""
    try:
        return float(value) if isinstance(value, Real) else float("nan")
    except OverflowError:  # 10**400 is a Real
        return float("nan")


def visible(text: str, kept: str = "") -> str:
    """Text whose control characters, but those `kept`, are written out: a terminal would obey them.

    >>> print(visible("red\\x1b[31m"))
    red\\x1b[31m
    """
    return CONTROLS.sub(lambda one: one[0] if one[0] in kept else one[0].encode("unicode_escape").decode(), text)


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python refuses to write out numbers of more than 4300 digits
        return "a number of thousands of digits"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
