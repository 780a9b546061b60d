"""What rows have beside inputs and targets: weights, exposures, groups and times.

Models do not depend on the unit in which weights are written. Exposures are the years, kilometres or people over which
a row's total was counted. Groups and times are arrays, or names of columns of a frame.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from mercer.data import UNDIVIDED, Shard
from mercer.data.frames import column_names
from mercer.data.raw import is_missing
from mercer.data.row_groups import RowGroups
from mercer.losses import Loss, PowerVarianceLoss
from mercer.parts import as_float, require, warn
from mercer.preprocessing.validate import checked_weights, host

#: Largest penalty in units of the mean weight: larger ones change nothing, and its square is still finite.
LARGEST_PENALTY = 1e100
#: A day in microseconds: dates are counted in days.
DAY = 86_400_000_000


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


def rates(loss: Loss, y: Any, sample_weight: Any, exposure: Any) -> tuple[Any, Any]:
    """Targets per unit of exposure, if any, and the weights with which they have the loss of the totals.

    Deviances are homogeneous, d(y, eμ) = e^(2 − p) d(y/e, μ). Rates with weights e^(2 − p) therefore give the same
    model as totals whose means are e times the rates.

    >>> from mercer.losses import Poisson
    >>> rates(Poisson(), [2, 3], None, [1.0, 2.0])
    (array([2. , 1.5]), array([1., 2.]))
    """
    if exposure is None:
        return y, sample_weight
    wanted = "None unless the loss is 'poisson', 'gamma' or 'tweedie'"
    require(isinstance(loss, PowerVarianceLoss), "exposure", wanted, f"one with loss={loss}")
    require(y is not None, "y", "given where exposure is given", None)
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
    >>> read_row_groups(None, None, np.array(["2024-01-02", "2024-01-01"], dtype="datetime64[D]"), 7).gap
    7.0
    """
    require(groups is None or time_order is None, "groups", "None where time_order is given", type(groups))
    require(gap is None or time_order is not None, "gap", "None unless time_order is given", gap)
    if groups is None and time_order is None:
        return None
    if time_order is None:
        return RowGroups(_labels(_column(X, groups, "groups")))
    return RowGroups(_times(_column(X, time_order, "time_order")), ordered=True, gap=_length(gap))


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
        values = np.array([_without_zone(value) for value in values], dtype="datetime64[us]")
    return values.astype("datetime64[us]").astype(np.int64) / DAY


def _without_zone(value: Any) -> Any:
    zone = getattr(value, "tzinfo", None)
    return value if zone is None else value.astimezone(datetime.UTC).replace(tzinfo=None)


def _length(gap: Any) -> float:
    """The gap in units of the times: days for dates."""
    if isinstance(gap, datetime.timedelta | np.timedelta64):
        gap = np.timedelta64(gap).astype("timedelta64[us]").astype(np.int64) / DAY
    length = 0.0 if gap is None else as_float(gap)
    require(0 <= length < np.inf, "gap", "a length of time of at least 0", gap)
    return length
