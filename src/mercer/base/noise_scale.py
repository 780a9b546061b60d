"""A local scale of residuals, by which intervals are wider where rows are few or noisy.

Ridge regression predicts the logarithm of the size of residuals from these features: the prediction and its square,
since noise often grows with the level; the distance to the nearest of a hundred centres, since residuals are larger
where rows are few; Gaussians around these centres, as the kernel sees them; and piecewise linear functions of single
columns of the table, since noise may depend on columns that the mean ignores. Scores use cross-fitted scales, so that
coverage is kept. Where the scale does not pay on these rows, one scale serves all (docs/ablations.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.data import RowSource, spaced_rows
from mercer.engine import Plan, each_block
from mercer.linalg import exact_distances
from mercer.preprocessing.inputs import InputMap

#: Most centres, and rows per centre; tables of fewer than ten centres get one scale.
CENTRES, ROWS_PER_CENTRE = 100, 10
#: Most columns as features, those by which residuals differ most; none of tables wider than the second number.
COLUMNS, WIDE = 8, 500
#: Knots of the function of a column, at quantiles.
KNOTS = 9
#: Folds of the cross-fitted scales.
FOLDS = 5
#: Share of the variance of the logarithms that a local scale must explain on held-out rows.
LEAST_GAIN = 0.01
#: Residuals below this share of their median count as that, since the logarithm of zero is infinite.
FLOOR = 0.02
#: Candidate penalties, per row.
PENALTIES = 10.0 ** np.arange(-3.5, 1.1, 0.5)
#: Most by which the logarithm of a scale at new rows exceeds those of the fitted rows.
BEYOND = 1.0


@dataclass(frozen=True)
class LocalScale:
    """A fitted local scale; features are standardised, `weights` has a column for each output."""

    centres: np.ndarray  # c × D, as the kernel sees rows
    unit: float  # the median distance between them
    level: np.ndarray  # mean and deviation of predictions, 2 × p
    middle: np.ndarray  # of features, k × p
    width: np.ndarray
    weights: np.ndarray
    lowest: np.ndarray  # logarithms of scales at the fitted rows, p
    highest: np.ndarray
    columns: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # of the table, that are features
    knots: np.ndarray = field(default_factory=lambda: np.empty((0, KNOTS)))  # of these columns, a row each

    def at(self, rows: np.ndarray, values: np.ndarray, table: np.ndarray | None = None) -> np.ndarray:
        """The scale at rows with these predictions, n × p; `table` has their coordinates in the table."""
        table = np.empty((len(rows), 0)) if table is None else table[:, self.columns]
        around = _around(rows, self.centres, self.unit)
        features = _ScaleFeatures(around, _positions(table, self.knots), values, self.level)
        out = np.empty_like(values)
        for k in range(values.shape[1]):
            phi = (features.at(k) - self.middle[:, k]) / self.width[:, k]
            out[:, k] = np.clip(phi @ self.weights[:, k], self.lowest[k], self.highest[k] + BEYOND)
        return np.exp(out)

    def at_rows(self, rows: RowSource, inputs: InputMap, values: np.ndarray, plan: Plan) -> np.ndarray:
        """The scale at all rows of a source, block by block; `inputs` maps them to what the kernel sees."""
        out = np.empty_like(values)

        def visit(where: slice, block: Tensor) -> None:
            seen = inputs.kernel_rows(block, plan).double().cpu().numpy()
            out[where] = self.at(seen, values[where], block.double().cpu().numpy())

        each_block(rows, plan, plan.tile_rows(len(self.centres)), visit)
        return out


@dataclass(frozen=True)
class _ScaleFeatures:
    """The features of a scale; only the level differs between outputs."""

    around: np.ndarray
    positions: np.ndarray  # of columns between their knots, n × D
    values: np.ndarray
    level: np.ndarray

    def at(self, k: int, columns: Any = slice(None)) -> np.ndarray:
        """The features of output `k` with these columns."""
        z = np.clip((self.values[:, k] - self.level[0, k]) / self.level[1, k], -1e3, 1e3)
        return np.column_stack([self.around, _tents(self.positions[:, columns]), z, z**2])


def fit_local_scale(
    rows: np.ndarray,
    values: np.ndarray,
    residuals: np.ndarray,
    weight: np.ndarray,
    table: np.ndarray | None = None,
    folds: np.ndarray | None = None,
) -> tuple[LocalScale | None, np.ndarray]:
    """Fit a local scale, and return it with the cross-fitted scale of each row (n × p).

    Returns None and ones where one scale is enough. `rows` are as the kernel sees them, `table` has their coordinates
    in the table. `folds` numbers the folds of the cross-fitted scales, which are random otherwise.
    """
    constant = None, np.ones_like(residuals)
    index = spaced_rows(weight, min(CENTRES, int((weight > 0).sum()) // ROWS_PER_CENTRE))
    if len(index) < ROWS_PER_CENTRE:
        return constant
    centres = rows[index]
    unit = float(torch.pdist(torch.as_tensor(centres)).median())
    floor = FLOOR * np.median(np.abs(residuals), axis=0)
    if not (np.isfinite(unit) and unit > 0 and bool((floor > 0).all()) and np.isfinite(residuals).all()):
        return constant
    table = np.empty((len(rows), 0)) if table is None or table.shape[1] > WIDE else table
    knots = _knots(table[weight > 0])
    level = np.stack([values.mean(0), values.std(0) + np.finfo(float).tiny])
    features = _ScaleFeatures(_around(rows, centres, unit), _positions(table, knots), values, level)
    w = weight / weight[weight > 0].mean()
    logs = np.log(np.abs(residuals) + floor)
    folds = np.random.default_rng(0).permutation(len(logs)) % FOLDS if folds is None else folds
    held_out = _cross_fitted(features, logs, w, folds)
    centred = logs - np.average(logs, axis=0, weights=w)
    if not (w @ (centred - held_out) ** 2 < (1 - LEAST_GAIN) * (w @ centred**2)).any():
        return constant
    columns = _leading(features.positions, logs, w)
    fits = [_ridge(features.at(k, columns), len(centres), logs[:, k], w) for k in range(values.shape[1])]
    middle, width, weights = (np.stack(part, 1) for part in zip(*fits, strict=True))
    seen = held_out[weight > 0]
    ends = seen.min(0), seen.max(0)
    return LocalScale(centres, unit, level, middle, width, weights, *ends, columns, knots[columns]), np.exp(held_out)


def _cross_fitted(features: _ScaleFeatures, logs: np.ndarray, w: np.ndarray, folds: np.ndarray) -> np.ndarray:
    """Logarithms of scales about their mean, of each fold by the rows of the other folds, n × p."""
    held_out = np.zeros_like(logs)
    for fold in range(FOLDS):
        test = folds == fold
        known = np.where(test, 0.0, w)
        if not known.any():
            continue
        columns = _leading(features.positions, logs, known)
        for k in range(logs.shape[1]):
            phi = features.at(k, columns)
            middle, width, weights = _ridge(phi, features.around.shape[1] - 1, logs[:, k], known)
            t = logs[~test, k] - np.average(logs[:, k], weights=known)
            held_out[test, k] = ((phi[test] - middle) / width @ weights).clip(t.min(), t.max())
    return held_out


def _knots(table: np.ndarray) -> np.ndarray:
    """Quantiles of each column, D × K."""
    return np.quantile(table, np.linspace(0, 1, KNOTS), axis=0).T if table.shape[1] else np.empty((0, KNOTS))


def _positions(table: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Positions of values among the knots of their column, 0 to K − 1; at repeated knots the middle of these.

    >>> _positions(np.array([[0.0], [0.5], [1.0], [9.0]]), np.array([[0.0, 1.0, 1.0, 2.0]]))[:, 0].tolist()
    [0.0, 0.5, 1.5, 3.0]
    """
    total = np.zeros(table.shape)
    for low, high in zip(knots.T[:-1], knots.T[1:], strict=True):
        step = np.where(high > low, high - low, 1.0)
        inside = np.clip((table - low) / step, 0.0, 1.0)
        total += np.where(high > low, inside, 0.5 * (1 + np.sign(table - low)))
    return total


def _tents(positions: np.ndarray) -> np.ndarray:
    """Piecewise linear basis: a tent function around each knot of each column, n × (m · K)."""
    tents = np.maximum(1 - np.abs(positions[:, :, None] - np.arange(KNOTS)), 0.0)
    return tents.reshape(len(positions), -1)


def _leading(positions: np.ndarray, logs: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The sorted columns that explain most of the logarithms by means near each knot."""
    D = positions.shape[1]
    if D <= COLUMNS:
        return np.arange(D)
    t = logs - np.average(logs, axis=0, weights=w)
    near = np.rint(positions).astype(int)
    explained = np.zeros(D)
    for j in range(D):
        mass = np.bincount(near[:, j], weights=w, minlength=KNOTS)
        for k in range(t.shape[1]):
            sums = np.bincount(near[:, j], weights=w * t[:, k], minlength=KNOTS)
            explained[j] += (sums**2 / (mass + 1)).sum()
    return np.sort(np.argsort(-explained, kind="stable")[:COLUMNS])


def _around(rows: np.ndarray, centres: np.ndarray, unit: float) -> np.ndarray:
    """Gaussians around the centres, and the log distance to the nearest centre that is not the row itself."""
    distance = exact_distances(torch.as_tensor(rows), torch.as_tensor(centres)).numpy() / unit
    two = np.partition(distance, 1, axis=1)[:, :2]
    nearest = np.where(two[:, 0] < 1e-9, two[:, 1], two[:, 0])
    return np.column_stack([np.exp(-0.5 * np.minimum(distance, 40.0) ** 2), np.log(nearest + 1e-3)])


def _ridge(phi: np.ndarray, n_centres: int, logs: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, ...]:
    """Mean, width and weights of features by ridge regression of the centred logarithms.

    The penalty has the least leave-one-out error (closed form). All Gaussians together are scaled as one feature, and
    so are the tents of a column.
    """
    n = int((w > 0).sum())
    middle, t = np.average(phi, axis=0, weights=w), logs - np.average(logs, weights=w)
    centred = phi - middle
    width = np.sqrt(np.average(centred**2, axis=0, weights=w))
    starts = [0, *range(n_centres + 1, phi.shape[1] - 2, KNOTS)]
    for start, stop in zip(starts, [n_centres, *(s + KNOTS for s in starts[1:])], strict=True):
        width[start:stop] = np.sqrt((width[start:stop] ** 2).sum())
    width[width < 1e-12] = 1.0
    root = np.sqrt(w)[:, None]
    A = root * centred / width
    squares, V = np.linalg.eigh(A.T @ A)
    squares = np.maximum(squares, 0.0)
    projected, inner = A @ V, V.T @ (A.T @ (root[:, 0] * t))
    best = np.inf, np.zeros(phi.shape[1])
    for penalty in n * PENALTIES:
        inverse = 1 / (squares + penalty)
        h = np.minimum(projected**2 @ inverse + w / w.sum(), 0.99)
        residual = (root[:, 0] * t - projected @ (inverse * inner)) / (1 - h)  # weighted, leave-one-out
        error = float(residual @ residual)
        if error < best[0]:
            best = error, V @ (inverse * inner)
    return middle, width, best[1]
