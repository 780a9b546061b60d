"""Local logistic models of many coefficients under fixed gates, by L-BFGS.

The Newton step of EM needs products of all pairs of inputs in every iteration. With many inputs or classes that takes
most of a fit, while a slope takes a thousandth of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from mercer.clock import RUNNING, StopKind, StopReason
from mercer.engine import Sample
from mercer.linalg import minimize_lbfgs
from mercer.mixture.class_experts import LogisticExperts, indicators
from mercer.mixture.em import EMResult, Mixture, posterior, sum_over_rows
from mercer.mixture.features import Features
from mercer.mixture.fit import MixtureSettings
from mercer.mixture.output_weights import local_inputs, reduce_activations

#: Share of the mean curvature that keeps the curvature of a component without rows positive definite.
LEAST_CURVATURE = 1e-8


def fit_by_gradients(sample: Sample, mixture: Mixture, setting: MixtureSettings) -> EMResult:
    """Maximise the conditional likelihood of the classes over the local logistic models, the gates being fixed."""
    plain = Features(mixture.layout.n_inputs, mixture.gates.root.ndim == 3)
    mixture = replace(mixture, fixed=True, layout=plain)
    problem = ConditionalLikelihood(sample, mixture, setting, _whitening(sample, mixture))
    return problem.maximum()


@dataclass
class ConditionalLikelihood:
    """Σ w log Σ_j p(j | x) P(y | x, j) less the penalty, in coordinates in which its curvature is at most about one."""

    sample: Sample
    mixture: Mixture
    setting: MixtureSettings
    whitening: Tensor
    path: list[float] = field(default_factory=list)

    def maximum(self) -> EMResult:
        offset = _log_density(self.sample, self.mixture) / self.sample.total_weight
        clock, start = self.setting.clock, np.zeros(self._experts.coef.numel())
        found = start
        self.path = [offset - self.loss(start)[0]]

        def ended(flat: np.ndarray, loss: float) -> None:
            nonlocal found
            found = flat
            self.path.append(offset - loss)
            result = EMResult(self.at(flat), self.path, RUNNING)
            asked = [bool(callback(result)) for callback in self.setting.callbacks]
            if any(asked):
                clock.interrupt(by_key=False)
            if clock.expired():
                raise StopIteration

        try:
            minimize_lbfgs(
                self.loss, start, callback=ended, maxiter=self.setting.max_iter, ftol=self.setting.tol, gtol=1e-7
            )
        except KeyboardInterrupt:
            clock.interrupt()
        return EMResult(self.at(found), self.path, self._stop_reason())

    def _stop_reason(self) -> StopReason:
        setting = self.setting
        if setting.clock.expired():
            return setting.clock.stop_reason()
        if len(self.path) > setting.max_iter:
            return StopReason(f"max_iter={setting.max_iter} iterations were done", StopKind.MAX_ITER)
        sentence = f"the log-likelihood rose by less than tol={setting.tol:g} per row"
        return StopReason(sentence, StopKind.CONVERGED)

    @property
    def _experts(self) -> LogisticExperts:
        experts = self.mixture.experts
        assert isinstance(experts, LogisticExperts)
        return experts

    def at(self, flat: np.ndarray) -> Mixture:
        """The mixture of these coordinates."""
        coef = torch.as_tensor(flat).to(self.whitening).reshape(self._experts.coef.shape) @ self.whitening
        if coef.shape[1] > 1:  # only differences between classes matter to an intercept
            coef[:, :, 0] -= coef[:, :, 0].mean(1, keepdim=True)
        return replace(self.mixture, experts=replace(self._experts, coef=coef))

    def loss(self, flat: np.ndarray) -> tuple[float, np.ndarray]:
        """Minus the penalised log-likelihood per unit of weight, and its slope."""
        mixture = self.at(flat)
        experts = mixture.experts
        assert isinstance(experts, LogisticExperts)
        k, c, _ = experts.coef.shape

        def statistic(A: Tensor, x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
            R, log_p = posterior(A.clamp(min=1e-300).log() + experts.log_density(x, y))
            p = experts.mean(x)[:, 1:] if c == 1 else experts.mean(x)
            slope = (R * w)[:, None] * ((y if c == 1 else indicators(y, c)) - p)
            return w @ log_p, (slope.flatten(0, 1) @ local_inputs(x, linear=True).T).reshape(k, c, -1)

        value, slope = reduce_activations(self.sample, mixture, statistic, width=4 * k * c)
        slope = slope - experts.penalties() * experts.coef
        if c > 1:
            slope[:, :, 0] -= slope[:, :, 0].mean(1, keepdim=True)
        whitened = slope @ self.whitening.mT
        total = self.sample.total_weight
        return float(experts.penalty() - value) / total, -(whitened.flatten() / total).cpu().numpy()


def _whitening(sample: Sample, mixture: Mixture) -> Tensor:
    """L⁻¹ (k × q × q) for L Lᵀ = ½ Σ w p(j | x) [1; x][1; x]ᵀ + penalty, Böhning's bound on the curvature."""
    experts = mixture.experts
    assert isinstance(experts, LogisticExperts)

    def statistic(A: Tensor, x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor]:
        z = local_inputs(x, linear=True)
        return (torch.stack([(z * share) @ z.T for share in A * w]),)

    (gram,) = reduce_activations(sample, mixture, statistic, width=experts.coef.shape[2])
    H = 0.5 * gram + torch.diag(experts.penalties())
    diagonal = H.diagonal(dim1=1, dim2=2)
    diagonal.add_(LEAST_CURVATURE * diagonal.mean(1, keepdim=True))
    return torch.linalg.solve_triangular(torch.linalg.cholesky(H), torch.eye(H.shape[1]).to(H), upper=False)


def _log_density(sample: Sample, mixture: Mixture) -> float:
    """Σ w log p(x), which the local models leave as it is."""
    log_gates = mixture.log_gates()
    block_rows = mixture.block_rows(sample.plan)
    (total,) = sum_over_rows(sample, lambda x, y, w: (w @ posterior(log_gates(x))[1],), block_rows)
    return float(total)
