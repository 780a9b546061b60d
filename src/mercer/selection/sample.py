"""Rows, targets and weights that tuning uses: checked, a random sample, duplicates merged, weights of mean one.

Weights of mean one make the result independent of their scale. Duplicates are merged first
(`mercer.data.hashes`), so a weight of 2 still counts as two duplicates.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.data import RowSource, as_source
from mercer.data.hashes import has_copies, hash_rows, hash_targets
from mercer.parts import require


@dataclass(frozen=True)
class DrawnRows:
    """Rows (n × D), targets (n × p) and weights of mean one in float64, and the mean of the given weights."""

    X: Tensor
    Y: Tensor
    weight: Tensor
    mean_weight: float

    def centred(self, weight: Tensor) -> Tensor:
        """Targets less their weighted mean."""
        return self.Y - (weight[:, None] * self.Y).sum(0) / weight.sum()

    def precision(self) -> Tensor:
        """Weights as precisions of the noise: ones for class codes, whose weights say nothing about noise.

        A class of weight ten is not measured ten times as precisely. As precisions, its weights would let each row
        explain itself, and the evidence would be largest for length-scales near zero.
        """
        return torch.ones_like(self.weight) if are_class_codes(self.Y) else self.weight


def draw(X: Any, y: Any, sample_weight: Any, n_rows: int, rng: np.random.Generator, device: torch.device) -> DrawnRows:
    """Draw at most `n_rows` random rows of positive weight; a file or row source is read as a whole first."""
    if isinstance(X, RowSource | str | os.PathLike):
        source = as_source(X)
        X = source.take(np.arange(source.n_rows))
    X, y = _numbers(X, "X"), _numbers(y, "y")
    require(X.ndim == 2 and X.shape[1] > 0, "X", "two-dimensional, with at least one column", tuple(X.shape))
    require(y.ndim in (1, 2), "y", "one- or two-dimensional", tuple(y.shape))
    require(len(y) == len(X), "y", f"of the length of X, {len(X)}", len(y))
    weight = np.ones(len(X)) if sample_weight is None else _host(_numbers(sample_weight, "sample_weight"))
    require(weight.shape == (len(X),), "sample_weight", f"of shape {(len(X),)}", weight.shape)
    good = bool(np.isfinite(weight).all() and (weight >= 0).all() and (weight > 0).any())
    require(good, "sample_weight", "finite and non-negative, some positive", weight)
    index = np.flatnonzero(weight > 0)
    index = rng.choice(index, n_rows, replace=False) if len(index) > n_rows else index
    rows, targets = (_taken(a, index, device) for a in (X, y))
    if not (rows.isfinite().all() and targets.isfinite().all()):
        raise ValueError("X and y must be finite numbers, got NaN or infinity")
    largest = float(weight[index].max())
    share = torch.as_tensor(weight[index] / largest).to(device)  # sums neither overflow nor underflow
    rows, targets, share = _merged(rows, targets[:, None] if targets.ndim == 1 else targets, share)
    mean = float(share.mean())
    return DrawnRows(rows, targets, share / mean, mean * largest)


def are_class_codes(Y: Tensor) -> bool:
    """Whether targets are class codes: every column holds at most two values."""
    return len(Y) > 2 and all(len(column.unique()) <= 2 for column in Y.T)


def _numbers(values: Any, name: str) -> Any:
    """Real numbers as an array or a tensor, from anything array-like."""
    if isinstance(values, Tensor):
        require(not values.is_complex(), name, "real numbers", values.dtype)
        require(values.layout == torch.strided, name, "a dense tensor", values.layout)
        return values.detach()
    array = np.asarray(values)
    require(array.dtype.kind != "c", name, "real numbers", array.dtype)
    if array.dtype in (np.dtype(np.float64), np.dtype(np.float32)):  # in the machine's byte order
        return array
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be real numbers, got dtype {array.dtype}") from None


def _host(values: Any) -> np.ndarray:
    return values.cpu().double().numpy() if isinstance(values, Tensor) else values.astype(np.float64)


def _taken(values: Any, index: np.ndarray, device: torch.device | str) -> Tensor:
    part = values[torch.from_numpy(index).to(values.device)] if isinstance(values, Tensor) else values[index]
    return torch.as_tensor(part).to(device, torch.float64)


def _merged(X: Tensor, Y: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Merge duplicates into one row of their total weight."""
    inputs, targets = X.cpu().numpy(), Y.cpu().numpy()
    if not has_copies(hash_rows(inputs.T, len(inputs)), hash_targets(targets)):
        return X, Y, weight
    table, group = torch.unique(torch.cat([X, Y], 1), dim=0, return_inverse=True)
    merged = weight.new_zeros(len(table)).index_add_(0, group, weight)
    return table[:, : X.shape[1]].contiguous(), table[:, X.shape[1] :].contiguous(), merged
