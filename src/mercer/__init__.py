"""Large kernel machines that choose their own basis vectors, as scikit-learn estimators on PyTorch."""

from mercer.estimators import GreedyKernelRegressor
from mercer.tuning import tune_kernel

__version__ = "0.1.0"
__all__ = ["GreedyKernelRegressor", "tune_kernel"]
