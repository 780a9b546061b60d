"""All weights of given basis vectors at once, for least squares: in one pass, or by conjugate gradients.

Forming K_nmᵀK_nm in float32 and factoring it loses what a small penalty needs; whitening every tile first
leaves a matrix whose conditioning is that of the data, at O(nm²). For many basis vectors conjugate
gradients with a good preconditioner reach the same weights in a few passes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mercer.forward.problem import Problem
from mercer.forward.solve.polish import polish
from mercer.linalg import cholesky, whitening

#: Up to this many basis vectors the one-pass solution is at least as fast (two cores, 36 000 rows).
DIRECT_SIZE = 1000


def sparse_ridge(problem: Problem, index: Tensor) -> Tensor:
    r"""Weights a (m × p, float64) that minimise :math:`\tfrac12\|y - K_{nm}a\|_w^2 + \tfrac\lambda2 a^\top Q a`."""
    if len(index) <= DIRECT_SIZE or problem.plan.dtype == torch.float64:
        return whitened_ridge(problem, problem.basis(index))
    return polish(problem, index, max_iter=100).weights


def whitened_ridge(problem: Problem, basis: Tensor) -> Tensor:
    """The weights in one pass: with BᵀQB = I and Φ = K_nm B, (ΦᵀDΦ + λI)v = ΦᵀDy and a = Bv."""
    problem.plan.require_square(basis.shape[0])
    whiten = whitening(problem.gram(basis), dtype=problem.plan.dtype)
    weight = None if bool((problem.weight == 1).all()) else problem.weight
    gram, cross = problem.matrix(basis).moments(problem.y, weight=weight, whiten=whiten)
    gram.diagonal().add_(problem.lam)
    factor, _ = cholesky(gram)
    return whiten.back(torch.cholesky_solve(cross, factor))
