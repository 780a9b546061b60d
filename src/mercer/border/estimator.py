"""What every estimator shares at the border: reading rows from anything, merging, scaling, preparing them."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, validate_data
from torch import Tensor

from mercer.data import ArrayRows, Bend, PreparedRows, RowSource, as_source, find_bend, spread_rows
from mercer.engine import Plan, reduce_rows
from mercer.parts import require, require_number, require_whole
from mercer.tuning.heavy_tails import bending_pays

__all__ = ["RowEstimator", "require_number", "require_whole"]

#: Up to this many rows, identical ones are merged into weights: a weight of 2 then *is* the row twice.
MERGED_ROWS = 10_000
#: Rows from which heavy tails are judged: where rows are merged into weights, all of them.
BEND_ROWS = 10_000


class RowEstimator(BaseEstimator):
    """Base of all estimators: a table of rows comes in as an array, frame, tensor, file or source."""

    kernel: Any
    scale_inputs: bool | str
    device: Any
    dtype: Any
    memory_limit: Any
    random_state: Any

    @property
    def _pairwise(self) -> bool:
        """Whether the columns are kernel values, which must not be scaled."""
        return False

    def _read(self, X: Any, y: Any, sample_weight: Any, **check: Any) -> tuple[RowSource, Any, np.ndarray]:
        """Rows, targets and weights as they came, checked; from arrays, frames, tensors, files or sources."""
        if isinstance(X, RowSource | str | os.PathLike):
            source = as_source(X)
            y = source.targets() if y is None else y
            require(y is not None, "y", "given, or a target column of the source", None)
            require(len(y) == source.n_rows, "y", f"of length {source.n_rows}", len(y))
            self.n_features_in_ = source.n_columns
        else:
            X, y = validate_data(self, _host(X), _host(y), dtype=[np.float64, np.float32], **check)
            source = ArrayRows(X)
        weight = _check_sample_weight(sample_weight, _like(source), dtype=np.float64)
        require(bool((weight >= 0).all()), "sample_weight", "non-negative", float(weight.min()))
        require(bool((weight > 0).any()), "sample_weight", "positive for at least one row", 0.0)
        return source, np.asarray(y), weight

    def _new_rows(self, X: Any) -> RowSource:
        """Rows to predict for, checked against those of fit."""
        if isinstance(X, RowSource | str | os.PathLike):
            source = as_source(X)
            seen, wanted = source.n_columns, self.n_features_in_
            require(seen == wanted, "the number of columns", f"{wanted} as in fit", seen)
            return source
        return ArrayRows(validate_data(self, _host(X), dtype=[np.float64, np.float32], reset=False))

    def _merge(
        self, source: RowSource, y: np.ndarray, weight: np.ndarray
    ) -> tuple[RowSource, np.ndarray, np.ndarray, np.ndarray]:
        """Drop rows of weight zero and merge identical ones; also each new row's index among the old."""
        if not isinstance(source, ArrayRows) or source.n_rows > MERGED_ROWS or self._pairwise:
            return source, y, weight, np.arange(source.n_rows)
        alive = np.flatnonzero(weight > 0)
        table = np.column_stack([source.X[alive], y.reshape(len(y), -1)[alive]]).astype(np.float64)
        _, first, group = np.unique(table, axis=0, return_index=True, return_inverse=True)
        index = alive[first]
        merged = np.bincount(group.reshape(-1), weights=weight[alive])
        return ArrayRows(source.X[index]), y[index], merged, index

    def _require_scaling(self) -> None:
        known = isinstance(self.scale_inputs, bool) or self.scale_inputs == "standard"
        require(known, "scale_inputs", "True, False or 'standard'", self.scale_inputs)

    def _bend(self, source: RowSource, Y: np.ndarray, weight: np.ndarray, plan: Plan) -> Bend | None:
        """The bend for heavy-tailed columns where held-out rows speak for it; a kernel given sees plain columns.

        Judged from at most `BEND_ROWS` rows, evenly spaced among those of positive weight.
        """
        if self.scale_inputs is not True or self._pairwise or not isinstance(self.kernel, str):
            return None
        some = spread_rows(weight, BEND_ROWS)
        sample = source.take(some).cpu(), torch.as_tensor(Y[some]), torch.as_tensor(weight[some])
        bend = find_bend(sample[0], sample[2])
        return bend if bend is not None and bending_pays(*sample, bend, plan.device) else None

    #: How heavy-tailed columns are bent before they are scaled (`mercer.data.heavy_tails`).
    input_bend_: Bend | None = None

    def _scale_columns(
        self, source: RowSource, weight: np.ndarray, plan: Plan, enabled: bool, bend: Bend | None = None
    ) -> None:
        """Weighted mean and standard deviation of each (bent) column, in one pass, taken around the first row."""
        self.input_bend_ = bend
        straight = bend if bend is not None else (lambda block: block)
        origin = straight(source.take(np.array([0])).double())[0]
        w = torch.as_tensor(weight)

        def statistic(where: slice, block: Tensor) -> Tensor:
            centred = straight(block.double().cpu()) - origin.cpu()
            return torch.stack([w[where] @ centred, w[where] @ centred.square()])

        sums = reduce_rows(source, plan, statistic).cpu() / w.sum()
        if not bool(sums.isfinite().all()):
            column = int((~sums.isfinite().all(0)).nonzero()[0, 0])
            raise ValueError(f"column {column} of the rows holds NaN or infinity; finite numbers are wanted")
        mean, variance = origin.cpu() + sums[0], sums[1] - sums[0].square()
        floor = (1e-12 * mean.abs()).square() + 1e-300  # a constant column has only rounding
        scale = torch.where(variance > floor, variance.clamp(min=0).sqrt(), 1.0)
        self.input_mean_ = mean.numpy() if enabled else np.zeros(source.n_columns)
        self.input_scale_ = scale.numpy() if enabled else np.ones(source.n_columns)

    def _standardised(self, X: np.ndarray) -> Tensor:
        """A few rows in the units the kernel sees, in float64 on the host."""
        rows = torch.as_tensor(X, dtype=torch.float64)
        rows = rows if self.input_bend_ is None else self.input_bend_(rows)
        return (rows - torch.as_tensor(self.input_mean_)) / torch.as_tensor(self.input_scale_)

    def _in_own_units(self, Z: Tensor) -> np.ndarray:
        """The inverse of `_standardised`."""
        rows = Z.double().cpu() * torch.as_tensor(self.input_scale_) + torch.as_tensor(self.input_mean_)
        return (rows if self.input_bend_ is None else self.input_bend_.inverse(rows)).numpy()

    def _prepared(self, source: RowSource, plan: Plan) -> RowSource:
        shift, scale = torch.as_tensor(self.input_mean_), torch.as_tensor(self.input_scale_)
        prepared = PreparedRows(source, plan.device, plan.dtype, shift, scale, self.input_bend_)
        held = plan.holds_rows(source.n_rows, source.n_columns)
        return prepared.in_memory(plan.chunk_rows(source.n_columns)) if held else prepared


def _like(source: RowSource) -> Any:
    """What scikit-learn's weight check needs to know of a table: its number of rows."""
    return np.empty((source.n_rows, 1), dtype=np.float32)


def _host(X: Any) -> Any:
    return X.detach().cpu().numpy() if isinstance(X, Tensor) else X
