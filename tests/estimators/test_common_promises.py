"""Promises that every family keeps: nothing is lost by a fit that fails, and files are read as arrays are."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score

import mercer
from mercer.data import CsvRows
from mercer.kernels import Gaussian

pytestmark = pytest.mark.usefixtures("two_folds")

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, (90, 2))
Y = np.sin(1.5 * X[:, 0]) + 0.5 * X[:, 1] + 0.05 * rng.normal(size=90)
CLASSES = np.digitize(Y, [-0.5, 0.5])

FIXED: dict[str, Any] = {"kernel": Gaussian(1.0), "regularization": 0.01, "random_state": 0}
BOOSTED: dict[str, Any] = FIXED | {"learner_size": 10, "subset_size": 50}
GP: dict[str, Any] = {"max_iter": 2, "random_state": 0, "kernel": 2.0 * Gaussian(1.0), "optimize_kernel": True}
SHORT: dict[str, Any] = {"n_init": 1, "max_iter": 5, "random_state": 0}
DRAWN: dict[str, Any] = {
    "kernels": "paper",
    "regularization": 1.0,
    "coupling": 1.0,
    "n_members": 2,
    "subset_size": 20,
    "random_state": 0,
}
MODELS = {
    "boosted numbers": mercer.KernelBoostingRegressor(3, **BOOSTED),
    "boosted classes": mercer.KernelBoostingClassifier(3, **BOOSTED),
    "greedy numbers": mercer.GreedyKernelRegressor(10, **FIXED),
    "greedy classes": mercer.GreedyKernelClassifier(10, **FIXED),
    "sparse process": mercer.SparseGPRegressor(8, **GP),
    "full process": mercer.SparseGPRegressor(approximation="full", **GP),
    "one-vs-rest": mercer.SparseGPClassifier(6, **GP),
    "softmax": mercer.SparseGPClassifier(6, multi_class="softmax", **GP),
    "a subset of classes": mercer.SparseGPClassifier(30, approximation="sd", **GP),
    "local constants": mercer.NRBFRegressor(3, **SHORT),
    "local lines": mercer.ENRBFRegressor(3, training="em", **SHORT),
    "by gradient": mercer.NRBFRegressor(3, training="gradient", **SHORT),
    "two-step": mercer.ENRBFRegressor(3, training="two-step", **SHORT),
    "local logits": mercer.ENRBFClassifier(3, **SHORT),
    "local shares": mercer.NRBFClassifier(3, **SHORT),
    "a mixture per class": mercer.GaussianMixtureClassifier(2, **SHORT),
    "common basis": mercer.CommonBasisMixtureClassifier(3, **SHORT),
    "common basis of rows alone": mercer.CommonBasisMixtureClassifier(3, supervised=False, **SHORT),
    "MHKS": mercer.MHKSClassifier(Gaussian(1.0), regularization=1.0, max_iter=20),
    "several kernels": mercer.MultiKernelMHKSClassifier("paper", 1.0, 1.0, multiclass="one-vs-rest", max_iter=20),
    "members for classes": mercer.RPEMEKLClassifier(**DRAWN, max_iter=20),
    "members for numbers": mercer.RPEMEKLRegressor(**DRAWN),
    "kernel map": mercer.EmpiricalKernelMap(subset_size=10, criterion="max-res", random_state=0),
}
over_models = pytest.mark.parametrize("name", MODELS)


def fresh(name: str, **options: Any) -> Any:
    return type(MODELS[name])(**MODELS[name].get_params(deep=False) | options)


def targets(name: str) -> np.ndarray:
    return CLASSES if is_classifier(MODELS[name]) else Y


@cache
def plain(name: str) -> Any:
    """The model of the table as it is, fitted once for all who only ask it."""
    return fresh(name).fit(X, targets(name))


def answers(model: Any, rows: Any) -> np.ndarray:
    """The finest that a model says of rows."""
    for ask in ("predict_proba", "decision_function", "predict", "transform"):
        if hasattr(model, ask):
            return np.asarray(getattr(model, ask)(rows))
    raise AssertionError("a model that says nothing")


def boom(*_: Any) -> None:
    raise RuntimeError("boom")


@over_models
def test_a_fit_that_fails_leaves_the_old_model_whole(name):
    model = copy.deepcopy(plain(name))
    before, kept = answers(model, X), set(vars(model))
    model.set_params(callbacks=boom)
    with pytest.raises(RuntimeError, match="boom"):
        model.fit(X[:, ::-1] * 10 + 3, targets(name)[::-1])
    np.testing.assert_array_equal(answers(model, X), before)
    assert set(vars(model)) == kept


@over_models
def test_a_first_fit_that_fails_leaves_nothing_fitted(name):
    broken = fresh(name, callbacks=[boom])
    with pytest.raises(RuntimeError, match="boom"):
        broken.fit(X, targets(name))
    for ask in ("predict", "transform", "gate_probabilities", "score_samples"):
        if hasattr(type(broken), ask):
            with pytest.raises(NotFittedError):
                getattr(broken, ask)(X)
    if hasattr(broken, "responsibilities"):
        with pytest.raises(NotFittedError):
            broken.responsibilities(X, targets(name))


@over_models
def test_a_file_is_checked_as_an_array_is(name, tmp_path):
    np.save(tmp_path / "x.npy", X)
    np.testing.assert_allclose(answers(plain(name), tmp_path / "x.npy"), answers(plain(name), X), atol=1e-9)
    for bad in (np.nan, np.inf):
        spoiled = X.copy()
        spoiled[3, 1] = bad
        np.save(tmp_path / "bad.npy", spoiled)
        with pytest.raises(ValueError, match="row 3, column 1"):
            fresh(name).fit(tmp_path / "bad.npy", targets(name))
        with pytest.raises(ValueError, match="row 3, column 1"):
            answers(plain(name), tmp_path / "bad.npy")


@over_models
def test_columns_of_a_file_are_found_by_their_names(name, tmp_path):
    """The file that was fitted can be predicted for, and so can one with further columns in another order."""
    frame = pd.DataFrame(X, columns=["a", "b"])
    frame.assign(y=targets(name)).to_csv(tmp_path / "all.csv", index=False)
    if name == "kernel map":  # which takes targets beside its rows alone
        model = fresh(name).fit(frame, targets(name))
    else:
        model = fresh(name).fit(CsvRows(tmp_path / "all.csv", target="y"))
    assert list(model.feature_names_in_) == ["a", "b"]
    wanted = answers(model, frame)
    np.testing.assert_allclose(answers(model, tmp_path / "all.csv"), wanted, atol=1e-9)
    frame[["b", "a"]].assign(more=1.0).to_csv(tmp_path / "other.csv", index=False)
    np.testing.assert_allclose(answers(model, tmp_path / "other.csv"), wanted, atol=1e-9)
    frame[["b"]].to_csv(tmp_path / "less.csv", index=False)
    with pytest.raises(ValueError, match=r"less.csv must have a column 'a', got columns \['b'\]"):
        answers(model, tmp_path / "less.csv")


INTERRUPTED = {  # models that have something to keep after two steps of a phase
    "boosted numbers": "learners",
    "boosted classes": "learners",
    "greedy numbers": "learners",
    "sparse process": "evidence",
    "local lines": "EM",
    "a mixture per class": "EM",
}


@pytest.mark.parametrize("name", INTERRUPTED)
def test_an_interrupt_keeps_the_model_so_far_and_ends_loops_around_it(name):
    seen: list[Any] = []

    def press(event: Any) -> None:
        if event.phase == INTERRUPTED[name]:
            seen.append(event)
            if len(seen) == 2:
                raise KeyboardInterrupt

    model = fresh(name, callbacks=press, **({"max_iter": 50} if hasattr(MODELS[name], "max_iter") else {}))
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, targets(name))
    assert "interrupted after" in model.stop_reason_
    assert np.isfinite(answers(model, X).astype(float)).all()
    seen.clear()
    with pytest.raises(KeyboardInterrupt):
        cross_val_score(clone(model), X, targets(name), cv=3)
    assert len(seen) == 2  # no second fold


def test_an_interrupt_among_several_members_leaves_a_model_of_those_that_are_done(monkeypatch):
    from mercer.forward.solve.exact import AllRows

    rows = np.random.default_rng(1).uniform(-2, 2, (300, 3))
    noise = 0.2 * np.random.default_rng(2).normal(size=300)
    y = np.abs(2 * rows[:, 0]) + 0.5 * np.sign(rows[:, 1]) + rows[:, 2] + noise  # smooth targets have one kernel
    whole = mercer.KernelBoostingRegressor(random_state=0).fit(rows[:200], y[:200])
    assert len(whole.expansions_) > 1
    following, calls = AllRows.next, []

    def second_is_interrupted(self: Any, *arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return following(self, *arguments)

    monkeypatch.setattr(AllRows, "next", second_is_interrupted)
    model = mercer.KernelBoostingRegressor(random_state=0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(rows[:200], y[:200])
    assert len(model.expansions_) == 1
    assert model.score(rows[200:], y[200:]) > 0.8  # with its own share alone it would predict half of what it should


def with_constants(rows: np.ndarray, year: float) -> np.ndarray:
    return np.column_stack([rows[:, :1], np.full(len(rows), year), rows[:, 1:], np.full(len(rows), year > 2024)])


@over_models
def test_columns_of_one_value_in_fit_have_no_influence_whatever_they_hold_later(name):
    model = fresh(name).fit(with_constants(X, 2024.0), targets(name))
    np.testing.assert_array_equal(answers(model, with_constants(X, 2030.0)), answers(model, with_constants(X, 2024.0)))
    assert model.n_features_in_ == 4
    assert [one["map"] for one in model.columns_] == ["number", "left out: constant"] * 2
    if getattr(model, "relevance_", None) is not None:
        assert not np.asarray(model.relevance_)[..., [1, 3]].any()
