"""scikit-learn's own estimator checks, all of them: once with the defaults, else with quicker tuning."""

from __future__ import annotations

from sklearn.utils.estimator_checks import parametrize_with_checks

from mercer import (
    GreedyKernelClassifier,
    GreedyKernelRegressor,
    KernelBoostingClassifier,
    KernelBoostingRegressor,
)

ESTIMATORS = [
    KernelBoostingRegressor(),
    KernelBoostingClassifier(tuning_rows=80),
    GreedyKernelRegressor(tuning_rows=80),
    GreedyKernelClassifier(tuning_rows=80, n_basis=100),
]


@parametrize_with_checks(ESTIMATORS)
def test_an_estimator_keeps_scikit_learns_contract(estimator, check):
    check(estimator)
