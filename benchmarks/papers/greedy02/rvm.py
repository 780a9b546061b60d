"""Relevance vector machine for two classes: sparse Bayesian learning by fast marginal likelihood maximisation.

A rival of Greedy02's table 5, not an estimator of the package. M. Tipping and A. Faul (2003): basis functions enter,
change their precision α or leave, one a step, whichever raises the marginal likelihood most; the posterior of the
weights is Laplace's at each step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit


@dataclass
class RelevanceVectorMachine:
    """`kernel(A, B)` gives the Gram matrix; labels are ±1; a constant is one more basis function."""

    kernel: object
    max_iter: int = 1000
    tol: float = 1e-3  # of the log marginal likelihood

    def fit(self, X: np.ndarray, y: np.ndarray) -> RelevanceVectorMachine:
        Phi, t = np.column_stack([np.ones(len(X)), self.kernel(X, X)]), (y > 0).astype(float)
        squares = np.square(Phi)
        slope = Phi.T @ (t - t.mean())
        active = [int(np.argmax(slope**2 / squares.sum(0)))]
        alpha, w = np.array([1.0]), np.zeros(1)
        for _ in range(self.max_iter):
            w, covariance, B, error = laplace(Phi[:, active], t, alpha, w)
            S, Q = statistics(Phi, squares, active, covariance, B, error)
            move = best_move(S, Q, active, alpha)
            if move is None or move[0] < self.tol:
                break
            _, j, new = move
            if j not in active:
                active, alpha, w = [*active, j], np.append(alpha, new), np.append(w, 0.0)
            elif np.isfinite(new):
                alpha[active.index(j)] = new
            else:
                place = active.index(j)
                alpha, w = np.delete(alpha, place), np.delete(w, place)
                active = [i for i in active if i != j]
        self.weights_, _, _, _ = laplace(Phi[:, active], t, alpha, w)
        self.active_ = np.array(active)
        self.vectors_ = X[self.active_[self.active_ > 0] - 1]
        return self

    @property
    def n_vectors(self) -> int:
        """Relevance vectors; the constant is none."""
        return len(self.vectors_)

    def predict(self, X: np.ndarray) -> np.ndarray:
        """The log odds."""
        is_row = self.active_ > 0
        f = self.weights_[~is_row].sum() * np.ones(len(X))
        return f + self.kernel(X, self.vectors_) @ self.weights_[is_row] if len(self.vectors_) else f


def laplace(
    Phi: np.ndarray, t: np.ndarray, alpha: np.ndarray, w: np.ndarray, max_iter: int = 30
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Mode, covariance, the likelihood's curvature at all rows, and t − y there (Newton with halved steps)."""

    def objective(w: np.ndarray) -> float:
        f = Phi @ w
        return float(np.logaddexp(0, f).sum() - t @ f + 0.5 * alpha @ w**2)

    value = objective(w)
    for _ in range(max_iter):
        y = expit(Phi @ w)
        B = np.maximum(y * (1 - y), 1e-10)
        gradient = Phi.T @ (t - y) - alpha * w
        hessian = Phi.T @ (B[:, None] * Phi) + np.diag(alpha)
        step, length = np.linalg.solve(hessian, gradient), 1.0
        while (new := objective(w + length * step)) > value and length > 1e-8:
            length /= 2
        w, fall, value = w + length * step, value - new, new
        if fall < 1e-8:
            break
    y = expit(Phi @ w)
    B = np.maximum(y * (1 - y), 1e-10)
    return w, np.linalg.inv(Phi.T @ (B[:, None] * Phi) + np.diag(alpha)), B, t - y


def statistics(
    Phi: np.ndarray, squares: np.ndarray, active: list[int], covariance: np.ndarray, B: np.ndarray, error: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """S and Q of every basis function: how much of it the active ones hold, and its slope."""
    weighted = Phi.T @ (B[:, None] * Phi[:, active])
    S = B @ squares - np.einsum("ij,jk,ik->i", weighted, covariance, weighted, optimize=True)
    return np.maximum(S, 1e-12), Phi.T @ error


def best_move(S: np.ndarray, Q: np.ndarray, active: list[int], alpha: np.ndarray) -> tuple[float, int, float] | None:
    """Gain, basis function and its new α (infinite where it leaves) of the step that gains most.

    At the mode Q of an active function is αw, so that its own part is taken out by the factor α / (α − S).
    """
    s, q = S.copy(), Q.copy()
    at = np.array(active)
    scale = alpha / np.maximum(alpha - S[at], 1e-12)
    s[at], q[at] = scale * S[at], scale * Q[at]
    theta = q**2 - s
    new = np.where(theta > 0, s**2 / np.maximum(theta, 1e-300), np.inf)
    gain = np.full(len(S), -np.inf)
    enters = theta > 0
    enters[at] = False
    gain[enters] = 0.5 * ((Q**2 - S) / S + np.log(S / np.maximum(Q**2, 1e-300)))[enters]
    for place, j in enumerate(active):
        if theta[j] > 0:
            change = 1 / new[j] - 1 / alpha[place]
            inside = 1 + S[j] * change
            if abs(change) > 1e-12 and inside > 0:
                gain[j] = 0.5 * (Q[j] ** 2 / (S[j] + 1 / change) - np.log(inside))
        elif len(active) > 1 and S[j] < alpha[place]:
            gain[j] = 0.5 * (Q[j] ** 2 / (S[j] - alpha[place]) - np.log(1 - S[j] / alpha[place]))
    j = int(np.argmax(gain))
    return (float(gain[j]), j, float(new[j])) if np.isfinite(gain[j]) else None
