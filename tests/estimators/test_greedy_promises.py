"""What docs/families/greedy.md promises of greedy models, on either side of 5000 rows, where passes get larger.

Models are small and kernels fixed, so that a fit takes a fraction of a second.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from oracles import tile

from mercer import GreedyKernelClassifier, GreedyKernelRegressor, GreedyNystroem
from mercer.forward.criteria import ApproximateLinearDependence, ResourceAllocating
from mercer.forward.stopping import Validation
from mercer.kernels import Gaussian

pytestmark = pytest.mark.usefixtures("two_folds")

KERNEL = Gaussian(1.0)
ONE_BY_ONE = ["mp", "boost", "one-dimensional", "info-gain"]
over_rows = pytest.mark.parametrize("n", [4900, 5200], ids=["4900 rows", "5200 rows"])


@cache
def table(n: int, n_columns: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, n_columns))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, -1] + 0.2 * rng.standard_normal(n)


def greedy(n_basis: int, **options: Any) -> GreedyKernelRegressor:
    fixed = {"kernel": KERNEL, "regularization": 1e-2, "scale_inputs": False, "dtype": "float64", "random_state": 0}
    return GreedyKernelRegressor(n_basis, **(fixed | options))


def novelties(basis: np.ndarray) -> np.ndarray:
    """δ_j = k_jj − q_jᵀQ⁻¹q_j of each vector beside those before it: the squared pivots of a Cholesky factor."""
    return np.diag(np.linalg.cholesky(tile(KERNEL, basis, basis))) ** 2


# --- criteria ---------------------------------------------------------------------------------------


@over_rows
@pytest.mark.parametrize("step_size", ["auto", 8])
def test_every_vector_that_ald_accepts_exceeds_its_threshold(n, step_size):
    X, y = table(n)
    criterion = ApproximateLinearDependence(threshold=0.3)
    model = greedy(40, criterion=criterion, step_size=step_size).fit(X, y)
    assert novelties(model.basis_).min() > 0.3
    assert model.stop_reason_ == "no further row is worth adding as a basis vector"


@over_rows
@pytest.mark.parametrize("step_size", ["auto", 4])
def test_every_vector_that_ran_accepts_exceeds_its_threshold(n, step_size):
    """Its score is δ times the decrease of the objective, which `objective_path_` has; the first enters anyway."""
    X, y = table(n)
    model = greedy(6, criterion=ResourceAllocating(threshold=20.0), step_size=step_size).fit(X, y)
    decrease = -np.diff(model.objective_path_)
    assert (novelties(model.basis_)[1:] * decrease > 20.0 * (1 - 1e-6)).all()


@pytest.mark.parametrize("criterion", ONE_BY_ONE)
def test_criteria_that_look_at_candidates_choose_one_vector_at_a_time_at_any_number_of_rows(criterion):
    X, y = table(5200)
    by_default = greedy(6, criterion=criterion).fit(X, y)
    np.testing.assert_array_equal(by_default.history_["n_basis"], np.arange(1, 7))
    alone = greedy(6, criterion=criterion, step_size=1).fit(X, y)
    np.testing.assert_array_equal(by_default.basis_indices_, alone.basis_indices_)


@over_rows
def test_max_res_of_many_vectors_a_pass_is_no_worse_than_one_at_a_time(n):
    X, y = table(n, 4)
    together = greedy(64).fit(X, y)
    alone = greedy(64, step_size=1).fit(X, y)
    assert together.history_["residual_norm"][-1] <= 1.05 * alone.history_["residual_norm"][-1]


# --- sizes ------------------------------------------------------------------------------------------


@over_rows
@pytest.mark.parametrize("step_size", ["auto", 1, 8, 32])
def test_vectors_in_the_span_of_those_before_them_end_the_growth_at_any_step_size(n, step_size):
    """A Gaussian on an interval of four length-scales: its spectrum passes 1e-12, the square of 1e-6, after some 15."""
    X, y = table(n, 1)
    model = greedy(200, step_size=step_size).fit(X, y)
    assert "lie in the span of those before them" in model.stop_reason_
    assert 5 <= len(model.basis_) <= 25
    assert (model.dual_coef_ != 0).any(1).all()


def test_landmarks_in_the_span_of_those_before_them_end_the_choice_too():
    X, y = table(5200, 1)
    features = GreedyNystroem(200, kernel=KERNEL, regularization=1e-2, random_state=0).fit(X, y)
    assert len(features.basis_) <= 25


@over_rows
@pytest.mark.parametrize("rule", ["mdl", "aic"])
def test_the_size_found_is_that_of_the_smallest_criterion_over_all_sizes(n, rule):
    X, y = table(n)
    model = greedy(100, stopping=rule).fit(X, y)
    sizes, curve = model.history_["n_basis"], model.history_[rule]
    np.testing.assert_array_equal(sizes, np.arange(1, len(sizes) + 1))
    assert model.n_steps_ == sizes[curve.argmin()]
    assert 5 <= len(model.basis_) <= model.n_steps_


@over_rows
def test_a_tolerance_is_met_by_the_first_size_that_meets_it(n):
    X, y = table(n)
    model = greedy(100, tol=0.5).fit(X, y)
    norms, start = model.history_["residual_norm"], np.linalg.norm((y - y.mean()) / y.std())
    assert "within tol=0.5" in model.stop_reason_
    assert norms[-1] <= 0.5 * start < norms[-2]
    assert len(model.basis_) == len(norms)


RULES = [("validation", 300), ("validation", 4900), ("validation", 5200), (Validation(20), 300)]


@pytest.mark.parametrize(("rule", "n"), [*RULES, (["mdl", "validation"], 300)], ids=lambda value: str(value))
def test_the_validation_rule_holds_rows_out_by_itself(rule, n):
    X, y = table(n)
    model = greedy(200, stopping=rule).fit(X, y)
    watched = model.history_["validation"]
    assert len(watched) == len(model.history_["n_basis"]) < 200
    if not isinstance(rule, list):
        assert model.n_steps_ == 1 + watched.argmin()
        assert "the validation error had its minimum" in model.stop_reason_


def test_the_validation_rule_of_a_classifier_holds_rows_out_by_itself():
    X, y = table(600)
    labels = np.where(y > 0.5, "high", np.where(y > -0.5, "middle", "low"))
    options: dict[str, Any] = {"kernel": KERNEL, "regularization": 1e-2, "random_state": 0}
    model = GreedyKernelClassifier(200, stopping="validation", **options).fit(X, labels)
    assert model.n_steps_ == 1 + model.history_["validation"].argmin() < 200


def test_the_validation_rule_by_name_has_the_patience_of_the_estimator():
    X, y = table(300)
    for patience in (3, 15):
        model = greedy(200, stopping="validation", patience=patience).fit(X, y)
        assert len(model.history_["n_basis"]) == model.n_steps_ + patience


def test_the_validation_rule_refuses_to_go_without_rows_held_out():
    X, y = table(300)
    with pytest.raises(
        ValueError, match="validation_fraction must be 'auto' or a share where stopping is 'validation'"
    ):
        greedy(20, stopping="validation", validation_fraction=None).fit(X, y)
    given = greedy(20, stopping="validation", validation_fraction=None).fit(X[50:], y[50:], X_val=X[:50], y_val=y[:50])
    assert len(given.history_["validation"])


# --- the objective, exchange and penalties ----------------------------------------------------------


#: Every criterion that chooses one vector at a time on one side, and those of many vectors a pass on both.
RISING = [(n, c) for n in (4900, 5200) for c in ("max-res", "random")]


@pytest.mark.parametrize(("n", "criterion"), [*RISING, (5200, "largest-residuals"), (4900, "mp"), (5200, "ald")])
def test_the_objective_never_rises(n, criterion):
    X, y = table(n)
    path = greedy(25, criterion=criterion).fit(X, y).objective_path_
    assert np.diff(path).max(initial=0.0) <= 1e-9 * path[0]  # sums of 5000 terms round to 1e-12


def test_exchange_never_raises_the_objective_and_keeps_to_the_number_of_vectors():
    """A swap used to be judged by the residual alone: from λ = 1 on that raised the objective in half of the fits."""
    for seed in range(2):
        X, y = table(60, 2, seed)
        model = greedy(15, kernel=Gaussian(0.5), exchange=True, regularization=10.0).fit(X, y)
        path = model.objective_path_
        assert np.diff(path).max(initial=0.0) <= 1e-10 * path[0]
        few = greedy(25, kernel=Gaussian(0.5), exchange=True, regularization=1e-3).fit(X, y)
        assert len(few.basis_) <= 25


def test_pruning_counts_vectors_without_weight_as_none():
    """Two columns alike to the last digit: one of them lies in the span of the other."""
    X, y = table(200)
    X, y = np.concatenate([X, X[:3] + 1e-9]), np.concatenate([y, y[:3] + 9.0])
    model = greedy(40, prune=True, regularization=1e-6).fit(X, y)
    K = tile(KERNEL, model.basis_, X)
    Q = tile(KERNEL, model.basis_, model.basis_)
    Y = (y - y.mean()) / y.std()
    best = np.linalg.solve(K @ K.T + 1e-6 * Q, K @ Y)
    left = [np.sum((Y - K.T @ weights) ** 2) for weights in (model.dual_coef_[:, 0], best)]
    assert left[0] == pytest.approx(left[1], rel=1e-6)


def test_minimal_residual_iterations_refuse_a_penalty_that_they_do_not_have():
    X, y = table(60)
    with pytest.raises(ValueError, match="penalty must be 'gram' or 'auto' with update='mrx'"):
        greedy(5, update="mrx", penalty="rkhs").fit(X, y)


def test_rows_of_equal_inputs_are_one_candidate():
    """Inputs of nine values with noisy classes: six vectors are six of the values, not one of them six times."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 9, (200, 1)).astype(float)
    y = (np.sin(X[:, 0]) > 0) ^ (rng.random(200) < 0.15)
    model = GreedyKernelClassifier(6, kernel=Gaussian(1.0), regularization=0.1, random_state=0).fit(X, y)
    assert len(np.unique(model.basis_, axis=0)) == len(model.basis_) == 6
