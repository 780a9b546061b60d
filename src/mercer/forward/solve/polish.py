"""Polish: improve all weights of the chosen basis vectors together.

Preconditioned conjugate gradients for ½‖y − Φv‖² + ½λ|v|² in whitened coordinates: two products with K_nm a step, which
the plan keeps in memory if it fits. Losses other than the squared one take Newton steps around it.

For least squares with few basis vectors one pass suffices (`whitened_ridge`). Factoring K_nmᵀK_nm formed in float32
loses the digits that a small penalty needs; whitening every tile first leaves a matrix whose conditioning is that of
the data, at O(nm²).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from mercer.data import PreparedRows, TensorRows
from mercer.engine import KernelMatrix
from mercer.forward.problem import Problem
from mercer.linalg import cholesky, conjugate_gradients, upper_product, whitening
from mercer.losses import Squared
from mercer.progress import report_step

#: Steps without a lower validation loss after which the iteration ends.
PATIENCE = 3
#: A rise of the objective by this share is rounding: the given weights are the minimum already.
ROUNDING = 1e-4
#: Up to this many basis vectors the one-pass solution is at least as fast (two cores, 36 000 rows).
DIRECT_SIZE = 1000
#: Rows per basis vector above which a preconditioner samples two rows for each basis vector instead of one: that halves
#: the number of steps, which pays off if a step reads many rows.
MANY_ROWS = 50


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
    """Improve the weights (m × p) of basis vectors, or start from zero.

    It ends when a step lowers the objective by less than `tol` of the decrease of all steps. The remainder does not
    change the error measurably (KIN40K: 1.581 %, also at a hundred times `tol`). With rows `validation` (indices) it
    ends once their loss has not fallen for `PATIENCE` steps or `expired` returns true, and the weights of the lowest
    loss are kept. A `ConvergenceWarning` is issued if rounding makes it diverge.
    """
    at = WhitenedCoordinates(problem, index, uses=2 * max_iter)
    m, p = len(index), problem.n_outputs
    v = at.L.new_zeros(m, p) if weights is None else at.of(weights.double())
    sample = at.sample()
    watch = None if validation is None else ValidationWatch(at, validation, v, max_iter, expired)
    solve = _least_squares if isinstance(problem.loss, Squared) else _newton
    v, f, n_iter, why = solve(at, v, sample, tol, max_iter, watch)
    if watch is not None:
        why = f"the validation error was lowest after {watch.best_step} of {n_iter} steps; {why}"
        v, n_iter = watch.best, watch.best_step
        f = at.values(v)
    return Polished(at.weights(v), f.to(problem.y.dtype), n_iter, why)


class ValidationWatch:
    """The validation loss after each step, and the coordinates of the lowest."""

    def __init__(
        self, at: WhitenedCoordinates, rows: Tensor, v: Tensor, uses: int, expired: Callable[[], bool]
    ) -> None:
        problem, self._expired = at.problem, expired
        self._y, self._loss, self._at, self._rows = problem.y[rows], problem.loss, at, rows
        X = TensorRows(problem.rows.take(rows).to(problem.plan.device, problem.plan.dtype), problem.rows.shard)
        self._K = KernelMatrix(X, problem.kernel, at.basis, problem.plan, uses)
        self.best, self.best_step, self._lowest = v, 0, self._error(v)

    def _error(self, v: Tensor) -> float:
        values = self._loss.value(self._y, self._K.product(self._at.weights(v)))
        return float(self._at.problem.validation_mean(values, self._rows))

    def __call__(self, step: int, v: Tensor) -> bool:
        """Whether to stop after this step."""
        if (error := self._error(v)) < self._lowest:
            self.best, self.best_step, self._lowest = v.clone(), step, error
        return step - self.best_step >= PATIENCE or self._expired()


def _least_squares(
    at: WhitenedCoordinates, v: Tensor, sample: Tensor, tol: float, max_iter: int, watch: ValidationWatch | None
) -> tuple[Tensor, Tensor, int, str]:
    """Solve (ΦᵀDΦ + λI)d = ΦᵀD(y − Φv) − λv for the change d of v.

    Near the minimum this right-hand side has digits that ΦᵀDy − (ΦᵀDΦ + λI)v would have lost.
    """
    y, weight, lam = at.problem.y, at.problem.weight, at.problem.lam
    before = at.values(v)

    def callback(step: int, d: Tensor) -> bool:
        report_step("polish", max_iter, step=step)
        return watch is not None and watch(step, v + d)

    found = conjugate_gradients(
        lambda d: at.normal(d) + lam * d,
        at.slopes(weight[:, None] * (y - before)) - lam * v,
        precondition=SamplePreconditioner(at, weight, sample),
        tol=1e-7,
        energy_tol=tol,
        max_iter=max_iter,
        callback=callback,
        conjugate_to_all=True,  # the number of steps must not depend on rounding, which depends on the blocks of rows
    )
    after = at.values(v + found.x)
    begun, ended = at.objective(v, before), at.objective(v + found.x, after)
    if ended <= begun:
        return v + found.x, after, found.n_iter, found.stop_reason
    if ended <= (1 + ROUNDING) * begun:
        why = f"no step of {found.n_iter} lowered the objective: the given weights are its minimum up to rounding"
        return v, before, found.n_iter, why
    why = f"{found.stop_reason}, above the objective of the given weights, which were kept"
    warnings.warn(
        f"polishing {len(v)} weights diverged by rounding and was undone: {why}; the basis vectors depend on each "
        "other to all digits, so take fewer of them, a shorter length-scale or a larger regularization",
        ConvergenceWarning,
        stacklevel=3,
    )
    return v, before, found.n_iter, why


def _newton(
    at: WhitenedCoordinates, v: Tensor, sample: Tensor, tol: float, max_iter: int, watch: ValidationWatch | None
) -> tuple[Tensor, Tensor, int, str]:
    """Newton steps by conjugate gradients, halved if the objective rises."""
    v = without_mean(v) if at.problem.loss.joint else v
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
    """The change of v (m × p) that solves Newton's equations to a tenth, as one system if the loss couples outputs.

    With the diagonal of the Hessian alone steps would be too long, and halved again and again.
    """
    loss, y, w, lam = at.problem.loss, at.problem.y, at.problem.weight[:, None], at.problem.lam
    curvature = w * loss.curvature(y, f)
    preconditioner = (
        OutputPreconditioners(at, curvature, sample)
        if loss.joint
        else SamplePreconditioner(at, curvature.mean(1), sample)
    )

    def as_matrix(x: Tensor) -> Tensor:
        return x.reshape(v.shape)

    def system(x: Tensor) -> Tensor:
        return (at.slopes(w * loss.bent(y, f, at.values(as_matrix(x)))) + lam * as_matrix(x)).reshape(x.shape)

    def precondition(r: Tensor) -> Tensor:
        return preconditioner(as_matrix(r)).reshape(r.shape)

    gradient = at.slopes(w * loss.residual(y, f)) - lam * v
    b = gradient.reshape(-1) if loss.joint else gradient
    found = conjugate_gradients(system, b, precondition=precondition, tol=0.1, max_iter=20, conjugate_to_all=True)
    return as_matrix(found.x)


def sparse_ridge(problem: Problem, index: Tensor) -> Tensor:
    r"""Weights a (m × p, float64) that minimise :math:`\tfrac12\|y - K_{nm}a\|_w^2 + \tfrac\lambda2 a^\top Q a`."""
    if len(index) <= DIRECT_SIZE or problem.plan.dtype == torch.float64:
        return whitened_ridge(problem, problem.basis(index))
    return polish(problem, index, max_iter=100).weights


def whitened_ridge(problem: Problem, basis: Tensor) -> Tensor:
    """The weights in one pass: with BᵀQB = I and Φ = K_nm B, (ΦᵀDΦ + λI)v = ΦᵀDy and a = Bv."""
    problem.plan.require_square(basis.shape[0])
    B = whitening(problem.gram(basis), problem.plan.dtype)
    weight = None if bool((problem.weight == 1).all()) else problem.weight
    gram, cross = problem.matrix(basis).moments(problem.y, weight, B)
    gram.diagonal().add_(problem.lam)
    factor, _ = cholesky(gram)
    return B @ torch.cholesky_solve(cross, factor)


class WhitenedCoordinates:
    """The functions Φ = K_nm L⁻ᵀ: values, slopes and weights of v (m × p).

    They are v = Lᵀa for weights a of basis vectors, with Q + τI = LLᵀ. The penalty λaᵀ(Q + τI)a is λ|v|² there, so
    rounding cannot make the system indefinite. In terms of weights it can: nearly dependent basis vectors have huge
    weights of opposite sign. Everything is float64, tiles too, because steps in float32 do not converge; τ keeps the
    weights small enough for predictions with tiles of the plan's precision.
    """

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
        """Random rows for a preconditioner, one or two for each basis vector, which are not drawn."""
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
        scaled = L * basis_weight.sqrt()[:, None]
        inner = upper_product(scaled, scaled)
        if len(sample):
            K_ms = problem.kernel(coordinates.basis, problem.basis(sample))
            Phi = torch.linalg.solve_triangular(L, K_ms, upper=False).T
            Phi = Phi * (w * max(others / max(float(w.sum()), 1e-300), 0.0)).sqrt()[:, None]
            inner += upper_product(Phi, Phi)
        inner.diagonal().add_(problem.lam)
        self.factor = cholesky(inner.mT)[0]  # which reads the lower half

    def __call__(self, r: Tensor) -> Tensor:
        return torch.cholesky_solve(r, self.factor)


class OutputPreconditioners:
    """One preconditioner for each output, for losses that depend on differences of outputs only.

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
