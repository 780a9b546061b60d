"""Mixed tables leave Python whole: text, gaps, dates and booleans inside files and graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mercer
from mercer.kernels import Gaussian

pytestmark = pytest.mark.usefixtures("two_folds")

pytest.importorskip("mercer.preprocessing.columns")
pandas = pytest.importorskip("pandas")


def table(n: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    frame = pandas.DataFrame(
        {
            "size": rng.normal(size=n).round(3),
            "tree": rng.choice(["oak", "elm", "ash"], n),
            "town": rng.choice([f"town {k}" for k in range(70)], n),
            "grade": pandas.Categorical(rng.choice(["low", "mid", "top"], n), ["low", "mid", "top"], ordered=True),
            "old": rng.random(n) < 0.5,
            "price": rng.choice([1.0, 2.5, 9.99, 20.0], n),
            "sold": pandas.Timestamp("2021-01-01") + pandas.to_timedelta(rng.integers(0, 900, n), unit="D"),
        }
    )
    frame.loc[rng.random(n) < 0.1, "size"] = np.nan
    frame.loc[rng.random(n) < 0.1, "tree"] = None
    frame.loc[rng.random(n) < 0.1, "sold"] = pandas.NaT
    return frame


ROWS, NEW = table(300, 0), table(40, 1)
NEW.loc[0, "tree"] = "palm"  # which nobody saw
NUMBERS = np.nan_to_num(ROWS["size"].to_numpy()) + (ROWS["tree"] == "oak") + 0.01 * ROWS["town"].str.len()
CLASSES = np.where(NUMBERS > 0.3, "dear", "cheap")
MODELS = {
    "KernelBoostingRegressor": {"kernel": "matern32", "tuning_rows": 100},
    "GreedyKernelClassifier": {"n_basis": 10, "kernel": "gaussian", "tuning_rows": 50},
    "SparseGPRegressor": {"n_inducing": 10, "kernel": "gaussian", "tuning_rows": 50, "max_iter": 3},
    "ENRBFRegressor": {"n_components": 2},
    "RPEMEKLClassifier": {"kernels": Gaussian(2.0), "n_members": 2, "subset_size": 40},
}


@pytest.fixture(params=MODELS, scope="module")
def model(request):
    face = getattr(mercer, request.param)(**MODELS[request.param], random_state=0)
    return face.fit(ROWS, CLASSES if request.param.endswith("Classifier") else NUMBERS)


def test_a_file_keeps_the_coding_of_columns(model, tmp_path):
    model.save(tmp_path / "m.mercer")
    assert (mercer.load(tmp_path / "m.mercer").predict(NEW) == model.predict(NEW)).all()


@pytest.mark.parametrize(("dtype", "within"), [("float32", 1e-5), ("float64", 1e-10)])
def test_a_graph_codes_columns_itself(model, dtype, within):
    onnxruntime = pytest.importorskip("onnxruntime")
    graph = mercer.to_onnx(model, dtype=dtype)
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]
    found = dict(zip(names, session.run(None, {name: entry(NEW[name], dtype) for name in NEW}), strict=True))
    if hasattr(model, "classes_"):
        assert found["label"].tolist() == model.predict(NEW).tolist()
        np.testing.assert_allclose(found["probabilities"], model.predict_proba(NEW), atol=within)
    else:
        expected = model.predict(NEW)
        np.testing.assert_allclose(found["prediction"][:, 0], expected, atol=within * np.abs(expected).max())


def test_parts_of_a_day_that_matter_one_by_one_are_kept_by_files_and_graphs(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    hour = rng.integers(0, 12 * 24, 600)
    frame = pandas.DataFrame({"at": pandas.Timestamp("2024-01-01") + pandas.to_timedelta(hour, unit="h")})
    y = rng.normal(size=48)[hour // 6] + 0.1 * rng.normal(size=600)
    model = mercer.GreedyKernelRegressor(20, kernel=mercer.kernels.Gaussian(1.0), regularization=0.1).fit(frame, y)
    assert "mean target of each of 48 parts of a day of 6 hours" in model.columns_[0]["map"]
    model.save(tmp_path / "m.mercer")
    assert (mercer.load(tmp_path / "m.mercer").predict(frame) == model.predict(frame)).all()
    graph = mercer.to_onnx(model, dtype="float64").SerializeToString()
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    found = session.run(["prediction"], {"at": entry(frame["at"], "float64")})[0][:, 0]
    np.testing.assert_allclose(found, model.predict(frame), atol=1e-10 * np.abs(y).max())


def entry(column: Any, dtype: str) -> np.ndarray:
    """A column as the graph takes it."""
    if column.dtype.kind == "M":
        days = (column - pandas.Timestamp("1970-01-01")) / pandas.Timedelta(days=1)
        return days.to_numpy(dtype)[:, None]
    if column.dtype.kind in "fb":
        return column.to_numpy(dtype)[:, None]
    return np.array([["" if pandas.isna(value) else str(value)] for value in column], dtype=object)
