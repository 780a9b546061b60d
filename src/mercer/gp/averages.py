"""Probabilities of classes averaged over Gaussian latent functions (Thesis09, eq. 4.11).

Everything here is a sum with fixed nodes and a factorisation without a choice of signs, so that a row has the same
probabilities on every machine, and an ONNX graph can repeat them.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit, roots_hermitenorm
from scipy.stats import norm, qmc

#: Nodes of the Gauss–Hermite rule that averages a logistic function, and draws that average a softmax.
NODES, DRAWS = 64, 512
#: The least pivot of a covariance as a share of its diagonal: what is left below it is rounding of larger numbers.
LEAST_PIVOT = 1e-9


def hermite_rule() -> tuple[np.ndarray, np.ndarray]:
    """Nodes for a standard normal variable and their weights, which sum to one."""
    nodes, weights = roots_hermitenorm(NODES)
    return nodes, weights / weights.sum()


def normal_draws(n_classes: int) -> np.ndarray:
    """Quasi-random normal draws (draws × classes), the same at every call."""
    points = qmc.Sobol(n_classes, scramble=True, seed=0).random(DRAWS)
    return norm.ppf(np.clip(points, 1e-9, 1 - 1e-9))


def mean_logistic(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """E σ(f), f ~ N(mean, variance), by Gauss–Hermite quadrature; kept off zero, so that classes can be compared."""
    nodes, weights = hermite_rule()
    values = expit(mean[..., None] + np.sqrt(variance)[..., None] * nodes) @ weights
    return np.clip(values, 1e-300, 1.0)


def mean_softmax(mean: np.ndarray, cov: np.ndarray) -> np.ndarray:
    """E softmax(f), f ~ N(mean, cov), over a fixed set of draws, the same for every row (n × c from n × c × c)."""
    roots, out = lower_roots(cov), np.zeros_like(mean)
    for z in normal_draws(mean.shape[1]):
        f = mean + roots @ z
        e = np.exp(f - f.max(1, keepdims=True))
        out += e / e.sum(1, keepdims=True)
    return out / out.sum(1, keepdims=True)


def lower_roots(cov: np.ndarray) -> np.ndarray:
    """Lower triangular L with L Lᵀ = cov for each of n covariances; singular ones have no root that rounding makes."""
    n, c = cov.shape[:2]
    L, rest = np.zeros((n, c, c)), np.array(cov, dtype=np.float64)
    for j in range(c):
        pivot = np.maximum(rest[:, j, j], np.maximum(LEAST_PIVOT * cov[:, j, j], np.finfo(np.float64).tiny))
        L[:, j:, j] = rest[:, j:, j] / np.sqrt(pivot)[:, None]
        rest -= L[:, :, j, None] * L[:, None, :, j]
    return L
