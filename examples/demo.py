"""The package's main job in a minute: a regression and a classifier beside scikit-learn, and a page about the model.

Run by `make demo`. Says all the time what it is doing; leaves a picture of error against time and the report page.
scikit-learn's models run with their defaults and with the best of several random settings. A fifth of the training rows
judges the settings, and the seconds include this search.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from scipy.stats import loguniform
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import Ridge
from sklearn.model_selection import RandomizedSearchCV, ShuffleSplit, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import mercer
from mercer import KernelBoostingClassifier, KernelBoostingRegressor
from mercer.datasets import make_smooth_regression

PICTURE, PAGE = Path("demo.png"), Path("report.html")
#: Seconds that the classifier may take.
CLASSES = 8.0
#: Basis vectors of the compressed regression.
FEW = 1000


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Say what is being done, and for how many seconds already; on a pipe, once."""
    began, over, live = time.perf_counter(), Event(), sys.stdout.isatty()

    def tick() -> None:
        while not over.wait(0.2):
            print(f"\r  {what:50s} {time.perf_counter() - began:5.1f} s", end="", flush=True)

    ticking = Thread(target=tick, daemon=True)
    print(f"  {what:50s}" if live else f"  {what} …", end="" if live else "\n", flush=True)
    if live:
        ticking.start()
    try:
        yield
    finally:
        over.set()
        if live:
            ticking.join()
            print(f"\r  {what:50s} {time.perf_counter() - began:5.1f} s", end="", flush=True)


def searched(model: Any, settings: dict[str, Any], n_settings: int) -> RandomizedSearchCV:
    """The model with the best of so many random settings, fitted again to all rows."""
    judged = ShuffleSplit(1, test_size=0.2, random_state=0)
    return RandomizedSearchCV(model, settings, n_iter=n_settings, cv=judged, random_state=0)


def compare(title: str, unit: str, models: dict[str, Any], data: list[np.ndarray]) -> dict[str, tuple[float, float]]:
    """Fit each model; its error, 1 − score in percent (variance not explained, or wrong classes), and its seconds."""
    X, X_test, y, y_test = data
    print(f"\n{title}\n  {X.shape[0]} rows, {X.shape[1]} inputs, {X_test.shape[0]} test rows")
    found = {}
    for name, model in models.items():
        began = time.perf_counter()
        with busy(name):
            model.fit(X, y)
        seconds = time.perf_counter() - began
        error = 100 * (1 - model.score(X_test, y_test))
        found[name] = error, seconds
        line = f"{error:7.2f} % {unit}"
        print(line if sys.stdout.isatty() else f"    {seconds:5.1f} s {line}", flush=True)
    return found


def draw(models: dict[str, Any], found: dict[str, tuple[float, float]], X_test: np.ndarray, y_test: np.ndarray) -> None:
    """Test error against seconds, and predicted against true values of the first two models."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    for (name, (error, seconds)), marker in zip(found.items(), "Dsv^", strict=True):
        left.plot(seconds, error, marker, ms=10, label=f"{name}: {error:.2g} %")
    left.set(xscale="log", yscale="log", xlabel="seconds, tuning included", ylabel="variance not explained in %")
    left.set_ylim(min(error for error, _ in found.values()) / 2, max(error for error, _ in found.values()) * 5)
    slowest, fastest = (pick(seconds for _, seconds in found.values()) for pick in (max, min))
    left.set_xlim(fastest / 3, slowest * 3)
    left.xaxis.set_major_locator(LogLocator(subs=(1.0,) if slowest > 10 * fastest else (1.0, 2.0, 5.0)))
    left.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds:g}"))
    left.xaxis.set_minor_formatter(NullFormatter())  # labels of the ticks between would overlap
    left.grid(alpha=0.3, which="both")
    left.legend(frameon=False, fontsize=8, loc="upper left")
    for name, colour in zip(list(models)[1::-1], ("C1", "C0"), strict=True):
        right.plot(y_test, models[name].predict(X_test), ".", ms=2, color=colour, label=name)
    right.axline((y_test.mean(), y_test.mean()), slope=1, color="0.5", lw=1)
    right.set(xlabel="true distance of the hand", ylabel="predicted")
    right.legend(frameon=False, fontsize=8, markerscale=4)
    figure.savefig(PICTURE, dpi=110)


def main() -> None:
    began = time.perf_counter()
    X, y = make_smooth_regression(10_000, 8, noise=0.02, random_state=0)
    data = train_test_split(X, y, test_size=4000, random_state=0)
    models = {
        "mercer.KernelBoostingRegressor": KernelBoostingRegressor(random_state=0),
        "HistGradientBoostingRegressor": HistGradientBoostingRegressor(random_state=0),
        "the same, best of 8 settings": searched(
            HistGradientBoostingRegressor(max_iter=1000, early_stopping=True, random_state=0),
            {
                "learning_rate": loguniform(0.05, 0.3),
                "max_leaf_nodes": [7, 15, 31, 63],
                "min_samples_leaf": [5, 20, 50],
                "l2_regularization": loguniform(1e-3, 10),
            },
            8,
        ),
        "Nystroem(1000) + Ridge, best of 8 settings": searched(
            make_pipeline(StandardScaler(), Nystroem(n_components=1000, random_state=0), Ridge()),
            {"nystroem__gamma": loguniform(3e-3, 0.3), "ridge__alpha": loguniform(1e-5, 1)},
            8,
        ),
    }
    found = compare("Regression: the hand of an eight-link robot arm", "of the variance not explained", models, data)
    model = models["mercer.KernelBoostingRegressor"]
    print(f"  why it stopped: {model.stop_reason_}")
    with busy(f"mercer.compress to {FEW} basis vectors"):
        small = mercer.compress(model, data[0], data[2], n_basis=FEW)
    print(f"{100 * (1 - small.score(data[1], data[3])):7.2f} % with {len(small.basis_)} of {len(model.basis_)} vectors")
    X, y = load_digits(return_X_y=True)
    compare(
        "Classification: handwritten digits",
        "wrong",
        {
            "mercer.KernelBoostingClassifier": KernelBoostingClassifier(time_budget=CLASSES, random_state=0),
            "HistGradientBoostingClassifier": HistGradientBoostingClassifier(random_state=0),
            "SVC": make_pipeline(StandardScaler(), SVC()),
            "the same, best of 16 settings": searched(
                make_pipeline(StandardScaler(), SVC()),
                {"svc__C": loguniform(0.3, 100), "svc__gamma": loguniform(1e-3, 0.1)},
                16,
            ),
        },
        train_test_split(X, y, test_size=0.3, random_state=0),
    )
    print("\nThe first model, on a page of its own")
    with busy("drawing error against time"):
        draw(models, found, data[1], data[3])
    print()
    with busy("writing the report"):
        page = mercer.report(model, data[1], data[3], PAGE, X_train=data[0], y_train=data[2])
    print("\n")
    for sentence in page.sections[0].words:
        print(f"  {sentence}")
    print(f"\n{time.perf_counter() - began:.0f} s. The picture: {PICTURE}. The page: {PAGE.resolve().as_uri()}")


if __name__ == "__main__":
    main()
