"""Pictures of Greedy02's figures from our models; figure 7 from what `timing.py` measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from papers.greedy02 import methods, protocol

FOLDER = Path()
COLOURS = {"mrx": "tab:green", "qr": "tab:blue", "qr with exchange": "tab:cyan", "ormp": "tab:red"}
COLOURS |= {"mdl": "tab:blue", "aic": "tab:red"}


def save(figure: plt.Figure, name: str) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    figure.savefig(FOLDER / f"greedy02_{name}.png", dpi=90, bbox_inches="tight")
    plt.close(figure)


def axes(title: str, x: str, y: str) -> tuple[plt.Figure, plt.Axes]:
    figure, ax = plt.subplots(figsize=(5, 3.4))
    ax.set(title=title, xlabel=x, ylabel=y)
    ax.spines[["top", "right"]].set_visible(False)
    return figure, ax


def overfitting(n_draws: int = 20, n_basis: int = 60) -> None:
    """Figure 1: without regularisation the test error turns, the training error does not (toy data, here sinc)."""
    reading = protocol.SincReading(1.0, 10.0, 1.0)  # narrow kernels, which can follow the noise
    train, test = np.zeros((2, n_draws, n_basis))
    for seed in range(n_draws):
        split = protocol.sinc(seed, reading)
        model = methods.greedy(n_basis, reading.c, min_novelty=0.0).fit(split.X, split.y)
        train[seed] = model.history_["residual_norm"] / len(split.y) ** 0.5
        predictions = model.path_predict(split.X_test, range(1, n_basis + 1))
        test[seed] = [np.sqrt(np.mean((f - split.y_test) ** 2)) for f in predictions]
    figure, ax = axes("Figure 1: size without regularisation (sinc)", "basis vectors", "root mean square")
    sizes = np.arange(1, n_basis + 1)
    ax.semilogy(sizes, np.median(test, axis=0), label="test error (clean targets)")
    ax.semilogy(sizes, np.median(train, axis=0), label="training residual (noisy targets)")
    ax.legend(frameon=False)
    save(figure, "figure1")


def criteria(n_basis: int = 60) -> None:
    """Figure 2: MDL and AIC along the path on Ripley's data, width 0.5."""
    scale, c = protocol.RIPLEY_READINGS[0]
    split = protocol.ripley(protocol.RIPLEY_SCALES[scale])
    model = methods.greedy(n_basis, c, min_novelty=0.0).fit(split.X, split.y)
    figure, ax = axes("Figure 2: MDL and AIC on Ripley's data", "basis vectors", "criterion")
    for rule in ("mdl", "aic"):
        curve = model.history_[rule]
        best = int(np.argmin(curve))
        ax.plot(model.history_["n_basis"], curve, color=COLOURS[rule], label=rule.upper())
        ax.plot(best + 1, curve[best], "o", color=COLOURS[rule])
    stop = len(methods.stopped(split, c, "mdl", min_novelty=protocol.RIPLEY_NOVELTY).basis_)
    ax.axvline(stop, color="grey", lw=0.8, ls="--", label="model used")
    ax.legend(frameon=False)
    save(figure, "figure2")


def boundary(n_grid: int = 200) -> None:
    """Figure 3: the decision boundary and the centres chosen by MDL on Ripley's data."""
    scale, c = protocol.RIPLEY_READINGS[0]
    split = protocol.ripley(protocol.RIPLEY_SCALES[scale])
    model = methods.stopped(split, c, "mdl", min_novelty=protocol.RIPLEY_NOVELTY)
    low, high = split.X.min(0) - 0.05, split.X.max(0) + 0.05
    a, b = np.meshgrid(*(np.linspace(low[d], high[d], n_grid) for d in (0, 1)))
    values = model.predict(np.column_stack([a.ravel(), b.ravel()])).reshape(a.shape)
    figure, ax = axes(f"Figure 3: Ripley's data, {len(model.basis_)} centres", "input 1", "input 2")
    for sign, mark in ((-1, "x"), (1, "+")):
        ax.plot(*split.X[split.y == sign].T, mark, color="0.6", ms=4)
    ax.contour(a, b, values, levels=[0.0], colors="tab:blue")
    ax.plot(*split.X[model.basis_indices_].T, "o", mfc="none", color="black", ms=9, label="centres")
    ax.legend(frameon=False, fontsize=8)
    save(figure, "figure3")


def sinc(seed: int = 0) -> None:
    """Figure 4: the function found by AIC, and its centres."""
    reading = protocol.SINC_SHOWN
    split = protocol.sinc(seed, reading)
    model = methods.stopped(split, reading.c, "aic")
    rows = model.basis_indices_
    figure, ax = axes(f"Figure 4: sinc from {len(rows)} kernels by AIC", "x", "y")
    ax.plot(split.X, split.y, ".", color="0.6", label="samples")
    ax.plot(split.X[rows], split.y[rows], "o", mfc="none", color="black", label="centres")
    ax.plot(split.X_test, split.y_test, color="tab:red", lw=1, label="true")
    ax.plot(split.X_test, model.predict(split.X_test), color="tab:blue", label="found")
    ax.legend(frameon=False, fontsize=8)
    save(figure, "figure4")


def residuals(number: int, title: str, splits: list[protocol.Split], setting: protocol.Setting) -> None:
    """Figures 5 and 6: the averaged residual of the three methods against the size."""
    figure, ax = axes(f"Figure {number}: {title}", "basis vectors", "normalised residual")
    for name, method in methods.METHODS.items():
        paths = [method(split, setting) for split in splits]
        length = min(len(path.residuals) for path in paths)
        steps = np.mean([path.residuals[:length] for path in paths], axis=0)
        final = np.mean([path.final_residuals for path in paths], axis=0)
        ax.semilogy(np.arange(1, length + 1), steps, color=COLOURS[name], label=name.upper())
        if name == "mrx":
            ax.semilogy(setting.sizes, final, "o", mfc="none", color=COLOURS[name], label="MRX, weights recomputed")
        at = ", ".join(f"{n}: {r:.4f}" for n, r in zip(setting.sizes, final, strict=True))
        print(f"figure {number}, {name}: {at}")
    ax.legend(frameon=False, fontsize=8, loc="upper right" if number == 6 else "lower left")
    save(figure, f"figure{number}")


def times(found: dict[str, Any]) -> None:
    """Figure 7: the seconds that `timing.py` measured against the rows."""
    figure, ax = axes("Figure 7: training time, n = N / 10", "rows", "CPU seconds")
    for name in ("qr", "qr with exchange", "mrx", "ormp"):
        points = sorted((int(N), cells[name]) for N, cells in found.items() if name in cells)
        ax.loglog(*zip(*points, strict=True), "o-", color=COLOURS[name], label=name.upper())
    ax.legend(frameon=False)
    save(figure, "figure7")


def main(folder: Path, seconds: dict[str, Any]) -> None:
    """Draw all figures into a folder; figure 7 from seconds by the number of rows and method."""
    global FOLDER
    FOLDER = folder
    overfitting()
    criteria()
    boundary()
    sinc()
    residuals(5, "residual on Boston", list(protocol.boston(20)), protocol.BOSTON)
    residuals(6, "residual on abalone", list(protocol.abalone(3)), protocol.ABALONE)
    if seconds:
        times(seconds)
