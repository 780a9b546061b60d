"""The regularisation of a fixed kernel by evidence: one eigendecomposition, then a search in one number."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from mercer.kernels import Kernel


def tune_noise(kernel: Kernel, X: Tensor, Y: Tensor, sample_weight: Any = None, device: Any = None) -> float:
    r"""The penalty λ under which targets of covariance :math:`s(K + \lambda D^{-1})` are most likely.

    The amplitude s has its best value in closed form, so the kernel need not be in the targets' units.

    >>> import torch
    >>> from mercer.kernels import Gaussian
    >>> from mercer.tuning import tune_noise
    >>> X = torch.linspace(-3, 3, 200, dtype=torch.float64)[:, None]
    >>> noise = torch.randn(200, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> 0.003 < tune_noise(Gaussian(), X, X.sin() + 0.1 * noise) < 0.1
    True
    """
    X, Y = X.double(), Y.double().to(X.device)
    w = torch.ones(len(X)) if sample_weight is None else torch.as_tensor(sample_weight)
    w = w.to(X)
    Y = Y - (w[:, None] * Y).sum(0) / w.sum()
    root = w.sqrt()[:, None]
    values, vectors = torch.linalg.eigh(kernel(X, X) * root * root.T)
    spectrum = values.clamp(min=0).cpu().numpy()
    energy = (vectors.T @ (root * Y)).square().sum(1).cpu().numpy()
    n, p = float(w.sum()), Y.shape[1]
    largest = max(float(spectrum[-1]), 1e-300)
    within = float(energy.sum())
    if within <= 1e-300:
        return 1e-6 * largest

    def negative(log_lam: float) -> float:
        lam = np.exp(log_lam)
        scale = max(float((energy / (spectrum + lam)).sum()) / (n * p), 1e-300)
        # rows of weight w stand for w copies: the copies' differences carry (w − 1) log λ
        log_det = np.log(spectrum + lam).sum() + (n - len(spectrum)) * log_lam
        return p * log_det + n * p * np.log(scale)

    bounds = np.log(largest * 1e-12), np.log(largest * 10)
    grid = np.linspace(*bounds, 25)
    start = int(np.argmin([negative(t) for t in grid]))
    inner = grid[max(start - 1, 0)], grid[min(start + 1, 24)]
    return float(np.exp(minimize_scalar(negative, bounds=inner, method="bounded").x))
