"""Influence of training rows: the change of predictions by refits without a row, in closed form."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import mercer
from mercer import kernels
from mercer.plots import plot_influence

pytestmark = pytest.mark.usefixtures("two_folds", "short_selections")

FIXED = {"kernel": kernels.Gaussian(1.0), "regularization": 0.1, "random_state": 0}
MODELS = {
    "exact": mercer.KernelBoostingRegressor(n_basis=None, **FIXED),
    "compressed": mercer.KernelBoostingRegressor(n_basis=25, **FIXED),
    "greedy": mercer.GreedyKernelRegressor(25, **FIXED),
    "selected kernels": mercer.KernelBoostingRegressor(random_state=0),
}


def noisy(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    return X, 5 + 3 * np.sin(2 * X[:, 0]) + 0.6 * rng.normal(size=n)


def refit(model, X, y, weight, X_new) -> np.ndarray:
    """Predictions by ridge regression on the model's basis vectors, by dense least squares."""
    t, total = model.targets_, 0.0
    for expansion, objective in zip(model.expansions_, model._objectives, strict=True):
        Z = torch.as_tensor(expansion.basis)
        like = torch.empty(0, dtype=torch.float64)
        rows, new = (expansion.inputs.kernel_rows(torch.as_tensor(part), like) for part in (X, X_new))
        root = np.sqrt(objective.unit * weight)[:, None]
        spectrum, U = np.linalg.eigh(expansion.kernel(Z, Z).numpy())
        penalty = np.sqrt(objective.lam * spectrum.clip(0))[:, None] * U.T
        A = np.concatenate([root * expansion.kernel(rows, Z).numpy(), penalty])
        b = np.concatenate([root * t.encode(y), np.zeros((len(Z), t.encode(y).shape[1]))])
        a = np.linalg.lstsq(A, b, rcond=1e-13)[0]
        total = total + objective.share * expansion.kernel(new, Z).numpy() @ a
    return t.decode(total)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("outputs", [1, 2])
def test_effects_are_those_of_refits_without_a_row(name, outputs):
    X, y = noisy(120)
    y = y if outputs == 1 else np.stack([y, X[:, 1] - y], 1)
    weight = np.random.default_rng(1).uniform(0.5, 3.0, 120)
    X_new = noisy(7, seed=2)[0]
    model = MODELS[name].fit(X, y, sample_weight=weight)
    effects = model.row_influence(X_new, X, y, weight)
    assert effects.shape == (7, 120) if outputs == 1 else (7, 120, 2)
    whole = refit(model, X, y, weight, X_new)
    np.testing.assert_allclose(model.predict(X_new), whole, rtol=1e-3)
    for i in range(0, 120, 17):
        others = np.arange(120) != i
        without = refit(model, X[others], y[others], weight[others], X_new)
        np.testing.assert_allclose(effects[:, i], whole - without, atol=1e-5 * np.abs(effects).max())


def test_a_row_less_its_own_effect_is_predicted_leave_one_out():
    X, y = noisy(60)
    model = mercer.KernelBoostingRegressor(n_basis=None, **FIXED).fit(X, y)
    own = np.diagonal(model.row_influence(X, X, y))
    alone = [refit(model, np.delete(X, i, 0), np.delete(y, i), np.ones(59), X[[i]])[0] for i in range(60)]
    np.testing.assert_allclose(model.predict(X) - own, alone, atol=1e-4)


def test_effects_of_a_likelihood_are_those_of_refits_to_second_order():
    """Kernel logistic regression beside scikit-learn's, on features whose inner product is the kernel."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 2))
    y = (X[:, 0] + 0.5 * rng.normal(size=150) > 0).astype(int)
    how = {"kernel": kernels.Linear(), "regularization": 2.0, "scale_inputs": False}
    model = mercer.KernelBoostingClassifier(loss="logistic", n_basis=None, **how).fit(X, y)
    effects = model.row_influence(X[:20], X, y)
    features = X / np.sqrt(np.diag(kernels.Linear()(torch.as_tensor(X), torch.as_tensor(X))) / (X**2).sum(1))[:1]

    def decisions(rows):
        fitted = LogisticRegression(C=1 / 2.0, fit_intercept=False, tol=1e-12, max_iter=1000)
        return fitted.fit(features[rows], y[rows]).decision_function(features[:20])

    whole = decisions(np.arange(150))
    np.testing.assert_allclose(model.decision_function(X[:20]), whole, atol=1e-4 * np.abs(whole).max())
    for i in range(0, 150, 13):
        change = whole - decisions(np.delete(np.arange(150), i))
        np.testing.assert_allclose(effects[:, i], change, atol=0.05 * np.abs(change).max() + 1e-5)


@pytest.mark.parametrize("classes", [2, 3])
def test_wrong_labels_are_found(classes):
    """Classes 4σ apart, of which a tenth has another label: leave-one-out decisions contradict these."""
    rng = np.random.default_rng(0)
    true = rng.integers(0, classes, 400)
    X = rng.normal(size=(400, 2)) + 4 * np.array([[0, 0], [1, 0], [0, 1]])[true]
    wrong = rng.random(400) < 0.1
    y = np.where(wrong, (true + 1) % classes, true)
    model = mercer.KernelBoostingClassifier(kernel="gaussian", loss="squared", random_state=0).fit(X, y)
    rows = np.arange(400)
    own = model.row_influence(X, X, y)[rows, rows]
    left_out = model.decision_function(X) - own
    score = -left_out * (2 * y - 1) if classes == 2 else -left_out[rows, y]
    assert roc_auc_score(wrong, score) > 0.97


def test_effects_survive_a_file(tmp_path):
    X, y = noisy(60)
    model = MODELS["compressed"].fit(X, y)
    model.save(tmp_path / "m.mercer")
    again = mercer.load(tmp_path / "m.mercer")
    np.testing.assert_array_equal(again.row_influence(X[:3], X, y), model.row_influence(X[:3], X, y))


def test_the_picture_has_the_rows_of_largest_effect():
    ax = plot_influence(np.array([0.1, -0.9, 0.0, 0.4]), most=3)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["row 0", "row 3", "row 1"]
    assert [bar.get_width() for bar in ax.patches] == [0.1, 0.4, -0.9]


def test_bad_input_is_refused_in_a_sentence():
    X, y = noisy(80)
    model = mercer.KernelBoostingRegressor(**FIXED).fit(X, y)
    cases = [
        ((X, y[::-1]), "X_train and y_train must be those of fit"),
        ((X, y[:-1]), "y_train must be of the length of X_train, 80, got 79"),
        ((X, np.stack([y, y], 1)), "y_train must be of 1 columns as in fit, got 2"),
        ((X[:, :1], y), "features"),
        ((X, y, -np.ones(80)), "sample_weight must be non-negative"),
    ]
    for given, sentence in cases:
        with pytest.raises(ValueError, match=sentence):
            model.row_influence(X[:2], *given)
    quantile = mercer.KernelBoostingRegressor(loss="pinball", **FIXED).fit(X, y)
    with pytest.raises(ValueError, match="loss must be one with a second derivative"):
        quantile.row_influence(X[:2], X, y)
    labels = np.where(y > 5, "high", "low")
    classifier = mercer.GreedyKernelClassifier(10, **FIXED).fit(X, labels)
    with pytest.raises(ValueError, match="y_train must be of the classes"):
        classifier.row_influence(X[:2], X, np.where(y > 5, "high", "none"))
    K = np.exp(-0.5 * np.square(X[:, None] - X).sum(-1))
    precomputed = mercer.KernelBoostingRegressor(kernel="precomputed", regularization=0.1).fit(K, y)
    with pytest.raises(ValueError, match="kernel must be other than 'precomputed'"):
        precomputed.row_influence(K, K, y)
    old = mercer.load(Path(__file__).parents[1] / "golden" / "0.2.0" / "GreedyKernelRegressor.mercer")
    with pytest.raises(ValueError, match="the model must be fitted again to have row_influence"):
        old.row_influence(np.zeros((1, 3)), np.zeros((4, 3)), np.zeros(4))
