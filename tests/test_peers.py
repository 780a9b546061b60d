"""Optional rivals of the benchmarks, with small stand-ins for packages that are not installed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks/peers"))
try:
    import tables
    from rivals import rival
finally:
    del sys.path[0]

#: A rival's package, its two classes, and what they call a seed and a number of threads.
OPTIONAL = {
    "chimeraboost": ("chimeraboost", "ChimeraBoost{}", "random_state", "thread_count"),
    "ebm": ("interpret.glassbox", "ExplainableBoosting{}", "random_state", "n_jobs"),
    "realmlp": ("pytabkit", "RealMLP_TD_{}", "random_state", "n_threads"),
    "tabm": ("pytabkit", "TabM_D_{}", "random_state", "n_threads"),
}


class Mean(RegressorMixin, BaseEstimator):
    """The mean of the training targets."""

    def __init__(self, **options):
        self.options = options

    def fit(self, X, y):
        self.mean = y.mean()
        return self

    def predict(self, X):
        return np.full(len(X), self.mean)


class Shares(ClassifierMixin, BaseEstimator):
    """The shares of the training classes."""

    def __init__(self, **options):
        self.options = options

    def fit(self, X, y):
        self.p = np.bincount(y) / len(y)
        return self

    def predict(self, X):
        return np.full(len(X), self.p.argmax())

    def predict_proba(self, X):
        return np.tile(self.p, (len(X), 1))


@pytest.fixture(params=OPTIONAL)
def installed(request, monkeypatch):
    """The name of a rival whose package is replaced by models of the mean."""
    package, name, *_ = OPTIONAL[request.param]
    module = ModuleType(package)
    setattr(module, name.format("Regressor"), Mean)
    setattr(module, name.format("Classifier"), Shares)
    if "." in package:
        monkeypatch.setitem(sys.modules, package.split(".")[0], ModuleType(package.split(".")[0]))
    monkeypatch.setitem(sys.modules, package, module)
    return request.param


def test_an_installed_rival_gets_seed_and_threads_and_is_judged(installed):
    *_, seed, threads = OPTIONAL[installed]
    assert {seed: 3, threads: 2}.items() <= rival(installed).default("regression", 3, threads=2).options.items()
    assert installed in tables.METHODS
    X, y, y_test = np.zeros((4, 1)), np.array([0, 0, 0, 1]), np.array([1, 0])
    found = tables.attempt(installed, tables.Table("regression", X, y * 1.0, X[:2], np.array([0.25, 0.25])), 0)
    assert found["error"] == 0
    found = tables.attempt(installed, tables.Table("classification", X, y, X[:2], y_test), 0)
    assert found["error"] == 50
    assert found["log_loss"] == pytest.approx(-np.log([0.25, 0.75]).mean())


def test_a_rival_that_is_not_installed_is_left_out(monkeypatch, capsys):
    for package, *_ in OPTIONAL.values():
        monkeypatch.setitem(sys.modules, package, None)
    assert tables.installed(["histgb", *OPTIONAL]) == ["histgb"]
    assert capsys.readouterr().out.count("is not installed and left out") == len(OPTIONAL)
