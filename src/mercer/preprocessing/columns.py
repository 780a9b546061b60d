"""A user's table as numbers: which coordinates each of its columns has, fitted once and applied to any rows.

Everything here is plain frozen data, found by `mercer.preprocessing.columns_fit`. What kernels see of the coordinates
is the business of `mercer.preprocessing.inputs`: this map stands before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from mercer.data.raw import RawColumn
from mercer.preprocessing.columns_codes import Code, Counts, OneHot, TargetMean


@dataclass(frozen=True)
class Layout:
    """Of each coordinate: the user's column it comes from, the group that shares its length-scale, whether it keeps
    its unit. `n_columns` are the user's."""

    column: np.ndarray
    group: np.ndarray
    keeps_unit: np.ndarray
    n_columns: int
    #: The coordinates that each of several models sees, where columns are coded twice.
    views: tuple[np.ndarray, ...] = ()

    def per_column(self, values: np.ndarray) -> np.ndarray:
        """Sums of non-negative numbers, one per coordinate (along the last axis), over each of the user's columns."""
        belongs = self.column[:, None] == np.arange(self.n_columns)
        return values @ belongs


@dataclass(frozen=True)
class Described:
    """What was seen of a column, and what was done with it."""

    name: str
    kind: str
    levels: int
    missing: float
    map: str
    zone: str = ""  # of dates whose times are by the clock of one


@dataclass(frozen=True)
class TableMap:
    """From a table's columns to coordinates.

    >>> from mercer.preprocessing.columns_codes import OneHot, Value
    >>> seen = (Described("size", "number", 0, 0.0, "number"), Described("kind", "category", 2, 0.0, "2 levels"))
    >>> table = TableMap((Value(0, 1.5), OneHot(1, ("ash", "oak"), False)), seen)
    >>> rows = [RawColumn("size", "number", np.array([2.0])), RawColumn("kind", "category", np.array([0]), ("oak",))]
    >>> table.encode(rows).round(2).tolist(), table.layout.column.tolist()
    ([[2.0, 0.0, 0.71]], [0, 1, 1])
    """

    codes: tuple[Code, ...]
    described: tuple[Described, ...]

    @property
    def n_columns(self) -> int:
        """How many columns the user's table has."""
        return len(self.described)

    @property
    def layout(self) -> Layout:
        """Which coordinate belongs where."""
        widths = [code.width for code in self.codes]
        return Layout(
            np.repeat([code.column for code in self.codes], widths).astype(int),
            np.repeat(np.arange(len(widths)), widths),
            np.repeat([code.keeps_unit for code in self.codes], widths).astype(bool),
            self.n_columns,
            tuple(np.repeat(view, widths) for view in self._views()),
        )

    def _views(self) -> list[list[bool]]:
        """Codes of columns that have both: those without means, and those without levels."""
        of = {kind: {code.column for code in self.codes if type(code) is kind} for kind in (OneHot, TargetMean)}
        twice = of[OneHot] & of[TargetMean]
        second = [code.column in twice and isinstance(code, TargetMean | Counts) for code in self.codes]
        first = [code.column in twice and isinstance(code, OneHot) for code in self.codes]
        return [[not out for out in view] for view in (second, first)] if twice else []

    def encode(self, columns: Sequence[RawColumn]) -> np.ndarray:
        """The coordinates of rows given by the user's columns, in the order of `fit`; n × D."""
        return np.concatenate([code.encode(columns[code.column]) for code in self.codes], axis=1)

    def tell(self) -> None:
        """What became of each column, above the progress bar."""
        for one in self.described:
            gaps = f", {100 * one.missing:.3g} % missing" if one.missing else ""
            tqdm.write(f"column {one.name!r} ({one.kind}{gaps}): {one.map}")


def column_table(model: Any) -> list[dict[str, Any]]:
    """What a fitted model did with each column of the table: a list of dictionaries, which any frame takes."""
    table: TableMap | None = getattr(model, "table_", None)
    if table is None:
        names = getattr(model, "feature_names_in_", [f"x{j}" for j in range(model.n_features_in_)])
        constants = getattr(model, "constants_", None)
        held = np.zeros(len(names), dtype=bool) if constants is None else constants.mask(len(names))
        words = np.where(held, "left out: constant", "number").tolist()
        seen = [Described(str(name), "number", 0, 0.0, map) for name, map in zip(names, words, strict=True)]
    else:
        seen = list(table.described)
    lengths = _length_scales(model, table, len(seen))
    relevance = np.asarray(getattr(model, "relevance_", np.full(len(seen), np.nan)))
    relevance = relevance if relevance.shape == (len(seen),) else np.full(len(seen), np.nan)
    return [
        {**vars(one), "length_scale": float(length), "relevance": float(share)}
        for one, length, share in zip(seen, lengths, relevance, strict=True)
    ]


def _length_scales(model: Any, table: TableMap | None, n: int) -> np.ndarray:
    """The shortest length-scale among the coordinates of each column, by the first kernel's metric; infinite for
    columns left out, NaN where the model has no metric."""
    M = getattr(model, "metric_", None)
    if M is None:
        return np.full(n, np.nan)
    column = np.arange(n) if table is None else table.layout.column
    constants = getattr(model, "constants_", None)
    steepest = np.zeros(n)
    np.maximum.at(steepest, column, np.diag(M))
    steepest[[] if constants is None else constants.columns] = 0.0
    with np.errstate(divide="ignore"):
        return 1 / np.sqrt(steepest)
