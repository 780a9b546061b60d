"""Vector-Jacobian products by autograd, without the import of sympy.

`torch.autograd.grad` takes weights for its outputs, but imports sympy when it first checks their shape, which takes
1.3 s of the first fit of a process. Here the weighted sum is a scalar, for which no weights are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class _Sum(torch.autograd.Function):
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

    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> vjp([x.square()], [torch.tensor([1.0, 10.0])], [x])
    (tensor([ 2., 40.]),)
    """
    for output, weight in zip(outputs, weights, strict=True):
        if output.shape != weight.shape:
            raise ValueError(f"weights must have the shape of their output, {output.shape}, got {weight.shape}")
    with torch.enable_grad():
        total = _Sum.apply(weights, *outputs)  # type: ignore[no-untyped-call]
    found: tuple[Tensor, ...] = torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)
    return found
