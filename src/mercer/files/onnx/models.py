"""Graphs of estimators: from rows in float64, mapped as kernels see them, to outputs, by the class of the estimator."""

from __future__ import annotations

import math
from functools import singledispatch
from math import log, pi
from typing import Any

import numpy as np
import torch
from scipy.linalg import block_diag

from mercer.base.uncertainty import DRAWS, normal_draws
from mercer.codec.registry import name_of, registry
from mercer.data.column_maps import REACH, Bend, ColumnMap
from mercer.empirical.ensemble import EnsembleMember, MemberEnsemble
from mercer.empirical.estimator import EnsembleEstimator
from mercer.empirical.kernel_map import EmpiricalKernelMap
from mercer.files.onnx.graph import Graph
from mercer.files.onnx.kernels import diag, tile
from mercer.files.onnx.outputs import (
    Outputs,
    calibrated_probabilities,
    decode_numbers,
    labels_and_probabilities,
    labels_of_rows,
    most_probable,
    sigmoid_or_softmax,
)
from mercer.forward.estimator import ForwardEstimator
from mercer.forward.expansion import Expansion
from mercer.forward.gradient_metric import GradientMetric
from mercer.forward.nystroem import GreedyNystroem
from mercer.gp.ard import ARDSelector
from mercer.gp.classifier import LEAST_PIVOT, SparseGPClassifier, hermite_rule
from mercer.gp.model import FittedGP
from mercer.gp.regressor import SparseGPRegressor
from mercer.kernels import Kernel
from mercer.mixture.class_experts import ClassTable, LogisticExperts
from mercer.mixture.classifiers import MixtureClassifier
from mercer.mixture.em import FAR
from mercer.mixture.experts import LinearExperts
from mercer.mixture.gates import Gates
from mercer.mixture.regressors import MixtureRegressor
from mercer.parts import require
from mercer.preprocessing.inputs import FARTHEST, InputMap, LabelTargets, PositiveTargets

#: Beyond this, asinh(z) is log 2z to the last digit, and z² may overflow.
LARGE = 1e8


def encode_rows(g: Graph, inputs: InputMap, rows: str, dtype: str) -> str:
    """`InputMap.encode` of rows in float64: kept within what distances in `dtype` can hold."""
    if inputs.limits is not None:
        rows = g.op("Min", g.op("Max", rows, g.constant(inputs.limits[:1])), g.constant(inputs.limits[1:]))
    if isinstance(inputs.columns, Bend):
        rows = _bend(g, inputs.columns, rows, len(inputs.mean))
    elif inputs.columns is not None:
        assert isinstance(inputs.columns, ColumnMap)
        rows = _mapped(g, inputs.columns, rows)
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


def _bend(g: Graph, bend: Bend, rows: str, n_columns: int) -> str:
    """Bend every column and choose the result for those of `bend`: a graph has no assignment to columns."""
    chosen, centre, width = np.zeros(n_columns, dtype=bool), np.zeros(n_columns), np.ones(n_columns)
    where = np.asarray(bend.columns)
    chosen[where], centre[where], width[where] = True, bend.centre, bend.width
    z = g.op("Div", g.affine(rows, shift=-centre), g.constant(width))
    return g.op("Where", g.constant(chosen, bool), asinh(g, z), rows)


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


def model_outputs(g: Graph, model: Any, rows: str) -> Outputs:
    """Add a model to a graph; return its outputs, numbers in the precision of the graph."""
    ours = registry().get(name_of(type(model))) if type(model).__module__.startswith("mercer.") else None
    require(ours is type(model), "model", "an estimator of mercer or a pipeline", type(model).__name__)
    found = add_model(model, g, rows).items()
    return {name: (g.cast(value, g.dtype) if kind == "float" else value, kind) for name, (value, kind) in found}


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
    if isinstance(model.targets_, LabelTargets):
        return labels_of_rows(g, model.targets_, model.calibration_, values)
    if model._is_classifier:
        return labels_and_probabilities(g, model.targets_, model.calibration_, values)
    return {"prediction": (decode_numbers(g, model.targets_, values), "float")}


@add_model.register
def _(model: GreedyNystroem, g: Graph, rows: str) -> Outputs:
    return {"features": (expansion_values(g, model.expansions_, rows, pairwise=model._pairwise), "float")}


@add_model.register
def _(model: EmpiricalKernelMap, g: Graph, rows: str) -> Outputs:
    basis = model.inputs_.encode(torch.as_tensor(model.basis_)).numpy()
    seen = encode_rows(g, model.inputs_, rows, model.dtype_)
    return {"features": (product(g, model.kernel_, seen, basis, model.normalization_, model.dtype_), "float")}


@add_model.register
def _(model: GradientMetric, g: Graph, rows: str) -> Outputs:
    return {"features": (encode_rows(g, model.inputs_, rows, "float64"), "float")}


@add_model.register
def _(model: ARDSelector, g: Graph, rows: str) -> Outputs:
    return {"features": (g.columns(rows, model.get_support(indices=True)), "float")}


@add_model.register(EnsembleEstimator)
def _(model: Any, g: Graph, rows: str) -> Outputs:
    values = ensemble_values(g, model.ensemble_, encode_rows(g, model.inputs_, rows, model.dtype_), model.dtype_)
    if model._is_classifier:
        return labels_and_probabilities(g, model.targets_, model.calibration_, values)
    return {"prediction": (decode_numbers(g, model.targets_, values), "float")}


def ensemble_values(g: Graph, ensemble: MemberEnsemble, rows: str, dtype: str) -> str:
    """`MemberEnsemble.values`: numbers, one score a class, or for two classes their difference."""
    if ensemble.pairs:
        return _by_pairs(g, ensemble, rows, dtype)
    values = _values(g, ensemble.machines[0], rows, dtype)
    if ensemble.n_classes == 0:
        return _mean(g, values, np.asarray(ensemble.machines[0][0].bias).shape[1])
    scores = _break_ties(g, *_votes(g, values, ensemble.n_classes))
    return g.op("MatMul", scores, g.constant([[-1.0], [1.0]])) if ensemble.n_classes == 2 else scores


def _values(g: Graph, members: list[EnsembleMember], rows: str, dtype: str) -> list[str]:
    """The mean of the kernels' functions of each member, n × P, from one product per kernel for all."""
    kernels, P = members[0].kernels, np.asarray(members[0].bias).shape[1]
    basis = np.concatenate([np.asarray(member.basis, dtype=np.float64) for member in members])
    total = g.constant(np.concatenate([np.asarray(member.bias).mean(0) for member in members])[None])
    for l, kernel in enumerate(kernels):
        weights = block_diag(*(np.asarray(member.dual_coef)[l] for member in members)) / len(kernels)
        total = g.op("Add", total, product(g, kernel, rows, basis, weights, dtype))
    return [g.columns(total, np.arange(h * P, (h + 1) * P)) for h in range(len(members))]


def _votes(g: Graph, values: list[str], n_classes: int) -> tuple[str, str]:
    """Votes and mean margins of ensemble members for each class, n × C both."""
    sides = g.constant([[-1.0, 1.0]])
    both = [g.op("MatMul", f, sides) for f in values] if n_classes == 2 else values
    votes = [_winner(g, f, n_classes) for f in both]
    return (votes[0] if len(votes) == 1 else g.op("Sum", *votes)), _mean(g, both, n_classes)


def _winner(g: Graph, scores: str, n_classes: int) -> str:
    """One for the class of the largest score, the first of equals, zero for all others."""
    best = g.op("ArgMax", scores, axis=1, keepdims=1)
    return g.cast(g.op("Equal", best, g.constant(np.arange(n_classes)[None], np.int64)), "float64")


def _mean(g: Graph, values: list[str], width: int) -> str:
    return values[0] if len(values) == 1 else g.scaled(g.op("Sum", *values), 1 / len(values), width)


def _break_ties(g: Graph, votes: str, margins: str) -> str:
    """Votes first, margins where votes tie."""
    size = g.affine(g.op("Abs", margins), 3.0, 3.0)
    return g.op("Add", votes, g.op("Div", margins, size))


def _by_pairs(g: Graph, ensemble: MemberEnsemble, rows: str, dtype: str) -> str:
    """Every pair of classes has one vote; margins decide between equal votes."""
    votes, margins = [], []
    for pair, members in zip(ensemble.pairs, ensemble.machines, strict=True):
        both, margin = _votes(g, _values(g, members, rows, dtype), 2)
        place = g.constant(np.eye(ensemble.n_classes)[list(pair)])
        votes.append(g.op("MatMul", _winner(g, _break_ties(g, both, margin), 2), place))
        margins.append(g.op("MatMul", margin, place))
    return _break_ties(g, g.op("Sum", *votes), g.op("Sum", *margins))


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


# Gaussian processes: means, standard deviations, and probabilities averaged over the posterior


@add_model.register
def _(model: SparseGPRegressor, g: Graph, rows: str) -> Outputs:
    process: FittedGP = model._models[0]
    mean, variance = moments(g, process, encode_rows(g, model.inputs_, rows, model.dtype_), model.dtype_)
    if isinstance(model.targets_, PositiveTargets):
        return _positive(g, model.targets_, mean, variance, process.noise)
    std = g.affine(g.op("Sqrt", g.affine(variance, shift=process.predictive_noise)), model.targets_.scale)
    return {"prediction": (decode_numbers(g, model.targets_, mean), "float"), "std": (std, "float")}


def _positive(g: Graph, targets: PositiveTargets, mean: str, variance: str, noise: float) -> Outputs:
    """The formulas of `LogNormalMean`: E exp(f), and the root of its variance plus φ E exp(p f)."""
    prediction = decode_numbers(g, targets, g.op("Add", mean, g.affine(variance, 0.5)))
    spread = g.affine(g.op("Exp", variance), shift=-1.0)
    function = g.op("Mul", g.op("Mul", prediction, prediction), spread)
    exponent = g.op("Add", g.affine(mean, targets.power), g.affine(variance, 0.5 * targets.power**2))
    around = g.affine(g.op("Exp", exponent), noise * float(np.exp(2 * targets.mean[0])))
    return {"prediction": (prediction, "float"), "std": (g.op("Sqrt", g.op("Add", function, around)), "float")}


@add_model.register
def _(model: SparseGPClassifier, g: Graph, rows: str) -> Outputs:
    seen = encode_rows(g, model.inputs_, rows, model.dtype_)
    if len(model._models) == 1 and len(model.classes_) > 2:
        return _calibrated(g, model, _mean_softmax(g, model._models[0], seen, model.dtype_))
    found = [_mean_logistic(g, *moments(g, process, seen, model.dtype_)) for process in model._models]
    if len(found) == 1:
        p = g.affine(g.op("MatMul", found[0], g.constant([[-1.0, 1.0]])), shift=[1.0, 0.0])
    else:
        every = g.op("Concat", *found, axis=1)
        p = g.op("Div", every, g.total(every, 1))
    return _calibrated(g, model, p)


def _calibrated(g: Graph, model: SparseGPClassifier, p: str) -> Outputs:
    log_p = g.op("Log", g.op("Max", p, g.constant(np.finfo(float).tiny)))
    p = calibrated_probabilities(g, model._calibration, log_p, len(model.classes_))
    return most_probable(g, model.classes_, p)


def moments(g: Graph, model: FittedGP, rows: str, dtype: str) -> tuple[str, str]:
    """Means (n × p) and the variance of the latent function (n × 1), in float64, by the formulas of `Posterior`."""
    K, mean = _latent_means(g, model, rows, dtype)
    variance = _unexplained(g, model, rows, K, dtype)
    if model.posterior.scatter is not None:
        G = g.cast(g.op("MatMul", K, g.constant(np.asarray(model.posterior.scatter)[0], dtype)), "float64")
        variance = g.op("Add", variance, g.total(g.op("Mul", G, G), 1))
    return mean, variance


def _latent_means(g: Graph, model: FittedGP, rows: str, dtype: str) -> tuple[str, str]:
    K = tile(model.kernel, g, rows, np.asarray(model.posterior.basis, dtype=np.float64), dtype)
    return K, g.cast(g.op("MatMul", K, g.constant(model.posterior.weights, dtype)), "float64")


def _unexplained(g: Graph, model: FittedGP, rows: str, K: str, dtype: str) -> str:
    """The variance that inducing inputs leave, n × 1."""
    if model.posterior.explained is None:
        return g.op("Mul", g.cast(g.columns(K, [0]), "float64"), g.constant(0.0))
    G = g.cast(g.op("MatMul", K, g.constant(model.posterior.explained, dtype)), "float64")
    rest = g.op("Sub", g.cast(diag(model.kernel, g, rows, dtype), "float64"), g.total(g.op("Mul", G, G), 1))
    return g.op("Max", rest, g.constant(0.0))


def _covariance(g: Graph, model: FittedGP, rows: str, K: str, dtype: str) -> str:
    """The covariances between the classes of a row, n × c × c."""
    H = np.asarray(model.posterior.scatter)
    c, _, r = H.shape
    G = g.reshaped(g.op("MatMul", K, g.constant(np.concatenate(list(H), 1), dtype)), -1, c, r)
    shared = g.cast(g.op("MatMul", G, g.op("Transpose", G, perm=[0, 2, 1])), "float64")
    diagonal = g.op("Mul", g.reshaped(_unexplained(g, model, rows, K, dtype), -1, 1, 1), g.constant(np.eye(c)[None]))
    return g.op("Add", shared, diagonal)


def _mean_logistic(g: Graph, mean: str, variance: str) -> str:
    """E σ(f), n × 1."""
    nodes, weights = hermite_rule()
    spread = g.op("MatMul", g.op("Sqrt", variance), g.constant(nodes[None]))
    values = g.op("Sigmoid", g.op("Add", mean, spread))
    p = g.op("MatMul", values, g.constant(weights[:, None]))
    return g.op("Clip", p, g.constant(1e-300), g.constant(1.0))


def _mean_softmax(g: Graph, model: FittedGP, rows: str, dtype: str) -> str:
    """E softmax(f), n × c, a draw at a time: all at once would hold hundreds of numbers for each row and class."""
    K, mean = _latent_means(g, model, rows, dtype)
    c = np.asarray(model.posterior.weights).shape[1]
    roots = g.reshaped(_lower_roots(g, _covariance(g, model, rows, K, dtype), c), -1, c)
    draws = g.constant(normal_draws(c)[:, :, None])

    def add_draw(body: Graph, i: str, total: str) -> str:
        spread = body.reshaped(body.op("MatMul", roots, body.op("Gather", draws, i, axis=0)), -1, c)
        return body.op("Add", total, body.op("Softmax", body.op("Add", mean, spread), axis=1))

    nothing = g.op("Mul", mean, g.constant(0.0))
    total = g.steps(DRAWS, nothing, (None, c), "float64", add_draw)
    return g.op("Div", total, g.total(total, 1))


def _lower_roots(g: Graph, cov: str, c: int) -> str:
    """`lower_roots`, a column at a time, n × c × c."""
    rest, columns = cov, []
    for j in range(c):
        at = g.constant([j], np.int64)
        below = g.op("Gather", rest, at, axis=2)
        variance = g.op("Gather", g.op("Gather", cov, at, axis=2), at, axis=1)
        least = g.op("Max", g.affine(variance, LEAST_PIVOT), g.constant(np.finfo(np.float64).tiny))
        pivot = g.op("Sqrt", g.op("Max", g.op("Gather", below, at, axis=1), least))
        kept = g.op("Mul", below, g.constant((np.arange(c) >= j)[None, :, None]))
        columns.append(g.op("Div", kept, pivot))
        square = g.op("MatMul", columns[-1], g.op("Transpose", columns[-1], perm=[0, 2, 1]))
        rest = g.op("Sub", rest, square)
    return g.op("Concat", *columns, axis=2)
