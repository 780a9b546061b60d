"""Slow and obvious twins of the mixtures of local experts: loops over rows and textbook formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm


def covariance_matrix(covariance: np.ndarray) -> np.ndarray:
    return np.diag(covariance) if covariance.ndim == 1 else covariance


def log_gates(X: np.ndarray, weights: Any, means: Any, covariances: Any) -> np.ndarray:
    """log p(j) N(x; μ_j, Σ_j), n × k."""
    columns = [
        np.log(w) + np.atleast_1d(multivariate_normal(m, covariance_matrix(c)).logpdf(X))
        for w, m, c in zip(weights, means, covariances, strict=True)
    ]
    return np.column_stack(columns)


def log_experts(X: np.ndarray, y: np.ndarray, coef: Any, intercept: Any, noise: Any) -> np.ndarray:
    """log N(y; w_jᵀx + b_j, σ_j²), n × k."""
    return np.column_stack(
        [norm(X @ b + b0, np.sqrt(s2)).logpdf(y) for b, b0, s2 in zip(coef, intercept, noise, strict=True)]
    )


def responsibilities(log_joint: np.ndarray) -> np.ndarray:
    return np.exp(log_joint - logsumexp(log_joint, axis=1, keepdims=True))


def gates_step(X: np.ndarray, R: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Thesis09 eq. 2.13 row by row, without a floor."""
    n = R.sum(0)
    means = (R.T @ X) / n[:, None]
    scatter = np.zeros((R.shape[1], X.shape[1], X.shape[1]))
    for j in range(R.shape[1]):
        for r, x in zip(R[:, j], X, strict=True):
            scatter[j] += r * np.outer(x - means[j], x - means[j])
    if kind == "tied":
        covariances = np.broadcast_to(scatter.sum(0) / n.sum(), scatter.shape)
    else:
        covariances = scatter / n[:, None, None]
    if kind == "diagonal":
        covariances = np.array([np.diag(c) for c in covariances])
    if kind == "spherical":
        covariances = np.array([np.full(X.shape[1], np.trace(c) / X.shape[1]) for c in covariances])
    return n / n.sum(), means, covariances


def linear_step(X: np.ndarray, y: np.ndarray, R: np.ndarray, ridge: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weighted ridge regression per component: stacked least squares with the penalty as further rows."""
    coef, intercept, noise = [], [], []
    for r in R.T:
        Z = np.column_stack([X, np.ones(len(X))])
        root = np.sqrt(r)[:, None]
        penalty = np.sqrt(ridge) * np.eye(X.shape[1], X.shape[1] + 1)
        b = np.linalg.lstsq(
            np.vstack([root * Z, penalty]), np.append(root[:, 0] * y, np.zeros(X.shape[1])), rcond=None
        )[0]
        error = y - Z @ b
        coef.append(b[:-1])
        intercept.append(b[-1])
        noise.append((r @ error**2 + ridge * b[:-1] @ b[:-1]) / r.sum())
    return np.array(coef), np.array(intercept), np.array(noise)


def constant_step(y: np.ndarray, R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean = (R.T @ y) / R.sum(0)
    return mean, np.array([r @ (y - m) ** 2 / r.sum() for r, m in zip(R.T, mean, strict=True)])


def conditional_mean(X: np.ndarray, weights: Any, means: Any, covariances: Any) -> np.ndarray:
    """E[y | x] under a Gaussian mixture over (x, y) with y last."""
    D = X.shape[1]
    matrices = [covariance_matrix(c) for c in covariances]
    logs = log_gates(X, weights, [m[:D] for m in means], [c[:D, :D] for c in matrices])
    local = np.column_stack(
        [m[D] + (X - m[:D]) @ np.linalg.solve(c[:D, :D], c[:D, D]) for m, c in zip(means, matrices, strict=True)]
    )
    return (responsibilities(logs) * local).sum(1)


def one_standard_error(scores: np.ndarray, sizes: list[int]) -> int:
    """The rule by trying: sizes from small to large, the first that is good enough (scores are folds × sizes)."""
    best = max(range(len(sizes)), key=lambda i: scores[:, i].mean())
    error = np.sqrt(np.sum((scores[:, best] - scores[:, best].mean()) ** 2) / (len(scores) - 1)) / np.sqrt(len(scores))
    for i in np.argsort(sizes):
        if scores[:, i].mean() >= scores[:, best].mean() - error:
            return int(i)
    raise AssertionError
