"""The scikit-learn faces of the package."""

from mercer.estimators.greedy import GreedyKernelRegressor

__all__ = ["GreedyKernelRegressor"]
