"""What programs must know of a kernel: machine code a formula, fused products of a GPU a profile and a few numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

#: Values below are zeroes: the root of the smallest normal number of single precision.
LEAST = 2.0**-63
#: Inputs up to which squared distances are sums of squared differences in single precision: always on a CPU, where that
#: costs nothing, on a GPU where it matters. From products and norms, which more inputs are faster by, they are off by
#: 2⁻²² of the largest norm, and the rows of a table of few inputs may lie so close that length-scales of a thousandth
#: of its extent gain: there nothing would be left of a value.
FEW_INPUTS = 4


@dataclass(frozen=True)
class ClosedForm:
    r"""The value :math:`2^{-rb}(1 + lb + qb^2)`, b being a distance s or its root; s itself for a rate r of zero.

    `city_block` says that s is a sum of absolute differences; else it is a squared Euclidean distance, made of
    `differences` or of norms and products.
    """

    rate: float
    root: bool = False
    linear: float = 0.0
    quadratic: float = 0.0
    city_block: bool = False
    differences: bool = False

    def reach(self) -> float:
        """The b from which on the value is below `LEAST`, by bisection: it falls."""
        low, high = 0.0, 1e4 / self.rate
        for _ in range(100):
            b = 0.5 * (low + high)
            value = math.log2(1 + self.linear * b + self.quadratic * b * b) - self.rate * b
            low, high = (b, high) if value >= math.log2(LEAST) else (low, b)
        return low


@dataclass(frozen=True)
class FusedForm:
    r"""variance · p(s) + bias, where s is made of the scaled inputs u, w of two rows.

    s is :math:`-\|u - w\|^2` ("distance", or "differences" where it is not to be made of norms and products),
    :math:`u^\top w` ("dot") or :math:`-\sum_k |u_k - w_k|^p` ("separable", with `norm` p). The inputs enter as
    ``u = (x − shift) · scale``; `profile` names the function p(s), and the engine knows which names it can compute.
    `exponent` and `offset` are what a profile needs beside s.
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

    @property
    def multiplies(self) -> bool:
        """Whether s comes from products of inputs."""
        return self.geometry in ("distance", "dot")
