"""Large kernel machines that choose their own basis vectors, as scikit-learn estimators on PyTorch."""

import importlib as _importlib
import typing as _typing

from mercer.empirical.classifiers import MHKSClassifier, MultiKernelMHKSClassifier, RPEMEKLClassifier
from mercer.empirical.kernel_map import EmpiricalKernelMap
from mercer.empirical.regressor import RPEMEKLRegressor
from mercer.explain.effects import partial_effects
from mercer.explain.shapley import shapley_values
from mercer.files import load, save, to_onnx
from mercer.forward.boosting import KernelBoostingClassifier, KernelBoostingRegressor
from mercer.forward.gradient_metric import GradientMetric
from mercer.forward.greedy import GreedyKernelClassifier, GreedyKernelRegressor
from mercer.forward.nystroem import GreedyNystroem, select_basis
from mercer.gp.ard import ARDSelector
from mercer.gp.classifier import SparseGPClassifier
from mercer.gp.regressor import SparseGPRegressor
from mercer.mixture.classifiers import ENRBFClassifier, NRBFClassifier
from mercer.mixture.densities import CommonBasisMixtureClassifier, GaussianMixtureClassifier
from mercer.mixture.regressors import ENRBFRegressor, NRBFRegressor
from mercer.report import report
from mercer.selection import one_standard_error, tune_kernel
from mercer.version import __version__ as __version__

__all__ = [
    "ARDSelector",
    "SparseGPClassifier",
    "SparseGPRegressor",
    "GradientMetric",
    "GreedyKernelClassifier",
    "GreedyKernelRegressor",
    "GreedyNystroem",
    "KernelBoostingClassifier",
    "KernelBoostingRegressor",
    "EmpiricalKernelMap",
    "MHKSClassifier",
    "MultiKernelMHKSClassifier",
    "RPEMEKLClassifier",
    "RPEMEKLRegressor",
    "CommonBasisMixtureClassifier",
    "ENRBFClassifier",
    "ENRBFRegressor",
    "GaussianMixtureClassifier",
    "NRBFClassifier",
    "NRBFRegressor",
    "load",
    "one_standard_error",
    "partial_effects",
    "report",
    "save",
    "select_basis",
    "shapley_values",
    "to_onnx",
    "tune_kernel",
]

#: Parts that `import mercer` leaves alone until they are asked for.
_ON_DEMAND = ("datasets", "distributed", "doctor", "plots")


def __getattr__(name: str) -> _typing.Any:
    """`mercer.plots` and others without an import of their own."""
    if name in _ON_DEMAND:
        return _importlib.import_module(f"mercer.{name}")
    raise AttributeError(f"module 'mercer' has no attribute {name!r}")
