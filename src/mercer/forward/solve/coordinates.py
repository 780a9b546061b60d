"""Coordinates in which polishing is well-posed: weights a of basis vectors as v = Lᵀa, with Q + τI = LLᵀ.

The penalty λaᵀ(Q + τI)a is λ|v|² there, so no rounding can make the system lose its definiteness, as it does among
weights: those of nearly dependent basis vectors are huge numbers of opposite sign. Everything is float64, tiles too
(a few passes over them, where float32 leads nowhere); τ keeps the weights so small that tiles of the plan's precision
hold the model afterwards.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from mercer.data import PreparedRows
from mercer.forward.problem import Problem
from mercer.linalg import cholesky

#: Rows that make a preconditioner, in units of the basis vectors. Twice as many halve the steps, which pays where a
#: step looks at more than `MANY` rows for each basis vector.
MANY = 50


class WhitenedCoordinates:
    """The functions Φ = K_nm L⁻ᵀ of a problem: values, slopes and weights of points v (m × p)."""

    def __init__(self, problem: Problem, index: Tensor, uses: int) -> None:
        problem.plan.require_square(len(index), copies=4)
        self.problem, self.index = _in_float64(problem), index
        self.basis = problem.basis(index).double()
        Q = self.problem.gram(self.basis)
        Q.diagonal().add_(_unresolved(Q, problem))
        self.L = cholesky(Q)[0]
        self.K = self.problem.matrix(self.basis, uses)

    def of(self, weights: Tensor) -> Tensor:
        return self.L.T @ weights

    def weights(self, v: Tensor) -> Tensor:
        return torch.linalg.solve_triangular(self.L.T, v, upper=True)

    def values(self, v: Tensor) -> Tensor:
        """Φ v, n × p."""
        return self.K.product(self.weights(v))

    def slopes(self, u: Tensor) -> Tensor:
        """Φᵀ u, m × p."""
        return torch.linalg.solve_triangular(self.L, self.K.transposed(u), upper=False)

    def normal(self, v: Tensor) -> Tensor:
        """ΦᵀDΦ v with the rows' weights D, from one look at the rows."""
        square = self.K.normal(self.weights(v), self.problem.weight)
        return torch.linalg.solve_triangular(self.L, square, upper=False)

    def objective(self, v: Tensor, f: Tensor) -> float:
        return float(self.problem.objective(f, self.problem.lam * v.square().sum()))

    def sample(self) -> Tensor:
        """Random rows of positive weight for a preconditioner, as many as there are basis vectors, which are not among
        them, or twice as many where rows are many.
        """
        others, m = self.problem.weight > 0, len(self.basis)
        shard = self.problem.rows.shard
        others[shard.held(self.index)[1]] = False
        n = shard.count(others)
        return shard.draw(others, 2 * m if n > MANY * m else m, np.random.default_rng(0))


class Preconditioner:
    r"""The inverse of :math:`\lambda I + \Phi_m^\top D\Phi_m + \tfrac{n - m}s \Phi_s^\top D\Phi_s`.

    Falkon takes the basis vectors as the sample of all rows, which presumes that they were drawn uniformly. These were
    chosen: they stand for themselves, at no cost since Φ_m = L, and s random rows for all others. Without them
    the few rows of largest leverage, which are chosen first, are missed, and steps take twice as many.
    """

    def __init__(self, at: WhitenedCoordinates, weight: Tensor, sample: Tensor) -> None:
        problem, rows = at.problem, at.problem.rows
        own, w = rows.pick(weight, at.index).double(), rows.pick(weight, sample).double()
        others = float(rows.total(weight.sum(dtype=torch.float64))) - float(own.sum())
        inner = _square(at.L * own.sqrt()[:, None])
        if len(sample):
            Phi = torch.linalg.solve_triangular(at.L, problem.kernel(at.basis, problem.basis(sample)), upper=False).T
            inner += _square(Phi * (w * max(others / max(float(w.sum()), 1e-300), 0.0)).sqrt()[:, None])
        inner.diagonal().add_(problem.lam)
        self.factor = cholesky(inner)[0]

    def __call__(self, r: Tensor) -> Tensor:
        return torch.cholesky_solve(r, self.factor)


class ByOutput:
    """A preconditioner of every output's own, for losses that see the differences of outputs alone.

    Along what all outputs have in common such a loss is flat, and nothing but the penalty holds it: the best model has
    none of it, so points and steps are kept without it. Left in, it makes the system as ill-posed as λ is small, steps
    multiply, and they end where rounding leads them: one process and two differed by 1e-5 of what they said. Where
    memory does not hold a factor for each output, all share one of their mean curvature.
    """

    def __init__(self, at: WhitenedCoordinates, weight: Tensor, sample: Tensor) -> None:
        fits = at.problem.plan.holds_square(len(at.L), copies=4 + weight.shape[1])
        self.each = [Preconditioner(at, one, sample) for one in (weight.T if fits else weight.mean(1)[None])]

    def __call__(self, r: Tensor) -> Tensor:
        r = without_common(r)
        if len(self.each) == 1:
            return self.each[0](r)
        return without_common(torch.cat([one(r[:, [k]]) for k, one in enumerate(self.each)], 1))


def without_common(v: Tensor) -> Tensor:
    """Outputs (m × p) less their mean."""
    return v - v.mean(1, keepdim=True)


def _square(Phi: Tensor, panel: int = 768) -> Tensor:
    """The lower block triangle of ΦᵀΦ, which is all that a Cholesky factor looks at."""
    out = Phi.new_zeros(Phi.shape[1], Phi.shape[1])
    for j in range(0, Phi.shape[1], panel):
        torch.mm(Phi[:, j:].T, Phi[:, j : j + panel], out=out[j:, j : j + panel])
    return out


def _unresolved(Q: Tensor, problem: Problem) -> float:
    r"""τ: what neither Q nor a model read in the plan's precision can hold.

    Q is known to rounding of float64. And tiles whose entries are off by eps κ, κ² their mean square, change the
    values of a model by eps κ|a| at each row, hence the expected loss by ½ n eps² κ² |a|²: noise in the inputs of a
    linear model is a ridge, :math:`\lambda\tau = n\,\mathrm{eps}^2\kappa^2`. Without it the best weights in
    float64 are worthless in float32 wherever basis vectors are alike to half its digits.
    """
    known = float(Q.diagonal().mean()) * 10 * len(Q) ** 0.5 * torch.finfo(Q.dtype).eps
    read = problem.sample.total_weight * torch.finfo(problem.plan.dtype).eps ** 2 * float(Q.square().mean())
    return known + read / max(problem.lam, 1e-300)


def _in_float64(problem: Problem) -> Problem:
    """The same rows, targets and weights with tiles in float64."""
    if problem.plan.dtype == torch.float64:
        return problem
    plan = replace(problem.plan, dtype=torch.float64)
    rows = PreparedRows(problem.rows, plan.device, plan.dtype)
    return problem.with_sample(rows=rows, Y=problem.y.double(), weight=problem.weight.double(), plan=plan)
