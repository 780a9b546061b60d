"""Local logistic models by L-BFGS: the maximum that EM and scikit-learn find, without products of pairs of inputs."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from mercer import ENRBFClassifier
from mercer.mixture import class_experts


def classes_of(n, n_columns, n_classes, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n_columns))
    return X, (X[:, :n_classes] + 0.7 * rng.normal(size=(n, n_classes))).argmax(1)


def test_one_component_of_many_columns_is_logistic_regression():
    X, y = classes_of(120, 100, 3)
    model = ENRBFClassifier(1, regularization=1.0, tol=1e-12, max_iter=500, scale_inputs=False).fit(X, y)
    unit = model.inputs_.scale[0]
    found = LogisticRegression(C=1 / unit**2, tol=1e-10, max_iter=10_000).fit(X, y)  # λ refers to scaled inputs
    np.testing.assert_allclose(model.coef_[0], found.coef_, atol=1e-3)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.usefixtures("two_folds")
def test_gradients_and_newton_steps_end_at_the_same_likelihood(n_classes, monkeypatch):
    """Both start at zero coefficients; the path never falls."""
    X, y = classes_of(150, 4, n_classes)
    setting = {"n_components": 2, "regularization": 1.0, "tol": 1e-10, "max_iter": 2000, "random_state": 0}
    newton = ENRBFClassifier(**setting).fit(X, y)
    monkeypatch.setattr(class_experts.LogisticExperts, "many", property(lambda experts: True))
    gradients = ENRBFClassifier(**setting).fit(X, y)
    assert gradients.log_likelihood_path_[-1] == pytest.approx(newton.log_likelihood_path_[-1], abs=2e-3)
    assert (np.diff(gradients.log_likelihood_path_) > -1e-9).all()


def test_a_fit_of_many_columns_makes_no_products_of_pairs_of_inputs(monkeypatch):
    """The features of a row are its inputs and their squares: 2D + 1 numbers, not D²/2."""
    X, y = classes_of(100, 120, 3)
    widest = []
    of = class_experts.Features.of

    def spy(layout, x, *further):
        found = of(layout, x, *further)
        widest.append(len(found))
        return found

    monkeypatch.setattr(class_experts.Features, "of", spy)
    ENRBFClassifier(random_state=0).fit(X, y)
    assert max(widest, default=0) <= 2 * 120 + 1


def test_irls_to_its_end_finds_a_single_component_in_one_iteration():
    """One component has all responsibility, so its M step alone is a logistic regression."""
    X, y = classes_of(100, 2, 2)
    given: dict = {"training": "em", "regularization": 1.0, "tol": 1e-13}
    found = [
        ENRBFClassifier(1, newton_steps=steps, max_iter=iterations, **given).fit(X, y).coef_
        for steps, iterations in ((100, 1), (1, 50), (1, 1))
    ]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)
    assert abs(found[2] - found[1]).max() > 0.1
