"""Base class of interchangeable components (kernels, losses, criteria, stopping rules), and checks of values.

A component is a dataclass whose fields are scikit-learn parameters, so that `clone`, `repr` and names such as
``kernel__length_scale`` in a grid search work. It can be chosen by a short name and refuses bad values.
"""

from __future__ import annotations

import re
import sys
import warnings
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, ClassVar, Self, dataclass_transform

from sklearn.base import BaseEstimator

#: Integers become sizes and indices of 64 bits.
LARGEST_INTEGER = 2**63 - 1
#: Characters that terminals and browsers obey instead of showing them; the last ones change the direction of text.
CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
#: Characters of a bad value that its error message shows.
SHOWN = 200


@dataclass_transform()
def component(cls: type) -> Any:
    """Make a class a component: a dataclass with scikit-learn's `repr`, compared by identity."""
    return dataclass(eq=False, repr=False)(cls)


def is_auto(choice: Any) -> bool:
    """Whether a parameter is "auto"; arrays and components compare otherwise."""
    return isinstance(choice, str) and choice == "auto"


class Component(BaseEstimator):
    """A component with parameters; concrete classes have a `short_name` by which users may choose them.

    A class marked with `typing.final` may not be derived from: a subclass could change a formula without its
    gradient. Derive from the abstract parent instead.
    """

    short_name: ClassVar[str] = ""
    #: Other names that users may know the component by.
    aliases: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for parent in cls.__bases__:
            if getattr(parent, "__final__", False):
                raise TypeError(f"{parent.__name__} is final, {cls.__name__} must derive from its abstract parent")

    @classmethod
    def choices(cls) -> dict[str, type[Self]]:
        """Map short names and aliases to the components of this kind."""
        found: dict[str, type[Self]] = {}
        for sub in cls.__subclasses__():
            found |= sub.choices()
        return found | {name: cls for name in (cls.short_name, *cls.aliases) if name}

    @classmethod
    def resolve(cls, choice: Any, parameter: str) -> Self:
        """Return `choice` itself if it is a component of this kind, else the component of that short name."""
        if isinstance(choice, cls):
            return choice
        names = cls.choices()
        if isinstance(choice, str) and choice in names:
            return names[choice]()
        if isinstance(choice, type) and issubclass(choice, cls):
            raise ValueError(f"{parameter} must be an object such as {choice.__name__}(), got the class itself")
        raise ValueError(f"{parameter} must be one of {sorted(names)} or a {cls.__name__} object, got {_shown(choice)}")


class PickledByFields:
    """Mixin of dataclasses whose cached properties are left out of pickles.

    >>> from functools import cached_property
    >>> @dataclass(frozen=True)
    ... class Length(PickledByFields):
    ...     value: float
    ...     @cached_property
    ...     def square(self):
    ...         return self.value**2
    >>> length = Length(3.0)
    >>> length.square, length.__getstate__()
    (9.0, {'value': 3.0})
    """

    def __getstate__(self) -> dict[str, Any]:
        own: Any = self  # a dataclass
        return {field.name: getattr(self, field.name) for field in fields(own)}


def warn(message: str) -> None:
    """Warn the user, naming the line that called this package, however deep the call stack."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "mercer":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, UserWarning, stacklevel=level)


def require(condition: bool, parameter: str, wanted: str, seen: Any) -> None:
    """Refuse a parameter in one sentence that names the value wanted and the value seen."""
    if not condition:
        raise ValueError(f"{parameter} must be {wanted}, got {_shown(seen)}")


def require_integer(parameter: str, value: Any, least: int = 1) -> None:
    """Refuse what is not an integer of at least `least`."""
    require(is_integer(value, least), parameter, f"an integer of at least {least}", value)


def is_integer(value: Any, least: int = 1) -> bool:
    """Whether this is an integer, not a boolean, of at least `least` that fits into 64 bits."""
    return isinstance(value, Integral) and not isinstance(value, bool) and least <= int(value) <= LARGEST_INTEGER


def require_number(parameter: str, value: Any, wanted: str, low: float) -> None:
    """Refuse what is not a finite number of at least `low`."""
    require(low <= as_float(value) < float("inf"), parameter, wanted, value)


def as_float(value: Any) -> float:
    """Convert a real number to float; NaN, which lies in no range, for anything else and for too large numbers."""
    try:
        return float(value) if isinstance(value, Real) else float("nan")
    except OverflowError:  # 10**400 is a Real
        return float("nan")


def visible(text: str, kept: str = "") -> str:
    """Escape control characters in text, except those `kept`: a terminal would obey them.

    >>> print(visible("red\\x1b[31m"))
    red\\x1b[31m
    """

    def escaped(match: re.Match[str]) -> str:
        character = match[0]
        return character if character in kept else character.encode("unicode_escape").decode()

    return CONTROLS.sub(escaped, text)


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python refuses to write out numbers of more than 4300 digits
        return "a number of thousands of digits"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
