"""The gradient metric of a fitted model, and distances under a metric.

The mean outer product of a model's gradients, M = mean over rows of ∇f ∇fᵀ, shows the directions along which f varies.
Inputs are mapped by a power of M and the model is fitted again. Held-out rows decide which iterate is kept
(`mercer.selection.halving`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from mercer.codegen.compiled import city_block
from mercer.codegen.cpu import EXP_BASE_FACTOR, fast_exp
from mercer.kernels import Kernel, Radial
from mercer.kernels.separable import CityBlock, two_valued

#: Squared distances below this share of the largest squared norm count as zero.
SAME = 1e-9
#: Differences or signs computed at a time, so that they stay in the processor's cache.
CACHED_VALUES = 200_000
#: Rows whose median distance is the unit of length-scales.
TYPICAL_ROWS = 300
#: Length-scales between the two values of a binary column at most. Kernels are almost zero there (Matérn 3/2: 0.0003),
#: and rare categories farther apart would lose the digits of |u|² + |w|² − 2uᵀw in single precision.
APART = 6.0


def apply_transform(X: Tensor, transform: Tensor) -> Tensor:
    """Map rows x to A x, with A given by its diagonal (D) or as a matrix (D × D)."""
    return X * transform if transform.ndim == 1 else X @ transform.T


def largest_factors(Z: Tensor, length: float = 1.0) -> Tensor:
    """Largest factor on each column of `Z` for a kernel of this length-scale.

    The factor puts the two values of a binary column `APART` length-scales apart; other columns have no bound.

    >>> largest_factors(torch.tensor([[0.0, 1.0], [3.0, 2.0], [3.0, 4.0]]), 2.0).tolist()
    [4.0, inf]
    """
    two, span = two_valued(Z)
    return (APART * length / span).where(two, torch.inf)


def distances(kernel: Kernel, X: Tensor, Z: Tensor) -> Tensor:
    """Euclidean distances for a radial kernel, else city-block distances, in single precision.

    Squared distances are summed in double precision. City-block distances are sums of differences, which lose nothing.
    """
    if not isinstance(kernel, Radial):
        return _city_block(X, Z)
    square = _squared_distances(X, Z)
    if X is Z:
        square.fill_diagonal_(0)
    return square.float().sqrt_()


def _squared_distances(X: Tensor, Z: Tensor) -> Tensor:
    shift = Z.mean(0)
    X, Z = X - shift, Z - shift
    norms = Z.square().sum(1)
    square = torch.addmm(norms, X, Z.T, alpha=-2).add_(X.square().sum(1, keepdim=True))
    # duplicate rows must be at distance zero: rounding above zero would give rough kernels a gradient there
    return torch.threshold_(square, SAME * float(norms.max()) if len(norms) else 0.0, 0.0)


def _city_block(X: Tensor, Z: Tensor) -> Tensor:
    """Σ_k |x_k − z_k|."""
    X, Z = X.float(), Z.float()
    block = CityBlock.of(Z)
    found = None if block is None else block.distances(X)
    return city_block(X, Z) if found is None else found


def tile(kernel: Kernel, distance: Tensor, length: float) -> Tensor:
    """Kernel values at these distances."""
    if isinstance(kernel, Radial):
        return kernel.at_distance(distance, length)
    return fast_exp(distance * (-EXP_BASE_FACTOR / length))


def radial_slopes(kernel: Radial, distance: Tensor, length: float) -> Tensor:
    """The factor g of ∇k(x, z) = g (x − z): twice the derivative by the squared distance."""
    scale = kernel.log_base_scale / length
    slope = kernel.profile_and_slope((distance * scale).square_().mul_(-kernel.coefficient))[1]
    return slope.mul_(-2 * kernel.coefficient * scale**2)


def gradients(kernel: Kernel, distance: Tensor, length: float, X: Tensor, Z: Tensor, alpha: Tensor) -> Tensor:
    """∇f at the rows of `X`, n × D × p, for f = Σ_j α_j k(·, z_j); `distance` is that of `X` from `Z`.

    For a radial kernel ∇f(x) = Σ_j α_j g(r_j)(x − z_j): one product with 1 + D columns for each output. For the
    city-block kernel signs take the place of differences. In a binary column a sign is a difference over the span.
    """
    if isinstance(kernel, Radial):
        G = radial_slopes(kernel, distance, length)
        return torch.stack([_weighted_differences(G, X, Z, a) for a in alpha.T], 2)
    K = tile(kernel, distance, length).div_(-length)
    two, span = two_valued(Z)
    out = X.new_empty(len(X), X.shape[1], alpha.shape[1])
    if bool(two.any()):
        binary = [_weighted_differences(K, X[:, two], Z[:, two], a) / span[two] for a in alpha.T]
        out[:, two] = torch.stack(binary, 2)
    if not bool(two.all()):
        out[:, ~two] = _weighted_signs(K, X[:, ~two], Z[:, ~two], alpha)
    return out


def _weighted_signs(K: Tensor, X: Tensor, Z: Tensor, alpha: Tensor) -> Tensor:
    """Σ_j sign(x_ik − z_jk) K_ij α_jp, for as many rows at a time as the cache holds."""
    columns, out = Z.T.contiguous(), X.new_empty(*X.shape, alpha.shape[1])
    size = max(CACHED_VALUES // max(columns.numel(), 1), 1)
    for start in range(0, len(X), size):
        block = slice(start, start + size)
        out[block] = torch.bmm((X[block, :, None] - columns).sign_(), K[block, :, None] * alpha)
    return out


def _weighted_differences(G: Tensor, X: Tensor, Z: Tensor, a: Tensor) -> Tensor:
    """Σ_j a_j G_ij (x_i − z_j)."""
    return X * (G @ a[:, None]) - G @ (a[:, None] * Z)


def gradient_outer_product(gradient: Tensor, weight: Tensor, transform: Tensor) -> Tensor:
    """M = mean over rows of ∇f ∇fᵀ by the inputs before the transform, scaled to mean eigenvalue 1."""
    D = gradient.shape[1]
    share = (weight / weight.sum()).to(gradient).sqrt()[:, None, None]
    g = (gradient * share).permute(0, 2, 1).reshape(-1, D)
    g = g * transform if transform.ndim == 1 else g @ transform
    M = g.T @ g
    return M * (D / M.trace().clamp(min=1e-300))


def average_groups(M: Tensor, groups: Tensor | None) -> Tensor:
    """The diagonal matrix of M's diagonal, averaged over each group of columns; M itself without groups.

    >>> average_groups(torch.tensor([[1.0, 0.5], [0.5, 3.0]]), torch.tensor([0, 0])).diagonal().tolist()
    [2.0, 2.0]
    """
    if groups is None:
        return M
    sums = M.new_zeros(int(groups.max()) + 1).index_add_(0, groups, M.diagonal())
    return torch.diag((sums / torch.bincount(groups).clamp(min=1))[groups])


def metric_root(M: Tensor, power: float, full: bool) -> Tensor:
    """The transform M^(power/2), of M or of its diagonal, scaled to a squared Frobenius norm of D."""
    if not full:
        diagonal = M.diagonal().clamp(min=0) ** (0.5 * power)
        return diagonal * (len(diagonal) / diagonal.square().sum().clamp(min=1e-300)).sqrt()
    values, vectors = torch.linalg.eigh(M)
    values = values.clamp(min=0) ** (0.5 * power)
    values = values * (len(values) / values.square().sum().clamp(min=1e-300)).sqrt()
    return (vectors * values) @ vectors.T


def typical_distance(distance: Tensor) -> float:
    """The median distance between different rows, the unit of length-scales."""
    pairs = distance[:TYPICAL_ROWS, :TYPICAL_ROWS].flatten()
    n_apart = int((pairs > 0).sum())  # the other distances are zero, and come first
    return float(pairs.kthvalue(len(pairs) - n_apart + (n_apart + 1) // 2).values) if n_apart else 1.0
