"""What each family is as a graph: a function from rows in float64 to the outputs, by the class of the estimator."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np
from scipy.special import roots_hermitenorm

from mercer.empirical.kernel_map import EmpiricalKernelMap
from mercer.files.onnx.answers import Outputs, decided, most_probable, numbers
from mercer.files.onnx.graph import Graph
from mercer.files.onnx.inputs import encoded
from mercer.files.onnx.kernels import diag, tile
from mercer.forward.estimator import ForwardEstimator
from mercer.forward.expansion import Expansion
from mercer.forward.gradient_metric import GradientMetric
from mercer.forward.nystroem import GreedyNystroem
from mercer.gp.ard import ARDSelector
from mercer.gp.classifier import NODES, SparseGPClassifier
from mercer.gp.model import FittedGP
from mercer.gp.regressor import SparseGPRegressor
from mercer.kernels import Kernel
from mercer.parts import require


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


# Gaussian processes


def moments(g: Graph, model: FittedGP, rows: str, dtype: str) -> tuple[str, str]:
    """Means (n × p) and the variance of the latent function (n × 1) of `Posterior.moments`, in float64."""
    posterior = model.posterior
    K = tile(model.kernel, g, rows, np.asarray(posterior.basis, dtype=np.float64), dtype)
    mean = g.cast(g.op("MatMul", K, g.constant(posterior.weights, dtype)), "float64")
    variance = g.op("Mul", g.columns(mean, [0]), g.constant(0.0))
    if posterior.explained is not None:
        G = g.cast(g.op("MatMul", K, g.constant(posterior.explained, dtype)), "float64")
        rest = g.op("Sub", g.cast(diag(model.kernel, g, rows, dtype), "float64"), g.total(g.op("Mul", G, G), 1))
        variance = g.op("Max", rest, g.constant(0.0))
    if posterior.scatter is not None:
        G = g.cast(g.op("MatMul", K, g.constant(np.asarray(posterior.scatter)[0], dtype)), "float64")
        variance = g.op("Add", variance, g.total(g.op("Mul", G, G), 1))
    return mean, variance


@drawn.register
def _(model: SparseGPRegressor, g: Graph, rows: str) -> Outputs:
    one: FittedGP = model._models[0]
    mean, variance = moments(g, one, encoded(g, model.inputs_, rows, model.dtype_), model.dtype_)
    std = g.affine(g.op("Sqrt", g.affine(variance, shift=one.predictive_noise)), model.targets_.scale)
    return {"prediction": (numbers(g, model.targets_, mean), "float"), "std": (std, "float")}


@drawn.register
def _(model: SparseGPClassifier, g: Graph, rows: str) -> Outputs:
    joint = len(model._models) == 1 and len(model.classes_) > 2
    wanted = "'one_vs_rest' in an ONNX graph, which cannot draw from a joint posterior of several classes"
    require(not joint, "multi_class", wanted, model.multi_class)
    seen = encoded(g, model.inputs_, rows, model.dtype_)
    found = [_mean_logistic(g, *moments(g, one, seen, model.dtype_)) for one in model._models]
    if len(found) == 1:
        p = g.affine(g.op("MatMul", found[0], g.constant([[-1.0, 1.0]])), shift=[1.0, 0.0])
    else:
        every = g.op("Concat", *found, axis=1)
        p = g.op("Div", every, g.total(every, 1))
    return most_probable(g, model.classes_, p)


def _mean_logistic(g: Graph, mean: str, variance: str) -> str:
    """E σ(f) by Gauss–Hermite quadrature, n × 1."""
    nodes, weights = roots_hermitenorm(NODES)
    spread = g.op("MatMul", g.op("Sqrt", variance), g.constant(nodes[None]))
    values = g.op("Sigmoid", g.op("Add", mean, spread))
    p = g.op("MatMul", values, g.constant((weights / weights.sum())[:, None]))
    return g.op("Clip", p, g.constant(1e-300), g.constant(1.0))
