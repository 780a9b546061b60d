"""Kernels and their compositions; `as_kernel` turns what a user wrote into one."""

from __future__ import annotations

from typing import Any

from mercer.kernels.base import Bias, Kernel, Product, Scaled, Sum
from mercer.kernels.columns import Columns
from mercer.kernels.custom import Function, Normalized, Precomputed
from mercer.kernels.dot import Linear, Polynomial
from mercer.kernels.forms import FusedForm
from mercer.kernels.radial import Gaussian, Matern12, Matern32, Matern52, Radial, RationalQuadratic
from mercer.kernels.separable import Laplacian, Separable
from mercer.kernels.stationary import Stationary


def as_kernel(choice: Any) -> Kernel:
    """A kernel from a part, a short name, or a Python callable on two blocks; its parameters are checked.

    >>> from mercer.kernels import as_kernel
    >>> as_kernel("matern52"), as_kernel("rbf")
    (Matern52(), Gaussian())
    """
    if callable(choice) and not isinstance(choice, Kernel | type):
        return Function(choice)
    kernel = Kernel.resolve(choice, "kernel")
    kernel.check()
    return kernel


__all__ = [
    "Bias",
    "Columns",
    "Function",
    "FusedForm",
    "Gaussian",
    "Kernel",
    "Laplacian",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "Normalized",
    "Polynomial",
    "Precomputed",
    "Product",
    "Radial",
    "RationalQuadratic",
    "Scaled",
    "Separable",
    "Stationary",
    "Sum",
    "as_kernel",
]
