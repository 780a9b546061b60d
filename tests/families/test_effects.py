"""Partial effects: by kernel products they are the plain means over rows, and any model has them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.inspection import partial_dependence

import mercer
from mercer import kernels

pytestmark = pytest.mark.usefixtures("two_folds")


def table(n: int = 150) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3)) * [1.0, 10.0, 0.1]
    X[:, 2] = np.round(X[:, 2], 1)
    return X, np.sin(X[:, 0]) + 0.1 * X[:, 1] * X[:, 2]


def means(answer, X: np.ndarray, columns: list[int], grid: tuple[np.ndarray, ...]) -> np.ndarray:
    out = []
    for point in np.stack([part.ravel() for part in np.meshgrid(*grid, indexing="ij")], 1):
        here = X.copy()
        here[:, columns] = point
        out.append(answer(here).mean(0))
    return np.array(out)


KERNELS = [
    kernels.Gaussian(1.0),
    kernels.Laplacian(2.0) + kernels.Linear() + kernels.Bias(),
    kernels.Linear() + kernels.Gaussian(2.0) * kernels.Gaussian(3.0),
]


@pytest.mark.parametrize("kernel", [*KERNELS, kernels.Matern32(2.0)], ids=repr)
def test_the_effect_is_the_mean_prediction_with_the_input_set(kernel):
    """To the rounding of sums of weights times kernel values."""
    X, y = table()
    model = mercer.GreedyKernelRegressor(12, kernel=kernel, regularization=1e-2, random_state=0).fit(X, y)
    size = np.abs(model.dual_coef_).sum()
    for columns in ([0], [2], [1, 2]):
        found = mercer.partial_effects(model, X, columns[0] if len(columns) == 1 else columns, grid_size=8)
        truth = means(model.predict, X, columns, found.grid)
        np.testing.assert_allclose(found.values.ravel(), truth, rtol=0, atol=1e-10 * (1 + size))


def test_it_is_what_scikit_learn_finds_by_brute_force():
    X, y = table()
    model = mercer.KernelBoostingRegressor(kernel="gaussian", tuning_rows=80, random_state=0).fit(X, y)
    theirs = partial_dependence(model, X, [0], grid_resolution=10)
    ours = mercer.partial_effects(model, X, 0, grid_size=40)
    inside = np.interp(theirs["grid_values"][0], ours.grid[0], ours.values)
    np.testing.assert_allclose(inside, theirs["average"][0], atol=0.01)  # between points of the grid


def test_several_outputs_classes_and_names_are_kept_apart():
    X, y = table()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    how = {"kernel": kernels.Gaussian(1.0), "random_state": 0}
    both = mercer.GreedyKernelRegressor(10, **how).fit(frame, np.stack([y, X[:, 1]], 1))
    found = mercer.partial_effects(both, frame, ["a", "c"], grid_size=6)
    assert found.names == ("a", "c")
    assert found.values.shape == (3, 3, 2)
    label = mercer.GreedyKernelClassifier(10, **how).fit(frame, np.digitize(y, [-0.5, 0.5]))
    classes = mercer.partial_effects(label, frame, "b", grid_size=5)
    truth = means(lambda rows: label.decision_function(pd.DataFrame(rows, columns=frame.columns)), X, [1], classes.grid)
    np.testing.assert_allclose(classes.values, truth, atol=1e-9)


@pytest.mark.parametrize("face", [mercer.NRBFRegressor, mercer.ENRBFClassifier, mercer.MHKSClassifier], ids=repr)
def test_a_model_of_any_family_has_effects(face):
    X, y = table(80)
    model = face(random_state=0).fit(X, y > 0 if "Classifier" in face.__name__ else y)
    assert np.isfinite(mercer.partial_effects(model, X, 1, grid_size=4).values).all()


@pytest.mark.parametrize("column", [3, -1, "oak", [0, 0], [0, 1, 2], True, None])
def test_a_column_that_is_none_gets_a_sentence(column):
    X, y = table(40)
    model = mercer.GreedyKernelRegressor(5, kernel=kernels.Gaussian(), random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="column must be"):
        mercer.partial_effects(model, X, column)


MIXED_TOWNS = np.array(["Aachen", "Bonn", "Celle"])


def mixed_model(**settings):
    rng = np.random.default_rng(0)
    n = 80
    town, area = rng.integers(0, 3, n), np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n))
    frame = pd.DataFrame({"town": MIXED_TOWNS[town], "one": "same", "area": area})
    y = town + np.sin(np.nan_to_num(area))
    return mercer.KernelBoostingRegressor(random_state=0, regularization=0.1, **settings).fit(frame, y), frame


@pytest.mark.parametrize("kernel", [mercer.kernels.Gaussian(1.0), mercer.kernels.Matern32(1.0)], ids=repr)
def test_of_a_mixed_table_columns_take_the_users_values(kernel):
    model, frame = mixed_model(kernel=kernel)
    found = mercer.partial_effects(model, frame, "town")
    names = [found.labels[0][int(place)] for place in found.grid[0]]
    assert names == MIXED_TOWNS.tolist()
    expected = [model.predict(frame.assign(town=name)).mean() for name in names]
    np.testing.assert_allclose(found.values, expected, rtol=1e-8)
    pair = mercer.partial_effects(model, frame, ["area", "town"], grid_size=8)
    point = frame.assign(area=pair.grid[0][2], town=names[1])
    np.testing.assert_allclose(pair.values[2, 1], model.predict(point).mean(), rtol=1e-8)


def test_of_a_mixed_table_shapley_values_are_the_users_columns():
    model, frame = mixed_model(kernel=mercer.kernels.Gaussian(1.0))
    found = mercer.shapley_values(model, frame)
    assert found.values.shape == (80, 3)
    assert found.feature_names == ["town", "one", "area"]
    assert not found.values[:, 1].any()  # it was left out
    np.testing.assert_allclose(found.predictions(), model.predict(frame), rtol=1e-9)
    assert found.data[0, 0] == frame["town"][0]
    figure = pytest.importorskip("matplotlib.pyplot").figure()
    plots = pytest.importorskip("mercer.plots")
    plots.plot_shapley(found, ax=figure.add_subplot())
    plots.plot_shapley_row(found, ax=figure.add_subplot())
    plots.plot_effect(mercer.partial_effects(model, frame, "town"), ax=figure.add_subplot())
