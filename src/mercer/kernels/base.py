"""The base class of kernels, k(x, z) with diagonal, positive parameters and gradients; sums and products of kernels.

A kernel defines k(x, z). The engine (`mercer.engine`) blocks and fuses products with it, and distributes them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar, Self, final

import torch
from torch import Tensor

from mercer.kernels.columns import Added, Columns, Constant, Multiplied
from mercer.parts import Component, as_float, component, require

#: Weights on the entries of a tile to gradients in the parameters, in X and in Z.
Pullback = Callable[[Tensor], tuple[dict[str, Tensor], Tensor, Tensor]]


class Kernel(Component, ABC):
    """A Mercer kernel on rows of tensors; `Gaussian`, `Matern52`, … are its concrete forms."""

    #: Fields that are positive numbers (or vectors of them) and may be tuned on a log scale.
    positive: ClassVar[tuple[str, ...]] = ()
    #: How smooth functions of the kernel are: ν of the Matérn kernels, infinity for the Gaussian, 0 where unknown.
    smoothness: ClassVar[float] = 0.0

    @abstractmethod
    def columns(self, Z: Tensor) -> Columns:
        """Bind the basis vectors `Z` (m × D): everything that depends on them alone is computed once."""

    @abstractmethod
    def diag(self, X: Tensor) -> Tensor:
        """k(x, x) for every row of `X`."""

    def check(self) -> None:
        """Raise ValueError for parameters that define no kernel, before any rows are read."""
        for kernel in self.parts().values():
            kernel.check()

    def __call__(self, X: Tensor, Z: Tensor) -> Tensor:
        """The tile K(X, Z)."""
        return self.columns(Z).specialise(len(X))(X)

    def parts(self) -> dict[str, Kernel]:
        """The kernels that this one is composed of, by field name."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Kernel)}

    def tunable(self) -> dict[str, Any]:
        """Positive parameters of this kernel and of its parts, named as scikit-learn names them."""
        parameters = {name: getattr(self, name) for name in self.positive}
        nested = {
            f"{name}__{inner}": value
            for name, kernel in self.parts().items()
            for inner, value in kernel.tunable().items()
        }
        return parameters | nested

    def replaced(self, values: Mapping[str, Any]) -> Self:
        """A copy with these parameters replaced; tensors that require gradients are kept as they are."""
        known = {f.name for f in fields(self)}
        for name in values:
            require(name.partition("__")[0] in known, "a kernel parameter", f"one of {sorted(known)}", name)
        changes = {name: value for name, value in values.items() if "__" not in name}
        for name, kernel in self.parts().items():
            prefix = f"{name}__"
            inner = {k.removeprefix(prefix): v for k, v in values.items() if k.startswith(prefix)}
            if inner:
                changes[name] = kernel.replaced(inner)
        return replace(self, **changes)

    def traced(self, X: Tensor, Z: Tensor, inputs: bool = True) -> tuple[Tensor, Pullback]:
        """The tile K(X, Z) and a function that pulls weights on its entries back to gradients.

        The pullback maps a weight (the shape of the tile) to the gradient of Σ_ij weight_ij k(x_i, z_j) in
        the tunable parameters, in `X` and in `Z` (the last two are zero if `inputs` is False).
        """
        with torch.enable_grad():
            values = {
                name: torch.as_tensor(value, dtype=X.dtype, device=X.device).detach().clone().requires_grad_()
                for name, value in self.tunable().items()
            }
            X, Z = X.detach().clone().requires_grad_(inputs), Z.detach().clone().requires_grad_(inputs)
            tile = self.replaced(values)(X, Z)

        def pull(weight: Tensor) -> tuple[dict[str, Tensor], Tensor, Tensor]:
            leaves = [*values.values(), X, Z] if inputs else list(values.values())
            if not leaves or not tile.requires_grad:
                return {}, torch.zeros_like(X), torch.zeros_like(Z)
            grads = vjp([tile], [weight], leaves)
            by_parameter = dict(zip(values, grads, strict=False))
            by_inputs = grads[len(values) :] if inputs else (torch.zeros_like(X), torch.zeros_like(Z))
            return by_parameter, by_inputs[0], by_inputs[1]

        return tile.detach(), pull

    def __add__(self, other: Kernel | float) -> Kernel:
        return Sum(self, other if isinstance(other, Kernel) else Bias(other))

    def __mul__(self, other: Kernel | float) -> Kernel:
        return Product(self, other) if isinstance(other, Kernel) else Scaled(self, other)

    __radd__ = __add__
    __rmul__ = __mul__


def checked_number(value: Any, name: str, above: float = 0.0) -> Any:
    """Check that a value is one finite number of at least `above`; tensors, which only tuning makes, pass."""
    if not isinstance(value, Tensor):
        require(above <= as_float(value) < float("inf"), name, f"one number of at least {above:g}", value)
    return value


@final
@component
class Sum(Kernel):
    """left + right.

    >>> import torch
    >>> from mercer.kernels import Gaussian, Linear
    >>> (Gaussian() + Linear())(torch.ones(1, 1), torch.ones(1, 1)).item()
    2.0
    """

    left: Kernel
    right: Kernel

    def columns(self, Z: Tensor) -> Columns:
        left, right = self.left.columns(Z), self.right.columns(Z)
        if right.constant is not None:  # a tile needs no second tile
            return left.affine(1.0, right.constant)
        if left.constant is not None:
            return right.affine(1.0, left.constant)
        return Added(left, right)

    def diag(self, X: Tensor) -> Tensor:
        return self.left.diag(X) + self.right.diag(X)


@final
@component
class Product(Kernel):
    """left · right.

    >>> import torch
    >>> from mercer.kernels import Gaussian, Linear
    >>> (Gaussian() * Linear())(2 * torch.ones(1, 1), 2 * torch.ones(1, 1)).item()
    4.0
    """

    left: Kernel
    right: Kernel

    def columns(self, Z: Tensor) -> Columns:
        left, right = self.left.columns(Z), self.right.columns(Z)
        if right.constant is not None:
            return left.affine(right.constant, 0.0)
        if left.constant is not None:
            return right.affine(left.constant, 0.0)
        return Multiplied(left, right)

    def diag(self, X: Tensor) -> Tensor:
        return self.left.diag(X) * self.right.diag(X)


@final
@component
class Scaled(Kernel):
    """variance · kernel; the paper's θ₀ (Boost10 eq. 33).

    >>> import torch
    >>> from mercer.kernels import Gaussian
    >>> (3.0 * Gaussian()).diag(torch.zeros(2, 1)).tolist()
    [3.0, 3.0]
    """

    positive = ("variance",)
    kernel: Kernel
    variance: float = 1.0

    def check(self) -> None:
        checked_number(self.variance, "variance")
        super().check()

    def columns(self, Z: Tensor) -> Columns:
        return self.kernel.columns(Z).affine(checked_number(self.variance, "variance"), 0.0)

    def diag(self, X: Tensor) -> Tensor:
        return self.kernel.diag(X) * self.variance


@final
@component
class Bias(Kernel):
    """A constant kernel; the paper's θ_b (Boost10 eq. 33).

    >>> import torch
    >>> from mercer.kernels import Bias
    >>> Bias(0.5)(torch.zeros(1, 3), torch.zeros(2, 3)).tolist()
    [[0.5, 0.5]]
    """

    short_name = "bias"
    positive = ("variance",)
    variance: float = 1.0

    def check(self) -> None:
        checked_number(self.variance, "variance")

    def columns(self, Z: Tensor) -> Columns:
        return Constant(Z.shape[0], checked_number(self.variance, "variance"))

    def diag(self, X: Tensor) -> Tensor:
        return self.variance * X.new_ones(X.shape[0])


class _WeightedSum(torch.autograd.Function):
    """A scalar in place of Σ weight · output: its value is not computed, and its gradients are the weights."""

    @staticmethod
    def forward(ctx: Any, weights: Sequence[Tensor], *outputs: Tensor) -> Tensor:
        ctx.weights = weights
        return outputs[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, unused: Tensor) -> tuple[Tensor | None, ...]:
        return None, *ctx.weights


def vjp(outputs: Sequence[Tensor], weights: Sequence[Tensor], leaves: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The gradient of Σ weight · output in each of the leaves; zero for leaves that no output depends on.

    `torch.autograd.grad` takes weights for its outputs, but imports sympy when it first checks their shape, which takes
    1.3 s of the first fit of a process. The weighted sum is a scalar, for which no weights are needed.

    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> vjp([x.square()], [torch.tensor([1.0, 10.0])], [x])
    (tensor([ 2., 40.]),)
    """
    for output, weight in zip(outputs, weights, strict=True):
        if output.shape != weight.shape:
            raise ValueError(f"weights must have the shape of their output, {output.shape}, got {weight.shape}")
    with torch.enable_grad():
        total = _WeightedSum.apply(weights, *outputs)  # type: ignore[no-untyped-call]
    found: tuple[Tensor, ...] = torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)
    return found
