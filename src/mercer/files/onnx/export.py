"""`to_onnx`: a fitted model as an ONNX graph, by `onnx.helper` alone; pipelines through skl2onnx where it is there."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from mercer.files.onnx import ensembles, mixtures  # noqa: F401  (families draw themselves once they are imported)
from mercer.files.onnx.graph import OPSET, Graph, onnx_type
from mercer.files.onnx.models import drawn
from mercer.files.onnx.tables import given_rows
from mercer.files.registry import name_of, registry
from mercer.parts import require


def to_onnx(model: Any, path: str | os.PathLike[str] | None = None, *, dtype: str = "float32") -> Any:
    """A fitted model as an ONNX graph, for onnxruntime and whatever else reads such graphs; needs ``mercer[onnx]``.

    The graph takes any number of rows as one matrix ``X`` and codes them itself. Regressors answer ``prediction``
    (n × outputs), Gaussian processes and mixtures of numbers also ``std``, classifiers ``label`` and ``probabilities``,
    transformers ``features``. Kernel values are as precise as those that the model was fitted with, whatever `dtype`.

    Parameters
    ----------
    model : estimator or Pipeline
        A fitted estimator or transformer of mercer, or a scikit-learn pipeline with some of them (needs skl2onnx).
    path : str, path or None, default None
        Where to write the graph as well.
    dtype : "float32" or "float64", default "float32"
        Of inputs and outputs.

    Returns
    -------
    onnx.ModelProto

    Examples
    --------
    >>> import mercer
    >>> from mercer.datasets import make_sinc
    >>> X, y = make_sinc(random_state=0)
    >>> graph = mercer.to_onnx(mercer.NRBFRegressor(random_state=0).fit(X, y))
    >>> [one.name for one in graph.graph.output]
    ['prediction', 'std']
    """
    require(dtype in ("float32", "float64"), "dtype", "'float32' or 'float64'", dtype)
    _require_onnx()
    check_is_fitted(model)
    made = _pipeline(model, dtype) if isinstance(model, Pipeline) else _model(model, dtype)
    if path is not None:
        with open(path, "wb") as file:
            file.write(made.SerializeToString())
    return made


def _model(model: Any, dtype: str) -> Any:
    from onnx import TensorProto, checker, helper

    ours = registry().get(name_of(type(model))) if type(model).__module__.startswith("mercer.") else None
    require(ours is type(model), "model", "an estimator of mercer or a pipeline", type(model).__name__)
    g = Graph(dtype)
    entries, rows = given_rows(g, model)
    outputs = drawn(model, g, rows)
    infos = []
    for name, (value, kind) in outputs.items():
        value = g.cast(value, dtype) if kind == "float" else value
        g.nodes.append(helper.make_node("Identity", [value], [name]))
        types = {"int64": TensorProto.INT64, "string": TensorProto.STRING, "float": onnx_type(dtype)}
        shape = ("rows",) if name == "label" else ("rows", None)
        infos.append(helper.make_tensor_value_info(name, types[kind], shape))
    graph = helper.make_graph(g.nodes, type(model).__name__, entries, infos, g.constants)
    opset = helper.make_opsetid("", OPSET)
    made = helper.make_model(graph, opset_imports=[opset], producer_name="mercer", ir_version=8)
    checker.check_model(made)
    return made


def _pipeline(model: Pipeline, dtype: str) -> Any:
    register()
    try:
        import skl2onnx
    except ImportError:
        raise ImportError("pipelines become graphs by skl2onnx, which is not installed: pip install skl2onnx") from None
    row = np.zeros((1, model.n_features_in_), dtype=dtype)
    return skl2onnx.to_onnx(model, row, target_opset=OPSET, options={"zipmap": False} if _classifies(model) else None)


def _classifies(model: Any) -> bool:
    return hasattr(model, "classes_")


def register() -> None:
    """Teach skl2onnx, where it is installed, every estimator of mercer, so that pipelines with them convert."""
    try:
        import skl2onnx
        from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, Int64TensorType, StringTensorType
        from skl2onnx.helpers import add_onnx_graph
    except ImportError:
        return

    def kind(operator: Any) -> str:
        return "float64" if isinstance(operator.inputs[0].type, DoubleTensorType) else "float32"

    def shapes(operator: Any) -> None:
        numbers = DoubleTensorType if kind(operator) == "float64" else FloatTensorType
        if hasattr(operator.raw_operator, "classes_"):
            text = operator.raw_operator.classes_.dtype.kind in "OUS"
            operator.outputs[0].type = (StringTensorType if text else Int64TensorType)([None])
            operator.outputs[1].type = numbers([None, len(operator.raw_operator.classes_)])
        else:
            operator.outputs[0].type = numbers([None, None])

    def convert(scope: Any, operator: Any, container: Any) -> None:
        made = _model(operator.raw_operator, kind(operator))
        del made.graph.output[len(operator.outputs) :]  # skl2onnx knows of no standard deviations
        add_onnx_graph(scope, operator, container, made)

    for name, cls in registry().items():
        if hasattr(cls, "fit"):
            skl2onnx.update_registered_converter(cls, f"Mercer{name.replace('.', '')}", shapes, convert, options=None)


def _require_onnx() -> None:
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise ImportError("graphs are made by onnx, which is not installed: pip install 'mercer[onnx]'") from None
