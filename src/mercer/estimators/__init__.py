"""The scikit-learn faces of the package."""

from mercer.estimators.boosting import KernelBoostingClassifier, KernelBoostingRegressor
from mercer.estimators.empirical import MHKSClassifier, MultiKernelMHKSClassifier
from mercer.estimators.empirical_map import EmpiricalKernelMap
from mercer.estimators.gp import SparseGPRegressor
from mercer.estimators.gp_ard import ARDSelector
from mercer.estimators.gp_classifier import SparseGPClassifier
from mercer.estimators.greedy import GreedyKernelClassifier, GreedyKernelRegressor
from mercer.estimators.mixture import ENRBFRegressor, NRBFRegressor
from mercer.estimators.mixture_classifiers import ENRBFClassifier, NRBFClassifier
from mercer.estimators.mixture_densities import CommonBasisMixtureClassifier, GaussianMixtureClassifier
from mercer.estimators.nystroem import GreedyNystroem, select_basis
from mercer.estimators.rpemekl import RPEMEKLClassifier, RPEMEKLRegressor

__all__ = [
    "ARDSelector",
    "SparseGPClassifier",
    "SparseGPRegressor",
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
    "select_basis",
]
