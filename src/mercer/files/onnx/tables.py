"""Inputs of a graph: one matrix X of numbers, or each column of a mixed table by its name.

Columns of numbers, booleans and dates (in days since 1970) are numbers, NaN where one is missing; levels are text,
empty where one is missing. Codes are told by the names of their classes (`mercer.preprocessing.columns`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mercer.files.onnx.graph import Graph, onnx_type
from mercer.parts import require
from mercer.preprocessing.columns import MISSING, UNSEEN, ColumnDescription, column_table


def graph_inputs(g: Graph, model: Any) -> tuple[list[Any], str]:
    """The inputs of a graph, and its rows as numbers in float64."""
    table = getattr(model, "table_", None)
    return _numbers(g, model) if table is None else _columns(g, model, table)


def _numbers(g: Graph, model: Any) -> tuple[list[Any], str]:
    """One matrix; missing numbers become the value that `predict` takes in their place."""
    from onnx import helper

    rows, fill = g.cast("X", "float64"), getattr(model, "fill_", None)
    if fill is not None:
        rows = g.op("Where", g.op("IsNaN", rows), g.constant(fill), rows)
    rows = hold_constants(g, model, rows)
    D, names = int(model.n_features_in_), [column["name"] for column in column_table(model)]
    missing = "refused" if fill is None else "replaced by medians"
    doc = f"Rows of {D} numbers in the units of fit, NaN {missing}. Columns: {', '.join(names)}"
    return [helper.make_tensor_value_info("X", onnx_type(g.dtype), ("rows", D), doc)], rows


def hold_constants(g: Graph, model: Any, rows: str) -> str:
    """Set columns that were constant in `fit` to their values there."""
    constants = getattr(model, "constants_", None)
    if constants is None:
        return rows
    D = int(model.n_features_in_)
    values = np.zeros(D)
    values[constants.columns] = constants.values
    return g.op("Where", g.constant(constants.mask(D), bool), g.constant(values), rows)


def _columns(g: Graph, model: Any, table: Any) -> tuple[list[Any], str]:
    from onnx import TensorProto, helper

    names = getattr(model, "feature_names_in_", [f"x{j}" for j in range(model.n_features_in_)])
    entries, given = [], []
    for name, seen in zip(map(str, names), table.described, strict=True):
        text = seen.kind in ("category", "ordered")
        kind = TensorProto.STRING if text else onnx_type(g.dtype)
        entries.append(helper.make_tensor_value_info(name, kind, ("rows", 1), _document(seen, text)))
        given.append(Column(g, name, text))
    parts = []
    for code in table.codes:
        known, seen = type(code).__name__ in CODES, table.described[code.column]
        wanted = "of numbers, dates or levels where a model becomes an ONNX graph"
        require(known, f"column {seen.name!r}", wanted, f"free {seen.kind}" if seen.kind == "text" else type(code))
        parts.append(CODES[type(code).__name__](*(given[k] for k in code.sources), code))
    return entries, g.op("Concat", *parts, axis=1)


def _document(column: ColumnDescription, text: bool) -> str:
    """The values that an input of one column takes, and its code in the graph."""
    takes = "text, empty where missing" if text else "numbers, NaN where missing"
    takes = "days since 1970, NaN where missing" if column.kind == "date" else takes
    return f"Column {column.name!r} ({column.kind}): {takes}. Code: {column.map}"


@dataclass(frozen=True)
class Column:
    """An input of the graph, n × 1, of numbers or of text."""

    g: Graph
    name: str
    text: bool

    def equals(self, number: float) -> str:
        """Where the column is a number, in the precision in which rows come."""
        return self.g.op("Equal", self.name, self.g.constant([[number]], self.g.dtype))

    def is_missing(self, sentinel: float = math.nan) -> str:
        """Whether the value is NaN, or the sentinel for missing values."""
        if self.text:
            return self.g.op("Equal", self.places(()), self.g.constant(MISSING, np.int64))
        nothing = self.g.op("IsNaN", self.name)
        return nothing if math.isnan(sentinel) else self.g.op("Or", nothing, self.equals(sentinel))

    def filled(self, fill: float, sentinel: float = math.nan) -> str:
        """Numbers in float64, with `fill` in place of missing ones."""
        number = self.g.cast(self.name, "float64")
        return self.g.op("Where", self.is_missing(sentinel), self.g.constant(fill), number)

    def places(self, levels: tuple[str, ...]) -> str:
        """The integer code of each row's level, `MISSING` or `UNSEEN`, n × 1."""
        g = self.g
        if self.text:
            keys, places = [*levels, ""], [*range(len(levels)), MISSING]
            options = {"keys_strings": keys, "values_int64s": places, "default_int64": UNSEEN}
            return g.op("LabelEncoder", self.name, domain="ai.onnx.ml", **options)
        known = np.array([[_number(level) for level in levels]] if levels else [[math.nan]])
        same = g.cast(g.op("Equal", self.name, g.constant(known, g.dtype)), "int64")
        is_known = g.op("ReduceMax", same, g.constant([1], np.int64), keepdims=1)
        found = g.op("ArgMax", same, axis=1, keepdims=1)
        place = g.op("Where", g.cast(is_known, "bool"), found, g.constant(UNSEEN, np.int64))
        return g.op("Where", g.op("IsNaN", self.name), g.constant(MISSING, np.int64), place)


def _number(level: str) -> float:
    try:
        return float(level)
    except ValueError:
        return math.nan


def _rank(column: Column, code: Any) -> str:
    g, place = column.g, column.places(code.levels)
    lost = g.op("Less", place, g.constant(0, np.int64))
    return g.op("Where", lost, g.constant(code.fill), g.cast(place, "float64"))


def _look_up(column: Column, code: Any, rows: np.ndarray, other: np.ndarray) -> str:
    """The row of a table for each level, a last one for missing values where that is a level, else the `other`."""
    g, place = column.g, column.places(code.levels)
    if code.gap:
        gap = g.op("Equal", place, g.constant(MISSING, np.int64))
        place = g.op("Where", gap, g.constant(len(code.levels), np.int64), place)
    lost = g.op("Less", place, g.constant(0, np.int64))
    place = g.op("Where", lost, g.constant(len(rows), np.int64), place)
    flat = g.op("Squeeze", place, g.constant([1], np.int64))
    return g.op("Gather", g.constant(np.vstack([rows, other])), flat, axis=0)


def _levels(column: Column, code: Any) -> str:
    return _look_up(column, code, np.sqrt(0.5) * np.eye(code.width), np.zeros((1, code.width)))


def _means(column: Column, code: Any) -> str:
    return _look_up(column, code, code.means, code.prior[None])


def _day_means(column: Column, code: Any) -> str:
    begun = column.g.affine(column.g.op("Floor", column.g.affine(column.name, 1 / code.days)), code.days)
    return _means(Column(column.g, begun, column.text), code)


def _cycle(column: Column, period: float) -> str:
    """Sine and cosine (a sine a quarter ahead) of the phase of a period; zero where the value is missing."""
    g, turns = column.g, column.g.affine(column.filled(0.0), 1 / period)
    angle = g.affine(g.op("Sub", turns, g.op("Floor", turns)), 2 * math.pi)
    both = g.op("Sin", g.op("Add", angle, g.constant([[0.0, math.pi / 2]])))
    return g.op("Where", column.is_missing(), g.constant(0.0), both)


def _place(latitude: Column, longitude: Column, code: Any) -> str:
    """The unit vector of a place; zeros where one of its angles is missing."""
    g = latitude.g
    north, east = (g.affine(angle.filled(0.0), math.pi / 180) for angle in (latitude, longitude))
    across = g.op("Sin", g.op("Add", east, g.constant([[math.pi / 2, 0.0]])))  # cosine and sine
    level = g.op("Mul", g.op("Cos", north), across)
    vector = g.op("Concat", level, g.op("Sin", north), axis=1)
    return g.op("Where", g.op("Or", latitude.is_missing(), longitude.is_missing()), g.constant(0.0), vector)


#: How each code of a column is exported, by the name of its class.
CODES: dict[str, Callable[..., str]] = {
    "Value": lambda column, code: column.filled(code.fill, code.sentinel),
    "BooleanCode": lambda column, code: column.filled(code.fill, code.sentinel),
    "Rank": _rank,
    "Missing": lambda column, code: column.g.cast(column.is_missing(code.sentinel), "float64"),
    "OneHot": _levels,
    "TargetMean": _means,
    "DayTargetMean": _day_means,
    "Counts": lambda column, code: _look_up(column, code, code.counts[:, None], np.zeros((1, 1))),
    "Cyclic": lambda column, code: _cycle(column, code.days),
    "CyclicNumber": lambda column, code: _cycle(column, code.period),
    "Place": _place,
    "DayNumber": lambda column, code: column.filled(code.fill),
}
