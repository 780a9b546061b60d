"""The metric a user meets: which metrics are tried, what `metric_` says, and `GradientMetric`."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from oracles import assert_close
from sklearn.metrics.pairwise import rbf_kernel

import mercer
from mercer.forward.kernel_metric import diagonal_shares, metric_matrix, sensitivity
from mercer.kernels import Function, Gaussian, Precomputed
from mercer.preprocessing.inputs import InputMap
from mercer.selection.halving import select


def table(n: int, D: int, seed: int = 0) -> tuple[np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, D)), rng


# Which metrics are tried


@pytest.mark.parametrize(
    ("choice", "runs"),
    [(None, set()), ("diagonal", {"evidence", "diagonal"}), ("full", {"full"}),
     ("auto", {"evidence", "diagonal", "full"})],
)  # fmt: skip
def test_only_the_metrics_asked_for_are_tried(small, choice, runs):
    X, rng = table(500, 4)
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(500)
    Y = torch.from_numpy((y - y.mean()) / y.std())[:, None]
    options = {"classes": False, "rng": np.random.default_rng(0), "metric": choice}
    found = select(torch.from_numpy(X), Y, torch.ones(500), **options, settings=small)
    ends = {line["candidate"].split(", ")[1].split(" + ")[-1].split()[0] for line in found.report}
    assert ends - {"evidence", "descent"} == (runs | {"none"}) - {"evidence"}
    assert choice != "full" or all(
        "full" in line["candidate"] for line in found.report if "descent" in line["candidate"]
    )
    # with full metrics alone the evidence's metric is only a start
    ended = {member.name.split(", ")[1].split(" + ")[-1].split()[0] for member in found.members}
    assert ended <= runs | {"none", "descent"}
    assert ("evidence" in ends) == (choice in ("diagonal", "auto"))


def test_a_full_metric_finds_the_projections_that_no_metric_misses():
    X, rng = table(800, 6)
    directions = np.linalg.qr(rng.standard_normal((6, 2)))[0]
    y = np.sin(2 * X @ directions).sum(1)
    error = {}
    for choice in (None, "full"):
        model = mercer.KernelBoostingRegressor(metric=choice, n_kernels=1, random_state=0).fit(X[:400], y[:400])
        error[choice] = 1 - model.score(X[400:], y[400:])
    # a function of three inputs is far easier than one of eight: 0.3 and 0.03 where this was written
    assert error["full"] < 0.5 * error[None]


@pytest.mark.parametrize("other", [{"kernel": "gaussian"}, {"kernel": Gaussian()}, {"scale_inputs": False}], ids=repr)
def test_a_metric_is_refused_where_nothing_is_selected(other):
    X, _ = table(20, 2)
    with pytest.raises(
        ValueError, match="metric must be 'auto' unless kernel='auto' and scale_inputs=True, got 'full'"
    ):
        mercer.KernelBoostingRegressor(metric="full", **other).fit(X, X[:, 0])


# What the kernels see of each input


@pytest.mark.usefixtures("two_folds")
def test_inputs_that_do_not_matter_have_less_than_one_percent():
    X, rng = table(400, 7)
    y = np.sin(3 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.standard_normal(400)
    model = mercer.KernelBoostingRegressor(random_state=0).fit(X, y)
    assert model.relevance_.sum() == pytest.approx(1)
    assert (model.relevance_[2:] < 0.01).all()
    assert (model.relevance_[:2] > 0.05).all()
    assert model.metric_.shape == (7, 7)


@pytest.mark.usefixtures("two_folds")
def test_the_scale_of_columns_does_not_matter():
    X, _ = table(60, 3)
    y, units = np.sin(X[:, 0]) + X[:, 1], 2.0 ** np.array([3, -5, 8])
    greedy = {"n_basis": 10, "regularization": 0.1, "random_state": 0}
    lengths, raw = np.array([1.0, 2.0, 4.0]), {"scale_inputs": False}
    for options, scaled in (
        ({"kernel": "gaussian"}, {"kernel": "gaussian"}),
        ({"kernel": Gaussian(lengths), **raw}, {"kernel": Gaussian(lengths * units), **raw}),
    ):
        plain = mercer.GreedyKernelRegressor(**greedy, **options).fit(X, y).relevance_
        other = mercer.GreedyKernelRegressor(**greedy, **scaled).fit(X * units, y).relevance_
        np.testing.assert_allclose(other, plain, rtol=1e-9)  # powers of two: only the tuning's own rounding


def test_the_metric_is_the_one_by_which_a_gaussian_falls():
    X, rng = table(5, 3)
    A, lengths = rng.standard_normal((3, 3)), np.array([0.5, 1.0, 2.0])
    inputs = InputMap(np.zeros(3), np.ones(3), None, A)
    u = inputs.encode(X)
    falls = sensitivity(Gaussian(lengths), 3)
    assert falls is not None
    M = metric_matrix(A, falls)
    d = X[:, None] - X
    slow = torch.from_numpy(np.exp(-0.5 * np.einsum("ijk,kl,ijl->ij", d, M, d)))
    assert_close(Gaussian(lengths)(u, u), slow, rtol=1e-9, atol=1e-12)  # float64, exponents up to 100


def test_diagonals_are_shares_in_units_of_the_columns_and_equal_where_there_is_none():
    np.testing.assert_allclose(diagonal_shares(np.diag([1.0, 1.0]), np.array([3.0, 1.0])), [0.9, 0.1])
    np.testing.assert_allclose(diagonal_shares(np.zeros((2, 2)), np.ones(2)), [0.5, 0.5])


@pytest.mark.usefixtures("two_folds")
def test_a_kernel_that_is_any_function_has_no_metric():
    X, _ = table(40, 3)
    how = {"n_basis": 5, "regularization": 0.1, "random_state": 0}
    assert not hasattr(mercer.GreedyKernelRegressor(kernel=rbf_kernel, **how).fit(X, X[:, 0]), "metric_")
    given = mercer.GreedyKernelRegressor(kernel="precomputed", **how).fit(rbf_kernel(X), X[:, 0])
    assert not hasattr(given, "relevance_")
    assert not hasattr(given, "metric_")
    assert sensitivity(Gaussian() + Function(rbf_kernel), 3) is None
    assert sensitivity(Precomputed(), 3) is None


# The transformer


def test_rows_are_as_far_apart_after_the_mapping_as_the_metric_says(short_selections):
    X, _ = table(400, 4)
    X[:, 1] = 5 + 100 * X[:, 1]
    found = mercer.GradientMetric("full", scale_inputs="standard", random_state=0).fit(X, np.sin(X[:, 0] + X[:, 2]))
    assert found.inputs_.transform.ndim == 2
    d = ((X - X.mean(0)) / X.std(0))[:, None][:20] - ((X - X.mean(0)) / X.std(0))[:20]
    mapped = found.transform(X[:20])
    fast = np.square(mapped[:, None] - mapped).sum(2)
    np.testing.assert_allclose(fast, np.einsum("ijk,kl,ijl->ij", d, found.metric_, d), rtol=1e-8, atol=1e-8)
    assert np.trace(found.metric_) == pytest.approx(4)  # as long as standardised rows
    assert found.relevance_[[0, 2]].sum() > 0.8  # half of an isotropic one


def test_the_mapping_is_that_of_boosting_with_one_kernel(short_selections):
    X, rng = table(200, 3)
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(200)
    found = mercer.GradientMetric(random_state=0).fit(X, y)
    model = mercer.KernelBoostingRegressor(n_kernels=1, random_state=0).fit(X, y)
    np.testing.assert_allclose(found.transform(X), model.inputs_.encode(X), rtol=1e-9, atol=1e-9)
    assert repr(found.kernel_) == repr(model.kernel_)


def test_classes_are_told_by_their_type_or_by_task(short_selections):
    X, _ = table(300, 3)
    inside = X[:, 0] ** 2 + X[:, 1] ** 2 < 1.4
    text = mercer.GradientMetric("diagonal", random_state=0).fit(X, np.where(inside, "in", "out"))
    whole = mercer.GradientMetric("diagonal", task="classification", random_state=0).fit(X, 1 - inside.astype(int))
    np.testing.assert_array_equal(text.transform(X), whole.transform(X))
    assert text.relevance_[2] < 0.1
    numbers = mercer.GradientMetric("diagonal", random_state=0).fit(X, 1 - inside.astype(int))
    assert numbers.tuning_report_[0]["loss"] != text.tuning_report_[0]["loss"]  # squared error, not log loss


def test_columns_that_come_out_have_names(short_selections):
    X, _ = table(100, 2)
    found = mercer.GradientMetric(random_state=0).set_output(transform="pandas")
    out = found.fit_transform(pd.DataFrame(X, columns=["width", "depth"]), X[:, 0])
    assert list(out.columns) == list(found.get_feature_names_out()) == ["gradientmetric0", "gradientmetric1"]


@pytest.mark.filterwarnings("error")
def test_diagonals_of_columns_near_the_ends_of_float64_is_a_share():
    shares = diagonal_shares(np.diag([1e-300, 1e-308]), np.array([1e200, 1e204]))
    np.testing.assert_allclose(shares, [0.5, 0.5])
