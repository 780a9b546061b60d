"""Random settings, drawn from each public name's own signature: legal values by parameter, and hostile ones."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

import mercer
from mercer import kernels

KERNELS = (
    "auto", "auto", "auto", "gaussian", "matern32", "matern52", "laplacian",
    kernels.Gaussian(), kernels.Gaussian(1e-8), kernels.Gaussian(0.1), kernels.Gaussian(1e6), kernels.Matern32(2.0),
    kernels.Linear(), kernels.Polynomial(), kernels.RationalQuadratic(),
    kernels.Sum(kernels.Scaled(kernels.Gaussian()), kernels.Bias()),
    kernels.Product(kernels.Gaussian(), kernels.Linear()), kernels.Scaled(kernels.Matern52(), 1e8),
)  # fmt: skip
CRITERIA = (
    "random", "max-res", "largest-residuals", "mp", "boost", "one-dimensional", "ald", "ran", "info-gain", "ormp",
)  # fmt: skip
FRACTIONS = (0.0, 1e-300, 1e-12, 1e-3, 1.0, 1e6, 1e300)

#: Legal values by the name of a parameter; one that is not here keeps its default where settings are legal.
LEGAL: dict[str, tuple[Any, ...]] = {
    "absorption": ("auto", "full", "one", "blocks"),
    "alpha": (None, 0.0, 1e-6, 1.0, 1e6),  # one number; a vector of them has tests of its own
    "approximation": ("auto", "full", "sd", "sr", "pp", "spgp", "variational", "svgp"),
    "ard": (True, False, "auto"),
    "background": ("training", None),
    "block_length": (1, 3, 50),
    "block_penalty": (False, True),
    "categorical_features": ("from_dtype", "from_dtype", None, [0], [True]),
    "c": (1.0, 1e-6, 1e6, [0.1, 1.0]),
    "class_weight": (None, "balanced"),
    "combination": ("mp", "rayleigh", "cg"),
    "coupling": (1.0, 0.5, 1e6, [0.1, 1.0]),
    "covariance_floor": (1e-12, 1e-4, 0.5),
    "cyclic_features": (None,),  # columns by name have tests of their own
    "spherical_features": (None,),
    "text_features": ("from_values", None),
    "covariance_type": ("spherical", "diagonal", "full", "tied"),
    "criterion": CRITERIA,
    "dtype": ("float32", "float64", "auto"),
    "exchange": (False, True),
    "fit_intercept": (True, False),
    "focus": (None, "margin", "hinge"),
    "grid_size": (2, 3, 40),
    "inducing": ("k-means++", "variance", "random", "max-res", "ald"),
    "init": ("k-means++", "random"),
    "initial_margin": (1e-6, 1.0),
    "kernel": KERNELS,
    "kernels": ("paper", ["gaussian", "linear"], [kernels.Gaussian(1e-6), kernels.Gaussian(1e6)], ["gaussian"]),
    "learner_size": (1, 2, 10, 50, [3, 1, 2], "auto"),
    "learning_rate": (0.99, 0.5, 1e-6),
    "length_scale_prior": (None, 0.01, 2.0, 1e3),
    "literal": (False, True),
    "loss": ("squared", "logistic", "squared-hinge", "pinball", "poisson"),
    "monotonic_cst": (None, None, {0: 1}, {0: -1}),
    "mean": ("constant", "linear"),
    "max_components": (1, 3, 5),
    "max_iter": (1, 5, 20),
    "memory_limit": (None, 2**25, "64MB"),  # plain problems fit: all of 1000 rows may be basis vectors
    "metric": ("auto", None, "diagonal", "full"),
    "min_novelty": (0.0, 1e-6, 0.5),
    "min_votes": (None, 1, 2),
    "models": (None, [mercer.SparseGPRegressor(5, max_iter=3)], [mercer.SparseGPRegressor(5, max_iter=3, ard=True)]),
    "multi_class": ("one_vs_rest", "softmax"),
    "multiclass": ("one-vs-one", "one-vs-rest"),
    "n_basis": (1, 2, 5, 20, 1000),
    "n_components": (1, 2, 5, 50, "auto"),
    "n_features_to_select": (None, 1, 2),
    "n_folds": (2, 3, 5),
    "n_inducing": (1, 2, 5, 20, 1000),
    "n_init": (1, 2),
    "n_kernels": ("auto", 1, 2),
    "n_learners": (1, 2, 5, 30, "auto"),
    "n_members": (1, 2, 3),
    "n_restarts": (0, 1),
    "n_selections": ("auto", "auto", 2),
    "n_rows": (2, 5, 100, 1000),
    "newton_steps": (1, 3),
    "optimize_inducing": (True, False, "auto"),
    "optimize_kernel": (True, False, "auto"),
    "compression_tol": (0.001, 0.01, 0.5),
    "patience": (1, 10),
    "penalty": ("auto", "rkhs", "gram"),
    "polish": (True, False, "auto"),
    "priors": (None, {}, {"length_scale": ("gamma", 3, 6)}, {"length_scale": ("lognormal", 0, 1e-3)}),
    "local_stage": (True, False),
    "prune": (False, True),
    "rank": (None, 1, 3, 100),
    "recompute": (False,),  # "mrx" only
    "redraw": (False, True),
    "refine": (False, True),
    "refine_iter": (1, 20),
    "regularization": ("auto", "auto", *FRACTIONS),
    "restarts": (0, 1),
    "scale_inputs": (True, False, "standard"),
    "shrinkage": (1.0, 0.1, 1e-9),
    "step_size": ("auto", 1, 3, 50),
    "stopping": (None, "mdl", "aic", ["mdl", "aic"]),
    "subset_size": (1, 5, 50, 300),
    "gram_rows": (None, "auto", 1, 40),
    "groups": (None,),
    "max_rows": (None, "auto", 2, 40),
    "checkpoint": (None,),  # folders have tests of their own
    "supervised": (True, False),
    "task": ("auto", "regression", "classification"),
    "threshold": (0.0, 0.1, 0.999),
    "time_budget": (None, 1e-9, 1.0),
    "tol": (0.0, 1e-6, 0.5),
    "training": ("em", "two-step", "gradient"),
    "tuning_rows": (2, 10, 100),
    "update": ("full", "qr", "mrx", "one"),
    "updatable": (False, True),
    "warm_start": (False, True),
    "validation_fraction": (None, 0.2, 1e-9, 0.999),
}
#: Given to any parameter at all.
HOSTILE: tuple[Any, ...] = (
    -1, 0, 1.5, float("nan"), float("inf"), -1e300, True, None, "oak", "", [1], (), {}, 10**400, np.int64(-3), 1j,
    np.array([1.0, 2.0]), object(),
)  # fmt: skip
#: Whose values are the machine's and the test's business.
LEFT_ALONE = {
    "X",
    "y",
    "options",
    "device",
    "verbose",
    "random_state",
    "callbacks",
    "sample_weight",
    "n_jobs",
    "model",
    "column",
}
#: What may change without a plain fit becoming another model in more than rounding.
HARMLESS = ("dtype", "memory_limit")
#: Shorter searches than the defaults, so that thousands of cases stay affordable.
QUICK = {"max_iter": 5, "tuning_rows": 40, "n_init": 1, "n_inducing": 8, "max_components": 4, "n_folds": 3}


#: Public functions that take fitted models, which have fuzz tests of their own (`tests.files`).
OF_MODELS = {"compress", "load", "report", "save", "to_onnx"}


def parameters(name: str) -> list[str]:
    """The parameters of a public name that settings may be drawn for."""
    found = list(inspect.signature(getattr(mercer, name)).parameters)
    if name == "select_basis":
        found += inspect.signature(mercer.GreedyKernelRegressor).parameters
    return [parameter for parameter in dict.fromkeys(found) if parameter not in LEFT_ALONE]


def default_like(name: str, rng: np.random.Generator) -> dict[str, Any]:
    """The defaults, with shorter searches, and precision and memory drawn."""
    known = set(parameters(name))
    quick = {key: value for key, value in QUICK.items() if key in known}
    drawn = {key: _draw(rng, LEGAL[key]) for key in HARMLESS if key in known and rng.random() < 0.3}
    return quick | drawn


def legal(name: str, rng: np.random.Generator) -> dict[str, Any]:
    """Legal values for some parameters; not all of them fit together, which a sentence may say."""
    chosen = [key for key in parameters(name) if key in LEGAL and rng.random() < 0.35]
    drawn = {key: _draw(rng, LEGAL[key]) for key in chosen}
    return {key: value for key, value in QUICK.items() if key in parameters(name)} | drawn


def hostile(name: str, rng: np.random.Generator) -> dict[str, Any]:
    """Defaults but for one parameter, which is given something of any type."""
    parameter = _draw(rng, parameters(name))
    return default_like(name, rng) | {parameter: _draw(rng, HOSTILE)}


def unknown() -> list[str]:
    """Parameters of public names for which no legal values are listed here."""
    names = {key for name in mercer.__all__ if name not in OF_MODELS for key in parameters(name)}
    return sorted(names - LEGAL.keys() - {"parameter", "cv_results", "larger_is_simpler"})


def _draw(rng: np.random.Generator, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]
