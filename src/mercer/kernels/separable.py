r"""Kernels of the sum of powers of absolute differences, :math:`\exp(-(\sum_k |x_k - z_k|^p/\ell_k^p)^{q/p})`.

Unlike radial kernels they depend on the axes, which suits tables, whose columns have separate meanings. A tile is
torch's `cdist` (columns of two values by a product, `CityBlock`) and one exponential, so nothing of size n × m × D is
made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from mercer.codegen.compiled import city_block
from mercer.codegen.cpu import LOG2E, ClosedForm, FusedForm
from mercer.kernels.stationary import Stationary, StationaryColumns
from mercer.parts import as_float, component, require

#: Number of two-valued columns from which on the matrix product pays.
ENOUGH = 4
#: Entries of a block of powers, which stays in a CPU's cache.
CACHED = 2**15


@final
@component
class Laplacian(Stationary):
    r"""Laplacian kernel :math:`\exp(-\sum_k |x_k - z_k| / \ell_k)`; one :math:`\ell` or one per input (ARD).

    As scikit-learn's `laplacian_kernel` with gamma = 1/ℓ. In the Euclidean distance it is `mercer.kernels.Matern12`.

    >>> import torch
    >>> from mercer.kernels import Laplacian
    >>> Laplacian(2.0)(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 1.0]])).item()
    0.135...
    """

    short_name = "laplacian"
    smoothness = 0.5
    length_scale: float | Sequence[float] = 1.0

    @classmethod
    def typical_length(cls, n_inputs: int) -> float:
        return float(n_inputs)

    def columns(self, Z: Tensor) -> SeparableColumns:
        return _bound(self, Z, 1.0, 1.0)


@final
@component
class Separable(Stationary):
    r"""The family :math:`\exp(-\|(x - z)/\ell\|_p^q)` with 0 < q ≤ p ≤ 2, where it is a kernel.

    p = q = 1 is `Laplacian`; p = 2 is `Matern12` for q = 1 and Gaussian in shape for q = 2; p = q is a product over the
    inputs. Small q makes rough functions.

    >>> import torch
    >>> from mercer.kernels import Separable
    >>> Separable(p=1.0, q=0.5)(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 1.0]])).item()
    0.135...
    """

    short_name = "separable"
    length_scale: float | Sequence[float] = 1.0
    p: float = 1.0
    q: float = 1.0

    @classmethod
    def typical_length(cls, n_inputs: int) -> float:
        return float(n_inputs)

    def check(self) -> None:
        p, q = as_float(self.p), as_float(self.q)
        require(0 < p <= 2, "p", "a number above 0 and at most 2", self.p)
        require(0 < q <= p, "q", f"a number above 0 and at most p={p:g}", self.q)
        super().check()

    def columns(self, Z: Tensor) -> SeparableColumns:
        self.check()
        return _bound(self, Z, float(self.p), float(self.q))


def _bound(kernel: Stationary, Z: Tensor, p: float, q: float) -> SeparableColumns:
    """The kernel bound to Z, with inputs scaled so that the exponential is a power of two, faster on some CPUs."""
    scale = LOG2E ** (1 / q) * kernel.inverse_lengths(Z)
    return SeparableColumns(p=p, q=q, shift=Z.detach().mean(0), scale=scale, right=Z).bind(Z)


@final
@dataclass(frozen=True, kw_only=True)
class SeparableColumns(StationaryColumns):
    """variance · 2^(−‖u − w‖_p^q) + bias, bound to basis vectors; u and w are the scaled inputs."""

    p: float
    q: float
    block: CityBlock | None = None

    def scaled(self, X: Tensor) -> Tensor:
        return (X - self.shift) * self.scale

    def bind(self, Z: Tensor) -> SeparableColumns:
        right = self.scaled(Z)
        return replace(self, right=right, block=CityBlock.of(right) if self.p == 1 else None)

    def tile(self, left: Tensor, temporary: bool) -> Tensor:
        d, q = self._powers(left)
        underflows = self.underflows and not d.requires_grad
        return self.finished(_power_of_two(d, q, underflows), underflows)

    def gradients(self, left: Tensor, W: Tensor) -> Tensor:
        """Input by input: ∂k/∂u_k = −log 2 · k · q d^{q−p} · |u_k − w_k|^{p−1} sign(u_k − w_k), zero where d is."""
        with torch.no_grad():
            d, q = self._powers(left)
            outer = torch.where(d > 0, d, 1.0).pow_(self.q - self.p) if self.q != self.p else None
            k = _power_of_two(d, q, self.underflows).mul_(-math.log(2) * self.q)
            k = k if outer is None else k.mul_(outer)
            out, scratch = left.new_empty(*left.shape, W.shape[1]), torch.empty_like(k)
            for j in range(left.shape[1]):
                torch.sub(left[:, j, None], self.right[:, j], out=scratch)
                out[:, j] = _signed_power(scratch, self.p - 1).mul_(k) @ W
            return out * (self.scale.expand(left.shape[1])[:, None] * self.variance)

    def _powers(self, left: Tensor) -> tuple[Tensor, float]:
        """Distances d, or powers of them, and the exponent that they lack: 2^(−d^exponent) is the kernel."""
        rooted = self.p == self.q and self.p not in (1, 2) and 4 * self.p % 1 == 0
        if not rooted or left.requires_grad or self.right.requires_grad:
            return self._distances(left), self.q
        total, right = left.new_zeros(len(left), len(self.right)), self.right.T.contiguous()
        size = max(CACHED // len(self.right), 1) if left.device.type == "cpu" else len(left)
        for rows, part in zip(left.split(size), total.split(size), strict=True):
            for j in range(left.shape[1]):
                part.add_(_power((rows[:, j, None] - right[j]).abs_(), self.p))
        return total, 1.0

    def _distances(self, left: Tensor) -> Tensor:
        if self.block is not None and (found := self.block.distances(left)) is not None:
            return found
        return torch.cdist(left, self.right, self.p, compute_mode="donot_use_mm_for_euclid_dist")

    def largest_norm(self, left: Tensor) -> Tensor:
        return left.abs().sum(1).max()

    def lower_bound(self, max_norm: Tensor) -> Tensor:
        """‖u − w‖_p is at most D^{1/p − 1} times the sum of absolute differences where p < 1, else at most that sum."""
        reach = max_norm + self.right.abs().sum(1).max()
        return torch.exp2(-((reach * self.right.shape[1] ** max(1 / self.p - 1, 0.0)) ** self.q))

    def closed_form(self) -> ClosedForm | None:
        return ClosedForm(base_factor=LOG2E, city_block=True) if self.p == self.q == 1 else None

    def inputs_by_basis(self) -> Tensor:
        return self.right.T

    def fused_form(self) -> FusedForm:
        return FusedForm(
            "separable", self.shift, self.scale, "separable", norm=self.p, exponent=self.q / self.p,
            variance=float(self.variance), bias=float(self.bias),
        )  # fmt: skip


def _power_of_two(d: Tensor, q: float, underflows: bool) -> Tensor:
    """2^(−d^q), overwriting `d` where no gradient is wanted; the gradient is zero where d is and has none."""
    if d.requires_grad:
        return torch.exp2(-d if q == 1 else -torch.where(d > 0, torch.where(d > 0, d, 1.0) ** q, 0.0))
    d = d if q == 1 else d.pow_(q)
    if underflows:  # a little below the root of the smallest normal number
        d.clamp_(max=1 - 0.5 * math.log2(torch.finfo(d.dtype).tiny))
    return d.neg_().exp2_()


def _power(a: Tensor, power: float) -> Tensor:
    """a^power of a ≥ 0; multiples of a quarter by square roots, which are faster than `pow`.

    >>> _power(torch.tensor([0.0, 16.0]), 1.75).tolist()
    [0.0, 128.0]
    """
    whole, quarters = divmod(round(4 * power), 4)
    if 4 * power % 1 or whole > 1 or not quarters:
        return a.pow(power)
    root = a.sqrt()
    part = root if quarters == 2 else root.sqrt()
    part = part.mul_(root) if quarters == 3 else part
    return part.mul_(a) if whole else part


def _signed_power(a: Tensor, power: float) -> Tensor:
    """|a|^power with the sign of a, zero where a is; overwrites `a`."""
    if power == 0:
        return a.sign_()
    if power == 1:
        return a
    if power > 0:
        return _power(a.abs(), power).copysign_(a)
    return torch.where(a != 0, a.abs().pow_(power).copysign_(a), 0.0)


def two_valued(X: Tensor) -> tuple[Tensor, Tensor]:
    """Masks of the columns with at most two values, and the range of each column."""
    low, high = X.amin(0), X.amax(0)
    return (torch.eq(X, low) | torch.eq(X, high)).all(0), (high - low).where(high > low, 1.0)


@dataclass(frozen=True)
class CityBlock:
    """Basis vectors (m × D) prepared for distances from them; `bits` is the right side of the product.

    Indicators of categories take two values, and tables have many of them. If both rows hold one of the two, coded a, b
    = 0 or 1, the difference is s(a + b − 2ab) with s the span. All these columns together are one matrix product, which
    takes a twelfth of the time of torch's `cdist` (0.06 and 0.75 ns a value, ARM Neoverse N1, float32).
    """

    Z: Tensor
    two: Tensor
    low: Tensor
    high: Tensor
    others: Tensor
    bits: Tensor

    @classmethod
    def of(cls, Z: Tensor) -> CityBlock | None:
        """Basis vectors prepared; None if the matrix product does not pay."""
        if Z.device.type != "cpu" or Z.requires_grad or len(Z) < 2:
            return None
        two = two_valued(Z)[0]
        if int(two.sum()) < ENOUGH:
            return None
        low, high = Z[:, two].amin(0), Z[:, two].amax(0)
        b = torch.eq(Z[:, two], high).to(Z)
        bits = torch.cat([b * (-2 * (high - low)), torch.ones_like(b[:, :1]), (b @ (high - low))[:, None]], 1)
        return cls(Z, two, low, high, Z[:, ~two].contiguous(), bits.T.contiguous())

    def distances(self, X: Tensor) -> Tensor | None:
        """Distances from all basis vectors, n × m; None if a row holds a third value."""
        at = X[:, self.two]
        high = torch.eq(at, self.high)
        if X.requires_grad or not bool((high | torch.eq(at, self.low)).all()):
            return None
        a = high.to(X)
        left = torch.cat([a, (a @ (self.high - self.low))[:, None], torch.ones_like(a[:, :1])], 1)
        distance = city_block(X[:, ~self.two], self.others)
        return distance.addmm_(left, self.bits).clamp_(min=0)
