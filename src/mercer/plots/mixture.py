"""Pictures of mixtures of local experts: gates in one and two dimensions, local slopes, decision boundaries.

Every function draws into `ax` (a new one if None) and returns it; nothing is shown or saved.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mercer.parts import require
from mercer.plots.axes import axes

#: Points along an axis of a picture.
GRID = 200


def plot_gates(model: Any, X: Any = None, ax: Any = None) -> Any:
    """p(j | x): a curve per component for one input; for two, the most responsible component and 2σ ellipses.

    `X` gives the range to draw; without it, three deviations around the components.
    """
    ax = axes(ax, height=3.6)
    if model.n_features_in_ == 1:
        x = _range(model, X, 0)
        ax.plot(x, model.gate_probabilities(x[:, None]))
        ax.set(xlabel="x", ylabel="p(j | x)", ylim=(-0.02, 1.02))
        return ax
    first, second, grid = _plane(model, X)
    shares = model.gate_probabilities(grid)
    ax.pcolormesh(first, second, shares.argmax(1).reshape(len(second), len(first)), cmap="tab20", alpha=0.35)
    for mean, covariance in zip(model.means_, model.covariances_, strict=True):
        full = np.diag(covariance) if covariance.ndim == 1 else covariance
        angle = np.linspace(0, 2 * np.pi, 100)
        ellipse = mean + 2 * np.column_stack([np.cos(angle), np.sin(angle)]) @ np.linalg.cholesky(full).T
        ax.plot(*ellipse.T, color="black", lw=1)
        ax.plot(*mean, "k+")
    ax.set(xlim=first[[0, -1]], ylim=second[[0, -1]])
    return ax


def plot_slopes(model: Any, X: Any = None, y: Any = None, ax: Any = None) -> Any:
    """Local linear models: their lines over one input, where each is responsible; else a table of slopes in colour."""
    require(hasattr(model, "coef_") and hasattr(model, "noise_variances_"), "model", "a fitted ENRBFRegressor", model)
    ax = axes(ax, height=3.6)
    coef = np.asarray(model.coef_)
    require(coef.ndim == 2, "the number of outputs", "1", coef.shape[1])
    if model.n_features_in_ > 1:
        most = np.abs(coef).max() or 1.0
        image = ax.imshow(coef, cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto")
        ax.figure.colorbar(image, ax=ax, label="local slope")
        names = getattr(model, "feature_names_in_", range(coef.shape[1]))
        ax.set_xticks(range(coef.shape[1]), [str(name) for name in names])
        ax.set(xlabel="input", ylabel="component")
        return ax
    x = _range(model, X, 0)
    if X is not None and y is not None:
        ax.plot(np.asarray(X)[:, 0], y, ".", color="0.7", ms=3)
    shares = model.gate_probabilities(x[:, None])
    for j, (slope, intercept) in enumerate(zip(coef[:, 0], model.intercept_, strict=True)):
        ax.plot(x, np.where(shares[:, j] > 0.1, slope * x + intercept, np.nan), lw=1)
    ax.plot(x, model.predict(x[:, None]), color="black")
    ax.set(xlabel="x", ylabel="y")
    return ax


def plot_boundary(model: Any, X: Any, y: Any = None, truth: Any = None, ax: Any = None) -> Any:
    """The decision boundary of a classifier of two inputs (dashed), with the rows, and the true boundary (solid).

    `truth` is a function of rows (n × 2) to P(second class); its level one half is drawn.
    """
    require(model.n_features_in_ == 2, "the number of inputs", "2 for a boundary", model.n_features_in_)
    ax = axes(ax, height=3.6)
    first, second, grid = _plane(model, X)
    shape = len(second), len(first)
    if y is not None:
        for k, c in enumerate(model.classes_):
            rows = np.asarray(X)[np.asarray(y) == c]
            ax.plot(*rows.T, "ox^sDv"[k % 6], ms=4, mfc="none", alpha=0.7, label=str(c))
    p = model.predict_proba(grid)
    for k in range(len(model.classes_) if len(model.classes_) > 2 else 1):
        others = np.delete(p, k, 1).max(1)
        ax.contour(first, second, (p[:, k] - others).reshape(shape), levels=[0.0], colors="tab:red", linestyles="--")
    if truth is not None:
        ax.contour(first, second, np.asarray(truth(grid)).reshape(shape), levels=[0.5], colors="black")
    return ax


def _range(model: Any, X: Any, column: int) -> np.ndarray:
    if X is not None:
        values = np.asarray(X)[:, column]
        low, high = values.min(), values.max()
        margin = 0.05 * (high - low)
        return np.linspace(low - margin, high + margin, GRID)
    variances = model.covariances_[:, column] if model.covariances_.ndim == 2 else model.covariances_[:, column, column]
    reach, means = 3 * np.sqrt(variances), model.means_[:, column]
    return np.linspace((means - reach).min(), (means + reach).max(), GRID)


def _plane(model: Any, X: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    require(model.n_features_in_ == 2, "the number of inputs", "1 or 2 for this picture", model.n_features_in_)
    first, second = _range(model, X, 0), _range(model, X, 1)
    return first, second, np.column_stack([part.ravel() for part in np.meshgrid(first, second)])
