"""Slow and obvious twins of the empirical kernel family: dense matrices, explicit inverses, loops over pairs."""

from __future__ import annotations

import numpy as np


def mean_distance(X: np.ndarray, weight: np.ndarray) -> float:
    """Σ_ij s_i s_j ‖x_i − x_j‖ / (Σ s)², pair by pair."""
    total = sum(weight[i] * weight[j] * np.linalg.norm(X[i] - X[j]) for i in range(len(X)) for j in range(len(X)))
    return total / weight.sum() ** 2


def augmented(features: np.ndarray, signs: np.ndarray) -> np.ndarray:
    """Y_l of MEKL13: rows φ_i (Φ(x_i)ᵀ, 1)."""
    return signs[:, None] * np.column_stack([features, np.ones(len(features))])


def objective(Y: list, omega: list, b: list, S: np.ndarray, c: float, lam: float) -> float:
    """Eq. (5), term by term; S is the diagonal of weights."""
    mean = sum(y @ w for y, w in zip(Y, omega, strict=True)) / len(Y)
    value = 0.0
    for y, w, margin in zip(Y, omega, b, strict=True):
        e = y @ w - 1 - margin
        apart = y @ w - mean
        value += e @ S @ e + c * w[:-1] @ w[:-1] + lam * apart @ S @ apart
    return float(value)


def table1(
    features: list,
    signs: np.ndarray,
    weight: np.ndarray,
    c: float,
    lam: float,
    rho: float,
    b1: float,
    n_steps: int,
    literal: bool = False,
) -> tuple[list, list]:
    """Steps 3 to 6 of table 1 with inverses: weights and objectives.

    They start where each view solves its own problem; `literal`: from vectors of unit length, then step 5.
    """
    M, S = len(features), np.diag(weight)
    Y = [augmented(phi, signs) for phi in features]
    tilde = [np.diag([1.0] * phi.shape[1] + [0.0]) for phi in features]
    b = [np.full(len(signs), b1) for _ in Y]
    omega = [np.linalg.inv(y.T @ S @ y + c * t) @ y.T @ S @ (b[0] + 1) for y, t in zip(Y, tilde, strict=True)]
    if literal:
        omega = [np.full(y.shape[1], y.shape[1] ** -0.5) for y in Y]
        others = sum(y @ w for y, w in zip(Y[1:], omega[1:], strict=True)) if M > 1 else 0.0
        A = (1 + lam * (M - 1) / M) * Y[0].T @ S @ Y[0] + c * tilde[0]
        omega[0] = np.linalg.inv(A) @ Y[0].T @ S @ (b[0] + 1 + lam / M * others)
    path = [objective(Y, omega, b, S, c, lam)]
    for _ in range(n_steps):
        e = [y @ w - margin - 1 for y, w, margin in zip(Y, omega, b, strict=True)]
        b = [margin + rho * (err + abs(err)) for margin, err in zip(b, e, strict=True)]
        new = []
        for l, y in enumerate(Y):
            others = sum(Y[j] @ omega[j] for j in range(M) if j != l) if M > 1 else 0.0
            A = (1 + lam * (M - 1) / M) * y.T @ S @ y + c * tilde[l]
            new.append(np.linalg.inv(A) @ y.T @ S @ (b[l] + 1 + lam / M * others))
        omega = new
        path.append(objective(Y, omega, b, S, c, lam))
    return omega, path


def coupled(features: list, y: np.ndarray, weight: np.ndarray, c: float, lam: float) -> tuple[np.ndarray, float]:
    """Views' values (M × n) at the minimum of the coupled least squares, as one stacked least squares problem."""
    M, n = len(features), len(y)
    root = np.sqrt(weight)[:, None]
    X = [np.column_stack([phi, np.ones(n)]) for phi in features]
    edges = np.cumsum([0] + [x.shape[1] for x in X])
    H, g = np.zeros((edges[-1], edges[-1])), np.zeros(edges[-1])
    for l in range(M):
        for j in range(M):
            own = (1 + lam) if l == j else 0.0
            block = (own - lam / M) * (root * X[l]).T @ (root * X[j])
            H[edges[l] : edges[l + 1], edges[j] : edges[j + 1]] = block
        size = X[l].shape[1]
        H[edges[l] : edges[l + 1], edges[l] : edges[l + 1]] += c * np.diag([1.0] * (size - 1) + [0.0])
        g[edges[l] : edges[l + 1]] = X[l].T @ (weight * y)
    w = np.linalg.lstsq(H, g, rcond=None)[0]
    f = np.array([X[l] @ w[edges[l] : edges[l + 1]] for l in range(M)])
    penalty = sum(c * (w[edges[l] : edges[l + 1] - 1] ** 2).sum() for l in range(M))
    value = sum(weight @ (y - one) ** 2 + lam * weight @ (one - f.mean(0)) ** 2 for one in f) + penalty
    return f, float(value)
