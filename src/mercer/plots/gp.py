"""Pictures of Gaussian processes: how sure a model is along one input."""

from __future__ import annotations

from typing import Any

import numpy as np

from mercer.plots.axes import axes


def plot_uncertainty(model: Any, X: np.ndarray, y: np.ndarray, grid: np.ndarray, ax: Any = None, **predict: Any) -> Any:
    """Mean and two standard deviations of a regression along its only input, its rows and inducing inputs.

    >>> from mercer import SparseGPRegressor
    >>> X = np.linspace(0, 1, 30)[:, None]
    >>> model = SparseGPRegressor(5, kernel="gaussian", random_state=0).fit(X, X[:, 0])
    >>> plot_uncertainty(model, X, X[:, 0], np.linspace(0, 2, 9)).get_xlabel()
    'input'
    """
    ax = axes(ax, height=3.0)
    mean, std = model.predict(grid[:, None], return_std=True, **predict)
    ax.fill_between(grid, mean - 2 * std, mean + 2 * std, color="C0", alpha=0.2, lw=0)
    ax.plot(grid, mean, "C0")
    ax.plot(X[:, 0], y, ".", color="0.4", ms=2)
    low = ax.get_ylim()[0]
    ax.plot(model.basis_[:, 0], np.full(len(model.basis_), low), "k^", ms=4, clip_on=False)
    ax.set_xlabel("input")
    return ax
