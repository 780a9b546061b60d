"""Core vector machine (Tsang, Kwok and Cheung 2005): the L2 support vector machine as a minimum enclosing ball.

A rival for COVTYPE, not an estimator of the package. With k̃(i, j) = y_i y_j (k(x_i, x_j) + 1) + δ_ij / C, its diagonal
constant, the machine is the smallest ball around the images of all rows. A core set grows by the rows furthest from
the centre of its own ball until none lies outside (1 + ε) times its radius. The authors add the furthest of 59 random
rows a round; here `batch` rows enter together, each the furthest of 59 random ones of its own: the same ball in fewer,
larger steps. The fit ends when none of a round's is outside. The problem on the core set, min ½βᵀK̃β − Σβ over β ≥ 0,
is solved by an active-set Newton method with Cholesky factors.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.data import TensorRows
from mercer.engine import KernelMatrix, make_plan
from mercer.kernels import Kernel

#: Rows looked at for each that enters: the furthest of 59 is among the furthest 5 % with a probability of 95 %.
SAMPLE = 59


@dataclass
class CoreVectorMachine:
    """`fit` keeps a line per round in `rounds_`: seconds, core vectors, largest violation, and the judge's number."""

    kernel: Kernel
    C: float = 10_000.0
    eps: float = 1e-6
    batch: int = 1000
    max_size: int = 40_000
    seconds: float = float("inf")
    device: str = "cpu"
    rounds_: list[dict[str, Any]] = field(default_factory=list)

    def fit(self, X: Tensor, y: Tensor, judge: Any = None) -> CoreVectorMachine:
        """`y` is ±1; `judge(machine)` may return a number after a round."""
        self.plan = make_plan(len(X), self.device)
        self.X, self.y = X.to(self.plan.device, self.plan.dtype), y.to(self.plan.device).double()
        began = time.perf_counter()
        self.diagonal = float(self.kernel.diag(self.X[:1].double())[0]) + 1 + 1 / self.C
        rng = np.random.default_rng(0)
        first = [rng.choice((self.y == sign).nonzero()[:, 0].cpu().numpy(), self.batch // 2, False) for sign in (-1, 1)]
        self.core = torch.from_numpy(np.concatenate(first)).to(self.plan.device)
        self.gram = self._block(self.core, self.core) + torch.eye(len(self.core)).to(self.y) / self.C
        beta = torch.zeros(len(self.core), dtype=torch.float64, device=self.plan.device)
        while True:
            beta = nonnegative_minimum(self.gram, beta)
            self.alpha = beta / beta.sum()
            self.weights, self.bias = (self.alpha * self.y[self.core])[:, None], float(self.alpha @ self.y[self.core])
            inside = float(self.alpha @ (self.gram @ self.alpha))
            drawn = torch.from_numpy(rng.integers(len(self.X), size=(self.batch, SAMPLE))).to(self.plan.device)
            distance2 = self.diagonal + inside - 2 * self._values(drawn.ravel()).view(drawn.shape)
            radius2 = self.diagonal - inside
            worst, at = distance2.max(1)
            violation = max(float(worst.max() / radius2), 0.0) ** 0.5 - 1
            took = time.perf_counter() - began
            line = {"seconds": took, "vectors": len(self.core), "support": int((beta > 0).sum()), "outside": violation}
            self.rounds_.append(line | ({} if judge is None else {"error": judge(self)}))
            if violation <= self.eps or len(self.core) + self.batch > self.max_size or took > self.seconds:
                return self
            new = drawn.gather(1, at[:, None])[worst > radius2 * (1 + self.eps) ** 2, 0].unique()
            beta = self._enlarge(new, beta)

    def _values(self, rows: Tensor) -> Tensor:
        """y_i times the centre's product with the image of row i; those of the core are in the ball and left alone."""
        K = KernelMatrix(TensorRows(self.X[rows]), self.kernel, self.X[self.core], self.plan)
        values = self.y[rows] * (K.product(self.weights)[:, 0].double() + self.bias)
        values[torch.isin(rows, self.core)] = torch.inf
        return values

    def _enlarge(self, new: Tensor, beta: Tensor) -> Tensor:
        cross = self._block(self.core, new)
        own = self._block(new, new) + torch.eye(len(new)).to(self.y) / self.C
        self.gram = torch.cat([torch.cat([self.gram, cross], 1), torch.cat([cross.T, own], 1)])
        self.core = torch.cat([self.core, new])
        return torch.cat([beta, torch.zeros(len(new)).to(beta)])

    def _block(self, a: Tensor, b: Tensor) -> Tensor:
        K = self.kernel(self.X[a].double(), self.X[b].double()) + 1
        return self.y[a][:, None] * K * self.y[b]

    def decision(self, X: Tensor) -> Tensor:
        rows = TensorRows(X.to(self.plan.device, self.plan.dtype))
        K = KernelMatrix(rows, self.kernel, self.X[self.core], self.plan)
        return K.product(self.weights)[:, 0] + self.bias


def nonnegative_minimum(H: Tensor, beta: Tensor, tol: float = 1e-9, max_iter: int = 100) -> Tensor:
    """The minimum of ½βᵀHβ − Σβ over β ≥ 0, for positive definite H, from a start (Newton on the active set).

    A full Newton step on the free variables is cut back to the positive orthant with a line search along the cut path,
    so the objective falls at every step; the free set settles after a few of them.
    """
    objective = lambda b: float(0.5 * b @ (H @ b) - b.sum())  # noqa: E731
    for _ in range(max_iter):
        slope = 1 - H @ beta
        free = (beta > 0) | (slope > tol)
        residual = torch.where(beta > 0, slope.abs(), slope.clamp(min=0)).max()
        if float(residual) <= tol * (1 + float(beta.max())):
            break
        index = free.nonzero()[:, 0]
        factor = torch.linalg.cholesky(H[index[:, None], index])
        target = torch.zeros_like(beta)
        target[index] = torch.cholesky_solve(torch.ones_like(index, dtype=H.dtype)[:, None], factor)[:, 0]
        before, length = objective(beta), 1.0
        while True:
            trial = (beta + length * (target - beta)).clamp(min=0)
            if objective(trial) < before or length < 1e-6:
                break
            length /= 2
        if not objective(trial) < before:
            break
        beta = trial
    return beta
