"""Check targets and what rows have beside them: weights, exposures, groups and times; refuse bad ones in a sentence.

Models do not depend on the unit in which weights are written. Exposures are the years, kilometres or people over which
a row's total was counted. Groups and times are arrays, or names of columns of a frame.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.utils.validation import _check_sample_weight, _check_y
from torch import Tensor

from mercer.data import UNDIVIDED, Shard, sparse_matrix
from mercer.data.frames import column_names
from mercer.data.raw import days, is_missing, without_zone
from mercer.data.row_groups import RowGroups
from mercer.losses import Loss, PowerVarianceLoss
from mercer.parts import as_float, require, warn

#: One value is suspect if the squares of all others, of at least this many rows, sum to at most this share of its own.
ALONE_AMONG, ALONE_LITTLE = 20, 1e-4
#: The values of one row in this many are suspect if the squares of the others sum to at most this share of theirs. For
#: fares and tips of taxis, as heavy a tail as honest tables have, the sum is four times as large.
FEW_OF, FEW_LITTLE = 100, 5e-3
#: Words for the types of targets that are not numbers.
CALLED = {"M": "dates", "m": "durations", "c": "complex numbers: Complex data not supported"}
#: Largest penalty in units of the mean weight: larger ones change nothing, and its square is still finite.
LARGEST_PENALTY = 1e100


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
    if getattr(getattr(getattr(dtype, "categories", None), "dtype", None), "kind", "") == "b":
        return np.asarray(y)  # scikit-learn would make numbers of these
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
        _require_one_type([str if isinstance(label, str) else type(label) for label in values])


def _require_one_type(kinds: list[type]) -> None:
    """Refuse labels of several types, and objects that neither sort nor compare as scikit-learn's labels do."""
    names = sorted({kind.__name__ for kind in kinds})
    require(len(names) == 1, "y", "labels of one type (y.astype(str) makes text of all)", " and ".join(names))
    if issubclass(kinds[0], str | bytes):
        return
    plain = issubclass(kinds[0], bool | np.bool_ | Integral)
    advice = f"y.astype({'bool' if 'bool' in names[0] else 'int'})" if plain else "y.astype(str)"
    wanted = f"labels of text, integers, booleans or NumPy's dates, and no array of objects: pass {advice}"
    raise ValueError(f"Unknown label type: y must be {wanted}, got objects of type {names[0]!r}")


def _as_array(y: Any) -> np.ndarray:
    """Targets as a NumPy array; empty where that fails, which later checks report."""
    try:
        return np.asarray(y)
    except (ValueError, TypeError):
        return np.empty(0)


def require_same_order(X: Any, values: Any, name: str = "y") -> None:
    """Warn where a frame and values of its rows have the same index in another order: rows are paired by position."""
    rows, others = getattr(X, "index", None), getattr(values, "index", None)
    if rows is None or others is None or callable(rows) or callable(others) or len(rows) != len(others):
        return
    if rows.is_unique and not rows.equals(others) and len(rows.union(others)) == len(rows):
        words = f"X and {name} have the same index in another order; rows are paired by their places, not by the index"
        warn(f"{words}: pass {name}.loc[X.index] if the index names them")


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


def unit_weights(weight: np.ndarray, shard: Shard = UNDIVIDED) -> tuple[np.ndarray, float]:
    """Weights divided by their mean over the rows of positive weight, and that mean.

    >>> unit_weights(np.array([2e300, 0.0, 6e300]))
    (array([0.5, 0. , 1.5]), 4e+300)
    """
    largest = shard.group.max(weight.max(initial=0.0))
    shares = weight / largest  # first, so that no sum of huge weights overflows
    mean = shard.total(shares.sum()) / shard.count(torch.as_tensor(shares > 0))
    return shares / mean, float(largest * mean)


def penalty_in_units(penalty: float, unit: float) -> float:
    """The penalty for weights divided by `unit`; penalty and weights have the meaning of scikit-learn's `Ridge`.

    >>> penalty_in_units(3.0, 2.0), penalty_in_units(1e300, 1e-30)
    (1.5, 1e+100)
    """
    return min(penalty / unit, LARGEST_PENALTY)


def warn_of_small_weights(penalty: float, unit: float, total: float, parameter: str) -> None:
    """Warn where a penalty outweighs all rows only because weights are small; `total` is the sum of weights / unit."""
    if penalty / unit >= total > penalty:
        warn(
            f"sample_weight sums to {total * unit:.3g}, no more than the penalty {parameter}={penalty:g}, which leaves "
            "next to nothing to learn; a penalty is meant for weights of mean one"
        )


def class_weighted(class_weight: Any, y: np.ndarray, weight: np.ndarray, shard: Shard = UNDIVIDED) -> np.ndarray:
    """Weights of rows times the weights of their classes.

    >>> class_weighted("balanced", np.array(["a", "b", "b", "b"]), np.ones(4)).round(3).tolist()
    [2.0, 0.667, 0.667, 0.667]
    """
    if class_weight is None:
        return weight
    require(y.ndim == 1, "class_weight", "None where rows have several labels", class_weight)
    seen = [labels for labels in shard.group.gather(np.unique(y)) if len(labels)]
    classes = np.unique(np.concatenate(seen))
    group = np.searchsorted(classes, y) if len(y) else np.zeros(0, dtype=np.int64)
    if isinstance(class_weight, Mapping):
        known = {str(label) for label in classes}
        unknown = [label for label in class_weight if str(label) not in known]
        require(not unknown, "class_weight", f"for classes among {classes.tolist()}", unknown)
        by_name = {str(label): float(value) for label, value in class_weight.items()}
        return weight * np.array([by_name.get(str(label), 1.0) for label in classes])[group]
    largest = shard.group.max(weight.max(initial=0.0))
    local = np.bincount(group, weights=weight / largest, minlength=len(classes))  # no sum of huge weights overflows
    total = shard.group.sum(torch.from_numpy(local)).numpy()
    alive = total > 0
    factor = np.where(alive, total.sum() / (alive.sum() * np.where(alive, total, 1.0)), 1.0)
    return weight * factor[group]


def rates(loss: Loss, X: Any, y: Any, sample_weight: Any, exposure: Any) -> tuple[Any, Any]:
    """Targets per unit of exposure, if any, and the weights with which they have the loss of the totals.

    Deviances are homogeneous, d(y, eμ) = e^(2 − p) d(y/e, μ). Rates with weights e^(2 − p) therefore give the same
    model as totals whose means are e times the rates.

    >>> from mercer.losses import Poisson
    >>> rates(Poisson(), None, [2, 3], None, [1.0, 2.0])
    (array([2. , 1.5]), array([1., 2.]))
    """
    if exposure is None:
        return y, sample_weight
    wanted = "None unless the loss is 'poisson', 'gamma' or 'tweedie'"
    require(isinstance(loss, PowerVarianceLoss), "exposure", wanted, f"one with loss={loss}")
    require(y is not None, "y", "given where exposure is given", None)
    require_same_order(X, y)  # rates have no index that could tell
    require_same_order(X, exposure, "exposure")
    totals, known = np.asarray(host(y)), np.asarray(host(exposure))
    require(known.dtype.kind in "iuf", "exposure", "numbers", f"values of type {known.dtype}")
    require(known.shape == totals.shape[:1], "exposure", f"of shape {totals.shape[:1]} as y has", known.shape)
    good = np.isfinite(known) & (known > 0)
    require(bool(good.all()), "exposure", "positive and finite", known[~good][:1].tolist())
    require(totals.dtype.kind in "biuf", "y", "numbers where exposure is given", f"values of type {totals.dtype}")
    weight = checked_weights(sample_weight, len(totals)) * known ** (2.0 - loss.variance_power())
    return totals / known.reshape(-1, *[1] * (totals.ndim - 1)), weight


def read_row_groups(X: Any, groups: Any, time_order: Any, gap: Any) -> RowGroups | None:
    """The groups or times of the rows; None where neither is given.

    >>> read_row_groups(None, ["b", "a", "b"], None, None).key.tolist()
    [1, 0, 1]
    >>> read_row_groups(None, None, np.array(["2024-01-09", "2024-01-01"], dtype="datetime64[D]"), 7).gap
    7.0
    """
    require(groups is None or time_order is None, "groups", "None where time_order is given", type(groups))
    require(gap is None or time_order is not None, "gap", "None unless time_order is given", gap)
    if groups is None and time_order is None:
        return None
    if time_order is None:
        return RowGroups(_labels(_column(X, groups, "groups")))
    times, length = _times(_column(X, time_order, "time_order")), _length(gap)
    whole = float(np.ptp(times)) if len(times) else 0.0
    require(length < whole or length == 0, "gap", f"shorter than the time from first to last row, {whole:g}", gap)
    return RowGroups(times, ordered=True, gap=length)


def require_groups(found: RowGroups | None, n_rows: int) -> None:
    """Refuse another number of rows, and rows that cannot be split."""
    if found is None:
        return
    name = "time_order" if found.ordered else "groups"
    require(len(found.key) == n_rows, name, f"of {n_rows} values, one for each row", len(found.key))
    wanted = "two different times" if found.ordered else "two different groups"
    require(len(np.unique(found.key)) > 1, name, f"of at least {wanted}", found.key[0])


def _column(X: Any, values: Any, name: str) -> np.ndarray:
    """One value for each row, from an array or from the column of that name."""
    if isinstance(values, str):
        names = column_names(X) or []
        wanted = f"an array, or a column of X: {', '.join(names)}" if names else "an array where X is not a frame"
        require(values in names, name, wanted, values)
        values = X[values]
    else:
        require_same_order(X, values, name)
    values = np.asarray(host(values))
    require(values.ndim == 1, name, "of one dimension", values.shape)
    missing = np.flatnonzero(
        np.isnat(values) if values.dtype.kind in "Mm" else [is_missing(v) for v in values.tolist()]
    )
    require(not len(missing), name, "given for each row", f"a missing value in row {missing[:1]}")
    return values


def _labels(values: np.ndarray) -> np.ndarray:
    """Numbers of groups, in the order of their sorted labels."""
    try:
        return np.unique(values, return_inverse=True)[1].reshape(-1)
    except TypeError:
        kinds = sorted({type(value).__name__ for value in values})
        require(False, "groups", "labels of one type", " and ".join(kinds))
        raise


def _times(values: np.ndarray) -> np.ndarray:
    """Times as numbers; dates as days since 1970."""
    if values.dtype.kind in "biuf":
        times = values.astype(np.float64)
        require(bool(np.isfinite(times).all()), "time_order", "finite", "an infinite value")
        return times
    first = values[0] if len(values) else None
    dates = values.dtype.kind == "M" or (values.dtype.kind == "O" and isinstance(first, datetime.date))
    require(dates, "time_order", "numbers or dates", f"{first} of type {type(first).__name__}")
    if values.dtype.kind == "O":  # times with a zone become those of UTC
        values = np.array([without_zone(value) for value in values], dtype="datetime64[us]")
    return days(values.astype("datetime64[us]"))


def _length(gap: Any) -> float:
    """The gap in units of the times: days for dates."""
    if isinstance(gap, datetime.timedelta | np.timedelta64):
        gap = float(days(np.timedelta64(gap).astype("timedelta64[us]")))
    length = 0.0 if gap is None else as_float(gap)
    require(0 <= length < np.inf, "gap", "a length of time of at least 0", gap)
    return length
