"""Descent on the k-fold error over factors of the inputs and the penalty.

Gradients of a model and the evidence propose a metric by a criterion of their own. The descent starts from the best
proposal and minimises the held-out squared error of the kernel that will be used. Rows outside of the folds score the
result, since few rows overfit many factors (`mercer.selection.halving`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, pairwise

import numpy as np
import torch
from torch import Tensor

from mercer.codegen.cpu import cached_rows
from mercer.data.row_groups import RowGroups
from mercer.kernels import Kernel, Radial
from mercer.linalg import minimize_lbfgs, solve_factored
from mercer.selection.settings import FLOAT32_PENALTY
from mercer.selection.view import apply_transform, distances, radial_slopes, tile

#: Least gain of a step in the logarithm of the error; below, rounding decides.
TOLERANCE = 1e-4
#: Least error of the constant, and least error in units of it: the logarithm stays finite.
LEAST = 1e-30
#: Folds, steps at most, and weight of the prior on the logarithms of factors.
FOLDS, STEPS, PRIOR = 5, 8, 0.003
#: The descent is given up after this many steps if the logarithm of its error has fallen by less than this.
EARLY_STEPS, EARLY_GAIN = 3, 0.02
#: Largest gain by chance under which a descent is made: k factors fitted to n numbers gain 2k/n by chance (Akaike).
MOST_CHANCE_GAIN = 0.2


@dataclass
class Descent:
    """The k-fold error of kernel ridge on rows `X`, targets `Y` (n × p) and weights, under a transform.

    Inputs of one group (`groups` has an index for each input) share their factor. Folds are equal runs of the rows, or
    end at `ends`.
    """

    kernel: Kernel
    length: float
    lam: float
    X: Tensor
    Y: Tensor
    weight: Tensor
    transform: Tensor
    groups: Tensor | None = None
    ends: Sequence[int] | None = None

    def __post_init__(self) -> None:
        dtype = torch.float32 if self.lam >= FLOAT32_PENALTY else torch.float64
        T = self.transform
        self.metric = None if T.ndim == 1 else (T.T @ T).to(dtype)
        # a diagonal commutes with the factors, a matrix acts after them; squared distances need double precision
        self.rows = (apply_transform(self.X, T) if T.ndim == 1 else self.X).double()
        self.rounded_rows = self.rows.to(dtype)
        self.y, self.w = self.Y.to(dtype), self.weight.to(dtype)[:, None]
        self.group = torch.arange(self.X.shape[1]) if self.groups is None else self.groups.cpu()
        self.constant = max(float((self.w * self.y.square()).sum()), LEAST)

    @property
    def worthwhile(self) -> bool:
        """Whether factors and penalty are few enough that they cannot gain much by chance."""
        return 2 * (int(self.group.max()) + 2) <= MOST_CHANCE_GAIN * self.Y.numel()

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        r"""The logarithm of the k-fold error over the constant's, plus a prior on θ, and its gradient.

        θ holds logarithms of factors and of the penalty. The other folds predict a fold by :math:`K_o a` with
        :math:`a = G^{-1}y`. With residuals r and weights w the gradient of the fold's error is
        :math:`-2 (w r)^T \partial K_o\, a + 2 b^T \partial G\, a`, where :math:`b = G^{-1} K_o^T w r`. All folds
        together are :math:`\sum M \circ \partial K`, where M has a rank of at most p times the folds.
        """
        factors = torch.as_tensor(np.exp(theta[:-1]))[self.group].to(self.rows)
        lam = self.lam * math.exp(theta[-1])
        A = self.rows * factors
        A = A if self.metric is None else apply_transform(A, self.transform.to(A))
        distance = distances(self.kernel, A, A).to(self.rounded_rows)
        K = tile(self.kernel, distance, self.length)
        M, error, by_penalty = torch.zeros_like(K), 0.0, 0.0
        for fold in self._folds():
            if (found := self._held_out(K, fold, lam)) is None:
                return 1.0, np.zeros_like(theta)
            R, a, loss = found
            M.addmm_(R, a.T)
            error += loss
            by_penalty += lam * float((R * a / self.w).sum())
        error = max(error, LEAST * self.constant)
        by_factor = self._factor_gradient(M, K, distance, factors.to(K)).double().cpu() / error
        by_group = by_factor.new_zeros(len(theta) - 1).index_add_(0, self.group, by_factor)
        gradient = np.append(by_group.numpy(), by_penalty / error)
        value = math.log(error / self.constant) + PRIOR * float(theta @ theta)
        return value, gradient + 2 * PRIOR * theta

    def _folds(self) -> Iterator[slice]:
        ends = self.ends or [len(self.rows) * k // FOLDS for k in range(FOLDS + 1)]
        return (slice(*pair) for pair in pairwise(ends))

    def _held_out(self, K: Tensor, fold: slice, lam: float) -> tuple[Tensor, Tensor, float] | None:
        """Left and right factors (n × p) of a fold's part of M, and its error; None if the factorisation fails."""
        inside = torch.arange(len(K), device=K.device)
        inside = torch.cat([inside[: fold.start], inside[fold.stop :]])
        above, below = K[: fold.start], K[fold.stop :]
        G = torch.cat([torch.cat([part[:, : fold.start], part[:, fold.stop :]], 1) for part in (above, below)])
        G.diagonal().add_(lam / self.w[inside, 0])
        factor, info = torch.linalg.cholesky_ex(G)
        if int(info):
            return None
        K_o = torch.cat([K[fold, : fold.start], K[fold, fold.stop :]], 1)
        R, a = torch.zeros_like(self.y), torch.zeros_like(self.y)
        a[inside] = solve_factored(factor, self.y[inside])
        r = self.y[fold] - K_o @ a[inside]
        wr = self.w[fold] * r
        R[inside] = 2 * solve_factored(factor, K_o.T @ wr)
        R[fold] = -2 * wr
        return R, a, float((wr * r).sum())

    def _factor_gradient(self, M: Tensor, K: Tensor, distance: Tensor, factors: Tensor) -> Tensor:
        """Σ M ∘ ∂K by the logarithm of each input's factor."""
        X = self.rounded_rows
        if not isinstance(self.kernel, Radial):
            return _weighted_absolute_differences(K.mul_(M), X) * factors / -self.length
        W = radial_slopes(self.kernel, distance, self.length).mul_(M)
        S = X.T @ (0.5 * (W.sum(1) + W.sum(0))[:, None] * X - W @ X)
        S = 0.5 * (S + S.T)
        product = S.diagonal() * factors if self.metric is None else (self.metric * S) @ factors
        return 2 * factors * product

    def minimise(self, expired: Callable[[], bool] = lambda: False) -> tuple[Tensor, float] | None:
        """The transform and the penalty of least error, or those reached when time has `expired`.

        None stands for a descent that gained less than `EARLY_GAIN`.
        """
        values: list[float] = []
        steps = count(1)

        def recorded(theta: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = self(theta)
            values.append(value)
            return value, gradient

        def gains_too_little() -> bool:
            return values[0] - min(values) < EARLY_GAIN

        def stop_early(theta: np.ndarray, value: float) -> None:
            if expired() or (next(steps) == EARLY_STEPS and gains_too_little()):
                raise StopIteration

        start = np.zeros(int(self.group.max()) + 2)
        found = minimize_lbfgs(recorded, start, callback=stop_early, ftol=TOLERANCE, maxiter=STEPS, maxfun=STEPS + 4)
        if gains_too_little():
            return None
        factors = torch.as_tensor(np.exp(found.x[:-1]))[self.group].to(self.transform)
        return self.transform * factors, self.lam * math.exp(found.x[-1])


def folded(row_groups: RowGroups) -> tuple[np.ndarray, list[int]]:
    """Rows in the order of their folds, and the ends of these, the first of which is zero."""
    fold = row_groups.folds(FOLDS)
    return np.argsort(fold, kind="stable"), [0, *np.bincount(fold).cumsum().tolist()]


def _weighted_absolute_differences(W: Tensor, X: Tensor) -> Tensor:
    """Σ_ij W_ij |x_ik − x_jk| for each input, for as many rows at a time as the cache holds."""
    columns, out = X.T.contiguous(), X.new_zeros(X.shape[1])
    size = cached_rows(columns.numel(), columns)
    for start in range(0, len(X), size):
        block = slice(start, start + size)
        out += torch.bmm((X[block, :, None] - columns).abs_(), W[block, :, None]).sum((0, 2))
    return out
