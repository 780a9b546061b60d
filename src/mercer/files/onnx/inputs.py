"""Rows as kernels see them, inside a graph: column maps, means and scales, and the metric, all in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from mercer.data.column_maps import REACH, Bend, ColumnMap
from mercer.files.onnx.graph import Graph
from mercer.parts import require
from mercer.preprocessing.inputs import FARTHEST, InputMap

#: Beyond this, asinh(z) is log 2z to the last digit, and z² may overflow.
LARGE = 1e8


def encode_rows(g: Graph, inputs: InputMap, rows: str, dtype: str) -> str:
    """`InputMap.few` of rows in float64: kept within what distances in `dtype` can hold."""
    if inputs.limits is not None:
        rows = g.op("Min", g.op("Max", rows, g.constant(inputs.limits[:1])), g.constant(inputs.limits[1:]))
    if inputs.columns is not None:
        known = type(inputs.columns) in COLUMN_MAPS
        require(known, "the map of columns", f"one of {[known.__name__ for known in COLUMN_MAPS]}", inputs.columns)
        rows = COLUMN_MAPS[type(inputs.columns)](g, inputs.columns, rows)
    rows = g.scaled(g.affine(rows, shift=-inputs.mean), 1 / inputs.scale, len(inputs.mean))
    if inputs.transform is not None:
        metric = np.asarray(inputs.transform)
        kind = "Mul" if metric.ndim == 1 else "MatMul"
        rows = g.op(kind, rows, g.constant(metric.T))
    farthest = FARTHEST[getattr(torch, dtype)]
    return g.op("Clip", rows, g.constant(-farthest), g.constant(farthest))


def asinh(g: Graph, z: str) -> str:
    """log(|z| + √(z² + 1)) with the sign of z; onnxruntime's own operator is for float32 alone."""
    size = g.op("Abs", z)
    small = g.op("Min", size, g.constant(LARGE))
    root = g.op("Sqrt", g.affine(g.op("Mul", small, small), shift=1.0))
    near = g.op("Log", g.op("Add", small, root))
    far = g.affine(g.op("Log", g.op("Max", size, g.constant(LARGE))), shift=math.log(2))
    bent = g.op("Where", g.op("Greater", size, g.constant(LARGE)), far, near)
    return g.op("Where", g.op("Less", z, g.constant(0.0)), g.op("Neg", bent), bent)


def _bend(g: Graph, bend: Bend, rows: str) -> str:
    """Bend every column and choose the result for those of `bend`: a graph has no assignment to columns."""
    n = int(np.max(bend.columns)) + 1
    chosen, centre, width = np.zeros(n, dtype=bool), np.zeros(n), np.ones(n)
    where = np.asarray(bend.columns)
    chosen[where], centre[where], width[where] = True, bend.centre, bend.width
    first = g.op("Slice", rows, *(g.constant([k], np.int64) for k in (0, n, 1)))
    rest = g.op("Slice", rows, *(g.constant([k], np.int64) for k in (n, np.iinfo(np.int64).max, 1)))
    z = g.op("Div", g.affine(first, shift=-centre), g.constant(width))
    return g.op("Concat", g.op("Where", g.constant(chosen, bool), asinh(g, z), first), rest, axis=1)


def _mapped(g: Graph, mapped: ColumnMap, rows: str) -> str:
    z = g.op("Div", g.affine(rows, shift=-np.asarray(mapped.centre)), g.constant(mapped.width))
    if mapped.kind == "bend":
        z = asinh(g, z)
    elif mapped.kind == "clip":  # z / √(1 + (z/r)²), its square taken of numbers that have one
        size = g.op("Abs", z)
        large = g.op("Max", size, g.constant(1.0))
        ratio, inverse = g.op("Div", z, large), g.op("Div", g.constant(1.0), large)
        share = g.affine(ratio, 1 / REACH)
        both = g.op("Add", g.op("Mul", share, share), g.op("Mul", inverse, inverse))
        z = g.op("Div", ratio, g.op("Sqrt", both))
    elif mapped.kind == "scores" and mapped.knots is not None and mapped.levels is not None:
        z = _interpolate(g, z, np.asarray(mapped.knots), np.asarray(mapped.levels))
    return g.op("Div", g.affine(z, shift=-np.asarray(mapped.mean)), g.constant(mapped.spread))


def _interpolate(g: Graph, z: str, knots: np.ndarray, levels: np.ndarray) -> str:
    """Piecewise linear functions through D × K knots: bisection, then interpolation."""
    D, K = knots.shape
    flat_knots, flat_levels, base = g.constant(knots.ravel()), g.constant(levels.ravel()), np.arange(D) * K
    first = g.constant(base, np.int64)

    def integer(value: int) -> str:
        return g.constant(value, np.int64)

    low = g.op("Mul", g.cast(g.op("Mul", z, g.constant(0.0)), "int64"), integer(0))  # zeros, n × D
    high = g.op("Add", low, integer(K))
    for _ in range(max(math.ceil(math.log2(K + 1)), 1)):
        middle = g.op("Div", g.op("Add", low, high), integer(2))
        inside = g.op("Min", middle, integer(K - 1))
        below = g.op("Less", g.op("Gather", flat_knots, g.op("Add", inside, first)), z)
        below = g.op("And", below, g.op("Less", low, high))
        low = g.op("Where", below, g.op("Add", inside, integer(1)), low)
        high = g.op("Where", below, high, middle)
    right = g.op("Min", g.op("Max", low, integer(1)), integer(max(K - 1, 1)))
    left = g.op("Add", g.op("Sub", right, integer(1)), first)
    right = g.op("Add", g.op("Min", right, integer(K - 1)), first)
    a, b = (g.op("Gather", flat_knots, at) for at in (left, right))
    u, v = (g.op("Gather", flat_levels, at) for at in (left, right))
    rises = g.op("Greater", b, a)
    gap = g.op("Where", rises, g.op("Sub", b, a), g.constant(1.0))
    share = g.op("Where", rises, g.op("Div", g.op("Sub", z, a), gap), g.constant(0.0))
    share = g.op("Clip", share, g.constant(0.0), g.constant(1.0))
    return g.op("Add", u, g.op("Mul", share, g.op("Sub", v, u)))


#: How each map of columns is exported; a new kind of map needs a line here.
COLUMN_MAPS: dict[type, Any] = {Bend: _bend, ColumnMap: _mapped}
