"""Combine the basis vectors of one learner into one function.

See Boost10 section III-B and Boost06.

All start from u = K_NSᵀ(w r) − λ f(x̃_S), the negative slope of the objective along each basis vector. The length of the
result does not matter: absorption finds the best one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from mercer.engine import KernelMatrix
from mercer.forward.problem import Problem
from mercer.kernels import Stationary
from mercer.linalg import cholesky, conjugate_gradients, whitening
from mercer.parts import Component, component

#: Sampled rows that a typical basis vector must cover for the sample to represent all rows.
MIN_COVERED = 30


@dataclass(frozen=True)
class Sketch:
    """A sample of rows that estimates K_NSᵀDK_NS.

    It holds its kernel matrix with the basis vectors, D, and its share of all rows.

    Each process has the sampled rows that it holds; the share is that of all processes.
    """

    K: KernelMatrix
    metric: Tensor
    share: float

    def curvature(self, problem: Problem, Q: Tensor, diagonal: Tensor) -> Tensor:
        r"""An estimate of K_NSᵀDK_NS whose `diagonal` is that of all rows.

        If a typical basis vector covers enough sampled rows, these give the correlations. If it is narrower, the rows
        around it are assumed to be evenly spread: then :math:`\sum_n k(x_n, z)k(x_n, z')` is to its diagonal as the
        kernel's square root :math:`k(z, z')^{1/2}` is to one, exactly for Gaussian kernels. All stationary kernels of
        this package are infinitely divisible (their logarithms are those of Gaussian, Student and stable laws), so the
        root is a kernel, too.
        """
        covered = diagonal.median() / Q.diagonal().mean() * self.share
        covered = problem.rows.shard.group.broadcast(covered)  # the same branch on all processes: they sum together
        if float(covered) >= MIN_COVERED or not isinstance(problem.kernel, Stationary):
            gram, _ = self.K.moments(self.metric[:, None][:, :0], weight=self.metric)
        else:
            gram = Q.clamp(min=0).sqrt()
        scale = (diagonal / gram.diagonal().clamp(min=torch.finfo(gram.dtype).tiny)).sqrt()  # no row may be near
        return gram * scale[:, None] * scale


@dataclass(frozen=True)
class ChosenVectors:
    """The basis vectors of a learner at one step: K_NS, Q = K_SS and the gradient.

    `gradient` is w·r (n × p), `at_basis` is f(x̃_S) (S × p), `metric` the diagonal of D. `draw_sketch`, if given, makes
    the sample of rows that estimates the curvature. It is called after a GPU was asked for the slopes.
    """

    problem: Problem
    K: KernelMatrix
    gradient: Tensor
    at_basis: Tensor
    metric: Tensor
    draw_sketch: Callable[[], Sketch] | None = None

    @cached_property
    def Q(self) -> Tensor:
        """K_SS in float64."""
        return self.problem.gram(self.K.basis)

    def slopes(self) -> Tensor:
        """u = K_NSᵀ(w r) − λ f(x̃_S)."""
        return self.K.transposed(self.gradient) - self.problem.lam * self.at_basis


class Combination(Component):
    """Computes the weights of a learner's basis vectors, one column per function."""

    #: Passes over the learner's tile for the weights and the values.
    passes = 2

    @abstractmethod
    def weights(self, chosen: ChosenVectors) -> Tensor:
        """S × b weights."""


@component
class Rayleigh(Combination):
    """a = Q⁻¹u, which maximises a Rayleigh quotient (Boost10 eq. 25)."""

    short_name = "rayleigh"

    def weights(self, chosen: ChosenVectors) -> Tensor:
        return torch.cholesky_solve(chosen.slopes(), cholesky(chosen.Q)[0])


@component
class JointPursuit(Combination):
    """MP: a = (λQ + K_NSᵀDK_NS)⁻¹u, the best function (Boost10 eq. 29).

    The paper avoided its cost of O(NS²); that is one matrix product, and the learner is stronger. Tiles in float64,
    which few rows get, are whitened first, so that a learner of all rows is kernel ridge to the last digit. In float32
    the tiles are whitened only if the basis vectors overlap so much that the rounding of the normal equations would
    spoil the learner (the first one on KIN40K with a long Matérn kernel has an objective of 3460 without and 734 with
    whitening). Otherwise rounding makes the function slightly worse than the best, and later learners correct it. With
    a `Sketch` the matrix is an estimate.
    """

    short_name = "mp"

    def weights(self, chosen: ChosenVectors) -> Tensor:
        if chosen.draw_sketch is not None:
            return self._sketched(chosen, chosen.draw_sketch)
        K, Q, metric, lam = chosen.K, chosen.Q, chosen.metric, chosen.problem.lam
        u, nothing, dtype = chosen.slopes(), chosen.gradient[:, :0], chosen.problem.plan.dtype
        eps = torch.finfo(dtype).eps
        if dtype == torch.float64 or _overlapping(Q):
            B = whitening(Q, dtype)
            gram, _ = K.moments(nothing, metric, B)
            rounding = eps * gram.diagonal().amax() if dtype == torch.float32 else 0.0
            gram.diagonal().add_(lam + rounding)
            return B @ torch.cholesky_solve(B.T @ u, cholesky(gram)[0])
        gram, _ = K.moments(nothing, weight=metric)
        # the rounding of the tiles: without it nearly equal rows would get huge weights of opposite sign
        gram.diagonal().add_(10 * eps * gram.diagonal().mean())
        return torch.cholesky_solve(u, cholesky(gram + lam * Q)[0])

    def _sketched(self, chosen: ChosenVectors, draw_sketch: Callable[[], Sketch]) -> Tensor:
        """One fused pass for the slopes and the diagonal of the curvature; its other entries are estimates."""
        problem = chosen.problem
        slope, diagonal = chosen.K.column_scores(chosen.gradient, chosen.metric)
        sketch, Q = draw_sketch(), chosen.Q
        gram = sketch.curvature(problem, Q, diagonal)
        gram.diagonal().add_(10 * torch.finfo(problem.plan.dtype).eps * gram.diagonal().mean())
        factor, _ = cholesky(gram + problem.lam * Q)
        return torch.cholesky_solve(slope - problem.lam * chosen.at_basis, factor)


def _overlapping(Q: Tensor) -> bool:
    """Whether the typical basis vector lies to more than 95 % in the span of the earlier ones."""
    pivots = cholesky(Q)[0].diagonal().square()
    return bool(pivots.median() < 0.05 * Q.diagonal().mean())


@component
class ConjugateGradients(Combination):
    """The system of `mp` by conjugate gradients (Boost06 step 2b).

    At most `max_iter` steps of O(NS) each are taken.

    With as many steps as basis vectors, forming the matrix of the system is cheaper than reading the tile in each step;
    the steps are then the same but for rounding.
    """

    short_name = "cg"
    max_iter: int = 10
    tol: float = 1e-10

    @property
    def passes(self) -> int:  # type: ignore[override]
        return self.max_iter

    def weights(self, chosen: ChosenVectors) -> Tensor:
        K, Q, metric, lam = chosen.K, chosen.Q, chosen.metric, chosen.problem.lam
        small = self.max_iter >= len(Q)
        gram = K.moments(chosen.gradient[:, :0], weight=metric)[0] + lam * Q if small else None

        def system(a: Tensor) -> Tensor:
            if gram is not None:
                return gram @ a
            return K.transposed(K.product(a) * metric[:, None]) + lam * (Q @ a)

        return conjugate_gradients(system, chosen.slopes(), tol=self.tol, max_iter=self.max_iter).x


@component
class Separate(Combination):
    """No combination: each basis vector is a function, as in forward selection."""

    short_name = "separate"
    passes = 1

    def weights(self, chosen: ChosenVectors) -> Tensor:
        return torch.eye(len(chosen.Q), dtype=torch.float64, device=chosen.Q.device)
