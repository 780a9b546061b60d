"""The estimators of empirical kernels: limits that join them, extreme values, choices, memory."""

from __future__ import annotations

import pickle
import re
import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris, make_blobs
from sklearn.kernel_approximation import Nystroem
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KernelCenterer

from mercer import (
    EmpiricalKernelMap,
    MHKSClassifier,
    MultiKernelMHKSClassifier,
    RPEMEKLClassifier,
    RPEMEKLRegressor,
)
from mercer.data import NpyRows
from mercer.datasets import make_ripley, make_sinc
from mercer.kernels import Gaussian, Linear

pytestmark = pytest.mark.usefixtures("two_folds")

#: Nothing to select.
GIVEN: dict[str, Any] = {"kernels": "paper", "regularization": 1.0, "coupling": 1.0}
CLASSIFIERS = [
    MHKSClassifier(max_iter=30),
    MultiKernelMHKSClassifier(n_folds=2, max_iter=30),
    RPEMEKLClassifier(**GIVEN, subset_size=0.3, n_members=2, random_state=0),
    RPEMEKLClassifier(**GIVEN, subset_size=20, multiclass="one-vs-rest", random_state=0),
]


@pytest.fixture(scope="module")
def two_classes():
    return make_ripley(120, random_state=0)


@pytest.fixture(scope="module")
def three_classes():
    return load_iris(return_X_y=True)


# --- limits -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("multiclass", ["one-vs-one", "one-vs-rest"])
def test_all_rows_and_one_member_are_multik_mhks(three_classes, multiclass):
    X, y = three_classes
    how = {"multiclass": multiclass, "n_folds": 2, "max_iter": 30}
    one = RPEMEKLClassifier(subset_size=None, n_members=1, **how).fit(X, y)
    other = MultiKernelMHKSClassifier(**how).fit(X, y)
    np.testing.assert_allclose(one.decision_function(X), other.decision_function(X), atol=1e-9)


def test_one_kernel_is_mhks_whatever_the_coupling(two_classes):
    X, y = two_classes
    one = MHKSClassifier(Gaussian(0.7), regularization=0.5).fit(X, y)
    other = MultiKernelMHKSClassifier([Gaussian(0.7)], regularization=0.5, coupling=7.0).fit(X, y)
    np.testing.assert_allclose(one.decision_function(X), other.decision_function(X), atol=1e-9)


def test_two_classes_need_no_pairs(two_classes):
    X, y = two_classes
    one = RPEMEKLClassifier(n_folds=2, random_state=0).fit(X, y)
    other = RPEMEKLClassifier(multiclass="one-vs-rest", n_folds=2, random_state=0).fit(X, y)
    np.testing.assert_array_equal(one.decision_function(X), other.decision_function(X))


def test_a_pair_of_classes_is_trained_on_its_own_rows(three_classes):
    X, y = three_classes
    whole = MultiKernelMHKSClassifier("paper", 1.0, 1.0, scale_inputs=False).fit(X, y)
    pair = y != 1
    part = MultiKernelMHKSClassifier("paper", 1.0, 1.0, scale_inputs=False).fit(X[pair], y[pair])
    ours, alone = whole.members_[1][0], part.members_[0][0]  # pairs (0, 1), (0, 2), (1, 2)
    assert set(ours.basis_indices) <= set(np.flatnonzero(pair))
    # A copy of a row of class 2 is merged, and objectives are for weights of mean one: over all rows, or the pair's.
    np.testing.assert_allclose(ours.objective_path * 150 / 149, alone.objective_path * 100 / 99, rtol=1e-9)


def test_the_regressor_at_coupling_minus_one_is_kernel_ridge():
    X, y = make_sinc(60, random_state=0)
    kernels = [Gaussian(1.0), Gaussian(0.2)]
    model = RPEMEKLRegressor(kernels, regularization=0.2, n_members=1, subset_size=None, scale_inputs=False).fit(X, y)
    Z = torch.as_tensor(X)
    K = KernelCenterer().fit_transform(sum(kernel(Z, Z) for kernel in kernels).numpy())
    ridge = KernelRidge(alpha=0.4, kernel="precomputed").fit(K, y - y.mean())
    np.testing.assert_allclose(model.predict(X), ridge.predict(K) + y.mean(), atol=1e-8)


def test_the_map_on_all_rows_is_nystroem_on_all_rows():
    X, _ = make_ripley(60, random_state=0)
    features = EmpiricalKernelMap(Gaussian(1.0), None, scale_inputs=False).fit(X).transform(X[:20] + 0.1)
    theirs = Nystroem(gamma=0.5, n_components=60, random_state=0).fit(X).transform(X[:20] + 0.1)
    np.testing.assert_allclose(features @ features.T, theirs @ theirs.T, atol=1e-6)


# --- behaviour -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", CLASSIFIERS, ids=lambda m: type(m).__name__)
def test_a_weight_of_two_is_the_row_twice(model, three_classes):
    X, y = three_classes
    weight = np.random.default_rng(0).integers(0, 3, size=len(y))
    one = clone(model).fit(X, y, weight)
    other = clone(model).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(one.decision_function(X), other.decision_function(X), atol=1e-7)


@pytest.mark.parametrize("model", CLASSIFIERS, ids=lambda m: type(m).__name__)
def test_classes_are_those_of_the_largest_score_and_probability(model, three_classes, two_classes):
    for X, y in (three_classes, two_classes):
        fitted = clone(model).fit(X, y)
        probability, score = fitted.predict_proba(X), fitted.decision_function(X)
        np.testing.assert_allclose(probability.sum(1), 1.0)
        np.testing.assert_array_equal(fitted.classes_[probability.argmax(1)], fitted.predict(X))
        best = score.argmax(1) if score.ndim == 2 else (score > 0).astype(int)
        np.testing.assert_array_equal(fitted.classes_[best], fitted.predict(X))


def test_probabilities_are_larger_where_more_members_agree(two_classes):
    X, y = two_classes
    model = RPEMEKLClassifier(subset_size=5, n_members=5, random_state=0).fit(X, y)
    probability = model.predict_proba(X)[:, 1]
    votes = sum((member.values(*model._new(X))[:, 0] > 0).astype(int) for member in model.members_[0])
    for few, more in zip(range(5), range(1, 6), strict=True):
        if (votes == few).any() and (votes == more).any():
            assert probability[votes == few].max() < probability[votes == more].min()


def test_members_tell_their_rows_kernels_and_agreement(three_classes):
    X, y = three_classes
    model = RPEMEKLClassifier("paper", subset_size=0.2, random_state=0).fit(X, y)
    assert [len(members) for members in model.members_] == [3, 3, 3]
    assert model.agreement_.shape == (3, 3)
    assert bool(((model.agreement_ > 0.5) & (model.agreement_ <= 1)).all())
    member = model.members_[0][0]
    assert len(member.basis_indices) == round(0.2 * len(np.unique(X[y < 2], axis=0)))
    assert set(y[member.basis_indices]) <= {0, 1}
    assert member.kernel_norms.shape == (3, 1)
    assert len(member.agreement) == 3


def test_members_differ_and_one_seed_gives_one_result_in_any_number_of_threads(two_classes):
    X, y = two_classes
    one = RPEMEKLClassifier(subset_size=15, random_state=3).fit(X, y)
    two = RPEMEKLClassifier(subset_size=15, random_state=3, n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(one.decision_function(X), two.decision_function(X))
    first, second = one.members_[0][:2]
    assert not np.array_equal(first.basis_indices, second.basis_indices)


def test_rows_may_come_as_frames_tensors_files_or_sources(tmp_path, three_classes):
    X, y = three_classes
    np.save(tmp_path / "rows.npy", X)
    model = RPEMEKLClassifier(**GIVEN, subset_size=20, n_members=2, max_iter=20, random_state=0)
    expected = clone(model).fit(X, y).predict_proba(X)
    names = [f"c{j}" for j in range(X.shape[1])]
    frame, file = pd.DataFrame(X, columns=names), tmp_path / "rows.npy"
    for rows in (frame, pl.DataFrame(X, schema=names), torch.as_tensor(X)):
        np.testing.assert_allclose(clone(model).fit(rows, y).predict_proba(rows), expected, atol=1e-9)
    from_file = clone(model).fit(file, y)
    np.testing.assert_allclose(from_file.predict_proba(file), from_file.predict_proba(X), atol=1e-9)
    np.testing.assert_allclose(clone(model).fit(NpyRows(file), y).predict_proba(X), from_file.predict_proba(X))
    mapped = EmpiricalKernelMap(subset_size=10, random_state=0).fit(file)
    np.testing.assert_allclose(mapped.transform(file), mapped.transform(X), atol=1e-12)


def test_float32_comes_close_to_float64(two_classes):
    X, y = two_classes
    one = RPEMEKLClassifier(subset_size=40, dtype="float64", random_state=0).fit(X, y)
    other = RPEMEKLClassifier(subset_size=40, dtype="float32", random_state=0).fit(X, y)
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), atol=2e-3)


@pytest.mark.parametrize("model", CLASSIFIERS, ids=lambda m: type(m).__name__)
def test_blobs_apart_are_told_apart(model):
    corners = [(3, 3), (3, -3), (-3, 3), (-3, -3)]  # in different directions: a normalised kernel knows no length
    X, y = make_blobs(90, centers=corners, cluster_std=0.5, random_state=1)
    assert clone(model).fit(X[:60], y[:60]).score(X[60:], y[60:]) == 1.0


# --- choices --------------------------------------------------------------------------------------------------


def test_cross_validation_finds_the_penalty_that_generalises(two_classes):
    X, y = two_classes
    keep = (y == y[0]) | (np.arange(len(y)) % 3 > 0)  # uneven classes: a huge penalty leaves the bias alone
    model = MHKSClassifier(Gaussian(0.5), regularization=(1e7, 0.1), n_folds=4, random_state=0).fit(X[keep], y[keep])
    assert model.regularization_ == 0.1
    assert model.cv_scores_.shape == (1, 2)
    assert model.cv_scores_[0, 1] > model.cv_scores_[0, 0] + 5


def test_the_papers_grid_has_81_points_and_sizes_may_be_chosen_too(two_classes):
    X, y = two_classes
    model = RPEMEKLClassifier(
        regularization="paper", coupling="paper", subset_size=(0.05, 0.5), n_folds=3, random_state=0
    ).fit(X, y)
    assert model.cv_scores_.shape == (2, 81)
    assert model.subset_size_ in (0.05, 0.5)
    assert 2**-4 <= model.regularization_ <= 2**4


def test_a_regressor_chooses_by_squared_error():
    X, y = make_sinc(150, random_state=0)
    model = RPEMEKLRegressor(regularization=(1e-2, 1e4), coupling=(-1.0, 1.0), random_state=0).fit(X, y)
    assert model.regularization_ == 1e-2
    assert model.coupling_ == -1.0
    assert model.score(X, y) > 0.8


def test_grid_search_reaches_a_kernels_parameters(two_classes):
    X, y = two_classes
    search = GridSearchCV(MHKSClassifier(Gaussian()), {"kernel__length_scale": [0.5, 100.0]}, cv=2).fit(X, y)
    assert search.best_params_ == {"kernel__length_scale": 0.5}


def test_several_targets_are_fitted_at_once():
    X, y = make_sinc(80, random_state=0)
    both = RPEMEKLRegressor(random_state=0, coupling=0.5).fit(X, np.column_stack([y, -2 * y]))
    alone = RPEMEKLRegressor(random_state=0, coupling=0.5).fit(X, y)
    np.testing.assert_allclose(both.predict(X)[:, 0], alone.predict(X), atol=1e-8)


def test_a_linear_model_may_follow_a_map_of_rows_chosen_for_the_targets():
    X, y = make_sinc(120, random_state=0)
    mapped = EmpiricalKernelMap(Gaussian(0.3), 12, criterion="max-res", random_state=0)
    model = make_pipeline(mapped, Ridge(1e-3)).fit(X, y)
    assert model.score(X, y) > 0.8
    assert len(model[0].basis_) == 12
    with pytest.raises(ValueError, match="criterion must be 'random' where there are no targets"):
        mapped.fit(X)


def test_a_callback_sees_the_objective_and_may_stop(two_classes):
    X, y = two_classes
    sweeps: list = []

    def second(event) -> bool:
        sweeps.extend([event.state] if event.phase == "passes" else [])
        return event.phase == "passes" and event.step == 2

    model = MHKSClassifier(Linear(), callbacks=[second], tol=0.0).fit(X, y)
    assert model.stop_reason_ == "a callback asked to stop"
    assert [s.iteration for s in sweeps] == [1, 2]
    assert model.objective_path_[-1] == sweeps[-1].objective


def test_a_bar_shows_members_and_the_reason_to_stop_is_a_sentence(two_classes, capsys):
    X, y = two_classes
    model = RPEMEKLClassifier(verbose=True, max_iter=1, tol=0.0, random_state=0).fit(X, y)
    assert "members: 3/3" in capsys.readouterr().err
    assert model.stop_reason_ == "max_iter=1 steps were made"


# --- extreme values ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameter", "value", "sentence"),
    [
        (
            "regularization",
            -1.0,
            "regularization must be 'auto' or 'paper' or a number of at least 0 or several, each a number",
        ),
        ("regularization", "best", "regularization must be 'auto' or 'paper'"),
        (
            "coupling",
            -0.5,
            "coupling must be 'auto' or 'paper' or a number of at least 0 or several, each a number of at least 0",
        ),
        ("n_members", 0, "n_members must be an integer of at least 1, got 0"),
        (
            "subset_size",
            1.5,
            "subset_size must be None or an integer of at least 1 or a share above 0 and at most 1",
        ),
        ("subset_size", [], "or several, each None or an integer"),
        ("n_folds", 1, "n_folds must be an integer of at least 2, got 1"),
        ("learning_rate", 1.01, "learning_rate must be a number above 0 and at most 1, got 1.01"),
        ("multiclass", "all", "multiclass must be 'auto', 'one-vs-one', 'one-vs-rest', 'ovo' or 'ovr', got 'all'"),
        ("n_jobs", "x", "n_jobs must be None or an integer other than 0 (below 65536), got 'x'"),
        ("n_jobs", 0, "n_jobs must be None or an integer other than 0 (below 65536), got 0"),
        ("time_budget", -1.0, "time_budget must be None or a positive number of seconds, got -1.0"),
        ("kernels", [], "kernels must be 'paper'"),
        ("max_iter", 2.5, "max_iter must be an integer"),
        ("callbacks", 3, "callbacks must be None or a function or several, got 3"),
    ],
)
def test_bad_parameters_are_refused_in_a_sentence(two_classes, parameter, value, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        RPEMEKLClassifier(**{parameter: value}).fit(*two_classes)


def test_a_model_is_as_large_as_its_rows_and_not_as_their_square():
    X, y = make_ripley(500, random_state=0)
    model = MHKSClassifier(random_state=0).fit(X, y)
    numbers = len(model.members_[0][0].basis) * (X.shape[1] + 2)  # rows, their indices, one weight each
    assert len(pickle.dumps(model)) < 8 * numbers + 20_000
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))


@pytest.mark.parametrize("model", CLASSIFIERS, ids=lambda m: type(m).__name__)
def test_a_class_all_of_whose_rows_weigh_nothing_is_none(model, three_classes):
    X, y = three_classes
    one = clone(model).fit(X, y, sample_weight=(y != 2) * 1.0)
    assert one.classes_.tolist() == [0, 1]
    np.testing.assert_array_equal(one.decision_function(X), clone(model).fit(X[y < 2], y[y < 2]).decision_function(X))


@pytest.mark.parametrize("unit", [2.0**-100, 2.0**100])
def test_the_unit_of_weights_means_nothing_to_a_penalty_chosen_from_the_papers(two_classes, unit):
    X, y = two_classes
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(X))
    model = RPEMEKLClassifier(regularization="paper", subset_size=30, random_state=0)
    one, other = clone(model).fit(X, y, weight), clone(model).fit(X, y, unit * weight)
    np.testing.assert_array_equal(one.decision_function(X), other.decision_function(X))  # powers of two round nothing
    assert other.regularization_ == unit * one.regularization_


def test_a_penalty_given_counts_against_weights_as_in_ridge_regression():
    X, y = make_sinc(80, random_state=0)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(X))
    model = RPEMEKLRegressor([Gaussian(1.0)], regularization=0.3, subset_size=None, n_members=1)
    one = clone(model).fit(X, y, weight)
    other = clone(model).set_params(regularization=3.0).fit(X, y, 10 * weight)
    np.testing.assert_allclose(one.predict(X), other.predict(X), atol=1e-9)
    scaled = one.inputs_.encode(X).numpy()
    phi = EmpiricalKernelMap(Gaussian(1.0), None, scale_inputs=False).fit_transform(scaled)
    ridge = Ridge(0.3).fit(phi, y, sample_weight=weight)  # its targets are not scaled, and a quadratic does not mind
    np.testing.assert_allclose(one.predict(X), ridge.predict(phi), atol=1e-6)
    with pytest.warns(UserWarning, match="sample_weight sums to .* no more than the penalty regularization=0.3"):
        clone(model).fit(X, y, 1e-6 * weight)


HARD = {
    "tiny and huge length-scales": {"kernels": [Gaussian(1e-6), Gaussian(1e6)], "coupling": 0.0},
    "no penalty to speak of": {"regularization": 1e-300},
    "no penalty": {"regularization": 0.0},
    "a penalty beyond all rows": {"regularization": 1e300},
    "a coupling beyond all rows": {"coupling": 1e300},
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.long] if case.endswith("speak of") else []) for case in HARD]
)
def test_hopeless_settings_give_finite_answers(case, dtype):
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(60, 4)) > 0) * 1.0  # two values each: many rows are the same
    y, options = X[:, 0] + X[:, 1] > rng.uniform(0, 2, 60), HARD[case] | {"dtype": dtype}
    weight = np.full(60, 1e30) if dtype == "float64" else 10.0 ** rng.uniform(-10, 10, 60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # which says that a penalty outweighs all rows
        for model in (MultiKernelMHKSClassifier(**options), RPEMEKLClassifier(n_members=2, **options)):
            fitted = model.fit(X, y, sample_weight=weight)
            assert np.isfinite(fitted.predict_proba(X)).all()
            assert np.isfinite(fitted.decision_function(X)).all()
        numbers = RPEMEKLRegressor(n_members=2, **options).fit(X, 1e150 * y, sample_weight=weight)
        assert np.isfinite(numbers.predict(X)).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_however_far_away_get_finite_answers(two_classes, dtype):
    X, y = two_classes
    far = np.vstack([where * np.array([[1.0, 1.0], [-1.0, 0.0]]) for where in (1e20, 1e154, 1e300)])
    for kernels in ("paper", ["linear", "gaussian"]):
        model = RPEMEKLClassifier(kernels, subset_size=30, dtype=dtype, random_state=0).fit(X, y)
        assert np.isfinite(model.predict_proba(far)).all()
        assert np.isfinite(RPEMEKLRegressor(kernels, dtype=dtype, random_state=0).fit(X, 1.0 * y).predict(far)).all()
    assert np.isfinite(EmpiricalKernelMap(dtype=dtype).fit(X).transform(far)).all()


def test_a_map_refuses_targets_of_another_length_and_takes_tensors_with_gradients():
    X, y = make_sinc(40, random_state=0)
    with pytest.raises(ValueError, match="y must be of length 40, got 39"):
        EmpiricalKernelMap(criterion="max-res").fit(X, y[:-1])
    traced = torch.as_tensor(X).requires_grad_()
    seen = EmpiricalKernelMap("gaussian", 10, criterion="max-res", random_state=0).fit(traced, torch.as_tensor(y))
    plain = EmpiricalKernelMap("gaussian", 10, criterion="max-res", random_state=0).fit(X, y)
    np.testing.assert_array_equal(seen.transform(traced), plain.transform(X))


def test_a_map_of_rows_that_the_kernel_cannot_tell_from_zero_has_one_coordinate_of_zeros():
    X, y = make_sinc(20, random_state=0)
    features = EmpiricalKernelMap("linear", criterion="ald").fit(0 * X, y).transform(0 * X)
    assert features.shape == (20, 1)
    assert not features.any()


@pytest.mark.parametrize("model", [*CLASSIFIERS, RPEMEKLRegressor(random_state=0)], ids=lambda m: type(m).__name__)
def test_a_time_budget_of_nothing_still_gives_a_model_and_one_of_plenty_the_model_without(model, three_classes):
    X, y = three_classes
    X, y = X[::2], y[::2]
    hurried = clone(model).set_params(time_budget=1e-9).fit(X, y)
    assert "the time budget of 1e-09 s" in hurried.stop_reason_
    assert np.isfinite(hurried.predict(X)).all()
    assert hurried.score(X, y) > 0.3  # of three classes as many
    plenty, plain = clone(model).set_params(time_budget=600.0).fit(X, y), clone(model).fit(X, y)
    answers = (lambda m: m.decision_function(X)) if hasattr(plain, "classes_") else (lambda m: m.predict(X))
    np.testing.assert_array_equal(answers(plenty), answers(plain))
    assert plenty.stop_reason_ == plain.stop_reason_


def test_machines_whose_turn_never_came_vote_for_the_larger_class():
    X, y = load_iris(return_X_y=True)
    weight = np.where(y == 2, 3.0, 1.0)
    model = RPEMEKLClassifier(subset_size=20, time_budget=1e-9, random_state=0).fit(X, y, weight)
    assert "left 2 of 3 machines untrained" in model.stop_reason_
    assert [len(members) for members in model.members_] == [1, 1, 1]
    assert (model.members_[2][0].values(*model._new(X)) > 0).all()  # the last pair: 1 against 2


def test_scikit_learns_names_are_understood_and_many_classes_take_one_machine_each(three_classes):
    X, y = three_classes
    for ours, theirs in (("one-vs-one", "ovo"), ("one-vs-rest", "ovr")):
        one, other = (MHKSClassifier(Gaussian(1.0), multiclass=name).fit(X, y) for name in (ours, theirs))
        np.testing.assert_array_equal(one.decision_function(X), other.decision_function(X))
    rows = np.random.default_rng(0).normal(size=(140, 3))
    many = np.arange(140) % 70
    model = RPEMEKLClassifier(Gaussian(1.0), subset_size=20, random_state=0).fit(rows, many)
    assert len(model.members_) == 1
    assert model.predict_proba(rows).shape == (140, 70)
    with pytest.raises(ValueError, match="multiclass must be 'auto' or 'one-vs-rest' for more than 64 classes"):
        RPEMEKLClassifier(multiclass="one-vs-one").fit(rows, many)


def test_maps_of_all_rows_are_refused_where_random_rows_fit():
    X, y = make_ripley(2000, random_state=0)
    limit = 20 * 2**20
    with pytest.raises(MemoryError, match="memory_limit"):
        MultiKernelMHKSClassifier(memory_limit=limit).fit(X, y)
    model = RPEMEKLClassifier(**GIVEN, subset_size=60, memory_limit=limit, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.85


def test_a_class_of_one_row_and_constant_columns_do_no_harm():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=30), np.ones(30), 1e6 * rng.normal(size=30)])
    y = np.array(["a"] * 15 + ["b"] * 14 + ["c"])
    model = RPEMEKLClassifier(regularization=(0.1, 1.0), subset_size=0.1, n_folds=5, random_state=0).fit(X, y)
    assert np.isfinite(model.predict_proba(X)).all()


def test_five_iterations_are_usually_enough(two_classes, three_classes):
    for X, y in (two_classes, three_classes):
        model = RPEMEKLClassifier(**GIVEN, subset_size=0.3, tol=0.0, max_iter=30, random_state=0).fit(X, y)
        for member in (member for members in model.members_ for member in members):
            path = member.objective_path[:, 0]
            assert path[4] <= path[-1] + 0.01 * path[0]


def test_c_is_an_older_name_of_the_penalty(two_classes):
    X, y = two_classes
    old, new = (MHKSClassifier(**{name: 0.25}, random_state=0).fit(X, y) for name in ("c", "regularization"))
    assert old.c_ == old.regularization_ == new.regularization_ == 0.25
    np.testing.assert_array_equal(old.decision_function(X), new.decision_function(X))


def friedman(seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(1500, 5))
    f = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]
    return X, f + 0.5 * rng.normal(size=1500), f > np.median(f)


def test_without_arguments_friedmans_function_is_found_but_for_its_noise():
    X, y, _ = friedman(0)  # the noise is 1 % of the variance, gradient boosting leaves 5 %
    model = RPEMEKLRegressor(random_state=0).fit(X[:500], y[:500])
    assert 1 - model.score(X[500:], y[500:]) < 0.02
    assert len(model.leave_one_out_report_) >= 4


@pytest.mark.parametrize("kind", [MHKSClassifier, RPEMEKLClassifier], ids=lambda kind: kind.__name__)
def test_without_arguments_classes_by_friedmans_function_are_found(kind):
    X, _, y = friedman(1)  # logistic regression has 14 % wrong, gradient boosting 9 %
    assert 1 - kind(random_state=0).fit(X[:500], y[:500]).score(X[500:], y[500:]) < 0.08


def test_arguments_that_are_given_are_not_selected():
    X, y, _ = friedman(2)
    model = RPEMEKLRegressor("paper", 0.5, subset_size=20, random_state=0).fit(X[:100], y[:100])
    assert model.leave_one_out_report_ == []
    assert model.regularization_ == 0.5
    model = RPEMEKLRegressor(Gaussian(2.0), subset_size=20, random_state=0).fit(X[:100], y[:100])
    assert repr(model.members_[0][0].kernels) == repr([Gaussian(2.0)])
    assert len(model.leave_one_out_report_) == 1
