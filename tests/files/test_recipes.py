"""Recipes for other tools, run where the tools are installed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import mercer
from mercer.kernels import Gaussian

RECIPES = Path(__file__).parents[2] / "examples" / "recipes"
rng = np.random.default_rng(0)
X = pd.DataFrame(rng.uniform(-2, 2, (120, 2)), columns=["a", "b"])
Y = np.sin(X["a"]) + 0.5 * X["b"]
FIXED: dict[str, Any] = {"kernel": Gaussian(), "regularization": 1e-3}


def recipe(name: str, needs: str) -> Any:
    pytest.importorskip(needs)
    spec = importlib.util.spec_from_file_location(name, RECIPES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_optuna_finds_as_good_a_model_as_its_best_trial():
    model, study = recipe("optuna_search", "optuna").search(X.to_numpy(), Y.to_numpy(), 3, **FIXED)
    assert model.n_basis == study.best_params["n_basis"]
    assert study.best_value == max(trial.value for trial in study.trials) > 0.5


@pytest.mark.filterwarnings("ignore")
def test_a_model_of_mlflow_predicts_the_same(tmp_path):
    made = recipe("mlflow_model", "mlflow")
    model = mercer.KernelBoostingRegressor(**FIXED, random_state=0).fit(X, Y)
    made.save(model, str(tmp_path / "model"))
    loaded = made.mlflow.pyfunc.load_model(str(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    intervals = loaded.predict(X, params={"coverage": 0.8})
    np.testing.assert_array_equal(intervals, model.predict_interval(X, 0.8))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["regression", "binary"])
def test_a_model_of_autogluon_predicts_as_its_estimator(kind, tmp_path):
    made = recipe("autogluon_model", "autogluon.core")
    target = Y if kind == "regression" else (Y > 0).astype(int)
    model = made.MercerModel(path=str(tmp_path), name="mercer", problem_type=kind, hyperparameters=dict(FIXED))
    model.fit(X=X, y=target)
    found = model.predict(X) if kind == "regression" else model.predict_proba(X)
    assert found.shape == (120,)
    assert np.corrcoef(found, target)[0, 1] > 0.7
