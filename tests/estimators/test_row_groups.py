"""Groups and time inside `fit`: no split divides a group, and no row is predicted by later ones."""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mercer import (
    GreedyKernelClassifier,
    GreedyKernelRegressor,
    KernelBoostingClassifier,
    KernelBoostingRegressor,
    load,
)
from mercer.data import ArrayRows, TensorRows
from mercer.data.row_groups import RowGroups
from mercer.engine import Sample, make_plan
from mercer.forward.problem import Problem
from mercer.forward.solve.exact import exact_likelihood
from mercer.forward.task import hold_out
from mercer.kernels import Gaussian
from mercer.losses import Logistic
from mercer.preprocessing.read import TableData
from mercer.selection.likelihood import KernelLikelihood
from mercer.selection.score import dual_coefficients, leave_one_out_path
from mercer.selection.settings import DEFAULT_SETTINGS


def patients(n_patients: int, n_each: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of patients whose inputs tell them apart, with an offset of each patient in the targets."""
    rng = np.random.default_rng(seed)
    patient = np.repeat(np.arange(n_patients), n_each)
    X = rng.normal(size=(n_patients, 6))[patient] + 0.1 * rng.normal(size=(len(patient), 6))
    y = np.sin(X[:, 0]) + rng.normal(size=n_patients)[patient] + 0.1 * rng.normal(size=len(patient))
    return X, y, patient


def months(n_months: int, n_each: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows whose weather tells the month, with an offset of each month in the targets."""
    rng = np.random.default_rng(seed)
    month = np.repeat(np.arange(n_months), n_each)
    x = rng.normal(size=len(month))
    weather = rng.normal(size=(n_months, 4))[month] + 0.05 * rng.normal(size=(len(month), 4))
    y = np.sin(2 * x) + 0.7 * rng.normal(size=n_months)[month] + 0.1 * rng.normal(size=len(month))
    return np.column_stack([x, weather]), y, month + rng.uniform(size=len(month))


def coverage(model: KernelBoostingRegressor, X: np.ndarray, y: np.ndarray) -> float:
    low, high = model.predict_interval(X, 0.9).T
    return float(((low <= y) & (y <= high)).mean())


@pytest.mark.parametrize("n_folds", [1, 2, 5, 10])
@pytest.mark.parametrize("most", [np.inf, 40])
def test_no_split_divides_a_group(n_folds: int, most: float) -> None:
    rng = np.random.default_rng(n_folds)
    groups = RowGroups(rng.integers(0, 30, 200))
    splits = groups.splits(n_folds, most=most, seed=1)
    for left_out, scored in splits:
        assert np.array_equal(left_out, scored)
        assert not np.isin(np.delete(groups.key, left_out), groups.key[left_out]).any()
        assert 0 < len(scored) < 200
    rows = np.concatenate([split.scored for split in splits])
    assert len(np.unique(rows)) == len(rows) <= most
    if n_folds > 1 and most == np.inf:
        assert len(rows) == 200


@pytest.mark.parametrize("n_folds", [1, 2, 5, 10])
@pytest.mark.parametrize("most", [np.inf, 40])
@pytest.mark.parametrize("gap", [0.0, 5.0, 1000.0])
def test_rows_are_scored_by_earlier_rows_beyond_the_gap(n_folds: int, most: float, gap: float) -> None:
    time = RowGroups(np.random.default_rng(n_folds).integers(0, 60, 200).astype(float), True, gap)
    splits = time.splits(n_folds, most=most)
    assert splits
    for left_out, scored in splits:
        fitted = np.delete(time.key, left_out)
        assert len(fitted) > 0
        assert fitted.max() < time.key[scored].min() - (gap if gap < 60 else 0.0)
    assert np.isin(np.flatnonzero(time.key == time.key.max()), splits[-1].scored).all()  # the latest rows score


def test_leaving_groups_out_in_closed_form_equals_refits() -> None:
    rng = np.random.default_rng(0)
    X, Y = torch.as_tensor(rng.normal(size=(40, 2))), torch.as_tensor(rng.normal(size=(40, 2)))
    weight, K = torch.as_tensor(rng.uniform(0.5, 2, 40)), torch.exp(-torch.cdist(X, X))
    penalties = torch.tensor([1e-3, 1.0], dtype=torch.float64)
    for groups in (RowGroups(rng.integers(0, 7, 40)), RowGroups(np.arange(40.0), True, 3.0)):
        splits = groups.splits(4)
        values = leave_one_out_path(K, Y, weight, penalties, splits)
        for out, scored in splits:
            fit = np.delete(np.arange(40), out)
            for k, lam in enumerate(penalties.tolist()):
                alpha = dual_coefficients(K[fit][:, fit].clone(), Y[fit], weight[fit], lam)
                assert alpha is not None
                np.testing.assert_allclose(values[k, scored], K[scored][:, fit] @ alpha, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("order", ["groups", "time_order"])
def test_intervals_of_an_exact_solution_come_from_refits_without_the_groups(order: str) -> None:
    X, y, patient = patients(30, 6, 0)
    model = KernelBoostingRegressor(kernel="gaussian", random_state=0, n_basis=None)
    model.fit(X, y, **{order: patient})
    target = (y - y.mean()) / y.std()
    expansion = model.expansions_[0]
    Z = torch.as_tensor((X - expansion.inputs.mean) / expansion.inputs.scale)
    K = expansion.kernel(Z, Z)
    rows = RowGroups(patient.astype(float), order == "time_order")
    errors = []
    for out, scored in rows.splits(10):
        fit = np.delete(np.arange(len(y)), out)
        alpha = dual_coefficients(
            K[fit][:, fit].clone(), torch.as_tensor(target[fit, None]), torch.ones(len(fit)), model.regularization_
        )
        assert alpha is not None
        errors.append(target[scored] - (K[scored][:, fit] @ alpha).numpy()[:, 0])
    scale = model.intervals_.local is None
    assert scale
    np.testing.assert_allclose(model.intervals_.scores[:, 0], np.sort(np.concatenate(errors)), atol=1e-5)


def test_intervals_hold_new_patients_only_if_groups_are_known() -> None:
    seen = []
    model, without = (KernelBoostingRegressor(metric=None, random_state=0) for _ in range(2))
    for seed in range(3):
        X, y, patient = patients(100, 5, seed)
        X_new, y_new, _ = patients(500, 1, 100 + seed)
        seen.append(coverage(model.fit(X, y, groups=patient), X_new, y_new))
    assert 0.85 <= np.mean(seen) <= 0.95
    without.fit(X, y)
    assert coverage(without, X_new, y_new) < 0.5
    assert model.regularization_ > 10 * without.regularization_


def test_intervals_hold_the_next_months_only_if_time_is_known() -> None:
    seen = []
    model = KernelBoostingRegressor(metric=None, random_state=0)
    for seed in range(3):
        X, y, time = months(100, 4, seed)
        past = np.random.default_rng(seed).permutation(np.flatnonzero(time < 60))
        future = time >= 60
        with_time = model.fit(X[past], y[past], time_order=time[past])
        seen.append(coverage(with_time, X[future], y[future]))
    assert 0.85 <= np.mean(seen) <= 0.95
    assert coverage(model.fit(X[past], y[past]), X[future], y[future]) < 0.5


@pytest.mark.parametrize(("order", "n_each"), [("groups", 4), ("groups", 9), ("time_order", 6)])
def test_no_stage_of_the_selection_learns_what_tells_groups_apart(order: str, n_each: int, monkeypatch) -> None:
    """Targets are noise of each group: every stage that divided a group would find a loss far below 1.

    320 rows are scored in one stage, 480 in folds of the last, and 720 in stages of more and more rows.
    """
    settings = replace(
        DEFAULT_SETTINGS, grid_rows=150, fit_rows=250, evidence_rows=200, last_fit_rows=350, single_stage_below=400,
        folded_below=700,
    )  # fmt: skip
    monkeypatch.setattr(KernelBoostingRegressor, "_selection_settings", settings)
    rng = np.random.default_rng(n_each)
    group = np.repeat(np.arange(80), n_each)
    X = rng.normal(size=(80, 5))[group] + 0.05 * rng.normal(size=(len(group), 5))
    y = rng.normal(size=80)[group]
    model = KernelBoostingRegressor(random_state=0).fit(X, y, **{order: group})
    assert min(line["loss"] for line in model.tuning_report_) > 0.7
    if n_each == 4:  # the same rows without their groups
        leaky = KernelBoostingRegressor(random_state=0).fit(X, y)
        assert min(line["loss"] for line in leaky.tuning_report_) < 0.1


@pytest.mark.parametrize(("order", "n_each"), [("groups", 4), pytest.param("time_order", 4, marks=pytest.mark.long)])
def test_probabilities_of_noise_stay_near_the_frequencies(order: str, n_each: int) -> None:
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(80), n_each)
    X = rng.normal(size=(80, 5))[group] + 0.05 * rng.normal(size=(len(group), 5))
    y = rng.integers(0, 2, 80)[group]
    face = partial(KernelBoostingClassifier, metric=None, random_state=0)
    model = face().fit(X, y, **{order: group})
    new = rng.normal(size=(500, 5))
    p = model.predict_proba(new)[:, 1]
    assert -np.log([p, 1 - p]).mean() < 0.8  # the log loss of fair coins; ln 2 is the least
    sure = face().fit(X, y).predict_proba(new)[:, 1].clip(1e-12, 1 - 1e-12)
    assert -np.log([sure, 1 - sure]).mean() > -np.log([p, 1 - p]).mean()


@pytest.mark.parametrize("ordered", [False, True])
def test_out_of_fold_log_odds_are_those_of_refits_without_the_groups(ordered: bool) -> None:
    X, y, patient = patients(20, 4, 3)
    Y, groups = torch.as_tensor(np.where(y > 0, 1.0, -1.0)[:, None]), RowGroups(patient.astype(float), ordered, 1.0)
    plan = make_plan(len(y), "cpu", "float64")
    sample = Sample(TensorRows(torch.as_tensor(X)), Y, torch.ones(len(y)).double(), plan, row_groups=groups)
    kernel, index = Gaussian(2.0), torch.arange(len(y))
    found = exact_likelihood(Problem(sample, kernel, 0.5, Logistic()), index)
    scored_rows = np.concatenate([scored for _, scored in found.splits])
    assert found.left_out.isfinite().nonzero()[:, 0].tolist() == sorted(scored_rows)
    for out, scored in found.splits:
        fit = torch.as_tensor(np.delete(np.arange(len(y)), out))
        K = kernel(sample.rows.X[fit], sample.rows.X[fit])
        again = KernelLikelihood(K, Y[fit], torch.ones(len(fit)), 0.5, Logistic()).fit()
        values = kernel(sample.rows.X[scored], sample.rows.X[fit]) @ again.alpha
        np.testing.assert_allclose(found.left_out[scored], values, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("share", [0.1, 0.4])
def test_validation_rows_are_whole_groups_or_the_latest(share: float) -> None:
    rng = np.random.default_rng(0)
    X, group = rng.normal(size=(200, 2)), rng.integers(0, 25, 200)
    y = (group % 3)[:, None] == np.arange(3)
    data = TableData(ArrayRows(X), y[:, 0], np.ones(200), row_groups=RowGroups(group))
    split, places = hold_out(data, np.where(y, 1.0, -1.0), share, rng, classes=True)
    assert not np.isin(group[split.weight > 0], group[places.numpy()]).any()
    assert set(group[split.weight > 0] % 3) == {0, 1, 2}
    assert len(places) <= share * 200
    time = rng.uniform(size=200)
    data = TableData(ArrayRows(X), time, np.ones(200), row_groups=RowGroups(time, True, 0.1))
    split, places = hold_out(data, time[:, None], share, rng, classes=False)
    assert time[split.weight > 0].max() < time[places.numpy()].min() - 0.1
    assert len(places) == pytest.approx(share * 200, abs=1)


@pytest.mark.parametrize("order", ["groups", "time_order"])
def test_every_kind_of_fit_takes_them(order: str, tmp_path, short_selections) -> None:
    X, y, patient = patients(24, 5, 1)
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(level=np.array(list("uvwxyz"))[patient % 6], who=patient)
    frame.loc[::7, "a"] = np.nan
    classes = np.array(["low", "middle", "high"])[np.digitize(y, [-0.5, 0.5])]
    given = {order: patient}
    fitted = [
        KernelBoostingRegressor(random_state=0).fit(frame, y, **{order: "who"}),
        KernelBoostingRegressor(kernel=Gaussian(2.0), loss="pinball", random_state=0).fit(X, y, **given),
        KernelBoostingRegressor(kernel=Gaussian(2.0), n_learners=3, random_state=0).fit(X, y, **given),
        KernelBoostingRegressor(kernel=Gaussian(2.0), validation_fraction=0.2, random_state=0).fit(X, y, **given),
        KernelBoostingRegressor(kernel=Gaussian(2.0), random_state=0).fit(
            X, np.column_stack([y, -y]), X_val=X, y_val=np.c_[y, y], **given
        ),
        KernelBoostingRegressor(kernel="precomputed", random_state=0).fit(rbf_kernel(X), y, **given),
        KernelBoostingRegressor(kernel=Gaussian(2.0), random_state=0).fit(sparse.csr_matrix(X), y, **given),
        GreedyKernelRegressor(8, kernel=Gaussian(2.0), stopping="validation", random_state=0).fit(X, y, **given),
        KernelBoostingClassifier(random_state=0).fit(frame, classes, **given),
        GreedyKernelClassifier(8, kernel=Gaussian(2.0), random_state=0).fit(X, classes, **given),
    ]
    for place, model in enumerate(fitted):
        rows = frame if hasattr(model, "feature_names_in_") else rbf_kernel(X) if place == 5 else X
        model.save(tmp_path / f"{place}.mercer")
        again = load(tmp_path / f"{place}.mercer")
        method = "predict_proba" if hasattr(model, "predict_proba") else "predict_interval"
        np.testing.assert_array_equal(getattr(model, method)(rows), getattr(again, method)(rows))


def test_labels_and_dates_of_any_kind_are_the_same_groups() -> None:
    X, y, patient = patients(20, 5, 2)
    days = np.datetime64("2024-01-01") + patient
    names = np.array(list("abcdefghijklmnopqrst"))[patient]
    labels = (patient, names, names.tolist(), pd.Series(names, dtype="category"), torch.as_tensor(patient))
    model = KernelBoostingRegressor(kernel=Gaussian(2.0), random_state=0)
    in_groups = [clone(model).fit(X, y, groups=label) for label in labels]
    stamps = pd.Series(days.astype("datetime64[ns]")).dt.tz_localize("Europe/Berlin")
    times = (patient, days, stamps, list(pd.Series(days.astype("datetime64[ns]")).dt.date))
    in_time = [clone(model).fit(X, y, time_order=time, gap=2) for time in times]
    in_time.append(clone(model).fit(X, y, time_order=days, gap=np.timedelta64(48, "h")))
    for first, *others in (in_groups, in_time):
        for other in others:
            np.testing.assert_array_equal(other.predict_interval(X), first.predict_interval(X))


def test_rows_in_another_order_give_the_same_model() -> None:
    X, y, patient = patients(20, 4, 4)
    order = np.random.default_rng(0).permutation(len(y))
    model = KernelBoostingRegressor(metric=None, random_state=0).fit(X, y, groups=patient)
    again = KernelBoostingRegressor(metric=None, random_state=0).fit(X[order], y[order], groups=patient[order])
    np.testing.assert_allclose(model.predict_interval(X), again.predict_interval(X), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"groups": [1, 2]}, "groups must be of 40 values, one for each row, got 2"),
        ({"groups": np.ones(40)}, "groups must be of at least two different groups"),
        ({"groups": "who"}, "groups must be an array where X is not a frame"),
        ({"groups": [*range(39), None]}, "groups must be given for each row"),
        ({"groups": np.array([*range(39), "a"], dtype=object)}, "groups must be labels of one type"),
        ({"groups": np.ones((40, 2))}, "groups must be of one dimension"),
        ({"groups": range(40), "time_order": range(40)}, "groups must be None where time_order is given"),
        ({"time_order": ["monday"] * 40}, "time_order must be numbers or dates"),
        ({"time_order": [*range(39), np.nan]}, "time_order must be given for each row"),
        ({"time_order": [*range(39), np.inf]}, "time_order must be finite"),
        ({"time_order": range(40), "gap": -1}, "gap must be a length of time of at least 0"),
        ({"time_order": range(40), "gap": "week"}, "gap must be a length of time of at least 0"),
        ({"gap": 3}, "gap must be None unless time_order is given"),
    ],
)
def test_bad_groups_and_times_get_a_sentence(given: dict, words: str) -> None:
    X = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.raises(ValueError, match=words):
        KernelBoostingRegressor().fit(X, X[:, 0], **given)


def test_a_column_that_is_not_there_is_named() -> None:
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 2)), columns=["a", "b"])
    with pytest.raises(ValueError, match="groups must be an array, or a column of X: a, b, got 'who'"):
        KernelBoostingRegressor().fit(frame, frame.a, groups="who")


def test_a_warm_start_asks_for_the_same_groups() -> None:
    X, y, patient = patients(20, 5, 5)
    model = KernelBoostingRegressor(n_learners=2, kernel=Gaussian(2.0), warm_start=True, random_state=0).fit(
        X, y, groups=patient
    )
    model.set_params(n_learners=3).fit(X, y, groups=patient)
    with pytest.raises(ValueError, match="groups and time_order must be that of the first fit"):
        model.fit(X, y, groups=patient[::-1])


def test_searches_and_pipelines_route_groups() -> None:
    X, y, patient = patients(24, 5, 6)
    with sklearn.config_context(enable_metadata_routing=True):
        model = KernelBoostingRegressor(kernel=Gaussian(2.0), random_state=0).set_fit_request(groups=True)
        search = GridSearchCV(model, {"regularization": [0.1, 1.0]}, cv=GroupKFold(3))
        search.fit(X, y, groups=patient)
        direct = search.best_estimator_.set_params().fit(X, y, groups=patient)
        np.testing.assert_array_equal(search.predict(X), direct.predict(X))
        piped = make_pipeline(StandardScaler(), model)
        scores = cross_val_score(piped, X, y, cv=GroupKFold(3), params={"groups": patient})
        assert np.isfinite(scores).all()
        inside = make_pipeline(StandardScaler(), model).fit(X, y, groups=patient)
        alone = model.fit(StandardScaler().fit_transform(X), y, groups=patient)
        np.testing.assert_array_equal(inside[-1].intervals_.scores, alone.intervals_.scores)


def test_prediction_sets_hold_new_groups() -> None:
    held = []
    for seed in range(4):
        X, y, patient = patients(50, 8, seed)
        X_new, y_new, _ = patients(400, 1, 100 + seed)
        labels, new = (np.digitize(values, [-0.7, 0.7]) for values in (y, y_new))
        model = KernelBoostingClassifier(kernel=Gaussian(2.0), random_state=0).fit(X, labels, groups=patient)
        sets = model.predict_set(X_new, 0.9)
        held.append(sets[np.arange(len(new)), new].mean())
    assert 0.85 <= np.mean(held) <= 0.96


def test_a_gap_as_long_as_all_rows_is_refused() -> None:
    X, y, _ = patients(10, 4, 0)
    with pytest.raises(ValueError, match="gap must be shorter than the time from first to last row, 39, got 39"):
        KernelBoostingRegressor().fit(X, y, time_order=np.arange(40), gap=39)


@pytest.mark.parametrize("name", ["groups", "time_order", "sample_weight", "exposure"])
def test_values_of_rows_whose_index_has_another_order_get_a_warning(name: str) -> None:
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 2)), columns=["u", "v"])
    values = pd.Series(np.arange(1.0, 41.0), index=X.index[::-1])
    model = KernelBoostingRegressor(kernel=Gaussian(), regularization=1.0, loss="poisson", random_state=0)
    with pytest.warns(UserWarning, match=f"X and {name} have the same index in another order"):
        model.fit(X, np.arange(40), **{name: values})


def test_times_of_many_rows_may_leave_stretches_empty():
    """Nine times of 6 to 10 rows do not fill every stretch; an empty one made the number of rows NaN."""
    key = np.repeat(np.arange(9.0), [6, 6, 7, 7, 7, 9, 10, 7, 9])
    values = np.random.default_rng(0).normal(size=(len(key), 1))
    assert 1 <= RowGroups(key, True).independent_rows(values) <= len(key)
