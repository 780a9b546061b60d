r"""Exact kernel logistic and softmax regression by Newton's method.

The minimum of :math:`\sum_i w_i V(y_i, f_i) + \tfrac\lambda2 \|f\|^2` has values f = Kα with dual coefficients
:math:`\alpha = -w V'/\lambda`. A Newton step δ solves (λI + WK) δ = −w V' − λα, with W the Hessian of the weighted
losses in f. The operator is self-adjoint in the product ⟨u, v⟩ = uᵀKv, so conjugate gradients in this product solve it.
They are preconditioned by λI + w̄K with a scalar w̄. One factor of K + (λ/w̄)I serves all classes. It gives Kz
along with the preconditioned z, so that a step of conjugate gradients costs one solution with the factor. These steps
are taken in float32 where its rounding is small beside λ/w̄: Newton's method corrects them from residuals in float64.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mercer.linalg import cholesky, float32_factor, solve_factored
from mercer.losses import Loss, class_likelihood
from mercer.selection.view import Candidate, Trial

if TYPE_CHECKING:
    from mercer.selection.search import Search


#: Newton steps at most, and steps of conjugate gradients in each at most.
NEWTON_STEPS, GRADIENT_STEPS = 30, 40
#: Decrease of the objective that ends Newton's method, as a share of the total weight.
TOLERANCE = 1e-5
#: The residual of Newton's equations at which conjugate gradients end, as a share of the right-hand side.
RESIDUAL = 0.3
#: The curvature of the preconditioner, as a share of the loss's largest one.
CURVATURE_SHARE = 0.2
#: The first penalty as a share of that of least squares, the factor between two penalties, and steps at most.
FIRST_SHARE, FACTOR, MOST_STEPS = 0.1, 10**0.5, 6


@dataclass(frozen=True)
class LikelihoodFit:
    """Dual coefficients and values (n × p)."""

    alpha: Tensor
    values: Tensor


class KernelLikelihood:
    """A problem with a kernel matrix (n × n), a penalty, and classes coded ±1 in `Y` (n × p) of rows with weights."""

    def __init__(self, K: Tensor, Y: Tensor, weight: Tensor, lam: float, loss: Loss) -> None:
        self.K, self.Y, self.weight, self.lam, self.loss = K, Y.double(), weight[:, None].double(), lam, loss
        self.curvature = CURVATURE_SHARE * loss.bound * float(weight.sum() / (weight > 0).sum().clamp(min=1))
        shift = lam / self.curvature
        shifted = K.clone()
        shifted.diagonal().add_(shift)
        largest = float(K.diagonal().max())  # zero if a linear kernel sees rows that are all the same
        factor = float32_factor(shifted, shift / largest) if largest > 0 else None
        self.factor = cholesky(shifted)[0] if factor is None else factor

    def fit(self, start: Tensor | None = None, expired: Callable[[], bool] = lambda: False) -> LikelihoodFit:
        """Minimise from the coefficients `start`, or from zero, until steps gain nothing or time has `expired`."""
        alpha = torch.zeros_like(self.Y) if start is None else start.to(self.Y)
        f = self._product(alpha)
        value = self._objective(alpha, f)
        enough = TOLERANCE * float(self.weight.sum())
        for n_steps in range(NEWTON_STEPS):
            if n_steps > 0 and expired():  # one step is a model already
                break
            step, change = self._newton_step(alpha, f)
            length = 1.0
            while (new := self._objective(alpha + length * step, f + length * change)) > value and length > 1e-3:
                length /= 2
            if not new <= value:
                break
            alpha, f, gain, value = alpha + length * step, f + length * change, value - new, new
            if gain <= enough:
                break
        return LikelihoodFit(alpha, f)

    def _objective(self, alpha: Tensor, f: Tensor) -> float:
        data = (self.weight * self.loss.value(self.Y, f)).sum()
        return float(data + 0.5 * self.lam * (alpha * f).sum())

    def _newton_step(self, alpha: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
        """The step δ of the coefficients and the change Kδ of the values."""
        s = (self.weight * self.loss.residual(self.Y, f) - self.lam * alpha).to(self.factor)
        Y, weight, f = self.Y.to(s), self.weight.to(s), f.to(s)
        z, Kz = self._preconditioned(s)
        d, Kd = z, Kz
        step, change = torch.zeros_like(s), torch.zeros_like(s)
        rho = float((s * Kz).sum())
        enough = RESIDUAL**2 * rho
        for _ in range(GRADIENT_STEPS):
            Ad = self.lam * d + weight * self.loss.bent(Y, f, Kd)
            curvature = float((Kd * Ad).sum())
            if not rho > enough or curvature <= 0:  # rounding leaves no direction
                break
            length = rho / curvature
            step, change, s = step + length * d, change + length * Kd, s - length * Ad
            z, Kz = self._preconditioned(s)
            before, rho = rho, float((s * Kz).sum())
            d, Kd = z + rho / before * d, Kz + rho / before * Kd
        if s.dtype == torch.float32:
            step = step.double()
            change = self._product(step)
        return step, change

    def _preconditioned(self, s: Tensor) -> tuple[Tensor, Tensor]:
        """z = (λI + w̄K)⁻¹ s and Kz = (s − λz)/w̄."""
        z = solve_factored(self.factor, s) / self.curvature
        return z, (s - self.lam * z) / self.curvature

    def _product(self, alpha: Tensor) -> Tensor:
        return (self.K @ alpha.to(self.K)).to(alpha)


class LikelihoodCandidate:
    """A candidate's kernel with a penalty for the log likelihood: `lam`, held-out `logits` and their `loss`."""

    def __init__(self, search: Search, candidate: Candidate) -> None:
        self.search, self.candidate = search, candidate
        self.score = replace(candidate.view.score, logits=True)
        self.lam = FIRST_SHARE * candidate.point.lam
        self.logits, self.loss = torch.zeros_like(self.score.Y), math.inf
        self._tiles: list[tuple[Tensor, Tensor]] = []
        self._duals: list[Tensor | None] = [None for _ in candidate.view.folds]

    def tuned(self) -> list[Candidate]:
        """Find the penalty of least held-out loss, and return the candidate with its new score."""
        began, view, most = time.perf_counter(), self.candidate.view, self.search.settings.last_fit_rows
        for K, K_score in view.kernels(self.candidate.point):
            self._tiles.append((K[:most, :most] + 1.0, K_score[:, :most] + 1.0))
        view.release()
        first = self.lam
        self._walk(first, 1 / FACTOR)
        if self.lam == first:
            self._walk(FACTOR * first, FACTOR)
        self._tiles, self._duals = [], []
        trial = Trial(self.candidate.point, self.loss, self.logits)
        return [Candidate(view, trial, time.perf_counter() - began)]

    def _walk(self, lam: float, factor: float) -> None:
        """Multiply the penalty by a factor as long as the held-out loss falls."""
        for _ in range(MOST_STEPS):
            if math.isfinite(self.loss) and self.search.expired():
                return
            logits = self._fit(lam)
            loss = float(self.score(logits[None])[0])
            if not loss < self.loss:
                return
            self.lam, self.logits, self.loss = lam, logits, loss
            lam *= factor

    def _fit(self, lam: float) -> Tensor:
        """Held-out logits with one penalty, from the coefficients of the penalty before."""
        codes, values = self.score.codes, []
        assert codes is not None
        for k, (fold, (K, K_score)) in enumerate(zip(self.candidate.view.folds, self._tiles, strict=True)):
            n, p = len(K), fold.Y.shape[1]
            Y = 2 * codes.shares(fold.Y[:n])[:, -p:] - 1
            problem = KernelLikelihood(K, Y, fold.weight[:n], lam, class_likelihood(p))
            alpha = self._duals[k] = problem.fit(self._duals[k]).alpha
            values.append(K_score.to(alpha) @ alpha)
        return torch.cat(values).to(self.score.Y)
