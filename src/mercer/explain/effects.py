r"""Partial effects: the mean prediction as one input, or two, run over their values.

For a product kernel the mean over rows is taken once for all values: with the other inputs' factors averaged into
:math:`c_j = \frac1n \sum_i \prod_{d \notin C} u_d(x_{id}, z_{jd})`, the effect is
:math:`\sum_j w_j c_j \prod_{d \in C} u_d(g_d, z_{jd})`, in O(nmD) for a whole curve. Any other model predicts at each
point of the grid.
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
from mercer.engine import Plan, reduce_rows
from mercer.explain.expansions import BoundTerm, PreparedModel, names_of, plan_for, prepared
from mercer.explain.inputs import Inputs
from mercer.parts import require, require_integer

#: Rows whose values show where the data lie, and rows over which models without product kernels are averaged.
SHOWN_ROWS, PREDICTED_ROWS = 2000, 400
#: Shares of the rows left out at both ends of a grid.
TAIL = 0.01


@dataclass(frozen=True)
class PartialEffects:
    """A curve for one input, a surface for two: the mean prediction at each point of a grid."""

    names: tuple[str, ...]
    grid: tuple[np.ndarray, ...]
    values: np.ndarray  # one axis for each input, then outputs where there are several
    data: np.ndarray  # n × 1 or n × 2: where rows lie
    labels: tuple[tuple[str, ...] | None, ...] = (None, None)  # of inputs that hold levels, the names of their places


def partial_effects(model: Any, X: Any, column: Any, *, grid_size: int = 40) -> PartialEffects:
    """The mean prediction over rows `X` as one input, or a pair of them, is set to each value of a grid.

    The mean runs over all rows for models whose kernels are products over the inputs (see `shapley_values`), by kernel
    products; over 400 of them for all others. Averages are of `predict` for regressors, and of decision values for
    classifiers, or of probabilities where there are none.

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
    try:
        require(not any(map(inputs.in_a_pair, columns)), "an input", "a code of its own", "one of a place")
        coded = [inputs.coordinates(c, points[:, k]) for k, c in enumerate(columns)]
        places = [d for dimensions, _ in coded for d in dimensions]
        coordinates = np.concatenate([values for _, values in coded], 1)
        whole = prepared(model)
        products = not whole.full_metric and all(bound.term.mixture is None for bound in whole.terms)
        require(products, "a kernel", "one product", "a mixture of many, or one in a full metric")
    except ValueError:
        values = _by_predictions(model, inputs, columns, points)
    else:
        values = _by_products(whole, source, plan_for(model), places, coordinates)
    names, labels = names_of(model), tuple(inputs.labels(c) for c in columns)
    shape = tuple(map(len, grid)) + values.shape[1:]
    return PartialEffects(tuple(names[c] for c in columns), grid, values.reshape(shape), shown, labels)


def _places(model: Any, column: Any) -> list[int]:
    several = [column] if isinstance(column, str | int | np.integer) else column
    require(isinstance(several, Sequence) and len(several) in (1, 2), "column", "an input or a pair of them", column)
    names, found = names_of(model), []
    for item in several:
        if isinstance(item, str):
            require(item in names, "column", f"one of {names}", item)
            found.append(names.index(item))
            continue
        integer = isinstance(item, int | np.integer) and not isinstance(item, bool)
        inside = integer and 0 <= int(item) < len(names)
        require(inside, "column", f"a name or a place from 0 to {len(names) - 1}", item)
        found.append(int(item))
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
    whole: PreparedModel, source: RowSource, plan: Plan, columns: list[int], points: np.ndarray
) -> np.ndarray:
    """The mean prediction at each point, by kernel products."""
    total = torch.as_tensor(whole.expansion.offset, device=plan.device).repeat(len(points), 1)
    rows = source.take(np.zeros(1, dtype=int)).double().cpu().numpy().repeat(len(points), 0)
    rows[:, columns] = points
    others = [d for d in range(rows.shape[1]) if d not in columns]
    for bound in whole.terms:
        U = bound.inputs.kernel_rows(rows, plan)
        total += bound.term.variance * _effect(bound, bound.inputs.rows(source, plan), plan, U, columns, others)
    return whole.expansion.shaped(total.cpu().numpy())


def _effect(bound: BoundTerm, rows: RowSource, plan: Plan, U: Tensor, varied: list[int], others: list[int]) -> Tensor:
    """Σ_j w_j c_j Π u at the points U; of a sum over inputs, the mean of the other terms and their own."""
    if bound.term.additive:
        slope = bound.basis.T @ bound.weights  # D × p
        return U[:, varied] @ slope[varied] + _mean(rows, plan, 1, lambda X: X[:, others].sum(0) @ slope[others])
    term, Z = bound.term, bound.basis
    around = _mean(rows, plan, len(Z), lambda X: torch.exp(-term.exponents(X, Z, others)).sum(0))
    return torch.exp(-term.exponents(U, Z, varied)) @ (around[:, None] * bound.weights)


def _mean(rows: RowSource, plan: Plan, m: int, statistic: Any) -> Tensor:
    return reduce_rows(rows, plan, lambda _, block: statistic(block), plan.tile_rows(m)) / rows.n_rows


def _by_predictions(model: Any, inputs: Inputs, columns: list[int], points: np.ndarray) -> np.ndarray:
    """The mean prediction over a sample of rows, the inputs set to each point in turn."""
    require(not model._pairwise, "the kernel", "one of inputs", "precomputed")
    sample = spaced_rows(np.ones(inputs.source.n_rows), PREDICTED_ROWS)
    method = "predict" if not is_classifier(model) else "decision_function"
    predict = getattr(model, method) if hasattr(model, method) else model.predict_proba
    return np.array([np.asarray(predict(inputs.set_to(sample, columns, point))).mean(0) for point in points])
