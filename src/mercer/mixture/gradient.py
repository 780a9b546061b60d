"""Gradient training (Thesis09 section 2.5.3): centres, covariances, priors and local models by least squares.

The residual sum of squares of f(x) = Σ_j p(j | x) w_jᵀz, with z = 1 (NRBF) or [1; x] (ENRBF), is minimised by
L-BFGS over all parameters at once. A pass over the rows gives the value and its derivative in the coefficients of the
log gates; the rest is small.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.clock import Clock
from mercer.engine import Sample, each_block
from mercer.kernels.base import vjp
from mercer.linalg import minimize_lbfgs
from mercer.mixture.em import EMResult, Mixture, posterior
from mercer.mixture.features import columns
from mercer.mixture.gates import Floor, Gates
from mercer.mixture.output_weights import least_squares, local_inputs
from mercer.progress import report_step
from mercer.stop_reason import StopKind, StopReason

#: Iterations after which L-BFGS restarts and the output weights are solved for again.
ROUND = 100

Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]


def fit_gradient(
    sample: Sample, mixture: Mixture, ridge: float, linear: bool, max_iter: int, tol: float, clock: Clock
) -> tuple[EMResult, Tensor]:
    """Train gates and output weights (k × q × p). The path holds minus the penalised loss.

    The result of the last step is kept when the `clock` has expired or the user interrupts.
    """
    weights = least_squares(sample, mixture, ridge, linear)
    why = StopReason(f"max_iter={max_iter} iterations were done", StopKind.MAX_ITER)
    path: list[float] = []
    done = 0
    while done < max_iter:
        start = [part.detach() for part in _parameters(mixture)]
        shapes = [part.shape for part in (*start, weights)]

        def objective(
            flat: np.ndarray, shapes: list[Any] = shapes, mixture: Mixture = mixture
        ) -> tuple[float, np.ndarray]:
            *parameters, W = _unpacked(flat, shapes, sample.plan.device)
            parameters = [part.requires_grad_() for part in parameters]
            C = _gates(parameters, mixture.floor).coefficients(mixture.layout)
            value, by_C, by_W = loss_and_slopes(sample, mixture, C.detach(), W)
            slopes = [*vjp([C], [by_C / sample.total_weight], parameters), (by_W + ridge * W) / sample.total_weight]
            flat_slope = torch.cat([slope.flatten() for slope in slopes])
            penalised = (value + 0.5 * ridge * float(W.square().sum())) / sample.total_weight
            return penalised, flat_slope.cpu().numpy()

        x0 = torch.cat([part.flatten() for part in (*start, weights)]).cpu().numpy()
        before = objective(x0)[0]
        path += [-before] if not path else []
        last = _lbfgs(objective, x0, before, min(ROUND, max_iter - done), clock)
        done += max(last.steps, 1)
        *parameters, _ = _unpacked(last.x, shapes, sample.plan.device)
        mixture = replace(mixture, gates=_gates(parameters, mixture.floor))
        weights = least_squares(sample, mixture, ridge, linear)
        path.append(-last.value)
        if clock.expired():
            why = clock.stop_reason()
            break
        if before - last.value < tol * before:
            sentence = f"the squared error fell by less than tol={tol:g} of itself in {ROUND} steps"
            why = StopReason(sentence, StopKind.CONVERGED)
            break
    return EMResult(mixture, path, why), weights


@dataclass
class _Last:
    """The last accepted step of a search."""

    x: np.ndarray
    value: float
    steps: int = 0


def _lbfgs(objective: Objective, x0: np.ndarray, value: float, steps: int, clock: Clock) -> _Last:
    """Run L-BFGS from x0; an interruption returns the last step."""
    last, tried, before = _Last(x0, value), {}, clock.elapsed()

    def recorded(x: np.ndarray) -> tuple[float, np.ndarray]:
        found = objective(x)
        tried[x.tobytes()] = found[0]
        return found

    def stepped(x: np.ndarray) -> None:
        nonlocal last, before
        pace, before = clock.elapsed() - before, clock.elapsed()
        last = _Last(x.copy(), tried.get(x.tobytes(), np.inf), last.steps + 1)
        tried.clear()
        report_step("gradient", steps, step=last.steps)
        if clock.expired(needing=2 * pace):  # the output weights are solved for once more
            raise StopIteration

    try:
        found = minimize_lbfgs(recorded, x0, callback=stepped, maxiter=steps, ftol=1e-12, gtol=1e-9, maxcor=20)
    except KeyboardInterrupt:
        clock.interrupt()
        return last
    return _Last(found.x, float(found.fun), int(found.nit))


def loss_and_slopes(sample: Sample, mixture: Mixture, C: Tensor, W: Tensor) -> tuple[float, Tensor, Tensor]:
    """½ Σ w ‖y − f(x)‖² and its derivatives in the coefficients C of the log gates (k × F) and in W (k × q × p)."""
    value = torch.zeros((), dtype=torch.float64, device=C.device)
    by_C, by_W = torch.zeros_like(C), torch.zeros_like(W)

    def visit(where: slice, block: Tensor) -> None:
        x = columns(block)
        psi = mixture.layout.of(x)
        z = local_inputs(x, W.shape[1] > 1)
        A, _ = posterior(C @ psi)
        local = W.mT @ z  # k × p × n
        error = torch.einsum("kn,kpn->pn", A, local) - sample.Y[where].T
        weighted = error * sample.weight[where]
        by_A = torch.einsum("kpn,pn->kn", local, weighted)
        by_logits = A * (by_A - (A * by_A).sum(0))
        add_C = by_logits @ psi.T
        add_W = torch.stack([(A * part) @ z.T for part in weighted], 2)
        value.add_(0.5 * (error * weighted).sum())
        by_C.add_(add_C)
        by_W.add_(add_W)

    each_block(sample.rows, sample.plan, mixture.block_rows(sample.plan), visit)
    return float(sample.rows.total(value)), sample.rows.total(by_C), sample.rows.total(by_W)


def _parameters(mixture: Mixture) -> list[Tensor]:
    """Log priors, means, and free parameters of the covariances above their floor."""
    gates, floor = mixture.gates, mixture.floor
    if gates.covariances.ndim == 2:
        least = floor.variance.mean() if floor.kind == "spherical" else floor.variance
        spread = 0.5 * (gates.covariances - least).clamp(min=1e-3 * least).log()
        shape = spread[:, :1] if floor.kind == "spherical" else spread
    else:
        above = gates.covariances - torch.diag(floor.variance)
        values, V = torch.linalg.eigh(above)
        shape = V * values.clamp(min=1e-3 * float(floor.variance.min())).sqrt()[:, None, :]
        shape = shape[:1] if floor.kind == "tied" else shape
    return [gates.weights.log(), gates.means.clone(), shape.clone()]


def _gates(parts: list[Tensor], floor: Floor) -> Gates:
    logits, means, shape = parts
    weights = torch.softmax(logits, 0)
    if shape.ndim == 2:
        least = floor.variance.mean() if floor.kind == "spherical" else floor.variance
        variances = (least + (2 * shape).exp()).expand_as(means)
        return Gates(weights, means, variances, variances.rsqrt(), variances.log().sum(1))
    covariances = (torch.diag(floor.variance) + shape @ shape.mT).expand(len(means), -1, -1)
    factor = torch.linalg.cholesky(covariances)
    identity = torch.eye(means.shape[1], dtype=means.dtype, device=means.device).expand_as(covariances)
    root = torch.linalg.solve_triangular(factor, identity, upper=False).mT
    return Gates(weights, means, covariances, root, 2 * factor.diagonal(dim1=1, dim2=2).log().sum(1))


def _unpacked(flat: np.ndarray, shapes: list[Any], device: torch.device) -> list[Tensor]:
    pieces = torch.as_tensor(flat, device=device).split([shape.numel() for shape in shapes])
    return [piece.reshape(shape).clone() for piece, shape in zip(pieces, shapes, strict=True)]
