"""Promises of every fit of a mixture: nothing lost by a failure, nothing that depends on units, files as arrays."""

from __future__ import annotations

import copy
import pickle
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import RegressorMixin
from sklearn.datasets import make_blobs

from mercer import (
    CommonBasisMixtureClassifier,
    ENRBFClassifier,
    ENRBFRegressor,
    GaussianMixtureClassifier,
    NRBFClassifier,
    NRBFRegressor,
)

pytestmark = pytest.mark.usefixtures("two_folds")

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, (120, 2))
Y = np.sin(1.5 * X[:, 0]) + 0.5 * X[:, 1]
CLASSES = np.digitize(Y, [-0.5, 0.5])
SHORT: dict[str, Any] = {"n_init": 1, "max_iter": 4, "random_state": 0}

REGRESSORS = [
    NRBFRegressor(3, **SHORT),
    ENRBFRegressor(3, **SHORT),
    ENRBFRegressor(3, training="em", **SHORT),
    NRBFRegressor(3, training="gradient", **SHORT),
    ENRBFRegressor(3, training="two-step", **SHORT),
]
CLASSIFIERS = [
    ENRBFClassifier(3, **SHORT),
    ENRBFClassifier(3, training="em", **SHORT),
    NRBFClassifier(3, **SHORT),
    NRBFClassifier(3, training="two-step", **SHORT),
    GaussianMixtureClassifier(2, **SHORT),
    CommonBasisMixtureClassifier(3, **SHORT),
    CommonBasisMixtureClassifier(3, training="em", **SHORT),
    CommonBasisMixtureClassifier(3, training="em", supervised=False, **SHORT),
]
#: Models without a step of EM.
CLOSED = [REGRESSORS[0], REGRESSORS[1], CLASSIFIERS[2]]
over_all = pytest.mark.parametrize("model", [*REGRESSORS, *CLASSIFIERS], ids=lambda m: type(m).__name__)


def fresh(model: Any, **options: Any) -> Any:
    return type(model)(**{**model.get_params(deep=False), **options})


def targets(model: Any) -> np.ndarray:
    return Y if model in REGRESSORS else CLASSES


def finest(model: Any, rows: Any) -> np.ndarray:
    return model.predict_proba(rows) if hasattr(model, "predict_proba") else model.predict(rows)


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


# --- a failed fit ----------------------------------------------------------------------------------------------------


@over_all
def test_an_interrupt_while_sizes_are_judged_leaves_the_old_model_whole(model):
    fitted = copy.deepcopy(plainly_fitted(model, True))
    before = finest(fitted, X)
    fitted.set_params(n_components="auto", callbacks=interrupt)
    with pytest.raises(KeyboardInterrupt):
        fitted.fit(X + 1, targets(model))
    assert (finest(fitted, X) == before).all()


def test_a_further_fit_forgets_what_only_the_first_one_found():
    model = fresh(REGRESSORS[1], n_components="auto", max_components=2).fit(pd.DataFrame(X, columns=["a", "b"]), Y)
    assert hasattr(model, "cv_results_")
    assert hasattr(model, "feature_names_in_")
    model.set_params(n_components=2).fit(X, Y)
    assert not hasattr(model, "cv_results_")
    assert not hasattr(model, "feature_names_in_")


@pytest.mark.parametrize(
    "model", [m for m in (*REGRESSORS, *CLASSIFIERS) if m not in CLOSED], ids=lambda m: type(m).__name__
)
def test_one_function_is_a_callback_and_sees_the_state_of_em(model):
    seen: list[Any] = []
    fresh(model, callbacks=seen.append).fit(X, targets(model))
    states = [event.state for event in seen if event.phase == "EM"]
    assert states
    assert all(state.mixture.n_components >= 1 and np.isfinite(state.objective) for state in states)


# --- sources ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad", [np.where(np.arange(120) == 3, np.nan, Y), Y + 1j, Y.astype("datetime64[s]"), np.zeros((120, 2, 2)), Y[:-1]]
)
def test_targets_beside_a_file_are_checked_too(bad, tmp_path):
    np.save(tmp_path / "x.npy", X)
    with pytest.raises((ValueError, TypeError)):
        fresh(REGRESSORS[0]).fit(tmp_path / "x.npy", bad)


@over_all
def test_tensors_that_want_gradients_and_those_of_half_precision_are_read(model):
    y = torch.tensor(targets(model), requires_grad=model in REGRESSORS)
    wanting = fresh(model).fit(torch.tensor(X, requires_grad=True), y)
    np.testing.assert_array_equal(finest(wanting, X), finest(plainly_fitted(model, True), X))
    half = torch.tensor(X, dtype=torch.bfloat16)
    assert np.isfinite(finest(fresh(model).fit(half, targets(model)), half)).all()


def test_targets_of_responsibilities_are_checked_as_those_of_fit_are():
    both = fresh(REGRESSORS[1]).fit(X, np.column_stack([Y, Y**2]))
    with pytest.raises(ValueError, match="y must be of 2 columns, as in fit, got 1"):
        both.responsibilities(X, Y)
    with pytest.raises(ValueError, match="NaN"):
        both.responsibilities(X, np.full((120, 2), np.nan))


# --- units -----------------------------------------------------------------------------------------------------------


@over_all
def test_only_ratios_of_weights_matter_where_nothing_is_penalised(model):
    """Weights of mean one are the same numbers again up to rounding, and a few steps of EM follow them continuously.

    Every other model has tiny weights, and those between have huge ones.
    """
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(X))
    free = {"regularization": 0.0} if "regularization" in model.get_params() else {}
    scales = (1.0, 1e-200 if [*REGRESSORS, *CLASSIFIERS].index(model) % 2 else 1e200)
    one, other = (finest(fresh(model, **free).fit(X, targets(model), weight * s), X) for s in scales)
    assert np.abs(one - other).max() <= 1e-6 * np.abs(one).max()


@cache
def plainly_fitted(model: Any, scaled: bool) -> Any:
    return fresh(model, scale_inputs=scaled).fit(X, targets(model))


#: Slopes are targets' units by inputs', which float64 has to hold, too.
UNITS = [(2.0**-530, 2.0**-660), (2.0**512, 2.0**512)]


@pytest.mark.parametrize(
    ("model", "unit_x", "unit_y", "scaled"),
    [
        *((m, *units, True) for m in [*REGRESSORS, *CLASSIFIERS] for units in UNITS),
        *((m, *units, False) for m in (REGRESSORS[1], REGRESSORS[2], CLASSIFIERS[0]) for units in UNITS),
    ],
    ids=lambda v: type(v).__name__ if hasattr(v, "fit") else None,
)
def test_units_of_any_size_give_the_same_model(model, unit_x, unit_y, scaled):
    """Units are powers of two, so that not a bit of the table changes; those of classes there are none."""
    unit_y = unit_y if model in REGRESSORS else 1
    plain = plainly_fitted(model, scaled)
    other = fresh(model, scale_inputs=scaled).fit(X * unit_x, targets(model) * unit_y)
    assert np.array_equal(finest(other, X * unit_x), finest(plain, X) * unit_y)
    assert np.array_equal(other.means_, plain.means_ * unit_x)
    if model in REGRESSORS:
        std = plain.predict(X, return_std=True)[1]
        assert np.array_equal(other.predict(X * unit_x, return_std=True)[1], std * unit_y)


@over_all
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_beyond_all_others_have_finite_answers(model, dtype):
    fitted = fresh(model, dtype=dtype).fit(X, targets(model))
    far = np.array([[1e154, -1e154], [1e300, 1e30], [1e19, 0.0]])
    assert np.isfinite(finest(fitted, far)).all()
    if model in REGRESSORS:
        assert np.isfinite(fitted.predict(far, return_std=True)[1]).all()
    else:
        assert np.allclose(finest(fitted, far).sum(1), 1.0)


# --- sizes -----------------------------------------------------------------------------------------------------------


@over_all
def test_a_mixture_is_small_whatever_it_was_fitted_to(model):
    many = np.random.default_rng(0).uniform(-2, 2, (5000, 2))  # of 80 000 bytes
    y = many[:, 0] if model in REGRESSORS else many[:, 0] > 0
    fitted = fresh(model, max_iter=2).fit(many, y)
    assert len(pickle.dumps(fitted)) < 60_000  # of which 2000 scores of intervals, and their weights, take 32 000


@pytest.mark.parametrize("face", [NRBFRegressor, ENRBFRegressor])
@pytest.mark.parametrize("k", range(2, 6))
def test_an_outlier_among_equal_rows_is_not_told_to_all_of_them(face, k):
    """The likelihood gives an outlier a narrow gate of its own, which other rows in that place fall into."""
    rows = np.repeat(np.linspace(-1, 1, 6), [2, 3, 4, 4, 4, 3])[:, None]
    y = np.where(np.arange(20) == 19, 1e6, 0.0)
    for seed in range(3):
        fitted = face(k, n_init=1, max_iter=10, random_state=seed).fit(rows, y)
        assert np.mean((fitted.predict(rows) - y) ** 2) <= (1 + 1e-6) * y.var()


# --- ties ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["spherical", "diagonal", "full", "tied"])
def test_components_do_not_fall_onto_single_values_of_whole_numbers(kind):
    """Three clouds rounded to integers; with walls on single values 0.65 to 0.72 of the rows were right."""
    rows, y = make_blobs(300, random_state=0)
    rows = np.round((rows - rows.mean(0)) / rows.std(0))
    _, cells = np.unique(rows, axis=0, return_inverse=True)
    possible = np.sum([np.bincount(y[cells.ravel() == c]).max() for c in range(cells.max() + 1)]) / len(y)
    scores = [
        NRBFClassifier(covariance_type=kind, n_init=1, random_state=s).fit(rows, y).score(rows, y) for s in (0, 1)
    ]
    assert np.mean(scores) > possible - 0.05  # five components for two dozen cells


def test_the_least_variance_is_e_h2_12_for_values_h_apart_and_a_share_of_the_variance_for_others():
    fine = np.random.default_rng(0).normal(size=(200, 1))
    table = np.hstack([np.round(4 * fine) / 2, fine])  # half as wide apart as integers are
    model = GaussianMixtureClassifier(2, random_state=0).fit(table, table[:, 0] > 0)
    least = model.mixture_.floor.variance * model.inputs_.scale**2
    np.testing.assert_allclose(least, [np.e * 0.5**2 / 12, 1e-4 * fine.var()], rtol=1e-10)


@pytest.mark.parametrize("face", [ENRBFRegressor, NRBFClassifier])
def test_a_size_that_was_chosen_starts_on_all_rows_as_it_did_where_it_was_judged(face, monkeypatch):
    """Judged models grow from smaller ones; one started afresh may end at twice their error (laser, 32 lags).

    So do refits in folds, which come after the fit to all rows.
    """
    starts, train = [], face._train

    def seen(self, sample, k, setting, rng, start=None):
        starts.append((sample.rows.n_rows, k, start))
        return train(self, sample, k, setting, rng, start)

    monkeypatch.setattr(face, "_train", seen)
    y = Y if issubclass(face, RegressorMixin) else CLASSES
    model = face("auto", max_components=3, **SHORT).fit(X, y)
    n_rows, k, start = starts[-1]
    assert n_rows == len(X)
    assert k > 1, "the table should ask for more than one component"
    assert start.n_components == k == max(size for _, size, _ in starts[-k:])
    assert all(start.n_components == size for _, size, start in starts if size > 1)
    assert model.n_components_ <= k
