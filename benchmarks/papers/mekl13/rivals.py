"""The paper's rivals on precomputed kernels, two classes at a time: small and honest, each a page of its own paper.

Kernels come as a stack (kernels × rows × rows); a machine is fitted to signs ±1 and gives decision values for a stack
of new rows. Several classes: one machine per pair, majority vote.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import torch
from scipy.linalg import solve
from scipy.optimize import linprog
from sklearn.svm import SVC

from mercer.empirical.mapping import resolve_kernels

Decide = Callable[[np.ndarray], np.ndarray]
Fit = Callable[[np.ndarray, np.ndarray, Any], Decide]


def simplex_cuts(oracle: Callable[[np.ndarray], tuple[np.ndarray, Any]], n: int, tol: float = 1e-3) -> tuple[Any, Any]:
    """Maximise over the simplex a concave function that is a minimum of linear ones, by cutting planes.

    `oracle(beta)` returns the slopes of the linear function that is least at `beta`, and whatever made it. This is the
    semi-infinite linear program of Sonnenburg et al. and, by the same duality, the SDP of Kim et al.
    """
    beta, cuts, best = np.full(n, 1 / n), [], (-np.inf, None, None)
    for _ in range(60):
        slopes, made = oracle(beta)
        cuts.append(slopes)
        if slopes @ beta > best[0]:
            best = (slopes @ beta, beta, made)
        bound = linprog(
            np.append(np.zeros(n), -1.0),
            A_ub=np.column_stack([-np.array(cuts), np.ones(len(cuts))]),
            b_ub=np.zeros(len(cuts)),
            A_eq=np.append(np.ones(n), 0.0)[None],
            b_eq=[1.0],
            bounds=[(0, None)] * n + [(None, None)],
        )
        if bound.x[-1] - best[0] <= tol * abs(best[0]):
            break
        beta = bound.x[:-1]
    return best[1], best[2]


def mkl_silp(K: np.ndarray, y: np.ndarray, C: float) -> Decide:
    """MKL by semi-infinite linear programming: Sonnenburg, Rätsch, Schäfer and Schölkopf (2006), algorithm 1."""

    def oracle(beta: np.ndarray) -> tuple[np.ndarray, Any]:
        svm = SVC(C=C, kernel="precomputed", cache_size=500).fit(np.tensordot(beta, K, 1), y)
        support, signed = svm.support_, svm.dual_coef_[0]
        square = [signed @ k[np.ix_(support, support)] @ signed for k in K]
        return np.abs(signed).sum() - 0.5 * np.array(square), svm

    # the SVM maximises over α what the kernel weights minimise: so the sign of both is turned
    beta, svm = simplex_cuts(lambda b: (lambda s, m: (-s, m))(*oracle(b)), len(K))
    return lambda new: svm.decision_function(np.tensordot(beta, new, 1))


def mkda(K: np.ndarray, y: np.ndarray, lam: float) -> Decide:
    """Kernel Fisher discriminant with the best convex combination of kernels: Kim, Magnani and Boyd (2006).

    Their SDP maximises over the simplex min_β (a − Jβ)ᵀK(a − Jβ) + λ‖β‖², which is linear in K for every β: here it is
    maximised by cutting planes, which ends at the same optimum. Decides half way between the projected means.
    """
    n = len(y)
    sides = [np.flatnonzero(y == sign) for sign in (1, -1)]
    a = np.zeros(n)
    a[sides[0]], a[sides[1]] = 1 / len(sides[0]), -1 / len(sides[1])

    def J(M: np.ndarray) -> np.ndarray:
        """Each class centred and divided by the root of its size: a symmetric matrix times `M`, without the matrix."""
        out = np.empty_like(M)
        for at in sides:
            out[at] = (M[at] - M[at].mean(0)) / len(at) ** 0.5
        return out

    def oracle(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        k = np.tensordot(theta, K, 1)
        beta = solve(lam * np.eye(n) + J(J(k).T), J(k @ a), assume_a="pos")
        left = a - J(beta)
        # λ‖β‖² is the same for every kernel, and the weights sum to one
        return np.array([left @ one @ left for one in K]) + lam * beta @ beta, left

    theta, weights = simplex_cuts(oracle, len(K))
    f = np.tensordot(theta, K, 1) @ weights
    middle = (f[y == 1].mean() + f[y == -1].mean()) / 2
    return lambda new: np.tensordot(theta, new, 1) @ weights - middle


def svm_2k(K: np.ndarray, y: np.ndarray, choice: tuple[float, float, tuple[int, int]], n_steps: int = 600) -> Decide:
    """SVM-2K: Farquhar, Hardoon, Meng, Shawe-Taylor and Szedmak (2006), for one pair of kernels, ε = 0.

    Two SVMs whose outputs may differ by η at the price D. The dual over the box (α_A, α_B in [0, C], β in [−D, D]) by
    accelerated projected gradient; biases are penalised (a constant is added to the kernels), so no equality remains.
    """
    C, D, (a, b) = choice
    A, B = K[a] + 1.0, K[b] + 1.0
    low = np.repeat([[0.0], [0.0], [-D]], len(y), 1)
    high = np.repeat([[C], [C], [D]], len(y), 1)
    step = 1 / (2 * (_norm(A) + _norm(B)))
    x = old = np.zeros((3, len(y)))
    t = 1.0
    for _ in range(n_steps):
        t, t_old = (1 + (1 + 4 * t * t) ** 0.5) / 2, t
        z = x + (t_old - 1) / t * (x - old)
        left, right = A @ (z[0] * y - z[2]), B @ (z[1] * y + z[2])
        gradient = np.stack([y * left - 1, y * right - 1, right - left])
        old, x = x, np.clip(z - step * gradient, low, high)
        if abs(x - old).max() < 1e-6 * C:
            break
    g_a, g_b = x[0] * y - x[2], x[1] * y + x[2]
    return lambda new: ((new[a] + 1) @ g_a + (new[b] + 1) @ g_b) / 2


def _norm(K: np.ndarray) -> float:
    """Bound on the largest eigenvalue: the largest sum of a row's magnitudes."""
    return float(abs(K).sum(1).max())


def svc(K: np.ndarray, y: np.ndarray, choice: tuple[float, int]) -> Decide:
    """scikit-learn's SVC with the better one of the two Gaussian kernels."""
    C, at = choice
    svm = SVC(C=C, kernel="precomputed", cache_size=500).fit(K[at], y)
    return lambda new: svm.decision_function(new[at])


PAIRS = list(combinations(range(3), 2))
RIVALS: dict[str, tuple[Fit, list[Any]]] = {
    "SVM-2K": (svm_2k, [(C, 1.0, pair) for C in (1.0, 10.0, 100.0, 1000.0) for pair in PAIRS]),
    "MKDA(SDP)": (mkda, [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1]),
    "MKL(SILP)": (mkl_silp, [0.1, 1.0, 10.0, 100.0, 1000.0]),
    "SVC": (svc, [(C, at) for C in (0.1, 1.0, 10.0, 100.0, 1000.0) for at in (1, 2)]),
}


@dataclass(frozen=True)
class Pairwise:
    """One machine per pair of classes on the paper's three kernels, widths from the pair's own rows."""

    classes: np.ndarray
    machines: list[tuple[int, int, Any, Any, Decide]]

    @classmethod
    def fit(cls, fit: Fit, X: np.ndarray, y: np.ndarray, choice: Any) -> Pairwise:
        classes, machines = np.unique(y), []
        for i, j in combinations(range(len(classes)), 2):
            rows = X[(y == classes[i]) | (y == classes[j])]
            signs = np.where(y[(y == classes[i]) | (y == classes[j])] == classes[j], 1.0, -1.0)
            Z = torch.as_tensor(rows)
            width = float(torch.cdist(Z, Z).mean()) or 1.0
            kernels = resolve_kernels("paper", width)
            machines.append((i, j, kernels, Z, fit(_stack(kernels, Z, Z), signs, choice)))
        return cls(classes, machines)

    def score(self, X: np.ndarray, y: np.ndarray) -> float:
        votes, new = np.zeros((len(X), len(self.classes))), torch.as_tensor(X)
        for i, j, kernels, Z, decide in self.machines:
            f = decide(_stack(kernels, new, Z))
            votes[np.arange(len(X)), np.where(f > 0, j, i)] += 1
            votes[:, j] += 1e-3 * np.tanh(f)
            votes[:, i] -= 1e-3 * np.tanh(f)
        return float((self.classes[votes.argmax(1)] == y).mean())


def _stack(kernels: Any, X: torch.Tensor, Z: torch.Tensor) -> np.ndarray:
    return np.stack([kernel(X, Z).numpy() for kernel in kernels])
