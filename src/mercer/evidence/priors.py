"""Priors of kernel parameters and of the noise variance, by name; a search adds their log densities to the evidence."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from mercer.kernels import Bias, Kernel
from mercer.parts import require


def _gamma(x: np.ndarray, shape: float, rate: float) -> tuple[np.ndarray, np.ndarray]:
    scaled = rate * np.exp(x)
    return (shape - 1) * x - scaled, shape - 1 - scaled


def _inverse_gamma(x: np.ndarray, shape: float, scale: float) -> tuple[np.ndarray, np.ndarray]:
    scaled = scale * np.exp(-x)
    return -(shape + 1) * x - scaled, scaled - shape - 1


def _log_normal(x: np.ndarray, mean: float, std: float) -> tuple[np.ndarray, np.ndarray]:
    z = (x - mean) / std
    return -x - 0.5 * z**2, -1 - z / std


def _half_normal(x: np.ndarray, std: float) -> tuple[np.ndarray, np.ndarray]:
    square = (np.exp(x) / std) ** 2
    return -0.5 * square, -square


#: Log densities of θ up to a constant, and their slopes in x = log θ, by name; with the number of their parameters.
FAMILIES: dict[str, tuple[Callable[..., tuple[np.ndarray, np.ndarray]], int]] = {
    "gamma": (_gamma, 2),
    "inverse_gamma": (_inverse_gamma, 2),
    "lognormal": (_log_normal, 2),
    "half_normal": (_half_normal, 1),
}


@dataclass(frozen=True)
class ParameterPrior:
    """The prior of a parameter θ > 0: gamma(shape, rate), inverse_gamma(shape, scale), lognormal or half_normal."""

    family: str
    numbers: tuple[float, ...]

    def at(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log densities of θ = exp(x), up to a constant, and their slopes in x."""
        return FAMILIES[self.family][0](x, *self.numbers)

    @staticmethod
    def is_one(value: Any) -> bool:
        """Whether a value is a name and its parameters, such as ("gamma", 3.0, 6.0)."""
        if not isinstance(value, tuple | list) or len(value) == 0 or value[0] not in list(FAMILIES):
            return False
        name, *numbers = value
        finite = all(isinstance(v, Real) and not isinstance(v, bool) and math.isfinite(v) for v in numbers)
        positive = finite and all(v > 0 for v in (numbers[1:] if name == "lognormal" else numbers))
        return positive and len(numbers) == FAMILIES[name][1]


def resolve_priors(given: Mapping[str, Any] | None, kernel: Kernel, noisy: bool) -> dict[str, ParameterPrior]:
    """Priors by the names of a kernel's parameters, and by "noise".

    "length_scale" or "variance" is the prior of all parameters of this name but the variance of a constant; a full
    name, such as "left__kernel__length_scale", is that of one.
    """
    names = [*kernel.tunable(), *(["noise"] if noisy else [])]
    found: dict[str, ParameterPrior] = {}
    for key, (family, *numbers) in (given or {}).items():
        matching = [key] if key in names else [name for name in names if _ends(kernel, name, key)]
        known = sorted({name.split("__")[-1] for name in names} | set(names))
        require(len(matching) > 0, "priors", f"for parameters of the model, {known}", key)
        found |= dict.fromkeys(matching, ParameterPrior(family, tuple(map(float, numbers))))
    return found


def _ends(kernel: Kernel, name: str, key: str) -> bool:
    *path, last = name.split("__")
    holder: Any = kernel
    for part in path:
        holder = getattr(holder, part)
    return last == key and not isinstance(holder, Bias)
