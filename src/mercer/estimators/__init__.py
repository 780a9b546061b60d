"""The scikit-learn faces of the package."""

from mercer.estimators.boosting import KernelBoostingClassifier, KernelBoostingRegressor
from mercer.estimators.greedy import GreedyKernelRegressor

__all__ = ["GreedyKernelRegressor", "KernelBoostingClassifier", "KernelBoostingRegressor"]
