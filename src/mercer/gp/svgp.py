r"""Stochastic variational Gaussian processes (SVGP): any log-concave likelihood, by mini-batches of rows.

The inducing variables u, whitened so that their prior is N(0, I), have the posterior q(u) = N(m, S). A row with
whitened tile a, k = k(x, x) and q(f) = N(μ, v), μ = aᵀm, v = k − aᵀa + aᵀSa, contributes its expected log likelihood to

.. math:: \mathcal L = \sum_i w_i\, E_{q(f_i)} \log p(y_i | f_i) - \mathrm{KL}(q(u) \,\|\, N(0, I)) .

With :math:`\alpha = E\,\partial \log p/\partial f` and :math:`\beta = -E\,\partial^2 \log p/\partial f^2 \geq 0`, a
natural-gradient step of length ρ moves the precision Λ = S⁻¹ and Λm a share ρ of the way to

.. math:: \Lambda^* = I + \sum_i w_i \beta_i a_i a_i^\top, \qquad \theta^* = \sum_i w_i (\alpha_i + \beta_i \mu_i) a_i ,

which is the maximum itself for a Gaussian likelihood: Titsias' collapsed bound. Sums over a random batch, whose rows
weigh n / |batch| each, are unbiased.

J. Hensman, A. Matthews and Z. Ghahramani, "Scalable variational Gaussian process classification", AISTATS (2015).
H. Salimbeni, S. Eleftheriadis and J. Hensman, "Natural gradients in practice", AISTATS (2018).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import roots_hermitenorm
from torch import Tensor

from mercer.clock import Clock
from mercer.engine.plan import Sample
from mercer.evidence.coordinates import Evidence, Gradient, Point
from mercer.evidence.inducing import Inducing, Weights, unexplained
from mercer.evidence.lbfgs import climb
from mercer.evidence.optimise import EXACT_ROUGH_ROWS, LEAST_GAIN, PATIENCE, AdamSteps, ascend
from mercer.evidence.posterior import Posterior
from mercer.kernels import Kernel
from mercer.linalg import cholesky
from mercer.losses import Gamma, Logistic, Loss, Poisson, Squared
from mercer.parts import require

#: Nodes of the Gauss–Hermite rule for expectations over q(f): exact for polynomials of degree 39.
NODES = 20
#: Rows of a batch for each inducing input, and the fewest: the m × m factors of a step cost as much as these products.
BATCH_RATIO, BATCH_ROWS = 2, 1000
#: Batches whose rows are read at once, in the order of the file.
READ_AHEAD = 16
#: Batches that are all rows up to which L-BFGS on all rows, q being at its best, is cheaper than steps on batches.
FEW_BATCHES = 4
#: Steps on batches for each step of `max_iter`.
STEPS = 10
#: Length of a natural-gradient step on a batch, and Adam's steps: q must follow the kernel, and both average over
#: batches. After 1000 steps on protein with 512 inducing inputs lengths of 0.1 and 0.03 reach a bound of −1.041 nats a
#: row, 0.3 and 0.03 −1.061; on elevators, after 2000, −0.227 and −0.241.
NATURAL_RATE, ADAM = 0.1, AdamSteps(rate=0.03, slow_lengths=True)
#: Most natural-gradient steps on all rows, and the gain, in nats a row, at which they end. The last gains are each a
#: hundredth of the one before; with 1e-9 fits of counts take 1.1 to 1.6 times as long.
MAX_STEPS, TOL = 50, 1e-7
#: Precision of q at the first of these steps.
FIRST_PRECISION = 1e6


class ExpectedLoss(NamedTuple):
    """E V, −E V′ and E V″ of a loss V over N(mean, variance), n × p."""

    value: Tensor
    slope: Tensor
    curvature: Tensor


def expected_loss(loss: Loss, y: Tensor, mean: Tensor, variance: Tensor) -> ExpectedLoss:
    """Expectations of a loss over f ~ N(mean, variance), by Gauss–Hermite quadrature in float64."""
    nodes, weights = (torch.as_tensor(part).to(mean) for part in roots_hermitenorm(NODES))
    weights = weights / weights.sum()
    f = mean[..., None] + variance.sqrt()[..., None] * nodes
    several = y[..., None].expand_as(f)
    return ExpectedLoss(*(part(several, f) @ weights for part in (loss.value, loss.residual, loss.curvature)))


def _gaussian(y: Tensor, noise: Tensor) -> Tensor:
    return (-0.5 * torch.log(2 * math.pi * noise)).expand_as(y)


def _gamma(y: Tensor, noise: Tensor) -> Tensor:
    shape = 1 / noise
    return shape * shape.log() - shape - torch.lgamma(shape) - y.log()


def _poisson(y: Tensor, noise: Tensor) -> Tensor:
    count = y / noise
    return torch.xlogy(count, count) - count - torch.lgamma(count + 1)


#: c(y, φ) of log p(y | f) = −V(y, f)/φ + c(y, φ), by loss: φ is the variance of a Gaussian, 1/shape of a gamma
#: distribution, and the dispersion of counts over the mean count, which is their unit.
CONSTANTS: dict[type[Loss], Callable[[Tensor, Tensor], Tensor]] = {
    Squared: _gaussian,
    Gamma: _gamma,
    Poisson: _poisson,
    Logistic: lambda y, noise: torch.zeros_like(y) * noise,
}


@dataclass(frozen=True)
class Likelihood:
    """log p(y | f) = −V(y, f)/φ + c(y, φ) of a convex loss V; `noise` is φ where it is known."""

    loss: Loss
    noise: float | None = None

    @classmethod
    def of(cls, loss: Loss, noise: float | None = None) -> Likelihood:
        """The likelihood of a loss; refuse, in a sentence, a loss that has none here."""
        wanted = f"one of {sorted(str(kind.short_name) for kind in CONSTANTS if kind.for_numbers)}"
        require(type(loss) in CONSTANTS, "loss", f"{wanted} for a Gaussian process", loss)
        return cls(loss, noise)

    def constant(self, y: Tensor, weight: Tensor, noise: float) -> tuple[float, float]:
        """Σ w c(y, φ) and its slope in φ, which is zero for a known φ."""
        constant = CONSTANTS[type(self.loss)]
        if self.noise is not None:
            return float((weight[:, None] * constant(y, y.new_tensor(self.noise))).sum()), 0.0
        with torch.enable_grad():
            phi = torch.tensor(noise, dtype=torch.float64, device=y.device, requires_grad=True)
            total = (weight[:, None] * constant(y, phi)).sum()
            (slope,) = torch.autograd.grad(total, phi)
        return float(total.detach()), float(slope)


@dataclass(frozen=True)
class NaturalParameters:
    """q(u) = N(Λ⁻¹θ, Λ⁻¹) of whitened inducing variables: `precision` Λ (m × m), shared by outputs, θ (m × p)."""

    precision: Tensor
    shift: Tensor

    @classmethod
    def start(cls, m: int, p: int, device: Any) -> NaturalParameters:
        """Nearly certain zeros. Under the prior of a large variance v counts would be exp(v/2), and steps fall short.

        2000 counts under a kernel of variance 41 take 16 full steps from here, and 66 from the prior.
        """
        eye = torch.eye(m, dtype=torch.float64, device=device)
        return cls(FIRST_PRECISION * eye, eye.new_zeros(m, p))

    def toward(self, other: NaturalParameters, length: float) -> NaturalParameters:
        pairs = (self.precision, other.precision), (self.shift, other.shift)
        return NaturalParameters(*(torch.lerp(*pair, length) for pair in pairs))


class Moments:
    """Mean m and a root C of S = C Cᵀ of q(u), and its divergence from the prior."""

    def __init__(self, q: NaturalParameters) -> None:
        L, _ = cholesky(q.precision)
        eye = torch.eye(len(L), dtype=L.dtype, device=L.device)
        self.mean = torch.cholesky_solve(q.shift, L)
        self.root = torch.linalg.solve_triangular(L, eye, upper=False).T
        shared = self.root.square().sum() + 2 * L.diagonal().log().sum() - len(L)
        self.divergence = 0.5 * (q.shift.shape[1] * shared + self.mean.square().sum())


@dataclass(frozen=True)
class Sums:
    """Sums over rows at one q: the bound, its slope in φ, and the q at which a full natural-gradient step ends."""

    value: float
    by_noise: float
    best: NaturalParameters


class Bound:
    """The evidence lower bound of a sample at one kernel, dispersion φ and set of inducing inputs."""

    def __init__(self, data: Sample, likelihood: Likelihood, point: Point, uses: int = 1) -> None:
        assert point.basis is not None
        self.system = Inducing(data.rows, point.kernel, point.basis, data.plan, uses)
        self.Y, self.weight = data.Y.double(), data.weight.double()
        self.loss, self.known = likelihood.loss, likelihood.noise is not None
        self.noise = point.noise if likelihood.noise is None else likelihood.noise
        self.constant = likelihood.constant(self.Y, self.weight, self.noise)
        self.diagonal = self.system.diagonal()

    def sums(self, q: NaturalParameters) -> Sums:
        """One pass over the rows."""
        at, total = Moments(q), _Totals.zero(q)
        self.system.each(lambda where, A: self._visit(where, A, at, total))
        return self._summed(at, total)

    def gradient(self, q: NaturalParameters, inputs: bool) -> tuple[Gradient, Sums]:
        """The gradient in kernel, φ and inducing inputs, q fixed in whitened coordinates, and the sums, in one pass."""
        at, total, dtype = Moments(q), _Totals.zero(q), self.system.plan.dtype
        gain = (self.system.eye - at.root @ at.root.T).to(dtype)
        mean = at.mean.T.to(dtype)

        def weigh(where: slice, A: Tensor) -> Weights:
            by_mean, curvature = self._visit(where, A, at, total)
            by_A = (A @ gain).mul_(curvature.to(dtype)[:, None]).addmm_(by_mean.to(dtype), mean)
            # the derivative passes through the factor of K_mm: its lower triangle alone is free
            lower = torch.tril(by_A.T @ A)
            return Weights(self.system.back(by_A), -0.5 * curvature, lower + torch.tril(lower, -1).T)

        by_parameter, by_basis = self.system.pull_back(weigh, None, inputs)
        found = self._summed(at, total)
        scalars = (torch.tensor(x, dtype=torch.float64, device=by_basis.device) for x in (found.value, found.by_noise))
        value, by_noise = scalars
        return Gradient(value, by_parameter, by_noise, by_basis).on_host(), found

    def _visit(self, where: slice, A: Tensor, at: Moments, total: _Totals) -> tuple[Tensor, Tensor]:
        """Add a block of rows to the sums; return its derivatives in the means (n × p) and β summed over outputs."""
        y, w = self.Y[where], self.weight[where, None]
        mean = (A @ at.mean.to(A.dtype)).double()
        variance = unexplained(self.diagonal[where], A) + (A @ at.root.to(A.dtype)).double().square().sum(1)
        loss = expected_loss(self.loss, y, mean, variance[:, None].expand_as(mean))
        slope, curvature = w * loss.slope / self.noise, w * loss.curvature / self.noise
        total.loss.add_((w * loss.value).sum())
        beta = curvature.mean(1)  # the same for all outputs: only the squared loss has several
        total.precision.add_(A.T @ (A * beta.to(A.dtype)[:, None]))
        total.shift.add_(A.T @ (slope + curvature * mean).to(A.dtype))
        return slope, curvature.sum(1)

    def _summed(self, at: Moments, total: _Totals) -> Sums:
        group = self.system.rows.shard.group
        constant = total.loss.new_tensor(self.constant)
        loss, precision, shift, constant = group.sums(total.loss, total.precision, total.shift, constant)
        value = constant[0] - loss / self.noise - at.divergence
        by_noise = 0.0 if self.known else float(constant[1] + loss / self.noise**2)
        return Sums(float(value), by_noise, NaturalParameters(self.system.eye + precision, shift))

    def maximised(self, q: NaturalParameters) -> tuple[NaturalParameters, float]:
        """Natural-gradient steps on all rows, halved where the bound falls, until they gain nothing; q and the bound.

        A step of length 1 is exact for the squared loss, and Newton's step for others.
        """
        here, length = self.sums(q), 1.0
        enough = TOL * float(self.system.rows.total(self.weight.sum()))
        for _ in range(MAX_STEPS):
            trial = q.toward(here.best, length)
            there = self.sums(trial)
            gained = there.value - here.value
            if gained > 0:
                q, here, length = trial, there, min(2 * length, 1.0)
            else:
                length /= 2
            if abs(gained) <= enough:
                break
        return q, here.value

    def posterior(self, q: NaturalParameters) -> Posterior:
        """The posterior of the latent function under q."""
        at, P = Moments(q), self.system.P
        return Posterior(self.system.basis, P @ at.mean, P, (P @ at.root)[None])


@dataclass(frozen=True)
class _Totals:
    loss: Tensor
    precision: Tensor
    shift: Tensor

    @classmethod
    def zero(cls, q: NaturalParameters) -> _Totals:
        return cls(q.shift.new_zeros(()), torch.zeros_like(q.precision), torch.zeros_like(q.shift))


@dataclass
class StochasticEvidence:
    """The bound of SVGP as the objective of a search; it keeps q between evaluations.

    Called with a sample, it returns the bound at the best q of that sample. `search` takes batches instead.
    """

    likelihood: Likelihood
    inputs: bool = True
    _last: dict[tuple[int, int], NaturalParameters] = field(default_factory=dict)

    def __call__(self, data: Sample) -> Evidence:
        return partial(self._at_best, data)

    def _bound(self, data: Sample, kernel: Kernel, noise: float, basis: Tensor, uses: int) -> Bound:
        return Bound(data, self.likelihood, Point(kernel, noise, basis), uses)

    def _at_best(self, data: Sample, kernel: Kernel, noise: float, basis: Tensor) -> Gradient:
        bound, shape = self._bound(data, kernel, noise, basis, 10), (len(basis), data.Y.shape[1])
        q = self._last.get(shape, NaturalParameters.start(*shape, data.plan.device))
        self._last[shape], _ = bound.maximised(q)
        found, _ = bound.gradient(self._last[shape], self.inputs)
        return data.rows.shard.group.first(lambda: found)  # identical on all processes: same steps

    def posterior(self, data: Sample, at: Point, rng: np.random.Generator) -> tuple[Posterior, float]:
        """The posterior of all rows and its bound; q starts at that of a batch."""
        assert at.basis is not None
        m, n_batch = len(at.basis), batch_rows(len(at.basis))
        q = NaturalParameters.start(m, data.Y.shape[1], data.plan.device)
        if data.n_total > 2 * n_batch and not self.likelihood.loss.quadratic:
            batch = next(batches(data, n_batch, rng))
            q, _ = self._bound(batch, at.kernel, at.noise, at.basis, 10).maximised(q)
        bound = self._bound(data, at.kernel, at.noise, at.basis, 10)
        q, value = bound.maximised(q)
        return bound.posterior(q), value

    def search(
        self,
        start: Point,
        data: Sample,
        *,
        rng: np.random.Generator,
        free: Collection[str],
        max_iter: int,
        tol: float,
        length_scale_prior: float | None,
        clock: Clock,
        callback: Callable[[Point], Any] | None,
    ) -> Point:
        """Maximise the bound: by L-BFGS if rows are few, else by Adam and natural gradients on batches."""
        assert start.basis is not None
        self._last.clear()
        shared: dict[str, Any] = {"free": free, "length_scale_prior": length_scale_prior, "clock": clock}
        n_batch = batch_rows(len(start.basis))
        if not free or data.n_total <= FEW_BATCHES * n_batch:
            gain = LEAST_GAIN * data.total_weight * data.Y.shape[1]
            limits: dict[str, Any] = {"max_iter": max_iter, "tol": tol, "gain": gain, "patience": PATIENCE}
            return climb(self(data), start, **shared, **limits, callback=callback)
        plan = data.plan
        if data.n_total > EXACT_ROUGH_ROWS:
            data = replace(data, plan=replace(plan, dtype=torch.float32))
        drawn = batches(data, n_batch, rng)
        begun = replace(start, basis=start.basis.to(data.plan.dtype))
        certain = NaturalParameters.start(len(start.basis), data.Y.shape[1], plan.device)
        first = Bound(next(drawn), self.likelihood, begun, uses=10)
        steps = _NaturalSteps(self, first.maximised(certain)[0])  # gradients there would be too large for Adam
        n_steps = STEPS * max_iter
        found = ascend(lambda: steps.on(next(drawn)), begun, n_steps=n_steps, adam=ADAM, callback=callback, **shared)
        found = data.rows.shard.group.first(lambda: found)
        assert found.basis is not None
        return replace(found, basis=found.basis.to(plan.dtype))


@dataclass
class _NaturalSteps:
    """q of a stochastic search: every batch gives the gradient at the old q, then moves q."""

    evidence: StochasticEvidence
    q: NaturalParameters

    def on(self, batch: Sample) -> Evidence:
        def at(kernel: Kernel, noise: float, basis: Tensor) -> Gradient:
            bound = self.evidence._bound(batch, kernel, noise, basis, 1)
            gradient, sums = bound.gradient(self.q, self.evidence.inputs)
            self.q = self.q.toward(sums.best, NATURAL_RATE)
            return gradient

        return at


def batch_rows(m: int) -> int:
    """Rows of a batch with m inducing inputs."""
    return max(BATCH_RATIO * m, BATCH_ROWS)


def batches(data: Sample, n_batch: int, rng: np.random.Generator) -> Iterator[Sample]:
    """Random batches without end, whose weights stand for all rows; rows of several batches are read at once."""
    n = data.n_total
    n_batch = min(n_batch, n)
    while True:
        pool = data.part(np.sort(rng.choice(n, min(READ_AHEAD * n_batch, n), replace=False)))
        order = rng.permutation(pool.n_rows)
        for start in range(0, len(order) - n_batch + 1, n_batch):
            batch = pool.part(order[start : start + n_batch])
            yield replace(batch, weight=batch.weight * (n / n_batch))
