"""The features in which the log densities of this family are linear: 1, inputs, their squares or products, targets.

A block is stored columns first (D × n), so that each feature is contiguous. With the features Ψ of a block the log
densities of all components are one matrix product, C Ψ, and so are the sums of the M step, R Ψᵀ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.codegen.cpu import FEATURES, thread_buffer
from mercer.engine import Sample


def columns(block: Tensor) -> Tensor:
    """A block of rows as D × n in float64."""
    return block.to(torch.float64).T.contiguous()


def on_device(record: Any, device: Any) -> Any:
    """A dataclass with its arrays and tensors as tensors on a device."""
    arrays = {name: value for name, value in vars(record).items() if isinstance(value, Tensor | np.ndarray)}
    return replace(record, **{name: torch.as_tensor(value, device=device) for name, value in arrays.items()})


def all_columns(sample: Sample) -> Tensor:
    """All rows of a sample as D × n in float64."""
    return columns(sample.rows.take(torch.arange(sample.rows.n_rows)))


@dataclass(frozen=True)
class Features:
    """Layout of the features of D inputs: 1, x, then x_i² or, with `products`, all x_i x_j with i ≤ j."""

    n_inputs: int
    products: bool

    @property
    def size(self) -> int:
        D = self.n_inputs
        return 1 + D + (D * (D + 1) // 2 if self.products else D)

    @property
    def linear(self) -> slice:
        return slice(1, 1 + self.n_inputs)

    @property
    def second(self) -> slice:
        return slice(1 + self.n_inputs, self.size)

    def of(self, x: Tensor, further: Sequence[Tensor] = ()) -> Tensor:
        """Features of a block (D × n), then those of its targets: F × n; on a CPU the next call reuses the buffer."""
        D, n = x.shape
        shape = self.size + sum(map(len, further)), n
        kept = thread_buffer(x, FEATURES, shape)
        psi = x.new_empty(shape) if kept is None else kept
        psi[0] = 1.0
        psi[self.linear] = x
        if self.products:
            begin = 1 + D
            for i in range(D):
                torch.mul(x[i:], x[i], out=psi[begin : begin + D - i])
                begin += D - i
        else:
            torch.mul(x, x, out=psi[self.second])
        if further:
            torch.cat(tuple(further), out=psi[self.size :])
        return psi

    def quadratic(self, P: Tensor) -> Tensor:
        """Coefficients of xᵀP_jx for matrices (k × D × D), or for their diagonals (k × D)."""
        if not self.products:
            return P
        full = torch.diag_embed(P) if P.ndim == 2 else P
        i, j = torch.triu_indices(self.n_inputs, self.n_inputs, device=P.device)
        return full[:, i, j] * torch.where(i == j, 1.0, 2.0).to(P)

    def matrices(self, moments: Tensor) -> Tensor:
        """Second moments as symmetric matrices (k × D × D) from their part of the sums; needs `products`."""
        i, j = torch.triu_indices(self.n_inputs, self.n_inputs, device=moments.device)
        out = moments.new_empty(moments.shape[0], self.n_inputs, self.n_inputs)
        out[:, i, j] = moments
        out[:, j, i] = moments
        return out

    def squares(self, moments: Tensor) -> Tensor:
        """Second moments of each input by itself (k × D) from their part of the sums."""
        if not self.products:
            return moments
        i, j = torch.triu_indices(self.n_inputs, self.n_inputs, device=moments.device)
        return moments[:, i == j]
