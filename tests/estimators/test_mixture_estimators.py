"""Estimators of mixtures of local experts: known limits, other libraries, degenerate data, any source, pictures."""

from __future__ import annotations

import io
import pickle
import time
from contextlib import redirect_stderr
from functools import cache, partial
from typing import Any

import matplotlib as mpl
import numpy as np
import oracles_mixture as oracles
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV

from mercer import (
    CommonBasisMixtureClassifier,
    ENRBFClassifier,
    ENRBFRegressor,
    GaussianMixtureClassifier,
    NRBFClassifier,
    NRBFRegressor,
    one_standard_error,
)
from mercer.base.calibration import Temperature
from mercer.datasets import THREE_GAUSSIANS, make_sin2, make_three_gaussians
from mercer.mixture import output_weights
from mercer.plots.mixture import plot_boundary, plot_gates, plot_slopes

pytestmark = pytest.mark.usefixtures("two_folds")

mpl.use("Agg")

REGRESSORS = [NRBFRegressor, ENRBFRegressor]
CLASSIFIERS = [ENRBFClassifier, NRBFClassifier, GaussianMixtureClassifier, CommonBasisMixtureClassifier]
KINDS = ["spherical", "diagonal", "full", "tied"]
SKLEARN = {"diagonal": "diag", "full": "full", "spherical": "spherical", "tied": "tied"}
over_faces = pytest.mark.parametrize("face", [*REGRESSORS, *CLASSIFIERS], ids=lambda face: face.__name__)
over_classifiers = pytest.mark.parametrize("face", CLASSIFIERS, ids=lambda face: face.__name__)
over_kinds = pytest.mark.parametrize("kind", KINDS)

rng = np.random.default_rng(0)
X = rng.normal(size=(240, 3)) + 2 * rng.integers(0, 2, size=(240, 1))
Y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * rng.normal(size=240)
LABELS = np.where(Y > 1.5, "high", np.where(Y > 0, "middle", "low"))
STANDARD = (X - X.mean(0)) / X.std(0)


def y_for(face: Any) -> np.ndarray:
    return Y if face in REGRESSORS else LABELS


def finest(model: Any, rows: Any) -> np.ndarray:
    return model.predict_proba(rows) if hasattr(model, "predict_proba") else model.predict(rows)


def never_falls(path: Any) -> bool:
    """Up to what float64 sums over rows can lose."""
    return bool((np.diff(path) >= -1e-10 * (1 + np.abs(path[1:]))).all())


# --- limits -----------------------------------------------------------------------------------------


@over_kinds
def test_one_local_linear_model_is_linear_regression(kind):
    model = ENRBFRegressor(1, training="em", covariance_type=kind, regularization=0.0).fit(X, Y)
    line = LinearRegression().fit(X, Y)
    np.testing.assert_allclose(model.predict(X), line.predict(X), atol=1e-8)
    np.testing.assert_allclose(model.coef_[0], line.coef_, atol=1e-8)
    np.testing.assert_allclose(model.intercept_, line.intercept_, atol=1e-8)
    assert model.noise_variances_[0] == pytest.approx(np.mean((Y - line.predict(X)) ** 2))


def test_its_regularization_is_that_of_ridge_regression_on_standardised_columns():
    model = ENRBFRegressor(1, training="em", regularization=30.0).fit(X, Y)
    np.testing.assert_allclose(model.predict(X), Ridge(alpha=30.0).fit(STANDARD, Y).predict(STANDARD), atol=1e-8)


@pytest.mark.parametrize("y", [Y > 0.5, LABELS], ids=["two classes", "three classes"])
def test_one_local_logistic_model_is_logistic_regression(y):
    model = ENRBFClassifier(1, training="em", regularization=0.5, tol=0.0).fit(X, y)
    theirs = LogisticRegression(C=2.0, tol=1e-10, max_iter=5000).fit(STANDARD, y)
    np.testing.assert_allclose(own_probabilities(model, X), theirs.predict_proba(STANDARD), atol=1e-6)
    np.testing.assert_allclose(np.squeeze(model.coef_[0] * X.std(0)), np.squeeze(theirs.coef_), atol=1e-5)


@over_kinds
def test_local_lines_without_slope_are_local_constants(kind):
    options: dict[str, Any] = {
        "covariance_type": kind,
        "random_state": 0,
        "n_components": 4,
        "n_init": 1,
        "max_iter": 20,
        "training": "em",
    }
    flat = ENRBFRegressor(regularization=1e15, **options).fit(X, Y)
    constants = NRBFRegressor(**options).fit(X, Y)
    assert np.abs(flat.coef_).max() < 1e-9
    np.testing.assert_allclose(flat.predict(X), constants.predict(X), atol=1e-5)


def own_probabilities(model, rows) -> np.ndarray:
    """Those of the mixture itself, before calibration."""
    model.calibration_ = Temperature()
    return model.predict_proba(rows)


def _goes_on_in_scikit_learn(Z, model, means, covariances, kind) -> GaussianMixture:
    """scikit-learn's EM, started where ours ended."""
    matrices = [oracles.covariance_matrix(c) for c in covariances]
    precisions = [np.linalg.inv(c) for c in matrices]
    shaped = {"full": precisions, "diag": [np.diag(p) for p in precisions], "tied": precisions[0]}[kind]
    theirs = GaussianMixture(
        len(means),
        covariance_type=kind,
        weights_init=model.weights_,
        means_init=means,
        precisions_init=np.array(shaped),
        reg_covar=0.0,
        tol=1e-9,
        max_iter=500,
    )
    return theirs.fit(Z)


def test_with_full_covariances_it_is_the_conditional_mean_of_scikit_learns_mixture_over_x_and_y():
    exact: dict[str, Any] = {"regularization": 0.0, "covariance_floor": 1e-9, "tol": 1e-12, "max_iter": 3000}
    model = ENRBFRegressor(3, training="em", covariance_type="full", n_init=1, random_state=0, **exact).fit(X, Y)
    means, covariances = [], []
    for m, C, b, b0, s2 in zip(
        model.means_, model.covariances_, model.coef_, model.intercept_, model.noise_variances_, strict=True
    ):
        means.append(np.append(m, b @ m + b0))
        covariances.append(np.block([[C, (C @ b)[:, None]], [(b @ C)[None], np.array([[b @ C @ b + s2]])]]))
    theirs = _goes_on_in_scikit_learn(np.column_stack([X, Y]), model, means, covariances, "full")
    expected = oracles.conditional_mean(X, theirs.weights_, theirs.means_, theirs.covariances_)
    np.testing.assert_allclose(model.predict(X), expected, atol=1e-5)


def test_local_constants_with_diagonal_covariances_are_scikit_learns_diagonal_mixture_over_x_and_y():
    exact: dict[str, Any] = {"covariance_floor": 1e-9, "tol": 1e-12, "max_iter": 3000}
    model = NRBFRegressor(3, training="em", n_init=1, random_state=0, **exact).fit(X, Y)
    means = np.column_stack([model.means_, model.intercept_])
    covariances = np.column_stack([model.covariances_, model.noise_variances_])
    theirs = _goes_on_in_scikit_learn(np.column_stack([X, Y]), model, means, covariances, "diag")
    expected = oracles.conditional_mean(X, theirs.weights_, theirs.means_, theirs.covariances_)
    np.testing.assert_allclose(model.predict(X), expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["diagonal", "full", "tied"])
def test_a_mixture_per_class_is_scikit_learns_and_bayes_rule(kind):
    how = {"covariance_type": kind, "covariance_floor": 1e-9, "tol": 1e-12, "max_iter": 3000, "random_state": 0}
    model = GaussianMixtureClassifier(2, n_init=1, **how).fit(X, LABELS)  # the best of several may be a collapsed one
    logs = []
    for c in model.classes_:
        own = model.component_classes_ == c
        part = GaussianMixtureClassifier.__new__(GaussianMixtureClassifier)
        part.weights_ = model.weights_[own] / model.weights_[own].sum()
        theirs = _goes_on_in_scikit_learn(
            X[c == LABELS], part, model.means_[own], model.covariances_[own], SKLEARN[kind]
        )
        logs.append(theirs.score_samples(X) + np.log(np.mean(c == LABELS)))
    logs = np.column_stack(logs)
    expected = np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
    np.testing.assert_allclose(own_probabilities(model, X), expected, atol=1e-5)
    np.testing.assert_allclose(model.score_samples(X), logsumexp(logs, axis=1), atol=1e-5)


@over_kinds
def test_one_component_per_class_is_discriminant_analysis(kind):
    model = GaussianMixtureClassifier(1, covariance_type=kind, scale_inputs=False).fit(X, LABELS)
    logs = []
    for c in model.classes_:
        rows = X[c == LABELS]
        full = np.cov(rows.T, ddof=0)
        shape = {"spherical": np.trace(full) / 3 * np.eye(3), "diagonal": np.diag(np.diag(full))}.get(kind, full)
        logs.append(oracles.log_gates(X, [np.mean(c == LABELS)], [rows.mean(0)], [shape])[:, 0])
    np.testing.assert_allclose(own_probabilities(model, X), oracles.responsibilities(np.column_stack(logs)), atol=1e-8)


def test_as_many_basis_functions_as_rows_interpolate_when_trained_by_gradient():
    few, y = X[:12], Y[:12]
    model = NRBFRegressor(12, training="gradient", regularization=1e-9, covariance_floor=1e-3, random_state=0)
    assert model.fit(few, y).score(few, y) > 0.999


@pytest.mark.long
@pytest.mark.parametrize("face", REGRESSORS)
def test_gradient_training_ends_below_the_squared_error_it_starts_from(face):
    two = face(4, n_init=1, random_state=0).fit(X, Y)
    trained = face(4, training="gradient", n_init=1, max_iter=15, random_state=0).fit(X, Y)
    assert np.mean((trained.predict(X) - Y) ** 2) < np.mean((two.predict(X) - Y) ** 2)
    assert never_falls(trained.log_likelihood_path_)


# --- predictions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("training", ["em", "two-step", "gradient"])
@pytest.mark.parametrize("face", REGRESSORS)
def test_several_outputs_are_answered_together_and_in_their_own_units(face, training):
    both = np.column_stack([Y, 100 * X[:, 0] ** 2])
    model = face(8, training=training, n_init=1, random_state=0, max_iter=20).fit(X, both)
    f, std = model.predict(X, return_std=True)
    assert f.shape == std.shape == both.shape
    assert (std > 0).all()
    np.testing.assert_allclose(f, model.predict(X))
    assert np.corrcoef(f[:, 1], both[:, 1])[0, 1] > 0.7


def test_the_deviation_is_that_of_draws_from_the_mixture():
    model = ENRBFRegressor(3, training="em", n_init=1, max_iter=30, random_state=0).fit(X, Y)
    gates = model.gate_probabilities(X[:5])
    draws = np.random.default_rng(0)
    f, std = model.predict(X[:5], return_std=True)
    for n in range(5):
        j = draws.choice(3, size=200_000, p=gates[n])
        y = (X[n] @ model.coef_.T + model.intercept_)[j] + np.sqrt(model.noise_variances_)[j] * draws.normal(
            size=len(j)
        )
        assert abs(y.mean() - f[n]) < 5 * std[n] / len(j) ** 0.5
        assert abs(y.std() / std[n] - 1) < 0.02


def test_intervals_of_two_deviations_cover_about_95_percent_of_new_rows():
    model = ENRBFRegressor(6, training="em", n_init=1, random_state=0).fit(*make_sin2(500, random_state=0))
    X_new, y_new = make_sin2(4000, random_state=1)
    f, std = model.predict(X_new, return_std=True)
    assert 0.92 < np.mean(np.abs(y_new - f) < 1.96 * std) < 0.975


@over_faces
def test_gates_and_responsibilities_are_probabilities_and_the_targets_sharpen_them(face):
    model = face(3, n_init=1, random_state=0).fit(X, y_for(face))
    gates, seen = model.gate_probabilities(X), model.responsibilities(X, y_for(face))
    assert gates.shape == seen.shape == (len(X), model.n_components_)
    for p in (gates, seen):
        assert (p >= 0).all()
        np.testing.assert_allclose(p.sum(1), 1.0)
    expected = oracles.responsibilities(oracles.log_gates(X, model.weights_, model.means_, model.covariances_))
    np.testing.assert_allclose(gates, expected, atol=1e-8)


@pytest.mark.long
@settings(max_examples=8, deadline=None)
@given(st.floats(-4, 4), st.floats(-100, 100), st.sampled_from([*REGRESSORS, *CLASSIFIERS]))
def test_units_of_the_inputs_do_not_matter(log_scale, shift, face):
    a, y = np.array([10**log_scale, 1.0, 0.1]), y_for(face)
    other = face(3, n_init=1, max_iter=8, random_state=0).fit(a * X + shift, y)
    np.testing.assert_allclose(_in_plain_units(face), finest(other, a * X + shift), atol=1e-4)


@cache
def _in_plain_units(face) -> np.ndarray:
    return finest(face(3, n_init=1, max_iter=8, random_state=0).fit(X, y_for(face)), X)


# --- sizes ------------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 6), st.integers(1, 8), st.integers(0, 10_000))
def test_one_standard_error_is_the_rule_done_by_trying(n_folds, n_sizes, seed):
    draws = np.random.default_rng(seed)
    scores = draws.normal(size=(n_folds, n_sizes)) + np.linspace(0, 1, n_sizes)
    sizes = draws.permutation(np.arange(1, n_sizes + 1)).tolist()
    results = {"param_n_components": sizes} | {f"split{f}_test_score": scores[f] for f in range(n_folds)}
    assert one_standard_error(results) == oracles.one_standard_error(scores, sizes)


@pytest.mark.long
def test_one_standard_error_refits_a_grid_search():
    data = make_sin2(random_state=0)
    grid = GridSearchCV(
        ENRBFRegressor(training="em", n_init=1, max_iter=15, random_state=0),
        {"n_components": [1, 2, 4]},
        cv=3,
        scoring="neg_root_mean_squared_error",
        refit=one_standard_error,
    ).fit(*data)
    best = int(np.argmax(grid.cv_results_["mean_test_score"]))
    assert grid.best_params_["n_components"] <= grid.cv_results_["param_n_components"][best]
    assert grid.best_estimator_.n_components_ == grid.best_params_["n_components"] > 1


def test_one_standard_error_says_what_it_lacks():
    with pytest.raises(ValueError, match="parameter must be one of \\['a'\\], got 'b'"):
        one_standard_error({"param_a": [1], "split0_test_score": [0.0], "split1_test_score": [0.0]}, "b")


@pytest.mark.long
def test_the_automatic_size_is_the_one_its_scores_call_for():
    options: dict[str, Any] = {"training": "em", "n_init": 1, "max_iter": 15, "random_state": 0}
    model = ENRBFRegressor("auto", max_components=4, **options).fit(*make_sin2(random_state=0))
    assert model.n_components_ == model.cv_results_["param_n_components"][one_standard_error(model.cv_results_)]
    assert 2 <= model.n_components_ <= 4
    assert ENRBFRegressor("auto", max_components=2, **options).fit(X, X @ [1.0, 2, 3]).n_components_ == 1


@pytest.mark.long
@pytest.mark.parametrize("face", [NRBFRegressor, ENRBFClassifier])
def test_the_fit_to_all_rows_starts_as_those_judged_did(face, monkeypatch):
    """So do its refits in folds, which come after it."""
    starts: list[Any] = []
    train = face._train

    def watched(self: Any, sample: Any, k: int, *more: Any) -> Any:
        fitted = train(self, sample, k, *more)
        starts.append((len(sample.weight), k, more[2]))
        return fitted

    monkeypatch.setattr(face, "_train", watched)
    options: dict[str, Any] = {"max_components": 4, "n_init": 1, "max_iter": 8, "random_state": 0}
    model = face("auto", training="em", **options).fit(X, y_for(face))
    n, k, _ = starts[-1]
    size = model.cv_results_["param_n_components"][one_standard_error(model.cv_results_)]
    assert (n, k) == (len(X), size)
    assert k > 1
    assert all(start.n_components == k for _, k, start in starts if k > 1)
    judged = [k for _, k, _ in starts[: 3 * 4]]  # three folds of four sizes
    assert judged[::3] == list(range(1, 5))


# --- degenerate data --------------------------------------------------------------------------------

line = np.linspace(0, 1, 8)[:, None]
DEGENERATE = {
    "fewer rows than components": (X[:4], Y[:4], LABELS[[0, 0, 0, 0]]),
    "a constant column": (np.column_stack([X[:40], np.full(40, 7.0)]), Y[:40], LABELS[:40]),
    "identical rows": (np.ones((20, 2)), np.arange(20.0), np.arange(20) % 2),
    "identical rows and targets": (np.ones((20, 2)), np.ones(20), np.arange(20) % 2),
    "a class of two rows": (X[:30], Y[:30], np.arange(30) < 2),
    "columns that repeat each other": (np.hstack([X[:40], X[:40]]), Y[:40], LABELS[:40]),
    "separable classes": (line, line[:, 0], line[:, 0] > 0.5),
    "more columns than rows": (rng.normal(size=(10, 30)), Y[:10], np.arange(10) % 3),
    "a far outlier": (np.vstack([X[:30], 1e6 * np.ones((1, 3))]), np.append(Y[:30], 1e6), np.arange(31) % 2),
    "huge offsets": (X[:40] + 1e9, Y[:40] + 1e9, LABELS[:40]),
    "tiny values": (1e-200 * X[:40], 1e-100 * Y[:40], LABELS[:40]),
}


@pytest.mark.parametrize(
    ("face", "kind"),
    [
        *((face, "full") for face in [*REGRESSORS, *CLASSIFIERS]),
        *(pytest.param(face, "diagonal", marks=pytest.mark.long) for face in (REGRESSORS[1], *CLASSIFIERS[2:])),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
@pytest.mark.parametrize("case", DEGENERATE)
@pytest.mark.filterwarnings("ignore:y holds 1e.06 in row 30")  # the far outlier
def test_degenerate_data_gives_a_sound_fit(face, case, kind):
    rows, y, labels = DEGENERATE[case]
    y = y if face in REGRESSORS else np.where(np.arange(len(labels)) == 0, "other", labels.astype(str))
    model = face(6, covariance_type=kind, random_state=0, max_iter=8, n_init=1).fit(rows, y)
    assert np.isfinite(model.predict_proba(rows) if face in CLASSIFIERS else model.predict(rows)).all()
    if face in REGRESSORS:
        assert np.isfinite(model.predict(rows, return_std=True)[1]).all()
    for name in ("weights_", "means_", "covariances_", "log_likelihood_path_"):
        assert np.isfinite(getattr(model, name)).all(), name
    assert never_falls(model.log_likelihood_path_)
    far = finest(model, np.sign(rows) * 1e3 + rows * 1e3)
    assert np.isfinite(far).all()


def test_components_nobody_needs_are_named_in_the_stop_reason():
    rows, y = np.repeat([[0.0], [1.0], [5.0]], 4, axis=0), np.repeat([1.0, 2, 3], 4)
    model = NRBFRegressor(8, training="em", random_state=0).fit(rows, y)
    assert model.n_components_ <= 3
    assert f"{model.n_components_} of 8 components were of use" in model.stop_reason_


@over_classifiers
def test_a_class_of_one_row_may_be_held_out_and_two_rows_are_enough(face):
    lonely = np.arange(60) == 59
    model = face("auto", max_components=3, n_init=1, max_iter=10, random_state=0).fit(X[:60], lonely)
    assert np.isfinite(model.predict_proba(X)).all()
    pair = face("auto", init="random", n_init=1, max_iter=5, random_state=0).fit(X[:2], [0, 1])
    assert np.isfinite(pair.predict_proba(X)).all()


@over_classifiers
def test_a_class_all_of_whose_rows_weigh_nothing_is_none(face, monkeypatch):
    monkeypatch.setattr("mercer.preprocessing.duplicates.MERGED_ROWS", 0)  # as where there are too many rows to merge
    weight = (LABELS != "middle") * 1.0
    model = face(2, n_init=1, max_iter=5, random_state=0).fit(X, LABELS, sample_weight=weight)
    assert model.classes_.tolist() == ["high", "low"]
    alone = face(2, n_init=1, max_iter=5, random_state=0).fit(X[weight > 0], LABELS[weight > 0])
    assert model.predict_proba(X).shape == alone.predict_proba(X).shape == (len(X), 2)
    with pytest.raises(ValueError, match=r"y must be of the classes .*'high'.*'low'.*, got .*'middle'"):
        model.responsibilities(X[:3], ["low", "middle", "high"])
    with pytest.raises(ValueError, match="y must be of length 3, got 2"):
        model.responsibilities(X[:3], ["low", "high"])
    with pytest.raises(ValueError, match="y must be of the classes"):
        model.responsibilities(X[:1], [3])


@over_faces
@pytest.mark.parametrize("penalty", [0.0, 1e300])
def test_penalties_of_nothing_and_of_everything_give_numbers(face, penalty):
    if penalty > 0 and "regularization" not in face().get_params():
        pytest.skip("it has no penalty")
    for unit in (1e-30, 1e30):
        rows, weight = X[:60], np.full(60, unit)
        options: dict[str, Any] = {"n_init": 1, "max_iter": 5, "random_state": 0}
        if "regularization" in face().get_params():
            options["regularization"] = penalty
        trainings = ["em", "two-step", "gradient"] if face in REGRESSORS else [None]
        for training in trainings:
            if training is not None:
                options["training"] = training
            model = face(3, **options).fit(rows, y_for(face)[:60], sample_weight=weight)
            assert np.isfinite(finest(model, rows)).all()
            assert np.isfinite(model.log_likelihood_path_).all()


def test_classes_told_apart_perfectly_have_finite_weights_without_a_penalty():
    rows = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    model = NRBFClassifier(2, regularization=0.0, random_state=0).fit(rows, [0, 0, 1, 1])
    assert np.isfinite(model.coef_).all()
    assert model.score(rows, [0, 0, 1, 1]) == 1.0


@over_faces
@pytest.mark.parametrize("kind", ["diagonal", "full"])
def test_rows_however_far_away_get_finite_answers(face, kind):
    model = face(3, covariance_type=kind, n_init=1, max_iter=5, random_state=0).fit(X, y_for(face))
    far = np.vstack([where * np.array([[1.0, 1.0, 1.0], [-1.0, 0.0, 1.0]]) for where in (1e20, 1e154, 1e300)])
    assert np.isfinite(finest(model, far)).all()
    np.testing.assert_allclose(model.gate_probabilities(far).sum(1), 1.0)
    assert np.isfinite(model.score_samples(far)).all()


# --- sources, weights, tools --------------------------------------------------------------------------


@over_faces
def test_files_frames_and_tensors_give_what_the_array_gives(face, tmp_path):
    y = y_for(face)
    options: dict[str, Any] = {"n_init": 1, "random_state": 0, "max_iter": 4}
    expected = finest(face(3, **options).fit(X, y), X)
    np.save(tmp_path / "rows.npy", X)
    forms = {
        "frame": pd.DataFrame(X, columns=list("abc")),
        "tensor": torch.as_tensor(X),
    }
    for form in forms.values():
        got = face(3, **options).fit(form, y)
        np.testing.assert_allclose(finest(got, form), expected, atol=1e-10)
    # rows of a file are not merged and sorted, so only the size of the task is the same
    from_file = face(3, **options).fit(tmp_path / "rows.npy", y)
    assert finest(from_file, tmp_path / "rows.npy").shape == expected.shape


def test_a_row_of_weight_two_is_the_row_twice_even_where_rows_are_not_merged(tmp_path):
    n = 600
    draws = np.random.default_rng(0)
    rows = draws.normal(size=(n, 2))
    y = rows[:, 0] ** 2
    weight = draws.integers(1, 3, size=n)
    np.save(tmp_path / "once.npy", rows)
    np.save(tmp_path / "often.npy", np.repeat(rows, weight, axis=0))
    options: dict[str, Any] = {"n_components": 1, "training": "em", "covariance_type": "full"}
    once = ENRBFRegressor(**options).fit(tmp_path / "once.npy", y, sample_weight=weight)
    often = ENRBFRegressor(**options).fit(tmp_path / "often.npy", np.repeat(y, weight))
    np.testing.assert_allclose(once.covariances_, often.covariances_, rtol=1e-9)
    np.testing.assert_allclose(once.coef_, often.coef_, atol=1e-9)


@over_faces
def test_the_unit_of_weights_means_nothing_to_a_model_without_a_penalty(face):
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(X))
    plain: dict[str, Any] = {"n_init": 1, "max_iter": 5, "random_state": 0}
    if "regularization" in face().get_params():
        plain["regularization"] = 0.0
    one = face(3, **plain).fit(X, y_for(face), sample_weight=weight)
    for unit in (2.0**-300, 2.0**40):
        other = face(3, **plain).fit(X, y_for(face), sample_weight=unit * weight)
        np.testing.assert_array_equal(finest(one, X), finest(other, X))  # powers of two round nothing


def test_weights_count_against_a_penalty_as_in_ridge_regression():
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(X))
    for unit in (1e-2, 1.0, 1e3):
        model = ENRBFRegressor(1, training="em", regularization=2.0).fit(X, Y, sample_weight=unit * weight)
        mean = np.average(X, axis=0, weights=weight)
        Z = (X - mean) / np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weight))
        ridge = Ridge(alpha=2.0).fit(Z, Y, sample_weight=unit * weight)
        np.testing.assert_allclose(model.predict(X), ridge.predict(Z), atol=1e-8)


def test_a_warning_says_where_small_weights_leave_nothing_to_learn():
    model = ENRBFRegressor(2, training="em", regularization=0.01, n_init=1, max_iter=3, random_state=0)
    with pytest.warns(UserWarning, match=r"sample_weight sums to 0.0024, no more than the penalty regularization=0.01"):
        model.fit(X, Y, sample_weight=np.full(len(X), 1e-5))


def test_many_rows_start_from_a_sample_and_fit_within_a_small_memory():
    draws = np.random.default_rng(0)
    rows = draws.normal(size=(30_000, 2)) + 6 * draws.integers(0, 3, size=(30_000, 1))
    model = GaussianMixtureClassifier(3, n_init=1, memory_limit=1 << 21, random_state=0).fit(rows, rows.sum(1) > 12)
    assert model.n_components_ == 6
    assert never_falls(model.log_likelihood_path_)
    assert model.score(rows, rows.sum(1) > 12) > 0.95


def test_rows_held_in_float32_give_nearly_the_same_model():
    options: dict[str, Any] = {"n_components": 3, "n_init": 1, "max_iter": 10, "random_state": 0}
    one = ENRBFRegressor(**options).fit(X, Y).predict(X)
    np.testing.assert_allclose(ENRBFRegressor(dtype="float32", **options).fit(X, Y).predict(X), one, atol=1e-3)


def test_a_callback_sees_every_iteration_and_may_stop_it_and_verbose_shows_a_bar():
    seen: list[float] = []

    def watch(event: Any) -> bool:
        seen.append(event.state.objective)
        return len(seen) == 4

    text = io.StringIO()
    with redirect_stderr(text):
        model = ENRBFRegressor(4, training="em", n_init=1, callbacks=[watch], verbose=True, random_state=0).fit(X, Y)
    assert model.stop_reason_ == "a callback asked to stop"
    assert len(seen) == 4
    assert never_falls(seen)
    assert "EM: 4/" in text.getvalue()


def by_em(face: Any) -> Any:
    """The estimator with EM, where that is not its only training."""
    trainings = {NRBFClassifier: "two-step", GaussianMixtureClassifier: None}
    training = trainings.get(face, "em")
    return face if training is None else partial(face, training=training)


@over_faces
def test_an_interrupt_keeps_the_mixture_so_far(face):
    def press(event: Any) -> None:
        if event.phase == "EM" and len(event.state.path) > 3:
            raise KeyboardInterrupt

    model = by_em(face)(3, n_init=1, tol=0.0, callbacks=[press], random_state=0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y_for(face))
    assert "interrupted after" in model.stop_reason_
    assert len(model.log_likelihood_path_) >= (1 if getattr(model, "training", "em") == "gradient" else 4)
    assert np.isfinite(finest(model, X)).all()


def test_an_interrupt_of_gradient_training_keeps_the_last_step(monkeypatch):
    calls: list[int] = []
    slopes = output_weights.loss_and_slopes

    def press(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 15:
            raise KeyboardInterrupt
        return slopes(*arguments)

    monkeypatch.setattr(output_weights, "loss_and_slopes", press)
    model = NRBFRegressor(4, training="gradient", n_init=1, random_state=0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)
    assert "interrupted after" in model.stop_reason_
    assert never_falls(model.log_likelihood_path_)
    assert model.log_likelihood_path_[-1] > model.log_likelihood_path_[0]


def test_an_interrupt_while_sizes_are_judged_leaves_no_model():
    def press(run: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        NRBFRegressor("auto", training="em", n_init=1, callbacks=[press], random_state=0).fit(X, Y)


@over_faces
@pytest.mark.parametrize("size", [4, "auto"])
def test_a_time_budget_of_nothing_still_gives_a_model_and_says_so(face, size):
    model = face(size, time_budget=1e-9, random_state=0).fit(X, y_for(face))
    assert "the time budget of 1e-09 s was used up" in model.stop_reason_
    assert np.isfinite(finest(model, X)).all()


@over_faces
def test_scikit_learns_names_are_understood(face):
    options: dict[str, Any] = {"n_init": 1, "max_iter": 4, "random_state": 0}
    ours = face(2, covariance_type="diagonal", init="random", **options).fit(X, y_for(face))
    theirs = face(2, covariance_type="diag", init="random_from_data", **options).fit(X, y_for(face))
    np.testing.assert_array_equal(finest(ours, X), finest(theirs, X))


@pytest.mark.filterwarnings("ignore:The number of unique classes")
@over_classifiers
def test_as_many_classes_as_rows_take_seconds(face):
    began = time.perf_counter()
    rows = np.random.default_rng(0).normal(size=(100, 3))
    model = face(3, n_init=1, max_iter=20, random_state=0).fit(rows, np.arange(100))
    assert np.isfinite(model.predict_proba(rows)).all()
    assert time.perf_counter() - began < 30  # minutes, when every pair of classes had its block of a Hessian


@over_faces
def test_a_fitted_model_survives_pickling(face):
    model = face(2, n_init=1, max_iter=5, random_state=0).fit(X, y_for(face))
    np.testing.assert_array_equal(finest(pickle.loads(pickle.dumps(model)), X), finest(model, X))


BAD = [
    ({"n_components": 0}, "n_components must be 'auto' or an integer of at least 1, got 0"),
    ({"n_components": "many"}, "n_components must be 'auto' or an integer of at least 1, got 'many'"),
    ({"n_components": True}, "n_components must be 'auto' or an integer of at least 1, got True"),
    ({"covariance_type": "round"}, "covariance_type must be 'spherical', .* or 'diag', got 'round'"),
    ({"covariance_type": ["full"]}, "covariance_type must be 'spherical', .* or 'diag', got \\['full'\\]"),
    ({"time_budget": 0}, "time_budget must be None or a positive number of seconds, got 0"),
    ({"covariance_floor": 0}, "covariance_floor must be a number of at least 1e-12 and below 1, got 0"),
    ({"init": "best"}, "init must be 'k-means\\+\\+', 'random', .*, got 'best'"),
    ({"n_folds": 1}, "n_folds must be an integer of at least 2, got 1"),
    ({"tol": -1}, "tol must be a number of at least 0, got -1"),
    ({"regularization": np.nan}, "regularization must be 'auto' or a number of at least 0, got nan"),
    ({"scale_inputs": "all"}, "scale_inputs must be True or False or 'standard', got 'all'"),
    ({"callbacks": [3]}, "callbacks must be None or a function or several"),
]


@pytest.mark.parametrize(("options", "sentence"), BAD, ids=lambda value: str(value)[:40])
def test_bad_parameters_are_refused_in_a_sentence(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        ENRBFClassifier(**options).fit(X, LABELS)


def test_a_training_that_does_not_exist_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match=r"training must be 'leave-one-out', 'em', .* or 'gradient', got 'online'"):
        NRBFRegressor(training="online").fit(X, Y)


# --- pictures ---------------------------------------------------------------------------------------


def test_pictures_show_gates_slopes_and_boundaries():
    import matplotlib.pyplot as plt

    flat, y = make_sin2(random_state=0)
    short: dict[str, Any] = {"n_init": 1, "max_iter": 20, "random_state": 0}
    curve = ENRBFRegressor(3, training="em", **short).fit(flat, y)
    assert len(plot_gates(curve, flat).lines) == 3
    assert len(plot_slopes(curve, flat, y).lines) == 5  # rows, three local lines, the whole
    lines = ENRBFRegressor(2, **short).fit(X, Y)
    assert plot_slopes(lines).images[0].get_array().shape == (2, 3)
    plane, labels = make_three_gaussians(random_state=0)
    for kind in ("full", "diagonal"):
        model = ENRBFClassifier(3, training="em", covariance_type=kind, **short).fit(plane, labels)
        assert len(plot_gates(model).lines) == 6  # an ellipse and a centre each
        assert len(plot_boundary(model, plane, labels, truth=THREE_GAUSSIANS.posterior).collections) == 2
    with pytest.raises(ValueError, match="the number of inputs must be 2 for a boundary, got 3"):
        plot_boundary(ENRBFClassifier(1, training="em").fit(X, LABELS), X)
    plt.close("all")
