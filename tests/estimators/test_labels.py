"""Several labels per row: a matrix of zeros and ones as `y` of boosted and greedy classifiers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import make_multilabel_classification
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_val_score

import mercer
from mercer.kernels import Gaussian

pytestmark = pytest.mark.usefixtures("two_folds")

FIXED: dict[str, Any] = {"kernel": Gaussian(3.0), "regularization": 0.1, "random_state": 0}
MODELS = [
    mercer.KernelBoostingClassifier(**FIXED),
    mercer.KernelBoostingClassifier(n_learners=4, learner_size=10, **FIXED),
    mercer.GreedyKernelClassifier(20, **FIXED),
]
X, Y = make_multilabel_classification(400, n_features=6, n_classes=3, random_state=0)
X_test, Y_test, X, Y = X[200:], Y[200:], X[:200], Y[:200]


@pytest.mark.parametrize("model", MODELS)
def test_all_answers_agree_and_beat_frequencies(model):
    fitted = clone(model).fit(X, Y)
    p, labels = fitted.predict_proba(X_test), fitted.predict(X_test)
    assert p.shape == labels.shape == Y_test.shape
    assert labels.dtype == Y.dtype
    np.testing.assert_array_equal(labels, fitted.decision_function(X_test) > 0)
    np.testing.assert_array_equal(labels[p != 0.5], p[p != 0.5] > 0.5)
    assert fitted.score(X_test, Y_test) == (labels == Y_test).all(1).mean()
    for k in range(3):
        assert log_loss(Y_test[:, k], p[:, k]) < log_loss(Y_test[:, k], np.full(len(p), Y[:, k].mean()))


def test_an_exact_fit_is_that_of_the_regressor_on_the_codes():
    codes = 2.0 * Y - 1
    numbers = mercer.KernelBoostingRegressor(**FIXED).fit(X, codes).predict(X_test)
    np.testing.assert_allclose(clone(MODELS[0]).fit(X, Y).decision_function(X_test), numbers, atol=1e-10)


def test_labels_share_one_selection():
    fitted = mercer.KernelBoostingClassifier(kernel="gaussian", tuning_rows=100, random_state=0).fit(X, Y)
    assert all(part.weights.shape == (200, 3) for part in fitted.expansions_)


@pytest.mark.parametrize("model", MODELS)
def test_files_graphs_and_frames_give_the_same_answers(model, tmp_path):
    fitted = clone(model).fit(X, Y)
    expected = fitted.predict_proba(X_test)
    frame, new = (pd.DataFrame(rows, columns=list("abcdef")) for rows in (X, X_test))
    labels = pd.DataFrame(Y, columns=["red", "green", "blue"])
    np.testing.assert_allclose(clone(model).fit(frame, labels).predict_proba(new), expected, rtol=1e-10)
    np.testing.assert_array_equal(clone(model).fit(X, csr_array(Y)).predict_proba(X_test), expected)
    np.testing.assert_array_equal(clone(model).fit(X, Y.astype(bool)).predict_proba(X_test), expected)
    fitted.save(tmp_path / "labels.mercer")
    loaded = mercer.load(tmp_path / "labels.mercer")
    np.testing.assert_array_equal(loaded.predict_proba(X_test), expected)
    np.testing.assert_array_equal(loaded.classes_, [[0, 1]] * 3)
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(mercer.to_onnx(fitted, dtype="float64").SerializeToString())
    present, p = session.run(["label", "probabilities"], {"X": X_test})
    np.testing.assert_array_equal(present, fitted.predict(X_test))
    np.testing.assert_allclose(p, expected, atol=1e-8)


def test_weights_count_rows():
    weight = np.random.default_rng(0).integers(0, 3, len(X)).astype(float)
    rows = np.repeat(np.arange(len(X)), weight.astype(int))
    weighted = clone(MODELS[0]).fit(X, Y, sample_weight=weight)
    repeated = clone(MODELS[0]).fit(X[rows], Y[rows])
    np.testing.assert_allclose(weighted.decision_function(X_test), repeated.decision_function(X_test), atol=1e-8)


def test_new_rows_change_the_model_as_a_refit_would():
    model = mercer.KernelBoostingClassifier(kernel=Gaussian(3.0), updatable=True, random_state=0)
    fitted = clone(model).fit(X[:150], Y[:150])
    before = fitted.decision_function(X_test)
    fitted.partial_fit(X[150:], Y[150:])
    sums = mercer.KernelBoostingRegressor(kernel=Gaussian(3.0), updatable=True, random_state=0)
    sums.fit(X[:150], 2.0 * Y[:150] - 1).partial_fit(X[150:], 2.0 * Y[150:] - 1)
    np.testing.assert_allclose(fitted.decision_function(X_test), sums.predict(X_test), atol=1e-8)
    assert np.abs(fitted.decision_function(X_test) - before).max() > 1e-3


def test_two_labels_are_scored_by_scikit_learn():
    scores = cross_val_score(clone(MODELS[0]), X, Y[:, :2], scoring="roc_auc", cv=2, error_score="raise")
    assert (scores > 0.6).all()


def test_a_constant_label_stays_constant():
    labels = np.column_stack([Y[:, 0], np.ones(len(Y), int), np.zeros(len(Y), int)])
    fitted = clone(MODELS[0]).fit(X, labels)
    np.testing.assert_array_equal(fitted.predict(X_test)[:, 1:], [[1, 0]] * len(X_test))
    p = fitted.predict_proba(X_test)
    assert ((p > 0) & (p < 1)).all()


def test_validation_rows_and_uncertainty_have_a_column_for_each_label():
    fitted = mercer.KernelBoostingClassifier(n_learners=4, learner_size=10, **FIXED)
    fitted.fit(X, Y, X_val=X_test[:100], y_val=Y_test[:100])
    assert len(fitted.history_["validation"])
    found = fitted.predict_uncertainty(X_test[:4])
    assert found.noise.shape == found.model.shape == (4, 3)
    np.testing.assert_allclose(found.total, found.noise + found.model, atol=1e-12)


def test_influence_of_a_row_is_that_of_a_solution_without_it():
    fitted = clone(MODELS[0]).fit(X, Y)
    effects = fitted.row_influence(X_test[:1], X, Y)
    assert effects.shape == (1, 200, 3)
    rows, new = (fitted.inputs_.encode(torch.as_tensor(part)) for part in (X[1:], X_test[:1]))
    K = fitted.kernel_(rows, rows).numpy() + fitted.regularization_ * np.eye(199)
    values = fitted.kernel_(new, rows).numpy() @ np.linalg.solve(K, fitted.targets_.encode(Y[1:]))
    expected = fitted.decision_function(X_test[:1]) - fitted.targets_.decisions(values)
    np.testing.assert_allclose(effects[0, 0], expected[0], atol=1e-8)


@pytest.mark.parametrize(
    ("change", "y", "words"),
    [
        ({}, np.where(Y == 1, 2, 0), "y must be of zeros and ones where it has several columns"),
        ({}, np.where(Y == 1, "a", "b"), "y must be of zeros and ones where it has several columns"),
        ({"class_weight": "balanced"}, Y, "class_weight must be None where rows have several labels, got 'balanced'"),
        ({"loss": "logistic"}, Y, "loss must be 'squared' where rows have several labels"),
        ({"focus": "margin"}, Y, "focus must be None for regression and for several labels"),
    ],
)
def test_what_labels_do_not_allow_is_refused_in_a_sentence(change, y, words):
    with pytest.raises(ValueError, match=words):
        clone(MODELS[0]).set_params(**change).fit(X, y)


def test_answers_of_single_classes_are_refused_in_a_sentence():
    fitted = clone(MODELS[0]).fit(X, Y)
    with pytest.raises(ValueError, match="one class for each row to have prediction sets"):
        fitted.predict_set(X_test)
    with pytest.raises(ValueError, match="y_test must be of one class for each row for a report"):
        mercer.report(fitted, X_test, Y_test)
    with pytest.raises(ValueError, match="y must be of 3 labels for each row as in fit"):
        fitted.row_influence(X_test, X, Y[:, 0])
    with pytest.raises(ValueError, match=r"one class for each row \(for several labels: sklearn.multioutput.Multi"):
        mercer.MHKSClassifier().fit(X, Y)
