"""Polish: all weights of the chosen basis vectors improved together, starting from those at hand.

Preconditioned conjugate gradients for ½‖y − Φv‖² + ½λ|v|² in well-posed coordinates: two products with K_nm a step,
which the plan keeps where it fits. Losses other than the squared one take Newton steps around it.

For least squares and few basis vectors one pass will do (`whitened_ridge`). Forming K_nmᵀK_nm in float32 and factoring
it loses what a small penalty needs; whitening every tile first leaves a matrix whose conditioning is that of the data,
at O(nm²).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from mercer.data import TensorRows
from mercer.engine import KernelMatrix
from mercer.forward.problem import Problem
from mercer.forward.solve.coordinates import ByOutput, Preconditioner, WhitenedCoordinates, without_common
from mercer.linalg import cholesky, conjugate_gradients, whitening
from mercer.losses import Squared
from mercer.progress import report_step

#: Steps without a lower validation error after which the iteration ends.
PATIENCE = 3
#: A rise of the objective by this share is rounding: what was at hand is the minimum already.
ROUNDING = 1e-4
#: Up to this many basis vectors the one-pass solution is at least as fast (two cores, 36 000 rows).
DIRECT_SIZE = 1000


@dataclass(frozen=True)
class Polished:
    """Weights (m × p), values of the model at all rows, and why the iteration ended."""

    weights: Tensor
    f: Tensor
    n_iter: int
    stop_reason: str


def polish(
    problem: Problem,
    index: Tensor,
    weights: Tensor | None = None,
    *,
    tol: float = 1e-5,
    max_iter: int = 50,
    validation: Tensor | None = None,
    expired: Callable[[], bool] = lambda: False,
) -> Polished:
    """Improve the weights of basis vectors `index`, from `weights` (m × p) or from zero.

    It ends when a step lowers the objective by less than `tol` of what all steps did: steps gain ever less, and what
    is left then changes no error that one could measure (KIN40K: 1.581 %, and still so at a hundred times `tol`).
    With rows `validation` (indices), it ends once their loss has not fallen for `PATIENCE` steps, or once `expired`
    says that the time is over, and the weights of the lowest one are kept. Where rounding leads it astray, a
    `ConvergenceWarning` says so.
    """
    at = WhitenedCoordinates(problem, index, uses=2 * max_iter)
    m, p = len(index), problem.n_outputs
    v = at.L.new_zeros(m, p) if weights is None else at.of(weights.double())
    sample = at.sample()
    watch = None if validation is None else Watch(at, validation, v, max_iter, expired)
    solve = _least_squares if isinstance(problem.loss, Squared) else _newton
    v, f, n_iter, why = solve(at, v, sample, tol, max_iter, watch)
    if watch is not None:
        why = f"the validation error was lowest after {watch.best_step} of {n_iter} steps; {why}"
        v, n_iter = watch.best, watch.best_step
        f = at.values(v)
    return Polished(at.weights(v), f.to(problem.y.dtype), n_iter, why)


class Watch:
    """The loss on rows held out after each step, and the point that had the lowest."""

    def __init__(
        self, at: WhitenedCoordinates, rows: Tensor, v: Tensor, uses: int, expired: Callable[[], bool] = lambda: False
    ) -> None:
        problem, self._expired = at.problem, expired
        self._y, self._loss, self._at, self._rows = problem.y[rows], problem.loss, at, rows
        own = TensorRows(problem.rows.take(rows).to(problem.plan.device, problem.plan.dtype), problem.rows.shard)
        self._K = KernelMatrix(own, problem.kernel, at.basis, problem.plan, uses)
        self.best, self.best_step, self._lowest = v, 0, self._error(v)

    def _error(self, v: Tensor) -> float:
        values = self._loss.value(self._y, self._K.product(self._at.weights(v)))
        return float(self._at.problem.mean(values, self._rows))

    def __call__(self, step: int, v: Tensor) -> bool:
        """Whether to stop after this step."""
        if (error := self._error(v)) < self._lowest:
            self.best, self.best_step, self._lowest = v.clone(), step, error
        return step - self.best_step >= PATIENCE or self._expired()


def _least_squares(
    at: WhitenedCoordinates, v: Tensor, sample: Tensor, tol: float, max_iter: int, watch: Watch | None
) -> tuple[Tensor, Tensor, int, str]:
    """The change of v solves (ΦᵀDΦ + λI)d = ΦᵀD(y − Φv) − λv: where little is left to explain, that slope has digits
    which ΦᵀDy − (ΦᵀDΦ + λI)v would have lost."""
    y, weight, lam = at.problem.y, at.problem.weight, at.problem.lam
    before = at.values(v)

    def stepped(step: int, d: Tensor) -> bool:
        report_step("polish", max_iter, step=step)
        return watch is not None and watch(step, v + d)

    found = conjugate_gradients(
        lambda d: at.normal(d) + lam * d,
        at.slopes(weight[:, None] * (y - before)) - lam * v,
        precondition=Preconditioner(at, weight, sample),
        tol=1e-7,
        energy_tol=tol,
        max_iter=max_iter,
        callback=stepped,
        conjugate_to_all=True,  # the step at which it ends must not follow rounding, which follows the blocks of rows
    )
    after = at.values(v + found.x)
    begun, ended = at.objective(v, before), at.objective(v + found.x, after)
    if ended <= begun:
        return v + found.x, after, found.n_iter, found.stop_reason
    if ended <= (1 + ROUNDING) * begun:
        why = (
            f"no step of {found.n_iter} lowered the objective: the weights at hand are its minimum as far as digits go"
        )
        return v, before, found.n_iter, why
    why = f"{found.stop_reason}, above the objective of the weights at hand, which were kept"
    warnings.warn(
        f"polishing {len(v)} weights led away from the minimum and was undone: {why}; the basis vectors depend on each "
        "other to all digits, so take fewer of them, a shorter length-scale or a larger regularization",
        ConvergenceWarning,
        stacklevel=3,
    )
    return v, before, found.n_iter, why


def _newton(
    at: WhitenedCoordinates, v: Tensor, sample: Tensor, tol: float, max_iter: int, watch: Watch | None
) -> tuple[Tensor, Tensor, int, str]:
    """Newton steps, each by conjugate gradients; a step that would raise the objective is halved."""
    v = without_common(v) if at.problem.loss.joint else v
    f = at.values(v)
    value, why, n_iter = at.objective(v, f), f"all {max_iter} Newton steps were taken", 0
    for n_iter in range(1, max_iter + 1):
        step = _newton_step(at, v, f, sample)
        along, length = at.values(step), 1.0
        while (new := at.objective(v + length * step, f + length * along)) > value and length > 1e-3:
            length /= 2
        settled = value - new <= tol * abs(value)
        if new < value:
            v, f, value = v + length * step, f + length * along, new
        report_step("polish", max_iter, step=n_iter)
        stops = watch is not None and watch(n_iter, v)
        if settled:
            why = f"the objective fell by less than a share of {tol:g} in Newton step {n_iter}"
        elif stops:
            why = f"held-out rows were predicted no better for {PATIENCE} Newton steps"
        else:
            continue
        break
    return v, f, n_iter, why


def _newton_step(at: WhitenedCoordinates, v: Tensor, f: Tensor, sample: Tensor) -> Tensor:
    """The change of v (m × p) that solves Newton's equations to a tenth; outputs that meet in the loss are one system.

    With the diagonal of the Hessian alone, steps would be too long and halved again and again.
    """
    loss, y, w, lam = at.problem.loss, at.problem.y, at.problem.weight[:, None], at.problem.lam
    curvature = w * loss.curvature(y, f)
    inner = ByOutput(at, curvature, sample) if loss.joint else Preconditioner(at, curvature.mean(1), sample)

    def shaped(x: Tensor) -> Tensor:
        return x.reshape(v.shape)

    def system(x: Tensor) -> Tensor:
        return (at.slopes(w * loss.bent(y, f, at.values(shaped(x)))) + lam * shaped(x)).reshape(x.shape)

    def precondition(r: Tensor) -> Tensor:
        return inner(shaped(r)).reshape(r.shape)

    gradient = at.slopes(w * loss.residual(y, f)) - lam * v
    b = gradient.reshape(-1) if loss.joint else gradient
    found = conjugate_gradients(system, b, precondition=precondition, tol=0.1, max_iter=20, conjugate_to_all=True)
    return shaped(found.x)


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
