"""Output weights of NRBF models on fixed gates, shares of classes, and gates trained with the weights by gradients.

The activations of a row are p(j | x) of eq. 2.6 and 2.7: normalised basis functions with the gates' priors and
determinants, which eq. 2.4 as printed leaves out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from mercer.clock import Clock, StopKind, StopReason
from mercer.engine import Sample
from mercer.kernels.base import vjp
from mercer.linalg import cholesky, minimize_lbfgs
from mercer.losses import class_likelihood
from mercer.mixture.class_experts import indicators
from mercer.mixture.em import EMResult, Mixture, posterior, sum_over_rows
from mercer.mixture.gates import EPS, Floor, Gates
from mercer.progress import report_step

#: Products that making and factoring a Hessian may take: about a second for each Newton step.
HESSIAN_WORK = 2e9
#: Norm of the slope, per unit of weight, at which Newton's method ends, and the length that its first step may have.
GRADIENT, REACH = 1e-9, 100.0
#: Least penalty on output weights, per row: it keeps the weights of separable classes finite.
LEAST_PENALTY = 1e-9

Statistic = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, ...]]
#: Iterations after which L-BFGS restarts and the output weights are solved for again.
ROUND = 100

Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]


def reduce_activations(sample: Sample, mixture: Mixture, statistic: Statistic, width: int = 0) -> list[Tensor]:
    """Sum over rows the tensors that ``statistic(A, x, y, w)`` returns for a block's activations A (k × n).

    A statistic holds `width` numbers per row besides the activations.
    """
    log_gates = mixture.log_gates()

    def of_block(x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        return statistic(posterior(log_gates(x))[0], x, y, w)

    return sum_over_rows(sample, of_block, mixture.block_rows(sample.plan, width))


def local_inputs(x: Tensor, linear: bool) -> Tensor:
    """The inputs of a local linear model: 1, or [1; x] (q × n)."""
    ones = torch.ones_like(x[:1])
    return torch.cat([ones, x]) if linear else ones


def local_features(A: Tensor, x: Tensor, linear: bool) -> Tensor:
    """The features φ of a row: its activations, or its activations times 1 and every input (kq × n)."""
    return (A[:, None] * local_inputs(x, linear)).flatten(0, 1)


def least_squares(sample: Sample, mixture: Mixture, ridge: float, linear: bool = False) -> Tensor:
    """Output weights (k × q × p): ŵ = (ΦᵀΦ + λI)⁻¹Φᵀy, the second step of two-step training (section 2.2.1).

    The columns of Φ are the activations, or with `linear` the activations times 1 and every input.
    """

    def statistic(A: Tensor, x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        phi = local_features(A, x, linear)
        weighted = phi * w
        return weighted @ phi.T, weighted @ y.T

    G, b = reduce_activations(sample, mixture, statistic)
    G.diagonal().add_(ridge)
    return _solved(G, b).reshape(mixture.n_components, -1, b.shape[1])


def misleading(sample: Sample, mixture: Mixture) -> bool:
    """Whether the mixture's predictions have a larger squared error than the mean of the targets.

    The likelihood may prefer a narrow gate around one outlier, which then decides the predictions near it.
    """
    experts: Any = mixture.experts
    slopes = [experts.coef.mT] if hasattr(experts, "coef") else []
    weights = torch.cat([experts.intercept[:, None], *slopes], 1)

    def statistic(A: Tensor, x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        return (w * (y - blended(A, x, weights)).square()).sum(1), (w * y).sum(1), (w * y.square()).sum(1)

    error, first, second = reduce_activations(sample, mixture, statistic)
    constant = second - first.square() / sample.total_weight
    return float(error.sum()) > (1 + 1e-6) * float(constant.sum())  # more than rounding


def _solved(G: Tensor, b: Tensor) -> Tensor:
    """G⁻¹b, or the shortest solution if G (positive semi-definite) is singular up to rounding."""
    factor, info = torch.linalg.cholesky_ex(G)
    if not int(info) and bool((factor.diagonal().square() > len(G) * EPS * G.diagonal()).all()):
        return torch.cholesky_solve(b, factor)
    values, V = torch.linalg.eigh(G)
    alive = values > len(G) * EPS * values[-1]
    inverse = torch.where(alive, 1 / torch.where(alive, values, 1.0), 0.0)
    return V @ (inverse[:, None] * (V.T @ b))


def blended(A: Tensor, x: Tensor, weights: Tensor) -> Tensor:
    """f(x) = Σ_j p(j | x) w_jᵀz with z = 1 or [1; x] (p × n)."""
    z = local_inputs(x, weights.shape[1] > 1)
    return torch.einsum("kn,kpn->pn", A, weights.mT @ z)


def local_noise(sample: Sample, mixture: Mixture, weights: Tensor) -> Tensor:
    """Mean squared error of f near each component (k × p)."""

    def statistic(A: Tensor, x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        A_w = A * w
        return A_w @ (y - blended(A, x, weights)).square().T, A_w.sum(1)

    squares, mass = reduce_activations(sample, mixture, statistic)
    overall = squares.sum(0) / mass.sum()
    return torch.where(mass[:, None] > 0, squares / mass[:, None].clamp(min=1e-300), overall)


def class_shares(sample: Sample, mixture: Mixture, n_classes: int) -> Tensor:
    """P(C_c | j) as the share of class c among the rows of component j (k × C), the gates left as they are."""
    (counts,) = reduce_activations(sample, mixture, lambda A, x, y, w: (A * w @ indicators(y, n_classes).T,))
    overall = counts.sum(0, keepdim=True) / counts.sum()
    mass = counts.sum(1, keepdim=True)
    return torch.where(mass > 0, counts / mass.clamp(min=1e-300), overall)


def logistic_weights(
    sample: Sample, mixture: Mixture, n_classes: int, ridge: float, clock: Clock | None = None
) -> tuple[Tensor, StopReason]:
    """Output weights (k × c) of σ(Σ_j w_j p(j | x)) (eq. 3.18), softmax for more classes; and why it ended.

    By IRLS (Newton's method), or by L-BFGS if a Hessian costs more than `HESSIAN_WORK`: its passes over the rows cost
    in proportion to the number of weights.
    """
    k, c = mixture.n_components, 1 if n_classes == 2 else n_classes
    ridge, clock = max(ridge, LEAST_PENALTY * sample.total_weight), clock or Clock()
    if (c * k) ** 2 * (sample.rows.shard.total(sample.rows.n_rows) + c * k) > HESSIAN_WORK:
        return _many_weights(sample, mixture, c, ridge, clock)

    def at(flat: np.ndarray, curved: bool) -> list[np.ndarray]:
        W = torch.as_tensor(flat).to(sample.plan.device).reshape(c, k)
        found = _penalised_loss(sample, mixture, W, ridge, curved)
        return [part.cpu().numpy() / sample.total_weight for part in found]

    newton = minimize(
        lambda flat: at(flat, curved=False)[:2],
        np.zeros(c * k),
        jac=True,
        hess=lambda flat: at(flat, curved=True)[2],
        method="trust-exact",
        options={"gtol": GRADIENT, "initial_trust_radius": REACH, "max_trust_radius": np.inf, "maxiter": 100},
    )
    rest = StopReason(f"{newton.nit} Newton steps brought the loss to rest", StopKind.CONVERGED)
    return torch.as_tensor(newton.x).to(sample.plan.device).reshape(c, k).T.contiguous(), rest


def _many_weights(sample: Sample, mixture: Mixture, c: int, ridge: float, clock: Clock) -> tuple[Tensor, StopReason]:
    """By L-BFGS, in coordinates in which Böhning's bound on the curvature, ½ Σ ω a aᵀ + λI, is the identity."""
    (gram,) = reduce_activations(sample, mixture, lambda A, x, y, w: (A * w @ A.T,))
    factor, _ = cholesky(0.5 * gram + ridge * torch.eye(len(gram)).to(gram))

    def to_weights(flat: np.ndarray) -> Tensor:
        whitened = torch.as_tensor(flat).to(gram).reshape(c, -1)
        return torch.linalg.solve_triangular(factor.T, whitened.T, upper=True).T

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope, _ = _penalised_loss(sample, mixture, to_weights(flat), ridge, curved=False)
        whitened = torch.linalg.solve_triangular(factor, slope.reshape(c, -1).T, upper=False).T
        return float(value) / sample.total_weight, (whitened.flatten() / sample.total_weight).cpu().numpy()

    def ended(flat: np.ndarray, loss: float) -> None:
        if clock.expired():
            raise StopIteration

    found = minimize_lbfgs(objective, np.zeros(c * len(gram)), callback=ended, maxiter=500, ftol=1e-12, gtol=1e-8)
    rest = StopReason(f"{found.nit} steps of L-BFGS brought the loss to rest", StopKind.CONVERGED)
    return to_weights(found.x).T.contiguous(), clock.stop_reason() if clock.expired() else rest


def _penalised_loss(
    sample: Sample, mixture: Mixture, W: Tensor, ridge: float, curved: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """The log loss under output weights W (c × k) with its penalty: value, slope (ck) and Hessian (ck × ck)."""
    c = len(W)
    loss = class_likelihood(c)

    def statistic(A: Tensor, x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        f, t = (W @ A)[None], (y if c == 1 else indicators(y, c))[None]
        residual = loss.residual(2 * t - 1, f)[0]
        sums = (w * loss.value(2 * t - 1, f)).sum(), -(residual * w) @ A.T
        if not curved:
            return sums
        p = t[0] - residual
        diagonal = torch.einsum("cn,in,jn->cij", w * p, A, A)
        outer = (p[:, None] * A).flatten(0, 1)
        return *sums, diagonal, (outer * w) @ outer.T

    width = 3 * c + (3 * W.numel() if curved else 0)
    value, slope, *curvature = reduce_activations(sample, mixture, statistic, width)
    value, slope = value + 0.5 * ridge * W.square().sum(), (slope + ridge * W).flatten()
    if not curved:
        return value, slope, slope.new_zeros(0)
    H = torch.block_diag(*curvature[0]) - curvature[1]
    H.diagonal().add_(ridge)
    return value, slope, H


def fit_gradient(
    sample: Sample, mixture: Mixture, ridge: float, linear: bool, max_iter: int, tol: float, clock: Clock
) -> tuple[EMResult, Tensor]:
    """Train gates and output weights (k × q × p). The path holds minus the penalised loss.

    The residual sum of squares of f(x) = Σ_j p(j | x) w_jᵀz, with z = 1 (NRBF) or [1; x] (ENRBF), is minimised by
    L-BFGS over all parameters at once (Thesis09 section 2.5.3). A pass over the rows gives the value and its derivative
    in the coefficients of the log gates; the rest is small.

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
    """Run L-BFGS from x0, where the objective has this value; return its last step."""
    last, before = _Last(x0, value), clock.elapsed()

    def stepped(x: np.ndarray, value: float) -> None:
        nonlocal last, before
        pace, before = clock.elapsed() - before, clock.elapsed()
        last = _Last(x, value, last.steps + 1)
        report_step("gradient", steps, step=last.steps)
        if clock.expired(needing=2 * pace):  # the output weights are solved for once more
            raise StopIteration

    try:
        minimize_lbfgs(objective, x0, callback=stepped, maxiter=steps, ftol=1e-12, gtol=1e-9, maxcor=20)
    except KeyboardInterrupt:
        clock.interrupt()
    return last


def loss_and_slopes(sample: Sample, mixture: Mixture, C: Tensor, W: Tensor) -> tuple[float, Tensor, Tensor]:
    """½ Σ w ‖y − f(x)‖² and its derivatives in the coefficients C of the log gates (k × F) and in W (k × q × p)."""

    def statistic(x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        psi = mixture.layout.of(x)
        z = local_inputs(x, W.shape[1] > 1)
        A, _ = posterior(C @ psi)
        local = W.mT @ z  # k × p × n
        error = torch.einsum("kn,kpn->pn", A, local) - y
        weighted = error * w
        by_A = torch.einsum("kpn,pn->kn", local, weighted)
        by_logits = A * (by_A - (A * by_A).sum(0))
        by_W = torch.stack([(A * part) @ z.T for part in weighted], 2)
        return 0.5 * (error * weighted).sum(), by_logits @ psi.T, by_W

    value, by_C, by_W = sum_over_rows(sample, statistic, mixture.block_rows(sample.plan))
    return float(value), by_C, by_W


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
