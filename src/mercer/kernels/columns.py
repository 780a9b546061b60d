"""Tiles of radial kernels: rows and basis vectors prepared once, one product and one pass a tile; gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mercer.kernels.base import Columns

if TYPE_CHECKING:
    from mercer.kernels.radial import Radial


@dataclass(frozen=True)
class RadialColumns:
    """variance · radial + bias, bound to basis vectors: ``[x, |x|², 1] @ [2z, −1, −|z|²]ᵀ = −|x − z|²``."""

    kernel: Radial
    shift: Tensor
    scale: Tensor
    right: Tensor
    variance: Any = 1.0
    bias: Any = 0.0

    def __call__(self, X: Tensor) -> Tensor:
        return self.tile(self.prepare(X)[0])

    def tile(self, left: Tensor) -> Tensor:
        """The tile of prepared rows."""
        return self._tile(left, self._vanishes(left[:, -2:-1]))

    def rebound(self, Z: Tensor) -> RadialColumns:
        """The same for other basis vectors: rows prepared for one serve the other."""
        z = (Z - self.shift) * self.scale
        norms = z.square().sum(1, keepdim=True)
        return replace(self, right=torch.cat([2 * z, -torch.ones_like(norms), -norms], 1).T.contiguous())

    def prepare(self, X: Tensor) -> tuple[Tensor, Columns]:
        """Rows of `X`, centred, scaled, augmented by squared norm and one; and what makes tiles of them."""
        x = (X - self.shift) * self.scale
        norms = x.square().sum(1, keepdim=True)
        left = torch.cat([x, norms, torch.ones_like(norms)], 1)
        return left, partial(self._tile, vanishing=self._vanishes(norms))

    def _tile(self, left: Tensor, vanishing: bool) -> Tensor:
        parts = left, self.right, self.variance, self.bias
        traced = torch.is_grad_enabled() and any(isinstance(one, Tensor) and one.requires_grad for one in parts)
        if traced and self.kernel.has_slope:
            numbers = [_number_like(one, left) for one in parts[2:]]
            tile: Tensor = _TracedTile.apply(left, self.right, *numbers, self.kernel, vanishing)
            return tile
        t = left @ self.right
        if vanishing:
            # neither a denormal number, which an exponential takes fifty times as long to make, nor its square
            t.clamp_(self.kernel.deepest(t.dtype), 0.0)  # rounding of large norms may leave it far above zero
        tile = self.kernel.profile(t)
        if vanishing:
            torch.threshold_(tile, torch.finfo(tile.dtype).tiny ** 0.5, 0.0)
        if isinstance(self.variance, Tensor) or tile.requires_grad:
            return torch.addcmul(_number_like(self.bias, tile), tile, _number_like(self.variance, tile))
        if self.variance != 1.0:
            tile.mul_(self.variance)
        return tile.add_(self.bias) if isinstance(self.bias, Tensor) or self.bias else tile

    def _vanishes(self, norms: Tensor) -> bool:
        """Whether values so small may occur that they or their squares are denormal: CPUs then crawl.

        The largest distance is at most the sum of the largest norms; tiles whose values all stay above are
        spared the pass. Where a tile is traced without a slope, autograd needs it as it is.
        """
        traced = norms.requires_grad or self.right.requires_grad
        if norms.device.type != "cpu" or (traced and not self.kernel.has_slope) or not norms.numel():
            return False
        with torch.no_grad():
            reach = norms.max().sqrt() + self.right[-1].min().neg().clamp(min=0).sqrt()
            return bool(self.kernel.profile(-reach.square()[None]) < torch.finfo(norms.dtype).tiny ** 0.5)


def _number_like(value: Any, tile: Tensor) -> Tensor:
    """A number as a tensor beside the tile; filled in there, since nothing may be copied into a recorded graph."""
    if isinstance(value, Tensor):
        return value.to(tile)
    return torch.full((), value, dtype=tile.dtype, device=tile.device)


class _TracedTile(torch.autograd.Function):
    """variance · p(left @ right) + bias as one step of autograd: its own chain of steps takes three times as long."""

    @staticmethod
    def forward(
        ctx: Any, left: Tensor, right: Tensor, variance: Tensor, bias: Tensor, kernel: Radial, vanishing: bool
    ) -> Tensor:
        t = left @ right
        if vanishing:
            t.clamp_(kernel.deepest(t.dtype), 0.0)
        value, slope = kernel.profile_and_slope(t)
        if vanishing:
            torch.threshold_(value, torch.finfo(value.dtype).tiny ** 0.5, 0.0)
        ctx.save_for_backward(left, right, variance, value, slope)
        return torch.addcmul(bias, value, variance)

    @staticmethod
    def backward(ctx: Any, weight: Tensor) -> tuple[Tensor | None, ...]:
        left, right, variance, value, slope = ctx.saved_tensors
        needed = ctx.needs_input_grad
        by_t = weight * slope if needed[0] or needed[1] else None
        by_left = (by_t @ right.T).mul_(variance) if needed[0] and by_t is not None else None
        by_right = (left.T @ by_t).mul_(variance) if needed[1] and by_t is not None else None
        by_variance = (weight.reshape(-1) @ value.reshape(-1)).reshape(variance.shape) if needed[2] else None
        return by_left, by_right, by_variance, weight.sum() if needed[3] else None, None, None
