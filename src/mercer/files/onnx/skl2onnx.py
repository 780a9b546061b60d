"""Estimators of mercer as steps of pipelines that skl2onnx converts."""

from __future__ import annotations

from typing import Any

from mercer.codec.registry import registry
from mercer.files.onnx.graph import OPSET, Graph
from mercer.files.onnx.models import model_outputs
from mercer.files.onnx.tables import hold_constants
from mercer.parts import require

#: Options that skl2onnx passes for a classifier.
OPTIONS = {"zipmap": [True, False, "columns"], "nocl": [True, False], "output_class_labels": [False, True]}


def register() -> None:
    """Teach skl2onnx every estimator of mercer, so that pipelines with them convert."""
    from skl2onnx import update_registered_converter

    for name, cls in registry().items():
        if hasattr(cls, "fit"):
            options = OPTIONS if hasattr(cls, "predict_proba") else None
            alias = f"Mercer{name.replace('.', '').title()}"
            update_registered_converter(cls, alias, _shapes, _convert, options=options)


def _dtype(operator: Any) -> str:
    from skl2onnx.common.data_types import DoubleTensorType

    return "float64" if isinstance(operator.inputs[0].type, DoubleTensorType) else "float32"


def _shapes(operator: Any) -> None:
    """Labels and probabilities of a classifier, else one matrix."""
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, Int64TensorType, StringTensorType

    numbers = DoubleTensorType if _dtype(operator) == "float64" else FloatTensorType
    model = operator.raw_operator
    if hasattr(model, "classes_"):
        text = model.classes_.dtype.kind in "OUS"
        one = model.classes_.ndim == 1
        operator.outputs[0].type = (StringTensorType if text else Int64TensorType)([None] if one else [None, None])
        operator.outputs[1].type = numbers([None, len(model.classes_)])
    else:
        operator.outputs[0].type = numbers([None, None])


def _convert(scope: Any, operator: Any, container: Any) -> None:
    """Our own graph among the others: its names begin with one of the scope, its loops come along as they are."""
    from onnx import helper

    single = len(operator.inputs) == 1
    require(single, "a step of mercer", "given one matrix of numbers", f"{len(operator.inputs)} inputs")
    g = Graph(_dtype(operator), f"{scope.get_unique_operator_name('mercer')}_")
    rows = hold_constants(g, operator.raw_operator, g.cast(operator.inputs[0].onnx_name, "float64"))
    found = model_outputs(g, operator.raw_operator, rows)
    for output, (value, _) in zip(operator.outputs, found.values(), strict=False):  # no standard deviations there
        g.nodes.append(helper.make_node("Identity", [value], [output.onnx_name], name=g.fresh("out")))
    container.nodes.extend(g.nodes)
    container.initializers.extend(g.constants)
    container.node_domain_version_pair_sets.add(("", OPSET))
