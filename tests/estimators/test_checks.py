"""scikit-learn's own estimator checks, for every public estimator: with quick settings where defaults are slow."""

from __future__ import annotations

from typing import Any

from sklearn.utils.estimator_checks import parametrize_with_checks

import mercer

#: What makes some of them quick; an estimator that is not here is checked with its defaults.
OPTIONS: dict[str, dict[str, Any]] = {
    "KernelBoostingClassifier": {"kernel": "gaussian", "tuning_rows": 80},  # with the race the regressor is checked
    "GradientMetric": {"metric": "diagonal", "scale_inputs": "standard"},
    "GreedyKernelRegressor": {"tuning_rows": 80},
    "GreedyKernelClassifier": {"tuning_rows": 80, "n_basis": 100},
    "GreedyNystroem": {"tuning_rows": 80, "n_components": 20},
    "MultiKernelMHKSClassifier": {"multiclass": "one-vs-rest"},
    "RPEMEKLClassifier": {"subset_size": 0.5, "n_members": 2},
    "RPEMEKLRegressor": {"c": (0.1, 1.0), "n_folds": 2},
    "SparseGPRegressor": {"n_inducing": 20, "tuning_rows": 80, "max_iter": 10},
    # class weights are checked with a thousand steps, which only L-BFGS ends early
    "SparseGPClassifier": {"n_inducing": 10, "tuning_rows": 80, "max_iter": 10, "optimize_inducing": False},
    "ARDSelector": {"models": [mercer.SparseGPRegressor(10, kernel="gaussian", ard=True, tuning_rows=80, max_iter=5)]},
    "NRBFRegressor": {"n_init": 1},
    "ENRBFRegressor": {"n_init": 1, "max_iter": 50},
    "NRBFClassifier": {"n_init": 1, "max_iter": 50},
    "ENRBFClassifier": {"n_components": 3, "n_init": 1, "max_iter": 30},
    "GaussianMixtureClassifier": {"n_components": 2, "n_init": 1},
    "CommonBasisMixtureClassifier": {"n_init": 1, "max_iter": 50},
}
FACES = {name: face for name in mercer.__all__ if isinstance(face := getattr(mercer, name), type)}
ESTIMATORS = [face(**OPTIONS.get(name, {})) for name, face in FACES.items()]


def test_options_are_for_estimators_that_exist():
    assert FACES.keys() >= OPTIONS.keys()


@parametrize_with_checks(ESTIMATORS)
def test_an_estimator_keeps_scikit_learns_contract(estimator, check):
    check(estimator)
