"""Promises of every fit of a Gaussian process: nothing lost by a failure, nothing that depends on units, files read."""

from __future__ import annotations

import pickle
from contextlib import nullcontext
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError

from mercer import ARDSelector, SparseGPClassifier, SparseGPRegressor
from mercer.kernels import Gaussian

pytestmark = pytest.mark.usefixtures("two_folds")

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, (90, 2))
Y = np.sin(1.5 * X[:, 0]) + 0.5 * X[:, 1] + 0.05 * rng.normal(size=90)
CLASSES = np.digitize(Y, [-0.5, 0.5])

QUICK: dict[str, Any] = {"max_iter": 2, "random_state": 0, "kernel": 2.0 * Gaussian(1.0), "optimize_kernel": True}
FACES = {
    "regression": SparseGPRegressor(8, **QUICK),
    "full regression": SparseGPRegressor(approximation="full", **QUICK),
    "one-vs-rest": SparseGPClassifier(6, **QUICK),
    "softmax": SparseGPClassifier(6, multi_class="softmax", **QUICK),
    "a subset of classes": SparseGPClassifier(30, approximation="sd", **QUICK),
}
over_all = pytest.mark.parametrize("model", FACES.values(), ids=FACES.keys())


def fresh(model: Any, **options: Any) -> Any:
    return type(model)(**{**model.get_params(deep=False), **options})


def targets(model: Any) -> np.ndarray:
    return Y if isinstance(model, SparseGPRegressor) else CLASSES


@cache
def plainly_fitted(model: Any) -> Any:
    """What several tests compare with, fitted once."""
    return fresh(model).fit(X, targets(model))


def answers(model: Any, rows: Any) -> np.ndarray:
    """All that a model says of rows, in one array."""
    if isinstance(model, SparseGPRegressor):
        return np.column_stack(model.predict(rows, return_std=True))
    return model.predict_proba(rows)


def boom(*_: Any) -> None:
    raise RuntimeError("boom")


# --- a failed fit ----------------------------------------------------------------------------------------------------


def test_a_further_fit_leaves_nothing_of_the_one_before():
    model = fresh(FACES["regression"]).fit(pd.DataFrame(X, columns=["a", "b"]), Y)
    assert list(model.feature_names_in_) == ["a", "b"]
    model.fit(X[:, :1], Y)
    assert not hasattr(model, "feature_names_in_")
    assert model.n_features_in_ == 1


@over_all
@pytest.mark.parametrize("how", ["interrupt", "return"])
def test_an_interrupt_and_a_callback_that_returns_true_keep_what_was_found(model, how):
    """After it no model takes another step, those of further classes included."""
    seen = []

    def second(point: Any) -> bool:
        seen.append(point)
        if len(seen) == 2 and how == "interrupt":
            raise KeyboardInterrupt
        return len(seen) == 2

    fitted = fresh(model, callbacks=second, max_iter=50)
    with pytest.raises(KeyboardInterrupt) if how == "interrupt" else nullcontext():
        fitted.fit(X, targets(model))
    assert len(seen) == 2
    assert "interrupted after 2 steps" in fitted.stop_reason_
    assert np.isfinite(answers(fitted, X)).all()


NO_POINTS = [None, 3, "grid", [], [[np.nan, 1.0]], {"a": 1}, np.zeros((2, 2, 2)), object(), 10**400]


@pytest.mark.parametrize("inducing", NO_POINTS)
def test_inducing_inputs_that_are_none_are_refused_in_a_sentence(inducing):
    with pytest.raises(ValueError, match=r"inducing must be one of .* a Criterion or an array of finite numbers, got"):
        SparseGPRegressor(inducing=inducing).fit(X, Y)


def test_inducing_inputs_come_in_any_container_with_as_many_columns_as_the_rows():
    points = np.array([[0.0, 0.0], [1.0, -1.0], [-1.0, 0.5]])
    containers = (points, points.tolist(), pd.DataFrame(points), torch.tensor(points, requires_grad=True))
    for given in containers:
        model = fresh(FACES["regression"], inducing=given, optimize_inducing=False).fit(X, Y)
        np.testing.assert_allclose(model.basis_, points, atol=1e-12)
        assert len(model.basis_indices_) == 0
    with pytest.raises(ValueError, match=r"inducing must be of 2 columns, got \(3, 1\)"):
        fresh(FACES["regression"], inducing=points[:, :1]).fit(X, Y)


# --- weights and units ------------------------------------------------------------------------------------------------


@over_all
def test_only_ratios_of_weights_matter_where_something_is_tuned(model):
    """Powers of two scale without rounding, so that not a bit may change."""
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(X))
    one, *others = (answers(fresh(model).fit(X, targets(model), weight * s), X) for s in (1.0, 2.0**-900, 2.0**900))
    for other in others:
        np.testing.assert_array_equal(one, other)


UNITS = [(2.0**-530, 2.0**512), (2.0**512, 2.0**-660)]


@pytest.mark.parametrize(
    ("name", "unit_x", "unit_y"),
    [(name, *units) for name in FACES for units in UNITS],
)
def test_units_of_any_size_give_the_same_model(name, unit_x, unit_y):
    """Units are powers of two, so that not a bit of the table changes."""
    model = FACES[name]
    plain = plainly_fitted(model)
    if not isinstance(model, SparseGPRegressor):
        scaled = fresh(model).fit(X * unit_x, targets(model))
        np.testing.assert_array_equal(answers(scaled, X * unit_x), answers(plain, X))
        return
    scaled = fresh(model).fit(X * unit_x, Y * unit_y)
    np.testing.assert_array_equal(answers(scaled, X * unit_x), answers(plain, X) * unit_y)
    np.testing.assert_array_equal(scaled.basis_, plain.basis_ * unit_x)
    assert scaled.noise_ == plain.noise_ * unit_y * unit_y  # beyond float64 that is infinite
    assert np.isfinite(scaled.log_marginal_likelihood_)


@over_all
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_beyond_all_others_have_finite_answers(model, dtype):
    fitted = fresh(model, dtype=dtype).fit(X, targets(model))
    far = np.array([[1e154, -1e154], [1e300, 1e30], [1e19, 0.0]])
    assert np.isfinite(answers(fitted, far)).all()


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["regression", "one-vs-rest"])
def test_a_model_of_few_inducing_inputs_is_small_whatever_it_was_fitted_to(name):
    """Five of them in two columns, their posterior and the names of some parameters are a few thousand bytes."""
    many = np.random.default_rng(0).uniform(-2, 2, (20_000, 2))
    labels = many[:, 0] if name == "regression" else many[:, 0] > 0
    model = fresh(FACES[name], n_inducing=5, max_iter=1).fit(many, labels)
    assert len(pickle.dumps(model)) < 60_000  # of which 2000 scores of intervals, and their weights, take 32 000


# --- the selector ----------------------------------------------------------------------------------------------------


def selector(**options: Any) -> ARDSelector:
    return ARDSelector(SparseGPRegressor(8, kernel="gaussian", ard=True, max_iter=30, random_state=0), **options)


def test_the_selector_reads_files_and_tensors_as_arrays(tmp_path):
    table, y = np.column_stack([X, rng.normal(size=90)]), np.sin(2 * X[:, 0]) + 0.05 * rng.normal(size=90)
    frame = pd.DataFrame(table, columns=["a", "b", "c"])
    frame.to_csv(tmp_path / "x.csv", index=False)
    from_file = selector().fit(tmp_path / "x.csv", y)
    kept = from_file.get_feature_names_out().tolist()
    assert kept == ["a"]
    np.testing.assert_allclose(from_file.transform(tmp_path / "x.csv"), table[:, [0]])
    np.testing.assert_allclose(from_file.transform(frame), table[:, [0]])
    tensor = torch.tensor(table, requires_grad=True)
    from_tensor = selector().fit(tensor, y)
    np.testing.assert_array_equal(from_tensor.transform(tensor), table[:, [0]])
    sparse = from_tensor.transform(torch.tensor(table).to_sparse())  # stays sparse, as in scikit-learn's selectors
    np.testing.assert_array_equal(sparse.toarray(), table[:, [0]])


def test_a_selector_whose_models_fail_is_the_one_it_was():
    fitted = selector().fit(X, Y)
    before, kept = fitted.get_support().tolist(), set(vars(fitted))
    fitted.set_params(models=SparseGPRegressor(8, callbacks=boom, max_iter=3))
    with pytest.raises(RuntimeError, match="boom"):
        fitted.fit(np.column_stack([X, X]), Y)
    assert fitted.get_support().tolist() == before
    assert set(vars(fitted)) == kept
    with pytest.raises(NotFittedError):
        ARDSelector().transform(X)
    for models in (iter([SparseGPRegressor()]), [], 3):
        with pytest.raises(ValueError, match="models must be None or an estimator or a sequence of at least one, got"):
            ARDSelector(models).fit(X, Y)
