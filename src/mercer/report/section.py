"""What a report is made of: sections of words, tables and pictures, each with the numbers behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mercer.report.svg import grouped, short


@dataclass(frozen=True)
class Figure:
    """A picture with the sentence that tells what is seen in it."""

    svg: str
    caption: str


@dataclass(frozen=True)
class Grid:
    """A table: one headline, rows of text or numbers, and what it is about."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def text(self) -> list[list[str]]:
        """All cells as text, numbers in few figures."""
        return [[cell if isinstance(cell, str) else said(cell) for cell in row] for row in self.rows]


@dataclass(frozen=True)
class Section:
    """One question that the report answers."""

    key: str
    title: str
    words: Sequence[str] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict)
    tables: Sequence[Grid] = ()
    figures: Sequence[Figure] = ()


def said(value: Any) -> str:
    """A cell: integers in full, others in few figures, nothing for what is not known."""
    if value is None:
        return "–"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, int | np.integer):
        return grouped(int(value))
    return short(float(value)) if isinstance(value, float | np.floating) else str(value)


def plain(value: Any) -> Any:
    """The same value of Python's own types, as JSON has them; a number that is none becomes None.

    >>> plain({"a": np.arange(2), "b": (np.float64("nan"), True)})
    {'a': [0, 1], 'b': [None, True]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if isinstance(value, str | int | bool | None) else str(value)
