"""What a fused product must know of a kernel: a profile's name, a scaling of the inputs, a few numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor


@dataclass(frozen=True)
class FusedForm:
    r"""variance · p(s) + bias, where s is made of the scaled inputs u, w of two rows.

    s is :math:`-\|u - w\|^2` ("distance"), :math:`u^\top w` ("dot") or :math:`-\sum_k |u_k - w_k|^p` ("separable", with
    `norm` p). The inputs enter as ``u = (x − shift) · scale``; `profile` names the function p(s), and the engine knows
    which names it can compute. `exponent` and `offset` are what a profile needs beside s.
    """

    profile: str
    shift: Tensor
    scale: Tensor
    geometry: Literal["distance", "dot", "separable"] = "distance"
    norm: float = 2.0
    exponent: float = 1.0
    offset: float = 0.0
    variance: float = 1.0
    bias: float = 0.0
