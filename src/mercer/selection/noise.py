"""The penalty of a fixed kernel by evidence: one eigendecomposition, then a search in one dimension."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from mercer.kernels import Kernel
from mercer.selection.class_codes import LEAST_NOISE
from mercer.selection.sample import are_class_codes, draw


def tune_noise(kernel: Kernel, X: Tensor, Y: Tensor, sample_weight: Any = None, device: Any = None) -> float:
    r"""Maximise the likelihood of targets of covariance :math:`s(K + \lambda D^{-1})` over the penalty λ.

    The best amplitude s has a closed form, so the kernel need not be in the targets' units. If every column of `Y`
    holds two values only, targets are class codes, and λ is at least 1 % of the kernel's mean variance: interpolating
    codes has unbounded evidence. The scale of the weights does not matter: duplicates are merged and weights are scaled
    to mean one (class codes: all one), and λ is returned for the weights as given.

    >>> from mercer.kernels import Gaussian
    >>> X = torch.linspace(-3, 3, 200, dtype=torch.float64)[:, None]
    >>> noise = torch.randn(200, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> 0.003 < tune_noise(Gaussian(), X, X.sin() + 0.1 * noise) < 0.1
    True
    """
    X = torch.as_tensor(X)
    drawn = draw(X, Y, sample_weight, len(X), np.random.default_rng(0), X.device if device is None else device)
    X, w = drawn.X, drawn.precision()
    Y = drawn.centred(w)
    Y = Y / (float(Y.abs().max()) or 1.0)  # squares of unscaled targets may overflow
    root = w.sqrt()[:, None]
    K = kernel(X, X)
    least = LEAST_NOISE * float(K.diagonal().mean()) if are_class_codes(drawn.Y) else 0.0
    values, vectors = torch.linalg.eigh(K * root * root.T)
    spectrum = values.clamp(min=0).cpu().numpy()
    energy = (vectors.T @ (root * Y)).square().sum(1).cpu().numpy()
    return max(_penalty(spectrum, energy, float(w.sum()), Y.shape[1]), least) * drawn.mean_weight


def _penalty(spectrum: np.ndarray, energy: np.ndarray, n: float, p: int) -> float:
    """The penalty of largest evidence for n rows of p outputs.

    `energy` holds the squared norms of the targets' coefficients along the eigenvectors of `spectrum`.
    """
    largest = float(spectrum[-1])
    if largest <= 1e-200:  # the kernel is zero at these rows: any penalty gives the constant
        return 1.0
    if energy.sum() <= 1e-300:
        return 1e-6 * largest

    def negative(log_lam: float) -> float:
        lam = np.exp(log_lam)
        scale = max(float((energy / (spectrum + lam)).sum()) / (n * p), 1e-300)
        # a row of weight w is w duplicates, whose differences contribute (w − 1) log λ
        log_det = np.log(spectrum + lam).sum() + (n - len(spectrum)) * log_lam
        return p * log_det + n * p * np.log(scale)

    grid = np.linspace(np.log(largest * 1e-12), np.log(largest * 10), 25)
    start = int(np.argmin([negative(t) for t in grid]))
    near = grid[max(start - 1, 0)], grid[min(start + 1, 24)]
    return float(np.exp(minimize_scalar(negative, bounds=near, method="bounded").x))
