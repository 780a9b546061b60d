"""Radial kernels: functions of the scaled distance between two points.

Each kernel is a profile and a coefficient of the squared distance; most are a `ClosedForm`. The profile receives the
*negative* scaled squared distance, because one matrix product gives it without a further pass over the tile. Distances
are multiplied by `log_base_scale`, so that the exponential is the one this CPU is fastest at (`mercer.codegen.cpu`).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor

from mercer.codegen.cpu import (
    EXP_BASE_FACTOR,
    FEW_INPUTS,
    FIRST,
    SECOND,
    TILE,
    ClosedForm,
    FusedForm,
    cached_rows,
    fast_exp,
    thread_buffer,
)
from mercer.kernels.base import checked_number
from mercer.kernels.stationary import Stationary, StationaryColumns, number_like
from mercer.parts import component


class Radial(Stationary):
    r"""A kernel :math:`k(x, z) = p(-u^2 c \|(x - z)/\ell\|^2)` with profile p, coefficient c, base scale u."""

    @property
    def log_base_scale(self) -> float:
        """The factor u on distances that suits the profile's exponential."""
        return 1.0

    @property
    def coefficient(self) -> Any:
        """The constant c that multiplies the squared scaled distance."""
        return 1.0

    @abstractmethod
    def profile(self, t: Tensor) -> Tensor:
        """The kernel's value where t = −u²c‖(x − z)/ℓ‖²; may overwrite `t`."""

    def profile_and_slope(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """The value and its derivative in t, zero where two points coincide and there is none; may overwrite `t`."""
        with torch.enable_grad():
            at = t.detach().clone().requires_grad_()
            value = self.profile(at.clone())
            (slope,) = torch.autograd.grad(value.sum(), at)
        return value.detach(), slope

    def shape(self) -> tuple[Any, ...]:
        """Parameters of the profile itself, beside t: gradients reach them by autograd through `profile`."""
        return ()

    def underflow_threshold(self, dtype: torch.dtype) -> float:
        """A t below which the kernel's value is less than the root of the smallest normal number.

        This default is for kernels that fall as exp(−√−t) times a quadratic.
        """
        return -((self.log_base_scale * (12 - 0.5 * math.log(torch.finfo(dtype).tiny))) ** 2)

    def closed_form(self) -> ClosedForm | None:
        """The kernel as data for code generation; None if it is no polynomial times an exponential."""
        return None

    def at_distance(self, distance: Tensor, length: float) -> Tensor:
        """The kernel's value at (x − z) of these norms, for one length-scale."""
        return self.profile((distance * (self.log_base_scale / length)).square_().mul_(-self.coefficient))

    def columns(self, Z: Tensor) -> RadialColumns:
        scale = self.log_base_scale * self.coefficient**0.5 * self.inverse_lengths(Z)
        shift = Z.detach().mean(0)  # centring keeps |x|² small, hence −|x − z|² exact
        return RadialColumns(kernel=self, shift=shift, scale=scale, right=Z).bind(Z)


class ClosedFormRadial(Radial):
    """A radial kernel that is given by its formula alone."""

    @property
    @abstractmethod
    def formula(self) -> ClosedForm:
        """The kernel as data; concrete classes set it."""

    @property
    def log_base_scale(self) -> float:
        return self.formula.distance_scale

    @property
    def coefficient(self) -> float:
        return self.formula.coefficient

    def closed_form(self) -> ClosedForm:
        return self.formula

    def profile(self, t: Tensor) -> Tensor:
        return _form_values(self.formula, t)[0]

    def profile_and_slope(self, t: Tensor) -> tuple[Tensor, Tensor]:
        value, slope = _form_values(self.formula, t, slope=True)
        assert slope is not None
        return value, slope

    def underflow_threshold(self, dtype: torch.dtype) -> float:
        if self.formula.root:
            return super().underflow_threshold(dtype)
        return EXP_BASE_FACTOR * (0.5 * math.log(torch.finfo(dtype).tiny) - 0.5)

    def at_distance(self, distance: Tensor, length: float) -> Tensor:
        if not self.formula.root:
            return super().at_distance(distance, length)
        form = self.formula
        b = distance * (-form.distance_scale * form.coefficient**0.5 / length)
        for part in b.view(-1).split(cached_rows(1, b)):
            _values_of_root(form, part)  # in the memory of b
        return b


@final
@component
class Gaussian(ClosedFormRadial):
    r"""Gaussian kernel :math:`\exp(-\|x - z\|^2 / 2\ell^2)`; one :math:`\ell` or one per input (ARD).

    >>> import torch
    >>> from mercer.kernels import Gaussian
    >>> Gaussian(length_scale=2.0)(torch.tensor([[0.0]]), torch.tensor([[2.0]])).item()
    0.606...
    """

    short_name = "gaussian"
    smoothness = math.inf
    aliases = ("rbf",)
    formula = ClosedForm(coefficient=0.5)
    length_scale: float | Sequence[float] = 1.0


@final
@component
class Matern12(ClosedFormRadial):
    r"""Matérn kernel of smoothness 1/2, :math:`\exp(-a)` with :math:`a = \|x - z\|/\ell`, the exponential kernel.

    `mercer.kernels.Laplacian` takes the sum of absolute differences instead of the Euclidean distance.

    >>> import torch
    >>> from mercer.kernels import Matern12
    >>> Matern12()(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0]])).item()
    0.0067...
    """

    short_name = "matern12"
    smoothness = 0.5
    formula = ClosedForm(root=True)
    length_scale: float | Sequence[float] = 1.0


@final
@component
class Matern32(ClosedFormRadial):
    r"""Matérn kernel of smoothness 3/2, :math:`(1 + a)\exp(-a)` with :math:`a = \sqrt3\|x - z\|/\ell`.

    >>> import torch
    >>> from mercer.kernels import Matern32
    >>> Matern32()(torch.zeros(1, 2), torch.zeros(1, 2)).item()
    1.0
    """

    short_name = "matern32"
    smoothness = 1.5
    formula = ClosedForm(root=True, polynomial=(1, 1), coefficient=3.0)
    length_scale: float | Sequence[float] = 1.0


@final
@component
class Matern52(ClosedFormRadial):
    r"""Matérn kernel of smoothness 5/2, :math:`(1 + a + a^2/3)\exp(-a)`, :math:`a = \sqrt5\|x - z\|/\ell`.

    >>> import torch
    >>> from mercer.kernels import Matern52
    >>> Matern52(length_scale=[1.0, 9.0])(torch.zeros(3, 2), torch.ones(4, 2)).shape
    torch.Size([3, 4])
    """

    short_name = "matern52"
    smoothness = 2.5
    formula = ClosedForm(root=True, polynomial=(3, 3, 1), coefficient=5.0)
    length_scale: float | Sequence[float] = 1.0


@final
@component
class RationalQuadratic(Radial):
    r"""Rational quadratic kernel :math:`(1 + \|x - z\|^2 / 2\alpha\ell^2)^{-\alpha}`.

    >>> import torch
    >>> from mercer.kernels import RationalQuadratic
    >>> RationalQuadratic(alpha=1.0)(torch.tensor([[0.0]]), torch.tensor([[2.0]])).item()
    0.333...
    """

    short_name = "rational-quadratic"
    smoothness = math.inf
    positive = ("length_scale", "alpha")
    length_scale: float | Sequence[float] = 1.0
    alpha: float = 1.0

    @property
    def coefficient(self) -> Any:
        return 0.5 / checked_number(self.alpha, "alpha", above=1e-6)

    def check(self) -> None:
        checked_number(self.alpha, "alpha", above=1e-6)
        super().check()

    def shape(self) -> tuple[Any, ...]:
        return (self.alpha,)

    def underflow_threshold(self, dtype: torch.dtype) -> float:
        return -math.inf  # a power does not underflow within the range of t

    def profile(self, t: Tensor) -> Tensor:
        if t.requires_grad or isinstance(self.alpha, Tensor):
            return (1 - t).clamp(min=1.0) ** -torch.as_tensor(self.alpha, dtype=t.dtype, device=t.device)
        base, alpha = t.neg_().add_(1).clamp_(min=1.0), float(self.alpha)
        if alpha in (0.5, 1.0, 2.0):
            return base.pow_(-alpha)  # torch has fast code for these
        return fast_exp(base.log_().mul_(-alpha * EXP_BASE_FACTOR), out=base)


@final
@dataclass(frozen=True, kw_only=True)
class RadialColumns(StationaryColumns):
    """variance · radial + bias, bound to basis vectors: ``[x, |x|², 1] @ [2z, −1, −|z|²]ᵀ = −|x − z|²``."""

    kernel: Radial

    def scaled(self, X: Tensor) -> Tensor:
        """Rows centred, scaled, augmented by squared norm and one."""
        x = (X - self.shift) * self.scale
        norms = x.square().sum(1, keepdim=True)
        return torch.cat([x, norms, torch.ones_like(norms)], 1)

    def bind(self, Z: Tensor) -> RadialColumns:
        z = (Z - self.shift) * self.scale
        norms = z.square().sum(1, keepdim=True)
        return replace(self, right=torch.cat([2 * z, torch.full_like(norms, -1.0), -norms], 1).T.contiguous())

    def tile(self, left: Tensor, temporary: bool) -> Tensor:
        if torch.is_grad_enabled():
            if any(map(_traced, self.kernel.shape())):  # autograd knows the slope in the shape, `_TracedTile` does not
                return self.finished(self.kernel.profile(left @ self.right), underflows=False)
            if any(map(_traced, (left, self.right, self.variance, self.bias))):
                numbers = [number_like(value, left) for value in (self.variance, self.bias)]
                apply: Any = _TracedTile.apply  # torch gives it no types
                tile: Tensor = apply(left, self.right, *numbers, self.kernel, self.underflows)
                return tile
        out = thread_buffer(left, TILE, (left.shape[0], self.right.shape[1])) if temporary else None
        t = _distances(left, self.right, self.kernel, self.underflows, out)
        return self.finished(self.kernel.profile(t), self.underflows)

    def distances(self, left: Tensor, out: Tensor | None = None) -> Tensor:
        """The negative scaled squared distances t of prepared rows from the basis vectors."""
        return _distances(left, self.right, self.kernel, self.underflows, out)

    def gradients(self, left: Tensor, W: Tensor) -> Tensor:
        with torch.no_grad():
            _, slope = self.kernel.profile_and_slope(self.distances(left))
            u, w = left[:, :-2], 0.5 * self.right[:-2].T
            return radial_gradients(u, w, self.scale, W, lambda V: slope @ V) * self.variance

    def largest_norm(self, left: Tensor) -> Tensor:
        return left[:, -2].max().sqrt()

    def lower_bound(self, max_norm: Tensor) -> Tensor | float:
        """The value at the sum of the largest norms, which no distance exceeds."""
        reach = float(max_norm) + max(-float(self.right[-1].min()), 0.0) ** 0.5
        form = self.kernel.closed_form()
        if form is not None:
            return form.value(reach if form.root else reach * reach)
        return self.kernel.profile(-torch.full_like(max_norm, reach).square()[None])

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


def _distances(left: Tensor, right: Tensor, kernel: Radial, underflows: bool, out: Tensor | None = None) -> Tensor:
    """The negative scaled squared distances t, clamped where the profile would underflow."""
    if left.dtype == torch.float32 and _few(right):
        t = _squared_differences(left[:, :-2], 0.5 * right[:-2], out)
    else:
        t = torch.mm(left, right, out=out)
    # rounding of large norms may leave it far above zero
    return t.clamp_(kernel.underflow_threshold(t.dtype), 0.0) if underflows else t


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
    """variance · p(left @ right) + bias as one step of autograd: a chain of small steps takes three times as long."""

    @staticmethod
    def forward(
        ctx: Any, left: Tensor, right: Tensor, variance: Tensor, bias: Tensor, kernel: Radial, underflows: bool
    ) -> Tensor:
        value, slope = kernel.profile_and_slope(_distances(left, right, kernel, underflows))
        if underflows:
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


def _form_values(form: ClosedForm, t: Tensor, slope: bool = False) -> tuple[Tensor, Tensor | None]:
    """The value and, if `slope`, its derivative in t = −(scaled distance)²; may overwrite `t`, and is never traced."""
    if form.root:
        return _values_of_root(form, t.abs_().sqrt_().neg_(), slope)  # rounding may leave t barely positive
    value = fast_exp(t, out=t)
    return value, value / EXP_BASE_FACTOR if slope and EXP_BASE_FACTOR != 1.0 else value


def _values_of_root(form: ClosedForm, b: Tensor, slope: bool = False) -> tuple[Tensor, Tensor | None]:
    """The same for a form of a root, given b = −√−t, which may be overwritten."""
    if len(form.polynomial) == 1:
        if not slope:
            return fast_exp(b, out=b), None
        value = fast_exp(b)
        return value, torch.where(b < 0, -0.5 / EXP_BASE_FACTOR * value / b, 0.0)
    e = fast_exp(b, out=thread_buffer(b, FIRST))
    by_t = _slope(form, b, e) if slope else None
    inner = b
    if len(form.polynomial) == 3:  # 1 + la + qa² = 1 + l(a + (q/l)a²), and b = −ua
        _, linear, quadratic = form.polynomial
        inner = torch.addcmul(b, b, b, value=-quadratic / linear / EXP_BASE_FACTOR, out=thread_buffer(b, SECOND))
    return torch.addcmul(e, e, inner, value=-form.linear, out=b), by_t


def _slope(form: ClosedForm, b: Tensor, e: Tensor) -> Tensor:
    """The derivative in t, from e = exp(−a)."""
    found = form.slope()
    assert found is not None
    divisor, derivative = found[0] * EXP_BASE_FACTOR**2, found[1]
    if len(derivative.polynomial) == 1:
        return e * (1 / divisor)
    return torch.addcmul(e, e, b, value=-derivative.linear).div_(divisor)
