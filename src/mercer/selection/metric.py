"""Which directions of the inputs matter: the gradient metric, and the distances under it.

A model f that has been fitted says by its own gradients along what it varies: M = mean over rows of ∇f ∇fᵀ. Inputs
are mapped by a power of M, the model is fitted again, and so on. Who decides which iterate is good is
`mercer.selection.race`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mercer.codegen.compiled import city_block
from mercer.codegen.cpu import EXP_BASE_FACTOR, fast_exp
from mercer.kernels import Kernel, Radial
from mercer.kernels.city_block import CityBlock, two_valued

#: Squared distances below this share of the largest squared norm count as zero.
SAME = 1e-9
#: Signs that are held at a time: half the time of a column of them at a time for 64 inputs, two thirds for eight.
SIGNS = 200_000
#: Rows whose distances from each other say what is typical.
TYPICAL = 300
#: Length-scales between the two values of a column at most: next to nothing of a kernel is left there (Matérn 3/2 has
#: 0.0003), and what goes beyond costs digits. A row of a rare category, in units of its standard deviation and of a
#: short length-scale, is so long that |u|² + |w|² − 2uᵀw of two such rows is rounding in single precision.
APART = 6.0


def moved(X: Tensor, transform: Tensor) -> Tensor:
    """Inputs ← A x, with A given by its diagonal (D) or as a matrix (D × D)."""
    return X * transform if transform.ndim == 1 else X @ transform.T


def farthest(Z: Tensor, length: float = 1.0) -> Tensor:
    """Factors on columns of `Z` at most, for a kernel of this length-scale: those that leave two values `APART`.

    >>> farthest(torch.tensor([[0.0, 1.0], [3.0, 2.0], [3.0, 4.0]]), 2.0).tolist()
    [4.0, inf]
    """
    two, span = two_valued(Z)
    return (APART * length / span).where(two, torch.inf)


def distances(kernel: Kernel, X: Tensor, Z: Tensor) -> Tensor:
    """The distances that this family takes, for length-scale one: Euclidean for radial kernels, else city-block.

    They are sums of double precision (or of differences, which cancel nothing), kept in single.
    """
    if not isinstance(kernel, Radial):
        return _city_block(X, Z)
    square = _squares(X, Z)
    if X is Z:
        square.fill_diagonal_(0)
    return square.float().sqrt_()


def _squares(X: Tensor, Z: Tensor) -> Tensor:
    shift = Z.mean(0)
    X, Z = X - shift, Z - shift
    norms = Z.square().sum(1)
    square = torch.addmm(norms, X, Z.T, alpha=-2).add_(X.square().sum(1, keepdim=True))
    # equal rows are at distance zero, where rough kernels have no slope: next to it, rounding would make one
    return torch.threshold_(square, SAME * float(norms.max()) if len(norms) else 0.0, 0.0)


def _city_block(X: Tensor, Z: Tensor) -> Tensor:
    """Σ_k |x_k − z_k|."""
    X, Z = X.float(), Z.float()
    block = CityBlock.of(Z)
    found = None if block is None else block.distances(X)
    return city_block(X, Z) if found is None else found


def tile(kernel: Kernel, distance: Tensor, length: float) -> Tensor:
    """The kernel's values at these distances."""
    if isinstance(kernel, Radial):
        return kernel.at_distance(distance, length)
    return fast_exp(distance * (-EXP_BASE_FACTOR / length))


def pulls(kernel: Radial, distance: Tensor, length: float) -> Tensor:
    """g of ∇k(x, z) = g (x − z) at these distances: twice the derivative by the squared distance."""
    scale = kernel.log_base_scale / length
    slope = kernel.profile_and_slope((distance * scale).square_().mul_(-kernel.coefficient))[1]
    return slope.mul_(-2 * kernel.coefficient * scale**2)


def slopes(kernel: Kernel, distance: Tensor, length: float, X: Tensor, Z: Tensor, alpha: Tensor) -> Tensor:
    """∇f at the rows of `X`, n × D × p, for f = Σ_j α_j k(·, z_j); `distance` is that of `X` from `Z`.

    For a radial kernel ∇f(x) = Σ_j α_j g(r_j)(x − z_j): one product with 1 + D columns for each output. For the
    city-block kernel signs take the place of differences; in a column of two values they are differences over a span.
    """
    if isinstance(kernel, Radial):
        pull = pulls(kernel, distance, length)
        return torch.stack([_pulled(pull, X, Z, a) for a in alpha.T], 2)
    K = tile(kernel, distance, length).div_(-length)
    two, span = two_valued(Z)
    out = X.new_empty(len(X), X.shape[1], alpha.shape[1])
    if bool(two.any()):
        out[:, two] = torch.stack([_pulled(K, X[:, two], Z[:, two], a) / span[two] for a in alpha.T], 2)
    if not bool(two.all()):
        out[:, ~two] = _signed(K, X[:, ~two], Z[:, ~two], alpha)
    return out


def _signed(K: Tensor, X: Tensor, Z: Tensor, alpha: Tensor) -> Tensor:
    """Σ_j sign(x_ik − z_jk) K_ij α_jp: few rows at a time, whose signs stay in the cache."""
    columns, out = Z.T.contiguous(), X.new_empty(*X.shape, alpha.shape[1])
    size = max(SIGNS // max(columns.numel(), 1), 1)
    for start in range(0, len(X), size):
        some = slice(start, start + size)
        out[some] = torch.bmm((X[some, :, None] - columns).sign_(), K[some, :, None] * alpha)
    return out


def _pulled(G: Tensor, X: Tensor, Z: Tensor, a: Tensor) -> Tensor:
    """Σ_j a_j G_ij (x_i − z_j)."""
    return X * (G @ a[:, None]) - G @ (a[:, None] * Z)


def outer(gradient: Tensor, weight: Tensor, transform: Tensor) -> Tensor:
    """M = mean over rows of ∇f ∇fᵀ with regard to the inputs before the transform, scaled to mean eigenvalue 1."""
    D = gradient.shape[1]
    share = (weight / weight.sum()).to(gradient).sqrt()[:, None, None]
    g = (gradient * share).permute(0, 2, 1).reshape(-1, D)
    g = g * transform if transform.ndim == 1 else g @ transform
    M = g.T @ g
    return M * (D / M.trace().clamp(min=1e-300))


def shared(M: Tensor, groups: Tensor | None) -> Tensor:
    """The diagonal of M, averaged over the columns of each group, as a matrix.

    >>> shared(torch.tensor([[1.0, 0.5], [0.5, 3.0]]), torch.tensor([0, 0])).diagonal().tolist()
    [2.0, 2.0]
    """
    if groups is None:
        return M
    sums = M.new_zeros(int(groups.max()) + 1).index_add_(0, groups, M.diagonal())
    return torch.diag((sums / torch.bincount(groups).clamp(min=1))[groups])


def power_of(M: Tensor, power: float, full: bool) -> Tensor:
    """The transform M^(power/2), of M or of its diagonal, scaled to squares of sum D."""
    if not full:
        diagonal = M.diagonal().clamp(min=0) ** (0.5 * power)
        return diagonal * (len(diagonal) / diagonal.square().sum().clamp(min=1e-300)).sqrt()
    values, vectors = torch.linalg.eigh(M)
    values = values.clamp(min=0) ** (0.5 * power)
    values = values * (len(values) / values.square().sum().clamp(min=1e-300)).sqrt()
    return (vectors * values) @ vectors.T


def typical(distance: Tensor) -> Any:
    """The median distance between different rows, by which length-scales are measured."""
    some = distance[:TYPICAL, :TYPICAL].flatten()
    n_apart = int((some > 0).sum())  # the others are zero, and come first
    return float(some.kthvalue(len(some) - n_apart + (n_apart + 1) // 2).values) if n_apart else 1.0
