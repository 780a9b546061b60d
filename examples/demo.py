"""The package's main job in two minutes: a large regression and a classifier, beside scikit-learn.

Run by `make demo`. Prints test errors and times, and writes a picture of error against time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import Ridge
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from mercer import KernelBoostingClassifier, KernelBoostingRegressor
from mercer.datasets import make_smooth_regression

PICTURE = Path("demo.png")


@dataclass(frozen=True)
class Result:
    """A fitted model, its test error in percent and the seconds its fit took, tuning included."""

    model: Any
    error: float
    seconds: float


def fit_and_judge(model: Any, X: Any, y: Any, X_test: Any, y_test: Any) -> Result:
    """Errors are 1 − score: unexplained variance for regressors, wrong classes for classifiers."""
    began = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - began
    return Result(model, 100 * (1 - model.score(X_test, y_test)), seconds)


def compare(title: str, unit: str, models: dict[str, Any], data: list[np.ndarray]) -> dict[str, Result]:
    X, X_test, y, y_test = data
    print(f"\n{title}\n{X.shape[0]} rows, {X.shape[1]} inputs, {X_test.shape[0]} test rows")
    results = {}
    for name, model in models.items():
        results[name] = fit_and_judge(model, X, y, X_test, y_test)
        print(f"  {name:45s} {unit} {results[name].error:6.2f} %   {results[name].seconds:6.1f} s", flush=True)
    return results


def draw(results: dict[str, Result], X_test: np.ndarray, y_test: np.ndarray) -> None:
    """Test error against time: the boosted model learner by learner, the others as points."""
    ours = next(iter(results.values()))
    variance = np.var(y_test)
    stages = [100 * np.mean((y_test - p) ** 2) / variance for p in ours.model.staged_predict(X_test)]
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    seconds = ours.model.history_["seconds"] + ours.model.tuning_seconds_
    axes.plot(seconds, stages, "o-", ms=3, label="kernel boosting, learner by learner")
    for (name, result), marker in zip(results.items(), "Dsv", strict=False):
        axes.plot(result.seconds, result.error, marker, ms=9, label=name)
    axes.set(xscale="log", yscale="log", xlabel="seconds, tuning included", ylabel="test NMSE in %")
    axes.set_title("100 000 rows of a smooth function of 8 inputs")
    axes.grid(alpha=0.3, which="both")
    axes.legend(frameon=False)
    figure.savefig(PICTURE, dpi=120)


def main() -> None:
    X, y = make_smooth_regression(110_000, 8, noise=0.05, random_state=0)
    data = train_test_split(X, y, test_size=10_000, random_state=0)
    results = compare(
        "Regression: the hand of an eight-link robot arm",
        "NMSE",
        {
            "mercer.KernelBoostingRegressor()": KernelBoostingRegressor(random_state=0, verbose=True),
            "scikit-learn HistGradientBoostingRegressor()": HistGradientBoostingRegressor(random_state=0),
            "scikit-learn Nystroem(1000) + Ridge": make_pipeline(
                StandardScaler(), Nystroem(n_components=1000, gamma=0.1, random_state=0), Ridge(0.01)
            ),
        },
        data,
    )
    draw(results, data[1], data[3])
    X, y = load_digits(return_X_y=True)
    compare(
        "Classification: handwritten digits",
        "error",
        {
            "mercer.KernelBoostingClassifier()": KernelBoostingClassifier(random_state=0),
            "scikit-learn HistGradientBoostingClassifier()": HistGradientBoostingClassifier(random_state=0),
            "scikit-learn SVC()": make_pipeline(StandardScaler(), SVC()),
        },
        train_test_split(X, y, test_size=0.3, random_state=0),
    )
    print(f"\nError against time: {PICTURE}")


if __name__ == "__main__":
    main()
