"""Least squares with the coupling term of MEKL13: our own step, regression with several empirical kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from mercer.empirical.coordinates import Coordinates
from mercer.linalg import cholesky

#: A coupling beyond which functions agree to all digits that the system of equations leaves them.
LARGEST_COUPLING = 1e8


@dataclass(frozen=True)
class JointMoments:
    """Centred second moments of all kernels side by side (R × R, R = Σ r_l) and with the targets (R × P)."""

    gram: Tensor
    cross: Tensor
    mean: Tensor
    target_mean: Tensor
    target_square: Tensor
    ranks: list[int]


def joint_moments(coordinates: Coordinates, targets: Tensor, weight: Tensor) -> JointMoments:
    """All that `coupled_ridge` needs of the rows, in one pass; `targets` is n × P."""
    R, P = sum(coordinates.ranks), targets.shape[1]
    coordinates.plan.require_square(R)
    gram = torch.zeros(R + P + 1, R + P + 1, dtype=torch.float64, device=coordinates.plan.device)
    root = weight.sqrt()[:, None]

    def visit(where: slice, features: Sequence[Tensor]) -> None:
        ones = torch.ones_like(targets[where, :1])
        block = torch.cat([*features, targets[where], ones], 1) * root[where]
        gram.add_(block.T @ block)

    coordinates.each(visit)
    gram = coordinates.total(gram)
    n, sums = gram[-1, -1], gram[-1, :-1]
    centred = gram[:-1, :-1] - torch.outer(sums, sums) / n
    mean = sums / n
    square = centred.diagonal()[R:]
    return JointMoments(centred[:R, :R], centred[:R, R:], mean[:R], mean[R:], square, coordinates.ranks)


def coupled_ridge(moments: JointMoments, c: float, lam: float) -> tuple[list[Tensor], Tensor, Tensor]:
    r"""The exact minimum of

    .. math:: \sum_l \big[\|S^{1/2}(y - f_l)\|^2 + c\|w_l\|^2\big] + \lambda\sum_l \|S^{1/2}(f_l - \bar f)\|^2,
        \qquad f_l = \Phi_l w_l + a_l,\ \bar f = \tfrac1M\sum_l f_l.

    Σ_l (y − f_l)² is M(y − f̄)² + Σ_l (f_l − f̄)², so the problem is convex from λ = −1 on: there only f̄ is fitted, which
    is ridge regression with the mean of the kernels; λ = 0 fits each kernel alone, and larger λ makes them agree.
    It is quadratic: one system of size Σ r_l gives the weights (r_l × P), the biases (M × P) and the objective (P).
    """
    M, ranks, lam = len(moments.ranks), moments.ranks, min(lam, LARGEST_COUPLING)
    edges = [0, *torch.tensor(ranks).cumsum(0).tolist()]
    A = moments.gram * (-lam / M)
    for a, z in pairwise(edges):
        A[a:z, a:z] = (1 + lam * (M - 1) / M) * moments.gram[a:z, a:z]
    A.diagonal().add_(c)
    w = torch.cholesky_solve(moments.cross, cholesky(A)[0])
    # with means gone, every kernel's bias is the targets' mean less what its weights make of the features' means
    W = list(w.split(ranks))
    bias = torch.stack([moments.target_mean - m @ one for m, one in zip(moments.mean.split(ranks), W, strict=True)])
    objective = M * moments.target_square - 2 * (w * moments.cross).sum(0) + (w * (A @ w)).sum(0)
    return W, bias, objective.clamp(min=0.0)
