"""Figures 5-1 to 5-4 and 5-6 of the thesis, and its argument about variances, drawn from our models.

    MERCER_DATA=… PYTHONPATH=benchmarks python -m papers.thesis09_gp.figures

Figure 5-6 shows the ranking that the store keeps.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from papers.measure import Store
from papers.thesis09_gp.methods import boundary_models, usps

from mercer import SparseGPRegressor
from mercer.datasets import THREE_GAUSSIANS
from mercer.kernels import Gaussian
from mercer.plots.inputs import plot_uncertainty

HERE = Path(__file__).parent
OUT = HERE.parents[2] / "docs" / "figures"
TITLES = {"full": "full", "sd": "SD", "pp": "SR/PP", "spgp": "SPGP"}


def boundaries(seed: int = 0) -> None:
    """Figures 5-1 to 5-4: 200 rows, the same 10 random rows as inducing inputs, Bayes' boundary solid."""
    X, y, Z, models = boundary_models(seed)
    low, high = X.min(0) - 0.3, X.max(0) + 0.3
    a, b = np.meshgrid(np.linspace(low[0], high[0], 150), np.linspace(low[1], high[1], 150))
    grid = np.column_stack([a.ravel(), b.ravel()])
    bayes = THREE_GAUSSIANS.posterior(grid).reshape(a.shape)
    said = {name: model.predict_proba(grid)[:, 1].reshape(a.shape) for name, model in models.items()}
    _, axes = plt.subplots(2, 2, figsize=(8, 7), sharex=True, sharey=True, layout="constrained")
    for ax, (name, p) in zip(axes.flat, said.items(), strict=True):
        ax.scatter(*X.T, c=np.where(y == models[name].classes_[1], "C1", "C0"), s=8, alpha=0.6)
        ax.contour(a, b, bayes, [0.5], colors="k")
        ax.contour(a, b, p, [0.5], colors="k", linestyles="dotted")
        if name != "full":
            ax.plot(*Z.T, "k^", ms=5)
        as_full = 100 * np.mean((p > 0.5) == (said["full"] > 0.5))
        ax.set_title(
            TITLES[name] + ("" if name == "full" else f": {as_full:.0f} % of the area as the full model"), fontsize=10
        )
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
    """Figure 5-6: a 3, a 5, and the 105 and 37 pixels of largest relevance, SPGP with 512 inducing inputs."""
    X, y, _, _ = usps()
    cell = Store.read().cells["thesis09_gp/pixels/0"]
    images, titles = [X[y == 3][0], X[y == 5][0]], [f"3; 256 pixels: {cell['accuracy_256']:.2f} %", "5"]
    for n in (105, 37):
        chosen = np.zeros(256)
        chosen[cell["ranking"][:n]] = 1
        images.append(chosen)
        titles.append(f"{n} pixels: {cell[f'accuracy_{n}']:.2f} %")
    _, axes = plt.subplots(1, 4, figsize=(10, 3), layout="constrained")
    for ax, image, title in zip(axes, images, titles, strict=True):
        ax.imshow(image.reshape(16, 16), cmap="gray_r")
        ax.set_title(title, fontsize=10)
        ax.set_axis_off()
    plt.savefig(OUT / "thesis09_pixels.png", dpi=110)


if __name__ == "__main__":
    variances()
    boundaries()
    pixels()
