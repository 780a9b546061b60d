"""Promises of every fit, kept by the empirical kernels: nothing lost by a failure, nothing that depends on units."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import is_classifier

from mercer import (
    EmpiricalKernelMap,
    MHKSClassifier,
    MultiKernelMHKSClassifier,
    RPEMEKLClassifier,
    RPEMEKLRegressor,
)
from mercer.kernels import Gaussian

pytestmark = pytest.mark.usefixtures("two_folds")

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, (72, 2))
Y = np.sin(1.5 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=72)
CLASSES = np.digitize(Y, [-0.4, 0.4])

MODELS = [
    MHKSClassifier(max_iter=20),
    MultiKernelMHKSClassifier(multiclass="one-vs-rest", n_folds=2, max_iter=20),
    RPEMEKLClassifier("paper", 1.0, 1.0, n_members=2, subset_size=20, random_state=0),
    RPEMEKLRegressor(n_members=2, subset_size=20, n_folds=2, random_state=0),
    EmpiricalKernelMap(subset_size=10, criterion="max-res", random_state=0),
]
over_all = pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)


def fresh(model: Any, **options: Any) -> Any:
    return type(model)(**{**model.get_params(deep=False), **options})


def targets(model: Any) -> np.ndarray:
    return CLASSES if is_classifier(model) else Y


def answers(model: Any, rows: Any) -> np.ndarray:
    """What a model says in numbers."""
    for name in ("decision_function", "predict", "transform"):
        if hasattr(model, name):
            return getattr(model, name)(rows)
    raise AssertionError("a model that says nothing")


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


# --- a failed fit ----------------------------------------------------------------------------------------------------


@over_all
def test_an_interrupt_leaves_the_old_model_whole(model):
    fitted = fresh(model).fit(X, targets(model))
    before = answers(fitted, X)
    with pytest.raises(KeyboardInterrupt):
        fitted.set_params(callbacks=interrupt).fit(X * 10 + 3, targets(model)[::-1])
    assert (answers(fitted, X) == before).all()


def test_a_second_fit_forgets_the_first():
    frame = pd.DataFrame(X, columns=["a", "b"])
    model = fresh(MODELS[2]).fit(frame, CLASSES)
    model.fit(X, CLASSES > 0)
    assert not hasattr(model, "feature_names_in_")
    assert (answers(model, X) == answers(fresh(MODELS[2]).fit(X, CLASSES > 0), X)).all()


@over_all
def test_a_kernel_that_changes_later_does_not_change_the_model(model):
    kernel = Gaussian(1.0)
    name = "kernel" if hasattr(model, "kernel") else "kernels"
    fitted = fresh(model, **{name: kernel}).fit(X, targets(model))
    before = answers(fitted, X)
    kernel.length_scale = 7.0
    assert (answers(fitted, X) == before).all()


# --- callbacks, kernels ----------------------------------------------------------------------------------------------


@over_all
def test_one_function_is_enough_for_a_callback(model):
    calls: list[Any] = []
    fresh(model, callbacks=calls.append).fit(X, targets(model))
    assert calls


def test_a_regressor_tells_its_objective_once_for_every_member():
    events: list[Any] = []
    model = fresh(MODELS[3], callbacks=events.append).fit(X, Y)
    sweeps = [event.state for event in events if event.phase == "passes"]
    assert [event.step for event in events if event.phase == "members"] == [1, 2]
    assert [sweep.iteration for sweep in sweeps] == [1, 1]
    for sweep, member in zip(sweeps, model.members_[0], strict=True):
        assert (sweep.objective.numpy() == member.objective_path[0]).all()


@over_all
def test_kernel_values_computed_before_are_refused(model):
    name = "kernel" if hasattr(model, "kernel") else "kernels"
    with pytest.raises(ValueError, match=r"a kernel must be a function of rows.*'precomputed'"):
        fresh(model, **{name: "precomputed"}).fit(X @ X.T, targets(model))


# --- weights ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [MODELS[2], MODELS[3]], ids=lambda m: type(m).__name__)
def test_only_ratios_of_weights_matter_where_the_penalty_is_the_papers(model):
    """Weights of mean one are the same numbers again up to rounding, and the model follows them continuously."""
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(X))
    paper = [fresh(model, kernels="paper", regularization="paper", n_folds=2) for _ in range(3)]
    scales = (1.0, 1e-200, 1e200)
    one, *others = (answers(m.fit(X, targets(m), weight * s), X) for m, s in zip(paper, scales, strict=True))
    assert all(np.abs(one - other).max() <= 1e-6 * np.abs(one).max() for other in others)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_unit_of_weights_means_nothing_to_a_map(dtype):
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(X))
    model = EmpiricalKernelMap(subset_size=10, dtype=dtype, random_state=0)
    one, other = (fresh(model).fit(X, sample_weight=weight * unit).transform(X) for unit in (1.0, 2.0**512))
    assert (one == other).all()  # powers of two round nothing


# --- files -----------------------------------------------------------------------------------------------------------


def test_a_criterion_chooses_no_row_that_weighs_nothing(tmp_path):
    np.save(tmp_path / "x.npy", X)
    weight = (np.arange(len(X)) % 2).astype(float)
    fitted = fresh(MODELS[-1]).fit(tmp_path / "x.npy", Y, weight)
    assert (fitted.basis_indices_ % 2 == 1).all()
    np.testing.assert_array_equal(fitted.basis_, X[fitted.basis_indices_])


# --- numbers near the ends of float64 --------------------------------------------------------------------------------


@over_all
def test_units_of_inputs_give_the_same_model(model):
    """Units are powers of two, so that not a bit of the table changes."""
    plain = answers(fresh(model).fit(X, targets(model)), X)
    for unit in (2.0**-530, 2.0**512):
        assert np.array_equal(answers(fresh(model).fit(X * unit, targets(model)), X * unit), plain)


@pytest.mark.parametrize("unit", [2.0**-660, 2.0**512])
@pytest.mark.parametrize("model", MODELS[3:], ids=lambda m: type(m).__name__)
def test_units_of_targets_give_the_same_model(model, unit):
    plain, scaled = (answers(fresh(model).fit(X, Y * u), X) for u in (1.0, unit))
    assert np.array_equal(scaled, plain * (unit if hasattr(model, "predict") else 1.0))


@over_all
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_beyond_all_others_have_finite_answers(model, dtype):
    fitted = fresh(model, dtype=dtype).fit(X, targets(model))
    far = np.array([[1e154, -1e154], [1e300, 1e30], [1e19, 0.0]])
    assert np.isfinite(answers(fitted, far)).all()
    if hasattr(fitted, "predict_proba"):
        assert np.allclose(fitted.predict_proba(far).sum(1), 1.0)


# --- sizes, time -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS[2:], ids=lambda m: type(m).__name__)
def test_a_model_of_few_rows_is_small_whatever_it_was_fitted_to(model):
    many = np.random.default_rng(0).uniform(-2, 2, (8000, 2))
    options = {"criterion": "random"} if hasattr(model, "criterion") else {}
    fitted = fresh(model, **options).fit(many, many[:, 0] > 0)
    assert len(pickle.dumps(fitted)) < 60_000  # the rows take 128 000; scores of intervals and their weights stay
    assert (answers(pickle.loads(pickle.dumps(fitted)), X) == answers(fitted, X)).all()


@pytest.mark.parametrize(("criterion", "wanted"), [("random", 400), ("max-res", 40)])
def test_a_map_within_no_time_has_few_rows_and_one_within_plenty_all_of_them(criterion, wanted):
    many = np.random.default_rng(0).uniform(-2, 2, (500, 2))
    model = EmpiricalKernelMap(Gaussian(0.1), wanted, criterion=criterion, random_state=0)
    hurried, plenty, plain = (
        fresh(model, time_budget=seconds).fit(many, many[:, 0]) for seconds in (1e-9, 600.0, None)
    )
    assert len(hurried.basis_) < wanted
    assert np.isfinite(hurried.transform(X)).all()
    assert len(plain.basis_) == wanted
    np.testing.assert_array_equal(plenty.transform(X), plain.transform(X))


def test_all_rows_are_a_share_of_one():
    assert MHKSClassifier(subset_size=None).fit(X, CLASSES).subset_size_ == 1.0
