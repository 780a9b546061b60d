"""The paper's rivals on precomputed kernels, two classes at a time: small and honest, each a page of its own paper.

Kernels come as a stack (kernels × rows × rows); a machine is fitted to signs ±1 and gives decision values for a stack
of new rows. Several classes: one machine per pair, majority vote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import torch
from scipy.linalg import cho_factor, cho_solve, solve
from scipy.optimize import linprog
from sklearn.svm import SVC

from mercer.empirical.kernel_map import resolve_kernels
from mercer.kernels import Gaussian

#: The duality gap at which SVM-2K ends, as a share of its objective.
GAP = 1e-4

Decide = Callable[[np.ndarray], np.ndarray]
#: Machines for a stack of kernels and signs, one for each choice of parameters.
Fit = Callable[[np.ndarray, np.ndarray, list[Any]], list[Decide]]


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


def svm_2k(K: np.ndarray, y: np.ndarray, choice: tuple[float, float, tuple[int, int]]) -> Decide:
    """SVM-2K: Farquhar, Hardoon, Meng, Shawe-Taylor and Szedmak (2006), for one pair of kernels, ε = 0.

    Two SVMs whose outputs may differ by η at the price D. The dual is over the box α_A, α_B in [0, C], β in [−D, D];
    biases are penalised (a constant is added to the kernels), so no equality remains.
    """
    C, D, pair = choice
    views, I = [K[at] + 1.0 for at in pair], np.eye(len(y))
    signs, none = np.diag(y), 0 * I
    maps = np.hstack([signs, none, -I]), np.hstack([none, signs, I])  # from the dual to the weights of each view
    H = sum(M.T @ view @ M for M, view in zip(maps, views, strict=True))
    low, high, one = np.repeat([[0, 0, -D], [C, C, D], [1.0, 1.0, 0.0]], len(y), axis=1)

    def gap(x: np.ndarray) -> float:
        """The primal objective less the dual one, as a share of the primal."""
        f = [view @ (M @ x) for M, view in zip(maps, views, strict=True)]
        square = x @ H @ x / 2
        slack = sum(np.maximum(1 - y * values, 0).sum() for values in f)
        primal = square + C * slack + D * abs(f[0] - f[1]).sum()
        return float((primal - one @ x + square) / primal)

    x = box_minimum(H, one, low, high, gap)
    weights = [M @ x for M in maps]
    return lambda new: sum((new[at] + 1) @ g for at, g in zip(pair, weights, strict=True)) / 2


def box_minimum(
    H: np.ndarray, c: np.ndarray, low: np.ndarray, high: np.ndarray, gap: Callable[[np.ndarray], float]
) -> np.ndarray:
    """Minimise ½xᵀHx − cᵀx over a box by a primal-dual interior point method, until `gap(x)` is at most `GAP`."""
    x = (low + high) / 2
    below, above = np.full((2, len(x)), 1.0)  # multipliers of the two bounds
    rounding = np.eye(len(x)) * 1e-12 * np.trace(H) / len(x)
    for _ in range(100):
        if gap(x) <= GAP:
            return x
        s, t = x - low, high - x
        aim = 0.1 * (below @ s + above @ t) / (2 * len(x))
        factor = cho_factor(H + rounding + np.diag(below / s + above / t))
        step = cho_solve(factor, c - H @ x + aim / s - aim / t)
        moves = (
            (s, step),
            (t, -step),
            (below, (aim - below * step) / s - below),
            (above, (aim + above * step) / t - above),
        )
        length = min(1.0, *(0.95 / max((-move / value).max(), 1e-12) for value, move in moves))
        x, below, above = x + length * step, below + length * moves[2][1], above + length * moves[3][1]
    raise RuntimeError(f"SVM-2K did not converge: its relative duality gap is {gap(x):.2g}, {GAP:g} was wanted")


def one_by_one(fit: Callable[[np.ndarray, np.ndarray, Any], Decide]) -> Fit:
    return lambda K, y, choices: [fit(K, y, choice) for choice in choices]


PAIRS = list(combinations(range(3), 2))
#: The kernels of Kim, Magnani and Boyd: exp(−‖x − x'‖²/σ²), ten σ² evenly from 0.1 to 100 on a logarithmic scale.
TEN = [Gaussian(float((square / 2) ** 0.5)) for square in np.geomspace(0.1, 100.0, 10)]
#: Machines and parameters to choose from.
RIVALS: dict[str, tuple[Fit, list[Any]]] = {
    "SVM-2K": (one_by_one(svm_2k), [(C, 1.0, pair) for C in (1.0, 10.0, 100.0, 1000.0) for pair in PAIRS]),
    "MKDA(SDP)": (one_by_one(mkda), [1e-8]),
    "MKL(SILP)": (one_by_one(mkl_silp), [0.1, 1.0, 10.0, 100.0, 1000.0]),
}


@dataclass(frozen=True)
class Pair:
    """The rows of two classes, their signs ±1 and the paper's three kernels, widths from these rows."""

    i: int
    j: int
    kernels: Any
    Z: torch.Tensor
    signs: np.ndarray

    @classmethod
    def each(cls, X: np.ndarray, y: np.ndarray, kernels: Any = None) -> Iterator[Pair]:
        """Every pair of classes, with kernels given or the paper's three."""
        classes = np.unique(y)
        for i, j in combinations(range(len(classes)), 2):
            inside = (y == classes[i]) | (y == classes[j])
            Z = torch.as_tensor(X[inside])
            width = float(torch.cdist(Z, Z).mean()) or 1.0
            yield cls(i, j, kernels or resolve_kernels("paper", width), Z, np.where(y[inside] == classes[j], 1.0, -1.0))

    def stack(self, X: torch.Tensor) -> np.ndarray:
        return np.stack([kernel(X, self.Z).numpy() for kernel in self.kernels])

    def vote(self, f: np.ndarray, votes: np.ndarray) -> None:
        votes[np.arange(len(f)), np.where(f > 0, self.j, self.i)] += 1
        votes[:, self.j] += 1e-3 * np.tanh(f)
        votes[:, self.i] -= 1e-3 * np.tanh(f)


@dataclass(frozen=True)
class Pairwise:
    """One machine per pair of classes; the majority decides."""

    classes: np.ndarray
    machines: list[tuple[Pair, Decide]]

    @classmethod
    def fit(cls, fit: Fit, X: np.ndarray, y: np.ndarray, choice: Any, kernels: Any = None) -> Pairwise:
        pairs = Pair.each(X, y, kernels)
        return cls(np.unique(y), [(pair, fit(pair.stack(pair.Z), pair.signs, [choice])[0]) for pair in pairs])

    def score(self, X: np.ndarray, y: np.ndarray) -> float:
        votes, new = np.zeros((len(X), len(self.classes))), torch.as_tensor(X)
        for pair, decide in self.machines:
            pair.vote(decide(pair.stack(new)), votes)
        return float((self.classes[votes.argmax(1)] == y).mean())


def scores(
    fit: Fit, choices: list[Any], X: np.ndarray, y: np.ndarray, X_held: np.ndarray, y_held: np.ndarray
) -> np.ndarray:
    """The accuracy of every choice on rows held out: a pair's kernels are made once for all of them."""
    classes, new = np.unique(y), torch.as_tensor(X_held)
    votes = np.zeros((len(choices), len(X_held), len(classes)))
    for pair in Pair.each(X, y):
        own, held = pair.stack(pair.Z), pair.stack(new)
        for decide, counted in zip(fit(own, pair.signs, choices), votes, strict=True):
            pair.vote(decide(held), counted)
    return (classes[votes.argmax(2)] == y_held).mean(1)
