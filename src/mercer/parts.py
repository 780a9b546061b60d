"""The base of every interchangeable part: kernels, losses, criteria, updates, stopping rules.

A part is a dataclass whose fields are scikit-learn parameters, so that `clone`, `repr` and
names such as ``kernel__length_scale`` in a grid search work. It is responsible for being
found by a short name and for refusing bad values in a sentence; it never fits anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self, dataclass_transform

from sklearn.base import BaseEstimator


@dataclass_transform()
def part(cls: type) -> Any:
    """Make a class a part: a dataclass that keeps scikit-learn's `repr` and compares by identity."""
    return dataclass(eq=False, repr=False)(cls)


class Part(BaseEstimator):
    """A part with parameters; concrete classes carry a `short_name` by which users may choose them."""

    short_name: ClassVar[str] = ""

    @classmethod
    def choices(cls) -> dict[str, type[Self]]:
        """Every part of this kind that can be named, by its short name."""
        found = {cls.short_name: cls} if cls.__dict__.get("short_name") else {}  # a subclass takes no name over
        for sub in cls.__subclasses__():
            found |= sub.choices()
        return found

    @classmethod
    def resolve(cls, choice: Any, parameter: str) -> Self:
        """Return `choice` itself if it is a part of this kind, else the part of that short name."""
        if isinstance(choice, cls):
            return choice
        names = cls.choices()
        if isinstance(choice, str) and choice in names:
            return names[choice]()
        raise ValueError(f"{parameter} must be one of {sorted(names)} or a {cls.__name__} object, got {choice!r}")


def require(condition: bool, parameter: str, wanted: str, seen: Any) -> None:
    """Refuse a parameter in one sentence that names the value wanted and the value seen."""
    if not condition:
        raise ValueError(f"{parameter} must be {wanted}, got {seen!r}")
