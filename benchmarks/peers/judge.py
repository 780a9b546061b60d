"""Error against time: every rival's sweep on the same rows, judged in one place, in one run.

    MERCER_DATA=… python benchmarks/peers/judge.py kin40k [--rivals ours falkon] [--out curves.json] [--picture out.png]

KIN40K (90/10; NMSE in percent) or COVTYPE (class 2 against the rest, 90/10; errors in percent). The time of a point is
that of fit and prediction; methods that take the shared Gaussian kernel (length-scales per input by evidence on 1000
training rows) have its tuning time added.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from rivals import NAMES, Given, settings

from mercer import tune_kernel
from mercer.datasets import load, split


def problem(name: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, str]:
    X, X_test, y, y_test = split(load(name), test_size=0.1, seed=seed)
    mean, scale = X.mean(0), np.where(X.std(0) > 0, X.std(0), 1.0)
    X, X_test = ((part - mean) / scale for part in (X, X_test))
    if name == "covtype":
        return X, X_test, (y == 2).astype(int), (y_test == 2).astype(int), "classification"
    return X, X_test, (y - y.mean()) / y.std(), (y_test - y.mean()) / y.std(), "regression"


def shared(X: np.ndarray, y: np.ndarray, task: str, seed: int, device: str) -> tuple[Given, float]:
    """The kernel that all kernel methods without a tuning of their own are given, and what it took."""
    began = time.perf_counter()
    codes = y if task == "regression" else 2.0 * y - 1
    tuned = tune_kernel(X, codes, "gaussian", ard=True, n_rows=1000, max_iter=50, random_state=seed)
    values = tuned.kernel.tunable()
    length = np.minimum(values["left__kernel__length_scale"], 50.0)
    given = Given(task, seed, device, length, float(values["left__variance"]), tuned.noise)
    return given, time.perf_counter() - began


def error(task: str, y: np.ndarray, prediction: np.ndarray) -> float:
    wrong = (prediction.reshape(-1) - y) ** 2 if task == "regression" else prediction.reshape(-1) != y
    return 100 * float(np.mean(wrong))


def draw(name: str, device: str, points: dict[str, list[tuple[str, float, float]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for rival, found in points.items():
        times, errors = (np.array(column) for column in list(zip(*sorted(found, key=lambda p: p[1]), strict=True))[1:])
        front = errors == np.minimum.accumulate(errors)  # the line joins what no quicker setting beats
        style = {"linewidth": 2.5, "color": "black", "zorder": 5} if rival == "ours" else {"linewidth": 1.2}
        (line,) = axes.loglog(times[front], errors[front], "o-", markersize=4, label=rival, **style)
        axes.loglog(times[~front], errors[~front], "o", markersize=3, alpha=0.4, color=line.get_color())
    axes.set_xlabel("seconds of tuning, fit and prediction")
    axes.set_ylabel("test NMSE, %" if name == "kin40k" else "test error, %")
    axes.set_title(f"{name}, {device}")
    axes.grid(alpha=0.3, which="both")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("data", choices=["kin40k", "covtype"])
    options.add_argument("--rivals", nargs="+", default=list(NAMES))
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--out", type=Path, default=None)
    options.add_argument("--picture", type=Path, default=None)
    options.add_argument("--drawn-from", type=Path, default=None, help="a file of --out to draw, instead of a run")
    given = options.parse_args()
    if given.drawn_from:
        kept = json.loads(given.drawn_from.read_text())
        draw(given.data, kept["device"], kept["points"], given.picture)
        return
    device = "cuda" if torch.cuda.is_available() else "cpu"
    X, X_test, y, y_test, task = problem(given.data, given.seed)
    kernel, tuning = shared(X, y, task, given.seed, device)
    print(f"{given.data}, {len(X)} rows, {device}; the shared kernel took {tuning:.1f} s", flush=True)
    points: dict[str, list[tuple[str, float, float]]] = {}
    for name in given.rivals:
        try:
            for first, setting in enumerate(settings(name, kernel)):
                if first == 0 and device == "cuda":  # libraries and compiled kernels load on first use
                    next(iter(settings(name, kernel))).model.fit(X[:2000], y[:2000]).predict(X_test[:100])
                began = time.perf_counter()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    prediction = np.asarray(setting.model.fit(X, y).predict(X_test))
                seconds = time.perf_counter() - began + tuning * setting.tuned
                points.setdefault(name, []).append((setting.label, seconds, error(task, y_test, prediction)))
                size = f"{len(setting.model.basis_)} vectors" if hasattr(setting.model, "basis_") else ""
                print(
                    f"{name:10s} {setting.label:45s} {seconds:8.2f} s  {points[name][-1][2]:7.3f} %  {size}", flush=True
                )
                if given.out:
                    given.out.write_text(json.dumps({"device": device, "tuning": tuning, "points": points}))
        except ImportError:
            print(f"{name:10s} is not installed")
        except Exception as failure:  # a rival that breaks is reported, not hidden
            print(f"{name:10s} failed: {failure!r}"[:300], flush=True)
    if given.picture:
        draw(given.data, device, points, given.picture)


if __name__ == "__main__":
    main()
