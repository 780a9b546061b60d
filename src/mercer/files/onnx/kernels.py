"""Tiles of kernels inside a graph: K(rows, Z) as n × m values in one precision.

Radial kernels are one matrix product of centred rows and a profile; kernels of absolute differences add up one input
after the other in a `Loop`, so that nothing of size n × m × D exists.
"""

from __future__ import annotations

import math
from functools import singledispatch
from typing import Any

import numpy as np
import torch

from mercer.files.onnx.graph import Graph
from mercer.kernels import (
    Bias,
    Kernel,
    Laplacian,
    Linear,
    Normalized,
    Polynomial,
    Precomputed,
    Product,
    Radial,
    RationalQuadratic,
    Scaled,
    Separable,
    Stationary,
    Sum,
)
from mercer.kernels.partitioned import Partitioned


@singledispatch
def tile(kernel: Kernel, g: Graph, rows: str, Z: np.ndarray, dtype: str) -> str:
    """K(rows, Z) in `dtype`, of rows in float64 as the kernel sees them."""
    if isinstance(kernel, Partitioned):
        raise ValueError("local_stage must be False for a model in an ONNX graph, got a model with a local stage")
    raise ValueError(f"an ONNX graph can hold mercer's own kernels alone, got {type(kernel).__name__}")


@tile.register
def _(kernel: Sum, g: Graph, rows: str, Z: np.ndarray, dtype: str) -> str:
    return g.op("Add", tile(kernel.left, g, rows, Z, dtype), tile(kernel.right, g, rows, Z, dtype))


@tile.register
def _(kernel: Product, g: Graph, rows: str, Z: np.ndarray, dtype: str) -> str:
    return g.op("Mul", tile(kernel.left, g, rows, Z, dtype), tile(kernel.right, g, rows, Z, dtype))


@tile.register
def _(kernel: Scaled, g: Graph, rows: str, Z: np.ndarray, dtype: str) -> str:
    return g.scaled(tile(kernel.kernel, g, rows, Z, dtype), float(kernel.variance), len(Z), dtype)


@tile.register
def _(kernel: Bias, g: Graph, rows: str, Z: np.ndarray, dtype: str) -> str:
    zeros = g.op("Mul", g.cast(g.columns(rows, [0]), dtype), g.constant(0.0, dtype))
    return g.op("Add", zeros, g.constant(np.full((1, len(Z)), float(kernel.variance)), dtype))


@tile.register
def _(kernel: Linear, g: Graph, rows: str, Z: np.ndarray, dtype: str) -> str:
    return g.op("MatMul", g.cast(rows, dtype), g.constant(Z.T, dtype))


@tile.register
def _(kernel: Polynomial, g: Graph, rows: str, Z: np.ndarray, dtype: str) -> str:
    inner = g.op("MatMul", g.cast(rows, dtype), g.constant(float(kernel.gamma) * Z.T, dtype))
    inner = g.affine(inner, shift=float(kernel.offset), dtype=dtype)
    return g.op("Pow", inner, g.constant(float(kernel.degree), dtype))


@tile.register
def _(kernel: Precomputed, g: Graph, rows: str, Z: np.ndarray, dtype: str) -> str:
    return g.cast(g.columns(rows, Z[:, -1].round().astype(np.int64)), dtype)


@tile.register
def _(kernel: Normalized, g: Graph, rows: str, Z: np.ndarray, dtype: str) -> str:
    basis = torch.as_tensor(Z).to(getattr(torch, dtype))
    norms = kernel._inverse_norm(basis).numpy()
    square = diag(kernel.kernel, g, rows, dtype)
    tiny = float(np.finfo(dtype).tiny)
    safe = g.op("Div", g.constant(1.0, dtype), g.op("Sqrt", g.op("Max", square, g.constant(tiny, dtype))))
    inverse = g.op("Where", g.op("Greater", square, g.constant(0.0, dtype)), safe, g.constant(0.0, dtype))
    values = g.op("Mul", tile(kernel.kernel, g, rows, Z, dtype), g.constant(norms[None], dtype))
    return g.op("Mul", values, inverse)


@tile.register
def _(kernel: Radial, g: Graph, rows: str, Z: np.ndarray, dtype: str) -> str:
    x, z = _scaled(kernel, g, rows, Z, math.sqrt(float(kernel.coefficient)), dtype)
    norms = g.total(g.op("Mul", x, x), 1)
    t = g.op("MatMul", x, g.constant(2 * z.T, dtype))
    t = g.op("Sub", g.op("Sub", t, norms), g.constant((z**2).sum(1)[None], dtype))
    t = g.op("Min", t, g.constant(0.0, dtype))
    return _profile(kernel, g, t, dtype)


def _profile(kernel: Radial, g: Graph, t: str, dtype: str) -> str:
    """The kernel's value at t = −c‖(x − z)/ℓ‖²."""
    if isinstance(kernel, RationalQuadratic):
        return g.op("Pow", g.affine(g.op("Neg", t), shift=1.0, dtype=dtype), g.constant(-float(kernel.alpha), dtype))
    form = kernel.closed_form()
    if form is None:
        raise ValueError(f"an ONNX graph can hold mercer's own kernels alone, got {type(kernel).__name__}")
    if not form.root:
        return g.op("Exp", t)
    a = g.op("Sqrt", g.op("Neg", t))
    e = g.op("Exp", g.op("Neg", a))
    constant, linear, quadratic = (*form.polynomial, 0, 0)[:3]
    if not linear:
        return e
    factor = g.affine(a, linear / constant, shift=1.0, dtype=dtype)
    if quadratic:
        factor = g.op("Add", factor, g.affine(g.op("Mul", a, a), quadratic / constant, dtype=dtype))
    return g.op("Mul", factor, e)


@tile.register(Laplacian)
@tile.register(Separable)
def _(kernel: Any, g: Graph, rows: str, Z: np.ndarray, dtype: str) -> str:
    p, q = (1.0, 1.0) if isinstance(kernel, Laplacian) else (float(kernel.p), float(kernel.q))
    x, z = _scaled(kernel, g, rows, Z, 1.0, dtype)
    start = g.op("MatMul", g.op("Mul", x, g.constant(0.0, dtype)), g.constant(np.zeros_like(z.T), dtype))
    left, right = g.op("Transpose", x, perm=[1, 0]), g.constant(z.T, dtype)

    def add(body: Graph, i: str, total: str) -> str:
        column = body.op("Unsqueeze", body.op("Gather", left, i, axis=0), body.constant([1], np.int64))
        apart = body.op("Abs", body.op("Sub", column, body.op("Gather", right, i, axis=0)))
        return body.op("Add", total, apart if p == 1 else body.op("Pow", apart, body.constant(p, dtype)))

    d = g.steps(Z.shape[1], start, (None, len(Z)), dtype, add)
    return g.op("Exp", g.op("Neg", d if q == p else g.op("Pow", d, g.constant(q / p, dtype))))


def _scaled(
    kernel: Stationary, g: Graph, rows: str, Z: np.ndarray, factor: float, dtype: str
) -> tuple[str, np.ndarray]:
    """Rows and basis vectors around the basis vectors' mean, in units of the length-scales."""
    scale = factor * kernel.inverse_lengths(torch.as_tensor(Z, dtype=torch.float64)).numpy()
    shift = Z.mean(0)
    return g.cast(g.scaled(g.affine(rows, shift=-shift), scale, Z.shape[1]), dtype), (Z - shift) * scale


def diag(kernel: Kernel, g: Graph, rows: str, dtype: str) -> str:
    """k(x, x) of every row, n × 1."""
    if isinstance(kernel, Sum | Product):
        both = diag(kernel.left, g, rows, dtype), diag(kernel.right, g, rows, dtype)
        return g.op("Add" if isinstance(kernel, Sum) else "Mul", *both)
    if isinstance(kernel, Scaled):
        return g.affine(diag(kernel.kernel, g, rows, dtype), float(kernel.variance), dtype=dtype)
    x = g.cast(rows, dtype)
    if isinstance(kernel, Linear | Polynomial):
        square = g.total(g.op("Mul", x, x), 1)
        if isinstance(kernel, Linear):
            return square
        inner = g.affine(square, float(kernel.gamma), float(kernel.offset), dtype)
        return g.op("Pow", inner, g.constant(float(kernel.degree), dtype))
    if isinstance(kernel, Normalized):
        inside = g.op("Greater", diag(kernel.kernel, g, rows, dtype), g.constant(0.0, dtype))
        return g.cast(inside, dtype)
    value = float(kernel.variance) if isinstance(kernel, Bias) else 1.0
    stationary = isinstance(kernel, Stationary | Bias)
    if not stationary:
        raise ValueError(f"an ONNX graph can hold mercer's own kernels alone, got {type(kernel).__name__}")
    return g.op("Add", g.op("Mul", g.columns(x, [0]), g.constant(0.0, dtype)), g.constant([[value]], dtype))
