r"""Uncertainty of predictions, in parts: noise of the targets, uncertainty of the function, distance from the basis.

Kernel ridge regression is the mean of a Gaussian process of covariance s²k and noise s²λ. Given m basis vectors as rows
of weight W/m each, W the weight of all rows, the variance of the function at x is s²v(x) with

.. math:: v(x) = k(x, x) - k_m(x)^\top \Big(K_{mm} + \frac{\lambda m}{W} I\Big)^{-1} k_m(x) ,

which is exact if all rows are basis vectors and have equal weights. s² is set by held-out residuals: their variance is
s²(λ + v̄) at rows like those of the fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.spatial import cKDTree
from scipy.stats import norm
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mercer.base.intervals import IntervalRegressor
from mercer.base.out_of_fold import LARGEST
from mercer.data import RowSource, SparseRows, TensorRows
from mercer.engine import Plan, each_block, make_plan
from mercer.forward.expansion import Expansion, Objective, evaluate
from mercer.forward.kernel_metric import sensitivity
from mercer.kernels import Kernel
from mercer.linalg import cholesky
from mercer.parts import require
from mercer.preprocessing.inputs import InputMap
from mercer.preprocessing.read import read_new

#: The share of basis vectors within the reach, and the fewest basis vectors that have one.
WITHIN, FEWEST = 0.99, 10
#: Most basis vectors that rows are compared with: a nearest-neighbour search in many dimensions costs their number.
MAX_BASIS = 20_000
#: The least mean curvature of a loss: that of probabilities of 1e-6.
LEAST_CURVATURE = 1e-6
#: Levels of the quantiles of scores that are a standard deviation below and above the mean of normal ones.
ONE_DEVIATION = norm.cdf([-1.0, 1.0])


@dataclass(frozen=True)
class Uncertainty:
    """Parts of the uncertainty of predictions, and how far rows are from those of the fit.

    Attributes
    ----------
    noise : ndarray of shape (n,) or (n, p)
        Standard deviation of targets around the function, which more rows would not lower; in units of the target. For
        classes the mean entropy of the probabilities, in nats.
    model : ndarray of shape (n,) or (n, p)
        Standard deviation of the function itself, which more rows near x would lower. For classes the mutual
        information of class and function.
    total : ndarray of shape (n,) or (n, p)
        Standard deviation of new targets, √(noise² + model²). For classes the entropy of the mean probabilities, noise
        + model.
    distance : ndarray of shape (n,)
        Distance to the nearest basis vector as the kernel sees it; 99 % of the basis vectors are nearer than 1 to
        another one. NaN where the kernel has no distance or there are fewer than ten basis vectors.
    outside : ndarray of shape (n,)
        Whether the distance is above 1: the model extrapolates.
    """

    noise: np.ndarray
    model: np.ndarray
    total: np.ndarray
    distance: np.ndarray
    outside: np.ndarray


def basis_distances(
    kernel: Kernel, inputs: InputMap, basis: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, float] | None:
    """Distance of rows (in coordinates of the table) to the nearest basis vector, and the reach of basis vectors.

    The reach is the distance within which 99 % of the basis vectors have another one. None where a kernel has no
    distance, or basis vectors are few.
    """
    curvature = sensitivity(kernel, basis.shape[1])
    if len(basis) < FEWEST or curvature is None or not curvature.any():
        return None
    vectors = np.unique(basis[:MAX_BASIS] * np.sqrt(curvature), axis=0)
    if len(vectors) < FEWEST:
        return None
    tree = cKDTree(vectors)
    between = tree.query(vectors, k=2)[0][:, 1]
    coded = inputs.encode(torch.as_tensor(rows)).numpy() * np.sqrt(curvature)
    return tree.query(coded)[0], float(np.quantile(between, WITHIN))


def relative_distances(kernel: Kernel, inputs: InputMap, basis: np.ndarray, source: RowSource) -> np.ndarray:
    """Distance of rows to the nearest basis vector in units of the reach; NaN where there is none."""
    found = basis_distances(kernel, inputs, basis, source.take(np.arange(source.n_rows)).cpu().numpy())
    return np.full(source.n_rows, np.nan) if found is None else found[0] / found[1]


class FunctionVariance:
    """v(x) of an expansion, in units of its kernel.

    The curvature of a likelihood is its mean over basis vectors: that of single rows, next to zero where classes are
    clear, would make functions uncertain there.
    """

    def __init__(self, expansion: Expansion, objective: Objective, plan: Plan) -> None:
        self.expansion, self.plan = expansion, plan
        self.basis = torch.as_tensor(expansion.basis).to(plan.device, torch.float64)
        self.noise = objective.lam / objective.unit  # of a row of weight one
        plan.require_square(len(self.basis))
        K = expansion.kernel(self.basis, self.basis)
        f = K @ torch.as_tensor(expansion.weights).to(K) / objective.share
        curvature = float(objective.loss.curvature(torch.ones_like(f), f).mean().clamp(min=LEAST_CURVATURE))
        K.diagonal().add_(objective.lam * len(K) / (objective.weight * curvature))
        self.factor = cholesky(K)[0]
        self.columns = expansion.kernel.columns(self.basis)

    def at(self, source: RowSource) -> Tensor:
        """v at rows of a table."""
        rows = self.expansion.inputs.rows(source, self.plan)
        out = self.basis.new_empty(rows.n_rows)

        def visit(where: slice, block: Tensor) -> None:
            half = torch.linalg.solve_triangular(self.factor, self.columns(block).T, upper=False)
            out[where] = (self.expansion.kernel.diag(block) - half.square().sum(0)).clamp(min=0)

        each_block(rows, self.plan, self.plan.tile_rows(len(self.basis)), visit)
        return out

    def mean_of_new_rows(self, training_rows: RowSource) -> float:
        """The mean of v at new rows, from training rows: basis vectors are left out."""
        v = self.at(training_rows)
        X = self.expansion.inputs.rows(training_rows, self.plan).take(np.arange(training_rows.n_rows)).to(self.basis)
        known = torch.cdist(X, self.basis).amin(1) == 0
        left_out = v / (1 - (v / max(self.noise, torch.finfo(v.dtype).tiny)).clamp(max=LARGEST))
        return float(torch.where(known, left_out, v).mean())


class UncertainRegressor(IntervalRegressor):
    """A regressor whose uncertainty has parts; its `_noise_and_model(X)` returns both, n × p, in coded units."""

    _noise_and_model: Callable[[Any], tuple[np.ndarray, np.ndarray]]

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Uncertainty of predictions in parts: noise of targets, the function itself, distance from the basis vectors.

        The noise is estimated from held-out residuals, like `predict_interval`, and follows their local size. The
        standard deviation of the function is that of a Gaussian process with this kernel, noise and basis vectors. It
        is exact for Gaussian processes and for exact solutions; for models of fewer basis vectors these stand for
        all rows. It grows with the distance from the rows of `fit`, where intervals promise nothing.

        Examples
        --------
        >>> import numpy as np
        >>> from mercer import KernelBoostingRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-2, 2, (300, 1))
        >>> y = np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=300)
        >>> model = KernelBoostingRegressor(kernel="gaussian", random_state=0).fit(X, y)
        >>> found = model.predict_uncertainty([[0.0], [5.0]])
        >>> found.outside.tolist(), bool(found.model[1] > 3 * found.model[0])
        ([False, True], True)
        >>> bool(0.15 < found.noise[0] < 0.25)
        True
        """
        check_is_fitted(self)
        source = read_new(self, X)
        require(not isinstance(source, SparseRows), "X", "dense for predict_uncertainty", "a wide sparse matrix")
        noise, model = (self.targets_.scale * part for part in self._noise_and_model(X))
        if self.targets_.flat:
            noise, model = noise[:, 0], model[:, 0]
        distance = relative_distances(*self._basis_of_distances(), source)
        return Uncertainty(noise, model, np.hypot(noise, model), distance, distance > 1)

    def _basis_of_distances(self) -> tuple[Kernel, InputMap, np.ndarray]:
        """Kernel, input map and basis vectors as the kernel sees them."""
        raise NotImplementedError


class UncertainExpansions(UncertainRegressor):
    """The parts of the uncertainty of boosted and greedy regressors."""

    expansions_: ClassVar[tuple[Expansion, ...]]
    background_: ClassVar[np.ndarray]
    _objectives: ClassVar[tuple[Objective, ...]]

    def _basis_of_distances(self) -> tuple[Kernel, InputMap, np.ndarray]:
        first = self.expansions_[0]
        return first.kernel, first.inputs, np.asarray(first.basis, dtype=np.float64)

    def _noise_and_model(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        pairwise = getattr(self, "_pairwise", False)
        require(not pairwise, "kernel", "other than 'precomputed' for predict_uncertainty", "precomputed")
        known = hasattr(self, "_objectives")
        require(known, "the model", "fitted again to have predict_uncertainty", "a file of version 0.2.0")
        loss = self._objectives[0].loss
        require(loss.quadratic, "loss", "squared for predict_uncertainty", loss)
        low, high = self.intervals_.quantiles(ONE_DEVIATION).T
        deviation = (high - low) / 2  # of scores, p
        source, training_rows = read_new(self, X), TensorRows(torch.as_tensor(self.background_))
        plan = make_plan(source.n_rows, self.device, "float64", self.memory_limit)
        size = deviation * self._values_and_scale(X)[1]
        typical = deviation * np.ones_like(size[:1])
        if self.intervals_.local is not None:
            values = evaluate(self.expansions_, training_rows, plan)
            scale = self.intervals_.local.at_rows(training_rows, self.inputs_, values, plan)
            typical = typical * np.sqrt(np.mean(scale**2, axis=0))
        noise, model = np.zeros_like(size), np.zeros_like(size)
        shares = np.array([objective.share for objective in self._objectives])
        for share, expansion, objective in zip(shares / shares.sum(), self.expansions_, self._objectives, strict=True):
            variance = FunctionVariance(expansion, objective, plan)
            whole = variance.noise + variance.mean_of_new_rows(training_rows)
            noise += share * np.sqrt(variance.noise / whole) * size
            model += share * np.sqrt(variance.at(source).cpu().numpy() / whole)[:, None] * typical
        return noise, model
