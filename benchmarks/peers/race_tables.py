"""Tables for the race: numbers as they are, mixed tables by a plain encoding, split as `tables.py` and the anchors do.

The encoding: numbers by the median, with an indicator where missing; a category as one column per level over √2 (the
30 most frequent), from nine levels on also a cross-fitted target mean and the logarithm of the count; ordered
categories also as numbers; dates as days and sine and cosine of year and week.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.model_selection import train_test_split

from mercer.datasets import load
from mercer.tuning.constants import CHOSEN_BY, LOOKED_AT_ONCE

LARGEST = 12_000  # training rows taken at most
TEST = 20_000


@dataclass(frozen=True)
class Table:
    """Training and test rows; `kept` marks columns that are indicators already in scale."""

    name: str
    classes: bool
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    kept: np.ndarray


def table(name: str, seed: int, largest: int = LARGEST) -> Table:
    classes = any(name in part["classification"] for part in (CHOSEN_BY, LOOKED_AT_ONCE))
    mixed = Path(os.environ["MERCER_DATA"]) / "mixed" / f"{name}.parquet"
    if mixed.exists():
        return _mixed(mixed, name, classes, seed, largest)
    bunch = load(name)
    X, y = np.asarray(bunch.X, dtype=float), np.asarray(bunch.y)
    if X.ndim == 3:  # a list of splits
        X, y, X_test, y_test = X[seed], y[seed], bunch.X_test[seed], bunch.y_test[seed]
    else:
        if "X_test" in bunch:
            X, y = np.concatenate([X, bunch.X_test]), np.concatenate([y, bunch.y_test])
        y = y[:, 0] if y.ndim == 2 else y  # SARCOS: the first torque
        whole = np.unique(y, return_inverse=True)[1] if classes else y.astype(float)
        stratify = whole if classes and np.bincount(whole).min() >= 2 else None
        X, X_test, y, y_test = train_test_split(X, whole, test_size=0.1, random_state=seed, stratify=stratify)
    levels = np.unique(y)
    if classes:
        y, y_test = np.searchsorted(levels, y), np.searchsorted(levels, y_test)
    cut = slice(0, largest)
    kept = np.zeros(X.shape[1], dtype=bool)
    return Table(name, classes, X[cut], y[cut], X_test[:TEST], y_test[:TEST], kept)


def _mixed(path: Path, name: str, classes: bool, seed: int, largest: int) -> Table:
    import pandas as pd

    frame = pd.read_parquet(path)
    order = np.random.default_rng(seed).permutation(len(frame))
    n_train = 40_000 if len(frame) > 60_000 else 2 * len(frame) // 3
    train = frame.iloc[order[:n_train][:largest]]
    test = frame.iloc[order[n_train:][:TEST]]
    target = pd.concat([train, test])["target"]
    y = target.cat.codes.to_numpy().astype(int) if classes else target.to_numpy().astype(float)
    n = len(train)
    codes = np.eye(y.max() + 1)[y[:n]][:, 1:] if classes else y[:n, None]
    columns: list[np.ndarray] = []
    kept: list[bool] = []
    for column in frame.columns.drop("target"):
        for values, flag in _columns(train[column], test[column], codes, seed):
            columns.append(values)
            kept.append(flag)
    X = np.stack(columns, 1)
    return Table(name, classes, X[:n], y[:n], X[n:], y[n:], np.array(kept))


def _columns(train, test, codes, seed):
    import pandas as pd

    both, n = pd.concat([train, test]), len(train)
    if pd.api.types.is_datetime64_any_dtype(both.dtype):
        days = (both - both.min()).dt.total_seconds().to_numpy() / 86400
        yield days, False
        for period in (365.25, 7.0):
            yield np.sin(2 * np.pi * days / period), False
            yield np.cos(2 * np.pi * days / period), False
        return
    if isinstance(both.dtype, pd.CategoricalDtype) or both.dtype == object or pd.api.types.is_string_dtype(both.dtype):
        yield from _category(both, n, codes, seed)
        return
    values = both.astype(float).to_numpy()
    missing = ~np.isfinite(values)
    if missing[:n].any():
        yield missing / 2**0.5, True
    middle = np.median(values[:n][~missing[:n]]) if (~missing[:n]).any() else 0.0
    filled = np.where(missing, middle, values)
    yield filled, bool(len(np.unique(filled[:n])) <= 2)


def _category(both, n, codes, seed):
    import pandas as pd

    text = both.astype(object).where(both.notna(), "(missing)").astype(str).to_numpy()
    levels, counts = np.unique(text[:n], return_counts=True)
    for level in levels[np.argsort(-counts)][:30] if len(levels) > 2 else levels[:1]:
        yield (text == level) / 2**0.5, True
    if isinstance(both.dtype, pd.CategoricalDtype) and both.dtype.ordered:
        yield both.cat.codes.to_numpy().astype(float), False
    if len(levels) >= 9:
        index = np.searchsorted(levels, text).clip(0, len(levels) - 1)
        known = levels[index] == text
        fold = np.random.default_rng(seed).integers(0, 5, n)
        for k in range(codes.shape[1]):
            yield _target_mean(index, known, codes[:, k], fold, len(levels)), False
        yield np.log1p(np.where(known, counts[index], 0)), False


def _target_mean(index, known, code, fold, n_levels, prior=10.0):
    """Smoothed means of the target: of the other folds' rows on training rows, of all of them elsewhere."""
    n, mean = len(code), code.mean()

    def means(rows):
        total = np.bincount(index[:n][rows], code[rows] - mean, n_levels)
        return total / (np.bincount(index[:n][rows], minlength=n_levels) + prior)

    out = np.where(known, means(np.ones(n, dtype=bool))[index], 0.0)
    for f in range(5):
        here = fold == f
        out[:n][here] = means(~here)[index[:n][here]]
    return out + mean
