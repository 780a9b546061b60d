"""Polish: all weights of the chosen basis vectors improved together, starting from those at hand.

Preconditioned conjugate gradients on (K_nmᵀDK_nm + λQ)a = K_nmᵀDy: two products with K_nm a step,
which the plan keeps where it fits. Losses other than the squared one take Newton steps around it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mercer.data import PreparedRows, TensorRows
from mercer.engine import KernelMatrix
from mercer.forward.problem import Problem
from mercer.linalg import cholesky, conjugate_gradients, lifted
from mercer.losses import Squared

#: Steps without a lower validation error after which the iteration ends.
PATIENCE = 3


@dataclass(frozen=True)
class Polished:
    """Weights (m × p), values of the model at all rows, and why the iteration ended."""

    weights: Tensor
    f: Tensor
    n_iter: int
    stop_reason: str
    in_trouble: bool = False  # whether the iteration made things worse, so that its start was kept


class Preconditioner:
    r"""The inverse of λQ + (n/s) K_smᵀDK_sm for s sampled rows, as two triangular factors.

    With Q = LLᵀ and the sampled rows whitened, Φ_s = K_sm L⁻ᵀ, it is
    :math:`L^{-\top}(\lambda I + \tfrac ns \Phi_s^\top D\Phi_s)^{-1}L^{-1}`. Falkon takes the basis vectors
    themselves as the sample, which presumes that they were drawn uniformly; these were chosen.
    """

    def __init__(self, problem: Problem, basis: Tensor, weight: Tensor, sample: Tensor) -> None:
        dtype = problem.plan.dtype
        # The preconditioner may be rough: a little more diagonal costs a step or two, a failed factor all.
        lift = basis.shape[0] ** 0.5 * 10 * torch.finfo(dtype).eps
        self.L = _factor(lifted(problem.kernel(basis, basis), lift))
        Phi = torch.linalg.solve_triangular(self.L, problem.kernel(basis, problem.basis(sample)), upper=False)
        w = weight[sample].to(dtype)
        share = float(weight.sum()) / max(float(w.sum()), 1e-300)
        inner = (Phi * (share * w)) @ Phi.T
        inner.diagonal().add_(problem.lam)
        self.A = _factor(inner)

    def __call__(self, r: Tensor) -> Tensor:
        x = torch.linalg.solve_triangular(self.L, r.to(self.L.dtype), upper=False)
        x = torch.cholesky_solve(x, self.A)
        return torch.linalg.solve_triangular(self.L.T, x, upper=True).double()


def _factor(A: Tensor) -> Tensor:
    factor, info = torch.linalg.cholesky_ex(A)
    return factor if not int(info) else cholesky(A)[0].to(A.dtype)


def polish(
    problem: Problem,
    index: Tensor,
    weights: Tensor | None = None,
    *,
    tol: float = 1e-5,
    max_iter: int = 50,
    sample_size: int | None = None,
    seed: int = 0,
    validation: Tensor | None = None,
) -> Polished:
    """Improve the weights of basis vectors `index`, from `weights` (m × p) or from zero.

    It ends when a step lowers the objective by less than `tol` of what all steps did: steps gain ever less, and what
    is left then changes no error that one could measure (KIN40K: 1.581 %, and still so at a hundred times `tol`).
    `sample_size` rows (twice the basis vectors by default, which halves the steps that once as many need) make the
    preconditioner. With rows `validation` (indices), it ends once their loss has not fallen for `PATIENCE` steps, and
    the weights of the lowest one are kept.
    """
    basis = problem.basis(index)
    problem.plan.require_square(len(index), copies=3)
    K = problem.matrix(basis, uses=2 * max_iter)
    m, p = len(index), problem.n_outputs
    a = torch.zeros(m, p, dtype=torch.float64, device=problem.plan.device) if weights is None else weights.clone()
    rows = problem.candidates()
    size = min(len(rows), 2 * m if sample_size is None else sample_size)
    generator = torch.Generator().manual_seed(seed)
    sample = rows[torch.randperm(len(rows), generator=generator)[:size].to(rows.device)]
    watch = None if validation is None else Watch(problem, basis, validation, a, max_iter)
    solve = _least_squares if isinstance(problem.loss, Squared) else _newton
    done = solve(problem, K, basis, a, sample, tol, max_iter, watch)
    if watch is None:
        return done
    why = f"the validation error was lowest after {watch.best_step} of {done.n_iter} steps; {done.stop_reason}"
    return Polished(watch.best, K.product(watch.best), watch.best_step, why)


class Watch:
    """The loss on rows held out after each step, and the weights that had the lowest."""

    def __init__(self, problem: Problem, basis: Tensor, rows: Tensor, a: Tensor, uses: int) -> None:
        self._y, self._loss = problem.y[rows], problem.loss
        self._K = KernelMatrix(TensorRows(problem.basis(rows)), problem.kernel, basis, problem.plan, uses)
        self.best, self.best_step, self._lowest = a, 0, self._error(a)

    def _error(self, a: Tensor) -> float:
        return float(self._loss.value(self._y, self._K.product(a)).mean(dtype=torch.float64))

    def __call__(self, step: int, a: Tensor) -> bool:
        """Whether to stop after this step."""
        if (error := self._error(a)) < self._lowest:
            self.best, self.best_step, self._lowest = a.clone(), step, error
        return step - self.best_step >= PATIENCE


def _penalised(problem: Problem, basis: Tensor, uses: int = 50) -> Callable[[Tensor], Tensor]:
    """a ↦ λQa, by blocks of rows unless the plan keeps Q."""
    Q = KernelMatrix(TensorRows(basis), problem.kernel, basis, problem.plan, uses=uses)
    return lambda a: problem.lam * Q.product(a).double()


def _normal_equations(
    problem: Problem, K: KernelMatrix, penalised: Callable[[Tensor], Tensor]
) -> Callable[[Tensor], Tensor]:
    """a ↦ (K_nmᵀDK_nm + λQ)a."""
    return lambda a: K.normal(a, problem.weight) + penalised(a)


def _in_float64(problem: Problem) -> Problem:
    """The same rows, targets and weights with tiles in float64."""
    plan = replace(problem.plan, dtype=torch.float64)
    D = problem.rows.n_columns
    rows = PreparedRows(problem.rows, plan.device, plan.dtype, torch.zeros(D), torch.ones(D))
    return replace(problem, rows=rows, y=problem.y.double(), weight=problem.weight.double(), plan=plan)


def _least_squares(
    problem: Problem,
    K: KernelMatrix,
    basis: Tensor,
    a: Tensor,
    sample: Tensor,
    tol: float,
    max_iter: int,
    watch: Watch | None,
) -> Polished:
    """Steps in the plan's precision around residuals in float64: weights of nearly dependent basis vectors are large
    numbers of opposite sign, and float32 alone ends up far from the minimum."""
    penalised = _penalised(problem, basis)
    wide = _in_float64(problem)
    K_wide = wide.matrix(basis.double())
    found = conjugate_gradients(
        _normal_equations(problem, K, penalised),
        K_wide.transposed(wide.weight[:, None] * wide.y),
        x0=a,
        precondition=Preconditioner(problem, basis, problem.weight, sample),
        tol=1e-10,
        energy_tol=tol,
        max_iter=max_iter,
        callback=watch,
        apply_exactly=_normal_equations(wide, K_wide, _penalised(wide, basis.double(), uses=1)),
    )

    def objective(x: Tensor, f: Tensor) -> float:
        return float(problem.objective(f, (x * penalised(x)).sum()))

    before, after = K.product(a), K.product(found.x)
    if objective(found.x, after) <= objective(a, before):
        return Polished(found.x, after, found.n_iter, found.stop_reason)
    # rounding can lead the iteration astray where basis vectors nearly depend on each other
    why = f"{found.stop_reason}, above the objective of the weights at hand, which were kept"
    return Polished(a, before, found.n_iter, why)


def _newton(
    problem: Problem,
    K: KernelMatrix,
    basis: Tensor,
    a: Tensor,
    sample: Tensor,
    tol: float,
    max_iter: int,
    watch: Watch | None,
) -> Polished:
    """Newton steps, each by conjugate gradients; a step that would raise the objective is halved."""
    loss, y, w = problem.loss, problem.y, problem.weight[:, None]
    penalised = _penalised(problem, basis)

    def objective(a: Tensor, f: Tensor) -> float:
        return float(problem.objective(f, (a * penalised(a)).sum()))

    f = K.product(a)
    value, why, n_iter = objective(a, f), f"all {max_iter} Newton steps were taken", 0
    for n_iter in range(1, max_iter + 1):
        gradient = K.transposed(w * loss.residual(y, f)) - penalised(a)
        curvature = w * loss.curvature(y, f)

        def system(x: Tensor, curvature: Tensor = curvature) -> Tensor:
            return K.transposed(curvature * K.product(x)) + penalised(x)

        precondition = Preconditioner(problem, basis, curvature.mean(1), sample)
        step = conjugate_gradients(system, gradient, precondition=precondition, tol=0.1, max_iter=20).x
        along, length = K.product(step), 1.0
        while (new := objective(a + length * step, f + length * along)) > value and length > 1e-3:
            length /= 2
        settled = value - new <= tol * abs(value)
        if new < value:
            a, f, value = a + length * step, f + length * along, new
        stops = watch is not None and watch(n_iter, a)
        if settled:
            why = f"the objective fell by less than a share of {tol:g} in Newton step {n_iter}"
        elif stops:
            why = f"held-out rows were predicted no better for {PATIENCE} Newton steps"
        else:
            continue
        break
    return Polished(a, f, n_iter, why)
