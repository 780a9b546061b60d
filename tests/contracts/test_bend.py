"""Heavy-tailed columns are bent: a monotone map that its inverse undoes, blind to units, true to weights."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import assert_close

from mercer import KernelBoostingRegressor
from mercer.data import find_bend
from mercer.data.column_maps import fit_column_map


def heavy(n: int = 200, seed: int = 0) -> torch.Tensor:
    """A heavy tail, a column of mostly zeros, a light one, a constant one."""
    rng = np.random.default_rng(seed)
    tail, zeros = np.exp(2 * rng.normal(size=n)), np.where(rng.random(n) < 0.8, 0.0, rng.exponential(5, n))
    return torch.from_numpy(np.column_stack([tail, zeros, rng.uniform(size=n), np.full(n, 3.0)]))


def test_only_heavy_tails_are_bent_and_the_inverse_undoes_it():
    X = heavy()
    bend = find_bend(X, torch.ones(len(X)))
    assert bend.columns.tolist() == [0, 1]
    assert_close(bend.inverse(bend(X)), X)
    assert torch.equal(bend(X).argsort(dim=0, stable=True), X.argsort(dim=0, stable=True))
    assert find_bend(X[:, 2:], torch.ones(len(X))) is None


@settings(max_examples=20, deadline=None)
@given(st.floats(-8, 8), st.floats(-1e3, 1e3), st.integers(0, 1000))
def test_units_do_not_matter(power, offset, seed):
    X, w = heavy(seed=seed), torch.ones(200)
    scale = 10.0**power
    bend, moved = find_bend(X, w), find_bend((X + offset) * scale, w)
    assert moved.columns.tolist() == bend.columns.tolist()
    assert_close(moved((X + offset) * scale)[:, :2], bend(X)[:, :2], rtol=1e-6, atol=1e-6)


def test_a_weight_of_two_is_the_row_twice():
    X = heavy()
    w = torch.from_numpy(np.random.default_rng(1).integers(0, 4, len(X)))
    weighted, repeated = find_bend(X, w), find_bend(X.repeat_interleave(w, 0), torch.ones(int(w.sum())))
    assert_close(weighted.centre, repeated.centre)
    assert_close(weighted.width, repeated.width)


def test_two_values_keep_their_shape():
    X = torch.zeros(100, 1, dtype=torch.float64)
    X[0] = 1.0
    bent = find_bend(X, torch.ones(100))(X)
    assert len(bent.unique()) == 2


def test_a_function_of_a_logarithm_is_learnt_better():
    rng = np.random.default_rng(0)
    X = np.exp(2 * rng.normal(size=(600, 2)))
    y = np.log1p(X).sum(1)
    bent, straight = (
        KernelBoostingRegressor(scale_inputs=how, kernel="gaussian", random_state=0)
        .fit(X[:300], y[:300])
        .score(X[300:], y[300:])
        for how in (True, "standard")
    )
    assert bent > 0.99
    assert 1 - bent < 0.2 * (1 - straight)


def test_units_near_the_ends_of_float64_change_nothing():
    X = heavy()
    weight = torch.ones(len(X))
    plain = find_bend(X, weight)
    for unit in (2.0**-500, 2.0**500):  # powers of two: no digit is lost
        scaled = find_bend(X * unit, weight)
        assert torch.equal(scaled.columns, plain.columns)
        assert torch.equal(scaled.centre, plain.centre * unit)
        assert torch.equal(scaled.width, plain.width * unit)


def test_normal_scores_tell_the_other_rows_apart_beside_a_number_that_stands_for_no_data():
    X = torch.from_numpy(np.random.default_rng(0).normal(size=(200, 1)))
    plain = fit_column_map("scores", X[:-10], torch.ones(190))(X[:-10]).argsort(dim=0)
    for far in (1e20, -3.4e38, 1e300):
        X[-10:] = far
        beside = fit_column_map("scores", X, torch.ones(200))(X)[:-10]
        assert torch.equal(beside.argsort(dim=0), plain)
        assert len(beside.unique()) == 190


def test_a_number_that_stands_for_no_data_leaves_its_column_of_use():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = X[:, 0] + np.sin(2 * X[:, 1])
    X[:15, 0] = 1e20
    model = KernelBoostingRegressor(random_state=0).fit(X[:200], y[:200])
    assert model.score(X[200:], y[200:]) > 0.9  # without the column 0.45
