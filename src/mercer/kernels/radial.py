"""Radial kernels: functions of the scaled distance between two points.

Each kernel is its profile and one constant. The profile receives the *negative* scaled
squared distance, because one matrix product gives it with no further pass over the tile.
"""

from __future__ import annotations

import math
import threading
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from mercer.kernels.base import Kernel, checked_number, positive_parameter
from mercer.kernels.columns import RadialColumns
from mercer.kernels.fused_form import FusedForm
from mercer.parts import part


class Radial(Kernel):
    r"""A kernel :math:`k(x, z) = p(-c \|(x - z)/\ell\|^2)` with profile p and sharpness c."""

    positive: ClassVar[tuple[str, ...]] = ("length_scale",)
    length_scale: Any

    @property
    def sharpness(self) -> Any:
        """The constant c that multiplies the squared scaled distance."""
        return 1.0

    @abstractmethod
    def profile(self, t: Tensor) -> Tensor:
        """The kernel's value where t = −c‖(x − z)/ℓ‖²; may overwrite `t`."""

    @property
    def has_slope(self) -> bool:
        """Whether `profile_and_slope` is that of this profile; else autograd goes through `profile`."""
        owner = [next(c for c in type(self).__mro__ if name in vars(c)) for name in ("profile", "profile_and_slope")]
        return owner[0] is owner[1]

    def profile_and_slope(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """The value and its derivative in t, zero where two points coincide and there is none; may overwrite `t`."""
        raise NotImplementedError

    def deepest(self, dtype: torch.dtype) -> float:
        """A value of t from which on downwards the kernel is below the root of the smallest normal number.

        As it stands for kernels that fall as exp(−√−t) times a quadratic.
        """
        return -((12 - 0.5 * math.log(torch.finfo(dtype).tiny)) ** 2)

    def columns(self, Z: Tensor) -> RadialColumns:
        length = positive_parameter(self.length_scale, "length_scale", Z)
        root = self.sharpness**0.5
        shift = Z.detach().mean(0)  # centring keeps |x|² small, hence −|x − z|² exact
        return RadialColumns(self, shift, root / length, Z).rebound(Z)

    def form(self, Z: Tensor) -> FusedForm | None:
        if "short_name" not in vars(type(self)):  # a subclass may have changed the profile its parent's name stands for
            return None
        bound = self.columns(Z)
        return FusedForm(self.short_name, bound.shift, bound.scale, exponent=float(getattr(self, "alpha", 1.0)))

    def diag(self, X: Tensor) -> Tensor:
        return X.new_ones(X.shape[0])


class _NegativeRoot(torch.autograd.Function):
    """−√|t|, with gradient zero instead of NaN where two points coincide."""

    @staticmethod
    def forward(ctx: Any, t: Tensor) -> Tensor:
        root = t.abs().sqrt_().neg_()
        ctx.save_for_backward(root)
        return root

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (root,) = ctx.saved_tensors
        return torch.where(root < 0, -0.5 * grad / root, 0.0)


def negative_distance(t: Tensor) -> Tensor:
    """−√(−t), overwriting `t` where no gradient is wanted (rounding may leave t barely positive)."""
    return _NegativeRoot.apply(t) if t.requires_grad else t.abs_().sqrt_().neg_()


_local = threading.local()


def scratch(t: Tensor, slot: int = 0) -> Tensor | None:
    """A reused buffer like `t`, or None where autograd must keep its own.

    Fresh tile-sized temporaries cost more in page faults than the arithmetic they hold.
    """
    if t.requires_grad or t.device.type != "cpu":
        return None
    key = (slot, t.dtype)
    buffers: dict[tuple[int, torch.dtype], Tensor] = _local.__dict__.setdefault("buffers", {})
    if key not in buffers or not t.numel() <= buffers[key].numel() <= 4 * t.numel() + 4096:
        buffers[key] = t.new_empty(t.numel())
    return buffers[key][: t.numel()].view(t.shape)


@part
class Gaussian(Radial):
    r"""Gaussian kernel :math:`\exp(-\|x - z\|^2 / 2\ell^2)`; one :math:`\ell` or one per input (ARD).

    >>> import torch
    >>> from mercer.kernels import Gaussian
    >>> Gaussian(length_scale=2.0)(torch.tensor([[0.0]]), torch.tensor([[2.0]])).item()
    0.606...
    """

    short_name = "gaussian"
    length_scale: float | Sequence[float] = 1.0

    @property
    def sharpness(self) -> float:
        return 0.5

    def deepest(self, dtype: torch.dtype) -> float:
        return 0.5 * math.log(torch.finfo(dtype).tiny) - 0.5

    def profile(self, t: Tensor) -> Tensor:
        return t.exp_()

    def profile_and_slope(self, t: Tensor) -> tuple[Tensor, Tensor]:
        return t.exp_(), t


@part
class Laplacian(Radial):
    r"""Laplacian kernel :math:`\exp(-\|x - z\| / \ell)` in the Euclidean distance (Matérn 1/2).

    scikit-learn's `laplacian_kernel` takes the sum of absolute differences instead.

    >>> import torch
    >>> from mercer.kernels import Laplacian
    >>> Laplacian()(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0]])).item()
    0.0067...
    """

    short_name = "laplacian"
    length_scale: float | Sequence[float] = 1.0

    def profile(self, t: Tensor) -> Tensor:
        b = negative_distance(t)
        return b.exp() if b.requires_grad else b.exp_()

    def profile_and_slope(self, t: Tensor) -> tuple[Tensor, Tensor]:
        a = t.abs_().sqrt_()
        value = torch.exp(-a)
        return value, torch.where(a > 0, 0.5 * value / a, 0.0)


@part
class Matern32(Radial):
    r"""Matérn kernel of smoothness 3/2, :math:`(1 + a)\exp(-a)` with :math:`a = \sqrt3\|x - z\|/\ell`.

    >>> import torch
    >>> from mercer.kernels import Matern32
    >>> Matern32()(torch.zeros(1, 2), torch.zeros(1, 2)).item()
    1.0
    """

    short_name = "matern32"
    length_scale: float | Sequence[float] = 1.0

    @property
    def sharpness(self) -> float:
        return 3.0

    def profile(self, t: Tensor) -> Tensor:
        b = negative_distance(t)  # b = −a
        e = torch.exp(b, out=scratch(b))
        return torch.addcmul(e, e, b, value=-1, out=None if b.requires_grad else b)

    def profile_and_slope(self, t: Tensor) -> tuple[Tensor, Tensor]:
        b = t.abs_().sqrt_().neg_()
        e = torch.exp(b)
        return torch.addcmul(e, e, b, value=-1, out=b), e.mul_(0.5)  # p = (1 + a)e^{−a}, p' = e^{−a}/2


@part
class Matern52(Radial):
    r"""Matérn kernel of smoothness 5/2, :math:`(1 + a + a^2/3)\exp(-a)`, :math:`a = \sqrt5\|x - z\|/\ell`.

    >>> import torch
    >>> from mercer.kernels import Matern52
    >>> Matern52(length_scale=[1.0, 9.0])(torch.zeros(3, 2), torch.ones(4, 2)).shape
    torch.Size([3, 4])
    """

    short_name = "matern52"
    length_scale: float | Sequence[float] = 1.0

    @property
    def sharpness(self) -> float:
        return 5.0

    def profile(self, t: Tensor) -> Tensor:
        b = negative_distance(t)  # b = −a, so 1 + a + a²/3 = 1 − (b − b²/3)
        e = torch.exp(b, out=scratch(b))
        inner = torch.addcmul(b, b, b, value=-1 / 3, out=scratch(b, slot=1))
        return torch.addcmul(e, e, inner, value=-1, out=None if b.requires_grad else b)

    def profile_and_slope(self, t: Tensor) -> tuple[Tensor, Tensor]:
        third = t.neg() / 3  # a²/3
        b = t.abs_().sqrt_().neg_()
        e = torch.exp(b)
        slope = torch.addcmul(e, e, b, value=-1, out=b)  # (1 + a)e^{−a}, six times p'
        return torch.addcmul(slope, e, third, out=third), slope.div_(6)


@part
class RationalQuadratic(Radial):
    r"""Rational quadratic kernel :math:`(1 + \|x - z\|^2 / 2\alpha\ell^2)^{-\alpha}`.

    >>> import torch
    >>> from mercer.kernels import RationalQuadratic
    >>> RationalQuadratic(alpha=1.0)(torch.tensor([[0.0]]), torch.tensor([[2.0]])).item()
    0.333...
    """

    short_name = "rational-quadratic"
    positive = ("length_scale", "alpha")
    length_scale: float | Sequence[float] = 1.0
    alpha: float = 1.0

    @property
    def sharpness(self) -> Any:
        return 0.5 / checked_number(self.alpha, "alpha", above=1e-6)

    def deepest(self, dtype: torch.dtype) -> float:
        return -math.inf  # a power: it vanishes nowhere in reach

    def profile(self, t: Tensor) -> Tensor:
        alpha = torch.as_tensor(self.alpha, dtype=t.dtype, device=t.device)
        return (1 - t).clamp(min=1.0) ** -alpha
