"""Pictures that check a model: coverage, calibration, residuals, learning curve and model selection.

Every function draws into `ax` (a new one if None) and returns it; nothing is shown or saved.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from mercer.parts import require
from mercer.plots.axes import axes

#: Coverages at which intervals are computed.
LEVELS = np.array([0.05, *np.arange(0.1, 0.95, 0.1), 0.95, 0.99])


def plot_coverage(model: Any, X: Any, y: Any, output: int = 0, ax: Any = None) -> Any:
    """Share of new targets inside intervals against the share promised; the band is what chance allows.

    >>> from mercer import NRBFRegressor
    >>> from mercer.datasets import make_sin2
    >>> model = NRBFRegressor(5, random_state=0).fit(*make_sin2(random_state=0))
    >>> plot_coverage(model, *make_sin2(random_state=1)).get_ylabel()
    'share of rows inside'
    """
    ax, y = axes(ax), np.asarray(y, dtype=float).reshape(len(y), -1)[:, output]
    ends = np.concatenate([(1 - LEVELS) / 2, (1 + LEVELS) / 2])
    quantiles = model.predict_quantiles(X, ends)
    quantiles = quantiles if quantiles.ndim == 2 else quantiles[:, output]
    low, high = np.hsplit(quantiles, 2)
    seen = ((low <= y[:, None]) & (y[:, None] <= high)).mean(0)
    margin = 2 * np.sqrt(LEVELS * (1 - LEVELS) * (1 / len(y) + 1 / model.intervals_.n_rows))
    ax.fill_between(LEVELS, LEVELS - margin, LEVELS + margin, color="0.9", lw=0, label="two deviations of chance")
    ax.plot([0, 1], [0, 1], color="0.6", lw=0.8)
    ax.plot(LEVELS, seen, "o-", ms=4)
    ax.set(xlabel="coverage asked for", ylabel="share of rows inside", xlim=(0, 1), ylim=(0, 1))
    ax.legend(loc="upper left", frameon=False)
    return ax


def plot_calibration(model: Any, X: Any, y: Any, ax: Any = None, bins: int = 10) -> Any:
    """How often classes come true against their probability; below, how many rows have it.

    For two classes the probability of the second is shown, for more that of the likeliest.

    >>> from mercer import GreedyKernelClassifier
    >>> from mercer.datasets import make_ripley
    >>> model = GreedyKernelClassifier(20, random_state=0).fit(*make_ripley(100, random_state=0))
    >>> plot_calibration(model, *make_ripley(200, random_state=1)).get_ylabel()
    'share that comes true'
    """
    ax, p, y = axes(ax), model.predict_proba(X), np.asarray(y)
    two = p.shape[1] == 2
    named, true = (p[:, 1], y == model.classes_[1]) if two else (p.max(1), model.classes_[p.argmax(1)] == y)
    edges = np.linspace(0 if two else 1 / p.shape[1], 1, bins + 1)
    where = np.clip(np.digitize(named, edges) - 1, 0, bins - 1)
    counts = np.bincount(where, minlength=bins)
    filled = counts > 0
    n = counts[filled]
    mean, share = (np.bincount(where, values, bins)[filled] / n for values in (named, true.astype(float)))
    error = 2 * np.sqrt(np.maximum(share * (1 - share), 1 / n / 4) / n)
    ax.plot([0, 1], [0, 1], color="0.6", lw=0.8)
    ax.errorbar(mean, share, error, fmt="o-", ms=4, lw=1)
    ax.bar(edges[:-1], 0.15 * counts / counts.max(), np.diff(edges), -0.2, align="edge", color="0.8")
    ax.set(xlabel="probability told", ylabel="share that comes true", xlim=(edges[0], 1), ylim=(-0.2, 1.02))
    ax.set_yticks(np.linspace(0, 1, 6))
    return ax


def plot_residuals(model: Any, X: Any, y: Any, output: int = 0, coverage: float = 0.9, ax: Any = None) -> Any:
    """Residuals against predictions, red where the interval misses the target.

    >>> from mercer import NRBFRegressor
    >>> from mercer.datasets import make_sin2
    >>> X, y = make_sin2(random_state=0)
    >>> plot_residuals(NRBFRegressor(5, random_state=0).fit(X, y), X, y).get_ylabel()
    'target − prediction'
    """
    ax, y = axes(ax), np.asarray(y, dtype=float).reshape(len(y), -1)[:, output]
    f = np.asarray(model.predict(X)).reshape(len(y), -1)[:, output]
    ends = model.predict_interval(X, coverage).reshape(len(y), -1, 2)[:, output]
    order = np.argsort(f)
    window = max(len(y) // 20, 1)
    smooth = np.ones(window) / window
    for end in (0, 1):  # how far intervals reach, on average over a twentieth of the rows
        reach = np.convolve((ends[:, end] - f)[order], smooth, mode="valid")
        ax.plot(np.convolve(f[order], smooth, mode="valid"), reach, color="0.5", lw=1)
    missed = (y < ends[:, 0]) | (y > ends[:, 1])
    for rows, colour in ((~missed, "C0"), (missed, "C3")):
        ax.plot(f[rows], (y - f)[rows], ".", color=colour, ms=3, alpha=0.6)
    ax.axhline(0, color="0.6", lw=0.8)
    ax.set(xlabel="prediction", ylabel="target − prediction")
    return ax


def plot_history(model: Any, ax: Any = None) -> Any:
    """The learning curve of a boosted or greedy model: error of held-out rows, or the objective, as it grows.

    >>> from mercer import GreedyKernelRegressor
    >>> from mercer.datasets import make_sinc
    >>> plot_history(GreedyKernelRegressor(10, random_state=0).fit(*make_sinc(random_state=0))).get_xlabel()
    'basis vectors'
    """
    require(hasattr(model, "history_"), "model", "a fitted boosted or greedy model", type(model).__name__)
    ax, history = axes(ax), model.history_
    watched = np.asarray(history["validation"], dtype=float)
    known = np.isfinite(watched).any()
    curve = watched if known else np.asarray(history["objective"], dtype=float)
    ax.plot(history["n_basis"], curve, "o-" if len(curve) < 30 else "-", ms=3)
    ax.axvline(history["n_basis"][model.n_steps_ - 1], color="0.6", lw=0.8, ls="--")
    ax.set(xlabel="basis vectors", ylabel="error of held-out rows" if known else "objective")
    if (curve[np.isfinite(curve)] > 0).all():
        ax.set_yscale("log")
    return ax


def plot_selection(model: Any, ax: Any = None) -> Any:
    """The loss of every candidate of model selection, in the order they were tried, by their kernel.

    >>> from types import SimpleNamespace
    >>> lines = [{"candidate": f"standard, none, {k}", "rows": 100, "loss": 0.5, "seconds": 1.0} for k in ("a", "b")]
    >>> plot_selection(SimpleNamespace(tuning_report_=lines)).get_xlabel()
    'seconds'
    """
    lines = [line for line in model.tuning_report_ if "calibration_error" not in line]
    require(bool(lines), "model", "one whose kernel was selected (kernel='auto')", type(model).__name__)
    ax = axes(ax)
    seconds = np.cumsum([line["seconds"] for line in lines])
    loss = np.array([line["loss"] for line in lines])
    rows = np.array([line["rows"] for line in lines])
    kinds = [line["candidate"].split(", ")[-1] for line in lines]
    for kind in dict.fromkeys(kinds):
        here = np.array(kinds) == kind
        ax.scatter(seconds[here], loss[here], s=4 + 20 * rows[here] / rows.max(), label=kind, alpha=0.8)
    ax.step(seconds, np.minimum.accumulate(loss), where="post", color="0.6", lw=0.8, zorder=0)
    finite = np.isfinite(loss)
    ax.set(xlabel="seconds", ylabel="loss of held-out rows")
    ax.set_ylim(top=np.quantile(loss[finite], 0.95) * 1.05)
    ax.legend(frameon=False, fontsize="small")
    return ax


def plot_race(model: Any, ax: Any = None) -> Any:
    """The name of `plot_selection` before version 0.3."""
    warnings.warn("plot_race is called plot_selection since version 0.3", FutureWarning, stacklevel=2)
    return plot_selection(model, ax)
