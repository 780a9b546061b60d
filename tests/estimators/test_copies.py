"""Copies of a row, by weight or by repetition, are never on both sides of a split; other equal rows may be."""

import numpy as np
import pandas as pd
import pytest

import mercer

pytestmark = pytest.mark.usefixtures("short_selections")

N, NEW = 300, 600


@pytest.fixture(scope="module")
def noisy():
    """Two columns of four say something; the noise is half of the variance."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N + NEW, 4))
    return X, np.sin(X[:, 0]) + 0.5 * X[:, 1] + rng.normal(0, 0.7, N + NEW)


@pytest.fixture
def plain(noisy):
    X, y = noisy
    return fitted(X[:N], y[:N])


def fitted(X, y, weight=None):
    return mercer.KernelBoostingRegressor(random_state=0).fit(X, y, sample_weight=weight)


def inside(model, X, y):
    low, high = model.predict_interval(X, 0.9).T
    return ((low <= y) & (y <= high)).mean()


WHOLE = np.random.default_rng(1).integers(1, 6, N)


@pytest.mark.parametrize(
    ("rows", "weight"),
    [
        (np.arange(N), WHOLE),
        (np.arange(N), WHOLE * 0.3),
        (np.random.default_rng(2).permutation(np.repeat(np.arange(N), WHOLE)), None),
        (np.random.default_rng(3).integers(0, N, N), None),
    ],
    ids=["integer weights", "multiples", "repeated", "bootstrap"],
)
def test_copies_leave_penalty_error_and_intervals_as_they_are(noisy, plain, rows, weight):
    """The number of different rows is what counts: 300, or 190 in the bootstrap."""
    X, y = noisy
    model = fitted(X[rows], y[rows], weight)
    assert model.regularization_ > 0.1 * plain.regularization_  # copies on both sides: a thousandth
    assert model.score(X[N:], y[N:]) > plain.score(X[N:], y[N:]) - 0.05  # weights waste a fifth of the rows
    # 600 new rows and 190 residuals or more: a standard deviation of 0.025, two of which are allowed
    assert abs(inside(model, X[N:], y[N:]) - 0.9) < 0.05


def rare_class(n):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(n, 3))
    return X, (X[:, 0] + X[:, 1] + 1.2 * rng.normal(size=n) > 2.2).astype(int)  # one row in nine


def test_a_class_weight_that_is_whole_says_what_one_beside_it_says():
    X, y = rare_class(1200)
    whole, beside = (
        mercer.KernelBoostingClassifier(class_weight={0: 1, 1: w}, random_state=0).fit(X[:400], y[:400])
        for w in (10, 9.9)
    )
    p, q = (model.predict_proba(X[400:])[:, 1] for model in (whole, beside))
    # a hundredth more weight moves no probability by more than a quarter of that; choices beside it may differ
    assert np.abs(p - q).mean() < 0.05
    # weighted, classes are about as frequent: where copies were taken for new rows it was half of that
    assert p.mean() > 0.25


def test_oversampled_rows_are_weights():
    X, y = rare_class(1200)
    rare = np.flatnonzero(y[:400] == 1)
    more = np.append(np.arange(400), np.random.default_rng(0).choice(rare, 8 * len(rare)))
    models = [
        mercer.KernelBoostingClassifier(random_state=0).fit(X[index], y[index], sample_weight=weight)
        for index, weight in ((more, None), (np.arange(400), np.bincount(more, minlength=400)))
    ]
    p, q = (model.predict_proba(X[400:])[:, 1] for model in models)
    np.testing.assert_allclose(p, q, atol=1e-8)  # solved twice to 1e-11, on rows in another order
    assert p.mean() > 0.25


def test_a_weight_of_two_is_the_row_twice_in_a_table_of_many_levels():
    """Levels are coded by mean targets, made in folds: a copy in another fold would tell its target."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"shop": rng.integers(0, 80, 320).astype(str), "x": rng.normal(size=320)})
    y, times = frame["x"] + rng.normal(size=320), rng.integers(1, 4, 320)
    again = np.repeat(np.arange(320), times)
    weighted = mercer.KernelBoostingRegressor(random_state=0).fit(frame, y, sample_weight=times)
    repeated = mercer.KernelBoostingRegressor(random_state=0).fit(frame.iloc[again], y.iloc[again])
    np.testing.assert_allclose(repeated.predict(frame), weighted.predict(frame), atol=1e-8)
    assert set(repeated.basis_indices_) <= set(np.cumsum(times) - times)  # the first of the copies


def test_equal_inputs_with_other_targets_are_rows_of_their_own():
    """Left out with all its equals, a row of few categories would see the other class alone."""
    rng = np.random.default_rng(0)
    share = np.array([0.1, 0.9, 0.35])
    x = rng.integers(0, 3, 400)
    y = (rng.random(400) < share[x]).astype(int)
    model = mercer.KernelBoostingClassifier(random_state=0).fit(x[:, None].astype(float), y)
    p = model.predict_proba(np.arange(3.0)[:, None])[:, 1]
    observed = np.array([y[x == k].mean() for k in range(3)])
    assert np.abs(p - observed).max() < 0.06  # drawn to each other by less than two standard errors of 133 rows


def test_copied_rows_of_measured_targets_are_copies_although_inputs_recur():
    """A grid of settings, measured three times each, and a bootstrap of that: equal numbers are no coincidence."""
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(80, 2)), 3, axis=0)
    y = X[:, 0] + 0.5 * rng.normal(size=240)
    some = rng.integers(0, 240, 240)
    counts = np.bincount(some, minlength=240)
    p, q = (
        mercer.KernelBoostingRegressor(random_state=0).fit(X[index], y[index], sample_weight=weight).predict(X)
        for index, weight in ((some, None), (np.flatnonzero(counts), counts[counts > 0]))
    )
    np.testing.assert_allclose(p, q, atol=1e-8)


def test_rows_held_out_count_by_their_weights():
    """Decision values become probabilities by rows held out, whose classes weigh as those of the others do."""
    X, y = rare_class(1200)
    model = mercer.KernelBoostingClassifier(
        n_learners=2, validation_fraction=0.3, class_weight={0: 1.0, 1: 7.5}, random_state=0
    ).fit(X[:600], y[:600])
    p = model.predict_proba(X[600:])[:, 1]
    weight = np.where(y[600:] == 1, 7.5, 1.0)
    shares = np.average(p, weights=weight), np.average(y[600:], weights=weight)
    assert abs(shares[0] - shares[1]) < 0.06  # 600 rows, of which 65 have half of the weight
