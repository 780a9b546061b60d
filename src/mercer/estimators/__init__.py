"""The scikit-learn faces of the package."""

from mercer.estimators.boosting import KernelBoostingClassifier, KernelBoostingRegressor
from mercer.estimators.greedy import GreedyKernelClassifier, GreedyKernelRegressor

__all__ = ["GreedyKernelClassifier", "GreedyKernelRegressor", "KernelBoostingClassifier", "KernelBoostingRegressor"]
