"""scikit-learn's own estimator checks, all of them."""

from __future__ import annotations

from sklearn.utils.estimator_checks import parametrize_with_checks

from mercer import (
    GreedyKernelClassifier,
    GreedyKernelRegressor,
    KernelBoostingClassifier,
    KernelBoostingRegressor,
)

ESTIMATORS = [
    GreedyKernelRegressor(),
    GreedyKernelClassifier(),
    KernelBoostingRegressor(),
    KernelBoostingClassifier(),
]


@parametrize_with_checks(ESTIMATORS)
def test_an_estimator_keeps_scikit_learns_contract(estimator, check):
    check(estimator)
