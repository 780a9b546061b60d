"""scikit-learn's own estimator checks, for every public estimator: with quick settings where defaults are slow."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import mercer
from mercer.kernels import Gaussian
from mercer.tuning import constants

#: Nothing to tune; what is tuned by default is checked with other faces.
FIXED: dict[str, Any] = {"kernel": Gaussian(2.0), "regularization": 0.1}
#: What makes some of them quick; an estimator that is not here is checked with its defaults.
OPTIONS: dict[str, dict[str, Any]] = {
    "KernelBoostingRegressor": {"metric": None},  # the race, with kernels and column maps alone
    "KernelBoostingClassifier": FIXED,
    "GradientMetric": {"metric": "diagonal", "scale_inputs": "standard"},
    "GreedyKernelRegressor": FIXED | {"n_basis": 10},
    "GreedyKernelClassifier": FIXED | {"n_basis": 10},
    "GreedyNystroem": FIXED | {"n_components": 10},
    "MultiKernelMHKSClassifier": {"multiclass": "one-vs-rest"},
    "RPEMEKLClassifier": {"subset_size": 0.5, "n_members": 2},
    "RPEMEKLRegressor": {"regularization": (0.1, 1.0), "n_folds": 2},
    "SparseGPRegressor": {"kernel": "gaussian", "scale_inputs": "standard", "n_inducing": 6, "max_iter": 4},
    # class weights are checked with a thousand steps, which only L-BFGS ends early
    "SparseGPClassifier": {"kernel": "gaussian", "n_inducing": 4, "max_iter": 1, "optimize_inducing": False},
    "ARDSelector": {"models": [mercer.SparseGPRegressor(10, kernel="gaussian", ard=True, tuning_rows=20, max_iter=2)]},
    "NRBFRegressor": {"n_init": 1, "max_iter": 30},
    "ENRBFRegressor": {"n_init": 1, "max_iter": 20},
    "NRBFClassifier": {"n_init": 1, "max_iter": 50},
    "ENRBFClassifier": {"n_components": 2, "n_init": 1, "max_iter": 15},
    "GaussianMixtureClassifier": {"n_components": 2, "n_init": 1, "max_iter": 20},
    "CommonBasisMixtureClassifier": {"n_init": 1, "max_iter": 30},
}
FACES = {name: face for name in mercer.__all__ if isinstance(face := getattr(mercer, name), type)}
ESTIMATORS = [face(**OPTIONS.get(name, {})) for name, face in FACES.items()]


def test_options_are_for_estimators_that_exist():
    assert FACES.keys() >= OPTIONS.keys()


@pytest.fixture
def short_races(monkeypatch):
    """One step, few trials: what is checked is a contract, and not who wins."""
    for name, value in {"STEPS": 1, "TRIALS": 2, "TRIALS_ON": 2, "LAST_TRIALS": 1, "FIRST_ROWS": 60}.items():
        assert hasattr(constants, name)
        monkeypatch.setattr(constants, name, value)


@parametrize_with_checks(ESTIMATORS)
def test_an_estimator_keeps_scikit_learns_contract(estimator, check, short_races):
    check(estimator)
