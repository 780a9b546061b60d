"""scikit-learn's own estimator checks, all of them: once with the defaults, else with quicker tuning."""

from __future__ import annotations

from sklearn.utils.estimator_checks import parametrize_with_checks

from mercer import (
    ARDSelector,
    CommonBasisMixtureClassifier,
    EmpiricalKernelMap,
    ENRBFClassifier,
    ENRBFRegressor,
    GaussianMixtureClassifier,
    GreedyKernelClassifier,
    GreedyKernelRegressor,
    KernelBoostingClassifier,
    KernelBoostingRegressor,
    MHKSClassifier,
    MultiKernelMHKSClassifier,
    NRBFClassifier,
    NRBFRegressor,
    RPEMEKLClassifier,
    RPEMEKLRegressor,
    SparseGPClassifier,
    SparseGPRegressor,
)

ESTIMATORS = [
    KernelBoostingRegressor(),
    KernelBoostingClassifier(tuning_rows=80),
    GreedyKernelRegressor(tuning_rows=80),
    GreedyKernelClassifier(tuning_rows=80, n_basis=100),
    EmpiricalKernelMap(),
    MHKSClassifier(),
    MultiKernelMHKSClassifier(multiclass="one-vs-rest"),
    RPEMEKLClassifier(subset_size=0.5, n_members=2),
    RPEMEKLRegressor(c=(0.1, 1.0), n_folds=2),
    SparseGPRegressor(20, tuning_rows=80, max_iter=10),
    SparseGPClassifier(10, tuning_rows=80, max_iter=10),
    ARDSelector(models=[SparseGPRegressor(10, kernel="gaussian", ard=True, tuning_rows=80, max_iter=5)]),
    NRBFRegressor(n_init=1),
    ENRBFRegressor(n_init=1, max_iter=50),
    NRBFClassifier(n_init=1, max_iter=50),
    ENRBFClassifier(n_components=3, n_init=1, max_iter=30),
    GaussianMixtureClassifier(n_components=2, n_init=1),
    CommonBasisMixtureClassifier(n_init=1, max_iter=50),
]


@parametrize_with_checks(ESTIMATORS)
def test_an_estimator_keeps_scikit_learns_contract(estimator, check):
    check(estimator)
