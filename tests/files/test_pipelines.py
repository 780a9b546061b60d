"""Files of scikit-learn pipelines that end in an estimator of mercer: same predictions, or a refusal in a sentence."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_selection import SelectKBest, VarianceThreshold, f_regression
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline, make_pipeline, make_union
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

import mercer
from mercer.codec.tree import Decoder, Encoder
from mercer.files import describe
from mercer.kernels import Gaussian

pytestmark = pytest.mark.usefixtures("two_folds")

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, (60, 3))
Y = np.sin(X[:, 0]) + X[:, 1]
FRAME = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "kind": np.array(["x", "y", "z"])[rng.integers(0, 3, 60)]})
FRAME.loc[::7, "a"] = np.nan
MODEL = mercer.GreedyKernelRegressor(5, kernel=Gaussian(), regularization=0.1, random_state=0)
NUMBERS = [
    MaxAbsScaler(), MinMaxScaler((-1, 1)), Normalizer(), PCA(2), PolynomialFeatures(2), PowerTransformer(),
    QuantileTransformer(n_quantiles=20), RobustScaler(), SimpleImputer(), StandardScaler(),
    TruncatedSVD(2), VarianceThreshold(), FunctionTransformer(), "passthrough", make_union(PCA(1), StandardScaler()),
]  # fmt: skip


def again(model, path, **options):
    mercer.save(model, path, **options)
    return mercer.load(path)


@pytest.mark.parametrize("step", NUMBERS, ids=lambda step: step if isinstance(step, str) else type(step).__name__)
def test_a_pipeline_of_numbers_predicts_the_same(step, tmp_path):
    pipeline = make_pipeline(step, MODEL).fit(X, Y)
    loaded = again(pipeline, tmp_path / "pipeline.mercer")
    # matrices in another order of memory are multiplied with other roundings
    np.testing.assert_allclose(loaded.predict(X), pipeline.predict(X), rtol=1e-13, atol=1e-13)
    assert repr(loaded) == repr(pipeline)


@pytest.mark.parametrize("encoder", [OneHotEncoder(handle_unknown="ignore", sparse_output=False), OrdinalEncoder()])
@pytest.mark.parametrize("remainder", ["drop", "passthrough"])
def test_columns_of_a_frame_keep_their_transformers(encoder, remainder, tmp_path):
    numbers = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    columns = make_column_transformer((encoder, ["kind"]), (numbers, ["a"]), remainder=remainder)
    pipeline = Pipeline([("columns", columns), ("model", MODEL)]).fit(FRAME, Y)
    loaded = again(pipeline, tmp_path / "pipeline.mercer", small=True)
    np.testing.assert_array_equal(loaded.predict(FRAME[::-1]), pipeline.predict(FRAME[::-1]))
    assert list(loaded.feature_names_in_) == ["a", "b", "kind"]
    said = describe(tmp_path / "pipeline.mercer")
    assert said["class"] == "forward.GreedyKernelRegressor"
    assert said["pipeline"] == ["sklearn.ColumnTransformer", "forward.GreedyKernelRegressor"]


def test_transformers_of_mercer_may_be_steps(tmp_path):
    pipeline = make_pipeline(StandardScaler(), mercer.GreedyNystroem(4, kernel=Gaussian(), random_state=0), MODEL)
    pipeline.fit(X, Y)
    np.testing.assert_array_equal(again(pipeline, tmp_path / "p.mercer").predict(X), pipeline.predict(X))


def by_selector():
    return ColumnTransformer([("numbers", StandardScaler(), make_column_selector(dtype_include="number"))])


@pytest.mark.parametrize(
    ("pipeline", "sentence"),
    [
        (make_pipeline(SelectKBest(f_regression, k=2), MODEL), "a SelectKBest, which no model file can hold"),
        (make_pipeline(FunctionTransformer(np.abs), MODEL), "func of FunctionTransformer is a function of your own"),
        (make_pipeline(by_selector(), MODEL), "transformers of ColumnTransformer is a function of your own"),
        (make_pipeline(StandardScaler(), Ridge()), "a pipeline that ends in one, got .Ridge."),
    ],
)
def test_other_steps_are_refused_in_a_sentence(pipeline, sentence, tmp_path):
    pipeline.fit(FRAME if isinstance(pipeline[0], ColumnTransformer) else X, Y)
    with pytest.raises(ValueError, match=sentence):
        mercer.save(pipeline, tmp_path / "p.mercer")
    assert not list(tmp_path.iterdir())


def test_a_file_cannot_name_other_classes_methods_or_parameters():
    encoder = Encoder()
    tree = encoder.encode(make_pipeline(StandardScaler(), MODEL).fit(X, Y))
    scaler = tree["parameters"]["steps"][0]["tuple"][1]
    for key, value, sentence in [
        ("class", "sklearn.SGDRegressor", "a class in the file must be one of"),
        ("class", "sklearn.os", "a class in the file must be one of"),
        ("fitted", {"transform": 1}, "a fitted attribute"),
        ("parameters", {"func": 1}, "the parameters of StandardScaler"),
    ]:
        changed = json.loads(json.dumps(tree))
        changed["parameters"]["steps"][0]["tuple"][1] = scaler | {key: value}
        with pytest.raises(ValueError, match=sentence):
            Decoder(encoder.arrays).decode(changed)
    scaler["version"] = "0.0"
    with pytest.warns(UserWarning, match=f"by scikit-learn 0.0, and here is {sklearn.__version__}"):
        Decoder(encoder.arrays).decode(tree)
