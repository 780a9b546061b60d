"""Laplace's method for classes under every sparse prior (Thesis09 sections 4.1.3, 4.1.4 and 5.1).

Latent functions of a row are f = A u + e: u ~ N(0, I) whitened at the inducing inputs, and e ~ N(0, Δ) the residual
of the row under SPGP, Δ = α (k − q). The mode is found by Newton steps in u, with e eliminated row by row, so a step
costs one weighted Gram matrix of A. Rows of weight w are w copies, each with its own e. The log likelihood of a row is
minus a loss (`mercer.losses`: logistic for two classes, softmax for more).

Equation 4.24 of the thesis has a trace with (K + W⁻¹) where (K + W⁻¹)⁻¹ is meant, and the logarithm in 4.21's first
line is one too many; both are corrected here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from mercer.engine.plan import Sample
from mercer.evidence.approximations import Approximation
from mercer.evidence.coordinates import Gradient
from mercer.evidence.inducing import Inducing, Weights, unexplained
from mercer.evidence.posterior import Posterior
from mercer.kernels import Kernel
from mercer.linalg import cholesky
from mercer.losses import Loss

MAX_NEWTON = 60
#: Newton's method ends when the expected increase of a step is below this, relative to the number of rows.
TOL = 1e-10


@dataclass(frozen=True)
class State:
    """A point of the search: weights u (m × p), slopes a (n × p) with u = Aᵀwa, and f = A u + Δ a."""

    u: Tensor
    a: Tensor
    f: Tensor
    value: float  # Ψ = Σ w log p(y|f) − ½ (|u|² + Σ w Δ |a|²)

    def toward(self, other: State, t: float) -> State:
        u, a, f = (torch.lerp(*pair, t) for pair in ((self.u, other.u), (self.a, other.a), (self.f, other.f)))
        return State(u, a, f, value=-float("inf"))


class Laplace:
    """Laplace's approximation for classes `y` (n × p, ±1) of weighted rows: mode, evidence, gradient, posterior."""

    def __init__(self, system: Inducing, y: Tensor, weight: Tensor, loss: Loss, approximation: Approximation) -> None:
        self.system, self.y, self.weight, self.loss = system, y.double(), weight.double(), loss
        self.p, self.approximation, self._total = y.shape[1], approximation, system.rows.total
        self.delta = torch.zeros(system.n, dtype=torch.float64, device=y.device)
        if approximation.alpha > 0:
            diagonal = system.diagonal()

            def rest(where: slice, A: Tensor) -> None:
                self.delta[where] = approximation.alpha * unexplained(diagonal[where], A)

            system.each(rest)

    # --- the mode ---------------------------------------------------------------------------------------

    def mode(self, latent: Tensor | None = None, weights: Tensor | None = None) -> State:
        """Find the mode by damped Newton steps, from an earlier mode if it is better than zero.

        The earlier mode is given by `latent` values of these rows, or by `weights` u of a mode of any rows.
        """
        zero, enough = torch.zeros_like(self.y), TOL * float(self._total(self.weight.sum()))
        state = self._valued(State(self.y.new_zeros(self.system.m, self.p), zero, zero.clone(), 0.0))
        if latent is None and weights is not None and weights.shape == state.u.shape:
            latent = self._up(weights)
        if latent is not None:
            warm = self._newton(replace(state, f=latent))[0]
            state = max(state, self._valued(warm), key=lambda s: s.value)
        for _ in range(MAX_NEWTON):
            trial, expected = self._newton(state)
            if expected <= enough:
                return max(state, self._valued(trial), key=lambda s: s.value)
            step, moved = 1.0, trial
            while (moved := self._valued(state.toward(trial, step))).value <= state.value and step > 1e-6:
                step /= 2
            if moved.value <= state.value:
                return state
            state = moved
        return state

    def _valued(self, s: State) -> State:
        fit = -(self.weight[:, None] * self.loss.value(self.y, s.f)).sum()
        residual = ((self.weight * self.delta)[:, None] * s.a.square()).sum()
        return State(s.u, s.a, s.f, float(self._total(fit - 0.5 * residual) - 0.5 * s.u.square().sum()))

    def _newton(self, s: State) -> tuple[State, float]:
        """The full Newton step (eq. 4.17 by Woodbury), and its expected increase."""
        W, slope = self.loss.hessian(self.y, s.f), self.loss.residual(self.y, s.f)
        shrink = self._shrink(W)
        pull = _times(shrink, _times(W, s.f) + slope)  # D z with z = f + W⁻¹ slope
        L_B = self._factor(W, shrink)
        rhs = self._down(pull).T.reshape(-1, 1)
        u = torch.cholesky_solve(rhs, L_B).reshape(self.p, -1).T
        g = self._up(u)
        a = pull - _times(shrink, _times(W, g))
        trial = State(u, a, g + self.delta[:, None] * a, -float("inf"))
        # ∇Ψᵀ(f_new − f) with ∇Ψ = slope − a_old, halved: the quadratic model's increase
        expected = 0.5 * float(self._total((self.weight[:, None] * (slope - s.a) * (trial.f - s.f)).sum()))
        return trial, expected

    def _shrink(self, W: Tensor) -> Tensor:
        """(I + ΔW)⁻¹, one small matrix a row."""
        eye = torch.eye(self.p, dtype=W.dtype, device=W.device)
        inner = eye + self.delta[:, None, None] * W
        return inner.reciprocal() if self.p == 1 else torch.linalg.inv(inner)

    def factor(self, f: Tensor) -> Tensor:
        """Lower factor of B = I + S, S = Σ D ⊗ A Aᵀ (pm × pm), with D = w W (I + ΔW)⁻¹ at latent values `f`."""
        W = self.loss.hessian(self.y, f)
        return self._factor(W, self._shrink(W))

    def _factor(self, W: Tensor, shrink: Tensor) -> Tensor:
        D = self.weight[:, None, None] * _product(W, shrink)
        m, p = self.system.m, self.p
        S = torch.zeros(p, p, m, m, dtype=torch.float64, device=W.device)

        def gather(where: slice, A: Tensor) -> None:
            d = D[where].to(A.dtype)
            for c in range(p):
                for e in range(c + 1):
                    S[c, e].add_(A.T @ (A * d[:, c, e, None]))

        self.system.each(gather)
        for c in range(p):
            for e in range(c):
                S[e, c] = S[c, e].T
        S = self._total(S).permute(0, 2, 1, 3).reshape(p * m, p * m)
        S.diagonal().add_(1)
        return cholesky(S)[0]

    def _down(self, values: Tensor) -> Tensor:
        """Aᵀ w · values, m × p."""
        out = torch.zeros(self.system.m, values.shape[1], dtype=torch.float64, device=values.device)
        weighted = self.weight[:, None] * values
        self.system.each(lambda where, A: out.add_(A.T @ weighted[where].to(A.dtype)))
        return self._total(out)

    def _up(self, u: Tensor) -> Tensor:
        """A u, n × p, in float64."""
        out = torch.empty(self.system.n, u.shape[1], dtype=torch.float64, device=u.device)
        small = u.to(self.system.plan.dtype)
        self.system.each(lambda where, A: out.__setitem__(where, (A @ small).double()))
        return out

    # --- the evidence -----------------------------------------------------------------------------------

    def evidence(self, at: State, L_B: Tensor) -> float:
        """log q(y) of eq. 4.21: Ψ(f̂) − ½ log|I + ΔW| − ½ log|B|."""
        log_det = 0.0
        if self.approximation.alpha > 0:
            shrink = self._shrink(self.loss.hessian(self.y, at.f))
            log_det = -float(self._total((self.weight * torch.linalg.slogdet(shrink)[1]).sum()))
        return at.value - 0.5 * log_det - float(L_B.diagonal().log().sum())

    def gradient(self, at: State, L_B: Tensor, inputs: bool = True) -> tuple[dict[str, Tensor], Tensor]:
        """The gradient of log q in kernel and inducing inputs, through the mode as well (eq. 4.24).

        With R = (C + W⁻¹)⁻¹, s = −½ diag[(C⁻¹ + W)⁻¹] ∂W/∂f and v = (I + WC)⁻¹ s, the derivative in the covariance C
        of the rows is ½aaᵀ − ½R + ½(vaᵀ + avᵀ): sums over rows, given two m-vectors.
        """
        p, m, dtype = self.p, self.system.m, self.system.plan.dtype
        W = self.loss.hessian(self.y, at.f)
        E = self._shrink(W)
        D = _product(W, E)  # of one copy
        eye = torch.eye(p * m, dtype=torch.float64, device=at.f.device)
        root = torch.linalg.solve_triangular(L_B, eye, upper=False)
        inverse = (root.T @ root).reshape(p, m, p, m)  # B⁻¹ by class
        tiles = [root.reshape(p * m, p, m)[:, c].T.contiguous().to(dtype) for c in range(p)]  # m × pm
        s = torch.empty_like(at.f)
        row_R = torch.empty_like(self.weight)  # Σ_c R_cc of a row with itself

        def curve(where: slice, A: Tensor) -> None:
            H = torch.stack([A @ tile for tile in tiles], 1)
            V = (H @ H.transpose(1, 2)).double()
            spread = self.delta[where][:, None, None] * E[where] + E[where] @ V @ E[where]
            s[where] = -0.5 * hessian_slope(self.loss, self.y[where], at.f[where], spread)
            row_R[where] = (D[where] - D[where] @ V @ D[where]).diagonal(dim1=1, dim2=2).sum(1)

        self.system.each(curve)
        t = self._down(s)  # Aᵀ w s
        q = self._up(t) + self.delta[:, None] * s  # C s
        Dq = _times(D, q)
        h = torch.cholesky_solve(self._down(Dq).T.reshape(-1, 1), L_B).reshape(p, m).T
        v = s - Dq + _times(D, self._up(h))  # s − R C s
        w = self.weight[:, None]
        left, right = w * (at.a + v), w * at.a
        u, t_v = at.u.to(dtype), (t - h).to(dtype)  # Aᵀwa and Aᵀwv
        by_rest = self.approximation.alpha * self.weight * ((0.5 * at.a.square() + at.a * v).sum(1) - 0.5 * row_R)

        def weigh(where: slice, A: Tensor) -> Weights:
            by_A = left[where].to(dtype) @ u.T + right[where].to(dtype) @ t_v.T
            d = (w[where][:, :, None] * D[where]).to(dtype)
            for c in range(p):
                for e in range(p):
                    by_A.sub_((A @ inverse[e, :, c].to(dtype)).mul_(d[:, c, e, None]))
            by_A.addcmul_(A, by_rest[where].to(dtype)[:, None], value=-2)
            return Weights(self.system.back(by_A), by_rest[where], A.T @ by_A)

        return self.system.pull_back(weigh, None, inputs)

    def posterior(self, at: State, L_B: Tensor) -> Posterior:
        """u ~ N(û, B⁻¹) as a posterior of the latent functions at new rows."""
        p, m, P = self.p, self.system.m, self.system.P
        eye = torch.eye(p * m, dtype=torch.float64, device=P.device)
        roots = torch.linalg.solve_triangular(L_B, eye, upper=False).reshape(p * m, p, m)
        scatter = torch.stack([P @ roots[:, c].T for c in range(p)])
        return Posterior(self.system.basis, P @ at.u, None if self.approximation.degenerate else P, scatter)


def hessian_slope(loss: Loss, y: Tensor, f: Tensor, spread: Tensor) -> Tensor:
    """Derivative of tr(spread · ∂²V/∂f²) in f, n × p, for a symmetric constant `spread` (n × p × p)."""
    with torch.enable_grad():
        leaf = f.detach().clone().requires_grad_()
        (grad,) = torch.autograd.grad((spread * loss.hessian(y, leaf)).sum(), leaf)
    return grad


def _times(blocks: Tensor, values: Tensor) -> Tensor:
    """One small matrix times one small vector, a row."""
    return blocks[:, 0] * values if values.shape[1] == 1 else (blocks @ values[:, :, None])[:, :, 0]


def _product(left: Tensor, right: Tensor) -> Tensor:
    """One small matrix times another, a row; a product of numbers where there is one output."""
    return left * right if left.shape[1] == 1 else left @ right


@dataclass
class LaplaceEvidence:
    """log q(y) as a function of kernel and inducing inputs; each mode starts from the one before it.

    The earlier mode may be one of other rows: all evidences of a search share `known`, which holds its weights.
    """

    data: Sample
    loss: Loss
    approximation: Approximation
    inputs: bool = True
    known: dict[str, Tensor] = field(default_factory=dict)
    latent: Tensor | None = None

    def _at(self, kernel: Kernel, basis: Tensor) -> tuple[Laplace, State, Tensor]:
        system = Inducing(self.data.rows, kernel, basis, self.data.plan, uses=20)
        model = Laplace(system, self.data.Y, self.data.weight, self.loss, self.approximation)
        at = model.mode(self.latent, self.known.get("u"))
        self.latent, self.known["u"] = at.f, at.u
        return model, at, model.factor(at.f)

    def __call__(self, kernel: Kernel, noise: float, basis: Tensor) -> Gradient:
        """The evidence and its gradient; there is no noise variance, so `noise` is not read."""
        model, at, L_B = self._at(kernel, basis)
        by_parameter, by_basis = model.gradient(at, L_B, self.inputs)
        found = Gradient(model.evidence(at, L_B), by_parameter, 0.0, by_basis)
        return self.data.rows.shard.group.first(lambda: found)  # identical on all processes: same steps

    def posterior(self, kernel: Kernel, basis: Tensor) -> tuple[Posterior, float]:
        """The posterior of the latent functions, and the evidence."""
        model, at, L_B = self._at(kernel, basis)
        return model.posterior(at, L_B), model.evidence(at, L_B)
