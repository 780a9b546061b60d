"""Figures 5-1 to 5-4 and 5-6 of the thesis, and its argument about variances, drawn from our models.

MERCER_DATA=… python benchmarks/papers/thesis09_gp/figures.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from run import classifier, usps

from mercer import SparseGPRegressor
from mercer.datasets import THREE_GAUSSIANS, make_three_gaussians
from mercer.kernels import Gaussian
from mercer.plots.gp import plot_uncertainty

OUT = Path(__file__).parents[3] / "docs" / "figures"


def boundaries() -> None:
    """Figures 5-1 to 5-4: 200 rows, the same 10 random rows as inducing inputs, Bayes' boundary solid."""
    X, y = make_three_gaussians(200, random_state=0)
    full = classifier(1, "full").fit(X, y)
    Z = X[np.random.default_rng(0).choice(200, 10, replace=False)]
    low, high = X.min(0) - 0.3, X.max(0) + 0.3
    a, b = np.meshgrid(np.linspace(low[0], high[0], 150), np.linspace(low[1], high[1], 150))
    grid = np.column_stack([a.ravel(), b.ravel()])
    bayes = THREE_GAUSSIANS.posterior(grid).reshape(a.shape)
    fixed = {"kernel": full.kernel_, "optimize_inducing": False}
    index = [int(np.flatnonzero((z == X).all(1))[0]) for z in Z]
    subset = classifier(10, "full", kernel=full.kernel_).fit(X[index], y[index])
    models = {"full": full, "SD": subset}
    models["SR/PP"] = classifier(10, "pp", inducing=Z, **fixed).fit(X, y)
    models["SPGP"] = classifier(10, "spgp", inducing=Z, **fixed).fit(X, y)
    _, axes = plt.subplots(2, 2, figsize=(8, 7), sharex=True, sharey=True, layout="constrained")
    for ax, (name, model) in zip(axes.flat, models.items(), strict=True):
        p = model.predict_proba(grid)[:, 1].reshape(a.shape)
        ax.scatter(*X.T, c=np.where(y == model.classes_[1], "C1", "C0"), s=8, alpha=0.6)
        ax.contour(a, b, bayes, [0.5], colors="k")
        ax.contour(a, b, p, [0.5], colors="k", linestyles="dotted")
        if name != "full":
            ax.plot(*Z.T, "k^", ms=5)
        right = np.mean((p > 0.5) == (bayes > 0.5))
        ax.set_title(f"{name}: {100 * right:.0f} % as Bayes")
    plt.savefig(OUT / "thesis09_gp_boundaries.png", dpi=110)


def variances() -> None:
    """SR's variance shrinks away from its inducing inputs; those of PP and SPGP return to the prior's."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(-3, 3, 150))[:, None]
    y = np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=150)
    _, axes = plt.subplots(1, 3, figsize=(11, 3), sharey=True, layout="constrained")
    for ax, name in zip(axes, ("sr", "pp", "spgp"), strict=True):
        model = SparseGPRegressor(
            approximation=name, inducing=np.linspace(-2.5, 2.5, 8)[:, None], optimize_inducing=False,
            kernel=1.0 * Gaussian(0.35), regularization=0.08,
        ).fit(X, y)  # fmt: skip
        plot_uncertainty(model, X, y, np.linspace(-7, 7, 300), ax, include_noise=False)
        ax.set_title(name.upper())
    plt.savefig(OUT / "thesis09_variances.png", dpi=110)


def pixels() -> None:
    """Figure 5-6: a 3, a 5, and the 37 pixels of largest relevance."""
    X, y, X_test, y_test = usps()
    model = classifier(64, "spgp").fit(X, y)
    best = np.argsort(model.relevance_)[-37:]
    again = classifier(64, "spgp").fit(X[:, best], y)
    both = [100 * model.score(X_test, y_test), 100 * again.score(X_test[:, best], y_test)]
    _, axes = plt.subplots(1, 3, figsize=(7.5, 3.3), layout="constrained")
    chosen = np.zeros(256)
    chosen[best] = 1
    images = [X[y == 3][0], X[y == 5][0], chosen]
    titles = ["3", "5", f"37 pixels: {both[1]:.2f} %\nall 256: {both[0]:.2f} %"]
    for ax, image, title in zip(axes, images, titles, strict=True):
        ax.imshow(image.reshape(16, 16), cmap="gray_r")
        ax.set_title(title)
        ax.set_axis_off()
    plt.savefig(OUT / "thesis09_pixels.png", dpi=110)


if __name__ == "__main__":
    variances()
    boundaries()
    pixels()
