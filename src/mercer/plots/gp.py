"""Pictures of Gaussian processes: which inputs matter, and how sure a model is along one input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def plot_relevance(model: Any, names: Sequence[str] | None = None, ax: Any = None, most: int = 30) -> Any:
    """Bars of the relevance of each input, the largest on top, at most `most` of them; returns the axes.

    `model` has `relevance_`: a sparse Gaussian process or an `ARDSelector`, whose kept inputs are filled.

    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> from types import SimpleNamespace
    >>> ax = plot_relevance(SimpleNamespace(relevance_=np.array([0.1, 2.0])), names=["width", "depth"])
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['width', 'depth']
    """
    import matplotlib.pyplot as plt

    relevance = np.atleast_2d(model.relevance_).max(0)
    seen = getattr(model, "feature_names_in_", None)
    labels = list(names if names is not None else seen if seen is not None else [])
    labels = [str(label) for label in labels] or [f"x{d + 1}" for d in range(len(relevance))]
    kept = model.get_support() if hasattr(model, "get_support") else np.ones(len(relevance), dtype=bool)
    order = np.argsort(relevance)[-most:]
    ax = ax or plt.subplots(figsize=(5, 0.6 + 0.22 * len(order)))[1]
    colours = ["C0" if kept[d] else "0.8" for d in order]
    ax.barh(np.arange(len(order)), relevance[order] / relevance.max(), color=colours)
    ax.set_yticks(np.arange(len(order)), [labels[d] for d in order])
    ax.set_xlabel("relevance 1/ℓ, share of the largest")
    ax.margins(y=0.01)
    return ax


def plot_uncertainty(model: Any, X: np.ndarray, y: np.ndarray, grid: np.ndarray, ax: Any = None, **predict: Any) -> Any:
    """Mean and two standard deviations of a regression along its only input, its rows and inducing inputs.

    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> from mercer import SparseGPRegressor
    >>> X = np.linspace(0, 1, 30)[:, None]
    >>> model = SparseGPRegressor(5, kernel="gaussian", random_state=0).fit(X, X[:, 0])
    >>> plot_uncertainty(model, X, X[:, 0], np.linspace(0, 2, 9)).get_xlabel()
    'input'
    """
    import matplotlib.pyplot as plt

    ax = ax or plt.subplots(figsize=(5, 3))[1]
    mean, std = model.predict(grid[:, None], return_std=True, **predict)
    ax.fill_between(grid, mean - 2 * std, mean + 2 * std, color="C0", alpha=0.2, lw=0)
    ax.plot(grid, mean, "C0")
    ax.plot(X[:, 0], y, ".", color="0.4", ms=2)
    low = ax.get_ylim()[0]
    ax.plot(model.basis_[:, 0], np.full(len(model.basis_), low), "k^", ms=4, clip_on=False)
    ax.set_xlabel("input")
    return ax
