"""`to_onnx`: a fitted model as an ONNX graph, by `onnx.helper` alone; pipelines through skl2onnx where it is there."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from mercer.atomic_write import write_atomically
from mercer.data.frames import is_frame, raw_columns
from mercer.data.raw import CATEGORICAL
from mercer.files.onnx.graph import OPSET, Graph, onnx_type
from mercer.files.onnx.models import model_outputs
from mercer.files.onnx.tables import graph_inputs
from mercer.parts import require
from mercer.preprocessing.columns import column_table
from mercer.version import __version__

#: What the outputs of a graph are.
OUTPUTS = {
    "prediction": "Predicted targets, a column for each output",
    "std": "Standard deviations of new targets, a column for each output",
    "label": "The predicted class of each row",
    "probabilities": "Probabilities, a column for each class in the order of the property 'classes'",
    "features": "Coordinates of each row",
}


def to_onnx(model: Any, path: str | os.PathLike[str] | None = None, *, dtype: str = "float32", X: Any = None) -> Any:
    """Convert a fitted model to an ONNX graph, for onnxruntime and other readers; needs ``mercer[onnx]``.

    The graph takes any number of rows as one matrix ``X`` and codes them itself. Regressors answer ``prediction``
    (n × outputs), Gaussian processes and mixtures of numbers also ``std``, classifiers ``label`` and ``probabilities``,
    transformers ``features``. Inputs and outputs have documentation strings; metadata has ``columns`` and ``classes``
    as JSON. Kernel values are as precise as those that the model was fitted with, whatever `dtype`.

    Parameters
    ----------
    model : estimator or Pipeline
        A fitted estimator or transformer of mercer, or a scikit-learn pipeline that contains them (needs skl2onnx).
    path : str, path or None, default None
        Where to write the graph as well.
    dtype : "float32" or "float64", default "float32"
        Of inputs and outputs.
    X : frame or None, default None
        For a pipeline whose first step takes columns by name: some rows, which tell the names and what is text. The
        graph then has one input for each column. Estimators of mercer know their columns.

    Returns
    -------
    onnx.ModelProto

    Examples
    --------
    >>> import mercer
    >>> from mercer.datasets import make_sinc
    >>> X, y = make_sinc(random_state=0)
    >>> graph = mercer.to_onnx(mercer.NRBFRegressor(random_state=0).fit(X, y))
    >>> [output.name for output in graph.graph.output]
    ['prediction', 'std']
    """
    require(dtype in ("float32", "float64"), "dtype", "'float32' or 'float64'", dtype)
    _require_onnx()
    check_is_fitted(model)
    made = _pipeline(model, dtype, X) if isinstance(model, Pipeline) else _model(model, dtype)
    if path is not None:
        write_atomically(path, lambda file: file.write(made.SerializeToString()))
    return made


def _model(model: Any, dtype: str) -> Any:
    from onnx import TensorProto, checker, helper

    g = Graph(dtype)
    entries, rows = graph_inputs(g, model)
    infos = []
    for name, (value, kind) in model_outputs(g, model, rows).items():
        g.nodes.append(helper.make_node("Identity", [value], [name]))
        types = {"int64": TensorProto.INT64, "string": TensorProto.STRING, "float": onnx_type(dtype)}
        shape = ("rows",) if name == "label" and np.ndim(model.classes_) == 1 else ("rows", None)
        infos.append(helper.make_tensor_value_info(name, types[kind], shape, OUTPUTS.get(name, "")))
    graph = helper.make_graph(g.nodes, type(model).__name__, entries, infos, g.constants)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", 3)]
    made = helper.make_model(graph, opset_imports=opsets, producer_name="mercer", ir_version=8)
    made.producer_version = __version__
    made.doc_string = f"A {type(model).__name__} of mercer {__version__}, fitted to {len(column_table(model))} columns."
    helper.set_model_props(made, _properties(model))
    checker.check_model(made)
    return made


def _properties(model: Any) -> dict[str, str]:
    """The metadata of a graph as JSON: the columns, and the classes of a classifier in the order of probabilities."""
    columns = [{key: column[key] for key in ("name", "kind", "map")} for column in column_table(model)]
    classes = getattr(model, "classes_", None)
    known = {} if classes is None else {"classes": json.dumps(classes.tolist(), ensure_ascii=False, default=str)}
    return {"columns": json.dumps(columns, ensure_ascii=False), **known}


def _pipeline(model: Pipeline, dtype: str, X: Any) -> Any:
    try:
        import skl2onnx
    except ImportError:
        raise ImportError("pipelines become graphs by skl2onnx, which is not installed: pip install skl2onnx") from None
    from mercer.files.onnx.skl2onnx import register

    register()
    row = np.zeros((1, model.n_features_in_), dtype=dtype)
    entries: dict[str, Any] = {"X": row} if X is None else {"initial_types": _entries(X, dtype)}
    options = {id(model[-1]): {"zipmap": False}} if is_classifier(model[-1]) else None
    try:
        return skl2onnx.to_onnx(model, **entries, target_opset=OPSET, options=options)
    except RuntimeError as fault:
        wanted = "rows that tell names and kinds of the pipeline's columns" if X is None else "rows as in fit"
        raise ValueError(f"X must be {wanted}, since skl2onnx says: {fault}") from None


def _entries(X: Any, dtype: str) -> list[tuple[str, Any]]:
    """Names of a frame's columns, and what skl2onnx calls their kinds."""
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, StringTensorType

    require(is_frame(X), "X", "a frame", type(X).__name__)
    number = FloatTensorType if dtype == "float32" else DoubleTensorType
    kinds = [(StringTensorType if column.kind in CATEGORICAL else number)([None, 1]) for column in raw_columns(X)]
    return list(zip(map(str, X.columns), kinds, strict=True))


def _require_onnx() -> None:
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise ImportError("graphs are made by onnx, which is not installed: pip install 'mercer[onnx]'") from None
