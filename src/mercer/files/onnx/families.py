"""Every estimator as a graph: importing `processes` registers Gaussian processes."""

from __future__ import annotations

from typing import Any

from mercer.codec.registry import name_of, registry
from mercer.files.onnx import processes  # noqa: F401
from mercer.files.onnx.graph import Graph
from mercer.files.onnx.models import add_model
from mercer.files.onnx.outputs import Outputs
from mercer.parts import require


def model_outputs(g: Graph, model: Any, rows: str) -> Outputs:
    """Add a model to a graph; return its outputs, numbers in the precision of the graph."""
    ours = registry().get(name_of(type(model))) if type(model).__module__.startswith("mercer.") else None
    require(ours is type(model), "model", "an estimator of mercer or a pipeline", type(model).__name__)
    found = add_model(model, g, rows).items()
    return {name: (g.cast(value, g.dtype) if kind == "float" else value, kind) for name, (value, kind) in found}
