"""`monotonic_cst`: the quadratic program against a slow solver, slopes, forms of the parameter, and refusals."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import minimize
from sklearn.base import clone

import mercer
from mercer import KernelBoostingRegressor
from mercer.forward.monotone import PENALTY_SHARE, Correction, least_distance
from mercer.kernels import Laplacian, Matern12, Matern32
from mercer.preprocessing.inputs import InputMap
from mercer.preprocessing.monotonic import column_signs


def rising(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A function that rises with column 0, falls with column 1 and is neither in column 2, with noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 3))
    return X, np.tanh(3 * X[:, 0]) - np.maximum(X[:, 1], 0) + np.sin(3 * X[:, 2]) + 0.5 * rng.normal(size=n)


def largest_fall(model: KernelBoostingRegressor, column: int, sign: int, seed: int = 1) -> float:
    """The largest violation among 2000 pairs of rows that differ in one column, beyond the range of `fit` too."""
    rng = np.random.default_rng(seed)
    low, _ = rising(2000, seed)
    high = low.copy()
    low[:, column], high[:, column] = np.sort(rng.uniform(-2.5, 2.5, (2000, 2)), axis=1).T
    return float((sign * (model.predict(low) - model.predict(high))).max())


@pytest.fixture(scope="module")
def free(table: tuple[np.ndarray, np.ndarray]) -> KernelBoostingRegressor:
    """The same without constraints."""
    return KernelBoostingRegressor(kernel="matern32", random_state=0).fit(*table)


@pytest.fixture(scope="module")
def table() -> tuple[np.ndarray, np.ndarray]:
    return rising(150)


@pytest.fixture(scope="module")
def model(table: tuple[np.ndarray, np.ndarray]) -> KernelBoostingRegressor:
    return KernelBoostingRegressor(kernel="matern32", monotonic_cst=[1, -1, 0], random_state=0).fit(*table)


def test_the_least_distance_problem_agrees_with_a_general_solver() -> None:
    rng = np.random.default_rng(0)
    G, b = rng.normal(size=(12, 6)), rng.normal(size=12) - 0.5
    solved = least_distance(G, b)
    assert solved is not None
    p, active = solved
    constraint = {"type": "ineq", "fun": lambda p: G @ p - b, "jac": lambda p: G}
    slow = minimize(lambda p: 0.5 * p @ p, np.zeros(6), jac=lambda p: p, constraints=constraint, tol=1e-12)
    np.testing.assert_allclose(p, slow.x, atol=1e-6)
    np.testing.assert_allclose((G @ p - b)[active], 0, atol=1e-9)


def test_constraints_that_exclude_each_other_have_no_solution() -> None:
    assert least_distance(np.array([[1.0], [-1.0]]), np.array([1.0, 1.0])) is None


def test_the_span_of_a_correction_grows_where_it_has_no_rows() -> None:
    X, index = torch.linspace(0, 1, 20, dtype=torch.float64)[:, None], torch.arange(20)
    problem = SimpleNamespace(candidates=lambda: index, basis=lambda rows: X[rows], weight=torch.ones(20))
    final = SimpleNamespace(kernel=Matern32(0.3), basis=X[:5], weights=torch.ones(5, 1), index=index[:5], lam=0.1)
    member = SimpleNamespace(inputs=InputMap.identity(1), share=1.0)
    part: Any = SimpleNamespace(
        fit=SimpleNamespace(problem=problem), final=final, member=member, held_out=SimpleNamespace(rows=X)
    )
    correction = Correction(part)
    correction.grow(torch.tensor([[0.5], [5.0], [5.0], [8.0]], dtype=torch.float64))  # near rows, far, the same, far
    np.testing.assert_array_equal(correction.S[20:, 0].sort()[0], [5.0, 8.0])
    S, K = correction.S, correction.kernel
    np.testing.assert_allclose(correction.L @ correction.L.T, K(S, S), atol=1e-9)
    V = torch.linalg.solve_triangular(correction.L, K(S, X), upper=False)
    wanted = V @ V.T + PENALTY_SHARE * 0.1 * torch.eye(22)
    np.testing.assert_allclose(correction.R @ correction.R.T, wanted, atol=1e-6)


def test_predictions_never_fall_along_a_constrained_column(
    model: KernelBoostingRegressor, free: KernelBoostingRegressor
) -> None:
    for column, sign in ((0, 1), (1, -1)):
        assert largest_fall(free, column, sign) > 1e-3
        assert largest_fall(model, column, sign) < 1e-9
    X, y = rising(1000, 2)
    assert model.score(X, y) > free.score(X, y) - 0.02


def test_beyond_the_range_of_fit_a_constrained_column_keeps_the_value_at_its_end(
    model: KernelBoostingRegressor, table: tuple[np.ndarray, np.ndarray]
) -> None:
    ends = table[0][:, 0].min(), table[0][:, 0].max()
    row = np.zeros((4, 3))
    row[:, 0] = ends[0] - 5, ends[0], ends[1], ends[1] + 5
    first, second, third, fourth = model.predict(row)
    assert first == second
    assert third == fourth


def test_arrays_and_dicts_name_the_same_constraints(
    model: KernelBoostingRegressor, table: tuple[np.ndarray, np.ndarray]
) -> None:
    frame = pd.DataFrame(table[0], columns=["a", "b", "c"])
    named = clone(model).set_params(monotonic_cst={"a": 1, "b": -1}).fit(frame, table[1])
    np.testing.assert_array_equal(named.predict(frame), model.predict(table[0]))
    assert column_signs({0: 1, "c": -1}, ["a", "b", "c"]).tolist() == [1, 0, -1]


def test_selected_kernels_are_differentiable_and_the_average_is_monotone() -> None:
    X, y = rising(250, 3)
    model = KernelBoostingRegressor(monotonic_cst=[1, -1, 0], random_state=0).fit(X, y, np.linspace(0.5, 2, 250))
    assert not any(isinstance(part.kernel, Laplacian | Matern12) for part in model.expansions_)
    assert largest_fall(model, 0, 1) < 1e-9
    low, high = model.predict_interval(X).T
    assert 0.85 < np.mean((low <= y) & (y <= high)) <= 1.0


def test_data_that_contradict_the_constraint_give_a_flat_function_and_wide_intervals() -> None:
    x = np.linspace(-2, 2, 120)[:, None]
    y = -x[:, 0] + 0.05 * np.random.default_rng(0).normal(size=120)
    model = KernelBoostingRegressor(kernel="gaussian", monotonic_cst=[1], random_state=0)
    with pytest.warns(UserWarning, match="data contradict it"):
        model.fit(x, y)
    assert np.ptp(model.predict(x)) < 0.5
    low, high = model.predict_interval(x).T
    assert np.mean((low <= y) & (y <= high)) > 0.8


def test_files_keep_the_constraints(model: KernelBoostingRegressor, tmp_path: object) -> None:
    path = f"{tmp_path}/model.mercer"
    model.save(path)
    loaded = mercer.load(path)
    X = 2 * rising(50, 4)[0]
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_rows_with_missing_values_and_categories_are_no_obstacle() -> None:
    X, y = rising(200, 5)
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(site=np.where(X[:, 2] > 0, "north", "south"))
    frame.loc[::7, "a"] = np.nan
    model = KernelBoostingRegressor(kernel="matern32", monotonic_cst={"a": 1}, random_state=0).fit(frame, y)
    low, high = (frame.dropna().assign(a=value) for value in (-0.5, 0.5))
    assert (model.predict(high) >= model.predict(low)).all()


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"monotonic_cst": [2, 0, 0]}, "an array of -1, 0 and 1"),
        ({"monotonic_cst": "up"}, "an array of -1, 0 and 1"),
        ({"monotonic_cst": [1, 0]}, "each of 3 columns"),
        ({"monotonic_cst": {"z": 1}}, "monotonic_cst must be of the columns"),
        ({"kernel": Laplacian()}, "kernel must be differentiable"),
        ({"kernel": "laplacian"}, "kernel must be differentiable"),
        ({"loss": "huber"}, "loss must be 'squared'"),
        ({"updatable": True}, "updatable must be False"),
    ],
)
def test_what_cannot_be_constrained_is_refused_in_a_sentence(
    params: dict[str, object], words: str, table: tuple[np.ndarray, np.ndarray]
) -> None:
    model = KernelBoostingRegressor(**{"monotonic_cst": [1, 0, 0], **params})
    with pytest.raises(ValueError, match=words):
        model.fit(*table)


def test_categories_several_outputs_and_a_later_compression_are_refused(
    model: KernelBoostingRegressor, table: tuple[np.ndarray, np.ndarray]
) -> None:
    X, y = table
    with pytest.raises(ValueError, match="y must be one column"):
        clone(model).fit(X, np.column_stack([y, y]))
    frame = pd.DataFrame({"site": np.where(X[:, 0] > 0, "north", "south"), "a": X[:, 1]})
    with pytest.raises(ValueError, match="column 'site' of X must be one number"):
        clone(model).set_params(monotonic_cst={"site": 1}).fit(frame, y)
    with pytest.raises(ValueError, match="without monotonic_cst"):
        mercer.compress(model, X, y)


@pytest.mark.parametrize("none", [[0, 0, 0], {}, {2: 0}])
def test_signs_that_are_all_zero_leave_the_free_fit_as_it_is(
    none: object, table: tuple[np.ndarray, np.ndarray]
) -> None:
    X, y = table[0][:80], table[1][:80]
    free = KernelBoostingRegressor(kernel=Laplacian(2.0), regularization=0.1, loss="absolute", random_state=0)
    found = clone(free).set_params(monotonic_cst=none).fit(X, y)
    np.testing.assert_array_equal(found.predict(X), free.fit(X, y).predict(X))
    with pytest.raises(ValueError, match="for each of 3 columns"):
        free.set_params(monotonic_cst=[0, 0]).fit(X, y)
