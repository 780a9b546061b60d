"""Tiles of radial kernels: rows and basis vectors prepared once, one product and one pass a tile; gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, final

import torch
from torch import Tensor

from mercer.codegen.cpu import FIRST, TILE, thread_buffer
from mercer.codegen.forms import FEW_INPUTS, ClosedForm, FusedForm
from mercer.kernels.stationary import StationaryColumns, number_like


class Profile(Protocol):
    """What a tile must know of a radial kernel (`mercer.kernels.radial.Radial` says what each means)."""

    short_name: Any

    @property
    def log_base_scale(self) -> float: ...
    def profile(self, t: Tensor) -> Tensor: ...
    def profile_and_slope(self, t: Tensor) -> tuple[Tensor, Tensor]: ...
    def shape(self) -> tuple[Any, ...]: ...
    def underflow_threshold(self, dtype: torch.dtype) -> float: ...
    def closed_form(self) -> ClosedForm | None: ...


@final
@dataclass(frozen=True, kw_only=True)
class RadialColumns(StationaryColumns):
    """variance · radial + bias, bound to basis vectors: ``[x, |x|², 1] @ [2z, −1, −|z|²]ᵀ = −|x − z|²``."""

    kernel: Profile

    def left(self, X: Tensor) -> Tensor:
        """Rows centred, scaled, augmented by squared norm and one."""
        x = (X - self.shift) * self.scale
        norms = x.square().sum(1, keepdim=True)
        return torch.cat([x, norms, torch.ones_like(norms)], 1)

    def with_basis(self, Z: Tensor) -> RadialColumns:
        z = (Z - self.shift) * self.scale
        norms = z.square().sum(1, keepdim=True)
        return replace(self, right=torch.cat([2 * z, -torch.ones_like(norms), -norms], 1).T.contiguous())

    def tile(self, left: Tensor, vanishing: bool) -> Tensor:
        if torch.is_grad_enabled():
            if any(_traced(one) for one in self.kernel.shape()):  # a slope in t is not all: autograd goes its own way
                return self.finished(self.kernel.profile(left @ self.right), vanishing=False)
            if any(_traced(one) for one in (left, self.right, self.variance, self.bias)):
                numbers = [number_like(one, left) for one in (self.variance, self.bias)]
                apply: Any = _TracedTile.apply  # torch gives it no types
                tile: Tensor = apply(left, self.right, *numbers, self.kernel, vanishing)
                return tile
        return self._plain_tile(left, vanishing, None)

    def temporary_tile_of(self, left: Tensor, vanishing: bool) -> Tensor:
        if torch.is_grad_enabled() and any(
            map(_traced, (left, self.right, self.variance, self.bias, *self.kernel.shape()))
        ):
            return self.tile(left, vanishing)
        return self._plain_tile(left, vanishing, thread_buffer(left, TILE, (left.shape[0], self.right.shape[1])))

    def _plain_tile(self, left: Tensor, vanishing: bool, out: Tensor | None) -> Tensor:
        t = _distances(left, self.right, self.kernel, vanishing, out)
        return self.finished(self.kernel.profile(t), vanishing)

    def float32_tile(self, X: Tensor) -> Tensor:
        # differences of large norms lose digits, profiles of what is left do not
        t = (self.left(X) @ self.right).float().clamp_(self.kernel.underflow_threshold(torch.float32), 0.0)
        return self.finished(self.kernel.profile(t), vanishing=True)

    def gradients(self, left: Tensor, W: Tensor, vanishing: bool) -> Tensor:
        with torch.no_grad():
            _, slope = self.kernel.profile_and_slope(_distances(left, self.right, self.kernel, vanishing))
            u, w = left[:, :-2], 0.5 * self.right[:-2].T
            return radial_gradients(u, w, self.scale, W, lambda V: slope @ V) * self.variance

    def longest(self, left: Tensor) -> Tensor:
        return left[:, -2].max().sqrt()

    def lowest(self, longest: Tensor) -> Tensor:
        """At the sum of the largest norms, which no distance exceeds."""
        reach = longest + self.right[-1].min().neg().clamp(min=0).sqrt()
        return self.kernel.profile(-reach.square()[None])

    def closed_form(self) -> ClosedForm | None:
        form = self.kernel.closed_form()
        return form if form is None else replace(form, differences=_few(self.right))

    def fused_form(self) -> FusedForm | None:
        formula = self.kernel.closed_form()
        exponent = [float(value) for value in self.kernel.shape()] or [1.0]
        return FusedForm(
            self.kernel.short_name if formula is None else "closed",
            self.shift,
            self.scale / self.kernel.log_base_scale,
            exponent=exponent[0],
            variance=float(self.variance),
            bias=float(self.bias),
            formula=formula,
        )


def radial_gradients(u: Tensor, w: Tensor, scale: Tensor, W: Tensor, product: Callable[[Tensor], Tensor]) -> Tensor:
    r"""Gradients of Σ_j p(t_j) W_j at scaled rows `u`, n × D × p; `product` multiplies by p'(t), rows × basis vectors.

    With :math:`t_j = -\|u - w_j\|^2`, the gradient in x is
    :math:`2 s \circ (\sum_j p'(t_j) w_j W_j - u \sum_j p'(t_j) W_j)`: one product with 1 + D columns for each of W.
    """
    moments = torch.cat([W[:, None], w[:, :, None] * W[:, None]], 1)
    sums = product(moments.flatten(1)).unflatten(1, tuple(moments.shape[1:]))
    return 2 * scale.expand(u.shape[1])[:, None] * (sums[:, 1:] - u[:, :, None] * sums[:, :1])


def _traced(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _distances(left: Tensor, right: Tensor, kernel: Profile, vanishing: bool, out: Tensor | None = None) -> Tensor:
    """The negative scaled squared distances t, no farther down than a vanishing profile needs."""
    if left.dtype == torch.float32 and _few(right):
        t = _squared_differences(left[:, :-2], 0.5 * right[:-2], out)
    else:
        t = torch.mm(left, right, out=out)
    # rounding of large norms may leave it far above zero
    return t.clamp_(kernel.underflow_threshold(t.dtype), 0.0) if vanishing else t


def _squared_differences(u: Tensor, w: Tensor, out: Tensor | None) -> Tensor:
    """−|u − w|², one input after the other; `w` is inputs × basis vectors."""
    shape = u.shape[0], w.shape[1]
    t = (u.new_empty(shape) if out is None else out).zero_()
    apart = thread_buffer(u, FIRST, shape)
    for k, column in enumerate(w):
        apart = torch.sub(u[:, k, None], column, out=apart)
        t.addcmul_(apart, apart, value=-1.0)
    return t


def _few(right: Tensor) -> bool:
    """Whether basis vectors, augmented by two rows, have so few inputs that their differences are squared."""
    return len(right) - 2 <= FEW_INPUTS


class _TracedTile(torch.autograd.Function):
    """variance · p(left @ right) + bias as one step of autograd: its own chain of steps takes three times as long."""

    @staticmethod
    def forward(
        ctx: Any, left: Tensor, right: Tensor, variance: Tensor, bias: Tensor, kernel: Profile, vanishing: bool
    ) -> Tensor:
        value, slope = kernel.profile_and_slope(_distances(left, right, kernel, vanishing))
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
