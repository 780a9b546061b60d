"""Radial kernels: functions of the scaled distance between two points.

Each kernel is its profile and one constant. The profile receives the *negative* scaled
squared distance, because one matrix product gives it with no further pass over the tile; in units
in which its exponential is the one that this machine is fastest at (`mercer.codegen.cpu`).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor

from mercer.codegen.cpu import EXP_BASE_FACTOR, fast_exp
from mercer.codegen.forms import ClosedForm
from mercer.codegen.profiles import profile, profile_of_root
from mercer.kernels.base import checked_number
from mercer.kernels.radial_columns import RadialColumns
from mercer.kernels.stationary import Stationary
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
        """A value of t from which on downwards the kernel is below the root of the smallest normal number.

        As it stands for kernels that fall as exp(−√−t) times a quadratic.
        """
        return -((self.log_base_scale * (12 - 0.5 * math.log(torch.finfo(dtype).tiny))) ** 2)

    def closed_form(self) -> ClosedForm | None:
        """The profile as machine code takes it; None where it has no such form."""
        return None

    def at_distance(self, distance: Tensor, length: float) -> Tensor:
        """The kernel's value at (x − z) of these norms, for one length-scale."""
        return self.profile((distance * (self.log_base_scale / length)).square_().mul_(-self.coefficient))

    def columns(self, Z: Tensor) -> RadialColumns:
        scale = self.log_base_scale * self.coefficient**0.5 * self.inverse_lengths(Z)
        shift = Z.detach().mean(0)  # centring keeps |x|² small, hence −|x − z|² exact
        return RadialColumns(kernel=self, shift=shift, scale=scale, right=Z).with_basis(Z)


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
        return profile(self.formula, t)[0]

    def profile_and_slope(self, t: Tensor) -> tuple[Tensor, Tensor]:
        value, slope = profile(self.formula, t, slope=True)
        assert slope is not None
        return value, slope

    def underflow_threshold(self, dtype: torch.dtype) -> float:
        if self.formula.root:
            return super().underflow_threshold(dtype)
        return EXP_BASE_FACTOR * (0.5 * math.log(torch.finfo(dtype).tiny) - 0.5)

    def at_distance(self, distance: Tensor, length: float) -> Tensor:
        if not self.formula.root:
            return super().at_distance(distance, length)
        b = distance * (-self.log_base_scale * self.coefficient**0.5 / length)
        return profile_of_root(self.formula, b)[0]


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
        return -math.inf  # a power: it vanishes nowhere in reach

    def profile(self, t: Tensor) -> Tensor:
        if t.requires_grad or isinstance(self.alpha, Tensor):
            return (1 - t).clamp(min=1.0) ** -torch.as_tensor(self.alpha, dtype=t.dtype, device=t.device)
        base, alpha = t.neg_().add_(1).clamp_(min=1.0), float(self.alpha)
        if alpha in (0.5, 1.0, 2.0):
            return base.pow_(-alpha)  # torch has ways of its own for these
        return fast_exp(base.log_().mul_(-alpha * EXP_BASE_FACTOR), out=base)
