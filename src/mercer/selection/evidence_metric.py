"""Relevances of inputs: 1/ℓ of the length-scales of largest evidence under a Matérn 3/2 process.

The model selection needs this proposal many times, from a few hundred rows. It is therefore one family in closed form,
with value and gradient from one factorisation; `mercer.evidence` is general, and slower.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mercer.evidence.coordinates import length_scale_prior
from mercer.linalg import minimize_lbfgs

#: Bounds of variance, bias and noise in units of the targets' variance, and the factor within which a length-scale
#: stays. The least noise of 1e-3 makes single precision sufficient, in half the time.
VARIANCES, BIASES, NOISES, REACH = (1e-5, 100.0), (1e-5, 10.0), (1e-3, 10.0), 1e3
#: Prior standard deviation of the logarithms of length-scales around their mean. Without it a long step drops inputs
#: that matter, and the evidence is flat there: of 16 draws of 512 rows of pumadyn32nm, four of whose 32 inputs matter,
#: searches end 35 lower in the mean of the logarithm, and of 400 rows 72 lower.
PRIOR = 1.0
#: Length-scale at the start, in units of the inputs' norm, and steps at most.
START, ROUNDS = 0.5, 28
#: Least gain of a step, as a share of the evidence.
TOLERANCE = 1e-3
#: Share of the targets' variance above which noise is called noise, so that a fit cannot be white noise in disguise.
MOSTLY_NOISE = 0.5
#: Leave-one-out error, in units of the constant's, below which a fit predicts at all.
PREDICTS_BELOW = 0.999
#: Noise from which a search starts again after it ended in white noise.
MUCH_NOISE = 0.6


class Process(NamedTuple):
    """Centred targets `Y` of unit variance (n × p) at rows `X`, with weights and the group of each input.

    Inputs of one group share a length-scale.
    """

    X: Tensor
    Y: Tensor
    weight: Tensor
    group: Tensor

    def start(self, factor: float, noise: float) -> np.ndarray:
        """θ with equal length-scales of `factor` times the rows' norm."""
        norm = max(float(self.X.square().sum(1).mean().sqrt()), 1e-6)
        lengths = [math.log(factor * norm)] * (int(self.group.max()) + 1)
        return np.array([*lengths, 0.0, math.log(0.01), math.log(noise)])

    def evidence(self, theta: np.ndarray) -> tuple[float, np.ndarray, Tensor]:
        r"""−log p(Y) up to a constant, its gradient, and the leave-one-out residuals.

        θ holds logarithms of the length-scales, the variance v, the bias b and the noise σ². With
        :math:`C = v k + b + \sigma^2/w` and :math:`W = C^{-1}YY^T C^{-1} - p C^{-1}`, the derivative by a parameter is
        :math:`-\tfrac12 \sum W \circ \partial C`. For :math:`\ell_d` it is a sum of squared differences weighted by
        :math:`W \circ 3 v e^{-\sqrt3 r}`; two matrix products give it for all inputs.
        """
        at = torch.as_tensor(theta, dtype=self.X.dtype)
        A = self.X * (-at[:-3])[self.group].exp()
        v, b, noise = at[-3:].exp().tolist()
        norms = A.square().sum(1)
        r = torch.addmm(norms, A, A.T, alpha=-2).add_(norms[:, None]).clamp_(min=0).mul_(3)
        r.fill_diagonal_(0).sqrt_()
        decay = torch.exp(-r).mul_(v)
        K = r.add_(1).mul_(decay)  # v (1 + √3 r) exp(−√3 r)
        C = K + b
        C.diagonal().add_(noise / self.weight)
        L, info = torch.linalg.cholesky_ex(C)
        if int(info):
            return math.inf, np.zeros_like(theta), torch.full_like(self.Y, math.nan)
        p = self.Y.shape[1]
        inverse = torch.cholesky_inverse(L).mT  # LAPACK stores it by columns
        a, diagonal = inverse @ self.Y, inverse.diagonal().clone()
        value = 0.5 * float((a * self.Y).sum()) + p * float(L.diagonal().log().sum())
        W = inverse.mul_(-p).addmm_(a, a.T)
        S = decay.mul_(W)
        lengths = 6 * 0.5 * ((S.sum(1) @ A.square()) - (A * (S @ A)).sum(0))
        by_group = torch.zeros(len(at) - 3, dtype=A.dtype).index_add_(0, self.group, lengths)
        others = [K.flatten() @ W.flatten(), b * W.sum(), noise * (W.diagonal() / self.weight).sum()]
        gradient = -torch.cat([by_group, 0.5 * torch.stack(others)])
        return value, gradient.double().numpy(), a / diagonal[:, None]

    def objective(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """−log p(Y) less the logarithm of the prior on length-scales, and its gradient."""
        value, gradient, _ = self.evidence(theta)
        log_prior, slope = length_scale_prior(theta[:-3], PRIOR)
        gradient[:-3] -= slope
        return value - log_prior, gradient

    def maximise(self, theta: np.ndarray, rounds: int) -> np.ndarray:
        """A local maximum of evidence and prior from θ, after at most `rounds` steps of L-BFGS."""
        reach = math.log(REACH)
        bounds = [(t - reach, t + reach) for t in theta[:-3]]
        bounds += [(math.log(low), math.log(high)) for low, high in (VARIANCES, BIASES, NOISES)]
        # `rounds` was chosen for long first steps, which may go to the bounds
        found = minimize_lbfgs(
            self.objective, theta, bounds, short=False, maxiter=rounds, maxfun=rounds, ftol=TOLERANCE
        )
        return np.asarray(found.x)

    def is_not_white_noise(self, theta: np.ndarray) -> bool:
        """Whether θ calls its noise noise, or predicts left-out rows better than their mean does."""
        residual = self.evidence(theta)[2]
        error, constant = ((self.weight[:, None] * part.square()).sum() for part in (residual, self.Y))
        predicts = bool(error < PREDICTS_BELOW * constant) or not bool(constant)
        return bool(theta[-1] > math.log(MOSTLY_NOISE)) or predicts


def relevances(
    X: Tensor, Y: Tensor, weight: Tensor, group: Tensor | None = None, start: np.ndarray | None = None,
    rounds: int = ROUNDS,
) -> tuple[Tensor, np.ndarray]:  # fmt: skip
    """1/ℓ of each input, scaled to mean square one, and θ, from which another search may `start`.

    Inputs of one `group` (an index for each input) share their length-scale.
    """
    device = X.device
    X, Y, weight = (part.cpu() for part in (X, Y, weight))  # a CPU is faster for so few rows
    Y = Y - Y.mean(0)
    Y = Y / Y.square().mean().sqrt().clamp(min=1e-12)
    X, Y, weight = X.float(), Y.float(), weight.float()
    process = Process(X, Y, weight, torch.arange(X.shape[1]) if group is None else group.cpu())
    # short length-scales first: from long ones the search finds only some of the inputs that matter
    theta = process.maximise(process.start(START, 0.1) if start is None else start, rounds)
    if not process.is_not_white_noise(theta):
        theta = process.maximise(process.start(10 * START, MUCH_NOISE), rounds)
    scale = torch.as_tensor(-theta[:-3]).exp()[process.group]
    return (scale * (len(scale) / scale.square().sum()).sqrt()).to(device), theta
