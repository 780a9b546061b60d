"""Pictures of the inputs: relevance, partial effects, Shapley values, influence, and uncertainty along one of them.

Every function draws into `ax` (a new one if None) and returns it; nothing is shown or saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mercer.parts import require
from mercer.plots.axes import axes


def plot_relevance(model: Any, names: Sequence[str] | None = None, ax: Any = None, most: int = 30) -> Any:
    """Bars of the relevance of each input, the largest on top, at most `most` of them; returns the axes.

    `model` has `relevance_`: boosted, greedy, a sparse Gaussian process or an `ARDSelector`, whose kept inputs are
    filled.

    >>> from types import SimpleNamespace
    >>> ax = plot_relevance(SimpleNamespace(relevance_=np.array([0.1, 0.9])), names=["width", "depth"])
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['width', 'depth']
    """
    relevance = np.atleast_2d(model.relevance_).max(0)
    known = getattr(model, "feature_names_in_", None) if names is None else names
    labels = (
        [f"x{d}" for d in range(len(relevance))] if known is None or not len(known) else [str(name) for name in known]
    )
    kept = model.get_support() if hasattr(model, "get_support") else np.ones(len(relevance), dtype=bool)
    order = np.argsort(relevance)[-most:]
    colours = ["C0" if kept[d] else "0.8" for d in order]
    return _bars(relevance[order], [labels[d] for d in order], colours, "relevance", ax)


def plot_influence(effects: Any, names: Sequence[str] | None = None, ax: Any = None, most: int = 15) -> Any:
    """Bars of the training rows of largest effect on one prediction, the largest on top; returns the axes.

    `effects` are those of one row and one output, such as ``model.row_influence(X, X_train, y_train)[0]``.

    >>> ax = plot_influence([0.1, -0.7, 0.2], names=["Ann", "Bob", "Cid"], most=2)
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['Cid', 'Bob']
    """
    effects = np.asarray(effects, dtype=np.float64)
    require(effects.ndim == 1, "effects", "those of one row and one output", effects.shape)
    order = np.argsort(np.abs(effects), kind="stable")[-most:]
    colours = ["C0" if effects[i] >= 0 else "C3" for i in order]
    labels = [f"row {i}" if names is None else str(names[i]) for i in order]
    return _bars(effects[order], labels, colours, "effect on the prediction", ax)


def _bars(values: np.ndarray, labels: list[str], colours: list[str], across: str, ax: Any) -> Any:
    """Horizontal bars with their labels, from below."""
    ax = axes(ax, height=0.6 + 0.22 * len(values))
    ax.barh(np.arange(len(values)), values, color=colours)
    ax.set_yticks(np.arange(len(values)), labels)
    ax.set_xlabel(across)
    ax.margins(y=0.01)
    return ax


def plot_effect(effect: Any, output: int = 0, ax: Any = None) -> Any:
    """The curve or surface of `partial_effects`, and below it where the rows lie.

    >>> from mercer.explain.effects import PartialEffects
    >>> grid = np.linspace(0, 1, 5)
    >>> plot_effect(PartialEffects(("age",), (grid,), grid**2, grid[:, None])).get_xlabel()
    'age'
    """
    ax = axes(ax)
    dims = len(effect.grid)
    values = effect.values if effect.values.ndim == dims else effect.values[..., output]
    if dims == 2:
        image = ax.pcolormesh(*effect.grid, values.T, shading="nearest", cmap="viridis")
        ax.figure.colorbar(image, ax=ax, label="mean answer")
        ax.plot(*effect.data.T, ".", color="white", ms=1.5, alpha=0.5)
        ax.set(xlim=effect.grid[0][[0, -1]], ylim=effect.grid[1][[0, -1]])
        ax.set(xlabel=effect.names[0], ylabel=effect.names[1])
        _name_levels(effect, ax)
        return ax
    (grid,) = effect.grid
    ax.plot(grid, values, color="C0", marker="." if len(grid) < 15 else "")
    ax.set(xlabel=effect.names[0], ylabel="mean answer")
    low, high = ax.get_ylim()
    inside = effect.data[(effect.data[:, 0] >= grid[0]) & (effect.data[:, 0] <= grid[-1]), 0]
    counts, edges = np.histogram(inside, bins=30, range=(grid[0], grid[-1]) if grid[-1] > grid[0] else None)
    floor = low - 0.25 * (high - low)  # a quarter of the height for the rows
    ax.bar(edges[:-1], 0.2 * (high - low) * counts / counts.max(), np.diff(edges), floor, align="edge", color="0.8")
    ax.set_ylim(floor, high)
    _name_levels(effect, ax)
    return ax


def _value_text(value: Any) -> str:
    return str(value) if value is None or isinstance(value, str) else f"{value:.3g}"


def _name_levels(effect: Any, ax: Any) -> None:
    """Write the names of levels along the axes of categorical inputs."""
    for axis, grid, labels in zip((ax.xaxis, ax.yaxis), effect.grid, effect.labels, strict=False):
        if labels is not None:
            axis.set_ticks(grid, [labels[int(place)] for place in grid])


def _as_numbers(values: np.ndarray) -> np.ndarray:
    """Values of an input as numbers: names of levels by their order, the middle where one is missing."""
    if values.dtype == object and any(isinstance(value, str) for value in values):
        names = sorted({value for value in values if value is not None})
        values = np.array([np.nan if value is None else names.index(value) for value in values])
    values = values.astype(np.float64)
    return np.where(np.isnan(values), np.nanmedian(values), values)


def plot_shapley(found: Any, output: int = 0, ax: Any = None, most: int = 15) -> Any:
    """A dot for each row and input: what the input adds, in the colour of its own value; what varies most is on top.

    `found` is what `shapley_values` returns.

    >>> from mercer.explain.shapley import ShapleyValues
    >>> values = np.array([[1.0, 0.1], [-1.0, 0.1]])
    >>> ax = plot_shapley(ShapleyValues(values, 0.0, values, ["age", "size"]))
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['size', 'age']
    """
    values = _of_output(found, output)[0]
    order = np.argsort(values.std(0))[-most:]
    ax = axes(ax, height=0.9 + 0.32 * len(order))
    rng = np.random.default_rng(0)
    dots = None
    for place, d in enumerate(order):
        inputs = _as_numbers(found.data[:, d])
        low, high = np.quantile(inputs, [0.05, 0.95])
        colour = np.clip((inputs - low) / (high - low if high > low else 1.0), 0, 1)
        across = place + _jitter(values[:, d], rng)
        dots = ax.scatter(values[:, d], across, c=colour, cmap="coolwarm", vmin=0, vmax=1, s=6, lw=0, rasterized=True)
    ax.axvline(0, color="0.6", lw=0.8, zorder=0)
    ax.set_yticks(np.arange(len(order)), [found.feature_names[d] for d in order])
    ax.set_xlabel("adds to the prediction")
    bar = ax.figure.colorbar(dots, ax=ax, ticks=[0, 1], label="value of the input")
    bar.ax.set_yticklabels(["low", "high"])
    return ax


def plot_shapley_row(found: Any, row: int = 0, output: int = 0, ax: Any = None, most: int = 12) -> Any:
    """From the base to the prediction of one row, input by input, the largest on top.

    >>> from mercer.explain.shapley import ShapleyValues
    >>> found = ShapleyValues(np.array([[1.0, -0.25]]), 2.0, np.array([[30.0, 1.0]]), ["age", "size"])
    >>> [label.get_text() for label in plot_shapley_row(found).get_yticklabels()]
    ['size = 1', 'age = 30']
    """
    values, base = _of_output(found, output)
    require(0 <= row < len(values), "row", f"from 0 to {len(values) - 1}", row)
    order = np.argsort(np.abs(values[row]))
    shown = order[-most:]
    rest = order[: len(order) - len(shown)]
    steps = [*([values[row, rest].sum()] if len(rest) else []), *values[row, shown]]
    labels = [f"{len(rest)} others"] if len(rest) else []
    labels += [f"{found.feature_names[d]} = {_value_text(found.data[row, d])}" for d in shown]
    ax = axes(ax, height=0.9 + 0.28 * len(steps))
    starts = base + np.cumsum([0.0, *steps])
    colours = ["C3" if step > 0 else "C0" for step in steps]
    ax.barh(np.arange(len(steps)), steps, left=starts[:-1], color=colours)
    for place, at in enumerate(starts[1:-1]):
        ax.plot([at, at], [place, place + 1], color="0.6", lw=0.8, zorder=0)
    ax.axvline(base, color="0.6", lw=0.8, ls="--", zorder=0)
    ax.axvline(starts[-1], color="black", lw=0.8, zorder=0)
    ax.use_sticky_edges = False  # bars end inside the frame
    ax.margins(x=0.05)
    ax.autoscale_view()
    ax.set_yticks(np.arange(len(steps)), labels)
    ax.set_title(f"base {base:.3g}, prediction {starts[-1]:.3g}", fontsize="medium")
    return ax


def _of_output(found: Any, output: int) -> tuple[np.ndarray, float]:
    """Values (n × D) and base of one output."""
    if found.values.ndim == 2:
        return found.values, float(found.base_values)
    return found.values[:, :, output], float(found.base_values[output])


def _jitter(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Random heights that keep dots near each other apart: the more rows there are, the wider."""
    counts, edges = np.histogram(values, bins=40)
    many = counts[np.clip(np.digitize(values, edges) - 1, 0, 39)] / max(counts.max(), 1)
    return 0.4 * many * rng.uniform(-1, 1, len(values))


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
