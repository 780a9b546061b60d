"""Small fitted models of every family, made once: what files, exports and the command line are tried with."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np

import mercer
from mercer.base.estimator import BaseKernelEstimator
from mercer.forward.boosting import Boosting
from mercer.forward.gradient_metric import GradientMetric
from mercer.kernels import (
    Bias,
    Gaussian,
    Laplacian,
    Linear,
    Matern32,
    Matern52,
    Normalized,
    Polynomial,
    RationalQuadratic,
    Separable,
)
from mercer.selection.settings import DEFAULT_SETTINGS

ROWS = np.random.default_rng(0).normal(size=(60, 3)) * [1.0, 5.0, 1.0]
ROWS[:, 2] = np.exp(2 * ROWS[:, 2])  # a heavy tail, for the maps of columns
NEW = np.random.default_rng(1).normal(size=(17, 3)) * [1.0, 5.0, 3.0]
NUMBERS = np.sin(ROWS[:, 0]) + 0.2 * ROWS[:, 1]
TWO = np.where(ROWS[:, 0] > 0, "yes", "no")
THREE = np.where(ROWS[:, 0] > 0.4, 2, np.where(ROWS[:, 1] > 0, 0, 7))

#: Short settings: what is tested is what a model keeps, not how good it is.
SMALL: dict[str, dict[str, Any]] = {
    "ARDSelector": {"models": mercer.SparseGPRegressor(5, max_iter=3, kernel="gaussian", ard=True, tuning_rows=30)},
    "SparseGPClassifier": {"n_inducing": 5, "max_iter": 3, "kernel": "gaussian"},
    "SparseGPRegressor": {"n_inducing": 8, "max_iter": 3, "kernel": "matern32"},
    "GreedyKernelClassifier": {"n_basis": 12, "kernel": Matern52(2.0), "regularization": 0.1},
    "GreedyKernelRegressor": {"n_basis": 12, "kernel": "matern32", "tuning_rows": 40},
    "GreedyNystroem": {"n_components": 7, "kernel": Gaussian(2.0)},
    "KernelBoostingClassifier": {"n_learners": 3, "learner_size": 8, "subset_size": 30},
    "GradientMetric": {"scale_inputs": "standard"},
    "MHKSClassifier": {"max_iter": 10},
    "MultiKernelMHKSClassifier": {"max_iter": 10},
    "RPEMEKLClassifier": {"kernels": "paper", "n_members": 2, "subset_size": 20, "max_iter": 10},
}
KERNELS = [
    Gaussian([1.0, 2.0, 3.0]) * 2.0 + 0.5,
    Matern32(1.5) + Linear(),
    Gaussian(2.0) * Polynomial(2, 0.5, 1.0),
    RationalQuadratic(1.5, alpha=0.7),
    Laplacian([3.0, 4.0, 5.0]),
    Separable(2.0, p=1.5, q=0.8),
    Normalized(Linear()) + Bias(0.3),
]


def public_estimators() -> list[str]:
    """The names of all estimators and transformers."""
    return [name for name in mercer.__all__ if isinstance(getattr(mercer, name), type)]


#: Few candidates of each column map, where kernels are selected.
SHORT = replace(
    DEFAULT_SETTINGS, families=("matern32", "matern12"), n_folds=2, gradient_steps=1, survivors=2, members=2, trials=2,
    trials_after_step=2, last_trials=1, smooth_loss=0.0, likelihood_classes=2,
)  # fmt: skip


@cache
def fitted(name: str, classes: int = 3) -> Any:
    """A fitted model of this public class."""
    model = getattr(mercer, name)(**SMALL.get(name, {}))
    if "random_state" in model.get_params(deep=False):
        model.set_params(random_state=0)
    with (
        patch.object(BaseKernelEstimator, "_calibration_folds", 2),  # five take most of a small fit
        patch.object(Boosting, "_selection_settings", SHORT),
        patch.object(GradientMetric, "_selection_settings", SHORT),
    ):
        return model.fit(ROWS, targets_for(name, classes))


def targets_for(name: str, classes: int = 3) -> np.ndarray:
    """Targets that a public class takes."""
    return (THREE if classes == 3 else TWO) if name.endswith("Classifier") else NUMBERS


def said(model: Any, X: np.ndarray = NEW) -> dict[str, np.ndarray]:
    """All that a model answers for new rows."""
    asks = ("predict", "predict_proba", "decision_function", "transform")
    answers = {ask: getattr(model, ask)(X) for ask in asks if hasattr(model, ask)}
    if isinstance(model, mercer.SparseGPRegressor | mercer.NRBFRegressor | mercer.ENRBFRegressor):
        answers["std"] = model.predict(X, return_std=True)[1]
    if hasattr(model, "predict_interval"):
        answers["interval"] = model.predict_interval(X)
    if hasattr(model, "set_scores_"):
        answers["set"] = model.predict_set(X)
    known = hasattr(model, "_objectives") or hasattr(model, "_models") or hasattr(model, "_weight_posterior")
    votes = hasattr(model, "agreement_")  # whose draws take long
    if hasattr(model, "predict_uncertainty") and known and not votes and not getattr(model, "_pairwise", False):
        answers["model_uncertainty"] = model.predict_uncertainty(X).model
    return answers
