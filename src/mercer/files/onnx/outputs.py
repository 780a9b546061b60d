"""Outputs of a graph: numbers in the targets' units, classes, probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

from mercer.base.calibration import MARGIN, FloorAndPower, LabelLinks, Shrunk, Temperature
from mercer.base.probability_calibration import PowerAndBias
from mercer.files.onnx.graph import Graph
from mercer.preprocessing.inputs import ClassTargets, LabelTargets, PositiveTargets, RealTargets

#: The outputs of a graph by their names, each with its type ("float", "int64" or "string").
Outputs = dict[str, tuple[str, str]]


def decode_numbers(g: Graph, targets: RealTargets, values: str) -> str:
    """`RealTargets.decode`; n × p also of one output, as converters of other libraries have it."""
    decoded = g.affine(g.scaled(values, targets.scale, len(targets.mean)), shift=targets.mean)
    return g.op("Exp", decoded) if isinstance(targets, PositiveTargets) else decoded


def labels_and_probabilities(g: Graph, targets: ClassTargets, calibration: Any, values: str) -> Outputs:
    """Labels and probabilities from the values of a model of class codes."""
    decisions = g.affine(values, shift=np.asarray(targets.offset, dtype=np.float64))
    two = len(targets.classes) == 2
    if two:
        index = g.cast(g.op("Greater", decisions, g.constant(0.0)), "int64")
        index = g.op("Squeeze", index, g.constant([1], np.int64))
    else:
        index = g.op("ArgMax", decisions, axis=1, keepdims=0)
    p = calibrated_probabilities(g, calibration, decisions, 1 if two else len(targets.classes))
    return {**labels(g, targets.classes, index), "probabilities": (p, "float")}


def labels_of_rows(g: Graph, targets: LabelTargets, calibration: LabelLinks, values: str) -> Outputs:
    """Presence of each label and its probability, n × L each, from the values of a model of label codes."""
    decisions = decode_numbers(g, targets, values)
    present = g.cast(g.op("Greater", decisions, g.constant(0.0)), "int64")
    both = [calibrated_probabilities(g, link, g.columns(decisions, [k]), 1) for k, link in enumerate(calibration.links)]
    p = g.op("Concat", *(g.columns(pair, [1]) for pair in both), axis=1)
    return {"label": (present, "int64"), "probabilities": (p, "float")}


def calibrated_probabilities(g: Graph, calibration: Any, decisions: str, width: int) -> str:
    """Probabilities of all classes, n × C, from decision values of `width` columns."""
    if isinstance(calibration, Temperature):
        return sigmoid_or_softmax(g, g.scaled(decisions, 1 / calibration.temperature, width), width == 1)
    if isinstance(calibration, FloorAndPower):
        p = g.affine(g.affine(decisions, shift=1.0), 0.5)
        if width == 1:
            p = g.affine(g.op("MatMul", p, g.constant([[-1.0, 1.0]])), shift=[1.0, 0.0])  # [1 − p, p]
        p = g.op("Max", p, g.constant(calibration.floor))
        return g.op("Softmax", g.affine(g.op("Log", p), calibration.exponent), axis=1)
    if isinstance(calibration, Shrunk):
        return _shrunk(g, calibration, calibrated_probabilities(g, calibration.link, decisions, width))
    if isinstance(calibration, PowerAndBias):
        raised = g.op("Log", g.affine(g.op("Exp", decisions), shift=np.exp(calibration.log_floor)))
        return g.op(
            "Softmax", g.affine(g.scaled(raised, calibration.exponent, width), shift=calibration.bias[None]), axis=1
        )
    raise ValueError(f"an ONNX graph can hold a calibration of mercer.base, got {type(calibration).__name__}")


def _shrunk(g: Graph, calibration: Shrunk, p: str) -> str:
    """`Shrunk.probabilities`: the class of largest `p` stays the most probable one."""
    n_classes = len(calibration.rates)
    mixed = g.affine(g.scaled(p, 1 - calibration.share, n_classes), shift=calibration.share * calibration.rates[None])
    before, now = (g.op("ArgMax", values, axis=1, keepdims=1) for values in (p, mixed))
    places = g.constant(np.arange(n_classes)[None], np.int64)
    chosen, kept = g.op("Equal", before, places), g.op("Equal", before, now)
    raised = g.affine(g.op("ReduceMax", mixed, g.constant([1], np.int64), keepdims=1), 1 + MARGIN)
    changes = g.op("And", chosen, g.op("Not", kept))
    mixed = g.op("Where", changes, raised, mixed)
    return g.op("Div", mixed, g.op("ReduceSum", mixed, g.constant([1], np.int64), keepdims=1))


def sigmoid_or_softmax(g: Graph, logits: str, two: bool) -> str:
    """A sigmoid of one column for two classes, softmax of more."""
    if not two:
        return g.op("Softmax", logits, axis=1)
    return g.op("Sigmoid", g.op("MatMul", logits, g.constant([[-1.0, 1.0]])))


def most_probable(g: Graph, classes: np.ndarray, p: str) -> Outputs:
    """The class of largest probability, and all of them."""
    index = g.op("ArgMax", p, axis=1, keepdims=0)
    return {**labels(g, classes, index), "probabilities": (p, "float")}


def labels(g: Graph, classes: np.ndarray, index: str) -> Outputs:
    """Labels by their index: integers stay integers, all others are text or numbers."""
    kind = classes.dtype.kind
    if kind in "OUS":
        return {"label": (g.op("Gather", g.text(classes), index, axis=0), "string")}
    integer = kind in "iub"
    known = g.constant(classes, np.int64 if integer else np.float64)
    return {"label": (g.op("Gather", known, index, axis=0), "int64" if integer else "float")}
