"""What a fused product must know of a kernel: a profile's name, a scaling of the inputs, a few numbers."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class FusedForm:
    r"""variance · p(s) + bias, where s is :math:`-\|u - w\|^2` or :math:`u^\top w` of the scaled inputs u, w.

    The inputs enter as ``u = (x − shift) · scale``; `profile` names p, and the engine knows which names it can
    compute. `exponent` and `offset` are what a profile needs beside s.
    """

    profile: str
    shift: Tensor
    scale: Tensor
    radial: bool = True
    exponent: float = 1.0
    offset: float = 0.0
    variance: float = 1.0
    bias: float = 0.0

    def inputs(self, X: Tensor, unit: float = 1.0) -> Tensor:
        """The scaled inputs of the rows of `X`, times `unit`."""
        return (X - self.shift) * (self.scale * unit)
