"""Factors of the inputs under which folds of the rows predict each other best: a descent on their squared error.

Gradients of a model say along what it varies, and evidence what a smooth process makes of few rows. Neither is what a
kernel is wanted for: so the best of what they propose goes on by the slope of the left-out error itself, in the kernel
that will be used. What that has learned by heart is for other rows to say (`mercer.selection.last_round`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.kernels import Kernel, Radial
from mercer.linalg import minimize_lbfgs, solve_factored
from mercer.selection.metric import SIGNS, distances, moved, pulls, tile

#: How far a factor, and the penalty, may go, as logarithms; a step that gains less of the logarithm of the error is the
#: last, and so is one that takes more evaluations: there rounding decides. Not chosen by tables.
REACH, REACH_PENALTY, TOLERANCE, STEP_EVALUATIONS = 5.0, 4.0, 1e-4, 5
#: The least error, in units of the constant's, and the least that this may be.
LEAST = 1e-30
#: The penalty down to which single precision is enough.
SINGLE_PRECISION = 2.5e-4
#: Folds whose held-out error is descended on, rounds at most, and the prior on the logarithms of factors.
FOLDS, ROUNDS, PRIOR = 5, 8, 0.003
#: A descent ends after so many rounds if the logarithm of its error has not fallen by this much.
EARLY_ROUNDS, EARLY_GAIN = 3, 0.02
#: The most that descents gain on other rows. By chance k factors gain 2k/n on the n numbers they are fitted to
#: (Akaike), so no descent is made where that is more.
MOST_GAIN = 0.2


@dataclass
class Descent:
    """The error of rows `X` with targets `Y` (n × p) and weights, left out by folds, of a kernel under a transform.

    Inputs of one of the `groups` (an index for each input) share their factor.
    """

    kernel: Kernel
    length: float
    lam: float
    X: Tensor
    Y: Tensor
    weight: Tensor
    transform: Tensor
    groups: Tensor | None = None

    def __post_init__(self) -> None:
        dtype = torch.float32 if self.lam >= SINGLE_PRECISION else torch.float64
        T = self.transform
        self.turn = None if T.ndim == 1 else (T.T @ T).to(dtype)
        # factors act before a matrix, and with a diagonal; squared distances are sums of double precision
        self.rows = (moved(self.X, T) if T.ndim == 1 else self.X).double()
        self.thin = self.rows.to(dtype)
        self.y, self.w = self.Y.to(dtype), self.weight.to(dtype)[:, None]
        self.group = torch.arange(self.X.shape[1]) if self.groups is None else self.groups.cpu()
        self.constant = max(float((self.w * self.y.square()).sum()), LEAST)

    @property
    def worth(self) -> bool:
        """Whether it may gain more than as many factors, and the penalty, gain by luck."""
        return 2 * (int(self.group.max()) + 2) <= MOST_GAIN * self.Y.numel()

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        r"""The logarithm of the error, in units of the constant's, with a prior on θ, and its slope.

        θ holds logarithms of factors and of the penalty.
        A fold that the others predict by :math:`K_o a`, with :math:`a = G^{-1}y` and residuals r of weights w, has the
        slope :math:`-2 (w r)^T \partial K_o\, a + 2 b^T \partial G\, a` with :math:`b = G^{-1} K_o^T w r`: all folds
        together are a sum of :math:`M \circ \partial K`, where M has the rank of the folds.
        """
        factors = torch.as_tensor(np.exp(theta[:-1]))[self.group].to(self.rows)
        lam = self.lam * math.exp(theta[-1])
        A = self.rows * factors
        A = A if self.turn is None else moved(A, self.transform.to(A))
        distance = distances(self.kernel, A, A).to(self.thin)
        K = tile(self.kernel, distance, self.length)
        M, error, by_penalty = torch.zeros_like(K), 0.0, 0.0
        for fold in self._folds():
            if (found := self._left_out(K, fold, lam)) is None:
                return 1.0, np.zeros_like(theta)
            R, a, loss = found
            M.addmm_(R, a.T)
            error, by_penalty = error + loss, by_penalty + lam * float((R * a / self.w).sum())
        error = max(error, LEAST * self.constant)
        slope = self._slope(M, K, distance, factors.to(K)).double().cpu() / error
        by_group = slope.new_zeros(len(theta) - 1).index_add_(0, self.group, slope)
        gradient = np.append(by_group.numpy(), by_penalty / error)
        value = math.log(error / self.constant) + PRIOR * float(theta @ theta)
        return value, gradient + 2 * PRIOR * theta

    def _folds(self) -> Iterator[slice]:
        ends = [len(self.rows) * k // FOLDS for k in range(FOLDS + 1)]
        return (slice(*pair) for pair in pairwise(ends))

    def _left_out(self, K: Tensor, fold: slice, lam: float) -> tuple[Tensor, Tensor, float] | None:
        """Both sides of a fold's slope (n × p) and its error; None where rounding leaves nothing positive definite."""
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

    def _slope(self, M: Tensor, K: Tensor, distance: Tensor, factors: Tensor) -> Tensor:
        """Σ M ∘ ∂K for the logarithm of each input's factor."""
        if isinstance(self.kernel, Radial):
            W, X = pulls(self.kernel, distance, self.length).mul_(M), self.thin
            S = X.T @ (0.5 * (W.sum(1) + W.sum(0))[:, None] * X - W @ X)
            S = 0.5 * (S + S.T)
            turned = S.diagonal() * factors if self.turn is None else (self.turn * S) @ factors
            return 2 * factors * turned
        W = K.mul_(M)
        return _spread(W, self.thin) * factors / -self.length

    def descended(self, over: Callable[[], bool] = lambda: False) -> tuple[Tensor, float] | None:
        """The transform and the penalty in which it ends, or is when time is `over`; None where it leads nowhere."""
        values: list[float] = []
        rounds = count(1)

        def told(theta: np.ndarray) -> tuple[float, np.ndarray]:
            value, slope = self(theta)
            values.append(value)
            return value, slope

        def nowhere() -> bool:
            return values[0] - min(values) < EARLY_GAIN

        def still(theta: np.ndarray) -> None:
            if over() or (next(rounds) == EARLY_ROUNDS and nowhere()):
                raise StopIteration

        start = np.zeros(int(self.group.max()) + 2)
        bounds = [(-REACH, REACH)] * (len(start) - 1) + [(-REACH_PENALTY, REACH_PENALTY)]
        options: dict[str, Any] = {"maxiter": ROUNDS, "maxfun": ROUNDS + 4, "maxls": STEP_EVALUATIONS}
        found = minimize_lbfgs(told, start, bounds, still, ftol=TOLERANCE, **options)
        if nowhere():
            return None
        factors = torch.as_tensor(np.exp(found.x[:-1]))[self.group].to(self.transform)
        return self.transform * factors, self.lam * math.exp(found.x[-1])


def _spread(W: Tensor, X: Tensor) -> Tensor:
    """Σ_ij W_ij |x_ik − x_jk| for each input: few rows at a time, whose differences stay in the cache."""
    columns, out = X.T.contiguous(), X.new_zeros(X.shape[1])
    size = max(SIGNS // max(columns.numel(), 1), 1)
    for start in range(0, len(X), size):
        some = slice(start, start + size)
        out += torch.bmm((X[some, :, None] - columns).abs_(), W[some, :, None]).sum((0, 2))
    return out
