"""A model that comes back from a file, a pickle or skops says what it said before, to the last bit."""

from __future__ import annotations

import dataclasses
import pickle
from functools import cache
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

import mercer
from mercer.base.estimator import to_numpy
from mercer.clock import StopKind, kinds_of
from mercer.files import describe
from mercer.kernels import Gaussian
from mercer.parts import PickledByFields
from tests.files.models import KERNELS, NEW, NUMBERS, ROWS, fitted, public_estimators, said

pytestmark = pytest.mark.usefixtures("two_folds")


told = cache(said)  # by a model that stays as it is


def same(a: Any, b: Any) -> None:
    one, other = told(a), said(b)
    assert list(one) == list(other)
    for ask, answer in one.items():
        assert np.array_equal(answer, other[ask]), ask
        assert answer.dtype == other[ask].dtype


def holds_tensor(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return True
    if isinstance(value, list | tuple):
        return any(holds_tensor(one) for one in value)
    if isinstance(value, dict):
        return any(holds_tensor(one) for one in value.values())
    if not type(value).__module__.startswith("mercer"):
        return False
    caches = isinstance(value, PickledByFields)  # what is cached is left out of a pickle
    held = value.__getstate__() if caches else getattr(value, "__dict__", {})
    return any(holds_tensor(one) for one in held.values())


@pytest.mark.parametrize("name", public_estimators())
def test_fitted_state_holds_no_tensor(name):
    assert not holds_tensor(fitted(name))


@pytest.mark.parametrize("name", public_estimators())
def test_a_file_gives_back_what_was_saved(name, tmp_path):
    model = fitted(name)
    model.save(tmp_path / "m.mercer")
    again = mercer.load(tmp_path / "m.mercer")
    same(model, again)
    assert type(again) is type(model)
    assert repr(again) == repr(model)
    left_out = {"_kept", "_stages"}
    assert set(vars(model)) - left_out == set(vars(again)) - left_out


def test_a_stop_reason_keeps_its_kinds_in_files_and_pickles(tmp_path):
    model = mercer.NRBFRegressor(3, training="em", max_iter=1, random_state=0).fit(ROWS, NUMBERS)
    model.save(tmp_path / "m.mercer")
    assert describe(tmp_path / "m.mercer")["fitted"]["stop_reason_"] == model.stop_reason_
    for again in (mercer.load(tmp_path / "m.mercer"), pickle.loads(pickle.dumps(model))):
        assert again.stop_reason_ == model.stop_reason_ == "max_iter=1 iterations were done"
        assert kinds_of(again.stop_reason_) == {StopKind.MAX_ITER}


@pytest.mark.parametrize("name", public_estimators())
def test_pickle_and_joblib_give_back_what_was_kept(name, tmp_path):
    model = fitted(name)
    same(model, pickle.loads(pickle.dumps(model)))
    joblib.dump(model, tmp_path / "m.joblib")
    same(model, joblib.load(tmp_path / "m.joblib"))


@pytest.mark.parametrize("name", public_estimators())
@pytest.mark.long
def test_skops_gives_back_what_was_kept(name):
    io = pytest.importorskip("skops.io")
    model = fitted(name)
    data = io.dumps(model)
    types = io.get_untrusted_types(data=data)
    assert all(one.startswith(("mercer.", "functools.", "numpy.")) for one in types)
    same(model, io.loads(data, trusted=types))


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_every_kernel_passes_through_a_file(kernel, tmp_path):
    model = mercer.GreedyKernelRegressor(6, kernel=kernel, regularization=0.1, random_state=0).fit(ROWS, NUMBERS)
    mercer.save(model, tmp_path / "m.mercer")
    same(model, mercer.load(tmp_path / "m.mercer"))


def test_names_of_columns_and_text_classes_pass_through_a_file(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS, columns=["depth", "width", "höhe"])
    model = mercer.NRBFClassifier(2, random_state=0).fit(frame, np.where(ROWS[:, 0] > 0, "yes", "no").astype(object))
    model.save(tmp_path / "m.mercer")
    again = mercer.load(tmp_path / "m.mercer")
    assert list(again.feature_names_in_) == ["depth", "width", "höhe"]
    assert again.classes_.dtype == object
    assert again.predict(frame).tolist() == model.predict(frame).tolist()


@pytest.mark.parametrize("kind", ["gaps", "levels"])
def test_a_selector_fitted_on_gaps_or_levels_passes_through_a_file(kind, tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 3))
    table = pd.DataFrame(X, columns=list("abc"))
    table.loc[::9, "b"] = np.nan
    table = table if kind == "gaps" else table.assign(k=["u", "v", "w"] * 20)
    models = mercer.SparseGPRegressor(5, max_iter=2, kernel="gaussian", ard=True)
    mercer.ARDSelector(models, random_state=0).fit(table, X[:, 0]).save(tmp_path / "a.mercer")
    again = mercer.load(tmp_path / "a.mercer")
    kept = table.columns[again.get_support()]
    assert again.set_output(transform="pandas").transform(table).equals(table[kept])


def test_a_model_that_no_file_could_give_back_is_not_written(tmp_path):
    model = mercer.NRBFRegressor(2, random_state=0).fit(np.arange(20.0)[:, None], np.arange(20.0))
    model.n_features_in_ = 0
    with pytest.raises(ValueError, match="must be"):
        model.save(tmp_path / "a.mercer")
    assert not list(tmp_path.iterdir())


def test_stages_are_saved_where_they_are_asked_for(tmp_path):
    model = fitted("GreedyKernelRegressor")
    model.save(tmp_path / "with.mercer", stages=True)
    model.save(tmp_path / "without.mercer")
    again = mercer.load(tmp_path / "with.mercer")
    for one, other in zip(model.staged_predict(NEW), again.staged_predict(NEW), strict=True):
        assert np.array_equal(one, other)
    with pytest.raises(ValueError, match="saved with stages=True"):
        next(mercer.load(tmp_path / "without.mercer").staged_predict(NEW))
    assert (tmp_path / "without.mercer").stat().st_size < (tmp_path / "with.mercer").stat().st_size


@pytest.mark.parametrize("name", public_estimators())
def test_a_small_file_says_the_same(name, tmp_path):
    model = fitted(name)
    model.save(tmp_path / "small.mercer", small=True)
    model.save(tmp_path / "whole.mercer")
    same(model, mercer.load(tmp_path / "small.mercer"))
    assert (tmp_path / "small.mercer").stat().st_size <= (tmp_path / "whole.mercer").stat().st_size


def test_a_small_file_of_float32_products_holds_float32_numbers_and_says_the_same(tmp_path):
    model = mercer.GreedyKernelRegressor(30, kernel=Gaussian(2.0), dtype="float32", random_state=0).fit(ROWS, NUMBERS)
    model.save(tmp_path / "m.mercer", small=True)
    again = mercer.load(tmp_path / "m.mercer")
    same(model, again)
    assert not hasattr(again, "basis_")
    assert np.array_equal(again.expansions_[0].weights, again.expansions_[0].weights.astype(np.float32))


def test_a_model_of_a_gpu_loads_without_one(tmp_path):
    model = pickle.loads(pickle.dumps(fitted("NRBFRegressor")))
    model.device = "cuda:7"
    model.save(tmp_path / "m.mercer")
    again = mercer.load(tmp_path / "m.mercer")
    assert again.device == ("cuda:7" if torch.cuda.is_available() else "auto")
    assert mercer.load(tmp_path / "m.mercer", device="cpu").device == "cpu"


def test_what_belongs_to_a_session_is_left_out(tmp_path):
    model = mercer.GreedyKernelRegressor(
        4, kernel=Gaussian(2.0), callbacks=print, random_state=np.random.RandomState(0), warm_start=True
    )
    model.set_params(callbacks=lambda fit: None).fit(ROWS, NUMBERS)
    model.save(tmp_path / "m.mercer")
    again = mercer.load(tmp_path / "m.mercer")
    assert again.callbacks is None
    assert again.random_state is None
    again.fit(ROWS, NUMBERS)  # from its beginning


def test_functions_of_ones_own_are_refused_in_words(tmp_path):
    model = mercer.GreedyKernelRegressor(4, kernel=lambda X, Z: X @ Z.T, regularization=1.0).fit(ROWS, NUMBERS)
    with pytest.raises(ValueError, match="kernel of GreedyKernelRegressor is a function of your own"):
        model.save(tmp_path / "m.mercer")
    assert list(tmp_path.iterdir()) == []


def test_only_fitted_models_of_ours_are_saved(tmp_path):
    from sklearn.exceptions import NotFittedError
    from sklearn.linear_model import Ridge

    with pytest.raises(ValueError, match="an estimator of mercer, or a pipeline that ends in one, got 'Ridge'"):
        mercer.save(Ridge().fit(ROWS, NUMBERS), tmp_path / "m.mercer")
    with pytest.raises(NotFittedError):
        mercer.save(clone(fitted("NRBFRegressor")), tmp_path / "m.mercer")
    with pytest.raises(ValueError, match="folder of the path must be one that exists"):
        fitted("NRBFRegressor").save(tmp_path / "nowhere" / "m.mercer")


def test_tensors_inside_anything_become_arrays():
    @dataclasses.dataclass(frozen=True)
    class Part:
        inner: Any

    plain = Part([1, 2])
    assert to_numpy(plain) is plain
    assert isinstance(to_numpy(Part((torch.ones(1),))).inner[0], np.ndarray)
