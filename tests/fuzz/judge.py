"""What is allowed: a finite answer no worse than the constant one, or a sentence that somebody wrote.

An error is a sentence if it was raised on purpose: its last frame stands at a ``raise`` of ours, or in scikit-learn's
validation. A number that torch, NumPy or Python itself could not digest is raw, whatever its type.
"""

from __future__ import annotations

import dis
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import sklearn
from sklearn.base import is_classifier
from sklearn.feature_selection import SelectorMixin

import mercer

SENTENCES = (ValueError, TypeError, MemoryError)
ABSENT = (FileNotFoundError, IsADirectoryError, NotADirectoryError)  # the system's own, which name the file
OURS, SKLEARN = (str(Path(package.__file__).parent) for package in (mercer, sklearn))
RAISE = dis.opmap["RAISE_VARARGS"]
#: Of the spread of the targets: tiles in float32 and shorter searches may miss the constant answer by this much.
SLACK = 1e-3


def is_sentence(error: BaseException) -> bool:
    """Whether somebody wrote this error for a reader."""
    if isinstance(error, ABSENT):
        return True
    if not isinstance(error, SENTENCES) or not str(error).strip() or error.__traceback__ is None:
        return False
    last = error.__traceback__
    while last.tb_next is not None:
        last = last.tb_next
    code = last.tb_frame.f_code
    if code.co_filename.startswith(SKLEARN):
        return True
    return code.co_filename.startswith(OURS) and code.co_code[last.tb_lasti] == RAISE


def told(error: BaseException) -> str:
    """An error in one line, with where it was raised and the last place of ours on the way."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(OURS)]
    places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in (ours[-1:] + frames[-1:])]
    return f"{type(error).__name__}: {str(error)[:200]} @ {' < '.join(dict.fromkeys(places))}"


def faults_of_answer(model: Any, table: Any, n: int, X: np.ndarray) -> list[str]:
    """What is wrong with the answers of a fitted model for the rows it was fitted on, and for rows beyond them."""
    found: list[str] = []
    for method in ("predict", "predict_proba", "decision_function", "transform"):
        if hasattr(model, method):
            found += _faults(method, getattr(model, method)(table), n, model)
    if isinstance(model, mercer.SparseGPRegressor):
        for noisy in (True, False):
            _, std = model.predict(table, return_std=True, include_noise=noisy)
            found += _faults("std", std, n, model)
            if np.isfinite(std).all() and (std < 0).any():
                found.append(f"negative-std: {std.min()}")
    if hasattr(model, "predict_interval"):
        ends = model.predict_interval(table)
        endless = np.array([-np.inf, np.inf])  # what fewer than 9 rows can promise of 90 %
        if model.intervals_.n_rows >= 9 or not (ends == endless).all():
            found += _faults("interval", ends, n, model)
        if (ends[..., 0] > ends[..., 1]).any():
            found.append("crossing: an interval ends before it begins")
    beyond = X[:2] + 10 * (X.max(0) - X.min(0))
    if hasattr(model, "predict") and np.isfinite(beyond).all() and not hasattr(model, "feature_names_in_"):
        found += _faults("predict beyond", model.predict(beyond), len(beyond), model)
    return found


def _faults(method: str, answer: Any, n: int, model: Any) -> list[str]:
    values = answer.toarray() if scipy.sparse.issparse(answer) else np.asarray(answer)
    if len(values) != n:
        return [f"shape: {method} gives {values.shape} for {n} rows"]
    if isinstance(model, SelectorMixin):  # columns as they came, gaps and dates among them
        return []
    if method.startswith("predict") and is_classifier(model) and method != "predict_proba":
        return [] if np.isin(values, model.classes_).all() else [f"no-class: {method} gives {values[:3]}"]
    if not np.isfinite(values.astype(np.float64)).all():
        return [f"not-finite: {method} gives {values.ravel()[:3]}"]
    if method == "predict_proba":
        off = float(np.abs(values.sum(1) - 1).max())
        if off > 1e-6 or values.min() < 0:  # float32 sums of a few classes
            return [f"no-probabilities: sums are off by {off:.2g}, the least is {values.min():.2g}"]
    return []


def worse_than_constant(model: Any, table: Any, y: np.ndarray, weight: np.ndarray | None) -> str | None:
    """A sentence where the training rows are predicted worse than by one constant."""
    w = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)
    w = w / w.max()
    w = w / w.sum()
    answer = np.asarray(model.predict(table))
    fewest = np.unique(y, return_counts=True)[1].min()
    if isinstance(model, mercer.GaussianMixtureClassifier) and fewest < model.n_features_in_:
        return None  # of a density of more inputs than a class has rows, the floor of variances is the most
    if is_classifier(model):
        share = max(float(w[y == label].sum()) for label in np.unique(y))
        right = float(w[answer == y].sum())
        # one standard deviation of the difference of two shares, at most: of two classes as common either may be named
        chance = (2 * share * float((w**2).sum())) ** 0.5
        return None if right >= share - chance - 1e-9 else f"worse-than-constant: {right:.3f} right of {share:.3f}"
    Y, F = (np.asarray(part, dtype=np.float64).reshape(len(y), -1) for part in (y, answer))
    size = max(float(np.abs(Y).max()), np.finfo(float).tiny)
    Y, F = Y / size, F / size  # squares of targets near the ends of float64 would leave it
    constant = float((w[:, None] * (Y - (w[:, None] * Y).sum(0)) ** 2).sum())
    error = float((w[:, None] * (Y - F) ** 2).sum())
    rounding = 1e-10  # of the targets' own size, squared by float32 tiles: (1e-5)^2
    good = error <= constant * (1 + SLACK) + rounding
    return None if good else f"worse-than-constant: squared error {error:.3g} where one number has {constant:.3g}"
