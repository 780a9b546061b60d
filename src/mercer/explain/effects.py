r"""Partial effects: what a model says on average as one input, or two, run over their values.

For a product kernel the mean over rows is taken once for all values: with the other inputs' factors averaged into
:math:`c_j = \frac1n \sum_i \prod_{d \notin C} u_d(x_{id}, z_{jd})`, the effect is
:math:`\sum_j w_j c_j \prod_{d \in C} u_d(g_d, z_{jd})`, in O(nmD) for a whole curve. Any other model is asked row by
row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mercer.data import RowSource, spaced_rows
from mercer.engine import Plan, each_block
from mercer.explain.expansions import Expanded, Piece, names_of, plan_for, prepared
from mercer.explain.inputs import Inputs
from mercer.parts import require, require_integer

#: Rows whose values show where the data lie, and rows that a model without product kernels is asked about.
SHOWN_ROWS, ASKED_ROWS = 2000, 400
#: Shares of the rows left out at both ends of a grid.
TAIL = 0.01


@dataclass(frozen=True)
class PartialEffects:
    """A curve for one input, a surface for two: the mean answer at each point of a grid."""

    names: tuple[str, ...]
    grid: tuple[np.ndarray, ...]
    values: np.ndarray  # one axis for each input, then outputs where there are several
    data: np.ndarray  # n × 1 or n × 2: where rows lie
    labels: tuple[tuple[str, ...] | None, ...] = (None, None)  # of inputs that hold levels, the names of their places


def partial_effects(model: Any, X: Any, column: Any, *, grid_size: int = 40) -> PartialEffects:
    """What a model says on average over rows `X` as one input, or a pair of them, is set to each value of a grid.

    The mean runs over all rows for models whose kernels are products over the inputs (see `shapley_values`), by kernel
    products; over 400 of them for all others. Of regressors `predict` is averaged, of classifiers the decision values,
    or probabilities where there are none.

    Parameters
    ----------
    model : estimator
        Any fitted regressor or classifier of this package.
    X : array, frame, tensor, file or row source of n rows
        Rows over which is averaged.
    column : int, str or a pair of them
        The input that is varied, by place or by name.
    grid_size : int, default 40
        Points of the grid for one input (at most: the values themselves where they are fewer); half as many along
        either side for two.

    Returns
    -------
    PartialEffects
        `names`, `grid`, `values` and `data`.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import KernelBoostingRegressor, partial_effects
    >>> X = np.random.default_rng(0).uniform(-1, 1, (200, 2))
    >>> model = KernelBoostingRegressor(kernel="gaussian", random_state=0).fit(X, X[:, 0] ** 2 + X[:, 1])
    >>> found = partial_effects(model, X, 0)
    >>> bool(found.values[0] > found.values[20]), found.grid[0].shape
    (True, (40,))
    """
    check_is_fitted(model)
    require_integer("grid_size", grid_size, 2)
    inputs = Inputs.of(model, X)
    source, columns = inputs.source, _places(model, column)
    shown = inputs.values(spaced_rows(np.ones(source.n_rows), SHOWN_ROWS), columns)
    size = grid_size if len(columns) == 1 else max(grid_size // 2, 2)
    grid = tuple(_grid(shown[:, k], size) for k in range(len(columns)))
    points = np.array(list(product(*grid)))
    coded = [inputs.coordinates(c, points[:, k]) for k, c in enumerate(columns)]
    places, coordinates = [d for some, _ in coded for d in some], np.concatenate([part for _, part in coded], 1)
    try:
        whole = prepared(model)
        products = not whole.tied and all(one.term.mixture is None for one in whole.parts)
        require(products, "a kernel", "one product", "a mixture of many, or one in a full metric")
    except ValueError:
        values = _asked(model, inputs, columns, points)
    else:
        values = _by_products(whole.told, whole.parts, source, plan_for(model), places, coordinates)
    names, labels = names_of(model), tuple(inputs.labels(c) for c in columns)
    shape = tuple(len(one) for one in grid) + values.shape[1:]
    return PartialEffects(tuple(names[c] for c in columns), grid, values.reshape(shape), shown, labels)


def _places(model: Any, column: Any) -> list[int]:
    several = [column] if isinstance(column, str | int | np.integer) else column
    require(isinstance(several, Sequence) and len(several) in (1, 2), "column", "an input or a pair of them", column)
    names, found = names_of(model), []
    for one in several:
        if isinstance(one, str):
            require(one in names, "column", f"one of {names}", one)
            found.append(names.index(one))
            continue
        whole = isinstance(one, int | np.integer) and not isinstance(one, bool)
        require(whole and 0 <= int(one) < len(names), "column", f"a name or a place from 0 to {len(names) - 1}", one)
        found.append(int(one))
    require(len(set(found)) == len(found), "column", "two different inputs", column)
    return found


def _grid(values: np.ndarray, size: int) -> np.ndarray:
    """The values themselves where they are few, else even steps between their outer quantiles."""
    values = values[~np.isnan(values)]
    distinct = np.unique(values)
    if len(distinct) <= size:
        return distinct
    low, high = np.quantile(values, [TAIL, 1 - TAIL])
    low, high = (low, high) if high > low else (distinct[0], distinct[-1])
    return np.linspace(low, high, size)


def _by_products(
    told: Expanded, parts: list[Piece], source: RowSource, plan: Plan, columns: list[int], points: np.ndarray
) -> np.ndarray:
    total = torch.as_tensor(told.offset, device=plan.device).repeat(len(points), 1)
    some = source.take(np.zeros(1, dtype=int)).double().cpu().numpy().repeat(len(points), 0)
    some[:, columns] = points
    for one in parts:
        U = one.inputs.few(some, plan)
        others = [d for d in range(some.shape[1]) if d not in columns]
        total += one.term.variance * _effect(one, one.inputs.rows(source, plan), plan, U, columns, others)
    return told.shaped(total.cpu().numpy())


def _effect(one: Piece, rows: RowSource, plan: Plan, U: Tensor, varied: list[int], others: list[int]) -> Tensor:
    """Σ_j w_j c_j Π u at the points U; of a sum over inputs, the mean of the other terms and their own."""
    if one.term.additive:
        slope = one.basis.T @ one.weights  # D × p
        return U[:, varied] @ slope[varied] + _mean(rows, plan, 1, lambda X: X[:, others].sum(0) @ slope[others])
    around = _mean(rows, plan, len(one.basis), lambda X: torch.exp(-one.term.exponents(X, one.basis, others)).sum(0))
    return torch.exp(-one.term.exponents(U, one.basis, varied)) @ (around[:, None] * one.weights)


def _mean(rows: RowSource, plan: Plan, m: int, statistic: Any) -> Tensor:
    sums: list[Tensor] = []
    each_block(rows, plan, plan.tile_rows(m), lambda where, block: sums.append(statistic(block)))
    return torch.stack(sums).sum(0) / rows.n_rows


def _asked(model: Any, inputs: Inputs, columns: list[int], points: np.ndarray) -> np.ndarray:
    """The mean answer over some rows, the inputs set to each point in turn."""
    require(not model._pairwise, "the kernel", "one of inputs", "precomputed")
    some = spaced_rows(np.ones(inputs.source.n_rows), ASKED_ROWS)
    named = "predict" if not is_classifier(model) else "decision_function"
    answer = getattr(model, named) if hasattr(model, named) else model.predict_proba
    return np.array([np.asarray(answer(inputs.set_to(some, columns, point))).mean(0) for point in points])
