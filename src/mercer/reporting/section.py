"""Sections of a report: words, tables and pictures, each with the numbers behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mercer.reporting.svg import Figure, grouped, short


@dataclass(frozen=True)
class Grid:
    """A table: a caption, one head line, and rows of text or numbers."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def text(self) -> list[list[str]]:
        """All cells as text, numbers in few figures."""
        return [[cell if isinstance(cell, str) else cell_text(cell) for cell in row] for row in self.rows]


@dataclass(frozen=True)
class Section:
    """One question that the report answers."""

    key: str
    title: str
    words: Sequence[str] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict)
    tables: Sequence[Grid] = ()
    figures: Sequence[Figure] = ()


def cell_text(value: Any) -> str:
    """A cell as text: integers in full, other numbers in few figures, a dash for None."""
    if value is None:
        return "–"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, int | np.integer):
        return grouped(int(value))
    return short(float(value)) if isinstance(value, float | np.floating) else str(value)


def to_json(value: Any) -> Any:
    """Convert a value to types that JSON has; NaN and infinity become None.

    >>> to_json({"a": np.arange(2), "b": (np.float64("nan"), True)})
    {'a': [0, 1], 'b': [None, True]}
    """
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return to_json(value.tolist())
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, np.generic):
        return to_json(value.item())
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if isinstance(value, str | int | bool | None) else str(value)
