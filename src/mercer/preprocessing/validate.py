"""Check targets and weights against the task, and refuse bad ones in a sentence."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.utils.validation import _check_sample_weight, _check_y
from torch import Tensor

from mercer.data import sparse_matrix
from mercer.data.raw import is_missing
from mercer.parts import require, warn

#: One value is suspect if the squares of all others, of at least this many rows, sum to at most this share of its own.
ALONE_AMONG, ALONE_LITTLE = 20, 1e-4
#: The values of one row in this many are suspect if the squares of the others sum to at most this share of theirs. For
#: fares and tips of taxis, as heavy a tail as honest tables have, the sum is four times as large.
FEW_OF, FEW_LITTLE = 100, 5e-3
#: Words for the types of targets that are not numbers.
CALLED = {"M": "dates", "m": "durations", "c": "complex numbers: Complex data not supported"}


def checked_targets(y: Any, classes: bool, estimator: Any) -> np.ndarray:
    """Targets as an array: classes in one column, or finite real numbers in one column or several."""
    require(not isinstance(y, str | bytes | dict), "y", "one target for each row, such as X['price']", y)
    y = _plain(y)
    shape = y.shape if issparse(y) else _as_array(y).shape
    if classes and len(shape) == 2 and shape[1] > 1:
        return _label_matrix(y, estimator)
    _require_labels(y) if classes else _require_numbers(y)
    with np.errstate(invalid="ignore"):  # a NaN of a broken file is refused in a sentence
        y = np.asarray(_check_y(y, multi_output=not classes, y_numeric=not classes, estimator=estimator))
    require(y.ndim in (1, 2) and len(y) > 0, "y", "of one or two dimensions with at least one row", y.shape)
    if not classes:
        y = y.astype(np.float64)
        require(bool(np.isfinite(y).all()), "y", "finite numbers", "NaN or infinity")
        _warn_of_far_values(y, estimator)
    return y


def _label_matrix(y: Any, estimator: Any) -> np.ndarray:
    """Several labels per row as a matrix of zeros and ones, for estimators that take them."""
    Y = y.toarray() if issparse(y) else _as_array(y)
    wanted = "of one class for each row (for several labels: sklearn.multioutput.MultiOutputClassifier)"
    require(getattr(estimator, "_several_labels", False), "y", wanted, Y.shape)
    wanted = "of zeros and ones where it has several columns (for columns of classes: MultiOutputClassifier)"
    require(Y.dtype.kind in "biuf" and bool(np.isin(Y, [0, 1]).all()), "y", wanted, np.unique(Y.astype(str))[:5])
    return Y.astype(np.float64)


def _warn_of_far_values(y: np.ndarray, estimator: Any) -> None:
    """Warn where one value, or those of a few rows, make nearly all of the variance of an output."""
    if len(y) < ALONE_AMONG:
        return
    Y = y.reshape(len(y), -1) / (np.abs(y).max() or 1.0)
    squares = (Y - np.median(Y, axis=0)) ** 2
    n_far = max(len(y) // FEW_OF, 1)
    robust = ", or take loss='pinball', which far values do not move" if hasattr(estimator, "loss") else ""
    for column, square in enumerate(squares.T):
        order = np.argpartition(-square, n_far)[:n_far]
        order = order[np.argsort(-square[order])]
        far, square[order] = square[order], 0.0
        largest = far.cumsum()
        rest = square.sum() + np.append(far[::-1].cumsum()[-2::-1], 0.0)
        limit = np.where(np.arange(len(far)) == 0, ALONE_LITTLE, FEW_LITTLE)
        suspect = (rest > 0) & (rest < limit * largest)
        if suspect.any():
            k, value = int(suspect.argmax()) + 1, y.reshape(len(y), -1)[order[0], column]
            share = 100 * (1 - (ALONE_LITTLE if k == 1 else FEW_LITTLE))
            first = f"y holds {value:g} in row {order[0]}, which"
            who = f"{first} alone makes" if k == 1 else f"{first} with {k - 1} more of {len(y)} rows makes"
            words = f"{who} more than {share:g} % of its variance: other rows will hardly be learned"
            advice = "leave it out" if k == 1 else f"leave the {100 * k / len(y):.2g} % of rows out"
            warn(f"{words}; {advice}, or bend y{robust}")


def _plain(y: Any) -> Any:
    """Nullable types without missing values as NumPy's: integer and boolean classes stay what they are."""
    dtype = getattr(y, "dtype", None)
    plain = getattr(dtype, "numpy_dtype", None)
    if plain is None or getattr(dtype, "kind", "O") not in "biuf" or bool(y.isna().any()):
        return y
    return y.to_numpy(plain)


def _require_numbers(y: Any) -> None:
    """Refuse text, dates and categories as real numbers."""
    values = _as_array(y)
    first = next((value for value in values.flat if not is_missing(value)), 0.0) if values.dtype.kind in "OUS" else 0.0
    seen = str(first) if isinstance(first, str | bytes | datetime.date) else CALLED.get(values.dtype.kind)
    require(seen is None, "y", "real numbers (classes are for a classifier)", seen)


def _require_labels(y: Any) -> None:
    """Refuse missing classes."""
    values = _as_array(y)
    if values.dtype.kind == "O" and values.ndim == 1:
        missing = next((row for row, label in enumerate(values) if is_missing(label)), None)
        require(missing is None, "y", "a class for each row", f"NaN or None in row {missing}")


def _as_array(y: Any) -> np.ndarray:
    """Targets as a NumPy array; empty where that fails, which later checks report."""
    try:
        return np.asarray(y)
    except (ValueError, TypeError):
        return np.empty(0)


def require_same_order(X: Any, y: Any) -> None:
    """Warn where a frame and its targets have the same index in another order, since rows are paired by position."""
    rows, targets = getattr(X, "index", None), getattr(y, "index", None)
    if rows is None or targets is None or callable(rows) or callable(targets) or len(rows) != len(targets):
        return
    if rows.is_unique and not rows.equals(targets) and len(rows.union(targets)) == len(rows):
        words = "X and y have the same index in another order; rows are paired by their places, not by the index"
        warn(f"{words}: pass y.loc[X.index] if the index names them")


def checked_weights(sample_weight: Any, n_rows: int, *, alone: bool = True) -> np.ndarray:
    """Weights of rows, non-negative and finite; ones if none are given. One is positive unless others have rows too."""
    wanted = 'one number for each row (class_weight takes "balanced")'
    require(not isinstance(sample_weight, str | bytes | dict), "sample_weight", wanted, sample_weight)
    like = np.empty((n_rows, 1), dtype=np.float32)  # scikit-learn's check needs its shape alone
    weight = _check_sample_weight(host(sample_weight), like, dtype=np.float64)
    require(bool((weight >= 0).all()), "sample_weight", "non-negative", float(weight.min()))
    require(bool((weight > 0).any()) or not alone, "sample_weight", "positive for at least one row", 0.0)
    return weight


def host(X: Any) -> Any:
    """A tensor as a NumPy array, a masked array with missing values, a lazy frame collected; others as they are."""
    if isinstance(X, np.ma.MaskedArray):
        return _unmasked(X)
    if hasattr(X, "collect_schema") and not hasattr(X, "to_numpy"):  # a lazy frame of polars
        return X.collect()
    if not isinstance(X, Tensor):
        return X
    if X.layout != torch.strided:
        return sparse_matrix(X)
    X = X.detach().cpu()
    return (X.float() if X.dtype == torch.bfloat16 else X).numpy()


def _unmasked(X: Any) -> np.ndarray:
    """A masked array without its mask: masked values are missing."""
    if not np.ma.is_masked(X):
        return np.asarray(X.data)
    kind = np.float64 if X.dtype.kind in "biuf" else object
    return np.asarray(X.astype(kind).filled(np.nan if kind is np.float64 else None))
