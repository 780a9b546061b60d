r"""Exact Shapley values of product kernels: what each input adds to a prediction, without sampling.

An input outside a set S is removed from a product kernel :math:`\prod_d u_d` by setting its factor to one. The
Shapley value of input i then is

.. math:: (u_i - 1) \sum_{S \not\ni i} \frac{|S|!\,(D - |S| - 1)!}{D!} \prod_{d \in S} u_d
    = (u_i - 1) \int_0^1 \prod_{d \ne i} (1 - t + t u_d)\, dt,

and since the integrand is a polynomial of degree D − 1 in t, Gauss' rule with ⌈D/2⌉ points is exact. All its factors
lie between 0 and 1 for kernels that do, so nothing cancels, whatever the factors are: products without one factor are
products divided by it, which is at least 1 − t > 0.

A Matérn or rational quadratic kernel is a mixture of Gaussians, and its values are that mixture of theirs: the kernel
without some inputs is a function of the distance along the others. Each is a weighted mean of differences of two
kernel values, so a mixture that is off by at most ε (`mercer.explain.terms`) gives values off by 2ε.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.data import RowSource
from mercer.engine import Plan, each_block
from mercer.explain.expansions import (
    BoundTerm,
    PreparedModel,
    expansion_of,
    names_of,
    plan_for,
    prepared,
    training_mean,
)
from mercer.explain.inputs import Inputs
from mercer.explain.products import term_shapley
from mercer.explain.subsets import FullMetricExpansion
from mercer.explain.terms import diagonal_of, terms_of
from mercer.preprocessing.inputs import EncodedRows

#: Elements of a tile (rows × basis vectors) of one input on a CPU; on a GPU as many as fill it.
ELEMENTS = (1 << 14, 1 << 22)
#: Rows of a block in a full metric, where all subsets of inputs are evaluated.
SUBSET_ROWS = 256


@dataclass(frozen=True)
class ShapleyValues:
    """The part of each input in each prediction; `base_values` and all values of a row sum to the prediction.

    `to_shap` gives a `shap.Explanation`, which pictures of that package take.
    """

    values: np.ndarray  # n × D, or n × D × p
    base_values: Any  # a number, or p
    data: np.ndarray  # n × D, with names where there are levels
    feature_names: list[str]

    def predictions(self) -> np.ndarray:
        """The model's predictions: the base plus what all inputs add to it."""
        return self.base_values + self.values.sum(1)

    def to_shap(self) -> Any:
        """These values as a `shap.Explanation`, for the pictures of the package `shap`, which has to be installed."""
        try:
            shap = import_module("shap")
        except ImportError as error:
            raise ImportError("to_shap needs the package shap, which is not installed: pip install shap") from error
        base = np.broadcast_to(self.base_values, (len(self.values), *np.shape(self.base_values)))
        return shap.Explanation(
            self.values, base_values=base.copy(), data=self.data, feature_names=list(self.feature_names)
        )

    def centred(self) -> ShapleyValues:
        """Centre on the mean of the rows explained: the base is their mean prediction, and sums still hold."""
        mean = self.values.mean(0)
        base = self.base_values + mean.sum(0)
        return ShapleyValues(self.values - mean, _number(base), self.data, self.feature_names)


def shapley_values(model: Any, X: Any, background: Any = "training") -> ShapleyValues:
    """Exact Shapley values of the predictions at rows `X`, for models whose kernels are products over the inputs.

    An input that is removed no longer tells rows apart: its factor in the kernel is one, as if it were equal to that
    of every basis vector. So nothing is sampled; the cost is O(D²) for each row and basis vector. By default the mean
    values of training rows are subtracted, as other explainers do: `base_values` is then the mean prediction, and a
    value says what an input adds beside its average. Both sum to the prediction. The first call also explains the
    training rows that the model keeps (`background_`). Matérn and
    rational quadratic kernels are sums of 50 to 90 products, to 1e-10 of the sum of all weights, and
    take as much longer. In a full metric all 2^D sets of inputs are evaluated.

    Explained are, for regressors, `predict`, in the targets' units; for classifiers the decision values
    (`decision_function`), of `SparseGPClassifier` the mean of the latent functions. Values are not probabilities.

    Parameters
    ----------
    model : estimator
        Fitted; boosted, greedy, a sparse Gaussian process or an `RPEMEKLRegressor`. Kernels are Gaussian, Laplacian,
        Matérn, rational quadratic, separable with p = q, linear, or sums, products and multiples of these, in no metric
        or a diagonal one; up to 12 inputs, radial ones in a full metric too. Others are refused.
    X : array, frame, tensor, file or row source of n rows
        Rows to explain.
    background : "training", None, or rows like `X`, default "training"
        The rows whose mean prediction is the base: up to 100 training rows (basis vectors where the model keeps none),
        or rows given. None: the base is the prediction without any input, which may lie far from all data.

    Returns
    -------
    ShapleyValues
        `values` (n × D, or n × D × p for several outputs or classes), `base_values`, `data` and `feature_names`, for
        the D columns of the user's table, whatever coordinates they became.

    References
    ----------
    M. Mohammadi and others, "Computing exact Shapley values for product-kernel methods" (2025), for the game; the
    integral is Owen's multilinear extension.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import KernelBoostingRegressor, shapley_values
    >>> X = np.random.default_rng(0).uniform(-1, 1, (200, 3))
    >>> model = KernelBoostingRegressor(kernel="gaussian", random_state=0).fit(X, np.sin(3 * X[:, 0]) + X[:, 1])
    >>> found = shapley_values(model, X[:5])
    >>> found.values.shape, bool(np.allclose(found.predictions(), model.predict(X[:5])))
    ((5, 3), True)
    >>> bool(abs(found.base_values - model.predict(X).mean()) < 0.2)
    True
    """
    whole, inputs, plan = prepared(model), Inputs.of(model, X), plan_for(model)
    expansion, base = whole.expansion, whole.base
    values = _of_rows(whole, inputs.source, plan)
    if background is not None:
        if isinstance(background, str) and background == "training":
            mean = training_mean(model, lambda rows: _of_rows(whole, rows, plan))
        else:
            mean = _of_rows(whole, Inputs.of(model, background).source, plan).mean(0)
        values, base = values - mean, base + mean.sum(0)
    if inputs.constants is not None and len(values):  # they add the same to all rows
        held = torch.as_tensor(inputs.constants.columns, device=values.device)
        base = base + values[0, held].sum(0)
        values[:, held] = 0.0
    base_values = _number(expansion.shaped(base.cpu().numpy().copy()))
    return ShapleyValues(expansion.shaped(values.cpu().numpy()), base_values, inputs.named(), names_of(model))


def _of_rows(whole: PreparedModel, source: RowSource, plan: Plan) -> Tensor:
    """Shapley values of rows as the model reads them, not centred: n × D × p."""
    groups = (whole.terms or whole.full_metric)[0].groups
    D = len(groups)
    out = torch.zeros(source.n_rows, D, whole.expansion.n_outputs, dtype=torch.float64, device=plan.device)
    for bound in whole.terms:
        rows, columns = block_shape(len(bound.basis), len(bound.groups), plan)

        def visit(where: slice, block: Tensor, bound: BoundTerm = bound, columns: int = columns) -> None:
            out[where] += _block_values(bound, block, columns)

        each_block(EncodedRows(source, bound.inputs, plan), plan, rows, visit)
    for tied in whole.full_metric:

        def add(where: slice, block: Tensor, tied: FullMetricExpansion = tied) -> None:
            out[where] += tied.values(block)

        each_block(EncodedRows(source, tied.inputs, plan), plan, SUBSET_ROWS, add)
    out[:, [d for d, group in enumerate(groups) if not len(group)]] = 0.0  # columns left out, without rounding
    return out


def operations(model: Any, n_rows: int) -> float:
    """About how many multiplications the values of `n_rows` rows take; ValueError where there are no exact values."""
    total, D = 0.0, model.n_features_in_
    for part in expansion_of(model).expansions:
        if diagonal_of(part.inputs.transform):
            terms = terms_of(part.kernel, part.basis.shape[1])
            products = sum(1 if term.mixture is None else len(term.mixture.scales) // 2 for term in terms)
            total += len(part.basis) * products * D**2 / 2
        else:
            total += len(part.basis) * 2.0 ** (D + 1)
    return n_rows * total


def block_shape(m: int, n_inputs: int, plan: Plan) -> tuple[int, int]:
    """Rows and basis vectors of a block: six arrays of a tile for each input within a quarter of the memory."""
    affordable = max(plan.memory_limit // (4 * 8 * (6 * n_inputs + 4)), 1)
    elements = min(ELEMENTS[plan.device.type == "cuda"], affordable)
    columns = min(m, max(elements // 4, 1))
    return max(elements // max(columns, 1), 1), max(columns, 1)


def _block_values(bound: BoundTerm, X: Tensor, columns: int) -> Tensor:
    """Shapley values of one product kernel at a block of rows, n × D × p."""
    term, groups = bound.term, bound.groups
    if term.additive:
        slopes = bound.basis.T @ bound.weights
        return term.variance * torch.stack([X[:, group] @ slopes[group] for group in groups], 1)
    Z, W = bound.strips
    if columns >= len(bound.basis):
        return term_shapley(term, term.by_group(X, Z, groups), W)
    out = X.new_zeros(len(X), len(groups), W.shape[1])
    for basis, weights in zip(Z.split(columns, 1), W.split(columns), strict=True):
        out.add_(term_shapley(term, term.by_group(X, basis, groups), weights))
    return out


def _number(value: Any) -> Any:
    return float(value) if np.ndim(value) == 0 else value
