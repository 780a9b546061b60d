"""`partial_fit`: new rows give the weights of a refit on all rows with the same kernels, basis and penalties."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimators_partial_fit_n_features

import mercer
from mercer import kernels

pytestmark = pytest.mark.usefixtures("two_folds", "short_selections")

FIXED = {"kernel": kernels.Gaussian(1.0), "regularization": 0.1, "updatable": True, "dtype": "float64"}
MODELS = {
    "exact": mercer.KernelBoostingRegressor(n_basis=None, random_state=0, **FIXED),
    "compressed": mercer.KernelBoostingRegressor(n_basis=25, random_state=0, **FIXED),
    "boosted": mercer.KernelBoostingRegressor(4, learner_size=10, random_state=0, **FIXED),
    "greedy": mercer.GreedyKernelRegressor(25, random_state=0, **FIXED),
    "selected kernels": mercer.KernelBoostingRegressor(updatable=True, random_state=0, dtype="float64"),
    "classes": mercer.KernelBoostingClassifier(n_basis=25, random_state=0, **FIXED),
}
over_models = pytest.mark.parametrize("name", MODELS)


def noisy(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    return X, 5 + 3 * np.sin(2 * X[:, 0]) + 0.6 * rng.normal(size=n)


def table(name: str, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X, y = noisy(n)
    weight = np.random.default_rng(1).uniform(0.5, 3.0, n)
    return X, np.digitize(y, [3.5, 6.5]) if name == "classes" else y, weight


def values(model, X) -> np.ndarray:
    return model.decision_function(X) if hasattr(model, "decision_function") else model.predict(X)


def refit(model, X, y, weight, X_new) -> tuple[np.ndarray, float]:
    """Values of ridge regression on the model's basis vectors by least squares, and a bound of their rounding.

    In whitened coordinates the system has a condition number of at most 1 + total weight · k(x, x)/λ; solving it in
    float64 loses that many units of rounding, times the number of terms in its sums.
    """
    Y = model.targets_.encode(y)
    total, bound = np.zeros((len(X_new), Y.shape[1])), 0.0
    for expansion, objective, kept in zip(model.expansions_, model._objectives, model._statistics, strict=True):
        Z, B, like = torch.as_tensor(expansion.basis), kept.map, torch.empty(0, dtype=torch.float64)
        rows, new = (expansion.inputs.kernel_rows(torch.as_tensor(part), like) for part in (X, X_new))
        root = np.sqrt(objective.unit * weight)[:, None]
        ridge = np.sqrt(objective.lam) * np.eye(B.shape[1])
        A = np.concatenate([root * (expansion.kernel(rows, Z).numpy() @ B), ridge])
        v = np.linalg.lstsq(A, np.concatenate([root * Y, np.zeros((B.shape[1], Y.shape[1]))]), rcond=None)[0]
        total += objective.share * expansion.kernel(new, Z).numpy() @ B @ v
        condition = 1 + float((root**2).sum()) * float(expansion.kernel.diag(Z).max()) / objective.lam
        bound += np.finfo(float).eps * len(X) * condition * float(np.abs(Y).max())
    decisions = model.targets_.decisions(total) if hasattr(model, "classes_") else model.targets_.decode(total)
    return decisions, bound * getattr(model.targets_, "scale", 1.0)


@over_models
def test_new_rows_give_the_weights_of_a_refit(name):
    X, y, weight = table(name, 300)
    model = clone(MODELS[name]).fit(X[:120], y[:120], sample_weight=weight[:120])
    before = values(model, X)
    for start in range(120, 300, 60):
        part = slice(start, start + 60)
        model = model.partial_fit(X[part], y[part], sample_weight=weight[part])
    expected, bound = refit(model, X, y, weight, X)
    assert bound < 1e-5 * np.ptp(before)
    np.testing.assert_allclose(values(model, X), expected, rtol=0, atol=bound)
    assert np.abs(values(model, X) - before).max() > 100 * bound, "new rows change the model"
    np.testing.assert_array_equal(model.dual_coef_, model.expansions_[0].weights)


def test_several_outputs_are_updated():
    X, y = noisy(200)
    Y = np.stack([y, X[:, 1] - y], 1)
    model = clone(MODELS["greedy"]).fit(X[:100], Y[:100]).partial_fit(X[100:], Y[100:])
    expected, bound = refit(model, X, Y, np.ones(200), X)
    np.testing.assert_allclose(model.predict(X), expected, rtol=0, atol=bound)


def test_more_rows_lower_the_error():
    """Noise of 0.6 on 60 rows and on 2000: the error of 25 weights falls as their number over that of the rows."""
    X, y = noisy(2000)
    X_new = noisy(1000, seed=5)[0]
    truth = 5 + 3 * np.sin(2 * X_new[:, 0])
    model = clone(MODELS["greedy"]).fit(X[:60], y[:60])
    first = np.sqrt(np.mean((model.predict(X_new) - truth) ** 2))
    model.partial_fit(X[60:], y[60:])
    assert np.sqrt(np.mean((model.predict(X_new) - truth) ** 2)) < 0.5 * first


@over_models
def test_an_update_survives_a_file(name, tmp_path):
    X, y, _ = table(name, 160)
    model = clone(MODELS[name]).fit(X[:100], y[:100])
    model.save(tmp_path / "m.mercer")
    again = mercer.load(tmp_path / "m.mercer").partial_fit(X[100:], y[100:])
    np.testing.assert_array_equal(values(again, X), values(model.partial_fit(X[100:], y[100:]), X))
    again.save(tmp_path / "n.mercer")
    np.testing.assert_array_equal(values(mercer.load(tmp_path / "n.mercer"), X), values(again, X))


def test_a_model_that_is_not_fitted_is_fitted_and_an_updated_one_can_be_fitted_again():
    X, y = noisy(100)
    fitted = clone(MODELS["exact"]).fit(X, y)
    model = clone(MODELS["exact"]).partial_fit(X, y)
    np.testing.assert_array_equal(model.predict(X), fitted.predict(X))
    model.partial_fit(X, y + 1).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), fitted.predict(X))
    check_estimators_partial_fit_n_features("KernelBoostingRegressor", clone(MODELS["exact"]))
    check_estimators_partial_fit_n_features("KernelBoostingClassifier", clone(MODELS["classes"]))


def test_a_model_of_a_constant_is_updated():
    X, y = noisy(60)
    model = clone(MODELS["exact"]).fit(X, np.zeros(60)).partial_fit(X, y)
    assert np.corrcoef(model.predict(X), y)[0, 1] > 0.8


def test_rows_far_from_all_basis_vectors_are_reported():
    X, y = noisy(100)
    model = clone(MODELS["exact"]).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(*noisy(50, seed=1))
    with pytest.warns(UserWarning, match="20 of 50 rows are far from all basis vectors"):
        model.partial_fit(X[:50] + np.where(np.arange(50) < 20, 100.0, 0.0)[:, None], y[:50])


def test_far_rows_become_basis_vectors_if_asked_and_the_model_is_that_of_a_refit(tmp_path):
    """New rows at distance 100, where kernels of the old ones are zero, so that their statistics are exact."""
    X, y = noisy(150)
    far = noisy(150, seed=1)[0] + 100.0
    z = np.cos(2 * (far[:, 0] - 100.0)) + 4.0
    model = clone(MODELS["greedy"]).set_params(scale_inputs=False).fit(X, y)
    n_before = len(model.basis_)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(far, z, grow=True)
    n_after = len(model.basis_)
    assert n_before < n_after < n_before + 40, "basis vectors are as far apart as the kernel needs"
    assert len(model.basis_indices_) == len(model.expansions_[0].basis) == n_after
    assert (model.basis_indices_[n_before:] == -1).all()
    np.testing.assert_allclose(model.basis_[n_before:], model.expansions_[0].basis[n_before:], atol=1e-5)
    both = np.concatenate([X, far]), np.concatenate([y, z])
    expected, bound = refit(model, *both, np.ones(300), both[0])
    np.testing.assert_allclose(model.predict(both[0]), expected, rtol=0, atol=bound)
    assert np.corrcoef(model.predict(far), z)[0, 1] > 0.95
    model.partial_fit(*noisy(50, seed=3), grow=True)
    assert len(model.basis_) == n_after, "near rows join no basis"
    model.save(tmp_path / "m.mercer")
    np.testing.assert_array_equal(mercer.load(tmp_path / "m.mercer").predict(far), model.predict(far))


def test_uncertainty_falls_with_new_rows():
    X, y = noisy(100)
    model = clone(MODELS["exact"]).fit(X, y)
    before = model.predict_uncertainty(X).model
    for seed in range(1, 5):
        model.partial_fit(*noisy(200, seed=seed))
    assert np.median(model.predict_uncertainty(X).model) < 0.7 * np.median(before)


def test_bad_input_is_refused_in_a_sentence_and_leaves_the_model():
    X, y, _ = table("classes", 100)
    model = clone(MODELS["classes"]).fit(X, y)
    before = model.decision_function(X)
    cases = [
        ((X, np.full(100, 9)), {}, "y must be of the classes"),
        ((X, y[:-1]), {}, "y must be of the length of X, 100, got 99"),
        ((X[:, :1], y), {}, "features"),
        ((X, y), {"classes": [0, 1, 2, 3]}, "classes must be of the classes"),
        ((X, y, -np.ones(100)), {}, "sample_weight must be non-negative"),
        ((X, y), {"grow": "yes"}, "grow must be True or False, got 'yes'"),
    ]
    for given, options, sentence in cases:
        with pytest.raises(ValueError, match=sentence):
            model.partial_fit(*given, **options)
    np.testing.assert_array_equal(model.decision_function(X), before)


def test_models_that_cannot_be_updated_say_so():
    X, y = noisy(80)
    assert not hasattr(mercer.KernelBoostingRegressor(), "partial_fit")
    with pytest.raises(AttributeError) as refused:
        mercer.KernelBoostingRegressor().partial_fit(X, y)
    assert "updatable must be True before fit" in str(refused.value.__cause__)
    cases = [
        (mercer.KernelBoostingRegressor(loss="pinball", **FIXED), y, "updatable must be False unless the loss is"),
        (mercer.GreedyKernelRegressor(5, update="qr", **FIXED), y, "updatable must be False unless the penalty is"),
        (
            mercer.KernelBoostingClassifier(class_weight="balanced", **FIXED),
            y > 5,
            "class_weight must be None or a dict",
        ),
        (
            mercer.KernelBoostingRegressor(kernel="precomputed", updatable=True),
            y[:2],
            "where the kernel is precomputed",
        ),
        (mercer.KernelBoostingRegressor(updatable="yes"), y, "updatable must be"),
    ]
    for model, targets, sentence in cases:
        with pytest.raises(ValueError, match=sentence):
            model.fit(X[: len(targets)], targets)
    model = clone(MODELS["exact"]).set_params(updatable=False).fit(X, y).set_params(updatable=True)
    with pytest.raises(ValueError, match="the model must be fitted with updatable=True for partial_fit"):
        model.partial_fit(X, y)
    small = mercer.compress(clone(MODELS["exact"]).fit(X, y), X, y, n_basis=10)
    with pytest.raises(ValueError, match="the model must be fitted with updatable=True for partial_fit"):
        small.partial_fit(X, y)
    assert len(small.fit(X, y).basis_) == 80, "a compressed copy can be fitted again"
