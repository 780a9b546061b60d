"""`relevance_`: total effects on predictions, for all kernels and families, against Sobol indices and a slow twin."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_friedman1
from sklearn.metrics.pairwise import polynomial_kernel

import mercer
from mercer.kernels import Bias, Gaussian, Laplacian, Linear, Matern32, Polynomial, Scaled

pytestmark = pytest.mark.usefixtures("two_folds", "short_selections")


def one_input(n: int = 150, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """y = 3·x0 on four columns, with little noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, 3 * X[:, 0] + 0.1 * rng.normal(size=n)


def quick(kernel, **options):
    return mercer.GreedyKernelRegressor(30, kernel=kernel, regularization=0.1, random_state=0, **options)


@pytest.mark.parametrize(
    "kernel",
    [
        Linear(),
        Polynomial(),
        Gaussian(3.0),
        Scaled(Matern32(5.0), 2.0),
        Laplacian(10.0),
        Linear() + Gaussian(3.0),
        Gaussian(5.0) * Laplacian(20.0),
        polynomial_kernel,
    ],
    ids=lambda kernel: getattr(kernel, "__name__", repr(kernel)),
)
def test_the_only_input_that_acts_has_nearly_all_of_the_relevance(kernel):
    """Kernels that see all inputs alike: what a model makes of the others is a small part of its predictions."""
    model = quick(kernel).fit(*one_input())
    assert model.relevance_[0] >= 0.9
    assert model.relevance_.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    "model",
    [
        mercer.KernelBoostingRegressor(kernel="linear", random_state=0),
        mercer.KernelBoostingRegressor(kernel="gaussian", random_state=0),
        mercer.KernelBoostingRegressor(random_state=0),
        mercer.KernelBoostingRegressor(time_budget=2, random_state=0),
        mercer.SparseGPRegressor(15, kernel="gaussian", ard=False, max_iter=10, random_state=0),
    ],
    ids=["linear", "gaussian", "auto", "time budget", "Gaussian process"],
)
def test_chosen_kernels_say_so_too(model):
    X, y = one_input()
    assert model.fit(X, y).relevance_[0] >= 0.9


@pytest.mark.parametrize(
    "model",
    [
        mercer.KernelBoostingClassifier(kernel="gaussian", random_state=0),
        mercer.SparseGPClassifier(10, kernel="gaussian", max_iter=10, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_decision_values_count_for_classes(model, n_classes):
    X, y = one_input()
    label = np.digitize(y, np.quantile(y, np.linspace(0, 1, n_classes + 1)[1:-1]))
    found = np.atleast_2d(model.fit(X, label).relevance_)
    assert (found[:, 0] >= 0.8).all()  # three latent functions of few rows each are rougher than one of all
    np.testing.assert_allclose(found.sum(1), 1)


def test_relevance_orders_the_inputs_of_friedman_1_by_their_total_sobol_indices():
    """The indices are 8.33 (x3), 6.5 (x0 and x1, which interact), 2.2 and 2.1 (x2 and x4); the other five have none.

    Four hundred pairs of rows tell them to within about 6 % each, so only the clear differences are compared.
    """
    X, y = make_friedman1(400, 10, noise=0.5, random_state=0)
    found = mercer.KernelBoostingRegressor(random_state=0).fit(X, y).relevance_
    assert found[3] > max(found[0], found[1])
    assert min(found[0], found[1]) > 1.5 * max(found[2], found[4])
    np.testing.assert_allclose(found[:5], [0.254, 0.253, 0.087, 0.325, 0.081], rtol=0.35)
    assert found[5:].max() < 0.02


def test_it_is_jansens_estimate_over_all_pairs_of_rows_where_they_are_few():
    """Of 15 rows all 210 pairs are taken; the slow twin asks `predict` for each of them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(15, 3))
    model = quick(Gaussian(2.0)).fit(X, np.sin(X[:, 0]) + X[:, 1] * X[:, 2])
    slow = np.zeros(3)
    for d in range(3):
        for x in X:
            exchanged = np.tile(x, (15, 1))
            exchanged[:, d] = X[:, d]
            slow[d] += np.square(model.predict(exchanged) - model.predict(x[None])).sum()
    np.testing.assert_allclose(model.relevance_, slow / slow.sum(), rtol=1e-8)  # changes of 1e-2 round to 1e-14


def test_what_predictions_do_not_depend_on_has_exactly_zero():
    X, y = one_input()
    X[:, 2] = 7.0
    model = quick("gaussian").fit(X, y)
    assert model.relevance_[2] == 0.0
    assert not quick(Bias()).fit(X, y).relevance_.any()
    assert not quick(Gaussian(2.0)).fit(X[:1], y[:1]).relevance_.any()  # one row has no other to be compared with


def test_several_outputs_are_summed_in_units_of_their_standard_deviations():
    """Each output has one input of its own: equal shares, whatever the outputs' units; 150 pairs are off by 12 %."""
    X, _ = one_input()
    found = quick(Linear()).fit(X, np.column_stack([X[:, 0], 1e6 * X[:, 1]])).relevance_
    assert found[:2].min() > 0.4
    assert found[2:].max() < 1e-3


def test_the_columns_of_a_frame_count_as_wholes():
    rng = np.random.default_rng(0)
    wood, y = rng.choice(["ash", "oak", "elm", "yew"], 200), rng.normal(size=200)
    frame = pd.DataFrame(
        {"wood": wood, "size": y, "number": [f"n{i}" for i in range(200)], "colour": rng.permutation(wood)}
    )
    y = 0.5 * y + pd.Series(wood).map({"ash": 0.0, "oak": 2.0, "elm": -1.0, "yew": 1.0}).to_numpy()
    model = mercer.KernelBoostingRegressor(kernel="gaussian", random_state=0).fit(frame, y)
    found = dict(zip(frame.columns, model.relevance_, strict=True))
    assert found["wood"] > found["size"] > 0.05  # variances 1.25 and 0.25
    assert found["number"] == 0.0  # left out
    assert found["colour"] < 0.02
    assert [one["relevance"] for one in model.columns_] == model.relevance_.tolist()


def test_it_depends_neither_on_the_seed_of_the_model_nor_on_the_order_of_few_rows():
    X, y = one_input()
    first = quick(Gaussian(2.0)).fit(X, y).relevance_
    order = np.random.default_rng(5).permutation(len(X))
    np.testing.assert_allclose(quick(Gaussian(2.0)).fit(X[order], y[order]).relevance_, first, rtol=1e-6)
    np.testing.assert_array_equal(quick(Gaussian(2.0)).fit(X, y).relevance_, first)


def test_the_selector_ranks_gaussian_processes_by_length_scales():
    """As the thesis has it, whatever the inputs do to predictions."""
    X, y = one_input()
    voter = mercer.SparseGPRegressor(30, kernel=Gaussian([4.0, 2.0, 2.0, 1.0]), max_iter=5, random_state=0)
    selector = mercer.ARDSelector(voter).fit(X, y)
    np.testing.assert_allclose(selector.relevance_, [0.25, 0.5, 0.5, 1.0])
    assert selector.models_[0].relevance_.argmax() == 0
