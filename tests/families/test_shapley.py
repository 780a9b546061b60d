"""Shapley values of product kernels against all 2^D subsets, sums that must hold, and refusals in words."""

from __future__ import annotations

import gc
import importlib.util
import sys
import weakref
from dataclasses import replace
from functools import cache
from itertools import combinations
from math import factorial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from oracles import assert_close

import mercer
from mercer import kernels
from mercer.codegen.compiled import machine_code
from mercer.data.column_maps import fit_column_map
from mercer.engine import make_plan
from mercer.explain import products
from mercer.explain.expansions import expansion_of, training_mean
from mercer.explain.products import product_sum, restricted_mixture, sum_over_scales
from mercer.explain.shapley import block_shape
from mercer.explain.terms import TOLERANCE, matern, rational_quadratic, terms_of
from mercer.preprocessing.inputs import InputMap

pytestmark = pytest.mark.usefixtures("two_folds")


def brute_force(v, D: int) -> np.ndarray:
    """Shapley's formula as it is printed, over all subsets; `v` gives numbers for a tuple of inputs."""
    out = []
    for i in range(D):
        others, total = [d for d in range(D) if d != i], 0.0
        for size in range(D):
            share = factorial(size) * factorial(D - size - 1) / factorial(D)
            for S in combinations(others, size):
                total = total + share * (v((*S, i)) - v(S))
        out.append(total)
    return np.stack(out, 1)


def coalition_values(expansion, X: np.ndarray):
    """What a model says where only the inputs S count: every other one is set to that of each basis vector."""

    @cache
    def alone(S: frozenset[int]) -> np.ndarray:
        total = np.zeros((len(X), expansion.n_outputs))
        for one in expansion.expansions:
            U = one.inputs.encode(X).numpy()
            for j, z in enumerate(one.basis):
                row = np.tile(z, (len(X), 1))
                row[:, list(S)] = U[:, list(S)]
                k = one.kernel(torch.as_tensor(row), torch.as_tensor(z[None]))
                total += k.numpy() * one.weights[j]
        return total

    return lambda S: alone(frozenset(S))


@pytest.mark.parametrize("D", [1, 2, 3, 6, 10])
def test_the_values_are_those_of_all_subsets(D):
    """Also where factors are 0, tiny, or one: nothing is divided by them. Sums of 2^9 terms round to some 1e-13."""
    rng = np.random.default_rng(D)
    u = rng.uniform(0, 1, (3, 40, D))
    u[0, ::2, 0], u[1, ::3, D // 2], u[2, ::4, -1], u[0, :5] = 0.0, 1e-300, 1.0, 0.0
    with np.errstate(divide="ignore"):
        a = -torch.as_tensor(np.moveaxis(u, -1, 0)).log()
        found = sum_over_scales(a, product_sum(None, len(a))).transpose(0, 1)
    truth = brute_force(lambda S: u[..., list(S)].prod(-1), D)
    np.testing.assert_allclose(found.numpy(), truth, rtol=0, atol=1e-12)


@pytest.mark.parametrize("D", [25, 60])
def test_values_of_many_inputs_sum_to_the_whole_and_are_equal_for_equal_inputs(D):
    """Efficiency and symmetry pin them down where 2^D is out of reach; D products of D factors round to 1e-13."""
    a = torch.as_tensor(np.random.default_rng(0).uniform(0, 3, (D, 5, 7)))
    a[1] = a[0]
    found = sum_over_scales(a, product_sum(None, len(a))).transpose(0, 1)
    np.testing.assert_allclose(found.sum(1), torch.exp(-a.sum(0)) - 1, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found[:, 0], found[:, 1], rtol=0, atol=1e-14)


KERNELS = [
    kernels.Gaussian([0.5, 1.0, 3.0, 1e3]),
    kernels.Laplacian([0.5, 1.0, 3.0, 1e-3]),
    2.0 * kernels.Gaussian(1.5) * kernels.Laplacian(2.0) + kernels.Bias(0.5),
    kernels.Separable([1.0, 2.0, 3.0, 4.0], p=0.7, q=0.7) + 0.1 * kernels.Gaussian(1.0),
    kernels.Matern12([0.5, 1.0, 30.0, 1e3]),
    0.5 * kernels.Matern32([0.5, 1.0, 30.0, 1e3]) + kernels.Bias(0.1),
    kernels.Matern52(2.0) * kernels.Laplacian(3.0),
    kernels.RationalQuadratic([0.5, 1.0, 3.0, 1e3], alpha=0.5),
]


def table(n: int = 60, D: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, D)) * [1.0, 10.0, 0.1, 1.0]
    return X, np.sin(X[:, 0]) + 0.3 * X[:, 1] * X[:, 2]


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_a_models_values_are_those_of_all_subsets_of_its_inputs(kernel, monkeypatch):
    """To 1e-10 of the size of what is summed: weights times kernel values. Mixtures are half that off (`TOLERANCE`).

    Of few inputs radial kernels look at all subsets themselves; they agree as mixtures, too.
    Some of the rows are basis vectors or share an input with one, where rough kernels have their kink.
    """
    X, y = table(24)
    X[5:8, 1] = X[0, 1]
    model = mercer.GreedyKernelRegressor(8, kernel=kernel, regularization=1e-3, random_state=0).fit(X, y)
    expansion = expansion_of(model)
    rows = X[:8]
    truth = brute_force(coalition_values(expansion, rows), 4)[:, :, 0]
    mean = brute_force(coalition_values(expansion, model.background_), 4)[:, :, 0].mean(0)
    off = 1e-10 * np.abs(expansion.expansions[0].weights).sum()
    for by_subsets in (True, False):
        monkeypatch.setattr(products, "subsets_are_faster", lambda _, answer=by_subsets: answer)
        found = mercer.shapley_values(model, rows, background=None)
        np.testing.assert_allclose(found.values, truth, rtol=0, atol=off)
        found = mercer.shapley_values(model, rows, background=model.background_)
        np.testing.assert_allclose(found.values, truth - mean, rtol=0, atol=2 * off)


@pytest.mark.parametrize(
    ("mixture", "truth"),
    [
        (matern(0.5), lambda a: np.exp(-a)),
        (matern(1.5), lambda a: (1 + a) * np.exp(-a)),
        (matern(2.5), lambda a: (1 + a + a**2 / 3) * np.exp(-a)),
        (rational_quadratic(0.2), lambda a: (1 + a**2) ** -0.2),
        (rational_quadratic(50.0), lambda a: (1 + a**2) ** -50.0),
    ],
)
def test_mixtures_are_their_kernels_at_any_distance(mixture, truth):
    """To the tolerance they promise, from coinciding rows to those a hundred million length-scales apart."""
    a = np.append(0.0, np.logspace(-13, 8, 800))
    found = mixture.weights @ np.exp(-mixture.scales[:, None] * a**2)
    np.testing.assert_allclose(found - mixture.weights.sum(), truth(a) - 1, rtol=0, atol=TOLERANCE)
    least, most = 1e-6, 1e4
    inside = (a == 0) | ((a**2 >= least) & (a**2 <= most))
    few = mixture.restrict(least, most)
    found = few.weights @ np.exp(-few.scales[:, None] * a[inside] ** 2)
    np.testing.assert_allclose(found - few.weights.sum(), truth(a[inside]) - 1, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("mixture", [None, matern(1.5), rational_quadratic(1.0)])
@pytest.mark.parametrize("D", [1, 5, 20])
def test_machine_code_is_what_torch_says(D, mixture, monkeypatch):
    """Sums of positive terms below one: D factors, each rounded twice, and Q · T sums round to 1e-14 at most."""
    a = torch.as_tensor(np.random.default_rng(0).gamma(0.3, 1.0, (D, 2, 29)))
    a[0, :, :5], a[D // 2, 0, 7] = 0.0, 1e5
    rule = product_sum(mixture and restricted_mixture(mixture, a), D)
    if machine_code() is None:
        pytest.skip("LLVM is not there")
    found = products.compiled_sum_over_scales(a, rule)
    monkeypatch.setattr(products, "is_worthwhile", lambda *_: False)
    assert_close(found, sum_over_scales(a, rule), rtol=0, atol=1e-14)


def test_the_mean_over_training_rows_is_kept_until_the_model_is_fitted_again_or_gone():
    X, y = table()
    model = mercer.GreedyKernelRegressor(12, kernel=kernels.Gaussian(2.0), regularization=1e-3, random_state=0).fit(
        X, y
    )
    first, made = mercer.shapley_values(model, X[:3]), []
    known = training_mean(model, made.append)
    assert not made
    again = mercer.shapley_values(model.fit(X, 2 * y), X[:3])
    assert training_mean(model, made.append) is not known
    np.testing.assert_allclose(again.values, 2 * first.values, rtol=0, atol=1e-10)
    del known
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_a_linear_kernel_gives_each_input_its_own_term():
    X, y = table()
    model = mercer.GreedyKernelRegressor(8, kernel=kernels.Linear(), regularization=1e-3, random_state=0).fit(X, y)
    found = mercer.shapley_values(model, X, background=None)
    alone = np.zeros_like(X)
    alone[:] = model.inputs_.mean
    for d in range(4):
        only = alone.copy()
        only[:, d] = X[:, d]
        np.testing.assert_allclose(found.values[:, d], model.predict(only) - found.base_values, atol=1e-9)


@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("name", ["boosting", "greedy", "gp", "rpemekl"])
def test_base_and_values_sum_to_the_prediction(name, n_outputs):
    X, y = table(150)
    Y = y if n_outputs == 1 else np.stack([y, X[:, 1]], 1)
    model = {
        "boosting": mercer.KernelBoostingRegressor(kernel="laplacian", tuning_rows=80, random_state=0),
        "greedy": mercer.GreedyKernelRegressor(30, kernel="gaussian", tuning_rows=80, random_state=0),
        "gp": mercer.SparseGPRegressor(12, kernel="gaussian", tuning_rows=80, max_iter=5, random_state=0),
        "rpemekl": mercer.RPEMEKLRegressor(["gaussian", kernels.Gaussian(0.3)], random_state=0),
    }[name].fit(X, Y)
    found = mercer.shapley_values(model, X[:20])
    size = sum(float(np.abs(one.weights).sum()) for one in expansion_of(model).expansions)
    assert found.values.shape == ((20, 4) if n_outputs == 1 else (20, 4, 2))
    np.testing.assert_allclose(found.predictions(), model.predict(X[:20]), rtol=0, atol=1e-11 * (1 + size))


@pytest.mark.parametrize("name", ["greedy", "gp", "rpemekl"])
def test_by_default_the_base_is_the_mean_prediction_on_training_rows(name):
    """On up to 100 of them, or on basis vectors where a model keeps none; rows given take their place."""
    X, y = table(150)
    model = {
        "greedy": mercer.GreedyKernelRegressor(30, kernel=kernels.Gaussian(2.0), random_state=0),
        "gp": mercer.SparseGPRegressor(12, kernel="gaussian", tuning_rows=80, max_iter=5, random_state=0),
        "rpemekl": mercer.RPEMEKLRegressor([kernels.Gaussian(2.0)], random_state=0),
    }[name].fit(X, y)
    found, raw = mercer.shapley_values(model, X), mercer.shapley_values(model, X, background=None)
    if name == "rpemekl":
        first = expansion_of(model).expansions[0]
        rows = first.inputs.decode(torch.as_tensor(first.basis))
        rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), 100)).astype(int)]
    else:
        rows = model.background_
        assert rows.shape == (100, 4)
        assert {tuple(row) for row in rows.tolist()} <= {tuple(row) for row in X.tolist()}
    size = sum(float(np.abs(one.weights).sum()) for one in expansion_of(model).expansions)
    off = {"rtol": 0, "atol": 1e-10 * (1 + size)}
    np.testing.assert_allclose(found.base_values, model.predict(rows).mean(), **off)
    np.testing.assert_allclose(found.predictions(), model.predict(X), **off)
    np.testing.assert_allclose(mercer.shapley_values(model, rows).values.mean(0), 0, **off)
    np.testing.assert_allclose(np.ptp(found.values - raw.values, axis=0), 0, **off)  # a constant for each input
    given = mercer.shapley_values(model, X[:9], background=X[:9])
    np.testing.assert_allclose(given.base_values, model.predict(X[:9]).mean(), **off)


def test_of_a_sum_over_the_inputs_they_are_the_interventional_values_of_other_explainers():
    """f(x) = Σ f_d(x_d): the value of an input is f_d(x_d) less its mean over the background, by either definition."""
    X, y = table()
    model = mercer.GreedyKernelRegressor(8, kernel=kernels.Linear(), regularization=1e-3, random_state=0).fit(X, y)
    rows = model.background_

    def v(S):
        mixed = np.repeat(rows[None], 5, 0)
        mixed[:, :, list(S)] = X[:5, None, list(S)]
        return model.predict(mixed.reshape(-1, 4)).reshape(5, -1).mean(1)

    np.testing.assert_allclose(mercer.shapley_values(model, X[:5]).values, brute_force(v, 4), rtol=0, atol=1e-9)


def test_what_was_left_out_adds_exactly_nothing():
    X, y = table(80)
    frame = pd.DataFrame(X, columns=list("abcd")).assign(tree=np.where(X[:, 0] > 0, "oak", "elm"), country="NO")
    model = mercer.GreedyKernelRegressor(15, kernel=kernels.Matern32(2.0), random_state=0).fit(frame, y)
    assert not mercer.shapley_values(model, frame).values[:, 5].any()


def test_centred_values_sum_to_the_same_from_the_mean_prediction_on():
    X, y = table(100)
    both = np.stack([y, X[:, 1]], 1)
    model = mercer.GreedyKernelRegressor(20, kernel=kernels.Gaussian(2.0), random_state=0).fit(X, both)
    plain = mercer.shapley_values(model, X, background=None)
    centred = plain.centred()
    np.testing.assert_allclose(centred.predictions(), plain.predictions(), atol=1e-9)
    np.testing.assert_allclose(centred.base_values, model.predict(X).mean(0), atol=1e-9)
    np.testing.assert_allclose(centred.values.mean(0), 0, atol=1e-9)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_for_classes_they_sum_to_the_decision_values(n_classes):
    X, y = table(120)
    label = np.digitize(y, np.quantile(y, np.linspace(0, 1, n_classes + 1)[1:-1]))
    model = mercer.KernelBoostingClassifier(kernel="gaussian", tuning_rows=80, random_state=0).fit(X, label)
    found = mercer.shapley_values(model, X[:10])
    np.testing.assert_allclose(found.predictions(), model.decision_function(X[:10]), rtol=0, atol=1e-8)
    gp = mercer.SparseGPClassifier(6, kernel="gaussian", max_iter=3, random_state=0).fit(X, label)
    latent = gp.latent_mean_and_covariance(X[:10])[0]
    told = mercer.shapley_values(gp, X[:10]).predictions()
    np.testing.assert_allclose(told.reshape(10, -1), latent, rtol=0, atol=1e-8)


def test_an_average_of_kernels_on_mapped_columns_adds_up():
    """As the race leaves them: column maps, a factor for each column, a share of the average in the weights."""
    X, y = table(100)
    model = mercer.GreedyKernelRegressor(15, kernel=kernels.Gaussian(2.0), random_state=0).fit(X, y)
    columns = fit_column_map("scores", torch.as_tensor(X), torch.ones(len(X)))
    mapped = InputMap(np.zeros(4), np.ones(4), columns, np.array([1.0, 0.5, 2.0, 0.0]))
    first = model.expansions_[0]
    second = replace(first, inputs=mapped, kernel=kernels.Laplacian(3.0), basis=mapped.encode(X[:15]).numpy())
    model.expansions_ = (first, second)
    found = mercer.shapley_values(model, X[:7], background=None)
    np.testing.assert_allclose(found.predictions(), model.predict(X[:7]), rtol=0, atol=1e-9)
    model.expansions_ = (first,)
    alone = mercer.shapley_values(model, X[:7], background=None)
    assert np.ptp(found.values[:, 3] - alone.values[:, 3]) == 0  # the second kernel does not see the last column


@pytest.mark.parametrize(
    ("kernel", "off"), [(kernels.Matern12(2.0), 1e-7), (0.5 * kernels.Gaussian(1.5) + kernels.Bias(0.3), 1e-12)]
)
def test_a_full_metric_is_looked_at_by_all_subsets(kernel, off):
    """Beside an expansion without a metric, and with inputs removed before the metric turns what is left of them.

    Distances round to 1e-16 of rows of norm ten, of which the exponential kernel takes the root: 1e-7.
    """
    X, y = table(80)
    model = mercer.GreedyKernelRegressor(10, kernel=kernel, regularization=1e-2, random_state=0).fit(X, y)
    first = model.expansions_[0]
    turn = np.random.default_rng(1).normal(size=(4, 4))
    second = replace(first, inputs=replace(first.inputs, transform=turn), basis=first.basis @ turn.T)
    model.expansions_ = (first, second)
    found = mercer.shapley_values(model, X[:6], background=None)
    U, W = first.inputs.encode(X[:6]).numpy(), first.weights

    apart, zero = U[:, None] - first.basis, torch.zeros(1, 4, dtype=torch.float64)

    @cache
    def v(S):
        at = torch.as_tensor(np.where(np.isin(np.arange(4), S), apart, 0.0)).reshape(-1, 4)
        both = kernel(at, zero) + kernel(at @ torch.as_tensor(turn).T, zero)
        return both.numpy().reshape(6, -1) @ W * model.targets_.scale

    truth = brute_force(v, 4)[:, :, 0]
    size = np.abs(W).sum() * float(np.max(model.targets_.scale))
    np.testing.assert_allclose(found.values, truth, rtol=0, atol=off * size)
    np.testing.assert_allclose(found.predictions(), model.predict(X[:6]), rtol=0, atol=off * size)


def test_an_input_that_the_model_does_not_see_adds_nothing():
    X, y = table()
    kernel = kernels.Gaussian([1.0, 1.0, 1.0, 1e90])
    model = mercer.GreedyKernelRegressor(10, kernel=kernel, random_state=0).fit(X, y)
    assert np.abs(mercer.shapley_values(model, X).values[:, 3]).max() < 1e-100  # squares of 1e-90


def test_little_memory_gives_the_same_values():
    X, y = table(400)
    model = mercer.KernelBoostingRegressor(kernel="gaussian", tuning_rows=80, random_state=0).fit(X, y)
    plenty = mercer.shapley_values(model, X).values
    rows, columns = block_shape(400, 4, make_plan(400, "cpu", "float64", 2**20))
    assert rows * columns * 8 * (6 * 4 + 4) <= 2**20 / 4
    scarce = mercer.shapley_values(model.set_params(memory_limit=2**20), X).values
    np.testing.assert_allclose(scarce, plenty, rtol=0, atol=1e-10 * np.abs(model.dual_coef_).sum())


def test_what_is_no_product_is_refused_with_a_way_out():
    X, y = table()
    with pytest.raises(ValueError, match="permutation_importance"):
        terms_of(kernels.Product(kernels.Linear(), kernels.Gaussian()), 2)
    tied = mercer.GreedyKernelRegressor(5, kernel=kernels.Polynomial(), random_state=0).fit(X, y)
    with pytest.raises(ValueError, match=r"must be a product .* got Polynomial\(\); .*permutation_importance"):
        mercer.shapley_values(tied, X)
    with pytest.raises(ValueError, match=r"the model must be a kernel expansion .* got NRBFRegressor"):
        mercer.shapley_values(mercer.NRBFRegressor(2, random_state=0).fit(X, y), X)
    model = mercer.GreedyKernelRegressor(5, kernel=kernels.Gaussian(), random_state=0).fit(X, y)
    one = model.expansions_[0]
    model.expansions_ = (replace(one, inputs=replace(one.inputs, transform=np.ones((4, 4)))),)
    with pytest.raises(ValueError, match="the metric of the model must be one that loses no direction"):
        mercer.shapley_values(model, X)
    wide = [np.concatenate([X] * 4, 1), y]
    many = mercer.GreedyKernelRegressor(5, kernel=kernels.Gaussian(), random_state=0).fit(*wide)
    one = many.expansions_[0]
    many.expansions_ = (replace(one, inputs=replace(one.inputs, transform=np.eye(16) + np.eye(16, k=1))),)
    with pytest.raises(ValueError, match="the metric of the model must be diagonal for more than 12 inputs"):
        mercer.shapley_values(many, wide[0])


def test_values_become_an_explanation_of_shap(monkeypatch):
    """The package itself where it is installed; otherwise what would be passed to it."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (60, 3))
    how = {"kernel": kernels.Gaussian(1.0), "regularization": 0.1}
    for y in (X[:, 0], np.stack([X[:, 0], X[:, 1]], 1)):
        found = mercer.shapley_values(mercer.GreedyKernelRegressor(10, **how).fit(X, y), X[:5])
        if importlib.util.find_spec("shap") is None:
            with pytest.raises(ImportError, match="to_shap needs the package shap"):
                found.to_shap()
            given = SimpleNamespace(Explanation=lambda values, **others: SimpleNamespace(values=values, **others))
            monkeypatch.setitem(sys.modules, "shap", given)
        explanation = found.to_shap()
        monkeypatch.delitem(sys.modules, "shap", raising=False)
        np.testing.assert_allclose(explanation.base_values + explanation.values.sum(1), found.predictions())
        assert list(explanation.feature_names) == found.feature_names
        np.testing.assert_array_equal(explanation.data, found.data)
