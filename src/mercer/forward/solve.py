"""All weights of given basis vectors at once: whitened normal equations, one pass over the rows.

Least squares only. Forming K_nmᵀK_nm in float32 and factoring it loses what a small penalty needs;
whitening every tile first leaves a matrix whose conditioning is that of the data.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mercer.forward.problem import Problem
from mercer.linalg import cholesky, whitening


def sparse_ridge(problem: Problem, basis: Tensor) -> Tensor:
    r"""Weights a (m × p, float64) that minimise :math:`\tfrac12\|y - K_{nm}a\|_w^2 + \tfrac\lambda2 a^\top Q a`.

    With B such that BᵀQB = I and Φ = K_nm B the problem is (ΦᵀDΦ + λI)v = ΦᵀDy, a = Bv.
    """
    problem.plan.require_square(basis.shape[0])
    whiten = whitening(problem.gram(basis), dtype=problem.plan.dtype)
    weight = None if bool((problem.weight == 1).all()) else problem.weight
    gram, cross = problem.matrix(basis).moments(problem.y, weight=weight, whiten=whiten)
    gram.diagonal().add_(problem.lam)
    factor, _ = cholesky(gram)
    return whiten.back(torch.cholesky_solve(cross, factor))
