"""Promises of every fit: nothing wrong without a word, nothing lost by a failure, nothing that depends on units."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss

from mercer import (
    GreedyKernelClassifier,
    GreedyKernelRegressor,
    KernelBoostingClassifier,
    KernelBoostingRegressor,
)
from mercer.engine import make_plan
from mercer.forward.solve.exact import exact_seconds
from mercer.kernels import Gaussian

pytestmark = pytest.mark.usefixtures("two_folds")

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, (150, 2))
Y = np.sin(1.5 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=150)
CLASSES = (Y > 0).astype(int)
FIXED: dict[str, Any] = {"kernel": Gaussian(1.0), "regularization": 0.01, "random_state": 0}
#: A greedy fit looks at all rows in each of its steps.
FEW_STEPS: dict[Any, dict[str, Any]] = {GreedyKernelRegressor: {"n_basis": 12}, KernelBoostingRegressor: {}}

REGRESSORS = [
    KernelBoostingRegressor(3, learner_size=10, subset_size=50, **FIXED),
    GreedyKernelRegressor(10, **FIXED),
]
CLASSIFIERS = [
    KernelBoostingClassifier(3, learner_size=10, subset_size=50, **FIXED),
    GreedyKernelClassifier(10, **FIXED),
]
over_all = pytest.mark.parametrize("model", [*REGRESSORS, *CLASSIFIERS], ids=lambda m: type(m).__name__)


def fresh(model: Any, **options: Any) -> Any:
    return type(model)(**{**model.get_params(deep=False), **options})


def targets(model: Any) -> np.ndarray:
    return Y if model in REGRESSORS else CLASSES


# --- a failed fit ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [REGRESSORS[0], CLASSIFIERS[0]], ids=lambda m: type(m).__name__)
def test_an_interrupt_keeps_the_learners_made_so_far(model, monkeypatch):
    from mercer.forward.loop import ForwardFit

    step = ForwardFit.step

    def third_is_interrupted(self: ForwardFit) -> bool:
        if self.n_steps == 2:
            raise KeyboardInterrupt
        return step(self)

    monkeypatch.setattr(ForwardFit, "step", third_is_interrupted)
    fitted = fresh(model)
    with pytest.raises(KeyboardInterrupt):
        fitted.fit(X, targets(model))
    assert fitted.n_steps_ == 2
    assert "interrupted" in fitted.stop_reason_


def test_an_interrupt_of_the_polish_keeps_the_learners(monkeypatch):
    from mercer.forward import boosting

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(boosting, "polish", interrupted)
    model = fresh(REGRESSORS[0], polish=True)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)
    assert "interrupted after" in model.stop_reason_
    assert model.score(X, Y) > 0.5


def test_validation_rows_calibrate_an_exact_solution_and_leave_its_predictions_alone():
    options: dict[str, Any] = {"kernel": Gaussian(1.0), "regularization": 0.1, "random_state": 0}
    noisy = Y[::2] + np.random.default_rng(1).normal(0, 3.0, len(Y[::2]))
    plain, given, doubted = (
        KernelBoostingRegressor(**options).fit(X[1::2], Y[1::2], **rows)
        for rows in ({}, {"X_val": X[::2], "y_val": Y[::2]}, {"X_val": X[::2], "y_val": noisy})
    )
    assert "exact" in given.stop_reason_
    np.testing.assert_allclose(given.predict(X), plain.predict(X), rtol=1e-9)  # sums of rows are cut otherwise
    widths = [np.ptp(one.predict_interval(X, 0.8), axis=1).mean() for one in (given, doubted)]
    assert widths[1] > 3 * widths[0]  # the noise of those rows is what intervals are made of
    error = np.mean((given.predict(X[::2]) - Y[::2]) ** 2) / given.targets_.scale**2
    assert given.history_["validation"] == pytest.approx([error / 2])  # V is half of a square

    labels = np.where(np.median(Y) < Y, "b", "a")
    sure, unsure = (
        KernelBoostingClassifier(**options).fit(X[1::2], labels[1::2], X_val=X[::2], y_val=y_val)
        for y_val in (labels[::2], np.random.default_rng(0).permutation(labels[::2]))
    )
    np.testing.assert_array_equal(sure.predict(X), unsure.predict(X))
    far = [np.abs(one.predict_proba(X)[:, 0] - 0.5).mean() for one in (sure, unsure)]
    assert far[1] < 0.5 * far[0]


def test_staged_and_path_predictions_of_an_unfitted_model_are_refused():
    with pytest.raises(NotFittedError):
        next(KernelBoostingRegressor().staged_predict(X))
    with pytest.raises(NotFittedError):
        GreedyKernelRegressor().path_predict(X, [1])


# --- weights ---------------------------------------------------------------------------------------------------------


@cache
def weighed(face: Any, scale: float) -> np.ndarray:
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(X))
    return face(kernel=Gaussian(1.0), random_state=0, **FEW_STEPS[face]).fit(X, Y, weight * scale).predict(X)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
@pytest.mark.parametrize("face", [KernelBoostingRegressor, GreedyKernelRegressor], ids=lambda face: face.__name__)
def test_only_ratios_of_weights_matter_where_the_penalty_is_tuned(face, scale):
    """Weights of mean one are the same numbers again up to rounding, and the model follows them continuously."""
    one, other = (weighed(face, s) for s in (1.0, scale))
    assert np.abs(one - other).max() <= 1e-6 * np.abs(one).max()


def test_equal_weights_of_any_size_do_not_make_the_model_a_constant():
    model = KernelBoostingClassifier(random_state=0, tuning_rows=100).fit(X, CLASSES, np.full(150, 1 / 150))
    assert model.score(X, CLASSES) > 0.9


def test_a_penalty_beyond_all_weights_is_said():
    with pytest.warns(UserWarning, match="leaves nothing to learn from"):
        fresh(REGRESSORS[0]).fit(X, Y, np.full(150, 1e-8))


# --- sources and rows to watch ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad", [np.where(np.arange(150) == 3, np.nan, Y), Y + 1j, Y.astype("datetime64[s]"), np.zeros((150, 2, 2))]
)
def test_targets_beside_a_file_are_checked_too(bad, tmp_path):
    np.save(tmp_path / "x.npy", X)
    with pytest.raises((ValueError, TypeError)):
        fresh(REGRESSORS[0]).fit(tmp_path / "x.npy", bad)


VALIDATION = [
    ({"X_val": pd.DataFrame(X[:9, ::-1], columns=["b", "c"]), "y_val": Y[:9]}, "feature names should match"),
    ({"X_val": X[:9], "y_val": np.full(9, np.nan)}, "NaN"),
    ({"X_val": np.full((9, 2), np.inf), "y_val": Y[:9]}, "infinity"),
    ({"X_val": X[:9], "y_val": Y[:8]}, "y_val"),
    ({"X_val": X[:9], "y_val": np.c_[Y, Y][:9]}, "y"),
    ({"X_val": X[:0], "y_val": Y[:0]}, "minimum of 1 is required"),
]


@pytest.mark.parametrize(("given", "words"), VALIDATION)
def test_rows_to_watch_are_checked_as_those_of_fit_are(given, words):
    frame = pd.DataFrame(X, columns=["a", "b"]) if isinstance(given["X_val"], pd.DataFrame) else X
    with pytest.raises(ValueError, match=words):
        fresh(REGRESSORS[0]).fit(frame, Y, **given)


def test_rows_to_watch_of_an_unseen_class_are_refused():
    with pytest.raises(ValueError, match=r"y_val must be of the classes \[[^.()]*\], got \[7\]"):
        fresh(CLASSIFIERS[0]).fit(X, CLASSES, X_val=X[:5], y_val=np.full(5, 7))


def test_tensors_that_want_gradients_are_read():
    rows = torch.tensor(X, requires_grad=True)
    plain = fresh(REGRESSORS[0]).fit(X, Y).predict(X)
    watched = {"X_val": rows[:5], "y_val": torch.tensor(Y[:5], requires_grad=True)}
    fitted = fresh(REGRESSORS[0]).fit(rows, torch.tensor(Y, requires_grad=True), **watched)
    assert np.isfinite(fitted.predict(rows)).all()
    assert np.allclose(fresh(REGRESSORS[0]).fit(rows, torch.tensor(Y)).predict(rows), plain)


def test_half_precision_tensors_are_read():
    rows = torch.tensor(X, dtype=torch.bfloat16)
    assert np.isfinite(fresh(REGRESSORS[0]).fit(rows, Y).predict(rows)).all()


# --- warm starts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["targets", "rows", "weights", "kernel", "fewer"])
def test_a_warm_model_refuses_another_problem(change):
    model = fresh(REGRESSORS[0], warm_start=True).fit(X, Y)
    table: dict[str, Any] = {"X": X, "y": Y, "sample_weight": None}
    if change == "kernel":
        model.set_params(kernel=Gaussian(2.0))
    elif change == "fewer":
        model.set_params(n_learners=1)
    else:
        table |= {"targets": {"y": -Y}, "rows": {"X": X + 1}, "weights": {"sample_weight": np.full(150, 2.0)}}[change]
    with pytest.raises(ValueError, match=r"first fit|warm model"):
        model.fit(**table)


# --- numbers near the ends of float64 --------------------------------------------------------------------------------


@cache
def in_units(face: Any, unit_x: float, unit_y: float) -> np.ndarray:
    model = face(random_state=0, tuning_rows=60, kernel="gaussian", **FEW_STEPS[face]).fit(X * unit_x, Y * unit_y)
    return model.predict(X * unit_x)


@pytest.mark.parametrize("face", [KernelBoostingRegressor, GreedyKernelRegressor], ids=lambda face: face.__name__)
@pytest.mark.parametrize(("unit_x", "unit_y"), [(2.0**-530, 2.0**512), (2.0**512, 2.0**-660)])
def test_units_of_any_size_give_the_same_model(face, unit_x, unit_y):
    """Units are powers of two, so that not a bit of the table changes."""
    assert np.array_equal(in_units(face, unit_x, unit_y), in_units(face, 1.0, 1.0) * unit_y)


@over_all
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_beyond_all_others_have_finite_answers(model, dtype):
    fitted = fresh(model, dtype=dtype).fit(X, targets(model))
    far = np.array([[1e154, -1e154], [1e300, 1e30], [1e19, 0.0]])
    assert np.isfinite(fitted.predict(far).astype(float)).all()
    if hasattr(fitted, "predict_proba"):
        assert np.allclose(fitted.predict_proba(far).sum(1), 1.0)


# --- probabilities, sizes --------------------------------------------------------------------------------------------


def test_probabilities_of_a_model_that_interpolates_are_fitted_to_rows_left_out():
    """Two overlapping classes: the entropy of the truth, 0.5 log(0.8)-like, is the least a log loss can be."""
    local = np.random.default_rng(1)
    rows = local.uniform(-2, 2, (800, 2))
    truth = 1 / (1 + np.exp(-3 * np.sin(2 * rows[:, 0])))
    label = (local.uniform(size=800) < truth).astype(int)
    model = KernelBoostingClassifier(kernel=Gaussian(0.3), regularization=1e-3, random_state=0)
    fitted = model.fit(rows[:400], label[:400])
    entropy = log_loss(label[400:], truth[400:])
    assert log_loss(label[400:], fitted.predict_proba(rows[400:])) < entropy + 0.35


def test_a_model_of_few_vectors_is_small_whatever_it_was_fitted_to():
    many = np.random.default_rng(0).uniform(-2, 2, (20_000, 2))
    model = GreedyKernelRegressor(5, kernel=Gaussian(1.0), regularization=0.1).fit(many, many[:, 0])
    assert len(pickle.dumps(model)) < 60_000  # of which 2000 scores of intervals, and their weights, take 32 000


# --- a time budget ---------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_budget_that_allows_the_exact_solution_takes_it():
    """A factor of 3000 rows takes 9e9 operations, a second or two unless other processes stop this one for seconds."""
    many = np.random.default_rng(1).uniform(-2, 2, (3000, 2))  # a budget of 10 s was said to allow 2800 rows
    target = np.sin(1.5 * many[:, 0]) + 0.5 * many[:, 1]
    plain = KernelBoostingRegressor(**FIXED, n_basis=None).fit(many, target)
    budget = max(10.0, 10 * exact_seconds(3000, 1, 2, make_plan(3000, device="cpu")))
    hurried = KernelBoostingRegressor(**FIXED, n_basis=None, time_budget=budget).fit(many, target)
    assert len(hurried.basis_) == len(plain.basis_) == 3000
    np.testing.assert_array_equal(hurried.predict(X), plain.predict(X))


def test_more_time_than_the_default_needs_gives_the_default_model(short_selections, monkeypatch):
    """With a category: such tables of classes average two selections, with and without a budget."""
    settings = replace(KernelBoostingClassifier._selection_settings, repeated_rows=(100, 200))
    monkeypatch.setattr(KernelBoostingClassifier, "_selection_settings", settings)
    some = np.random.default_rng(2)
    frame = pd.DataFrame({"a": some.normal(size=120), "k": some.choice(list("uvw"), 120)})
    label = np.sin(frame["a"]) + (frame["k"] == "u") + 0.5 * some.normal(size=120) > 0.5
    plain = KernelBoostingClassifier(random_state=0, metric=None).fit(frame, label)
    patient = KernelBoostingClassifier(random_state=0, metric=None, time_budget=3600.0).fit(frame, label)
    assert len(patient.tuning_report_) == len(plain.tuning_report_)
    np.testing.assert_array_equal(patient.predict_proba(frame), plain.predict_proba(frame))
