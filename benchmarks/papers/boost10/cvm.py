"""Core vector machine (Tsang, Kwok and Cheung 2005): the L2 support vector machine as a minimum enclosing ball.

A rival for COVTYPE, not an estimator of the package. With k̃(i, j) = y_i y_j (k(x_i, x_j) + 1) + δ_ij / C, its diagonal
constant, the machine is the smallest ball around the images of all rows. A core set grows by rows furthest from the
centre of its own ball. As in the authors' LibCVM: the furthest of 60 random rows enters, half of them of either class;
the fit ends when seven such samples in a row have none outside (1 + ε) times the radius, or with 50 000 core vectors.
Unlike there, 3 % of the core set enter before the ball is found again, each the furthest of a sample of its own: one at
a time would take 50 000 solutions. The problem on the core set, min ½βᵀK̃β − Σβ over β ≥ 0, is solved by Newton's
method on its primal form, with Cholesky factors.
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

#: LibCVM's: rows looked at for each that enters, samples in a row without any after which a fit ends, first core set.
SAMPLE, BLANKS, START = 60, 7, 20


@dataclass
class CoreVectorMachine:
    """`fit` keeps a line per round in `rounds_`: seconds, core vectors, largest violation, bias, the judge's number.

    `bias` is in units of the margin ρ, which every support vector has up to its slack.
    """

    kernel: Kernel
    C: float = 10_000.0
    eps: float = 1e-6
    share: float = 0.03
    max_size: int = 50_000
    seconds: float = float("inf")
    device: str = "cpu"
    rounds_: list[dict[str, Any]] = field(default_factory=list)
    stop_reason_: str = ""

    def fit(self, X: Tensor, y: Tensor, judge: Any = None) -> CoreVectorMachine:
        """`y` is ±1; `judge(machine)` may return a number after a round."""
        self._read(X, y)
        rng, began = np.random.default_rng(0), time.perf_counter()
        first = np.concatenate([rng.choice(rows, START // 2, replace=False) for rows in self.classes])
        beta = self._enlarge(torch.from_numpy(first).to(self.core), torch.empty(0).to(self.y))
        while True:
            beta = self._centre(beta)
            new, outside = self._furthest(rng)
            took = time.perf_counter() - began
            line = {"seconds": took, "vectors": len(beta), "support": int((beta > 0).sum()), "outside": outside,
                    "bias": self.bias / self.margin}  # fmt: skip
            self.rounds_.append(line | ({} if judge is None else {"error": judge(self)}))
            if reason := self._reason(len(beta), len(new), took):
                self.stop_reason_ = reason
                return self
            beta = self._enlarge(new, beta)

    def solve(self, X: Tensor, y: Tensor) -> CoreVectorMachine:
        """The ball of all rows at once: where `fit` would end with ε = 0."""
        self._read(X, y)
        self._centre(self._enlarge(torch.arange(len(X)).to(self.core), torch.empty(0).to(self.y)))
        return self

    def _read(self, X: Tensor, y: Tensor) -> None:
        self.plan = make_plan(len(X), self.device)
        self.X, self.y = X.to(self.plan.device, self.plan.dtype), y.to(self.plan.device).double()
        self.classes = [(self.y == sign).nonzero()[:, 0].cpu().numpy() for sign in (-1, 1)]
        self.size = min(self.max_size, len(X))
        self.gram = torch.empty((self.size, self.size), dtype=torch.float64, device=self.plan.device)
        self.core = torch.empty(0, dtype=torch.int64, device=self.plan.device)
        self.diagonal = float(self.kernel.diag(self.X[:1].double())[0]) + 1 + 1 / self.C

    def _reason(self, size: int, entering: int, took: float) -> str:
        if size == self.size:
            return f"{size} core vectors"
        if not entering:
            return f"{BLANKS} samples in a row had no row outside"
        return f"{self.seconds:g} s" if took > self.seconds else ""

    def _centre(self, beta: Tensor) -> Tensor:
        """The ball of the core set: its centre Σ α_i y_i φ̃(x_i), and the margin ρ = αᵀK̃α."""
        own = self.gram[: len(beta), : len(beta)]
        beta = nonnegative_minimum(own, beta, self.C)
        alpha = beta / beta.sum()
        self.weights, self.bias = (alpha * self.y[self.core])[:, None], float(alpha @ self.y[self.core])
        self.margin = float(alpha @ (own @ alpha))
        return beta

    def _furthest(self, rng: np.random.Generator) -> tuple[Tensor, float]:
        """The rows that enter next, and how far the furthest row drawn lies outside, as a share of the radius."""
        radius2, size = self.diagonal - self.margin, len(self.core)
        n_samples = max(int(self.share * size), BLANKS)
        halves = [rng.choice(rows, (n_samples, SAMPLE // 2)) for rows in self.classes]
        drawn = torch.from_numpy(np.concatenate(halves, axis=1)).to(self.core)
        distance2 = self.diagonal + self.margin - 2 * self._values(drawn.ravel()).view(drawn.shape)
        furthest, at = distance2.max(1)
        outside = furthest > radius2 * (1 + self.eps) ** 2
        new = drawn.gather(1, at[:, None])[outside & ~_ended(outside), 0].unique()
        return new[: self.size - size], max(float(furthest.max() / radius2), 0.0) ** 0.5 - 1

    def _values(self, rows: Tensor) -> Tensor:
        """y_i times the centre's product with the image of row i; those of the core are in the ball and left alone."""
        K = KernelMatrix(TensorRows(self.X[rows]), self.kernel, self.X[self.core], self.plan)
        values = self.y[rows] * (K.product(self.weights)[:, 0].double() + self.bias)
        values[torch.isin(rows, self.core)] = torch.inf
        return values

    def _enlarge(self, new: Tensor, beta: Tensor) -> Tensor:
        n, m = len(beta), len(beta) + len(new)
        self.core = torch.cat([self.core, new])
        self.gram[:m, n:m] = self._block(self.core, new)
        self.gram[n:m, :n] = self.gram[:n, n:m].T
        self.gram[n:m, n:m].diagonal().add_(1 / self.C)
        return torch.cat([beta, torch.zeros(len(new)).to(beta)])

    def _block(self, a: Tensor, b: Tensor) -> Tensor:
        K = self.kernel(self.X[a].double(), self.X[b].double()) + 1
        return self.y[a][:, None] * K * self.y[b]

    def decision(self, X: Tensor) -> Tensor:
        rows = TensorRows(X.to(self.plan.device, self.plan.dtype))
        K = KernelMatrix(rows, self.kernel, self.X[self.core], self.plan)
        return K.product(self.weights)[:, 0] + self.bias


def _ended(outside: Tensor) -> Tensor:
    """Which samples would not have been drawn: those after so many in a row without a row outside."""
    blanks, ended = 0, torch.zeros_like(outside)
    for i, found in enumerate(outside.tolist()):
        if blanks >= BLANKS:
            ended[i:] = True
            break
        blanks = 0 if found else blanks + 1
    return ended


def nonnegative_minimum(H: Tensor, beta: Tensor, C: float, tol: float = 1e-9, max_iter: int = 100) -> Tensor:
    """The minimum of ½βᵀHβ − Σβ over β ≥ 0 for H = K + I/C, from a start: Newton's method on the primal problem.

    With f = Kβ that is min ½βᵀf + ½C Σ max(0, 1 − f_i)² (Chapelle 2007), a piecewise quadratic: a step solves the rows
    with f_i < 1 and goes as far as the objective falls. At the minimum β_i = C max(0, 1 − f_i). Newton steps on β cut
    back to β ≥ 0 need not lower the objective at all, so there is none of those.
    """
    f = H @ beta - beta / C
    for _ in range(max_iter):
        short = f < 1
        index = short.nonzero()[:, 0]
        factor = torch.linalg.cholesky(H[index[:, None], index])
        target = torch.zeros_like(beta)
        target[index] = torch.cholesky_solve(torch.ones_like(index, dtype=H.dtype)[:, None], factor)[:, 0]
        del factor
        step, ahead = target - beta, H @ target - target / C - f
        length = _lowest(beta, f, step, ahead, C)
        beta, f = beta + length * step, f + length * ahead
        if float((beta - C * (1 - f).clamp(min=0)).abs().max()) <= tol * (1 + float(beta.abs().max())):
            break
    return beta.clamp(min=0)


def _lowest(beta: Tensor, f: Tensor, step: Tensor, ahead: Tensor, C: float) -> float:
    """How far to go: one where the objective still falls there, else where its slope, which never falls, is zero."""

    def slope(t: float) -> float:
        return float(beta @ ahead + t * (step @ ahead) - C * ((1 - f - t * ahead).clamp(min=0) @ ahead))

    low, high = 0.0, 1.0
    if slope(high) <= 0:
        return high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return (low + high) / 2
