"""Whitened coordinates, in which polishing is well-posed.

They are v = Lᵀa for weights a of basis vectors, with Q + τI = LLᵀ.

The penalty λaᵀ(Q + τI)a is λ|v|² there, so rounding cannot make the system indefinite. In terms of weights it can:
nearly dependent basis vectors have huge weights of opposite sign. Everything is float64, tiles too, because steps in
float32 do not converge; τ keeps the weights small enough for predictions with tiles of the plan's precision.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from mercer.data import PreparedRows
from mercer.forward.problem import Problem
from mercer.linalg import cholesky

#: Rows per basis vector above which a preconditioner samples two rows for each basis vector instead of one: that halves
#: the number of steps, which pays off if a step reads many rows.
MANY_ROWS = 50


class WhitenedCoordinates:
    """The functions Φ = K_nm L⁻ᵀ: values, slopes and weights of v (m × p)."""

    def __init__(self, problem: Problem, index: Tensor, uses: int) -> None:
        problem.plan.require_square(len(index), copies=4)
        self.problem, self.index = in_float64(problem), index
        self.basis = problem.basis(index).double()
        Q = self.problem.gram(self.basis)
        Q.diagonal().add_(_rounding_ridge(Q, problem))
        self.L = cholesky(Q)[0]
        self.K = self.problem.matrix(self.basis, uses)

    def of(self, weights: Tensor) -> Tensor:
        """v = Lᵀa."""
        return self.L.T @ weights

    def weights(self, v: Tensor) -> Tensor:
        """a = L⁻ᵀv."""
        return torch.linalg.solve_triangular(self.L.T, v, upper=True)

    def values(self, v: Tensor) -> Tensor:
        """Φ v, n × p."""
        return self.K.product(self.weights(v))

    def slopes(self, u: Tensor) -> Tensor:
        """Φᵀ u, m × p."""
        return torch.linalg.solve_triangular(self.L, self.K.transposed(u), upper=False)

    def normal(self, v: Tensor) -> Tensor:
        """ΦᵀDΦ v with the rows' weights D, in one pass over the rows."""
        square = self.K.normal(self.weights(v), self.problem.weight)
        return torch.linalg.solve_triangular(self.L, square, upper=False)

    def objective(self, v: Tensor, f: Tensor) -> float:
        return float(self.problem.objective(f, self.problem.lam * v.square().sum()))

    def sample(self) -> Tensor:
        """Random rows for a preconditioner, one or two for each basis vector.

        Basis vectors are not drawn.
        """
        others, m = self.problem.weight > 0, len(self.basis)
        shard = self.problem.rows.shard
        others[shard.local(self.index)[1]] = False
        n = shard.count(others)
        return shard.draw(others, 2 * m if n > MANY_ROWS * m else m, np.random.default_rng(0))


class SamplePreconditioner:
    r"""The inverse of :math:`\lambda I + \Phi_m^\top D\Phi_m + \tfrac{n - m}s \Phi_s^\top D\Phi_s`.

    Falkon takes the basis vectors as a sample of all rows, which presumes that they were drawn uniformly. Here they
    were selected: they count for themselves, at no cost since Φ_m = L, and s random rows represent all others. Without
    the basis vectors the few rows of largest leverage are missed, and the number of steps doubles.
    """

    def __init__(self, coordinates: WhitenedCoordinates, weight: Tensor, sample: Tensor) -> None:
        problem, rows, L = coordinates.problem, coordinates.problem.rows, coordinates.L
        basis_weight = rows.pick(weight, coordinates.index).double()
        w = rows.pick(weight, sample).double()
        others = float(rows.total(weight.sum(dtype=torch.float64))) - float(basis_weight.sum())
        inner = _lower_gram(L * basis_weight.sqrt()[:, None])
        if len(sample):
            K_ms = problem.kernel(coordinates.basis, problem.basis(sample))
            Phi = torch.linalg.solve_triangular(L, K_ms, upper=False).T
            inner += _lower_gram(Phi * (w * max(others / max(float(w.sum()), 1e-300), 0.0)).sqrt()[:, None])
        inner.diagonal().add_(problem.lam)
        self.factor = cholesky(inner)[0]

    def __call__(self, r: Tensor) -> Tensor:
        return torch.cholesky_solve(r, self.factor)


class OutputPreconditioners:
    """One preconditioner for each output.

    It serves losses that depend on differences of outputs only.

    Along the mean of all outputs such a loss is flat and only the penalty acts: the best model has mean zero, so
    coordinates and steps are kept without it. Otherwise the system is as ill-posed as λ is small, steps multiply and
    end by rounding: one process and two differed by a relative 1e-5. If memory does not hold a factor for each output,
    all share one of their mean curvature.
    """

    def __init__(self, coordinates: WhitenedCoordinates, weight: Tensor, sample: Tensor) -> None:
        fits = coordinates.problem.plan.holds_square(len(coordinates.L), copies=4 + weight.shape[1])
        columns = weight.T if fits else weight.mean(1)[None]
        self.each = [SamplePreconditioner(coordinates, column, sample) for column in columns]

    def __call__(self, r: Tensor) -> Tensor:
        r = without_mean(r)
        if len(self.each) == 1:
            return self.each[0](r)
        return without_mean(torch.cat([solve(r[:, [k]]) for k, solve in enumerate(self.each)], 1))


def without_mean(v: Tensor) -> Tensor:
    """Outputs (m × p) less their mean."""
    return v - v.mean(1, keepdim=True)


def _lower_gram(Phi: Tensor, panel: int = 768) -> Tensor:
    """The lower block triangle of ΦᵀΦ, which is all that a Cholesky factor reads."""
    out = Phi.new_zeros(Phi.shape[1], Phi.shape[1])
    for j in range(0, Phi.shape[1], panel):
        torch.mm(Phi[:, j:].T, Phi[:, j : j + panel], out=out[j:, j : j + panel])
    return out


def _rounding_ridge(Q: Tensor, problem: Problem) -> float:
    r"""τ: the rounding of Q and of predictions with tiles of the plan's precision.

    Q has the rounding of float64. Tiles whose entries have errors of eps κ, κ² their mean square, change the
    values of a model by eps κ|a| at each row, hence the expected loss by ½ n eps² κ² |a|²: noise in the inputs of a
    linear model is a ridge, :math:`\lambda\tau = n\,\mathrm{eps}^2\kappa^2`. Without it the best weights in
    float64 are useless in float32 if basis vectors agree to half its digits.
    """
    of_Q = float(Q.diagonal().mean()) * 10 * len(Q) ** 0.5 * torch.finfo(Q.dtype).eps
    of_tiles = problem.sample.total_weight * torch.finfo(problem.plan.dtype).eps ** 2 * float(Q.square().mean())
    return of_Q + of_tiles / max(problem.lam, 1e-300)


def in_float64(problem: Problem) -> Problem:
    """The same rows, targets and weights with tiles in float64."""
    if problem.plan.dtype == torch.float64:
        return problem
    plan = replace(problem.plan, dtype=torch.float64)
    rows = PreparedRows(problem.rows, plan.device, plan.dtype)
    return problem.with_sample(rows=rows, Y=problem.y.double(), weight=problem.weight.double(), plan=plan)
