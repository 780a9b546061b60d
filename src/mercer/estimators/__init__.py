"""The scikit-learn faces of the package."""

from mercer.estimators.boosting import KernelBoostingClassifier, KernelBoostingRegressor
from mercer.estimators.greedy import GreedyKernelClassifier, GreedyKernelRegressor
from mercer.estimators.nystroem import GreedyNystroem, select_basis

__all__ = [
    "GreedyKernelClassifier",
    "GreedyKernelRegressor",
    "GreedyNystroem",
    "KernelBoostingClassifier",
    "KernelBoostingRegressor",
    "select_basis",
]
