r"""Uncertainty of predictions, in parts: noise of the targets, uncertainty of the function, distance from the basis.

Kernel ridge regression is the mean of a Gaussian process of covariance s²k and noise s²λ. Given m basis vectors as rows
of weight W/m each, W the weight of all rows, the variance of the function at x is s²v(x) with

.. math:: v(x) = k(x, x) - k_m(x)^\top \Big(K_{mm} + \frac{\lambda m}{W} I\Big)^{-1} k_m(x) ,

which is exact if all rows are basis vectors and have equal weights. s² is set by held-out residuals: their variance is
s²(λ + v̄) at rows like those of the fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from mercer.base.calibration import LabelLinks
from mercer.base.classifier import DecisionClassifier
from mercer.base.out_of_fold import LARGEST
from mercer.base.uncertainty import (
    LEAST_CURVATURE,
    WITHIN,
    ClassUncertaintyMixin,
    UncertainRegressor,
    normal_draws,
)
from mercer.data import RowSource, TensorRows
from mercer.engine import Plan, each_block, make_plan
from mercer.forward.expansion import Expansion, Objective, evaluate
from mercer.forward.influence import require_objectives
from mercer.forward.kernel_metric import sensitivity
from mercer.kernels import Kernel
from mercer.linalg import cholesky, exact_distances
from mercer.parts import require
from mercer.preprocessing.inputs import InputMap
from mercer.preprocessing.read import read_new

#: The fewest basis vectors that have a reach.
FEWEST = 10
#: Most basis vectors that rows are compared with: a nearest-neighbour search in many dimensions costs their number.
MAX_BASIS = 20_000


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


class FunctionVariance:
    """v(x) of an expansion, in units of its kernel.

    The curvature of a likelihood is its mean over basis vectors: that of single rows, next to zero where classes are
    clear, would make functions uncertain there.
    """

    def __init__(self, expansion: Expansion, objective: Objective, plan: Plan) -> None:
        self.expansion, self.plan = expansion, plan
        self.basis = torch.as_tensor(expansion.basis).to(plan.device, torch.float64)
        self.noise = objective.lam / (objective.row_weight or objective.unit)  # of a row of the mean weight
        plan.require_square(len(self.basis))
        K = expansion.kernel(self.basis, self.basis)
        f = K @ torch.as_tensor(expansion.weights).to(K) / objective.share
        curvature = float(objective.loss.curvature(torch.ones_like(f), f).mean().clamp(min=LEAST_CURVATURE))
        K.diagonal().add_(objective.lam * len(K) / (objective.weight * curvature))
        self.factor = cholesky(K)[0]
        self.columns = expansion.kernel.columns(self.basis)

    def at(self, source: RowSource) -> Tensor:
        """v at rows of a table."""
        return self._at(self.expansion.inputs.rows(source, self.plan))

    def _at(self, rows: RowSource) -> Tensor:
        """v at rows as the kernel sees them."""
        out = self.basis.new_empty(rows.n_rows)

        def visit(where: slice, block: Tensor) -> None:
            half = torch.linalg.solve_triangular(self.factor, self.columns(block).T, upper=False)
            out[where] = (self.expansion.kernel.diag(block) - half.square().sum(0)).clamp(min=0)

        each_block(rows, self.plan, self.plan.tile_rows(len(self.basis)), visit)
        return out

    def mean_of_new_rows(self, training_rows: RowSource | None = None) -> float:
        """The mean of v at new rows, from training rows (basis vectors by default): basis vectors are left out."""
        if training_rows is None:
            v = self._at(TensorRows(self.basis))
            known = torch.ones_like(v, dtype=torch.bool)
        else:
            rows = self.expansion.inputs.rows(training_rows, self.plan)
            v = self._at(rows)
            X = rows.take(np.arange(training_rows.n_rows)).to(self.basis)
            known = exact_distances(X, self.basis).amin(1) == 0
        left_out = v / (1 - (v / max(self.noise, torch.finfo(v.dtype).tiny)).clamp(max=LARGEST))
        return float(torch.where(known, left_out, v).mean())

    def noise_and_model(self, source: RowSource, new: float) -> tuple[float, np.ndarray]:
        """Shares of the deviation of held-out residuals: that of the noise, and of the function at rows of a table.

        `new` is the mean of v at new rows.
        """
        whole = self.noise + new
        return float(np.sqrt(self.noise / whole)), np.sqrt(self.at(source).cpu().numpy() / whole)[:, None]


class BasisDistances:
    """Distances from the basis vectors of `_basis_of_distances`, as the kernel sees them."""

    expansions_: ClassVar[tuple[Expansion, ...]]

    def _basis_of_distances(self) -> tuple[Kernel, InputMap, np.ndarray]:
        """Kernel, input map and basis vectors as the kernel sees them: those of the first expansion."""
        first = self.expansions_[0]
        return first.kernel, first.inputs, np.asarray(first.basis, dtype=np.float64)

    def _relative_distances(self, source: RowSource) -> np.ndarray:
        """Distance of rows to the nearest basis vector in units of the reach; NaN where there is none."""
        found = basis_distances(*self._basis_of_distances(), source.take(np.arange(source.n_rows)).cpu().numpy())
        return np.full(source.n_rows, np.nan) if found is None else found[0] / found[1]


class UncertainExpansions(BasisDistances, UncertainRegressor):
    """The parts of the uncertainty of boosted and greedy regressors."""

    background_: ClassVar[np.ndarray]
    _objectives: ClassVar[tuple[Objective, ...]]

    def _noise_and_model(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        require_objectives(self, "predict_uncertainty")
        loss = self._objectives[0].loss
        require(loss.quadratic, "loss", "squared for predict_uncertainty", loss)
        deviation = self._score_deviation()
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
            of_noise, of_model = variance.noise_and_model(source, variance.mean_of_new_rows(training_rows))
            noise += share * of_noise * size
            model += share * of_model * typical
        return noise, model


class UncertainDecisions(BasisDistances, ClassUncertaintyMixin, DecisionClassifier):
    """Boosted and greedy classifiers: rows may have several labels; the uncertainty of decisions."""

    _several_labels: ClassVar[bool] = True
    background_: ClassVar[np.ndarray]
    device: Any
    memory_limit: Any
    _objectives: ClassVar[tuple[Objective, ...]]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def _probability_draws(self, X: Any) -> Iterator[np.ndarray]:
        require_objectives(self, "predict_uncertainty")
        decisions = self._answers(X, self.targets_.decisions)
        deviation = self._deviation(X)
        for z in normal_draws(decisions.shape[1]):
            p = self.calibration_.probabilities(decisions + deviation * z)
            yield np.stack([1 - p, p], axis=-1) if isinstance(self.calibration_, LabelLinks) else p

    def _deviation(self, X: Any) -> np.ndarray:
        """Standard deviations of decision values (n × p, or n × 1 if outputs share them)."""
        source, training_rows = read_new(self, X), TensorRows(torch.as_tensor(self.background_))
        plan = make_plan(source.n_rows, self.device, "float64", self.memory_limit)
        at_rows = torch.as_tensor(self.targets_.decisions(evaluate(self.expansions_, training_rows, plan)))
        shares = np.array([objective.share for objective in self._objectives])
        out: np.ndarray = np.zeros((source.n_rows, 1))
        for share, expansion, objective in zip(shares / shares.sum(), self.expansions_, self._objectives, strict=True):
            variance = FunctionVariance(expansion, objective, plan)
            if objective.loss.likelihood:  # the prior variance of log odds is k/λ
                size = np.full((1, at_rows.shape[1]), objective.lam)
            else:  # the variance of codes ±1 around their mean d is 1 − d²
                left = (1 - at_rows.clamp(-1, 1).square()).mean(0).numpy()
                whole = variance.noise + variance.mean_of_new_rows(training_rows)
                size = whole / np.maximum(left, np.finfo(float).tiny)[None]
            out = out + share * np.sqrt(variance.at(source).cpu().numpy()[:, None] / size)
        return out
