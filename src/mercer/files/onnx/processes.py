"""Sparse Gaussian processes as graphs: means, standard deviations, and probabilities averaged over the posterior."""

from __future__ import annotations

import numpy as np

from mercer.base.uncertainty import DRAWS, normal_draws
from mercer.files.onnx.graph import Graph
from mercer.files.onnx.kernels import diag, tile
from mercer.files.onnx.models import add_model, encode_rows
from mercer.files.onnx.outputs import Outputs, calibrated_probabilities, decode_numbers, most_probable
from mercer.gp.classifier import LEAST_PIVOT, SparseGPClassifier, hermite_rule
from mercer.gp.model import FittedGP
from mercer.gp.regressor import SparseGPRegressor
from mercer.preprocessing.inputs import PositiveTargets


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


# Moments of latent functions, by the formulas of `Posterior`


def moments(g: Graph, model: FittedGP, rows: str, dtype: str) -> tuple[str, str]:
    """Means (n × p) and the variance of the latent function (n × 1), in float64."""
    K, mean = _mean(g, model, rows, dtype)
    variance = _unexplained(g, model, rows, K, dtype)
    if model.posterior.scatter is not None:
        G = g.cast(g.op("MatMul", K, g.constant(np.asarray(model.posterior.scatter)[0], dtype)), "float64")
        variance = g.op("Add", variance, g.total(g.op("Mul", G, G), 1))
    return mean, variance


def _mean(g: Graph, model: FittedGP, rows: str, dtype: str) -> tuple[str, str]:
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


# Averages over the posterior, those of `mercer.gp.classifier`


def _mean_logistic(g: Graph, mean: str, variance: str) -> str:
    """E σ(f), n × 1."""
    nodes, weights = hermite_rule()
    spread = g.op("MatMul", g.op("Sqrt", variance), g.constant(nodes[None]))
    values = g.op("Sigmoid", g.op("Add", mean, spread))
    p = g.op("MatMul", values, g.constant(weights[:, None]))
    return g.op("Clip", p, g.constant(1e-300), g.constant(1.0))


def _mean_softmax(g: Graph, model: FittedGP, rows: str, dtype: str) -> str:
    """E softmax(f), n × c, a draw at a time: all at once would hold hundreds of numbers for each row and class."""
    K, mean = _mean(g, model, rows, dtype)
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
