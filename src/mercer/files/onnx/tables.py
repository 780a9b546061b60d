"""What a graph takes: one matrix of numbers, or the columns of a mixed table, and how they become rows in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mercer.files.onnx.graph import Graph, onnx_type
from mercer.parts import require

#: How each kind of table is read, by the class of a model's `table_`: the graph's inputs and the rows in float64.
TABLES: dict[type, Callable[[Graph, Any], tuple[list[Any], str]]] = {}


def given_rows(g: Graph, model: Any) -> tuple[list[Any], str]:
    """The inputs of a graph, and its rows as numbers in float64."""
    table = getattr(model, "table_", None)
    if table is None:
        return _numbers(g, model)
    require(type(table) in TABLES, "the columns of the model", "numbers, to be read by an ONNX graph", table)
    return TABLES[type(table)](g, model)


def _numbers(g: Graph, model: Any) -> tuple[list[Any], str]:
    """One matrix X; a number that is missing stands for what `predict` takes in its place, where it takes one."""
    from onnx import helper

    rows, fill = g.cast("X", "float64"), getattr(model, "fill_", None)
    if fill is not None:
        rows = g.op("Where", g.op("IsNaN", rows), g.constant(fill), rows)
    return [helper.make_tensor_value_info("X", onnx_type(g.dtype), ("rows", int(model.n_features_in_)))], rows
