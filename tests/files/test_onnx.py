"""An ONNX graph in onnxruntime says what the model says: within 1e-10 in float64, 1e-5 in float32."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import make_column_transformer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import mercer
from mercer.data.column_maps import KINDS, fit_column_map
from mercer.files.onnx.graph import OPSET, Graph, onnx_type
from mercer.files.onnx.models import encode_rows
from mercer.kernels import Gaussian, Laplacian, Matern12, Precomputed
from mercer.preprocessing.inputs import InputMap
from tests.files.models import KERNELS, NEW, NUMBERS, ROWS, THREE, fitted, public_estimators, said, targets_for

pytestmark = pytest.mark.usefixtures("two_folds")

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

#: Of the largest answer: rounding of inputs and outputs in float32, and of other sums in float64.
WITHIN = {"float32": 1e-5, "float64": 1e-10}
OUTPUTS = {"predict": "prediction", "predict_proba": "probabilities", "transform": "features", "std": "std"}
over_types = pytest.mark.parametrize("dtype", WITHIN)


#: Roundings of a kernel value: those of a squared distance of three inputs, of its scale and of the profile.
ROUNDINGS = 16


def answered(graph: Any, X: np.ndarray) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(None, {session.get_inputs()[0].name: X}), strict=True))


def agree(model: Any, dtype: str, X: np.ndarray = NEW) -> None:
    X = X.astype(dtype)
    found, told = answered(mercer.to_onnx(model, dtype=dtype), X), said(model, X.astype(np.float64))
    for ask, answer in told.items():
        if ask == "predict" and "label" in found:
            assert found["label"].tolist() == answer.tolist()
        elif ask in OUTPUTS:
            other = found[OUTPUTS[ask]]
            assert other.dtype == dtype
            largest = max(np.abs(answer).max(), 1.0 if ask == "predict_proba" else 0.0)
            within = WITHIN[dtype] * largest + ROUNDINGS * np.finfo(dtype).eps * reach(model)
            np.testing.assert_allclose(other.reshape(answer.shape), answer, atol=within, rtol=0)


def reach(model: Any) -> float:
    """Σ|w| of a model's expansions in units of its targets: rounding of kernel values counts by it."""
    sums = [np.abs(one.weights).sum(0).max() * float(one.kernel.diag(torch.as_tensor(one.basis)).max())
            for one in getattr(model, "expansions_", ())]  # fmt: skip
    return float(sum(sums)) * float(getattr(getattr(model, "targets_", None), "scale", 1.0))


@over_types
@pytest.mark.parametrize("name", public_estimators())
def test_a_graph_says_what_the_model_says(name, dtype):
    agree(fitted(name), dtype)


@over_types
@pytest.mark.parametrize("name", [name for name in public_estimators() if name.endswith("Classifier")])
def test_two_classes_by_name_are_answered_by_name(name, dtype):
    agree(fitted(name, 2), dtype)


@over_types
@pytest.mark.parametrize("approximation", ["spgp", "sr"])
def test_joint_posteriors_of_several_classes_are_averaged_in_the_graph(approximation, dtype):
    settings = {"approximation": approximation, "multi_class": "softmax", "max_iter": 3, "random_state": 0}
    agree(mercer.SparseGPClassifier(5, kernel="gaussian", **settings).fit(ROWS, THREE), dtype)


@over_types
@pytest.mark.parametrize("kernel", [*KERNELS, Matern12(2.0)], ids=repr)
def test_every_kernel_has_a_graph(kernel, dtype):
    model = mercer.GreedyKernelRegressor(6, kernel=kernel, regularization=0.1, random_state=0).fit(ROWS, NUMBERS)
    agree(model, dtype)


@pytest.mark.parametrize("kernel", [KERNELS[0], KERNELS[1], KERNELS[4], KERNELS[6]], ids=repr)
def test_variances_of_every_kind_of_kernel_have_a_graph(kernel):
    model = mercer.SparseGPRegressor(6, kernel=kernel, max_iter=0, regularization=0.1, random_state=0)
    agree(model.fit(ROWS, NUMBERS), "float64")


@pytest.mark.parametrize("covariance", ["full", "diagonal", "spherical", "tied"])
def test_gates_of_every_shape_have_a_graph(covariance):
    agree(mercer.ENRBFRegressor(3, covariance_type=covariance, random_state=0).fit(ROWS, NUMBERS), "float64")


@pytest.mark.parametrize("kind", KINDS)
def test_maps_of_columns_are_drawn_as_they_are(kind):
    columns = fit_column_map(kind, torch.as_tensor(ROWS), torch.ones(len(ROWS)))
    inputs = InputMap(np.zeros(3), np.ones(3), columns, np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.5, 3.0]]))
    X = np.vstack([ROWS[:20], NEW, 1e3 * NEW, 1e12 * NEW, np.zeros((1, 3))])
    np.testing.assert_allclose(drawn_inputs(inputs, X), inputs.encode(X).numpy(), rtol=1e-12, atol=1e-12)


def drawn_inputs(inputs: InputMap, X: np.ndarray) -> np.ndarray:
    helper = onnx.helper
    g = Graph("float64")
    out = encode_rows(g, inputs, "X", "float64")
    info = helper.make_tensor_value_info
    ends = [info("X", onnx_type("float64"), (None, 3))], [info(out, onnx_type("float64"), (None, 3))]
    graph = helper.make_graph(g.nodes, "inputs", *ends, g.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    return next(iter(answered(model, X).values()))


def test_several_outputs_and_several_kernels_have_a_graph():
    Y = np.column_stack([NUMBERS, NUMBERS**2])
    agree(mercer.RPEMEKLRegressor(random_state=0).fit(ROWS, Y), "float64")
    agree(mercer.ENRBFRegressor(2, random_state=0).fit(ROWS, Y), "float64")
    agree(mercer.GreedyKernelRegressor(5, kernel=Laplacian(3.0), regularization=0.1).fit(ROWS, Y), "float64")


def test_kernel_values_computed_beforehand_have_a_graph():
    K = Gaussian(2.0)(torch.as_tensor(ROWS), torch.as_tensor(ROWS)).numpy()
    model = mercer.GreedyKernelRegressor(5, kernel=Precomputed(), regularization=0.1).fit(K, NUMBERS)
    agree(model, "float64", K[:9])


def test_columns_far_from_zero_lose_nothing_to_cancellation():
    far = np.array([1e5, -1e6, 0.0])
    model = mercer.GreedyKernelRegressor(8, kernel=Gaussian(2.0), regularization=0.1).fit(ROWS + far, NUMBERS)
    agree(model, "float32", NEW + far)


def test_counts_of_a_gaussian_process_have_a_graph():
    model = mercer.SparseGPRegressor(5, loss="poisson", kernel="gaussian", max_iter=3).fit(
        ROWS, np.abs(NUMBERS).round()
    )
    found = answered(mercer.to_onnx(model, dtype="float64"), NEW)
    for name, expected in zip(("prediction", "std"), model.predict(NEW, return_std=True), strict=True):
        np.testing.assert_allclose(found[name][:, 0], expected, rtol=1e-9)


def test_any_number_of_rows_will_do():
    graph = mercer.to_onnx(fitted("SparseGPRegressor"))
    for n in (1, 2, 1000):
        X = np.resize(NEW, (n, 3)).astype(np.float32)
        assert answered(graph, X)["std"].shape == (n, 1)


@over_types
@pytest.mark.parametrize("name", ["KernelBoostingClassifier", "NRBFRegressor"])
def test_pipelines_become_graphs_by_skl2onnx(name, dtype):
    pytest.importorskip("skl2onnx")
    model = make_pipeline(StandardScaler(), fitted(name)).fit(ROWS, targets_for(name))
    X = NEW.astype(dtype)
    found = list(answered(mercer.to_onnx(model, dtype=dtype), X).values())
    if name.endswith("Classifier"):
        assert found[0].tolist() == model.predict(X.astype(np.float64)).tolist()
        np.testing.assert_allclose(found[1], model.predict_proba(X.astype(np.float64)), atol=10 * WITHIN[dtype])
    else:
        expected = model.predict(X.astype(np.float64))
        np.testing.assert_allclose(found[0][:, 0], expected, atol=10 * WITHIN[dtype] * np.abs(expected).max())


def test_pipelines_of_named_columns_become_graphs_by_some_of_their_rows():
    pytest.importorskip("skl2onnx")
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS, columns=["a", "b", "c"]).assign(tree=np.where(ROWS[:, 0] > 0, "oak", "elm"))
    coded = make_column_transformer((StandardScaler(), ["a", "b"]), (OneHotEncoder(sparse_output=False), ["tree"]))
    model = make_pipeline(coded, mercer.GreedyKernelRegressor(7, kernel=Gaussian(2.0), regularization=0.1))
    model.fit(frame, NUMBERS)
    graph = mercer.to_onnx(model, dtype="float64", X=frame[:1])
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = [one.name for one in session.get_inputs()]
    found = session.run(None, {name: frame[[name]].to_numpy(object if name == "tree" else float) for name in wanted})[0]
    np.testing.assert_allclose(found[:, 0], model.predict(frame), atol=1e-10)
    with pytest.raises(ValueError, match="X must be rows that tell names and kinds of the pipeline's columns"):
        mercer.to_onnx(model)


def test_features_go_on_through_a_pipeline():
    pytest.importorskip("skl2onnx")
    features = mercer.GreedyNystroem(7, kernel=Gaussian(2.0), random_state=0)
    model = make_pipeline(features, Ridge(1e-2)).fit(ROWS, NUMBERS)
    found = answered(mercer.to_onnx(model, dtype="float64"), NEW)
    np.testing.assert_allclose(next(iter(found.values()))[:, 0], model.predict(NEW), atol=1e-9)


def test_what_has_no_graph_is_refused_in_words(tmp_path):
    own = mercer.GreedyKernelRegressor(4, kernel=lambda X, Z: X @ Z.T, regularization=1.0).fit(ROWS, NUMBERS)
    with pytest.raises(ValueError, match="mercer's own kernels alone, got Function"):
        mercer.to_onnx(own)
    with pytest.raises(ValueError, match="model must be an estimator of mercer or a pipeline, got 'Ridge'"):
        mercer.to_onnx(Ridge().fit(ROWS, NUMBERS))
    with pytest.raises(ValueError, match="dtype must be 'float32' or 'float64', got 'float16'"):
        mercer.to_onnx(own, dtype="float16")


def test_a_graph_is_written_where_it_is_asked_for(tmp_path):
    made = mercer.to_onnx(fitted("NRBFRegressor"), tmp_path / "m.onnx")
    assert onnx.load(tmp_path / "m.onnx") == made


@over_types
def test_columns_that_were_constant_in_fit_change_nothing_in_a_graph_or_a_file(dtype, tmp_path):
    model = mercer.KernelBoostingRegressor(kernel=Gaussian(1.0), regularization=0.1, random_state=0)
    model.fit(np.column_stack([ROWS, np.full(len(ROWS), 7.0)]), targets_for("KernelBoostingRegressor"))
    later = np.column_stack([NEW, np.full(len(NEW), 9.0)])
    agree(model, dtype, later)
    model.save(tmp_path / "model.mercer")
    np.testing.assert_array_equal(mercer.load(tmp_path / "model.mercer").predict(later), model.predict(later))


def test_a_graph_documents_its_inputs_outputs_and_classes():
    X = pd.DataFrame({"size": ROWS[:, 0], "kind": np.where(ROWS[:, 1] > 0, "oak", "ash")})
    model = mercer.GreedyKernelClassifier(5, kernel="gaussian", random_state=0).fit(X, THREE)
    graph = mercer.to_onnx(model)
    assert "Column 'kind' (category): text, empty where missing. Code: 2 levels" in graph.graph.input[1].doc_string
    assert "numbers, NaN where missing" in graph.graph.input[0].doc_string
    assert all(output.doc_string for output in graph.graph.output)
    properties = {entry.key: json.loads(entry.value) for entry in graph.metadata_props}
    assert [column["name"] for column in properties["columns"]] == ["size", "kind"]
    assert properties["classes"] == model.classes_.tolist()
    numbers = mercer.to_onnx(mercer.GreedyKernelRegressor(5, kernel="gaussian", random_state=0).fit(ROWS, ROWS[:, 0]))
    assert "Columns: x0, x1, x2" in numbers.graph.input[0].doc_string
    assert numbers.producer_version == mercer.__version__
