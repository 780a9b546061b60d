"""Weights of rows: models must not depend on the unit in which weights are written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from mercer.data import UNDIVIDED, Shard
from mercer.parts import require, warn

#: Largest penalty in units of the mean weight: larger ones change nothing, and its square is still finite.
LARGEST_PENALTY = 1e100


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
    if class_weight is None or y.ndim != 1:  # several columns of classes are refused elsewhere
        return weight
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
