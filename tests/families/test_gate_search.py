"""Gates, sizes and penalties of mixtures by leave-one-out errors: formulas beside refits, and what defaults reach."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mercer import CommonBasisMixtureClassifier, ENRBFClassifier, ENRBFRegressor, NRBFClassifier, NRBFRegressor
from mercer.mixture.closed_form import leave_one_out_values, shares_without

rng = np.random.default_rng(0)


def friedman(seed):
    draws = np.random.default_rng(seed)
    X = draws.uniform(size=(1500, 5))
    f = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]
    return X, f + 0.5 * draws.normal(size=1500), f > np.median(f)


def test_leave_one_out_values_are_those_of_ridge_regressions_without_each_row():
    phi, y, weight = rng.normal(size=(15, 4)), rng.normal(size=(15, 2)), rng.uniform(0.5, 2.0, 15)
    found = leave_one_out_values(*map(torch.as_tensor, (phi, y, weight)), [0.1, 2.0]).numpy()
    for lam, values in zip([0.1, 2.0], found, strict=True):
        for row in range(15):
            kept = np.arange(15) != row
            weighted = phi[kept] * weight[kept, None]
            w = np.linalg.solve(weighted.T @ phi[kept] + lam * np.eye(4), weighted.T @ y[kept])
            np.testing.assert_allclose(values[row], phi[row] @ w, atol=1e-10)


def test_leave_one_out_values_without_a_penalty_leave_dependent_columns_out():
    phi, y = rng.normal(size=(15, 4)), rng.normal(size=(15, 1))
    ones = torch.ones(15, dtype=torch.float64)
    plain = leave_one_out_values(torch.as_tensor(phi), torch.as_tensor(y), ones, [0.0])
    twice = leave_one_out_values(torch.as_tensor(np.hstack([phi, phi])), torch.as_tensor(y), ones, [0.0])
    np.testing.assert_allclose(twice, plain, atol=1e-10)


def test_shares_of_classes_are_counted_without_each_row():
    A = rng.dirichlet(np.ones(3), 12).T
    classes, weight = np.eye(2)[rng.integers(0, 2, 12)], rng.uniform(0.5, 2.0, 12)
    found = shares_without(*map(torch.as_tensor, (A, classes, weight))).numpy()
    for row in range(12):
        kept = np.arange(12) != row
        counts = (A * weight)[:, kept] @ classes[kept]
        np.testing.assert_allclose(found[row], A[:, row] @ (counts / counts.sum(1, keepdims=True)), atol=1e-12)


@pytest.mark.parametrize("face", [NRBFRegressor, ENRBFRegressor, NRBFClassifier, ENRBFClassifier])
def test_the_size_is_the_smallest_within_one_standard_error_of_the_best(face):
    X, y, above = friedman(0)
    model = face(random_state=0).fit(X[:300], above[:300] if face in (NRBFClassifier, ENRBFClassifier) else y[:300])
    results = model.cv_results_
    behind = results["mean_test_score"].max() - results["mean_test_score"]
    near = results["param_n_components"][behind <= results["standard_error"]]
    assert model.n_components_ == near.min()
    assert len(results["param_n_components"]) > 3


@pytest.mark.parametrize("face", [NRBFRegressor, ENRBFRegressor], ids=lambda face: face.__name__)
def test_without_arguments_friedmans_function_is_found_but_for_its_noise(face):
    X, y, _ = friedman(1)  # the noise is 1 % of the variance, gradient boosting leaves 5 %
    model = face(random_state=0).fit(X[:500], y[:500])
    assert 1 - model.score(X[500:], y[500:]) < 0.025


@pytest.mark.parametrize(
    ("face", "most"), [(NRBFClassifier, 0.1), (ENRBFClassifier, 0.11), (CommonBasisMixtureClassifier, 0.15)]
)
def test_without_arguments_classes_by_friedmans_function_are_found(face, most):
    X, _, y = friedman(2)  # logistic regression has 14 % wrong, gradient boosting 9 %
    assert 1 - face(random_state=0).fit(X[:500], y[:500]).score(X[500:], y[500:]) < most


def test_one_local_line_is_ridge_regression():
    X, y, _ = friedman(3)
    model = ENRBFRegressor(1, regularization=2.0).fit(X[:100], y[:100])
    Z = (X[:100] - X[:100].mean(0)) / X[:100].std(0)
    t = (y[:100] - y[:100].mean()) / y[:100].std()
    w = np.linalg.solve(Z.T @ Z + 2.0 * np.eye(5), Z.T @ t)
    np.testing.assert_allclose(model.predict(X[:100]), y[:100].mean() + y[:100].std() * Z @ w, atol=1e-8)


@pytest.mark.parametrize("kind", ["spherical", "diagonal", "full", "tied"])
def test_gates_share_one_covariance_of_the_shape_asked_for(kind):
    X, y, _ = friedman(4)
    found = NRBFRegressor(6, covariance_type=kind, random_state=0).fit(X[:200], y[:200]).covariances_
    np.testing.assert_allclose(found, np.broadcast_to(found[0], found.shape), rtol=1e-9)


def test_local_logistic_models_are_fitted_with_the_gates_as_they_are():
    X, _, y = friedman(5)
    model = ENRBFClassifier(4, random_state=0).fit(X[:200], y[:200])
    constant = NRBFClassifier(4, random_state=0).fit(X[:200], y[:200])
    assert model.means_.shape == constant.means_.shape
    np.testing.assert_allclose(model.weights_, 0.25)
    assert (np.diff(model.log_likelihood_path_) >= -1e-9).all()
