"""Draw the pictures of docs/explain.md: ``python docs/figures/explain.py [inputs checks classes]``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, make_friedman1
from sklearn.model_selection import train_test_split

from mercer import KernelBoostingClassifier, KernelBoostingRegressor, partial_effects, plots, shapley_values

matplotlib.use("Agg")
FOLDER = Path(__file__).parent


def keep(ax: Any, name: str) -> None:
    ax.figure.savefig(FOLDER / f"explain_{name}.png", dpi=100)
    matplotlib.pyplot.close(ax.figure)


def inputs() -> None:
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    model = KernelBoostingRegressor(kernel="gaussian", random_state=0).fit(X, y)
    keep(plots.plot_effect(partial_effects(model, X, "bmi")), "effect")
    keep(plots.plot_effect(partial_effects(model, X, ["bmi", "s5"])), "pair")
    found = shapley_values(model, X)
    keep(plots.plot_shapley(found), "shapley")
    keep(plots.plot_shapley_row(found, 3), "shapley_row")


def checks() -> None:
    """Friedman's function with noise that the fourth input switches."""
    X, y = make_friedman1(3000, random_state=0)
    y = y + np.where(X[:, 3] > 0.5, 2.0, 0.2) * np.random.default_rng(0).normal(size=len(y))
    selected = KernelBoostingRegressor(random_state=0).fit(X[:700], y[:700])
    keep(plots.plot_relevance(selected), "relevance")
    keep(plots.plot_selection(selected), "selection")
    keep(plots.plot_coverage(selected, X[700:], y[700:]), "coverage")
    keep(plots.plot_residuals(selected, X[700:], y[700:]), "residuals")
    grown = KernelBoostingRegressor(30, learner_size=20, kernel="gaussian", validation_fraction=0.2, random_state=0)
    keep(plots.plot_history(grown.fit(X[:1500], y[:1500])), "history")


def classes() -> None:
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    train, test, y_train, y_test = train_test_split(X[["mean texture", "mean smoothness"]], y, random_state=0)
    model = KernelBoostingClassifier(kernel="gaussian", random_state=0).fit(train, y_train)
    keep(plots.plot_calibration(model, test, y_test, bins=6), "calibration")


if __name__ == "__main__":
    for name in sys.argv[1:] or ("inputs", "checks", "classes"):
        {"inputs": inputs, "checks": checks, "classes": classes}[name]()
