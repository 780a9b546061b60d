"""Draw the pictures of docs/explain.md: ``python docs/figures/explain.py [folder]``."""

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
FOLDER = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent


def keep(ax: Any, name: str) -> None:
    ax.figure.savefig(FOLDER / f"explain_{name}.png", dpi=110)
    matplotlib.pyplot.close(ax.figure)


def main() -> None:
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    train, test, y_train, y_test = train_test_split(X, y, random_state=0)
    smooth = KernelBoostingRegressor(kernel="gaussian", random_state=0).fit(train, y_train)
    keep(plots.plot_effect(partial_effects(smooth, train, "bmi")), "effect")
    keep(plots.plot_effect(partial_effects(smooth, train, ["bmi", "s5"])), "pair")
    found = shapley_values(smooth, train).centred()
    keep(plots.plot_shapley(found), "shapley")
    keep(plots.plot_shapley_row(found, 3), "shapley_row")

    rng = np.random.default_rng(0)
    X, y = make_friedman1(3000, random_state=0)
    y = y + np.where(X[:, 3] > 0.5, 2.0, 0.2) * rng.normal(size=len(y))
    raced = KernelBoostingRegressor(random_state=0).fit(X[:1500], y[:1500])
    keep(plots.plot_relevance(raced), "relevance")
    keep(plots.plot_race(raced), "race")
    keep(plots.plot_coverage(raced, X[1500:], y[1500:]), "coverage")
    keep(plots.plot_residuals(raced, X[1500:], y[1500:]), "residuals")
    grown = KernelBoostingRegressor(30, learner_size=20, kernel="gaussian", validation_fraction=0.2, random_state=0)
    keep(plots.plot_history(grown.fit(X[:1500], y[:1500])), "history")

    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    train, test, y_train, y_test = train_test_split(X[["mean texture", "mean smoothness"]], y, random_state=0)
    classes = KernelBoostingClassifier(kernel="gaussian", random_state=0).fit(train, y_train)
    keep(plots.plot_calibration(classes, test, y_test, bins=6), "calibration")


if __name__ == "__main__":
    main()
