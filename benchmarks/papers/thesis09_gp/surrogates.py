"""One small cell for each table and figure of chapter 5 on generated rows, by the code that makes the tables."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from papers.thesis09_gp.methods import boundary_models, classifier, measured, projected
from sklearn.datasets import make_blobs

from mercer.datasets import make_redundant_gaussians, make_ripley

SHORT = {"max_iter": 20, "n_restarts": 0}


def table_5_3() -> float:
    """The larger length-scale of the noise inputs over the smaller one of the inputs that matter, as a logarithm."""
    X, y = make_redundant_gaussians(200, random_state=0)
    inverse = classifier(10, "spgp", **SHORT).fit(X, y).inverse_length_scales_
    return float(np.log(inverse[:4].max() / inverse[4:].min()))


def table_5_4() -> float:
    """SR/PP's accuracy on three classes, one versus rest, with the kernels and rows of SD."""
    X, y = make_blobs(150, centers=3, cluster_std=1.5, random_state=0)
    subset = classifier(16, "sd", **SHORT).fit(X, y)
    return float(projected(16, subset, (X, y, X, y))["accuracy"])


def table_5_7() -> float:
    """SPGP's accuracy on new rows of two classes."""
    split = (*make_ripley(200, random_state=0), *make_ripley(1000, random_state=1))
    return float(measured(classifier(8, "spgp", **SHORT), split)["accuracy"])


def table_5_8() -> float:
    """The full model's evidence per row."""
    X, y = make_ripley(100, random_state=0)
    return float(classifier(1, "full", **SHORT).fit(X, y).log_marginal_likelihood_ / 100)


def figures_5_1_to_5_4() -> float:
    """Largest difference of SPGP's probabilities to the full model's, at the training rows, in percent."""
    X, _, _, models = boundary_models(0, **SHORT)
    p, full = (models[name].predict_proba(X)[:, 1] for name in ("spgp", "full"))
    return 100 * float(np.abs(p - full).max())


CELLS: dict[str, Callable[[], float]] = {
    "table 5-3": table_5_3,
    "table 5-4": table_5_4,
    "table 5-7": table_5_7,
    "table 5-8": table_5_8,
    "figures 5-1 to 5-4": figures_5_1_to_5_4,
}
