"""Graphs of estimators: from rows in float64 to outputs, by the class of the estimator."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np

from mercer.empirical.kernel_map import EmpiricalKernelMap
from mercer.files.onnx.graph import Graph
from mercer.files.onnx.inputs import encode_rows
from mercer.files.onnx.kernels import tile
from mercer.files.onnx.outputs import Outputs, decode_numbers, labels_and_probabilities
from mercer.forward.estimator import ForwardEstimator
from mercer.forward.expansion import Expansion
from mercer.forward.gradient_metric import GradientMetric
from mercer.forward.nystroem import GreedyNystroem
from mercer.gp.ard import ARDSelector
from mercer.kernels import Kernel


@singledispatch
def add_model(model: Any, g: Graph, rows: str) -> Outputs:
    """Add a model of rows in float64 to a graph; return its outputs."""
    raise ValueError(f"model must be a fitted estimator of mercer, got {type(model).__name__}")


# Kernel expansions


def product(g: Graph, kernel: Kernel, rows: str, basis: np.ndarray, weights: np.ndarray, dtype: str) -> str:
    """K(rows, basis) · weights in float64, kernel values in `dtype`; of no basis vectors, zeros."""
    if len(basis) == 0:
        return g.op("MatMul", g.columns(rows, [0]), g.constant(np.zeros((1, weights.shape[1]))))
    return g.cast(g.op("MatMul", tile(kernel, g, rows, basis, dtype), g.constant(weights, dtype)), "float64")


def expansion_values(g: Graph, expansions: tuple[Expansion, ...], rows: str, *, pairwise: bool) -> str:
    """The sum of expansions, n × p."""
    total = ""
    for part in expansions:
        seen = rows if pairwise else encode_rows(g, part.inputs, rows, part.dtype)
        f = product(g, part.kernel, seen, part.basis, part.weights, part.dtype)
        total = g.op("Add", total, f) if total else f
    return total


@add_model.register(ForwardEstimator)
def _(model: Any, g: Graph, rows: str) -> Outputs:
    values = expansion_values(g, model.expansions_, rows, pairwise=model._pairwise)
    if model._classes:
        return labels_and_probabilities(g, model.targets_, model.calibration_, values)
    return {"prediction": (decode_numbers(g, model.targets_, values), "float")}


@add_model.register
def _(model: GreedyNystroem, g: Graph, rows: str) -> Outputs:
    return {"features": (expansion_values(g, model.expansions_, rows, pairwise=model._pairwise), "float")}


@add_model.register
def _(model: EmpiricalKernelMap, g: Graph, rows: str) -> Outputs:
    import torch

    basis = model.inputs_.encode(torch.as_tensor(model.basis_)).numpy()
    seen = encode_rows(g, model.inputs_, rows, model.dtype_)
    return {"features": (product(g, model.kernel_, seen, basis, model.normalization_, model.dtype_), "float")}


@add_model.register
def _(model: GradientMetric, g: Graph, rows: str) -> Outputs:
    return {"features": (encode_rows(g, model.inputs_, rows, "float64"), "float")}


@add_model.register
def _(model: ARDSelector, g: Graph, rows: str) -> Outputs:
    return {"features": (g.columns(rows, model.get_support(indices=True)), "float")}
