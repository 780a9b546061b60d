"""Large kernel machines that choose their own basis vectors, as scikit-learn estimators on PyTorch.

Public names are imported when they are first used, so that `import mercer` is quick and a family that is not used costs
nothing.
"""

import importlib as _importlib
import typing as _typing

from mercer.version import __version__ as __version__

if _typing.TYPE_CHECKING:
    from mercer.empirical.classifiers import MHKSClassifier as MHKSClassifier
    from mercer.empirical.classifiers import MultiKernelMHKSClassifier as MultiKernelMHKSClassifier
    from mercer.empirical.classifiers import RPEMEKLClassifier as RPEMEKLClassifier
    from mercer.empirical.kernel_map import EmpiricalKernelMap as EmpiricalKernelMap
    from mercer.empirical.regressor import RPEMEKLRegressor as RPEMEKLRegressor
    from mercer.explain.effects import partial_effects as partial_effects
    from mercer.explain.shapley import shapley_values as shapley_values
    from mercer.files import load as load
    from mercer.files import save as save
    from mercer.files import to_onnx as to_onnx
    from mercer.forward.boosting import KernelBoostingClassifier as KernelBoostingClassifier
    from mercer.forward.boosting import KernelBoostingRegressor as KernelBoostingRegressor
    from mercer.forward.compress_model import compress as compress
    from mercer.forward.gradient_metric import GradientMetric as GradientMetric
    from mercer.forward.greedy import GreedyKernelClassifier as GreedyKernelClassifier
    from mercer.forward.greedy import GreedyKernelRegressor as GreedyKernelRegressor
    from mercer.forward.nystroem import GreedyNystroem as GreedyNystroem
    from mercer.forward.nystroem import select_basis as select_basis
    from mercer.gp.ard import ARDSelector as ARDSelector
    from mercer.gp.classifier import SparseGPClassifier as SparseGPClassifier
    from mercer.gp.regressor import SparseGPRegressor as SparseGPRegressor
    from mercer.mixture.classifiers import ENRBFClassifier as ENRBFClassifier
    from mercer.mixture.classifiers import NRBFClassifier as NRBFClassifier
    from mercer.mixture.densities import CommonBasisMixtureClassifier as CommonBasisMixtureClassifier
    from mercer.mixture.densities import GaussianMixtureClassifier as GaussianMixtureClassifier
    from mercer.mixture.regressors import ENRBFRegressor as ENRBFRegressor
    from mercer.mixture.regressors import NRBFRegressor as NRBFRegressor
    from mercer.reporting import report as report
    from mercer.selection import one_standard_error as one_standard_error
    from mercer.selection import tune_kernel as tune_kernel

#: The module of each public name.
_MODULES = {
    "ARDSelector": "mercer.gp.ard",
    "SparseGPClassifier": "mercer.gp.classifier",
    "SparseGPRegressor": "mercer.gp.regressor",
    "GradientMetric": "mercer.forward.gradient_metric",
    "GreedyKernelClassifier": "mercer.forward.greedy",
    "GreedyKernelRegressor": "mercer.forward.greedy",
    "GreedyNystroem": "mercer.forward.nystroem",
    "KernelBoostingClassifier": "mercer.forward.boosting",
    "KernelBoostingRegressor": "mercer.forward.boosting",
    "EmpiricalKernelMap": "mercer.empirical.kernel_map",
    "MHKSClassifier": "mercer.empirical.classifiers",
    "MultiKernelMHKSClassifier": "mercer.empirical.classifiers",
    "RPEMEKLClassifier": "mercer.empirical.classifiers",
    "RPEMEKLRegressor": "mercer.empirical.regressor",
    "CommonBasisMixtureClassifier": "mercer.mixture.densities",
    "ENRBFClassifier": "mercer.mixture.classifiers",
    "ENRBFRegressor": "mercer.mixture.regressors",
    "GaussianMixtureClassifier": "mercer.mixture.densities",
    "NRBFClassifier": "mercer.mixture.classifiers",
    "NRBFRegressor": "mercer.mixture.regressors",
    "compress": "mercer.forward.compress_model",
    "load": "mercer.files",
    "one_standard_error": "mercer.selection",
    "partial_effects": "mercer.explain.effects",
    "report": "mercer.reporting",
    "save": "mercer.files",
    "select_basis": "mercer.forward.nystroem",
    "shapley_values": "mercer.explain.shapley",
    "to_onnx": "mercer.files",
    "tune_kernel": "mercer.selection",
}
#: Modules of the package that are attributes of it without an import of their own.
_ON_DEMAND = ("datasets", "distributed", "doctor", "plots")

__all__ = list(_MODULES)


def __getattr__(name: str) -> _typing.Any:
    """Import a public name, or a module such as `mercer.plots`, when it is first used."""
    if name in _MODULES:
        found = getattr(_importlib.import_module(_MODULES[name]), name)
        globals()[name] = found
        return found
    if name in _ON_DEMAND:
        return _importlib.import_module(f"mercer.{name}")
    raise AttributeError(f"module 'mercer' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ON_DEMAND})
