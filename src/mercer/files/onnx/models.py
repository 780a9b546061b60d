"""What each family is as a graph: a function from rows in float64 to the outputs, by the class of the estimator."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np

from mercer.empirical.kernel_map import EmpiricalKernelMap
from mercer.files.onnx.answers import Outputs, decided, numbers
from mercer.files.onnx.graph import Graph
from mercer.files.onnx.inputs import encoded
from mercer.files.onnx.kernels import tile
from mercer.forward.estimator import ForwardEstimator
from mercer.forward.expansion import Expansion
from mercer.forward.gradient_metric import GradientMetric
from mercer.forward.nystroem import GreedyNystroem
from mercer.gp.ard import ARDSelector
from mercer.kernels import Kernel


@singledispatch
def drawn(model: Any, g: Graph, rows: str) -> Outputs:
    """The outputs of a model of rows in float64, added to a graph."""
    raise ValueError(f"model must be a fitted estimator of mercer, got {type(model).__name__}")


# Kernel expansions


def product(g: Graph, kernel: Kernel, rows: str, basis: np.ndarray, weights: np.ndarray, dtype: str) -> str:
    """K(rows, basis) · weights in float64, kernel values in `dtype`; of no basis vectors, zeros."""
    if len(basis) == 0:
        return g.op("MatMul", g.columns(rows, [0]), g.constant(np.zeros((1, weights.shape[1]))))
    return g.cast(g.op("MatMul", tile(kernel, g, rows, basis, dtype), g.constant(weights, dtype)), "float64")


def expanded(g: Graph, expansions: tuple[Expansion, ...], rows: str, *, pairwise: bool) -> str:
    """The sum of some expansions, n × p."""
    total = ""
    for one in expansions:
        seen = rows if pairwise else encoded(g, one.inputs, rows, one.dtype)
        f = product(g, one.kernel, seen, one.basis, one.weights, one.dtype)
        total = g.op("Add", total, f) if total else f
    return total


@drawn.register(ForwardEstimator)
def _(model: Any, g: Graph, rows: str) -> Outputs:
    values = expanded(g, model.expansions_, rows, pairwise=model._pairwise)
    if model._classes:
        return decided(g, model.targets_, model.calibration_, values)
    return {"prediction": (numbers(g, model.targets_, values), "float")}


@drawn.register
def _(model: GreedyNystroem, g: Graph, rows: str) -> Outputs:
    return {"features": (expanded(g, model.expansions_, rows, pairwise=model._pairwise), "float")}


@drawn.register
def _(model: EmpiricalKernelMap, g: Graph, rows: str) -> Outputs:
    import torch

    basis = model.inputs_.encode(torch.as_tensor(model.basis_)).numpy()
    seen = encoded(g, model.inputs_, rows, model.dtype_)
    return {"features": (product(g, model.kernel_, seen, basis, model.normalization_, model.dtype_), "float")}


@drawn.register
def _(model: GradientMetric, g: Graph, rows: str) -> Outputs:
    return {"features": (encoded(g, model.inputs_, rows, "float64"), "float")}


@drawn.register
def _(model: ARDSelector, g: Graph, rows: str) -> Outputs:
    return {"features": (g.columns(rows, model.get_support(indices=True)), "float")}
