"""The exact evidence of a Gaussian process with its gradient, and leave-one-out predictions.

Formulas only: `mercer.selection.tune` chooses rows, family and optimiser.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mercer.kernels import Kernel
from mercer.linalg import cholesky, inverse_diagonal, solve_factored


def log_evidence(
    kernel: Kernel, noise: float | Tensor, X: Tensor, Y: Tensor, weight: Tensor | None = None
) -> tuple[float, dict[str, Tensor], float]:
    r"""Log marginal likelihood of targets `Y` (n × p, outputs independent) and its gradient.

    .. math:: \log p(Y) = -\tfrac12 \sum_o y_o^\top C^{-1} y_o - \tfrac p2 \log|C| - \tfrac{np}2 \log 2\pi,
        \qquad C = K + \sigma^2 W^{-1} .

    A row of weight w counts as w copies of itself: its noise is σ²/w, and the terms that contain only the
    noise of the copies are added, so that integer weights give exactly the evidence of repeated rows. `noise` may be a
    number for each row.

    Returns the value, its gradient in the kernel's tunable parameters, and its gradient in the noise
    variance σ². The gradient in a parameter θ is ½ tr[(ααᵀ − p C⁻¹) ∂K/∂θ] with α = C⁻¹Y: one
    weighted sum over ∂K/∂θ, which the kernel pulls back.

    >>> from mercer.kernels import Gaussian
    >>> X = torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]
    >>> value, by_parameter, by_noise = log_evidence(Gaussian(), 0.1, X, X.sin())
    >>> sorted(by_parameter), value < 0
    (['length_scale'], True)
    """
    n, p = Y.shape
    w = Y.new_ones(n) if weight is None else weight
    K, pull = kernel.traced(X, X, inputs=False)
    C = K.clone()
    C.diagonal().add_(noise / w)
    L, _ = cholesky(C)
    alpha = solve_factored(L, Y)
    value = -0.5 * (Y * alpha).sum() - p * L.diagonal().log().sum() - 0.5 * n * p * math.log(2 * math.pi)
    each = torch.as_tensor(noise, dtype=Y.dtype, device=Y.device).expand(n)
    value = value - 0.5 * p * ((w - 1) @ (2 * math.pi * each).log() + w.log().sum())
    inverse = torch.cholesky_inverse(L).mT  # LAPACK gives it column by column: as it stands, passes over it are slow
    pressure = inverse.mul_(-0.5 * p).addmm_(alpha, alpha.T, alpha=0.5)  # ∂ value / ∂ C
    by_parameter, _, _ = pull(pressure)
    by_noise = (pressure.diagonal() / w).sum() - 0.5 * p * ((w - 1) / each).sum()
    return float(value), by_parameter, float(by_noise)


def left_out(kernel: Kernel, noise: float, X: Tensor, Y: Tensor, weight: Tensor | None = None) -> Tensor:
    r"""Leave-one-out predictions (n × p): :math:`y_i - [C^{-1}y]_i / [C^{-1}]_{ii}`.

    A row of weight w is left out with all its copies (Rasmussen and Williams 2006, eq. 5.12).

    >>> from mercer.kernels import Gaussian
    >>> X = torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]
    >>> bool((left_out(Gaussian(), 1e-4, X, X.sin()) - X.sin()).abs().max() < 0.01)
    True
    """
    C = kernel(X, X)
    C.diagonal().add_(noise if weight is None else noise / weight)
    L, _ = cholesky(C)
    return Y - solve_factored(L, Y) / inverse_diagonal(L)[:, None]
