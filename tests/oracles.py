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


def assert_close(
    seen: torch.Tensor, wanted: torch.Tensor, *, rtol: float | None = None, atol: float | None = None, msg: str = ""
) -> None:
    """`torch.testing.assert_close`, with its tolerances, without the six seconds of imports of its first call."""
    assert (seen.shape, seen.dtype) == (wanted.shape, wanted.dtype)
    if rtol is None and atol is None:
        rtol, atol = (1.3e-6, 1e-5) if seen.dtype == torch.float32 else (1e-7, 1e-7)
    seen, wanted = (part.detach().cpu().numpy() for part in (seen, wanted))
    np.testing.assert_allclose(seen, wanted, rtol=rtol, atol=atol, equal_nan=False, err_msg=msg)


def value(kernel: Kernel, x: np.ndarray, z: np.ndarray) -> float:
    """k(x, z) for two points, as the textbook writes it."""
    match kernel:
        case k.Gaussian():
            return math.exp(-(distance(kernel, x, z) ** 2) / 2)
        case k.Matern12():
            return math.exp(-distance(kernel, x, z))
        case k.Laplacian() | k.Separable():
            p, q = exponents(kernel)
            return math.exp(-(sum(a**p for a in apart(kernel, x, z)) ** (q / p)))
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


def apart(kernel: Any, x: np.ndarray, z: np.ndarray) -> list[float]:
    """|x − z|/ℓ, input by input."""
    lengths = np.ravel(kernel.length_scale).tolist()
    lengths = lengths * len(x) if len(lengths) == 1 else lengths
    return [abs(a - b) / length for a, b, length in zip(x.tolist(), z.tolist(), lengths, strict=True)]


def distance(kernel: Any, x: np.ndarray, z: np.ndarray) -> float:
    """‖(x − z)/ℓ‖."""
    return math.sqrt(sum(a**2 for a in apart(kernel, x, z)))


def exponents(kernel: Any) -> tuple[float, float]:
    """p and q of a separable kernel."""
    return (kernel.p, kernel.q) if isinstance(kernel, k.Separable) else (1.0, 1.0)


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
        case k.Laplacian() | k.Separable():
            return _separable_rounding(kernel, X, Z, eps)
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
    α in the rational quadratic; that of the Matérn 1/2 is infinite where points meet, there √δ is the bound.
    """
    origin, lengths = Z.mean(0), np.asarray(kernel.length_scale, dtype=float)
    alpha = getattr(kernel, "alpha", 1.0)
    c = {k.Gaussian: 0.5, k.Matern12: 1.0, k.Matern32: 3.0, k.Matern52: 5.0}.get(type(kernel), 0.5 / alpha)
    x2, z2 = (c * (((A - origin) / lengths) ** 2).sum(1) for A in (X, Z))
    delta = 4 * (X.shape[1] + 6) * eps * (x2[:, None] + z2[None, :])
    if isinstance(kernel, k.Matern12):
        r = np.array([[distance(kernel, x, z) for z in Z] for x in X])
        return np.minimum(np.sqrt(delta), delta / np.maximum(r, 1e-300)) + 8 * eps
    slope = {k.Gaussian: 1.0, k.Matern32: 0.5, k.Matern52: 1 / 6}.get(type(kernel), alpha)
    return slope * delta + 8 * (1 + alpha) * eps


def _separable_rounding(kernel: Any, X: np.ndarray, Z: np.ndarray, eps: float) -> np.ndarray:
    """A difference of scaled inputs, measured from the mean of Z, is off by a share of both.

    The exponent e = (Σ aᵖ)^{q/p} is steep where points meet, so it is taken at the differences as they are and changed
    by their error, and the larger change counts twice; exp(−e) passes it on with a slope of 1 at most. The powers and
    the exponential round by themselves, relative to 1 + e, of which (1 + e)exp(−e) ≤ 1 is left.
    """
    p, q = exponents(kernel)
    origin, lengths = Z.mean(0), np.asarray(kernel.length_scale, dtype=float)
    u, w = (np.abs(A - origin) / lengths for A in (X, Z))
    a = np.abs(X[:, None] - Z[None]) / lengths
    off = 4 * eps * (u[:, None] + w[None])

    def exponent(a: np.ndarray) -> np.ndarray:
        return (a**p).sum(-1) ** (q / p)

    up, down = exponent(a + off) - exponent(a), exponent(a) - exponent((a - off).clip(min=0))
    return 2 * np.maximum(up, down) + 16 * (X.shape[1] + 4) * eps


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
    X = np.asarray(X, dtype=float)
    C = np.zeros((len(X), len(X)))
    for i, x in enumerate(X):
        C[i, : i + 1] = [value(kernel, x, z) for z in X[: i + 1]]
    values, vectors = np.linalg.eigh(C)  # reads the lower triangle alone
    root = vectors * np.sqrt(values.clip(min=0))
    return root @ rng.standard_normal((len(C), outputs)) + math.sqrt(noise) * rng.standard_normal((len(C), outputs))


# --- forward selection and boosting -------------------------------------------------------------------
# K is the dense Gram matrix, w the rows' weights, I the chosen rows, a (|I| × p) their weights.


def loss_value(name: str, Y: torch.Tensor, F: torch.Tensor) -> torch.Tensor:
    """V(y, f) of every row, summed over outputs, as section 3 of the papers writes it."""
    match name:
        case "squared":
            return ((Y - F) ** 2 / 2).sum(1)
        case "logistic":
            return torch.log1p(torch.exp(-Y * F)).sum(1)
        case "squared-hinge":
            return (torch.relu(1 - Y * F) ** 2).sum(1)
        case "softmax":
            return torch.log(torch.exp(F).sum(1)) - F[Y > 0]
    raise ValueError(name)


def objective(K: Any, I: Any, a: Any, Y: Any, w: Any, lam: float, loss: str = "squared") -> float:
    """Σ w V(y, f) + λ/2 ‖f‖² of f = Σ_i a_i k(x_i, ·)."""
    K, a, Y, w = (torch.as_tensor(np.asarray(t, dtype=float)) for t in (K, a, Y, w))
    penalty = lam / 2 * (a * (K[np.ix_(I, I)] @ a)).sum()
    return float((w * loss_value(loss, Y, K[:, I] @ a)).sum() + penalty)


def ridge(K: np.ndarray, I: Any, Y: np.ndarray, w: np.ndarray, lam: float) -> np.ndarray:
    """The weights of least squares with λaᵀQa, by the normal equations in their augmented form.

    ‖√W(y − K_I a)‖² + λ‖L_Iᵀa‖², with K = LLᵀ, is one least-squares problem without squared condition.
    """
    A, b = augmented(K, Y, w, lam)
    return np.linalg.lstsq(A[:, I], b, rcond=None)[0]


def augmented(K: np.ndarray, Y: np.ndarray, w: np.ndarray, lam: float) -> tuple[np.ndarray, np.ndarray]:
    """Columns whose inner products are k_iᵀWk_j + λk_ij, and targets: the penalty as further rows."""
    values, vectors = np.linalg.eigh(K)
    root = (vectors * np.sqrt(values.clip(min=0))).T
    A = np.vstack([np.sqrt(w)[:, None] * K, math.sqrt(lam) * root])
    return A, np.vstack([np.sqrt(w)[:, None] * Y, np.zeros((len(root), Y.shape[1]))])


def best_weights(K: np.ndarray, I: Any, Y: np.ndarray, w: np.ndarray, lam: float, loss: str) -> np.ndarray:
    """The minimiser of the objective over the weights of I: Newton's method with automatic derivatives."""
    K_I, Q = torch.as_tensor(K[:, I]), torch.as_tensor(K[np.ix_(I, I)])
    targets, weight = torch.as_tensor(Y), torch.as_tensor(w)
    shape = (len(I), Y.shape[1])

    def value(a: torch.Tensor) -> torch.Tensor:
        A = a.reshape(shape)
        return (weight * loss_value(loss, targets, K_I @ A)).sum() + lam / 2 * (A * (Q @ A)).sum()

    a = torch.zeros(shape[0] * shape[1], dtype=torch.float64)
    for _ in range(100):
        at = a.clone().requires_grad_()
        (slope,) = torch.autograd.grad(value(at), at)
        bend = torch.autograd.functional.hessian(value, a)
        step = -torch.linalg.solve(bend + 1e-12 * torch.eye(len(a), dtype=a.dtype), slope)
        length = 1.0
        while value(a + length * step) > value(a) and length > 1e-8:
            length /= 2
        a = a + length * step
        if -float(slope @ step) <= 1e-20 * abs(float(value(a))):  # what the step promised
            break
    return a.reshape(shape).numpy()


def line_gain(K: np.ndarray, I: Any, a: np.ndarray, j: int, Y: np.ndarray, w: np.ndarray, lam: float) -> float:
    """How far the squared objective falls along k(x_j, ·), each output with its own step: three points a parabola."""
    J, gain = [*I, j], 0.0
    for o in range(Y.shape[1]):

        def at(t: float, o: int = o) -> float:
            return objective(K, J, np.append(a[:, o], t)[:, None], Y[:, o : o + 1], w, lam)

        here, up, down = at(0.0), at(1.0), at(-1.0)
        slope, bend = (up - down) / 2, up + down - 2 * here
        gain += slope**2 / (2 * bend)
    return gain


def scores(
    name: str,
    K: np.ndarray,
    Y: np.ndarray,
    w: np.ndarray,
    lam: float,
    noise: float,
    I: Any,
    a: np.ndarray,
    gram: bool = False,
) -> np.ndarray:
    """The table of criteria: a score for every row. With `gram` the columns are those of K + σ²I and λ is zero."""
    n, I = len(K), list(I)
    columns = K + noise * np.eye(n) if gram else K
    lam = 0.0 if gram else lam
    f = columns[:, I] @ a
    r = Y - f
    data_slope = columns.T @ (w[:, None] * r)
    slope = data_slope - lam * f
    curvature = np.array([w @ columns[:, j] ** 2 for j in range(n)])
    mp = (slope**2).sum(1) / (2 * (lam * np.diag(K) + curvature))
    inverse = np.linalg.inv(K[np.ix_(I, I)]) if I else np.zeros((0, 0))
    delta = np.array([K[j, j] - K[j, I] @ inverse @ K[I, j] for j in range(n)])
    match name:
        case "max-res" | "largest-residuals":
            return (r**2).sum(1)
        case "mp":
            return mp
        case "boost":
            return (slope**2).sum(1) / (2 * np.diag(K))
        case "one-dimensional":
            return (data_slope**2).sum(1) / curvature
        case "ald":
            return delta
        case "ran":
            return 0.5 * delta * scores("ormp", K, Y, w, lam, noise, I, a, gram)
        case "info-gain":
            C = columns[:, I]
            hat = C @ np.linalg.solve(C.T @ (w[:, None] * C) + lam * K[np.ix_(I, I)], C.T) if I else np.zeros((n, n))
            return np.array(
                [
                    np.mean([information_gain(delta[j], noise / w[j], w[j] * hat[j, j], one) for one in r[j]])
                    for j in range(n)
                ]
            )
        case "ormp":
            A, b = augmented(K, Y, w, lam)
            if gram:
                A, b = np.sqrt(w)[:, None] * columns, np.sqrt(w)[:, None] * Y
            return order_recursive(A, b, I)
    raise ValueError(name)


def order_recursive(K: np.ndarray, Y: np.ndarray, I: Any) -> np.ndarray:
    """Greedy02 eq. 1 to 4: all columns are re-orthogonalised and normalised after each choice; |k̃ᵀr|² at the end."""
    columns, r = K / np.linalg.norm(K, axis=0), Y.copy()
    for i in I:
        q = columns[:, i].copy()
        r = r - np.outer(q, q @ r)
        columns = columns - np.outer(q, q @ columns)
        columns[:, i] = 0.0
        norms = np.linalg.norm(columns, axis=0)
        columns = columns / np.where(norms > 0, norms, 1.0)
    return ((columns.T @ r) ** 2).sum(1)


def information_gain(delta: float, noise: float, q: float, r: float) -> float:
    """KL divergence of the posterior after x_j is included from the one before, both over (projection, rest of f).

    Before: the projection on the chosen vectors has variance σ²q, the rest δ, and the target lies r above the mean.
    After: the target's factor N(y; projection, σ²) is replaced by N(y; projection + rest, σ²).
    """
    if delta <= 1e-300:
        return 0.0
    one, both = np.array([1.0, 0.0]), np.array([1.0, 1.0])
    before = np.diag([noise * max(q, 1e-12), delta])
    precision = np.linalg.inv(before) + (np.outer(both, both) - np.outer(one, one)) / noise
    after = np.linalg.inv(precision)
    shift = after @ (both - one) * r / noise
    ratio = np.linalg.solve(before, after)
    return 0.5 * (np.trace(ratio) - 2 + shift @ np.linalg.solve(before, shift) - math.log(np.linalg.det(ratio)))


def select(name: str, K: np.ndarray, R: np.ndarray, lam: float, size: int, start: Any = ()) -> list[int]:
    """Forward selection on a small matrix K + λI, refitted by least squares after every choice."""
    I = list(start)
    C, w = K + lam * np.eye(len(K)), np.ones(len(K))
    while len(I) < size:
        if name == "info-gain":  # the sparse posterior has its penalty in the RKHS
            score = scores(name, K, R, w, lam, lam, I, ridge(K, I, R, w, lam))
        else:
            a = np.linalg.lstsq(C[:, I], R, rcond=None)[0]
            score = scores(name, K, R, w, 0.0, lam, I, a, gram=True)
        score[I] = -np.inf
        I.append(int(score.argmax()))
    return I


def minimal_residual(K: np.ndarray, y: np.ndarray, size: int, exchange: bool) -> list[tuple[list[int], np.ndarray]]:
    """Greedy02 Algorithm 2, with Algorithm 1 where asked for: chosen rows and all weights after every step."""
    alpha, r, I, path = np.zeros(len(K)), y.copy(), [], []
    for _ in range(size):
        I = [*I, _largest(r, I)]  # steps 2, 3
        d = np.zeros(len(K))
        d[I] = r[I]  # step 4
        q = K @ d  # step 5
        beta = (r @ q) / (q @ q)  # step 6
        r, alpha = r - beta * q, alpha + beta * d  # steps 7, 8
        if exchange and (swap := _exchange(K, r, alpha, I)) is not None:  # step 9
            s, l, gamma = swap
            r = r + alpha[s] * K[:, s] - gamma * K[:, l]
            alpha[s], alpha[l] = 0.0, gamma
            I = [i for i in I if i != s] + [l]
        path.append((I, alpha.copy()))
    return path


def qr_with_exchange(K: np.ndarray, y: np.ndarray, size: int) -> list[tuple[list[int], np.ndarray]]:
    """Greedy02 eq. 5 to 9 with Algorithm 3: least squares on the chosen columns, before and after the swap."""
    I: list[int] = []
    r, path = y.copy(), []
    for _ in range(size):
        I = [*I, _largest(r, I)]
        alpha = _least_squares(K, y, I)
        r = y - K @ alpha
        if (swap := _exchange(K, r, alpha, I)) is not None:
            s, l, _ = swap
            I = [i for i in I if i != s] + [l]
            alpha = _least_squares(K, y, I)
            r = y - K @ alpha
        path.append((I, alpha))
    return path


def _exchange(K: np.ndarray, r: np.ndarray, alpha: np.ndarray, I: list[int]) -> tuple[int, int, float] | None:
    """Greedy02 Algorithm 1: what leaves, what enters and its weight, if the residual norm falls (not for |I| = 1)."""
    s, l = min(I, key=lambda i: abs(r[i])), _largest(r, I)
    freed = r + alpha[s] * K[:, s]
    gamma = (freed @ K[:, l]) / (K[:, l] @ K[:, l])
    falls = np.linalg.norm(freed - gamma * K[:, l]) < np.linalg.norm(r)
    return (s, l, float(gamma)) if falls and len(I) > 1 else None


def _largest(r: np.ndarray, I: list[int]) -> int:
    return max((j for j in range(len(r)) if j not in I), key=lambda j: abs(r[j]))


def _least_squares(K: np.ndarray, y: np.ndarray, I: list[int]) -> np.ndarray:
    alpha = np.zeros(len(K))
    alpha[I] = np.linalg.lstsq(K[:, I], y, rcond=None)[0]
    return alpha


def size_cost(criterion: str, r2: float, l: int, N: float) -> float:
    """MDL and AIC, Greedy02 eq. 10 and 11."""
    if criterion == "mdl":
        return N / 2 * math.log(r2) + l / 2 * math.log(N)
    return N / 2 * math.log(r2) + l / 2 * (1 + l / N) / (1 - (l + 2) / N)


def prune(K: np.ndarray, I: list[int], Y: np.ndarray, criterion: str) -> list[int]:
    """Backward elimination by refitting without each vector in turn, least squares on the columns of K."""

    def r2(J: list[int]) -> float:
        return float(((Y - K[:, J] @ np.linalg.lstsq(K[:, J], Y, rcond=None)[0]) ** 2).sum())

    while len(I) > 1:
        shorter = min(([i for i in I if i != j] for j in I), key=r2)
        if size_cost(criterion, r2(shorter), len(shorter), len(K)) > size_cost(criterion, r2(I), len(I), len(K)):
            break
        I = shorter
    return I
