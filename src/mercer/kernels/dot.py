"""Dot-product kernels: functions of xᵀz."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor

from mercer.codegen.cpu import FusedForm
from mercer.kernels.base import Kernel, checked_number
from mercer.kernels.columns import Columns
from mercer.parts import as_float, component, require


@final
@component
class Linear(Kernel):
    r"""Linear kernel :math:`x^\top z`; add `Bias` for an intercept.

    >>> import torch
    >>> from mercer.kernels import Linear
    >>> Linear()(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]])).item()
    11.0
    """

    short_name = "linear"

    def columns(self, Z: Tensor) -> Columns:
        return DotColumns(Z)

    def diag(self, X: Tensor) -> Tensor:
        return X.square().sum(1)


@final
@component
class Polynomial(Kernel):
    r"""Polynomial kernel :math:`(\gamma x^\top z + c)^d`.

    >>> import torch
    >>> from mercer.kernels import Polynomial
    >>> Polynomial(degree=2, gamma=1.0, offset=1.0)(torch.tensor([[1.0]]), torch.tensor([[2.0]])).item()
    9.0
    """

    short_name = "polynomial"
    aliases = ("poly",)
    positive = ("gamma", "offset")
    degree: int = 3
    gamma: float = 1.0
    offset: float = 1.0

    def check(self) -> None:
        degree = as_float(self.degree)
        require(1 <= degree < 2**31 and degree % 1 == 0, "degree", "an integer of at least 1", self.degree)
        checked_number(self.gamma, "gamma")
        checked_number(self.offset, "offset")

    def columns(self, Z: Tensor) -> Columns:
        self.check()
        return DotColumns(Z, self.gamma, self.offset, int(self.degree))

    def diag(self, X: Tensor) -> Tensor:
        return (self.gamma * X.square().sum(1) + self.offset) ** self.degree


@final
@dataclass(frozen=True)
class DotColumns(Columns):
    """(γ xᵀz + c)^d bound to basis vectors."""

    Z: Tensor
    gamma: Any = None
    offset: Any = 0.0
    degree: int = 1

    def __call__(self, X: Tensor) -> Tensor:
        inner = X @ self.Z.T
        return inner if self.gamma is None else (self.gamma * inner + self.offset) ** self.degree

    def with_basis(self, Z: Tensor) -> DotColumns:
        return replace(self, Z=Z)

    def fused_form(self) -> FusedForm:
        """Half of γ goes to either side."""
        gamma = 1.0 if self.gamma is None else float(self.gamma)
        root = torch.full((), gamma**0.5, dtype=self.Z.dtype, device=self.Z.device)
        nothing = torch.zeros_like(root)
        return FusedForm("power", nothing, root, "dot", exponent=self.degree, offset=float(self.offset))
