"""Slow and obvious float64 twins of the fast code, and bounds on what rounding may do to the latter.

A formula is a loop over pairs of points, a product is written with the dense kernel matrix, the
evidence is a multivariate normal density, a gradient is a central difference. Nothing here is fast,
and nothing here calls the code it judges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from scipy.stats import multivariate_normal

from mercer import kernels as k
from mercer.kernels import Kernel

EPS = {torch.float32: 2.0**-23, torch.float64: 2.0**-52}


# --- kernels ----------------------------------------------------------------------------------------


def value(kernel: Kernel, x: np.ndarray, z: np.ndarray) -> float:
    """k(x, z) for two points, as the textbook writes it."""
    match kernel:
        case k.Gaussian():
            return math.exp(-(distance(kernel, x, z) ** 2) / 2)
        case k.Laplacian():
            return math.exp(-distance(kernel, x, z))
        case k.Matern32():
            a = math.sqrt(3) * distance(kernel, x, z)
            return (1 + a) * math.exp(-a)
        case k.Matern52():
            a = math.sqrt(5) * distance(kernel, x, z)
            return (1 + a + a**2 / 3) * math.exp(-a)
        case k.RationalQuadratic():
            return (1 + distance(kernel, x, z) ** 2 / (2 * kernel.alpha)) ** -kernel.alpha
        case k.Linear():
            return sum(float(a) * float(b) for a, b in zip(x, z, strict=True))
        case k.Polynomial():
            return (kernel.gamma * value(k.Linear(), x, z) + kernel.offset) ** kernel.degree
        case k.Sum():
            return value(kernel.left, x, z) + value(kernel.right, x, z)
        case k.Product():
            return value(kernel.left, x, z) * value(kernel.right, x, z)
        case k.Scaled():
            return kernel.variance * value(kernel.kernel, x, z)
        case k.Bias():
            return kernel.variance
        case k.Normalized():
            norms = value(kernel.kernel, x, x) * value(kernel.kernel, z, z)
            return value(kernel.kernel, x, z) / math.sqrt(norms) if norms > 0 else 0.0
        case k.Function():
            return float(kernel.function(torch.from_numpy(x[None]), torch.from_numpy(z[None]))[0, 0])
        case k.Precomputed():
            return float(x[int(z[-1])])
    raise TypeError(f"no oracle for {kernel!r}")


def distance(kernel: Any, x: np.ndarray, z: np.ndarray) -> float:
    """‖(x − z)/ℓ‖, summed input by input."""
    lengths = np.broadcast_to(np.asarray(kernel.length_scale, dtype=float), x.shape)
    return math.sqrt(sum(((a - b) / length) ** 2 for a, b, length in zip(x, z, lengths, strict=True)))


def tile(kernel: Kernel, X: Any, Z: Any) -> np.ndarray:
    """K(X, Z), entry by entry, in float64."""
    X, Z = np.asarray(X, dtype=float), np.asarray(Z, dtype=float)
    return np.array([[value(kernel, x, z) for z in Z] for x in X]).reshape(len(X), len(Z))


def rounding(kernel: Kernel, X: Any, Z: Any, eps: float) -> np.ndarray:
    """Entry by entry, how far a tile computed with unit roundoff `eps` may be from `tile(kernel, X, Z)`.

    First-order error analysis with every factor rounded up: inputs are taken to be exact.
    """
    X, Z = np.asarray(X, dtype=float), np.asarray(Z, dtype=float)
    match kernel:
        case k.Radial():
            return _profile_rounding(kernel, tile(kernel, X, Z), X, Z, eps)
        case k.Linear():  # a sum of D products, in any order
            return (X.shape[1] + 1) * eps * np.abs(X) @ np.abs(Z).T
        case k.Polynomial():
            inside = kernel.gamma * np.abs(X) @ np.abs(Z).T + abs(kernel.offset)
            error = (X.shape[1] + 4) * eps * inside
            return kernel.degree * (inside + error) ** (kernel.degree - 1) * error + 8 * eps * inside**kernel.degree
        case k.Sum():
            size = np.abs(tile(kernel.left, X, Z)) + np.abs(tile(kernel.right, X, Z))
            return rounding(kernel.left, X, Z, eps) + rounding(kernel.right, X, Z, eps) + 2 * eps * size
        case k.Product():
            left, right = np.abs(tile(kernel.left, X, Z)), np.abs(tile(kernel.right, X, Z))
            e_left, e_right = rounding(kernel.left, X, Z, eps), rounding(kernel.right, X, Z, eps)
            return e_left * right + e_right * left + e_left * e_right + 2 * eps * left * right
        case k.Scaled():
            return kernel.variance * (rounding(kernel.kernel, X, Z, eps) + 2 * eps * np.abs(tile(kernel.kernel, X, Z)))
        case k.Bias():
            return np.full((len(X), len(Z)), eps * kernel.variance)
        case k.Normalized():
            norm_x, norm_z = (_norms(kernel.kernel, A) for A in (X, Z))
            off_x, off_z = (_norm_rounding(kernel.kernel, A, eps) for A in (X, Z))
            own = rounding(kernel.kernel, X, Z, eps) / np.outer(norm_x, norm_z)
            return own + (off_x[:, None] + off_z[None, :] + 8 * eps) * np.abs(tile(kernel, X, Z))
        case k.Function():  # what the tables hold: differences of inputs into a product of D cosines
            apart = np.abs(X[:, None] - Z[None]).sum(-1)
            return (apart + 4 * X.shape[1]) * eps
        case k.Precomputed():
            return np.zeros((len(X), len(Z)))
    raise TypeError(f"no bound for {kernel!r}")


def _profile_rounding(kernel: Any, K: np.ndarray, X: np.ndarray, Z: np.ndarray, eps: float) -> np.ndarray:
    """Radial kernels: −c‖x − z‖²/ℓ² is a sum of D + 2 terms, so its error is a share of |x|² + |z|².

    Both are measured from the mean of Z, where the fast code puts its origin. The profile passes an error
    δ of c r² on with its slope, which is at most 1 in the Gaussian, ½ and ⅙ in the Matérn 3/2 and 5/2,
    α in the rational quadratic; the Laplacian's is infinite where points meet, there √δ is the bound.
    """
    origin, lengths = Z.mean(0), np.asarray(kernel.length_scale, dtype=float)
    alpha = getattr(kernel, "alpha", 1.0)
    c = {k.Gaussian: 0.5, k.Laplacian: 1.0, k.Matern32: 3.0, k.Matern52: 5.0}.get(type(kernel), 0.5 / alpha)
    x2, z2 = (c * (((A - origin) / lengths) ** 2).sum(1) for A in (X, Z))
    delta = 4 * (X.shape[1] + 6) * eps * (x2[:, None] + z2[None, :])
    if isinstance(kernel, k.Laplacian):
        r = np.array([[distance(kernel, x, z) for z in Z] for x in X])
        return np.minimum(np.sqrt(delta), delta / np.maximum(r, 1e-300)) + 8 * eps
    slope = {k.Gaussian: 1.0, k.Matern32: 0.5, k.Matern52: 1 / 6}.get(type(kernel), alpha)
    return slope * delta + 8 * (1 + alpha) * eps


def _norms(kernel: Kernel, A: np.ndarray) -> np.ndarray:
    norms = np.sqrt([value(kernel, a, a) for a in A])
    return np.where(norms > 0, norms, 1.0)


def _norm_rounding(kernel: Kernel, A: np.ndarray, eps: float) -> np.ndarray:
    """Half the relative error of k(a, a), which is that of its root."""
    return np.array([rounding(kernel, a[None], a[None], eps)[0, 0] for a in A]) / _norms(kernel, A) ** 2 / 2


# --- gradients --------------------------------------------------------------------------------------


def slopes(f: Callable[[np.ndarray], float], at: Any, step: float = 1e-5) -> np.ndarray:
    """Central differences of a function of an array; their error is of order step² + eps/step ≈ 1e-10."""
    at = np.asarray(at, dtype=float)
    out = np.zeros_like(at)
    for i in np.ndindex(at.shape):
        h = step * max(abs(at[i]), 0.1)
        up, down = at.copy(), at.copy()
        up[i] += h
        down[i] -= h
        out[i] = (f(up) - f(down)) / (up[i] - down[i])
    return out


def parameter_slopes(kernel: Kernel, f: Callable[[Kernel], float]) -> dict[str, np.ndarray]:
    """Central differences of a function of a kernel in each of its tunable parameters."""

    def along(name: str, given: Any) -> np.ndarray:
        return slopes(lambda v: f(with_values(kernel, {name: v if v.ndim else float(v)})), given)

    return {name: along(name, given) for name, given in kernel.tunable().items()}


def with_values(kernel: Kernel, values: Mapping[str, Any]) -> Kernel:
    """A copy by scikit-learn's own means."""
    from sklearn.base import clone

    return clone(kernel).set_params(**values)


# --- products with the dense matrix -------------------------------------------------------------------


def product(K: np.ndarray, W: np.ndarray) -> np.ndarray:
    return K @ W


def transposed(K: np.ndarray, R: np.ndarray) -> np.ndarray:
    return K.T @ R


def moments(
    K: np.ndarray, T: np.ndarray, weight: np.ndarray | None = None, B: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """ΦᵀDΦ and ΦᵀDT with Φ = K, or K B where B whitens."""
    phi = K if B is None else K @ B
    D = np.eye(len(K)) if weight is None else np.diag(weight)
    return phi.T @ D @ phi, phi.T @ D @ T


def column_scores(K: np.ndarray, g: np.ndarray, weight: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    D = np.eye(len(K)) if weight is None else np.diag(weight)
    return K.T @ g, np.diag(K.T @ D @ K)


def row_quadratic(K: np.ndarray, S: np.ndarray) -> np.ndarray:
    return np.diag(K @ S @ K.T)


# --- Gaussian processes -------------------------------------------------------------------------------


def log_evidence(kernel: Kernel, noise: float, X: Any, Y: Any) -> float:
    """Log density of the columns of Y, each drawn from N(0, K + σ²I); a weight is a row written twice."""
    C = tile(kernel, X, X) + noise * np.eye(len(X))
    return normal_log_density(C, Y)


def normal_log_density(C: np.ndarray, Y: Any) -> float:
    columns = np.asarray(Y, dtype=float).reshape(len(C), -1).T
    return float(sum(multivariate_normal(np.zeros(len(C)), C).logpdf(y) for y in columns))


def best_amplitude_log_evidence(K: np.ndarray, lam: float, Y: Any) -> float:
    """Log density under N(0, s(K + λI)) for the s that makes it largest: the mean of yᵀ(K + λI)⁻¹y / n."""
    Y = np.asarray(Y, dtype=float).reshape(len(K), -1)
    C = K + lam * np.eye(len(K))
    s = float((Y * np.linalg.solve(C, Y)).sum()) / Y.size
    return normal_log_density(s * C, Y)


def draw(kernel: Kernel, X: Any, noise: float, rng: np.random.Generator, outputs: int = 1) -> np.ndarray:
    """Draws of a Gaussian process with noise at the rows of X, n × outputs."""
    C = tile(kernel, X, X)
    values, vectors = np.linalg.eigh(C)
    root = vectors * np.sqrt(values.clip(min=0))
    return root @ rng.standard_normal((len(C), outputs)) + math.sqrt(noise) * rng.standard_normal((len(C), outputs))
