"""The grid of kernels and penalties that the selection moves on."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from mercer.kernels import Gaussian, Kernel, Laplacian, Linear, Matern12, Matern32

#: Kernel families. Those that learn metrics come first: a family far behind an earlier one is not tuned.
FAMILIES: dict[str, Kernel] = {
    "matern32": Matern32(), "matern12": Matern12(), "cityblock": Laplacian(), "gaussian": Gaussian(),
    "linear": Linear(),
}  # fmt: skip
#: Families that are scored with the evidence's metric.
ROUGH_FAMILIES = ("matern32", "matern12", "cityblock")
#: Penalties λ of a kernel of unit variance: every half decade.
PENALTIES = tuple(10.0 ** (k / 2) for k in range(-12, 2))
#: The middle length-scale of each family, in typical distances; steps are factors of two.
LENGTHS = {"gaussian": 0.8, "matern32": 1.4, "matern12": 5.6, "cityblock": 1.4, "linear": 1.0}
#: Steps of the length-scale that the first stage tries, and steps at most in either direction.
FIRST_LENGTHS, MOST_STEPS = (-1, 0, 1), 3
#: Penalties down to which kernel matrices are made and factored in single precision. Smooth families have smaller
#: eigenvalues.
SINGLE_PRECISION, SINGLE_PRECISION_SMOOTH = 2e-5, 0.9e-4


@dataclass(frozen=True)
class GridPoint:
    """A family with a length-scale and a penalty, as steps on the grid.

    `factor` is the length-scale in typical distances, `lam` the penalty, `dtype` the precision of kernel matrices.
    """

    family: str
    length: int
    penalty: int
    factor: float = field(init=False, compare=False)
    lam: float = field(init=False, compare=False)
    dtype: torch.dtype = field(init=False, compare=False)

    def __post_init__(self) -> None:
        place = min(max(self.penalty, 0), len(PENALTIES) - 1)  # a point outside the grid is never scored
        lam = PENALTIES[place]
        least = SINGLE_PRECISION_SMOOTH if self.family in ("gaussian", "linear") else SINGLE_PRECISION
        object.__setattr__(self, "factor", LENGTHS[self.family] * 2.0**self.length)
        object.__setattr__(self, "lam", lam)
        object.__setattr__(self, "dtype", torch.float32 if lam >= least else torch.float64)

    @classmethod
    def near(cls, family: str, factor: float, lam: float) -> GridPoint:
        """The point next to a length-scale, in typical distances, and a penalty."""
        length = round(math.log2(factor / LENGTHS[family]))
        penalty = min(range(len(PENALTIES)), key=lambda k: abs(math.log(PENALTIES[k] / lam)))
        return cls(family, min(max(length, -MOST_STEPS), MOST_STEPS), penalty)

    @property
    def inside(self) -> bool:
        """Whether the point lies on the grid."""
        return 0 <= self.penalty < len(PENALTIES) and abs(self.length) <= MOST_STEPS

    def moved(self, by_length: int, by_penalty: int) -> GridPoint:
        """The point some steps away, which may lie outside the grid."""
        return GridPoint(self.family, self.length + by_length, self.penalty + by_penalty)

    def with_penalty_moved(self, by_penalty: int) -> GridPoint:
        """The same length-scale with another penalty, as far as the grid goes."""
        return GridPoint(self.family, self.length, min(max(self.penalty + by_penalty, 0), len(PENALTIES) - 1))
