"""What all estimators share at the border: reading and scaling inputs, tuning the kernel, predicting.

An estimator validates, assembles a `Problem`, calls one function and stores what it returns.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor

from mercer.component import require
from mercer.engine import KernelMatrix, Plan, make_plan, reduce_rows
from mercer.forward.problem import Problem
from mercer.kernels import Kernel, Precomputed, as_kernel
from mercer.losses import Loss, Squared
from mercer.sources import ArrayRows, PreparedRows, RowSource, TensorRows, as_source
from mercer.tuning import tune_kernel, tune_noise

#: Noiseless targets tune the penalty to nearly zero; below this, of unit variance, float32 tiles only add noise.
FLOAT32_PENALTY = 1e-4
#: Up to this many rows, identical ones are merged into weights: a weight of 2 then *is* the row twice.
MERGED_ROWS = 10_000


class KernelEstimator(BaseEstimator):
    """Base of the estimators that end as a short kernel expansion ``K(X, basis_) @ dual_coef_``."""

    kernel: Any
    regularization: Any
    tuning_rows: int
    scale_inputs: bool
    device: Any
    dtype: Any
    memory_limit: Any
    random_state: Any

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = isinstance(self.kernel, Precomputed) or self.kernel == "precomputed"
        return tags

    def _require_parameters(self) -> None:
        """Refuse parameters out of range, before any data is looked at."""
        require_whole("tuning_rows", self.tuning_rows, 2)
        if isinstance(self.regularization, str):
            require(self.regularization == "auto", "regularization", "'auto' or a number", self.regularization)
        else:
            require_number("regularization", self.regularization, "'auto' or a number of at least 0", 0.0)

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

    def _merge(
        self, source: RowSource, y: np.ndarray, weight: np.ndarray
    ) -> tuple[RowSource, np.ndarray, np.ndarray, np.ndarray]:
        """Drop rows of weight zero and merge identical ones; also each new row's index among the old."""
        pairwise = self.__sklearn_tags__().input_tags.pairwise
        if not isinstance(source, ArrayRows) or source.n_rows > MERGED_ROWS or pairwise:
            return source, y, weight, np.arange(source.n_rows)
        alive = np.flatnonzero(weight > 0)
        table = np.column_stack([source.X[alive], y.reshape(len(y), -1)[alive]]).astype(np.float64)
        _, first, group = np.unique(table, axis=0, return_index=True, return_inverse=True)
        index = alive[first]
        merged = np.bincount(group.reshape(-1), weights=weight[alive])
        return ArrayRows(source.X[index]), y[index], merged, index

    def _problem(self, source: RowSource, Y: np.ndarray, weight: np.ndarray, loss: Loss | None = None) -> Problem:
        """Plan, scale and tune: everything an algorithm needs, from numeric targets `Y` (n × p)."""
        rng = check_random_state(self.random_state)
        plan = make_plan(source.n_rows, self.device, self.dtype, self.memory_limit)
        pairwise = self.__sklearn_tags__().input_tags.pairwise
        self._scale_columns(source, weight, plan, enabled=self.scale_inputs and not pairwise)
        self.dtype_ = str(plan.dtype).removeprefix("torch.")
        rows = self._prepared(source, plan)
        began = time.perf_counter()
        self._tune(rows, Y, weight, plan, rng)
        self.tuning_seconds_ = time.perf_counter() - began
        as_vector: dict[str, Any] = {"device": plan.device, "dtype": plan.dtype}
        return Problem(
            rows=rows,
            y=torch.as_tensor(Y, **as_vector),
            kernel=self.kernel_,
            lam=self.regularization_,
            plan=plan,
            weight=torch.as_tensor(weight, **as_vector),
            loss=loss or Squared(),
        )

    def _steadied(self, problem: Problem) -> Problem:
        """The problem with a tuned penalty raised to what float32 tiles can resolve; one given stays as it is."""
        if self.regularization != "auto" or problem.plan.dtype != torch.float32 or problem.lam >= FLOAT32_PENALTY:
            return problem
        self.regularization_ = FLOAT32_PENALTY
        return replace(problem, lam=FLOAT32_PENALTY)

    def _scale_columns(self, source: RowSource, weight: np.ndarray, plan: Plan, enabled: bool) -> None:
        """Weighted mean and standard deviation of each column, in one pass, taken around the first row."""
        origin = source.take(np.array([0]))[0].double()
        w = torch.as_tensor(weight)

        def statistic(where: slice, block: Tensor) -> Tensor:
            centred = block.double().cpu() - origin.cpu()
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

    def _prepared(self, source: RowSource, plan: Plan) -> RowSource:
        shift, scale = torch.as_tensor(self.input_mean_), torch.as_tensor(self.input_scale_)
        prepared = PreparedRows(source, plan.device, plan.dtype, shift, scale)
        held = plan.holds_rows(source.n_rows, source.n_columns)
        return prepared.in_memory(plan.chunk_rows(source.n_columns)) if held else prepared

    def _tune(self, rows: RowSource, Y: np.ndarray, weight: np.ndarray, plan: Plan, rng: Any) -> None:
        """Set `kernel_` and `regularization_`: tuned where the user left them open, else as given."""
        fixed = not isinstance(self.kernel, str) or self.kernel == "precomputed"
        automatic = isinstance(self.regularization, str)
        alive = np.flatnonzero(weight > 0)
        chosen = alive if len(alive) <= self.tuning_rows else rng.choice(alive, self.tuning_rows, replace=False)
        sample = rows.take(chosen), torch.as_tensor(Y[chosen])
        options: dict[str, Any] = {"sample_weight": weight[chosen], "device": plan.device}
        self.kernel_: Kernel
        if fixed:
            self.kernel_ = as_kernel(self.kernel)
            noise = tune_noise(self.kernel_, *sample, **options) if automatic else self.regularization
        else:
            tuned = tune_kernel(*sample, self.kernel, n_rows=self.tuning_rows, max_iter=50, random_state=rng, **options)
            self.kernel_, noise = tuned.kernel, tuned.noise if automatic else self.regularization
        self.regularization_ = float(noise)

    def _store(self, source: RowSource, chosen: Tensor, weights: Tensor, original: np.ndarray) -> None:
        """Keep the expansion as arrays, in the inputs' own units."""
        index = chosen.cpu().numpy()
        self.basis_ = source.take(index).cpu().numpy()
        self.basis_indices_ = original[index]
        self.dual_coef_ = weights.cpu().numpy()

    def _values(self, X: Any, weights: np.ndarray | None = None, basis: np.ndarray | None = None) -> np.ndarray:
        """K(X, basis) @ weights in float64 (n × p) for new rows; `basis_` and `dual_coef_` unless told otherwise."""
        check_is_fitted(self)
        if isinstance(X, RowSource | str | os.PathLike):
            source = as_source(X)
            seen, wanted = source.n_columns, self.n_features_in_
            require(seen == wanted, "the number of columns", f"{wanted} as in fit", seen)
        else:
            source = ArrayRows(validate_data(self, _host(X), dtype=[np.float64, np.float32], reset=False))
        plan = make_plan(source.n_rows, self.device, self.dtype_, self.memory_limit)
        if self.__sklearn_tags__().input_tags.pairwise:
            source = with_index(source)
        basis = self.basis_ if basis is None else basis
        Z = self._prepared(ArrayRows(basis), plan).take(np.arange(len(basis)))
        coef = torch.as_tensor(self.dual_coef_ if weights is None else weights)
        K = KernelMatrix(self._prepared(source, plan), self.kernel_, Z.to(plan.device, plan.dtype), plan)
        return K.product(coef).double().cpu().numpy()


def require_whole(parameter: str, value: Any, least: int = 1) -> None:
    """Refuse what is not a whole number of at least `least`."""
    good = isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least
    require(good, parameter, f"a whole number of at least {least}", value)


def require_number(parameter: str, value: Any, wanted: str, low: float, high: float = float("inf")) -> None:
    """Refuse what is not a number from `low` (inclusive) to `high` (exclusive)."""
    require(isinstance(value, Real) and low <= float(value) < high, parameter, wanted, value)


def _like(source: RowSource) -> Any:
    """What scikit-learn's weight check needs to know of a table: its number of rows."""
    return np.empty((source.n_rows, 1), dtype=np.float32)


def _host(X: Any) -> Any:
    return X.detach().cpu().numpy() if isinstance(X, Tensor) else X


def with_index(source: RowSource) -> TensorRows:
    """Rows of a precomputed kernel with their own index as a last column (see `Precomputed`)."""
    rows = source.take(np.arange(source.n_rows))
    return TensorRows(torch.cat([rows, torch.arange(source.n_rows)[:, None].to(rows)], 1))
