"""Seconds of fits by the public call, everything at its default.

    python benchmarks/speed/fits.py [--only SparseGPRegressor …]
    python benchmarks/speed/fits.py --budget [--seconds 5] [--rows 100000] [--only …]
    python benchmarks/speed/fits.py --friedman [--functions 1 2 3] [--noise 0 0.5] [--rows 11000 50000] [--seeds 0 1 …]

Without a word: `make_friedman1(3000, 8)` (classes: above the median) and the digits, with scikit-learn's boosted trees
beside. `--budget`: every public estimator that takes a `time_budget`, on many rows: wall seconds, and the score on
held-out rows beside that of a constant. `--friedman`: R² against the function without noise, on 5000 other rows, at
the default precision and in float64, and the ConvergenceWarnings of both. `--threads` holds for all of them.
"""

from __future__ import annotations

import argparse
import inspect
import itertools
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.base import is_classifier, is_regressor
from sklearn.datasets import load_digits, make_friedman1, make_friedman2, make_friedman3
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

import mercer
from mercer import (
    GreedyKernelRegressor,
    KernelBoostingClassifier,
    KernelBoostingRegressor,
    SparseGPClassifier,
    SparseGPRegressor,
)

Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # rows, targets, test rows, test targets
FUNCTIONS: dict[int, Callable[..., Any]] = {
    1: lambda n, **given: make_friedman1(n, 8, **given),
    2: make_friedman2,
    3: make_friedman3,
}


def friedman(n_rows: int, *, which: int = 1, noise: float = 0.0, seed: int = 0, n_test: int = 5000) -> Split:
    """Rows of one of Friedman's functions; the test targets have no noise."""
    X, y = FUNCTIONS[which](n_rows, noise=noise, random_state=seed)
    return X, y, *FUNCTIONS[which](n_test, random_state=seed + 1000)


def halves(given: Split) -> Split:
    """The same rows with two classes: above the median or not."""
    X, y, X_test, y_test = given
    return X, (y > np.median(y)).astype(int), X_test, (y_test > np.median(y)).astype(int)


def seconds_of(fit: Callable[[], Any]) -> float:
    began = time.perf_counter()
    fit()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began


def judged(model: Any, given: Split) -> str:
    """Errors on test rows, and how well the predicted density or probabilities fit where there are some."""
    _, y, X_test, y_test = given
    if is_classifier(model):
        error = 100 * np.mean(model.predict(X_test) != y_test)
        return f"error {error:.2f} %, log loss {log_loss(y_test, model.predict_proba(X_test)):.4f}"
    words = f"NMSE {100 * np.mean((model.predict(X_test) - y_test) ** 2) / np.var(y):.4f} %"
    if "return_std" in inspect.signature(model.predict).parameters:
        mean, std = model.predict(X_test, return_std=True)
        density = 0.5 * np.mean(np.log(2 * np.pi * std**2) + (y_test - mean) ** 2 / std**2)
        words += f", negative log density {density:.3f}"
    return words


def defaults(only: list[str] | None) -> None:
    numbers = friedman(3000)
    X, X_test, y, y_test = train_test_split(*load_digits(return_X_y=True), train_size=1257, random_state=0)
    digits = X, y, X_test, y_test
    plan = [
        ("friedman1", numbers, KernelBoostingRegressor),
        ("friedman1", numbers, GreedyKernelRegressor),
        ("friedman1", numbers, SparseGPRegressor),
        ("friedman1", numbers, HistGradientBoostingRegressor),
        ("friedman1 halves", halves(numbers), SparseGPClassifier),
        ("friedman1 halves", halves(numbers), HistGradientBoostingClassifier),
        ("digits", digits, KernelBoostingClassifier),
        ("digits", digits, HistGradientBoostingClassifier),
    ]
    for name, given, kind in plan:
        if only is None or kind.__name__ in only:
            model = kind(random_state=0)
            spent = seconds_of(lambda model=model, given=given: model.fit(*given[:2]))
            print(f"{name:17s} {kind.__name__:31s} {spent:7.2f} s  {judged(model, given)}", flush=True)


def budgets(seconds: float, n_rows: int, only: list[str] | None) -> None:
    numbers = friedman(n_rows, noise=1.0)
    classes = halves(numbers)
    for name in mercer.__all__:
        kind = getattr(mercer, name)
        if not inspect.isclass(kind) or "time_budget" not in kind().get_params() or (only and name not in only):
            continue
        model = kind(time_budget=seconds, random_state=0)
        given = classes if is_classifier(model) else numbers
        try:
            spent = seconds_of(lambda model=model, given=given: model.fit(*given[:2]))
            words = beside_the_constant(model, given)
        except Exception as failure:  # an estimator that breaks is reported, not hidden
            print(f"{name:29s} failed: {failure!r}"[:200], flush=True)
            continue
        print(f"{name:29s} {spent:7.2f} s  {words}", flush=True)


def beside_the_constant(model: Any, given: Split) -> str:
    X, y, X_test, y_test = given
    if not (is_classifier(model) or is_regressor(model)):
        return "a transformer"
    constant = (DummyClassifier() if is_classifier(model) else DummyRegressor()).fit(X, y)
    measure = "accuracy" if is_classifier(model) else "R²"
    return f"{measure} {model.score(X_test, y_test):.4f}, a constant {constant.score(X_test, y_test):.4f}"


def precisions(functions: list[int], noises: list[float], rows: list[int], seeds: list[int]) -> None:
    print(f"function  noise   rows  seed  {'R² default':>11s} {'float64':>11s} {'difference':>11s}  warnings  seconds")
    lost, total = [], 0
    for which, noise, n_rows, seed in itertools.product(functions, noises, rows, seeds):
        given = friedman(n_rows, which=which, noise=noise, seed=seed)
        (own, n_own, spent), (exact, n_exact, longer) = (_precision(given, seed, d) for d in ("auto", "float64"))
        lost.append(exact - own)
        total += n_own + n_exact
        label = f"friedman{which} {noise:5g} {n_rows:6d} {seed:5d}"
        found = f"{own:11.6f} {exact:11.6f} {exact - own:11.2e}"
        print(f"{label}  {found}  {n_own:4d}{n_exact:4d}  {spent:.1f} and {longer:.1f}", flush=True)
    print(f"{len(lost)} pairs: float64 gains {max(lost):.2e} at most, {np.mean(lost):.2e} on average; {total} warnings")


def _precision(given: Split, seed: int, dtype: str) -> tuple[float, int, float]:
    """R² of a fit, its ConvergenceWarnings and its seconds."""
    X, y, X_test, y_test = given
    model = KernelBoostingRegressor(random_state=seed, dtype=dtype)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        spent = seconds_of(lambda: model.fit(X, y))
    return model.score(X_test, y_test), sum(issubclass(w.category, ConvergenceWarning) for w in seen), spent


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--budget", action="store_true")
    options.add_argument("--friedman", action="store_true")
    options.add_argument("--only", nargs="+", default=None, help="names of estimators")
    options.add_argument("--seconds", type=float, default=5.0)
    options.add_argument("--rows", type=int, nargs="+", default=None)
    options.add_argument("--functions", type=int, nargs="+", choices=list(FUNCTIONS), default=list(FUNCTIONS))
    options.add_argument("--noise", type=float, nargs="+", default=[0.0, 0.5])
    options.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    options.add_argument("--threads", type=int, default=None)
    given = options.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
        threadpool_limits(given.threads)
    print(f"{torch.get_num_threads()} threads, {'cuda' if torch.cuda.is_available() else 'cpu'}", flush=True)
    if given.budget:
        budgets(given.seconds, (given.rows or [100_000])[0], given.only)
    if given.friedman:
        precisions(given.functions, given.noise, given.rows or [11_000, 50_000], given.seeds)
    if not (given.budget or given.friedman):
        defaults(given.only)


if __name__ == "__main__":
    main()
