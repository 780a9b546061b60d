"""Dot-product kernels: functions of xᵀz."""

from __future__ import annotations

import torch
from torch import Tensor

from mercer.kernels.base import Columns, Kernel, checked_number
from mercer.kernels.fused_form import FusedForm
from mercer.parts import part, require


@part
class Linear(Kernel):
    r"""Linear kernel :math:`x^\top z`; add `Bias` for an intercept.

    >>> import torch
    >>> from mercer.kernels import Linear
    >>> Linear()(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]])).item()
    11.0
    """

    short_name = "linear"

    def columns(self, Z: Tensor) -> Columns:
        return lambda X: X @ Z.T

    def form(self, Z: Tensor) -> FusedForm:
        return _power(Z)

    def diag(self, X: Tensor) -> Tensor:
        return X.square().sum(1)


@part
class Polynomial(Kernel):
    r"""Polynomial kernel :math:`(\gamma x^\top z + c)^d`.

    >>> import torch
    >>> from mercer.kernels import Polynomial
    >>> Polynomial(degree=2, gamma=1.0, offset=1.0)(torch.tensor([[1.0]]), torch.tensor([[2.0]])).item()
    9.0
    """

    short_name = "polynomial"
    positive = ("gamma", "offset")
    degree: int = 3
    gamma: float = 1.0
    offset: float = 1.0

    def columns(self, Z: Tensor) -> Columns:
        require(self.degree == int(self.degree) >= 1, "degree", "a whole number of at least 1", self.degree)
        gamma, offset = checked_number(self.gamma, "gamma"), checked_number(self.offset, "offset")
        return lambda X: (gamma * (X @ Z.T) + offset) ** self.degree

    def form(self, Z: Tensor) -> FusedForm:
        self.columns(Z)  # checks the parameters
        return _power(Z, float(self.gamma), float(self.offset), int(self.degree))

    def diag(self, X: Tensor) -> Tensor:
        return (self.gamma * X.square().sum(1) + self.offset) ** self.degree


def _power(Z: Tensor, gamma: float = 1.0, offset: float = 0.0, degree: int = 1) -> FusedForm:
    """(γ xᵀz + c)^d: half of γ goes to either side."""
    root = torch.tensor(gamma, dtype=Z.dtype, device=Z.device).sqrt()
    return FusedForm("power", torch.zeros_like(root), root, radial=False, exponent=degree, offset=offset)
