"""Mixtures of local experts as graphs, in float64: gates by whitened rows, experts, and their weighted mean."""

from __future__ import annotations

from math import log, pi
from typing import Any

import numpy as np

from mercer.files.onnx.graph import Graph
from mercer.files.onnx.inputs import encode_rows
from mercer.files.onnx.models import add_model
from mercer.files.onnx.outputs import (
    Outputs,
    calibrated_probabilities,
    decode_numbers,
    most_probable,
    sigmoid_or_softmax,
)
from mercer.mixture.class_experts import ClassTable, LogisticExperts
from mercer.mixture.classifiers import MixtureClassifier
from mercer.mixture.em import FAR
from mercer.mixture.experts import LinearExperts
from mercer.mixture.gates import Gates
from mercer.mixture.regressors import MixtureRegressor


def gates(g: Graph, given: Gates, rows: str) -> str:
    """p(j | x), n × k."""
    weights, means, root, log_det = (
        np.asarray(array) for array in (given.weights, given.means, given.root, given.log_det)
    )
    k, D = means.shape
    with np.errstate(divide="ignore"):
        constant = np.maximum(np.log(weights) - 0.5 * (D * log(2 * pi) + log_det), -1e300)
    if root.ndim == 2:
        apart = g.op("Sub", g.reshaped(rows, -1, 1, D), g.constant(means[None]))
        z = g.op("Mul", apart, g.constant(root[None]))
    else:
        W = root.transpose(1, 0, 2).reshape(D, k * D)  # column j·D + i is that of factor j
        offset = np.einsum("kdi,kd->ki", root, means).reshape(1, k * D)
        z = g.reshaped(g.affine(g.op("MatMul", rows, g.constant(W)), shift=-offset), -1, k, D)
    squares = g.total(g.op("Mul", z, z), 2, keep=False)
    return g.op("Softmax", g.affine(squares, -0.5, constant[None]), axis=1)


def mixed_values(g: Graph, A: str, local: str) -> str:
    """Σ_j p(j | x) m_j(x), n × p, of local values n × k × p."""
    weighted = g.op("Mul", g.op("Unsqueeze", A, g.constant([2], np.int64)), local)
    return g.total(weighted, 1, keep=False)


def linear_forms(g: Graph, rows: str, coef: np.ndarray, intercept: np.ndarray) -> str:
    """coef_j x + intercept_j of every component, n × k × p."""
    k, p, D = coef.shape
    flat = g.op("MatMul", rows, g.constant(coef.reshape(k * p, D).T))
    return g.reshaped(g.affine(flat, shift=intercept.reshape(1, k * p)), -1, k, p)


def _gate_rows(model: Any, g: Graph, rows: str) -> str:
    return g.op("Clip", encode_rows(g, model.inputs_, rows, "float64"), g.constant(-FAR), g.constant(FAR))


@add_model.register
def _(model: MixtureRegressor, g: Graph, rows: str) -> Outputs:
    x, experts = _gate_rows(model, g, rows), model.mixture_.experts
    A = gates(g, model.mixture_.gates, x)
    noise, intercept = np.asarray(experts.noise), np.asarray(experts.intercept)
    if isinstance(experts, LinearExperts):
        local = linear_forms(g, x, np.asarray(experts.coef), intercept)
    else:
        local = g.constant(intercept[None])
    f = mixed_values(g, A, local)
    variance = g.op("MatMul", A, g.constant(noise))
    if model._local_means:
        deviation = g.op("Sub", local, g.op("Unsqueeze", f, g.constant([1], np.int64)))
        variance = g.op("Add", variance, mixed_values(g, A, g.op("Mul", deviation, deviation)))
    std = g.affine(g.op("Sqrt", variance), model.targets_.scale)
    return {"prediction": (decode_numbers(g, model.targets_, f), "float"), "std": (std, "float")}


@add_model.register
def _(model: MixtureClassifier, g: Graph, rows: str) -> Outputs:
    x, experts = _gate_rows(model, g, rows), model.mixture_.experts
    A = gates(g, model.mixture_.gates, x)
    readout = getattr(model, "_readout", None)
    if readout is not None:
        p = sigmoid_or_softmax(g, g.op("MatMul", A, g.constant(readout)), readout.shape[1] == 1)
    elif isinstance(experts, LogisticExperts):
        p = mixed_values(g, A, _logistic(g, x, np.asarray(experts.coef)))
    else:
        assert isinstance(experts, ClassTable)
        p = g.op("MatMul", A, g.constant(experts.table))
    p = g.op("Max", g.op("Div", p, g.total(p, 1)), g.constant(np.finfo(float).tiny))
    return most_probable(
        g, model.classes_, calibrated_probabilities(g, model._calibration, g.op("Log", p), len(model.classes_))
    )


def _logistic(g: Graph, x: str, coef: np.ndarray) -> str:
    """Class probabilities of every component, n × k × C."""
    logits = linear_forms(g, x, coef[:, :, 1:], coef[:, :, 0])
    if coef.shape[1] > 1:
        return g.op("Softmax", logits, axis=2)
    return g.op("Sigmoid", g.op("Mul", logits, g.constant([[[-1.0, 1.0]]])))
