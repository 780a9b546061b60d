"""Every estimator of ours as a graph: the families draw themselves once their modules are imported here."""

from __future__ import annotations

from typing import Any

from mercer.codec.registry import name_of, registry
from mercer.files.onnx import ensembles, mixtures, processes  # noqa: F401
from mercer.files.onnx.answers import Outputs
from mercer.files.onnx.graph import Graph
from mercer.files.onnx.models import drawn
from mercer.parts import require


def finished(g: Graph, model: Any, rows: str) -> Outputs:
    """The outputs of a model of ours, numbers in the precision of the graph."""
    ours = registry().get(name_of(type(model))) if type(model).__module__.startswith("mercer.") else None
    require(ours is type(model), "model", "an estimator of mercer or a pipeline", type(model).__name__)
    found = drawn(model, g, rows).items()
    return {name: (g.cast(value, g.dtype) if kind == "float" else value, kind) for name, (value, kind) in found}
