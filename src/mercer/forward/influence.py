r"""Influence of training rows: how a prediction changes if a row is left out, in closed form.

With :math:`\phi` the kernel values to the basis vectors and A the Hessian of the objective, one Newton step without
row i changes the prediction at x by

.. math:: f(x) - f_{-i}(x) = \frac{\phi(x)^\top A^{-1} \phi(x_i)\, w_i r_i}{1 - w_i V''_i\, \phi(x_i)^\top A^{-1}
    \phi(x_i)}, \qquad r_i = -V'(y_i, f(x_i)) .

For the squared loss this is exact: f₋ᵢ is the minimum without row i, with the same kernel, basis vectors and penalty.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mercer.base.out_of_fold import LARGEST
from mercer.data import RowSource, SparseRows
from mercer.engine import KernelMatrix, Sample, each_block, make_plan
from mercer.forward.expansion import Expansion, Objective
from mercer.kernels import Columns
from mercer.linalg import cholesky, whitening
from mercer.losses import Pinball
from mercer.parts import require
from mercer.preprocessing.read import read_new
from mercer.preprocessing.validate import checked_targets, checked_weights, class_weighted, host

#: Change of predictions by a refit, as a share of the targets' size, beyond which rows are not those of the fit, or the
#: model is not the minimum of its objective.
LARGEST_CHANGE = 0.1


def row_effects(expansion: Expansion, objective: Objective, sample: Sample, new: RowSource) -> tuple[Tensor, float]:
    """Effects of all training rows at new rows, N × n × p, and the change of predictions by a refit.

    Rows are in kernel coordinates, and training rows in float64.
    """
    loss, lam, kernel = objective.loss, objective.lam, expansion.kernel
    Z = torch.as_tensor(expansion.basis).to(sample.plan.device, torch.float64)
    W = torch.as_tensor(expansion.weights).to(Z) / objective.share
    Q = kernel(Z, Z)
    B = whitening(Q)
    K, K_new = (KernelMatrix(rows, kernel, Z, sample.plan, uses=3) for rows in (sample.rows, new))
    f = K.product(W)
    slope = sample.weight[:, None] * loss.residual(sample.Y, f)
    curvature = sample.weight[:, None] * loss.curvature(sample.Y, f).expand_as(f)
    gradient = B.T @ (K.transposed(slope) - lam * (Q @ W))
    out, change = Z.new_empty(sample.n_rows, new.n_rows, f.shape[1]), 0.0
    for k in range(f.shape[1]):
        if k == 0 or not loss.quadratic:  # outputs share the curvature of the squared loss
            hessian, _ = K.moments(sample.Y, weight=curvature[:, k], B=B)
            hessian.diagonal().add_(lam)
            factor = cholesky(hessian)[0]
            root = torch.linalg.solve_triangular(factor, B.T, upper=False).T  # of A⁻¹, m × r
            cross, leverage = _products(expansion.kernel.columns(Z), sample, root, K_new.product(root))
        out[:, :, k] = cross * (slope[:, k] / (1 - (curvature[:, k] * leverage).clamp(max=LARGEST)))[:, None]
        step = torch.cholesky_solve(gradient[:, [k]], factor)
        change += float((step.T @ (hessian @ step - lam * step)).clamp(min=0) / curvature[:, k].sum())
    return out, change


def _products(columns: Columns, sample: Sample, root: Tensor, at_new: Tensor) -> tuple[Tensor, Tensor]:
    """φ(x)ᵀA⁻¹φ(x_i) of training rows and new rows (N × n), and of each training row with itself."""
    cross, leverage = root.new_empty(sample.n_rows, len(at_new)), root.new_empty(sample.n_rows)
    columns = columns.specialise(sample.n_rows)

    def visit(where: slice, block: Tensor) -> None:
        half = columns(block) @ root
        cross[where] = half @ at_new.T
        leverage[where] = half.square().sum(1)

    each_block(sample.rows, sample.plan, sample.plan.tile_rows(len(root)), visit)
    return cross, leverage


class InfluenceMixin:
    """The method `row_influence` of boosted and greedy models."""

    expansions_: ClassVar[tuple[Expansion, ...]]
    targets_: ClassVar[Any]
    _objectives: ClassVar[tuple[Objective, ...]]

    def row_influence(self, X: Any, X_train: Any, y_train: Any, sample_weight: Any = None) -> np.ndarray:
        """The effect of each training row on each prediction: the prediction less that without the row.

        The effects follow in closed form, without refits; kernel, basis vectors, penalty and the scale of targets
        stay. They are exact for models of squared loss whose weights minimise the objective: exact solutions,
        compressed or not, and greedy models. They are one Newton step for likelihoods and nearly minimal weights. A
        model does not keep its training rows, so they are given again. Rows that `fit` held out count as fitted. N
        training rows and m basis vectors cost Nm² operations.

        Parameters
        ----------
        X : array, frame, tensor, file or row source of n rows
            Rows to predict for.
        X_train, y_train : the N rows and targets of `fit`
            Others are refused where a refit on them would change predictions by more than a tenth of the targets' size.
        sample_weight : array of N weights, optional
            The weights of `fit`.

        Returns
        -------
        ndarray of shape (n, N), or (n, N, p) for several outputs or more than two classes
            Effects in units of the target; for classifiers those on `decision_function`.

        Examples
        --------
        >>> import numpy as np
        >>> from mercer import KernelBoostingRegressor
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> y = np.sin(X[:, 0])
        >>> y[20] += 2.0  # a wrong target
        >>> model = KernelBoostingRegressor(kernel="gaussian", random_state=0).fit(X, y)
        >>> effects = model.row_influence([[3.0]], X, y)
        >>> effects.shape, int(effects[0].argmax())
        ((1, 40), 20)
        """
        check_is_fitted(self)
        require_objectives(self, "row_influence")
        loss = self._objectives[0].loss
        require(not isinstance(loss, Pinball), "loss", "one with a second derivative for row_influence", "pinball")
        source, train = read_new(self, X), read_new(self, X_train)
        for name, rows in (("X", source), ("X_train", train)):
            require(not isinstance(rows, SparseRows), name, "dense for row_influence", "a wide sparse matrix")
        sample = training_sample(self, train, y_train, sample_weight, ("X_train", "y_train"))
        plan, size = sample.plan, float((sample.weight @ sample.Y.square()).sum() / sample.weight.sum())
        total = torch.zeros(train.n_rows, source.n_rows, sample.Y.shape[1], dtype=torch.float64, device=plan.device)
        for expansion, objective in zip(self.expansions_, self._objectives, strict=True):
            rows, new = (expansion.inputs.rows(part, plan) for part in (train, source))
            in_kernel = replace(sample, rows=rows, weight=objective.unit * sample.weight)
            found, change = row_effects(expansion, objective, in_kernel, new)
            wanted = "those of fit, and the weights of the model nearly those of a refit"
            seen = f"a change of {100 * (change / size) ** 0.5:.0f} % of the targets by a refit"
            require(change <= LARGEST_CHANGE**2 * size, "X_train and y_train", wanted, seen)
            total += objective.share * found
        effects = total.cpu().numpy().transpose(1, 0, 2) * getattr(self.targets_, "scale", 1.0)
        single = sample.Y.shape[1] == 1 and getattr(self.targets_, "flat", True)
        return effects[:, :, 0] if single else effects


def require_objectives(model: Any, method: str) -> None:
    """Refuse models of precomputed kernels, and those of files that do not tell what each expansion minimised."""
    pairwise = getattr(model, "_pairwise", False)
    require(not pairwise, "kernel", f"other than 'precomputed' for {method}", "precomputed")
    known = hasattr(model, "_objectives") and len(model._objectives) == len(model.expansions_)
    require(known, "the model", f"fitted again to have {method}", "a file of version 0.2.0")


def training_sample(model: Any, rows: RowSource, y: Any, sample_weight: Any, names: tuple[str, str]) -> Sample:
    """Rows that were read with their checked and coded targets and their weights, in float64."""
    y = checked_targets(host(y), model._is_classifier, model)
    require(len(y) == rows.n_rows, names[1], f"of the length of {names[0]}, {rows.n_rows}", len(y))
    if model._is_classifier:
        model.targets_.require_known(y, names[1])
    Y, n_outputs = model.targets_.encode(y), model.expansions_[0].weights.shape[1]
    require(Y.shape[1] == n_outputs, names[1], f"of {n_outputs} columns as in fit", Y.shape[1])
    weight = class_weighted(getattr(model, "class_weight", None), y, checked_weights(sample_weight, rows.n_rows))
    plan = replace(make_plan(rows.n_rows, model.device, "float64", model.memory_limit), dtype=torch.float64)
    codes, weights = (torch.as_tensor(part, device=plan.device).double() for part in (Y, weight))
    return Sample(rows, codes, weights, plan)
