"""Uncertainty of predictions: noise and model are those of a Gaussian process, calibrated on held-out rows."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

import mercer
from mercer import kernels

KERNEL = {"kernel": kernels.Gaussian(0.7), "regularization": 0.05, "scale_inputs": False, "random_state": 0}
MODELS = {
    "exact": mercer.KernelBoostingRegressor(n_basis=None, **KERNEL),
    "compressed": mercer.KernelBoostingRegressor(n_basis=60, **KERNEL),
    "greedy": mercer.GreedyKernelRegressor(60, **KERNEL),
    "selected kernels": mercer.KernelBoostingRegressor(random_state=0),
    "gp": mercer.SparseGPRegressor(40, kernel="gaussian", max_iter=20, random_state=0),
    "members": mercer.RPEMEKLRegressor(random_state=0),
    "local constants": mercer.NRBFRegressor(random_state=0),
    "local lines": mercer.ENRBFRegressor(random_state=0),
}
over_models = pytest.mark.parametrize("name", MODELS)


def smooth(n: int, seed: int, noise: float = 0.2) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    f = np.sin(2 * X[:, 0]) * X[:, 1]
    return X, f, f + noise * rng.normal(size=n)


@cache
def fitted(name: str) -> Any:
    """The model of the same 300 rows for every test that asks it."""
    X, _, y = smooth(300, 0)
    return clone(MODELS[name]).fit(X, y)


def test_an_exact_solution_has_the_deviations_of_a_gaussian_process_up_to_one_factor():
    X, _, y = smooth(200, 0)
    X_new = np.random.default_rng(1).uniform(-5, 5, (100, 2))
    found = mercer.KernelBoostingRegressor(n_basis=None, **KERNEL).fit(X, y).predict_uncertainty(X_new)
    process = GaussianProcessRegressor(RBF(0.7), alpha=0.05, optimizer=None).fit(X, y)
    ratio = found.model / process.predict(X_new, return_std=True)[1]
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-6)


@over_models
@pytest.mark.usefixtures("two_folds")
def test_noise_and_model_are_of_the_size_of_the_errors_they_stand_for(name):
    """Noise of 0.2; errors of the function at 1000 new rows inside, within a factor of two of what the model says."""
    X_new, f, _ = smooth(1000, 1)
    model = fitted(name)
    found = model.predict_uncertainty(X_new)
    assert np.sqrt(np.mean(found.noise**2)) == pytest.approx(0.2, rel=0.3)
    said, seen = np.sqrt(np.mean(found.model**2)), np.sqrt(np.mean((model.predict(X_new) - f) ** 2))
    assert 0.5 < said / seen < 2.0
    np.testing.assert_allclose(found.total**2, found.noise**2 + found.model**2)


@over_models
@pytest.mark.usefixtures("two_folds")
def test_far_rows_are_uncertain(name):
    X_new, _, _ = smooth(200, 1)
    model = fitted(name)
    near, far = model.predict_uncertainty(X_new), model.predict_uncertainty(X_new + 50.0)
    assert far.outside.all()
    assert near.outside.mean() < 0.2
    assert np.median(far.model) > 5 * np.median(near.model)
    assert (far.distance > near.distance).all()


def test_noise_follows_the_local_size_of_residuals():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (800, 2))
    y = np.sin(2 * X[:, 0]) + np.where(X[:, 0] > 0, 0.5, 0.1) * rng.normal(size=800)
    model = mercer.KernelBoostingRegressor(kernel="gaussian", random_state=0).fit(X, y)
    noise = model.predict_uncertainty(X).noise
    assert noise[X[:, 0] > 0.3].mean() > 2 * noise[X[:, 0] < -0.3].mean()


@pytest.mark.usefixtures("two_folds")
def test_units_outputs_and_mixed_tables():
    X, _, y = smooth(200, 0)
    model = mercer.GreedyKernelRegressor(20, **KERNEL)
    one = model.fit(X, y).predict_uncertainty(X)
    scaled = model.fit(X, 1000 * y + 7).predict_uncertainty(X)
    np.testing.assert_allclose(scaled.total, 1000 * one.total, rtol=1e-6)
    two = model.fit(X, np.stack([y, -y], 1)).predict_uncertainty(X)
    assert two.noise.shape == two.model.shape == two.total.shape == (200, 2)
    assert two.distance.shape == (200,)
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(k=np.where(y > 0, "up", "down"))
    found = mercer.KernelBoostingRegressor(kernel="gaussian", random_state=0).fit(frame, y).predict_uncertainty(frame)
    assert np.isfinite(found.total).all()


@pytest.mark.usefixtures("two_folds")
def test_kernels_without_a_distance_have_none():
    X, _, y = smooth(80, 0)
    how = {"regularization": 0.1, "random_state": 0}
    model = mercer.GreedyKernelRegressor(20, kernel=lambda A, B: (1 + A @ B.T) ** 2, **how).fit(X, y)
    found = model.predict_uncertainty(X)
    assert np.isnan(found.distance).all()
    assert not found.outside.any()


@pytest.mark.usefixtures("two_folds")
def test_members_of_all_rows_have_the_deviations_of_a_gaussian_process_up_to_one_factor():
    X, _, y = smooth(150, 0)
    X_new = np.random.default_rng(1).uniform(-5, 5, (100, 2))
    both = [kernels.Gaussian(0.7), kernels.Gaussian(2.0)]
    model = mercer.RPEMEKLRegressor(both, 0.05, n_members=1, subset_size=None, scale_inputs=False).fit(X, y)
    process = GaussianProcessRegressor(0.5 * RBF(0.7) + 0.5 * RBF(2.0), alpha=0.05, optimizer=None).fit(X, y)
    ratio = model.predict_uncertainty(X_new).model / process.predict(X_new, return_std=True)[1]
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-5)


@pytest.mark.usefixtures("two_folds")
def test_one_local_line_has_the_deviations_of_ridge_regression_up_to_one_factor():
    X, _, y = smooth(100, 0)
    X_new = np.random.default_rng(1).uniform(-5, 5, (50, 2))
    model = mercer.ENRBFRegressor(1, training="em", regularization=3.0).fit(X, y)
    Z, Z_new = ((np.column_stack([np.ones(len(A)), (A - X.mean(0)) / X.std(0)])) for A in (X, X_new))
    variance = np.einsum("ni,ij,nj->n", Z_new, np.linalg.inv(Z.T @ Z + 3.0 * np.eye(3)), Z_new)
    ratio = model.predict_uncertainty(X_new).model / np.sqrt(variance)
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-9)


@pytest.mark.usefixtures("two_folds")
def test_a_mixture_of_too_many_weights_says_so(monkeypatch):
    monkeypatch.setattr("mercer.mixture.uncertainty.MAX_WEIGHTS", 5)
    X, _, y = smooth(60, 0)
    model = mercer.ENRBFRegressor(2, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="of at most 5 output weights for predict_uncertainty"):
        model.predict_uncertainty(X)


CLASSIFIERS = {
    "squared": mercer.KernelBoostingClassifier(kernel="gaussian", tuning_rows=150, loss="squared", random_state=0),
    "likelihood": mercer.KernelBoostingClassifier(kernel="gaussian", tuning_rows=150, loss="logistic", random_state=0),
    "greedy": mercer.GreedyKernelClassifier(30, kernel="gaussian", tuning_rows=150, random_state=0),
    "gp": mercer.SparseGPClassifier(20, kernel="gaussian", tuning_rows=150, max_iter=8, random_state=0),
    "softmax": mercer.SparseGPClassifier(
        20, kernel="gaussian", tuning_rows=150, max_iter=8, multi_class="softmax", random_state=0
    ),
}


def overlapping(n: int, seed: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Two classes with a border at x₀ = 0, and a third far from them."""
    rng = np.random.default_rng(seed)
    third = rng.random(n) < (n_classes == 3) / 3
    X = 1.5 * rng.normal(size=(n, 2)) + np.where(third, 12.0, 0.0)[:, None]
    return X, np.where(third, 2, (rng.random(n) < 1 / (1 + np.exp(-3 * X[:, 0]))).astype(int))


@pytest.mark.parametrize(
    ("name", "n_classes"),
    [*((name, 3) for name in CLASSIFIERS), *(pytest.param(name, 2, marks=pytest.mark.long) for name in CLASSIFIERS)],
)
@pytest.mark.usefixtures("two_folds")
def test_entropy_is_noise_where_classes_overlap_and_the_model_where_rows_are_missing(name, n_classes):
    X, y = overlapping(400, 0, n_classes)
    model = CLASSIFIERS[name].fit(X, y)
    X_new, y_new = overlapping(400, 1, n_classes)
    near, far = model.predict_uncertainty(X_new), model.predict_uncertainty(X_new + np.array([[-200.0, -200.0]]))
    np.testing.assert_allclose(near.total, near.noise + near.model, atol=1e-12)
    assert (near.total <= np.log(n_classes) + 1e-12).all()
    border = (np.abs(X_new[:, 0]) < 0.2) & (y_new < 2)
    assert np.median(near.noise[border]) > 0.75 * np.log(2), "equally probable classes have an entropy of log 2"
    assert np.median(near.noise[border]) > 3 * np.median(near.model[border])
    assert np.median(near.total[np.abs(X_new[:, 0]) > 1.5]) < 0.5 * np.median(near.total[border])
    assert np.median(far.model) > 2 * np.median(near.model)
    few = np.isnan(near.distance).all()  # basis vectors: fewer than ten have no reach
    assert few or np.median(far.distance) > np.median(near.distance)


LOCAL_CLASSIFIERS = {
    "pairs": mercer.MHKSClassifier("gaussian", 1.0, random_state=0),
    "one against the rest": mercer.RPEMEKLClassifier("paper", 1.0, 1.0, n_members=2, multiclass="ovr", random_state=0),
    "activations": mercer.NRBFClassifier(8, random_state=0),
    "local logistic models": mercer.ENRBFClassifier(3, random_state=0),
    "densities": mercer.GaussianMixtureClassifier(2, n_init=1, random_state=0),
    "shares": mercer.CommonBasisMixtureClassifier(8, random_state=0),
}


@pytest.mark.parametrize(("name", "n_classes"), [*((name, 3) for name in LOCAL_CLASSIFIERS), ("activations", 2)])
@pytest.mark.usefixtures("two_folds")
def test_votes_and_mixtures_divide_their_entropy_and_find_far_rows(name, n_classes):
    X, y = overlapping(200, 0, n_classes)
    model = LOCAL_CLASSIFIERS[name].fit(X, y)
    X_new, y_new = overlapping(400, 1, n_classes)
    near, far = model.predict_uncertainty(X_new), model.predict_uncertainty(X_new - 200.0)
    np.testing.assert_allclose(near.total, near.noise + near.model, atol=1e-12)
    assert (near.total <= np.log(n_classes) + 1e-12).all()
    border, clear = (np.abs(X_new[:, 0]) < 0.2) & (y_new < 2), (np.abs(X_new[:, 0]) > 1.5) & (y_new < 2)
    assert np.median(near.total[border]) > np.median(near.total[clear])
    assert np.median(near.noise[border]) > np.median(near.model[border])
    assert far.outside.all()
    assert near.outside.mean() < 0.2


@pytest.mark.usefixtures("two_folds")
def test_more_rows_lower_the_information_about_the_function():
    """The variance of log odds falls as one over the rows, and so does the mutual information."""
    few, many = (
        mercer.NRBFClassifier(4, random_state=0)
        .fit(*overlapping(n, 0, 2))
        .predict_uncertainty(overlapping(300, 1, 2)[0])
        for n in (100, 1600)
    )
    assert np.mean(many.model) < 0.2 * np.mean(few.model)


@pytest.mark.usefixtures("two_folds")
def test_deviations_of_a_likelihood_are_those_of_laplaces_method():
    """Kernel logistic regression is the mode of a Gaussian process of variance k/λ; all rows are basis vectors."""
    X, y = overlapping(150, 0, 2)
    k = {"scale_inputs": False, "random_state": 0}
    model = mercer.KernelBoostingClassifier(kernel=kernels.Gaussian(1.0), regularization=0.25, loss="logistic", **k)
    process = mercer.SparseGPClassifier(kernel=4.0 * kernels.Gaussian(1.0), approximation="full", max_iter=0, **k)
    X_new = np.random.default_rng(1).uniform(-4, 4, (100, 2))
    deviation = model.fit(X, y)._deviation(X_new)[:, 0]
    mean, cov = process.fit(X, y).latent_mean_and_covariance(X_new)
    np.testing.assert_allclose(model.decision_function(X_new), mean[:, 0], atol=0.02)
    ratio = deviation / np.sqrt(cov[:, 0, 0])  # differs by the curvature of single rows, of which the mean is taken
    assert np.median(ratio) == pytest.approx(1.0, abs=0.05)
    assert 0.5 < ratio.min() < ratio.max() < 2.0


@pytest.mark.usefixtures("two_folds")
def test_the_report_has_the_share_of_noise():
    X, _, y = smooth(200, 0)
    X_new, _, y_new = smooth(100, 1)
    numbers = mercer.report(MODELS["exact"].fit(X, y), X_new, y_new).to_dict()
    found = MODELS["exact"].predict_uncertainty(X_new)
    share = np.sum(found.noise**2) / np.sum(found.total**2)
    assert numbers["trust"]["noise_share"] == pytest.approx(share)


@pytest.mark.usefixtures("two_folds")
def test_models_without_it_say_so():
    X, _, y = smooth(80, 0)
    quantile = mercer.KernelBoostingRegressor(loss="pinball", **KERNEL).fit(X, y)
    with pytest.raises(ValueError, match="loss must be squared for predict_uncertainty"):
        quantile.predict_uncertainty(X)
    K = np.exp(-0.5 * np.square(X[:, None] - X).sum(-1))
    precomputed = mercer.KernelBoostingRegressor(kernel="precomputed", regularization=0.1).fit(K, y)
    classes = mercer.KernelBoostingClassifier(kernel="precomputed", regularization=0.1).fit(K, y > 0)
    for model in (precomputed, classes):
        with pytest.raises(ValueError, match="kernel must be other than 'precomputed'"):
            model.predict_uncertainty(K)
