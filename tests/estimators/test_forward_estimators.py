"""What users meet: inputs of every kind, scikit-learn's tools, stopping, probabilities, and sentences for bad input."""

from __future__ import annotations

import os
import pickle
import re
import time
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from oracles import EPS, rounding, tile
from sklearn.base import clone
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mercer import (
    GreedyKernelClassifier,
    GreedyKernelRegressor,
    KernelBoostingClassifier,
    KernelBoostingRegressor,
)
from mercer.base.calibration import Temperature
from mercer.data import CsvRows, NpyRows, ParquetRows
from mercer.datasets import make_ripley, make_sinc
from mercer.forward.criteria import MaxResidual
from mercer.forward.stopping import AkaikeInformation, MinimumDescriptionLength
from mercer.kernels import Gaussian, Linear, Polynomial

pytestmark = pytest.mark.usefixtures("two_folds")

N, D = 120, 3
#: Everything fixed that tuning would choose, so that tests are about the rest and quick.
FIXED: dict[str, Any] = {"kernel": Gaussian(1.5), "regularization": 1e-2, "random_state": 0}
SMALL: dict[str, Any] = {"n_learners": 3, "learner_size": 8, "subset_size": 40}

GREEDY = [GreedyKernelRegressor, GreedyKernelClassifier]
BOOSTING = [KernelBoostingRegressor, KernelBoostingClassifier]
over_estimators = pytest.mark.parametrize("face", [*GREEDY, *BOOSTING], ids=lambda face: face.__name__)
over_regressors = pytest.mark.parametrize("face", [GREEDY[0], BOOSTING[0]], ids=lambda face: face.__name__)
over_classifiers = pytest.mark.parametrize("face", [GREEDY[1], BOOSTING[1]], ids=lambda face: face.__name__)


def table(n: int = N, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, D))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(n)
    # Sums over rows in another order round otherwise (`make test-rounding`).
    order = rng.permutation(n) if os.environ.get("MERCER_TEST_ROWS") == "shuffled" else np.arange(n)
    return X[order], y[order]


X, Y = table()
LABELS = np.where(Y > 0.8, "high", np.where(Y > -0.8, "middle", "low"))


def model(face: Any, **options: Any) -> Any:
    own = {"n_basis": 8} if face in GREEDY else SMALL
    return face(**{**FIXED, **own, **options})


def y_for(face: Any, n_classes: int = 2) -> np.ndarray:
    if face in (GREEDY[0], BOOSTING[0]):
        return Y
    return (Y > 0).astype(int) if n_classes == 2 else LABELS


@cache
def plain(face: Any, n_classes: int = 2) -> Any:
    """The model of the table as it is, fitted once for all who only ask it."""
    return model(face).fit(X, y_for(face, n_classes))


def values(fitted: Any, rows: Any = X) -> np.ndarray:
    """The finest thing a model says."""
    return fitted.decision_function(rows) if hasattr(fitted, "decision_function") else fitted.predict(rows)


# --- what X and y may be ----------------------------------------------------------------------------

CONTAINERS = {
    "pandas": lambda A: pd.DataFrame(A, columns=list("abc")),
    "polars": lambda A: pl.DataFrame(A, schema=list("abc")),
    "torch": torch.from_numpy,
    "list": lambda A: A.tolist(),
    "by columns": np.asfortranarray,
}


@pytest.mark.parametrize(("face", "name"), [*((BOOSTING[0], name) for name in CONTAINERS), (GREEDY[1], "torch")])
def test_any_container_gives_the_model_of_its_array(face, name):
    """The same lines read tables for all of them."""
    container = CONTAINERS[name]
    other = model(face).fit(container(X.copy()), y_for(face))
    np.testing.assert_array_equal(values(other, container(X.copy())), values(plain(face)))


def test_column_names_are_kept_and_checked():
    frame = pd.DataFrame(X, columns=list("abc"))
    fitted = model(GREEDY[0]).fit(frame, pd.Series(Y))
    assert fitted.feature_names_in_.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(fitted.predict(frame[["b", "a", "c"]]), fitted.predict(frame))
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(frame.rename(columns={"b": "d"}))


FILES = {
    "npy": (".npy", lambda path, T: np.save(path, T), lambda path: NpyRows(path, target=-1)),
    "parquet": (
        ".parquet",
        lambda path, T: pd.DataFrame(T, columns=list("abcy")).to_parquet(path),
        lambda path: ParquetRows(path, target="y"),
    ),
    "csv": (
        ".csv",
        lambda path, T: pd.DataFrame(T, columns=list("abcy")).to_csv(path, index=False),
        lambda path: CsvRows(path, target="y"),
    ),
}


@over_regressors
@pytest.mark.parametrize(("suffix", "write", "read"), FILES.values(), ids=FILES)
def test_a_file_gives_the_model_of_its_array(face, suffix, write, read, tmp_path):
    """Targets inside or beside. Files are not sorted by merging, so the choices here do not depend on the order."""
    own = {"criterion": "max-res"} if face in GREEDY else {"learner_size": N, "subset_size": N, "n_learners": 1}
    write(tmp_path / f"whole{suffix}", np.column_stack([X, Y]))
    write_rows = {".npy": np.save, ".parquet": _parquet, ".csv": _csv}[suffix]
    write_rows(tmp_path / f"rows{suffix}", X)
    whole = model(face, **own).fit(X, Y)
    inside = model(face, **own).fit(read(tmp_path / f"whole{suffix}"))
    beside = model(face, **own).fit(str(tmp_path / f"rows{suffix}"), Y)
    for fitted in (inside, beside):  # a file with names is asked by names
        rows = pd.DataFrame(X, columns=list("abc")) if hasattr(fitted, "feature_names_in_") else X
        np.testing.assert_allclose(fitted.predict(rows), whole.predict(X), atol=1e-8)
    np.testing.assert_allclose(beside.predict(tmp_path / f"rows{suffix}"), whole.predict(X), atol=1e-8)


def _parquet(path: Any, T: np.ndarray) -> None:
    pd.DataFrame(T, columns=list("abc")).to_parquet(path)


def _csv(path: Any, T: np.ndarray) -> None:
    pd.DataFrame(T, columns=list("abc")).to_csv(path, index=False)


def test_a_file_without_targets_or_with_other_columns_is_refused(tmp_path):
    np.save(tmp_path / "rows.npy", X)
    with pytest.raises(ValueError, match=r"y must be given, or a target column of the source, got None"):
        model(GREEDY[0]).fit(str(tmp_path / "rows.npy"))
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples: 120 rows, 7 targets"):
        model(GREEDY[0]).fit(str(tmp_path / "rows.npy"), Y[:7])
    fitted = model(GREEDY[0]).fit(X[:, :2], Y)
    with pytest.raises(ValueError, match=r"the number of columns must be 2 as in fit, got 3"):
        fitted.predict(str(tmp_path / "rows.npy"))


@over_regressors
def test_several_outputs_keep_their_shape_and_share_their_basis(face):
    both = np.column_stack([Y, -2 * Y + 1])
    fitted = model(face, **({} if face in GREEDY else {"polish": False})).fit(X, both)
    assert fitted.predict(X).shape == (N, 2)
    assert fitted.dual_coef_.shape == (len(fitted.basis_), 2)
    np.testing.assert_allclose(fitted.predict(X)[:, 1], 1 - 2 * fitted.predict(X)[:, 0], atol=1e-9)
    assert fitted.predict(X[:5]).shape == (5, 2)
    assert model(face).fit(X, Y[:, None]).predict(X).shape == (N, 1)


# --- scikit-learn's tools ---------------------------------------------------------------------------


@over_estimators
def test_a_pickle_predicts_the_same(face):
    fitted = plain(face, 3)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(values(again), values(fitted))
    assert [p.tolist() for p in again.staged_predict(X[:5])] == [p.tolist() for p in fitted.staged_predict(X[:5])]


@over_estimators
def test_a_clone_has_the_parameters_and_nothing_fitted(face):
    fitted = model(face, kernel=Gaussian([1.0, 2.0, 3.0])).fit(X, y_for(face))
    copy = clone(fitted)
    assert not hasattr(copy, "basis_")
    assert copy.kernel is not fitted.kernel
    assert repr(copy) == repr(fitted)


@pytest.mark.parametrize("face", [GREEDY[0], BOOSTING[1]], ids=lambda face: face.__name__)
def test_a_grid_search_reaches_into_the_kernel_and_a_pipeline(face):
    """Numbers of a NumPy grid are NumPy's own."""
    size = "n_basis" if face in GREEDY else "learner_size"
    pipeline = make_pipeline(StandardScaler(), model(face, scale_inputs=False))
    name = face.__name__.lower()
    grid = {f"{name}__kernel__length_scale": [0.01, 1.5], f"{name}__{size}": np.array([4, 12])}
    search = GridSearchCV(pipeline, grid, cv=2).fit(X, y_for(face))
    assert search.best_params_ == {f"{name}__kernel__length_scale": 1.5, f"{name}__{size}": 12}


def test_a_basis_per_class_comes_from_one_against_the_rest():
    wrapped = OneVsRestClassifier(model(GREEDY[1])).fit(X, LABELS)
    assert wrapped.score(X, LABELS) > 0.7  # the most frequent class is 0.4 of all
    bases = [tuple(one.basis_indices_) for one in wrapped.estimators_]
    assert len(set(bases)) == 3


def test_the_basis_holds_rows_of_the_table():
    fitted = plain(GREEDY[0])
    np.testing.assert_array_equal(fitted.basis_, X[fitted.basis_indices_])


# --- growing ----------------------------------------------------------------------------------------


@over_estimators
@pytest.mark.parametrize("update", ["full", "one"])
def test_more_on_a_warm_model_is_one_long_fit(face, update):
    greedy = face in GREEDY
    how = {"update": update} if greedy else {"absorption": update, "criterion": "mp"}
    size = "n_basis" if greedy else "n_learners"
    y = y_for(face, 3)
    long = model(face, **how, **{size: 9}).fit(X, y)
    warm = model(face, **how, **{size: 4}, warm_start=True).fit(X, y)
    assert len(warm.objective_path_) == 4
    warm.set_params(**{size: 9}).fit(X, y)
    np.testing.assert_array_equal(warm.objective_path_, long.objective_path_)
    np.testing.assert_array_equal(warm.basis_indices_, long.basis_indices_)
    np.testing.assert_array_equal(warm.dual_coef_, long.dual_coef_)


def test_a_warm_model_refuses_another_table_and_a_cold_one_starts_anew():
    warm = model(GREEDY[0], warm_start=True).fit(X, Y)
    with pytest.raises(ValueError, match=r"X must be that of the first fit \(120 × 3.*got '60 × 3"):
        warm.fit(X[:60], Y[:60])
    cold = model(GREEDY[0]).fit(X, Y).fit(X[:60], Y[:60])
    np.testing.assert_array_equal(values(cold), values(model(GREEDY[0]).fit(X[:60], Y[:60])))


@over_estimators
def test_stages_end_at_the_model_and_are_those_of_shorter_fits(face):
    size, polish = ("n_basis", {}) if face in GREEDY else ("n_learners", {"polish": False})
    y = y_for(face, 3)
    fitted = model(face, **{size: 4}, **polish).fit(X, y)
    stages = list(fitted.staged_predict(X))
    assert len(stages) == fitted.n_steps_ == 4
    for k, stage in enumerate(stages, start=1):
        short = model(face, **{size: k}, **polish).fit(X, y)
        if stage.dtype.kind == "f":
            np.testing.assert_allclose(stage, short.predict(X), atol=1e-9)
        else:
            assert stage.tolist() == short.predict(X).tolist()


@pytest.mark.parametrize("face", GREEDY, ids=lambda face: face.__name__)
@pytest.mark.parametrize("update", ["full", "qr", "mrx", "one"])
def test_a_path_predicts_with_any_prefix(face, update):
    y = y_for(face)
    fitted = model(face, n_basis=10, update=update).fit(X, y)
    for size, predicted in zip([1, 4, 10], fitted.path_predict(X, [1, 4, 10]), strict=True):
        np.testing.assert_allclose(predicted, model(face, n_basis=size, update=update).fit(X, y).predict(X), atol=1e-9)


@pytest.mark.parametrize("size", [0, 11])
def test_a_prefix_that_is_not_there_is_refused(size):
    fitted = model(GREEDY[0], n_basis=10).fit(X, Y)
    with pytest.raises(ValueError, match=f"sizes must be between 1 and 10, got {size}"):
        fitted.path_predict(X, [size])


@over_estimators
def test_history_has_an_entry_a_step(face):
    fitted = plain(face)
    steps = len(fitted.objective_path_)
    lengths = {name: len(curve) for name, curve in fitted.history_.items()}
    assert lengths == dict.fromkeys(lengths, steps) | {"validation": 0}
    assert (np.diff(fitted.history_["seconds"]) >= 0).all()
    assert (np.diff(fitted.history_["n_basis"]) > 0).all()
    assert (np.diff(fitted.objective_path_) <= 1e-9 * fitted.objective_path_[0]).all()


# --- stopping ---------------------------------------------------------------------------------------


@over_estimators
def test_a_share_of_the_rows_is_held_out_and_stops_the_fit(face):
    """Weak regularisation on noise: the held-out error turns round."""
    rng = np.random.default_rng(1)
    y = rng.standard_normal(N) + 0.5 * X[:, 0]
    y = y if face in (GREEDY[0], BOOSTING[0]) else (y > 0).astype(int)
    how = {"n_basis": 90} if face in GREEDY else {"n_learners": 60, "learner_size": 3, "polish": False}
    fitted = model(face, validation_fraction=0.25, patience=5, regularization=1e-6, **how).fit(X, y)
    curve = fitted.history_["validation"]
    best = 1 + int(np.argmin(curve))
    assert fitted.n_steps_ == best == len(curve) - 5
    assert fitted.stop_reason_ == f"the validation error had its minimum at step {best}, 5 steps before the last"
    assert len(fitted.basis_) <= fitted.history_["n_basis"][best - 1]


@over_estimators
def test_rows_given_for_validation_are_watched_and_not_learned_from(face):
    X_val, y_val = table(40, seed=5)
    y_val = y_val if face in (GREEDY[0], BOOSTING[0]) else (y_val > 0).astype(int)
    y = y_for(face)
    watching = model(face, patience=100).fit(X, y, X_val=X_val, y_val=y_val)
    alone = model(face).fit(X, y)
    k = watching.n_steps_
    stage = list(alone.staged_predict(X_val))[k - 1]
    assert list(watching.staged_predict(X_val))[k - 1].tolist() == pytest.approx(stage.tolist(), abs=1e-9)
    assert set(watching.basis_indices_) <= set(range(N))
    if stage.dtype.kind == "f":
        error = 0.5 * np.mean((y_val - stage) ** 2) / Y.var()
        assert watching.history_["validation"][k - 1] == pytest.approx(error, rel=1e-9)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"X_val": X[:5]}, "y_val must be given with X_val, got None"),
        ({"X_val": X[:5, :2], "y_val": Y[:5]}, r"X_val must be of 3 columns, got \(5, 2\)"),
        ({"X_val": X[:5], "y_val": Y[:4]}, "y_val must be of the length of X_val, 5, got 4"),
        ({"X_val": np.full((5, 3), np.inf), "y_val": Y[:5]}, "finite numbers or none, got inf in row 0"),
    ],
    ids=["no targets", "columns", "length", "infinity"],
)
def test_bad_validation_rows_are_refused_in_a_sentence(given, words):
    with pytest.raises(ValueError, match=words):
        model(GREEDY[0]).fit(X, Y, **given)


def test_validation_rows_may_be_a_file(tmp_path):
    np.save(tmp_path / "rows.npy", X[:20])
    by_file = model(GREEDY[0]).fit(X[20:], Y[20:], X_val=tmp_path / "rows.npy", y_val=Y[:20])
    by_array = model(GREEDY[0]).fit(X[20:], Y[20:], X_val=X[:20], y_val=Y[:20])
    np.testing.assert_array_equal(by_file.predict(X), by_array.predict(X))


def test_a_warm_start_asks_for_the_same_rows_in_the_file_of_validation_rows(tmp_path):
    given = {"X_val": tmp_path / "rows.npy", "y_val": Y[:20]}
    np.save(given["X_val"], X[:20])
    warm = model(GREEDY[0], warm_start=True).fit(X[20:], Y[20:], **given).fit(X[20:], Y[20:], **given)
    np.save(given["X_val"], X[:20] + 1)
    with pytest.raises(ValueError, match="X_val must be that of the first fit"):
        warm.fit(X[20:], Y[20:], **given)


@over_estimators
def test_a_time_budget_ends_the_fit_and_says_so(face):
    """A callback makes every step take its time."""
    how = {"n_basis": 100} if face in GREEDY else {"n_learners": 100}
    slow = model(face, time_budget=0.05, callbacks=[lambda fit: time.sleep(0.02)], **how).fit(X, y_for(face))
    assert 1 <= len(slow.objective_path_) < 50
    assert slow.stop_reason_.startswith("the time budget of 0.05 s was used up")


@over_estimators
def test_callbacks_see_every_step_and_may_end_the_fit(face):
    seen: list[int] = []

    def watch(event: Any) -> bool:
        if event.phase != "learners":
            return False
        assert event.state.n_steps == event.step
        seen.append(event.step)
        return event.step == 3

    fitted = model(face, callbacks=[watch]).fit(X, y_for(face))
    assert seen == [1, 2, 3]
    assert fitted.stop_reason_ == "a callback asked to stop"
    assert len(fitted.objective_path_) == 3


def test_the_bar_shows_only_where_it_is_asked_for(capsys):
    model(GREEDY[0]).fit(X, Y)
    assert capsys.readouterr() == ("", "")
    model(GREEDY[0], verbose=True).fit(X, Y)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "learners: 8/8" in shown.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_basis": 5}, "all 5 steps were added"),
        ({"n_basis": N, "tol": 0.5}, "the residual norm fell to .*, within tol=0.5 of the targets' norm"),
        ({"n_basis": N, "criterion": "ald", "step_size": 1}, "no further row is worth adding as a basis vector"),
        ({"n_basis": N, "stopping": "mdl", "patience": 3}, "the description length had its minimum at step"),
        ({"n_basis": N, "stopping": "aic"}, "Akaike's information criterion had its minimum at step"),
        ({"n_basis": N, "kernel": Linear()}, "the last 20 basis vectors lie in the span of those before them"),
    ],
    ids=["number", "tol", "threshold", "mdl", "aic", "dependence"],
)
def test_a_fit_says_in_words_why_it_stopped(options, words):
    fitted = model(GREEDY[0], **options).fit(X, Y)
    assert re.search(words, fitted.stop_reason_), fitted.stop_reason_


# --- how many basis vectors -------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["mdl", "aic"])
def test_sinc_is_fitted_by_few_vectors(rule):
    """Greedy02 figure 4 (8 vectors, 0.0315): over five draws, at most 12 each, and 0.035 on average.

    Estimating 8 weights from 100 rows of noise 0.1 costs 0.028 by itself, more on an unlucky draw.
    """
    grid = np.linspace(-10, 10, 1000)[:, None]
    errors = []
    for seed in range(3 if rule == "mdl" else 2):
        fitted = GreedyKernelRegressor(stopping=rule, random_state=0).fit(*make_sinc(random_state=seed))
        assert len(fitted.basis_) <= 12
        errors.append(float(np.sqrt(np.mean((fitted.predict(grid) - np.sinc(grid[:, 0] / np.pi)) ** 2))))
    assert max(errors) <= 0.05
    assert np.mean(errors) <= 0.035


@pytest.mark.parametrize("rule", ["mdl", "aic"])
def test_ripleys_mixture_is_fitted_near_bayes_rule(rule):
    """Bayes' rule errs on 8.9 % of the mixture; 250 rows leave a model one or two points above it."""
    X_test, y_test = make_ripley(4000, random_state=99)
    errors = []
    for seed in (0,) if rule == "mdl" else (3,):
        fitted = GreedyKernelClassifier(stopping=rule, random_state=0).fit(*make_ripley(250, random_state=seed))
        assert len(fitted.basis_) <= 40
        errors.append(1 - fitted.score(X_test, y_test))
    assert np.mean(errors) <= 0.105


@pytest.mark.parametrize("rule", [MinimumDescriptionLength(patience=5), AkaikeInformation(patience=5)], ids=repr)
def test_the_model_is_cut_back_to_the_minimum_of_its_criterion(rule):
    fitted = model(GREEDY[0], n_basis=N, stopping=rule).fit(X, Y)
    curve = fitted.history_[rule.short_name]
    assert len(fitted.basis_) == 1 + int(np.argmin(curve)) == len(curve) - 5
    shorter = model(GREEDY[0], n_basis=len(fitted.basis_)).fit(X, Y)
    np.testing.assert_allclose(fitted.predict(X), shorter.predict(X), atol=1e-9)


@pytest.mark.parametrize("stopping", ["mdl", "aic", None], ids=str)
def test_pruning_leaves_a_smaller_model_that_is_its_own_best_fit(stopping):
    options = {"n_basis": 25, "criterion": "random", "regularization": 1e-3}
    whole = model(GREEDY[0], stopping=stopping, **options).fit(X, Y)
    fitted = model(GREEDY[0], stopping=stopping, prune=True, **options).fit(X, Y)
    assert len(fitted.basis_) < len(whole.basis_)
    assert set(fitted.basis_indices_) <= set(whole.basis_indices_)
    Z = (X - X.mean(0)) / X.std(0)
    K = Gaussian(1.5)(torch.from_numpy(Z), torch.from_numpy(Z)).numpy()
    I = fitted.basis_indices_
    y = (Y - Y.mean()) / Y.std()
    slope = K[:, I].T @ (y - K[:, I] @ fitted.dual_coef_[:, 0]) - 1e-3 * K[np.ix_(I, I)] @ fitted.dual_coef_[:, 0]
    assert np.abs(slope).max() <= 1e-8 * N  # the normal equations hold


def test_aic_as_a_part_prunes_by_aic():
    options = {"n_basis": 40, "criterion": "random", "regularization": 1e-3, "prune": True}
    by_name = model(GREEDY[0], stopping="aic", **options).fit(X, Y)
    by_part = model(GREEDY[0], stopping=AkaikeInformation(), **options).fit(X, Y)
    assert by_name.basis_indices_.tolist() == by_part.basis_indices_.tolist()


# --- probabilities ----------------------------------------------------------------------------------

LOSSES = ["squared", "logistic", "squared-hinge"]


@over_classifiers
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_probabilities_sum_to_one_and_agree_with_the_decision(face, loss, n_classes):
    y = y_for(face, n_classes)
    fitted = model(face, loss=loss, **({"n_basis": 12} if face in GREEDY else {})).fit(X, y)
    p, decision = fitted.predict_proba(X), fitted.decision_function(X)
    assert p.shape == (N, n_classes)
    np.testing.assert_allclose(p.sum(1), 1, atol=1e-12)
    assert (p >= 0).all()
    assert fitted.classes_[p.argmax(1)].tolist() == fitted.predict(X).tolist()
    if n_classes == 2:
        assert (np.diff(p[np.argsort(decision), 1]) >= 0).all()
    else:
        assert np.array_equal(p.argsort(1), decision.argsort(1))
    assert fitted.score(X, y) > 0.75


@pytest.mark.parametrize("loss", ["squared", "squared-hinge"])
def test_calibrated_probabilities_are_better_than_decisions_taken_as_log_odds(loss):
    X_train, y_train = make_ripley(400, random_state=0)
    X_test, y_test = make_ripley(2000, random_state=1)
    fitted = model(GREEDY[1], loss=loss, kernel=Gaussian(0.7), validation_fraction=0.3).fit(X_train, y_train)
    calibrated = log_loss(y_test, fitted.predict_proba(X_test))
    fitted.calibration_ = Temperature(1.0)
    assert calibrated < log_loss(y_test, fitted.predict_proba(X_test))


def test_softmax_by_name_is_the_logistic_loss_of_any_number_of_classes():
    for n_classes in (2, 3):
        y = y_for(GREEDY[1], n_classes)
        fits = [model(GREEDY[1], loss=loss).fit(X, y) for loss in ("logistic", "softmax")]
        np.testing.assert_array_equal(values(fits[0]), values(fits[1]))


@over_classifiers
@pytest.mark.parametrize("names", [["no", "yes"], [False, True], [-1.0, 1.0], [7, 3]], ids=str)
def test_classes_come_back_as_they_were(face, names):
    y = np.array(names)[(Y > 0).astype(int)]
    fitted = model(face).fit(X, y)
    assert fitted.classes_.tolist() == sorted(names)
    assert fitted.predict(X).dtype == y.dtype
    assert fitted.score(X, y) > 0.75  # classes that were mixed up would leave less than half


# --- kernels ----------------------------------------------------------------------------------------


@over_estimators
def test_a_precomputed_or_callable_kernel_is_the_plain_one(face):
    """ORMP has no ties among ±1 targets, which the order of the rows would decide."""
    y = y_for(face)
    kernel, how = Gaussian(1.5), {"criterion": "ormp"} if face in GREEDY else {}
    rows, new = torch.from_numpy(X), torch.from_numpy(table(30, 7)[0])
    given = model(face, scale_inputs=False, **how).fit(X, y)
    by_function = model(face, scale_inputs=False, kernel=lambda A, B: kernel(A, B), **how).fit(X, y)
    wanted = values(given, new.numpy())
    np.testing.assert_allclose(values(by_function, new.numpy()), wanted, atol=1e-7)
    if face in GREEDY:  # boosting draws rows, and a precomputed table is not sorted by merging
        matrix = model(face, kernel="precomputed", **how).fit(kernel(rows, rows).numpy(), y)
        np.testing.assert_allclose(values(matrix, kernel(new, rows).numpy()), wanted, atol=1e-7)


def test_a_precomputed_kernel_survives_cross_validation():
    K = Gaussian(1.5)(torch.from_numpy(X), torch.from_numpy(X)).numpy()
    whole = cross_val_score(model(GREEDY[0], scale_inputs=False), X, Y, cv=3)
    pairwise = cross_val_score(model(GREEDY[0], kernel="precomputed"), K, Y, cv=3)
    np.testing.assert_allclose(pairwise, whole, atol=1e-7)


def test_a_kernel_by_name_is_tuned_and_a_kernel_object_is_not():
    named = model(GREEDY[0], kernel="gaussian", regularization="auto").fit(X, Y)
    fixed = model(GREEDY[0], regularization="auto").fit(X, Y)
    assert fixed.kernel_.length_scale == 1.5
    assert "Gaussian" in repr(named.kernel_)
    assert 0 < named.regularization_ < 1
    assert 0 < fixed.regularization_ < 1


# --- weights and randomness -------------------------------------------------------------------------

UPDATES = ["full", "qr", "mrx", "one"]
REPEATED = np.random.default_rng(2).integers(0, 3, N)


#: Every update meets every criterion, and both meet numbers and classes.
WEIGHTED = [
    (GREEDY[(i + j) % 2], u, c) for i, u in enumerate(UPDATES) for j, c in enumerate(["max-res", "mp", "random"])
]


@pytest.mark.parametrize(("face", "update", "criterion"), WEIGHTED)
def test_a_weight_of_two_is_the_row_twice(face, update, criterion):
    y = y_for(face)
    weighted = model(face, update=update, criterion=criterion).fit(X, y, sample_weight=REPEATED)
    index = np.repeat(np.arange(N), REPEATED)
    twice = model(face, update=update, criterion=criterion).fit(X[index], y[index])
    np.testing.assert_allclose(values(weighted), values(twice), atol=1e-8)


@pytest.mark.parametrize("face", BOOSTING, ids=lambda face: face.__name__)
@pytest.mark.parametrize("absorption", ["full", "one", "blocks"])
def test_a_weight_of_two_is_the_row_twice_in_boosting(face, absorption):
    y = y_for(face)
    weighted = model(face, absorption=absorption, block_length=2).fit(X, y, sample_weight=REPEATED)
    index = np.repeat(np.arange(N), REPEATED)
    twice = model(face, absorption=absorption, block_length=2).fit(X[index], y[index])
    np.testing.assert_allclose(values(weighted), values(twice), atol=1e-8)


@over_estimators
def test_the_same_seed_gives_the_same_model(face):
    how = {"criterion": "random"} if face in GREEDY else {}
    y = y_for(face)
    first, again, other = (values(model(face, **how, random_state=seed).fit(X, y)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    drawn = model(face, **how, random_state=np.random.RandomState(0)).fit(X, y)
    assert np.isfinite(values(drawn)).all()


# --- memory and precision ---------------------------------------------------------------------------


@over_estimators
def test_a_tight_memory_limit_changes_nothing_but_the_blocks(face):
    rows, y = table(3000)
    y = y if face in (GREEDY[0], BOOSTING[0]) else (y > 0).astype(int)
    how = {} if face in GREEDY else {"polish": False}
    wide, tight = (model(face, memory_limit=limit, **how).fit(rows, y) for limit in (None, 2**20))
    np.testing.assert_allclose(values(tight, rows), values(wide, rows), atol=1e-8)


def test_basis_vectors_that_do_not_fit_the_memory_are_refused_in_a_sentence():
    rows, y = table(1000)
    how = {"n_learners": 2, "learner_size": 350, "subset_size": 500, "polish": True}
    with pytest.raises(MemoryError, match=r"\d+ basis vectors need about \d+ MiB .* more than memory_limit=1 MiB"):
        model(BOOSTING[0], **how, memory_limit=2**20).fit(rows, y)


def rounded(tile_error: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return tile_error * rng.uniform(-1, 1, tile_error.shape)


@pytest.mark.parametrize("face", GREEDY)
def test_float32_tiles_change_predictions_no_more_than_rounding_of_the_tiles_may(face):
    """Against ridge regression on tiles that err, entry by entry, as far as float32 may: the worst of twenty draws.

    Vectors are drawn, not chosen: among ±1 targets the choice is a tie that rounding decides.
    """
    y, how = y_for(face), {"criterion": "random", "scale_inputs": False}
    double, single = (model(face, dtype=dtype, **how).fit(X, y) for dtype in ("float64", "float32"))
    assert single.dtype_ == "float32"
    np.testing.assert_array_equal(double.basis_indices_, single.basis_indices_)
    Z, scale = X[double.basis_indices_], (Y.std() if face is GREEDY[0] else 1.0)
    t = (Y - Y.mean()) / scale if face is GREEDY[0] else 2.0 * y - 1
    K, E, K_mm = tile(Gaussian(1.5), X, Z), rounding(Gaussian(1.5), X, Z, EPS[torch.float32]), tile(Gaussian(1.5), Z, Z)

    def ridge(K: np.ndarray) -> np.ndarray:
        return K @ np.linalg.solve(K.T @ K + FIXED["regularization"] * K_mm, K.T @ t)

    rng = np.random.default_rng(0)
    may = max(np.abs(ridge(K + rounded(E, rng)) - ridge(K)).max() for _ in range(20))
    assert np.abs(values(double) - values(single)).max() <= scale * may


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("face", BOOSTING)
def test_polished_weights_are_as_near_to_the_optimum_as_the_polish_promises(face, dtype):
    """It ends at a step that gains less than 1e-5 of all steps; those to come gain less still, each half as much.

    What is left of the objective bounds the predictions, too: half the squared distance from the optimum's is less.
    """
    y, how = y_for(face), {"criterion": "random", "scale_inputs": False}
    fitted = model(face, dtype=dtype, **how).fit(X, y)
    Z, lam = X[fitted.basis_indices_], FIXED["regularization"]
    t = (Y - Y.mean()) / Y.std() if face is BOOSTING[0] else 2.0 * y - 1
    K, K_mm = tile(Gaussian(1.5), X, Z), tile(Gaussian(1.5), Z, Z)

    def objective(a: np.ndarray) -> float:
        return float(0.5 * ((t - K @ a) ** 2).sum() + 0.5 * lam * a @ K_mm @ a)

    best = np.linalg.solve(K.T @ K + lam * K_mm, K.T @ t)
    left = objective(np.asarray(fitted.dual_coef_).reshape(len(Z))) - objective(best)
    assert left <= 1e-5 * (objective(0 * best) - objective(best))


# --- bad input --------------------------------------------------------------------------------------


def with_value(value: float) -> np.ndarray:
    bad = X.copy()
    bad[5, 1] = value
    return bad


BAD_INPUT = {
    "infinity": (with_value(np.inf), Y, "infinity"),
    "nan in y": (X, np.where(Y > 1, np.nan, Y), "NaN"),
    "infinity in y": (X, np.where(Y > 1, np.inf, Y), "infinity"),
    "text": (np.full((N, 2), "word"), Y, "at least one column to learn from"),
    "no rows": (X[:0], Y[:0], "0 sample"),
    "no columns": (X[:, :0], Y, "0 feature"),
    "one dimension": (X[:, 0], Y, "Expected 2D array"),
    "three dimensions": (X[None], Y, "dim 3"),
    "lengths": (X, Y[:7], "inconsistent numbers of samples"),
    "no targets": (X, None, "y"),
    "complex": (X + 1j, Y, "Complex"),
}


@over_estimators
@pytest.mark.parametrize(("bad_X", "bad_y", "words"), BAD_INPUT.values(), ids=BAD_INPUT)
def test_bad_input_is_refused_in_a_sentence(face, bad_X, bad_y, words):
    if face in (GREEDY[1], BOOSTING[1]) and bad_y is not None and np.isfinite(bad_y).all():
        bad_y = (bad_y > 0).astype(int)
    with pytest.raises((ValueError, TypeError), match=words):
        model(face).fit(bad_X, bad_y)


@over_estimators
@pytest.mark.parametrize("bad", [X[:, :2], with_value(np.inf), X[:0]], ids=["columns", "infinity", "no rows"])
def test_bad_rows_to_predict_are_refused_in_a_sentence(face, bad):
    with pytest.raises(ValueError, match=r"X has 2 features|infinity|0 sample"):
        plain(face).predict(bad)


@over_classifiers
def test_one_class_is_refused_in_a_sentence(face):
    with pytest.raises(ValueError, match=r"at least 2 classes, got 1 class"):
        model(face).fit(X, np.zeros(N, dtype=int))
    with pytest.raises(ValueError, match="Unknown label type"):
        model(face).fit(X, Y)


@over_estimators
@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (-np.ones(N), r"sample_weight must be non-negative, got -1.0"),
        # scikit-learn 1.6 leaves zeros to mercer's check; 1.9 refuses them in its own words.
        (np.zeros(N), "Sample weights must contain at least one non-zero|sample_weight must be positive for at least"),
        (np.ones(7), r"sample_weight.shape == \(7,\), expected \(120,\)"),
        (np.full(N, np.nan), "NaN"),
    ],
    ids=["negative", "zero", "length", "nan"],
)
def test_bad_weights_are_refused_in_a_sentence(face, weight, words):
    with pytest.raises(ValueError, match=words):
        model(face).fit(X, y_for(face), sample_weight=weight)


def test_weights_beyond_single_precision_are_refused_where_the_penalty_is_a_number():
    boosting = KernelBoostingRegressor(kernel="gaussian", regularization=1.0)
    with pytest.raises(ValueError, match=r"the mean of sample_weight must be at most 1e\+25, got"):
        boosting.fit(X, np.sin(X[:, 0]), sample_weight=np.full(N, 1e30))


def test_a_penalty_without_end_gives_the_constant():
    boosting = KernelBoostingRegressor(kernel="gaussian", regularization=1e300, loss="pinball", dtype="float32")
    target = np.sin(X[:, 0])
    assert np.ptp(boosting.set_params(combination="rayleigh").fit(X, target).predict(X)) <= 1e-6 * np.ptp(target)


def test_one_row_without_a_penalty_has_an_interval_without_ends():
    """One row says nothing of how far another may be from it."""
    alone = KernelBoostingRegressor(regularization=0.0, validation_fraction=None).fit([[1e6]], [1.0])
    np.testing.assert_array_equal(alone.predict_interval([[1e6]]), [[-np.inf, np.inf]])


SOUND = {
    "two rows": (X[[0, 1]], [0, 1]),
    "constant columns": (np.column_stack([X[:, :1], np.full((N, 2), 3.7)]), None),
    "all columns constant": (np.full((N, 2), 3.7), None),
    "duplicated rows": (np.repeat(X[:12], 10, axis=0), None),
    "small numbers": (1e-8 * X, None),
    "large numbers": (1e8 * X, None),
    "far from the origin": (X + 1e8, None),
    "columns of every scale": (X * np.array([1e-8, 1.0, 1e8]), None),
    "more columns than rows": (np.random.default_rng(0).standard_normal((20, 60)), None),
}


@pytest.mark.parametrize(
    ("face", "tuned"),
    [(BOOSTING[1], False), (GREEDY[1], True), (BOOSTING[0], True)],
    ids=["boosted classes", "greedy classes, tuned", "boosted numbers, tuned"],
)
@pytest.mark.parametrize(("rows", "_"), SOUND.values(), ids=SOUND)
def test_odd_input_gives_a_sound_model(face, tuned, rows, _, short_selections):
    y = y_for(face)[: len(rows)].copy()
    y[:2] = [0, 1]
    options = {"kernel": "gaussian", "regularization": "auto", "tuning_rows": 30} if tuned else {}
    fitted = model(face, **options).fit(rows, y)
    assert np.isfinite(values(fitted, rows)).all()
    assert np.isfinite(fitted.dual_coef_).all()
    assert fitted.stop_reason_


@over_regressors
@pytest.mark.parametrize("scale", [1e-8, 1e-3, 1e3, 1e8])
def test_units_of_inputs_and_targets_do_not_matter(face, scale):
    scaled = model(face).fit(X * scale, Y / scale + 3)
    np.testing.assert_allclose(
        (scaled.predict(X * scale) - 3) * scale, plain(face).predict(X), atol=1e-6 * max(1, scale)
    )


@over_regressors
@pytest.mark.parametrize("y", [np.zeros(N), np.full(N, 5.5), np.full(N, 1e8)], ids=["zero", "constant", "large"])
def test_a_constant_target_is_predicted(face, y):
    for tuned in (False, True):
        options = {"kernel": "gaussian", "regularization": "auto", "tuning_rows": 30} if tuned else {}
        np.testing.assert_allclose(model(face, **options).fit(X, y).predict(X), y, rtol=1e-9, atol=1e-9)


@over_regressors
def test_one_row_is_its_own_mean(face):
    fitted = model(face).fit(X[:1], Y[:1])
    np.testing.assert_allclose(fitted.predict(X), Y[0])


ILL = {
    "length-scale 100 times too long": (X, {"kernel": Gaussian(150.0)}),
    "10000 times": (X, {"kernel": Gaussian(15000.0)}),
    "rows nearly twice": (np.vstack([X[:60], X[:60] + 1e-9]), {}),
    "a polynomial of few terms": (X, {"kernel": Polynomial(2)}),
}


#: Penalties and precisions: greedy models and boosting, numbers and classes all meet each of them.
HARD = {
    GREEDY[0]: ((0.0, "float64"), (0.0, "float32")),
    GREEDY[1]: ((0.0, "float32"), (1e-2, "float32")),
    BOOSTING[0]: ((0.0, "float32"), (1e-2, "float32")),
    BOOSTING[1]: ((0.0, "float64"), (0.0, "float32")),
}


@over_estimators
@pytest.mark.parametrize(("rows", "options"), ILL.values(), ids=ILL)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # they are said to be what they are
def test_an_ill_conditioned_gram_matrix_ends_in_a_sound_stop(face, rows, options):
    how = {"n_basis": 24} if face in GREEDY else {"n_learners": 3, "learner_size": 30, "subset_size": 60}
    y = y_for(face)
    for regularization, dtype in HARD[face]:
        fitted = model(face, **{**options, **how, "regularization": regularization, "dtype": dtype}).fit(rows, y)
        assert np.isfinite(values(fitted, rows)).all()
        assert np.isfinite(fitted.objective_path_).all()
        assert fitted.stop_reason_
        if hasattr(fitted, "score") and face in (GREEDY[0], BOOSTING[0]):
            assert fitted.score(rows, y) > -0.1  # never worse than the mean


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("exchange", [False, True])
def test_ill_conditioning_is_sound_under_every_update(update, exchange):
    if exchange and update == "one":
        pytest.skip("exchange needs weights that are revisited")
    swapped = UPDATES.index(update) % 2  # every update meets every matrix, half of them with exchange
    ill = [*ILL.values()]
    for rows, options in ill if update == "one" else ill[swapped::2] if exchange else ill[1 - swapped :: 2]:
        options = {**options, "update": update, "exchange": exchange, "regularization": 1e-10}
        fitted = model(GREEDY[0], n_basis=24, **options).fit(rows, Y)
        assert np.isfinite(fitted.predict(rows)).all()
        assert fitted.stop_reason_


# --- parameters out of range ------------------------------------------------------------------------

SHARED = {
    "loss": ["hinge", 3],
    "validation_fraction": [0, 1, -0.1, "half"],
    "patience": [0, 2.5, "long"],
    "time_budget": [0, -1, "long"],
    "kernel": ["bessel", 3, None],
    "regularization": [-1, "some", float("nan"), None],
    "tuning_rows": [1, -5, "all"],
    "device": ["tpu9", 3],
    "dtype": ["float16", "int32"],
    "memory_limit": [0, -1, "all"],
    "callbacks": [3, ["print"]],
    "criterion": ["best", 3],
}
OF_GREEDY = {
    "n_basis": [0, -1, 1.5, "all", None],
    "update": ["some", None],
    "step_size": [0, 1.5, "large"],
    "stopping": ["soon", 3, ["mdl", "soon"]],
    "tol": [-1, float("nan"), "small"],
    "min_novelty": [-1, 1, "small"],
    "penalty": ["lasso"],
}
OF_BOOSTING = {
    "n_learners": [0, -1, 1.5, "all"],
    "learner_size": [0, -1, 1.5, "all", [], [5, 0], lambda step: 0],
    "subset_size": [0, -1, "all"],
    "combination": ["sum"],
    "absorption": ["some"],
    "block_length": [0, -1, "long"],
    "shrinkage": [0, -1, 1.5, "small"],
    "focus": ["edge"],
    "polish": ["shoe", 3],
}
OUT_OF_RANGE = [
    (face, name, value)
    for faces, own in ((GREEDY, OF_GREEDY), (BOOSTING, OF_BOOSTING))
    for face in faces
    for name, bad in (SHARED | own).items()
    for value in bad
]


@pytest.mark.parametrize(("face", "name", "value"), OUT_OF_RANGE, ids=lambda v: getattr(v, "__name__", repr(v)))
def test_a_parameter_out_of_range_is_refused_with_what_was_seen_and_wanted(face, name, value):
    with pytest.raises(ValueError, match=f"{name}|learner's size") as refusal:
        model(face, **{name: value}).fit(X, y_for(face))
    sentence = str(refusal.value)
    assert " must be " in sentence
    assert ", got " in sentence


def test_a_learner_larger_than_its_subset_is_refused():
    with pytest.raises(ValueError, match="learner_size must be at most subset_size=500, got 600"):
        model(BOOSTING[0], learner_size=600, subset_size=500).fit(X, Y)


NONSENSE = {
    "exchange, one": (GREEDY[0], {"exchange": True, "update": "one"}, "exchange must be False with update='one'"),
    "exchange, steps": (GREEDY[0], {"exchange": True, "step_size": 4}, "step_size must be 1 with exchange=True"),
    "exchange, loss": (GREEDY[1], {"exchange": True, "loss": "logistic"}, "exchange must be False unless the loss is"),
    "mrx, loss": (GREEDY[1], {"update": "mrx", "loss": "logistic"}, "update must be other than 'mrx' unless"),
    "prune, one": (GREEDY[0], {"prune": True, "update": "one"}, "prune must be False unless update is 'full' or 'qr'"),
    "logistic regression of numbers": (
        GREEDY[0],
        {"loss": "logistic"},
        "loss must be one for regression, such as 'squared'",
    ),
    "hinge for numbers": (
        BOOSTING[0],
        {"loss": "squared-hinge"},
        "loss must be one for regression, such as 'squared'",
    ),
    "focus without margins": (BOOSTING[0], {"focus": "margin"}, "focus must be None for regression"),
}


@pytest.mark.parametrize(("face", "options", "words"), NONSENSE.values(), ids=NONSENSE)
def test_a_combination_that_makes_no_sense_is_refused(face, options, words):
    with pytest.raises(ValueError, match=words):
        model(face, **options).fit(X, y_for(face))


SCORED = ["max-res", "mp", "boost", "one-dimensional", "info-gain", "ald", "ran", "ormp"]
#: Every criterion meets every update, and both meet both penalties; the update 'mrx' has one of them.
PARTS = [(c, u, ("rkhs", "gram")[(i + j) % 2]) for i, c in enumerate(SCORED) for j, u in enumerate(UPDATES)]


@pytest.mark.parametrize(("criterion", "update", "penalty"), PARTS)
def test_every_criterion_goes_with_every_update_and_penalty(criterion, update, penalty):
    wanted = model(GREEDY[0], n_basis=8, update=update, criterion=criterion, penalty=penalty)
    if (update, penalty) == ("mrx", "rkhs"):
        with pytest.raises(ValueError, match=r"penalty must be 'gram' or 'auto' with update='mrx'.* got 'rkhs'"):
            wanted.fit(X, Y)
    else:
        assert wanted.fit(X, Y).score(X, Y) > 0.2


def test_a_criterion_may_be_told_by_its_name_or_given_as_an_object():
    named, given = (model(GREEDY[0], criterion=one).fit(X, Y).predict(X) for one in ("max-res", MaxResidual()))
    np.testing.assert_array_equal(named, given)


COMBINED = ["largest-residuals", "max-res", "mp", "boost", "random", "info-gain"]
#: Every criterion meets every combination, and both meet every absorption.
CHOICES = [
    (a, c, ("full", "one", "blocks")[(i + j) % 3])
    for i, a in enumerate(["mp", "rayleigh", "cg"])
    for j, c in enumerate(COMBINED)
]


@pytest.mark.parametrize(("combination", "criterion", "absorption"), CHOICES)
def test_every_choice_of_the_papers_boosts(combination, criterion, absorption):
    how = {"combination": combination, "criterion": criterion, "absorption": absorption, "polish": False}
    for face in BOOSTING if absorption == "blocks" else BOOSTING[:1]:
        y = y_for(face)
        assert model(face, **how, n_learners=4, block_length=2).fit(X, y).score(X, y) > 0.4


def test_polish_lowers_the_error_and_says_why_it_ended():
    rough, fine = (model(BOOSTING[0], polish=polish, absorption="one").fit(X, Y) for polish in (False, True))
    assert fine.score(X, Y) > rough.score(X, Y)
    assert rough.polish_reason_ == "not asked for"
    assert "step" in fine.polish_reason_


def test_focused_boosting_learns_and_watches():
    rows, y = table(1500)
    labels = (y > 0).astype(int)
    how = {"focus": "margin", "absorption": "blocks", "block_length": 12, "n_learners": 36, "polish": False}
    fitted = model(BOOSTING[1], **how, validation_fraction=0.2, patience=8).fit(rows, labels)
    assert fitted.score(rows, labels) > 0.9
    assert len(set(fitted.history_["validation"][12:18])) > 1  # it moves within a focused block


def test_arguments_that_fit_does_not_know_are_refused_in_the_name_of_the_estimator():
    with pytest.raises(
        TypeError, match=r"^KernelBoostingRegressor\.fit\(\) got an unexpected keyword argument 'eval_set'"
    ):
        KernelBoostingRegressor().fit(X, Y, eval_set=[])


def test_a_warning_names_the_line_that_called_fit():
    rows = pd.DataFrame(X)
    with pytest.warns(UserWarning, match="same index in another order") as seen:
        KernelBoostingRegressor(kernel=Gaussian(1.0), regularization=1.0).fit(rows, pd.Series(Y)[::-1])
    assert seen[0].filename == __file__
