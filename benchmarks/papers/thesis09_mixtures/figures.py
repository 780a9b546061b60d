"""Pictures after the thesis' figures 2-1 to 2-6 and 3-1 to 3-5, from our models.

PYTHONPATH=benchmarks python -m papers.thesis09_mixtures.figures
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from papers.thesis09_mixtures import methods

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from mercer.datasets import THREE_GAUSSIANS, make_sin2, make_three_gaussians
from mercer.plots.mixture import plot_boundary, plot_gates, plot_slopes
from mercer.selection import one_standard_error

PAPER = tomllib.loads((Path(__file__).parent / "paper.toml").read_text(encoding="utf-8"))
#: Components of the thesis' classifiers; those of GMC are of both classes.
SIZES = {row["model"]: row["components"] for row in PAPER["figure3"]["rows"]}
FOLDER = Path(__file__).parents[3] / "docs" / "figures"


def save(figure: Any, name: str) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(FOLDER / f"thesis09_{name}.png", dpi=80)
    plt.close(figure)


def regression(seed: int = 0) -> None:
    """Figures 2-1 to 2-6: cross-validated errors, outputs, and what is left of the clean function."""
    X, y = make_sin2(random_state=seed)
    x = np.linspace(0, 1, 400)[:, None]
    clean = np.sin(2 * np.pi * x[:, 0]) ** 2
    figure, axes = plt.subplots(3, 2, figsize=(10, 9), sharey="row")
    for column, name in enumerate(("two-step NRBF", "ENRBF")):
        model = methods.REGRESSORS[name]("auto", max_components=10, random_state=seed).fit(X, y)
        results = model.cv_results_
        sizes, error = results["param_n_components"], -results["mean_test_score"]
        folds = np.array([results[f"split{f}_test_score"] for f in range(3)])
        chosen = one_standard_error(results)
        top, middle, low = axes[:, column]
        top.errorbar(sizes, error, folds.std(0, ddof=1) / 3**0.5, capsize=3)
        top.plot(sizes[chosen], error[chosen], "o", color="tab:red")
        top.set(title=f"{name}: {sizes[chosen]} components", xlabel="components", ylabel="cross-validated RMSE")
        f, std = model.predict(x, return_std=True)
        middle.plot(X[:, 0], y, ".", color="0.7", ms=4)
        middle.fill_between(x[:, 0], f - 2 * std, f + 2 * std, color="tab:blue", alpha=0.15)
        middle.plot(x[:, 0], clean, color="black", lw=1)
        middle.plot(x[:, 0], f, color="tab:red")
        middle.set(xlabel="x", ylabel="y")
        low.axhline(0, color="black", lw=0.8)
        low.plot(x[:, 0], clean - f)
        low.set(xlabel="x", ylabel="clean function less output")
    save(figure, "regression")
    model = methods.REGRESSORS["ENRBF"](6, random_state=seed).fit(X, y)
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.6))
    plot_gates(model, X, axes[0])
    plot_slopes(model, X, y, axes[1])
    save(figure, "inside")


def classification(seed: int = 0) -> None:
    """Figures 3-1 to 3-5: decision boundaries (dashed) beside that of Bayes' rule (solid), with the thesis' sizes."""
    X, y = make_three_gaussians(random_state=seed)
    figure, axes = plt.subplots(2, 3, figsize=(13, 8))
    panels = axes.ravel()
    for ax, (name, make) in zip(panels, methods.CLASSIFIERS.items(), strict=False):  # the last panel shows gates
        k = SIZES[name] // (2 if name == "GMC" else 1)
        model = make(k, covariance_type="full", random_state=seed).fit(X, y)
        plot_boundary(model, X, y, THREE_GAUSSIANS.posterior, ax)
        ax.set_title(f"{name}: {model.n_components_} components", fontsize=10)
    three = methods.CLASSIFIERS["ENRBFC"](3, covariance_type="full", random_state=seed).fit(X, y)
    plot_gates(three, X, panels[-1])
    panels[-1].set_title("gates of ENRBFC with 3 components", fontsize=10)
    save(figure, "boundaries")


if __name__ == "__main__":
    regression()
    classification()
