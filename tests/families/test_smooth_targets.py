"""Smooth targets: a fit without arguments finds the kernel of largest evidence; much noise leaves no search for it."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

from mercer import KernelBoostingRegressor
from mercer.evidence.coordinates import Point
from mercer.kernels import Bias, Gaussian, Matern52, Scaled, Sum
from mercer.selection.evidence_kernels import EvidenceKernel
from mercer.selection.evidence_search import EvidenceSearch
from mercer.selection.halving import select


def friedman1(X):
    return 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]


def otl_circuit(X):
    Rb1, Rb2, Rf, Rc1, Rc2, beta = (np.array([50, 25, 0.5, 1.2, 0.25, 50]) + X * [100, 45, 2.5, 1.3, 0.95, 250]).T
    Vb, B = 12 * Rb2 / (Rb1 + Rb2), beta * (Rc2 + 9)
    return ((Vb + 0.74) * B + 11.35 * Rf + 0.74 * Rf * B / Rc1) / (B + Rf)


def table(function, n_inputs, n, noise=0.0):
    rng = np.random.default_rng(5)
    X, X_test = rng.random((n, n_inputs)), rng.random((1000, n_inputs))
    truth = function(X_test)
    return X, function(X) + noise * truth.std() * rng.standard_normal(n), X_test, truth


def unexplained(model, X_test, truth):
    return float(np.mean((model.predict(X_test) - truth) ** 2) / truth.var())


@cache
def fit_of_smooth_targets():
    """A fit without arguments to 120 rows of a smooth function, made once for all tests of it."""
    X, y, _, _ = table(otl_circuit, 6, 120)
    return KernelBoostingRegressor(random_state=0).fit(X, y)


def selected(X, y, **options):
    Y = torch.as_tensor((y - y.mean()) / y.std())[:, None]
    rng = np.random.default_rng(0)
    return select(torch.as_tensor(X), Y, torch.ones(len(X)), classes=False, rng=rng, **options)


def is_evidence_kernel(member):
    return "evidence kernel" in member.name


@pytest.mark.parametrize(
    ("function", "n_inputs", "n"),
    [(friedman1, 10, 200), (otl_circuit, 6, 120), pytest.param(friedman1, 10, 620, marks=pytest.mark.long)],
)
def test_a_smooth_function_is_learned_as_well_as_by_a_named_gaussian_kernel(function, n_inputs, n):
    """620 rows are more than one stage scores, and more than the evidence sees."""
    X, y, X_test, truth = table(function, n_inputs, n)
    default = fit_of_smooth_targets() if n == 120 else KernelBoostingRegressor(random_state=0).fit(X, y)
    named = KernelBoostingRegressor(kernel="gaussian", random_state=0).fit(X, y)
    assert unexplained(default, X_test, truth) <= 2 * unexplained(named, X_test, truth)


def test_little_noise_does_not_hide_a_smooth_function():
    X, y, X_test, truth = table(friedman1, 10, 300, noise=0.01)
    model = KernelBoostingRegressor(random_state=0).fit(X, y)
    assert unexplained(model, X_test, truth) < 2e-4  # twice the noise's variance; 2e-3 without smooth kernels


def test_a_line_of_the_report_has_the_score_of_each_evidence_kernel():
    report = fit_of_smooth_targets().tuning_report_
    lines = [line for line in report if "evidence kernel" in line["candidate"]]
    others = [line["loss"] for line in report if line["stage"] == lines[0]["stage"] and line not in lines]
    assert {line["stage"] for line in lines} == {"all rows"}
    assert min(line["loss"] for line in lines) < 0.2 * min(others)


def test_a_perfect_kernel_is_not_averaged_with_poor_ones():
    X, y, _, _ = table(friedman1, 10, 200)
    members = selected(X, y).members
    assert sum(member.share for member in members if is_evidence_kernel(member)) == pytest.approx(1.0, abs=1e-6)


def test_a_smooth_function_with_noise_is_learned_as_well_as_by_a_named_gaussian_kernel():
    X, y, X_test, truth = table(friedman1, 10, 250, noise=0.2)
    default, named = (
        KernelBoostingRegressor(kernel=kernel, random_state=0).fit(X, y) for kernel in ("auto", "gaussian")
    )
    assert unexplained(default, X_test, truth) <= 1.5 * unexplained(named, X_test, truth)


def test_targets_of_much_noise_have_no_search_for_smooth_kernels():
    X, y, _, _ = table(friedman1, 5, 150, noise=1.0)
    assert not any("evidence kernel" in line["candidate"] for line in selected(X, y).report)


def test_steps_are_not_taken_for_smooth():
    X = np.random.default_rng(0).random((300, 3))
    found = selected(X, np.floor(4 * X[:, 0]) + np.floor(3 * X[:, 1]))
    assert not any(is_evidence_kernel(member) for member in found.members)


def test_units_of_the_targets_change_nothing():
    X, y, X_test, _ = table(otl_circuit, 6, 120)
    plain = fit_of_smooth_targets().predict(X_test)
    scaled = KernelBoostingRegressor(random_state=0).fit(X, 1e6 * y - 3e5).predict(X_test)
    np.testing.assert_allclose((scaled + 3e5) / 1e6, plain, atol=1e-5 * y.std())


@pytest.mark.parametrize("metric", [None, "diagonal", "full"])
def test_the_metric_asked_for_is_kept(metric):
    X, y, _, _ = table(otl_circuit, 6, 100)
    kernels = [member for member in selected(X, y, metric=metric).members if is_evidence_kernel(member)]
    if metric == "full":
        assert not kernels
    for member in kernels:
        factors = member.transform
        assert factors.ndim == 1
        assert metric is not None or bool((factors == factors[0]).all())


def test_columns_of_a_group_share_a_length_scale():
    X, y, _, _ = table(otl_circuit, 6, 100)
    groups = torch.tensor([0, 0, 1, 2, 3, 4])
    kernels = [member for member in selected(X, y, column_groups=groups).members if is_evidence_kernel(member)]
    assert kernels
    for member in kernels:
        assert member.transform[0] == member.transform[1]


def test_one_input_is_enough():
    x = np.linspace(-3, 3, 60)[:, None]
    model = KernelBoostingRegressor(random_state=0).fit(x, np.sin(2 * x[:, 0]))
    new = np.linspace(-2.9, 2.9, 500)
    assert np.abs(model.predict(new[:, None]) - np.sin(2 * new)).max() < 1e-4


@pytest.mark.parametrize("outputs", [1, 2])
def test_values_are_the_mean_of_the_gaussian_process(outputs):
    rng = np.random.default_rng(0)
    X, X_new, Y = rng.standard_normal((40, 3)), rng.standard_normal((9, 3)), rng.standard_normal((40, outputs))
    weight, lengths, variance, noise = rng.uniform(0.5, 2, 40), np.array([0.7, 2.0, 5.0]), 4.0, 0.02
    point = Point(Sum(Scaled(Gaussian(lengths.tolist()), variance), Bias(0.1)), noise)
    kernel = EvidenceKernel.of(point, Gaussian, 3)
    values = kernel.values(*(torch.as_tensor(part) for part in (X, Y, weight, X_new)))
    process = GaussianProcessRegressor(variance * RBF(lengths), alpha=noise / weight, optimizer=None).fit(X, Y)
    np.testing.assert_allclose(values.numpy(), process.predict(X_new).reshape(9, -1), atol=1e-8)


def test_a_search_from_near_points_does_not_end_below_them():
    X, y, _, _ = table(otl_circuit, 6, 200)
    Y = torch.as_tensor((y - y.mean()) / y.std())[:, None]
    search = EvidenceSearch(torch.as_tensor(X), Y, torch.ones(200, dtype=torch.float64), "auto", 50, 1e-6)
    near = search.radial([Gaussian, Matern52])
    found = search.radial([Gaussian, Matern52], near)
    assert all(found[name].value >= near[name].value - 1e-6 * abs(near[name].value) for name in found)
