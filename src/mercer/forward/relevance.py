r"""Relevance of columns to predictions: total-effect Sobol indices.

The total effect of column d is the variance of f that remains when all other columns are known. Jansen's estimator
takes pairs of rows x, x' and exchanges column d alone,

.. math:: T_d = \tfrac12\, E\big[(f(x) - f(x_1, \dots, x'_d, \dots, x_D))^2\big] .

It uses predictions only, so it holds for every kernel, metric and number of outputs.

Reference: M. J. W. Jansen, "Analysis of variance designs for model output", Computer Physics Communications 117 (1999).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from mercer.data import TensorRows
from mercer.engine import KernelMatrix, Plan
from mercer.forward.expansion import Expansion
from mercer.preprocessing.inputs import FARTHEST, InputMap
from mercer.preprocessing.read import TableData

#: Predictions for all columns together, and row pairs that measure a column, at least and at most.
PREDICTIONS, PAIRS = 10_000, (20, 500)
#: Numbers in the rows of one block of predictions.
BLOCK_NUMBERS = 1 << 19
#: Background rows of explanations, as many as the explainers of the package shap take.
BACKGROUND_ROWS = 100


def background_rows(data: TableData) -> np.ndarray:
    """Random rows of positive weight, the background of explanations.

    Explanations refer to the mean prediction on them.
    """
    return data.rows.fetch(data.draw(BACKGROUND_ROWS, np.random.default_rng(0))).double().cpu().numpy()


@dataclass(frozen=True)
class RowPairs:
    """Pairs of rows (positions in `rows`), with weights of pairs and outputs."""

    rows: np.ndarray  # n × D, coded
    base: np.ndarray
    donor: np.ndarray
    weight: np.ndarray
    outputs: np.ndarray | float  # p

    @classmethod
    def of(cls, data: TableData, n_pairs: int) -> RowPairs:
        """Draw about `n_pairs` pairs of different rows of positive weight; few rows are paired several times."""
        rng = np.random.default_rng(0)  # a separate stream: the fit draws the same numbers with and without it
        index = data.draw(n_pairs, rng)
        rows = data.rows.fetch(index).double().cpu().numpy()
        weight = data.pick(data.weight, index).astype(np.float64)
        n = len(index)
        order = rng.permutation(n)
        shifts = range(1, 1 + min(n - 1, max(n_pairs // n, 1)))
        base = np.tile(order, len(shifts))
        donor = np.concatenate([np.roll(order, shift) for shift in shifts]) if n > 1 else order[:0]
        weight = weight / weight.max()
        outputs = _precisions(data.pick(data.y, index)) if data.y.ndim == 2 else 1.0
        return cls(rows, base, donor, weight[base] * weight[donor], outputs)


def _precisions(Y: np.ndarray) -> np.ndarray:
    """1/variance of each output in a common unit; 0 for a constant output."""
    size = np.abs(Y).max(0, initial=np.finfo(float).tiny)
    deviation = (Y / size).std(0)
    deviation = np.where(deviation > 1e-14, deviation * (size / size.max()), np.inf)  # a constant has only rounding
    return np.square(deviation[np.isfinite(deviation)].min(initial=1.0) / deviation)


def effect_shares(expansions: Sequence[Expansion], data: TableData, plan: Plan) -> np.ndarray:
    """Share of each column of the user's table in the sum of total effects.

    Shares are non-negative and of sum 1.

    A column without any effect has exactly 0; all columns have 0 if predictions are constant. Outputs are summed in
    units of their standard deviations.
    """
    layout, D = data.layout, data.n_columns
    coordinates = [np.array([d]) if layout is None else np.flatnonzero(layout.column == d) for d in range(D)]
    pairs = RowPairs.of(data, int(np.clip(PREDICTIONS / D, *PAIRS)))
    total = _total_effects(expansions, pairs, coordinates, plan)
    largest = total.max(initial=0.0)
    return total / largest / (total / largest).sum() if largest > 0 else total


def _total_effects(
    expansions: Sequence[Expansion], pairs: RowPairs, coordinates: Sequence[np.ndarray], plan: Plan
) -> np.ndarray:
    """T_d of columns, each given by its coordinates."""
    if not len(pairs.base):
        return np.zeros(len(coordinates))
    changes = np.sum([_changes(expansion, pairs, coordinates, plan) for expansion in expansions], axis=0)
    squares = (np.square(changes) * pairs.outputs).sum(2)
    return squares @ pairs.weight / (2 * max(pairs.weight.sum(), np.finfo(float).tiny))


def _changes(expansion: Expansion, pairs: RowPairs, coordinates: Sequence[np.ndarray], plan: Plan) -> np.ndarray:
    """Changes of f if a column of the base row takes the donor's value.

    They are columns × pairs × outputs.

    Rows that do not change in the kernel's coordinates are not predicted: their change is exactly 0, without rounding.
    """
    plan = replace(plan, dtype=getattr(torch, expansion.dtype))
    W, Z = torch.as_tensor(expansion.weights), torch.as_tensor(expansion.basis).to(plan.device, plan.dtype)
    exchange = ColumnExchange.of(expansion.inputs, pairs)
    limit = FARTHEST[plan.dtype]

    def f(rows: Tensor) -> np.ndarray:
        clipped = TensorRows(rows.clamp_(-limit, limit).to(plan.device, plan.dtype))
        return KernelMatrix(clipped, expansion.kernel, Z, plan).product(W).double().cpu().numpy()

    before = f(exchange.start.clone())[pairs.base]
    changes = np.zeros((len(coordinates), *before.shape))
    n_columns = max(BLOCK_NUMBERS // (len(before) * max(Z.shape[1], 1)), 1)
    for first in range(0, len(coordinates), n_columns):
        changed = [exchange.changed(columns) for columns in coordinates[first : first + n_columns]]
        positions = np.concatenate([at for at, _ in changed])
        if len(positions):
            column = np.repeat(np.arange(first, first + len(changed)), [len(at) for at, _ in changed])
            changes[column, positions] = f(torch.cat([rows for _, rows in changed])) - before[positions]
    return changes


@dataclass(frozen=True)
class ColumnExchange:
    """Row pairs in the kernel's coordinates, with one column exchanged.

    Columns are mapped one by one before the transform, so a change of one column is mapped without the others.
    """

    pairs: RowPairs
    start: Tensor  # the rows, mapped and transformed
    difference: Tensor  # donor minus base of each pair, mapped but not transformed
    transform: Tensor | None

    @classmethod
    def of(cls, inputs: InputMap, pairs: RowPairs) -> ColumnExchange:
        mapped = replace(inputs, transform=None).encode(torch.as_tensor(pairs.rows))
        A = None if inputs.transform is None else torch.as_tensor(inputs.transform)
        start = mapped if A is None else mapped * A if A.ndim == 1 else mapped @ A.T
        return cls(pairs, start, mapped[pairs.donor] - mapped[pairs.base], A)

    def changed(self, columns: np.ndarray) -> tuple[np.ndarray, Tensor]:
        """Pairs that differ in these coordinates, and their base rows with the donors' values there."""
        difference, A = self.difference[:, columns], self.transform
        if A is not None and A.ndim == 2:
            step = difference @ A[:, columns].T
            positions = (step != 0).any(1).nonzero()[:, 0].numpy()
            return positions, self.start[self.pairs.base[positions]] + step[positions]
        step = difference if A is None else difference * A[columns]
        positions = (step != 0).any(1).nonzero()[:, 0].numpy()
        rows = self.start[self.pairs.base[positions]]
        rows[:, columns] += step[positions]  # tables of thousands of columns spend their time on copies of these rows
        return positions, rows
