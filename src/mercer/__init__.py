"""Large kernel machines that choose their own basis vectors, as scikit-learn estimators on PyTorch."""

from mercer.estimators import (
    GreedyKernelClassifier,
    GreedyKernelRegressor,
    GreedyNystroem,
    KernelBoostingClassifier,
    KernelBoostingRegressor,
    select_basis,
)
from mercer.tuning import tune_kernel

__version__ = "0.1.0"
__all__ = [
    "GreedyKernelClassifier",
    "GreedyKernelRegressor",
    "GreedyNystroem",
    "KernelBoostingClassifier",
    "KernelBoostingRegressor",
    "select_basis",
    "tune_kernel",
]
