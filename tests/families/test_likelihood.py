"""Exact kernel logistic and softmax regression: against oracles, another library, and in the default classifier."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF
from sklearn.metrics import log_loss

from mercer import KernelBoostingClassifier
from mercer.forward.solve.exact import exact_likelihood
from mercer.kernels import Bias, Gaussian, Linear, Matern32
from mercer.losses import Logistic, Loss, Softmax
from mercer.selection.likelihood import TOLERANCE, KernelLikelihood
from tests.families.test_refinement_stages import problem_of


def classes(n: int, p: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of three inputs, and codes ±1 of two classes (p = 1) or of p classes."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    F = 2 * np.sin(X @ rng.normal(size=(3, p))) + 0.7 * rng.normal(size=(n, p))
    Y = np.where(F > 0, 1.0, -1.0) if p == 1 else np.where(F.max(1, keepdims=True) <= F, 1.0, -1.0)
    return torch.from_numpy(X), torch.from_numpy(Y)


def objective(K: torch.Tensor, Y: torch.Tensor, weight: torch.Tensor, lam: float, loss: Loss, a: torch.Tensor) -> float:
    f = K @ a
    return float((weight[:, None] * loss.value(Y, f)).sum() + 0.5 * lam * (a * f).sum())


@pytest.mark.parametrize(("p", "lam"), [(1, 1.0), (1, 1e-3), (4, 0.1), (4, 1e-3)])
def test_the_objective_is_within_its_tolerance_of_an_autograd_oracle(p: int, lam: float) -> None:
    X, Y = classes(150, p, 1)
    weight = torch.linspace(0.5, 1.5, 150, dtype=torch.float64)
    K, loss = Matern32(length_scale=1.5)(X, X) + 1.0, Softmax() if p > 1 else Logistic()
    found = KernelLikelihood(K, Y, weight, lam, loss).fit()
    root = torch.linalg.cholesky(K + 1e-10 * torch.eye(150, dtype=torch.float64))

    def value_and_gradient(flat: np.ndarray) -> tuple[float, np.ndarray]:
        v = torch.from_numpy(flat).view(150, p).requires_grad_()
        value = (weight[:, None] * loss.value(Y, root @ v)).sum() + 0.5 * lam * v.square().sum()
        value.backward()
        return value.item(), v.grad.numpy().ravel()

    options = {"maxiter": 3000, "maxfun": 6000, "gtol": 1e-10, "ftol": 0.0}
    best = minimize(value_and_gradient, np.zeros(150 * p), jac=True, method="L-BFGS-B", options=options).fun
    excess = objective(K, Y, weight, lam, loss, found.alpha) - best
    # a Newton step that gains less than the tolerance is within a few times that gain of the minimum
    assert -1e-6 * best <= excess <= 10 * TOLERANCE * float(weight.sum())


def test_the_mode_is_that_of_another_librarys_gaussian_process_classifier() -> None:
    X, Y = classes(120, 1, 2)
    K = Gaussian(length_scale=1.0)(X, X)
    found = KernelLikelihood(K, Y, torch.ones(120, dtype=torch.float64), 1.0, Logistic()).fit()
    other = GaussianProcessClassifier(RBF(1.0, "fixed"), optimizer=None).fit(X.numpy(), Y[:, 0].numpy())
    base = other.base_estimator_
    mode = K.numpy() @ (base.y_train_ - base.pi_)
    # the objective is 1-strongly convex in the RKHS norm, which bounds values: |Δf|² ≤ 2 K(x, x) (excess)
    assert np.abs(found.values[:, 0].numpy() - mode).max() <= np.sqrt(2 * 2 * 10 * TOLERANCE * 120)
    assert np.abs(expit(mode) - expit(found.values[:, 0].numpy())).max() < 0.02


@pytest.mark.parametrize("p", [1, 3])
def test_rows_of_weight_zero_are_predicted_as_if_they_had_never_been_there(p: int) -> None:
    X, Y = classes(90, p, 3)
    K, loss, lam = Matern32()(X, X), Softmax() if p > 1 else Logistic(), 0.1
    weight = torch.ones(90, dtype=torch.float64)
    weight[::3] = 0.0
    both = KernelLikelihood(K, Y, weight, lam, loss).fit()
    kept = weight > 0
    alone = KernelLikelihood(K[kept][:, kept], Y[kept], weight[kept], lam, loss).fit()
    predicted = K[~kept][:, kept] @ alone.alpha
    # both excesses are below 10 · tolerance · 60, and λ-strong convexity turns them into values
    bound = 2 * np.sqrt(2 * 10 * TOLERANCE * 60 / lam)
    assert float((both.values[~kept] - predicted).abs().max()) <= bound


@pytest.mark.long
def test_the_default_classifier_takes_the_likelihood_where_classes_have_a_sharp_boundary() -> None:
    ratios = []
    for seed in (1, 2):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1, 1, (2400, 2))
        y = (np.sin(4 * X[:, 0]) + X[:, 1] > 0.8).astype(int)

        def risk(loss: str, X: np.ndarray = X, y: np.ndarray = y) -> float:
            model = KernelBoostingClassifier(loss=loss, metric=None, random_state=0).fit(X[:400], y[:400])
            return log_loss(y[400:], model.predict_proba(X[400:]))

        ratios.append(risk("auto") / risk("squared"))
    assert np.exp(np.mean(np.log(ratios))) < 0.9


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_given_logistic_loss_is_solved_exactly_on_few_rows(n_classes: int) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 2))
    y = np.digitize(X[:, 0] + 0.3 * rng.normal(size=200), np.linspace(-0.5, 0.5, n_classes - 1))
    model = KernelBoostingClassifier(kernel=Gaussian(length_scale=1.0), regularization=0.5, loss="logistic").fit(X, y)
    assert "exact" in str(model.stop_reason_)
    f = model.decision_function(X).reshape(200, -1)
    # α = −V'/λ at the minimum, on standardised inputs
    Z = torch.from_numpy((X - X.mean(0)) / X.std(0))
    K = Gaussian(length_scale=1.0)(Z, Z)
    codes = np.where(y[:, None] == model.classes_, 1.0, -1.0) if n_classes > 2 else np.where(y == 1, 1.0, -1.0)[:, None]
    loss = Softmax() if n_classes > 2 else Logistic()
    alpha = loss.residual(torch.from_numpy(codes), torch.from_numpy(f)) / 0.5
    assert float((K @ alpha - torch.from_numpy(f)).abs().max()) < 0.05


@pytest.mark.parametrize("lam", [1e-1, 1e-5, 1e-9])
def test_left_out_rows_of_separate_classes_have_values_like_their_neighbours(lam: float) -> None:
    """A tiny penalty hardly counts in the objective; a left-out row must still not stay at the zero it starts from."""
    rng = np.random.default_rng(0)
    y = np.where(np.arange(90) % 2 == 0, 1.0, -1.0)
    X = rng.normal(size=(90, 2)) + 3 * y[:, None]
    problem = replace(problem_of(X, y, Gaussian(2.0) + Bias(), lam=lam), loss=Logistic())
    found = exact_likelihood(problem, torch.arange(90))
    left_out, values = found.left_out[:, 0].numpy() * y, found.values[:, 0].numpy() * y
    assert (left_out > 0).all()
    assert left_out.mean() > 0.5 * values.mean()


def test_a_linear_kernel_of_rows_that_are_all_the_same_tells_classes_by_their_shares() -> None:
    X, y = np.full((60, 2), 3.0), np.repeat(["a", "b", "c"], [30, 20, 10])
    model = KernelBoostingClassifier(kernel=Linear(), loss="logistic", random_state=0).fit(X, y)
    assert np.allclose(model.predict_proba(X[:1]), [[1 / 2, 1 / 3, 1 / 6]], atol=1e-3)
