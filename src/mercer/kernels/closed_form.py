"""What machine code must know of a kernel: its value as a function of one sum over the inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Values below are zeroes: the root of the smallest normal number of single precision.
LEAST = 2.0**-63


@dataclass(frozen=True)
class ClosedForm:
    r"""The value :math:`2^{-rb}(1 + lb + qb^2)`, b being a distance s or its root; s itself for a rate r of zero.

    `city_block` says that s is a sum of absolute differences; else it is a squared Euclidean distance.
    """

    rate: float
    root: bool = False
    linear: float = 0.0
    quadratic: float = 0.0
    city_block: bool = False

    def reach(self) -> float:
        """The b from which on the value is below `LEAST`, by bisection: it falls."""
        low, high = 0.0, 1e4 / self.rate
        for _ in range(100):
            b = 0.5 * (low + high)
            value = math.log2(1 + self.linear * b + self.quadratic * b * b) - self.rate * b
            low, high = (b, high) if value >= math.log2(LEAST) else (low, b)
        return low
