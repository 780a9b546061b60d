"""Records that describe a kernel's formula to the code that evaluates it: `ClosedForm` and `FusedForm`.

A kernel of the form polynomial times exponential is written once, as a `ClosedForm`. Torch (`mercer.kernels.radial`),
LLVM (`machine_code`), Triton (`mercer.engine.fused_kernels`) and ONNX (`mercer.files.onnx.kernels`) evaluate it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from torch import Tensor

from mercer.codegen.cpu import EXP_BASE_FACTOR, LOG2E

#: Values below this are set to zero: the root of the smallest normal number of single precision.
LEAST = 2.0**-63
#: Inputs up to which squared distances in single precision are sums of squared differences: always on a CPU, where that
#: costs nothing, and on a GPU where it matters. Norms and products are faster for more inputs, but their error is 2⁻²²
#: of the largest squared norm. Rows of few inputs may lie so close that a length-scale of a thousandth of the table's
#: extent fits best, and then that error would exceed the distances.
FEW_INPUTS = 4


@dataclass(frozen=True)
class ClosedForm:
    r"""The formula :math:`k = p(a)\,e^{-a}` with :math:`p(a) = (c_0 + c_1 a + c_2 a^2)/c_0` and a = s, or a = √s.

    s is `coefficient` times the squared Euclidean distance in units of the length-scales, or with `city_block` the sum
    of absolute differences. `polynomial` holds the integers c; without any the value is the distance itself.

    Programs receive b = `base_factor` · a, so that the exponential is the one they are fastest at. With `differences`
    they sum squared differences instead of norms and products.

    >>> matern52 = ClosedForm(root=True, polynomial=(3, 3, 1), coefficient=5.0, base_factor=1.0)
    >>> matern52.linear, matern52.quadratic, matern52.slope()[0]
    (1.0, 0.3333333333333333, 6.0)
    """

    root: bool = False
    polynomial: tuple[int, ...] = (1,)
    coefficient: float = 1.0
    base_factor: float = EXP_BASE_FACTOR
    city_block: bool = False
    differences: bool = False

    @cached_property
    def rate(self) -> float:
        """r of e⁻ᵃ = 2^(−rb)."""
        return LOG2E / self.base_factor

    @cached_property
    def linear(self) -> float:
        """The factor of b in the polynomial."""
        return self._ratio(1) / self.base_factor

    @cached_property
    def quadratic(self) -> float:
        """The factor of b² in the polynomial."""
        return self._ratio(2) / self.base_factor**2

    @cached_property
    def distance_scale(self) -> float:
        """The factor on distances that turns a into b."""
        return self.base_factor if self.root else self.base_factor**0.5

    def slope(self) -> tuple[float, ClosedForm] | None:
        """A number d and a form f with −∂k/∂s = f/d; None where the slope is infinite at s = 0."""
        if not self.root:
            return 1.0, self
        c0, c1, c2 = (*self.polynomial, 0, 0)[:3]
        if c0 != c1:
            return None
        first = c1 - 2 * c2
        return 2 * c0 / first, replace(self, polynomial=(first, c2) if c2 else (first,))

    def reach(self) -> float:
        """The b from which on the value is below `LEAST`, by bisection, since the value decreases."""
        low, high = 0.0, 1e4 / self.rate
        for _ in range(100):
            b = 0.5 * (low + high)
            value = math.log2(1 + self.linear * b + self.quadratic * b * b) - self.rate * b
            low, high = (b, high) if value >= math.log2(LEAST) else (low, b)
        return low

    def _ratio(self, k: int) -> float:
        return self.polynomial[k] / self.polynomial[0] if k < len(self.polynomial) else 0.0


@dataclass(frozen=True)
class FusedForm:
    r"""variance · p(s) + bias, where s is made of the scaled inputs u, w of two rows.

    s is :math:`-\|u - w\|^2` ("distance", or "differences" where it is not to be made of norms and products),
    :math:`u^\top w` ("dot") or :math:`-\sum_k |u_k - w_k|^p` ("separable", with `norm` p). The inputs enter as
    ``u = (x − shift) · scale``. `profile` names the function p(s), one of those that the engine knows; for "closed" it
    is `formula`. `exponent` and `offset` are further parameters of a profile.
    """

    profile: str
    shift: Tensor
    scale: Tensor
    geometry: Literal["distance", "differences", "dot", "separable"] = "distance"
    norm: float = 2.0
    exponent: float = 1.0
    offset: float = 0.0
    variance: float = 1.0
    bias: float = 0.0
    formula: ClosedForm | None = None

    @property
    def multiplies(self) -> bool:
        """Whether s comes from products of inputs."""
        return self.geometry in ("distance", "dot")
