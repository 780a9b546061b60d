"""One number per input by evidence: 1/ℓ of the length-scales under which a Matérn 3/2 process explains targets best.

What a race needs of the evidence is a proposal from a few hundred rows, many times: so this is one family in closed
form, value and gradient in one go, without the generality (and the graph) of `mercer.evidence`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mercer.linalg import minimize_lbfgs

#: Bounds of variance, bias and noise, of unit variance of the targets; a length-scale stays within this factor.
#: With noise of a thousandth single precision holds what is asked here, in half the time.
VARIANCES, BIASES, NOISES, REACH = (1e-5, 100.0), (1e-5, 10.0), (1e-3, 10.0), 1e3
#: The length-scale that the search starts from, in units of the inputs' norm, and its rounds.
START, ROUNDS = 0.5, 28
#: A climb whose steps gain less than this share of the evidence ends. Tables to choose by have as low errors with 12 or
#: 20 rounds as with 28, by when most gain less; where few of 32 inputs matter, steps gain ten times as much to the end.
TOLERANCE = 1e-3


class Process(NamedTuple):
    """Targets `Y` (n × p, centred, of unit variance) at rows `X` with weights; which inputs share a length-scale."""

    X: Tensor
    Y: Tensor
    weight: Tensor
    group: Tensor

    def start(self, factor: float, noise: float) -> np.ndarray:
        """All length-scales alike, in units of the rows' norm."""
        norm = max(float(self.X.square().sum(1).mean().sqrt()), 1e-6)
        lengths = [math.log(factor * norm)] * (int(self.group.max()) + 1)
        return np.array([*lengths, 0.0, math.log(0.01), math.log(noise)])

    def evidence(self, theta: np.ndarray) -> tuple[float, np.ndarray, Tensor]:
        r"""−log p(Y) up to a constant, its gradient, and what the other rows leave unexplained of each row.

        θ holds logarithms: of the length-scales, the variance v, the bias b and the noise σ². With
        :math:`C = v k + b + \sigma^2/w` and :math:`W = C^{-1}YY^T C^{-1} - p C^{-1}`, a parameter's slope is
        :math:`-\tfrac12 \sum W \circ \partial C`; for :math:`\ell_d` that is a sum of squared differences weighted by
        :math:`W \circ 3 v e^{-\sqrt3 r}`, which two products give for all inputs.
        """
        at = torch.as_tensor(theta, dtype=self.X.dtype)
        A = self.X * (-at[:-3])[self.group].exp()
        v, b, noise = at[-3:].exp().tolist()
        norms = A.square().sum(1)
        r = torch.addmm(norms, A, A.T, alpha=-2).add_(norms[:, None]).clamp_(min=0).mul_(3)
        r.fill_diagonal_(0).sqrt_()
        fall = torch.exp(-r).mul_(v)
        K = r.add_(1).mul_(fall)  # v (1 + √3 r) exp(−√3 r)
        C = K + b
        C.diagonal().add_(noise / self.weight)
        L, info = torch.linalg.cholesky_ex(C)
        if int(info):
            return math.inf, np.zeros_like(theta), torch.full_like(self.Y, math.nan)
        p = self.Y.shape[1]
        inverse = torch.cholesky_inverse(L).mT  # LAPACK gives it column by column
        a, diagonal = inverse @ self.Y, inverse.diagonal().clone()
        value = 0.5 * float((a * self.Y).sum()) + p * float(L.diagonal().log().sum())
        W = inverse.mul_(-p).addmm_(a, a.T)
        S = fall.mul_(W)
        lengths = 6 * 0.5 * ((S.sum(1) @ A.square()) - (A * (S @ A)).sum(0))
        by_group = torch.zeros(len(at) - 3, dtype=A.dtype).index_add_(0, self.group, lengths)
        others = [K.flatten() @ W.flatten(), b * W.sum(), noise * (W.diagonal() / self.weight).sum()]
        gradient = -torch.cat([by_group, 0.5 * torch.stack(others)])
        return value, gradient.double().numpy(), a / diagonal[:, None]

    def climbed(self, theta: np.ndarray, rounds: int) -> np.ndarray:
        reach = math.log(REACH)
        bounds = [(t - reach, t + reach) for t in theta[:-3]]
        bounds += [(math.log(low), math.log(high)) for low, high in (VARIANCES, BIASES, NOISES)]
        # rounds were chosen with first steps to the bounds: without them errors of elevators rise by 1 to 2 %
        found = minimize_lbfgs(
            lambda t: self.evidence(t)[:2], theta, bounds, short=False, maxiter=rounds, maxfun=rounds, ftol=TOLERANCE
        )
        return np.asarray(found.x)

    def predicts(self, theta: np.ndarray) -> bool:
        """Whether this is no white noise in disguise, which predicts rows left out no better than their mean."""
        left = self.evidence(theta)[2]
        mine, constant = ((self.weight[:, None] * part.square()).sum() for part in (left, self.Y))
        return bool(theta[-1] > math.log(0.5)) or bool(mine < 0.999 * constant) or not bool(constant)


def relevances(
    X: Tensor, Y: Tensor, weight: Tensor, group: Tensor | None = None, start: np.ndarray | None = None,
    rounds: int = ROUNDS,
) -> tuple[Tensor, np.ndarray]:  # fmt: skip
    """One number per input, 1/ℓ scaled to mean square one, and θ from which another climb may `start`.

    Inputs of one `group` (an index for each input) share their length-scale.
    """
    device, (X, Y, weight) = X.device, (part.cpu() for part in (X, Y, weight))  # too few rows for a GPU
    Y = Y - Y.mean(0)
    Y = Y / Y.square().mean().sqrt().clamp(min=1e-12)
    X, Y, weight = X.float(), Y.float(), weight.float()
    process = Process(X, Y, weight, torch.arange(X.shape[1]) if group is None else group.cpu())
    # short length-scales first: from long ones the climb settles on some of the inputs that matter
    theta = process.climbed(process.start(START, 0.1) if start is None else start, rounds)
    if not process.predicts(theta):
        theta = process.climbed(process.start(10 * START, 0.6), rounds)
    scale = torch.as_tensor(-theta[:-3]).exp()[process.group]
    return (scale * (len(scale) / scale.square().sum()).sqrt()).to(device), theta
