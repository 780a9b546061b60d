"""Large tables of few different rows are fitted as tables of few rows, and nothing is lost by it."""

import numpy as np
import pytest
import torch
from sklearn.kernel_ridge import KernelRidge

import mercer
from mercer.data import ArrayRows
from mercer.kernels import Matern52
from mercer.preprocessing.duplicates import ENOUGH, fewer_rows
from mercer.preprocessing.read import TableData

RNG = np.random.default_rng(0)
POINTS = RNG.normal(size=(60, 3))
WHICH = RNG.integers(60, size=12_000)
TRUTH = np.sin(POINTS.sum(1))
Y = TRUTH[WHICH] + RNG.laplace(size=len(WHICH))
WEIGHT = RNG.uniform(0.5, 2.0, size=len(WHICH))


@pytest.mark.parametrize("by_targets", [False, True])
def test_squared_errors_of_any_function_differ_by_a_constant(by_targets):
    targets = np.sign(Y) if by_targets else Y
    given = TableData(ArrayRows(POINTS[WHICH]), targets, WEIGHT)
    fewer, means = fewer_rows(given, targets[:, None], np.random.default_rng(1), by_targets=by_targets)
    assert len(means) <= ENOUGH
    assert not by_targets or set(means[:, 0]) == {-1.0, 1.0}

    def error(x, y, w, slope):
        return (w * (x @ slope - y) ** 2).sum()

    change = [
        error(x, y, w, np.array([1.0, -2.0, 0.5])) - error(x, y, w, np.zeros(3))
        for x, y, w in ((POINTS[WHICH], targets, WEIGHT), (fewer.rows.X, means[:, 0], fewer.weight))
    ]
    assert np.isclose(*change, rtol=1e-10)  # sums of 12 000 numbers: 12 000 roundings of 1e-16 at most, and some room


def test_rows_that_differ_are_left_alone():
    given = TableData(ArrayRows(RNG.normal(size=(6000, 2))), np.zeros(6000), np.ones(6000))
    assert fewer_rows(given, np.zeros((6000, 1)), np.random.default_rng(0), by_targets=False) is None


def test_a_model_of_equal_rows_is_kernel_ridge_with_a_basis_vector_for_each_input():
    kernel, points = Matern52(1.5), torch.as_tensor(POINTS)
    K = kernel(points, points).numpy()
    model = mercer.KernelBoostingRegressor(kernel=kernel, regularization=0.1, scale_inputs=False, random_state=0)
    model.fit(POINTS[WHICH], Y, WEIGHT)
    total = np.bincount(WHICH, WEIGHT)
    means = np.bincount(WHICH, WEIGHT * Y) / total
    mean = np.average(Y, weights=WEIGHT)
    oracle = KernelRidge(kernel="precomputed", alpha=0.1).fit(K, means - mean, total)
    assert len(model.basis_) == 60
    # weights of 200 against a penalty of 0.1: a condition of 1e5 leaves float64 eleven digits
    assert np.allclose(model.predict(POINTS) - mean, oracle.predict(K), rtol=0, atol=1e-6)


def test_intervals_are_of_single_rows_not_of_means():
    model = mercer.KernelBoostingRegressor(kernel=Matern52(1.5), regularization=1.0, random_state=0)
    order = np.argsort(Y)  # as a table sorted by its targets comes
    low, high = model.fit(POINTS[WHICH][order], Y[order]).predict_interval(POINTS[WHICH]).T
    # of 2000 residuals the share below a quantile has a deviation of 0.007, two of which make an interval
    assert abs(((low < Y) & (high > Y)).mean() - 0.9) < 0.03
