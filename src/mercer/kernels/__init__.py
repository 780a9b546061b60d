"""Kernels and their compositions; `as_kernel` turns what a user wrote into one."""

from __future__ import annotations

from typing import Any

from mercer.kernels.base import Columns, Kernel
from mercer.kernels.compose import Bias, Normalized, Product, Scaled, Sum
from mercer.kernels.custom import Function, Precomputed
from mercer.kernels.dot import Linear, Polynomial
from mercer.kernels.fused_form import FusedForm
from mercer.kernels.radial import Gaussian, Laplacian, Matern32, Matern52, Radial, RationalQuadratic


def as_kernel(choice: Any) -> Kernel:
    """A kernel from a part, a short name, or a Python callable on two blocks.

    >>> from mercer.kernels import as_kernel
    >>> as_kernel("matern52")
    Matern52()
    """
    if callable(choice) and not isinstance(choice, Kernel):
        return Function(choice)
    return Kernel.resolve(choice, "kernel")


__all__ = [
    "Bias",
    "Columns",
    "Function",
    "FusedForm",
    "Gaussian",
    "Kernel",
    "Laplacian",
    "Linear",
    "Matern32",
    "Matern52",
    "Normalized",
    "Polynomial",
    "Precomputed",
    "Product",
    "Radial",
    "RationalQuadratic",
    "Scaled",
    "Sum",
    "as_kernel",
]
