"""Ensembles on empirical kernels as graphs: the members' values, and their votes for classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import block_diag

from mercer.empirical.ensemble import EnsembleMember, MemberEnsemble
from mercer.empirical.estimator import EnsembleEstimator
from mercer.files.onnx.graph import Graph
from mercer.files.onnx.inputs import encode_rows
from mercer.files.onnx.models import add_model, product
from mercer.files.onnx.outputs import Outputs, decode_numbers, labels_and_probabilities


@add_model.register(EnsembleEstimator)
def _(model: Any, g: Graph, rows: str) -> Outputs:
    values = ensemble_values(g, model.ensemble_, encode_rows(g, model.inputs_, rows, model.dtype_), model.dtype_)
    if model._classes:
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
