"""Weights that say nothing, copies of rows and bagging must leave intervals and probabilities as good as without.

    MERCER_DATA=… python benchmarks/peers/weights.py [--rows 600] [--tables abalone pima] [--threads 2] [--out w.json]

Ten tables, zero-argument estimators with a seed. Weights are drawn without regard to the rows: integers from 1 to 5,
or uniform numbers; `repeated` gives every row 1 to 3 times; `bootstrap` is a sample with replacement; `bagging` is
scikit-learn's with five models; `oversampled` draws the rarer classes until all are equally frequent, and its
probabilities are brought back to the frequencies of the training rows; `class weights` are {rarest: 10}, brought back
likewise. Shown are the share of test targets inside 90 % intervals and the normalised mean squared error in percent, or
the log loss of classes.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import BaggingClassifier, BaggingRegressor
from tables import log_loss
from tables_data import Table, table

from mercer import KernelBoostingClassifier, KernelBoostingRegressor

TABLES = (
    "abalone", "boston", "elevators", "cal_housing", "healthcare_insurance",
    "pima", "raetsch_banana", "cmc", "waveform21", "churn",
)  # fmt: skip
RARE = 10.0


def ways(given: Table, rng: np.random.Generator) -> dict[str, tuple[np.ndarray, np.ndarray | None]]:
    """Indices of training rows and their weights, of each way to give them."""
    n = len(given.y)
    everyone = np.arange(n)
    found: dict[str, tuple[np.ndarray, np.ndarray | None]] = {
        "plain": (everyone, None),
        "integer weights": (everyone, rng.integers(1, 6, n).astype(float)),
        "real weights": (everyone, rng.uniform(0.5, 2.5, n)),
        "repeated": (np.repeat(everyone, rng.integers(1, 4, n)), None),
        "bootstrap": (rng.integers(0, n, n), None),
    }
    if given.task == "classification":
        counts = np.bincount(given.y)
        more = [rng.choice(np.flatnonzero(given.y == c), counts.max() - k) for c, k in enumerate(counts) if k]
        found["oversampled"] = (np.concatenate([everyone, *more]), None)
    return found


def measure(given: Table, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    classes = given.task == "classification"
    estimator: Any = KernelBoostingClassifier if classes else KernelBoostingRegressor
    found: dict[str, Any] = {}
    frequencies = np.bincount(given.y) / len(given.y) if classes else None
    for way, (rows, weight) in ways(given, rng).items():
        model = estimator(random_state=0).fit(given.X[rows], given.y[rows], sample_weight=weight)
        found[way] = score(model, given, None if way != "oversampled" else frequencies)
    bagging = (BaggingClassifier if classes else BaggingRegressor)(estimator(random_state=0), 5, random_state=0)
    found["bagging"] = score(bagging.fit(given.X, given.y), given, None)
    if classes:
        rarest = int(np.argmin(np.bincount(given.y)))
        costs = {int(c): RARE if c == rarest else 1.0 for c in np.unique(given.y)}
        model = estimator(random_state=0, class_weight=costs).fit(given.X, given.y)
        back = np.array([1 / costs[c] for c in sorted(costs)])
        found["class weights"] = score(model, given, back, ratio=True)
    return found


def score(model: Any, given: Table, back: np.ndarray | None, ratio: bool = False) -> dict[str, float]:
    """Error and coverage; probabilities times `back` (class frequencies, or ratios to them) are made to sum to one."""
    if given.task == "regression":
        said = model.predict(given.X_test)
        out = {"error": 100 * float(np.mean((said - given.y_test) ** 2) / np.var(given.y))}
        if hasattr(model, "predict_interval"):
            low, high = np.asarray(model.predict_interval(given.X_test, 0.9)).T
            out["coverage"] = float(np.mean((given.y_test >= low) & (given.y_test <= high)))
        return out
    p = model.predict_proba(given.X_test)
    if back is not None:
        p = p * (back if ratio else back * len(back))
        p = p / p.sum(1, keepdims=True)
    return {"error": log_loss(p, given.y_test)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", default=TABLES)
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    if asked.threads:
        torch.set_num_threads(asked.threads)
    results: dict[str, Any] = {}
    for name in asked.tables:
        splits = [measure(table(name, seed, asked.rows), seed) for seed in range(asked.splits)]
        results[name] = {way: mean([split[way] for split in splits]) for way in splits[0]}
        plain = results[name]["plain"]["error"]
        for way, one in results[name].items():
            inside = f"{100 * one['coverage']:6.1f} %" if "coverage" in one else " " * 8
            print(f"{name:22} {way:16} {one['error']:9.4g} {one['error'] / plain:7.3f} {inside}", flush=True)
        if asked.out:
            asked.out.write_text(json.dumps(results, indent=1))


def mean(scores: list[dict[str, float]]) -> dict[str, float]:
    return {key: float(np.mean([one[key] for one in scores])) for key in scores[0]}


if __name__ == "__main__":
    main()
