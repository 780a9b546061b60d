"""Kernels and their compositions; `as_kernel` makes a kernel from a user's parameter."""

from __future__ import annotations

from typing import Any

from mercer.codegen.cpu import FusedForm
from mercer.kernels.base import Bias, Kernel, Product, Scaled, Sum
from mercer.kernels.columns import Columns
from mercer.kernels.custom import Function, Normalized, Precomputed
from mercer.kernels.dot import Linear, Polynomial
from mercer.kernels.radial import Gaussian, Matern12, Matern32, Matern52, Radial, RationalQuadratic
from mercer.kernels.separable import Laplacian, Separable
from mercer.kernels.stationary import Stationary
from mercer.parts import require

#: Nesting depth of composed kernels at most; Python's recursion limit allows some hundreds.
MAX_DEPTH = 150


def as_kernel(choice: Any) -> Kernel:
    """A kernel from a part, a short name, or a Python callable on two blocks; its parameters are checked.

    >>> from mercer.kernels import as_kernel
    >>> as_kernel("matern52"), as_kernel("rbf")
    (Matern52(), Gaussian())
    """
    if callable(choice) and not isinstance(choice, Kernel | type):
        return Function(choice)
    kernel = Kernel.resolve(choice, "kernel")
    _require_shallow(kernel)
    kernel.check()
    return kernel


def _require_shallow(kernel: Kernel) -> None:
    """Raise ValueError for kernels nested beyond Python's recursion limit."""
    level, depth = {id(kernel): kernel}, 0
    while level:
        level = {id(part): part for outer in level.values() for part in outer.parts().values()}
        depth += 1
        wanted = f"nested at most {MAX_DEPTH} deep, for example by adding kernels in pairs"
        require(depth <= MAX_DEPTH, "kernel", wanted, "one that is nested deeper")


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
