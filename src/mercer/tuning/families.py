"""Climbing the evidence: L-BFGS over the logarithms of kernel parameters and noise, from good starts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from mercer.evidence.exact import log_evidence
from mercer.kernels import Bias, Kernel, Scaled, Stationary, Sum
from mercer.linalg import minimize_lbfgs

#: Noise variance as a share of the targets' variance: never below what float64 can factor.
NOISE_BOUNDS = (1e-8, 10.0)
#: Any other positive parameter stays within this factor of the value it starts from.
PARAMETER_RANGE = 1e3
#: The share of the evidence below which a step ends the climbs that compare families.
ROUGH = 1e-6
#: Where the length-scale stands in the form ``variance · radial + bias`` that this file builds.
LENGTH = "left__kernel__length_scale"


@dataclass(frozen=True)
class Point:
    """A kernel with plain parameters, a noise level and their log evidence."""

    kernel: Kernel
    noise: float
    value: float


class Search:
    """Maximise the evidence of centred targets `Y` of unit variance on rows `X`."""

    def __init__(
        self,
        X: Tensor,
        Y: Tensor,
        weight: Tensor,
        ard: bool | str,
        max_iter: int,
        tol: float = 1e-10,
        least_noise: float = NOISE_BOUNDS[0],
    ) -> None:
        self.noise_bounds = least_noise, NOISE_BOUNDS[1]
        self.X, self.Y, self.weight, self.ard, self.max_iter, self.tol = X, Y, weight, ard, max_iter, tol
        self.n_evaluations = 0
        spread = X.std(0, correction=0).cpu().numpy()
        self.spread = np.where(spread > 0, spread, 1.0)

    def climb(self, kernel: Kernel, noise: float, ftol: float = 1e-8) -> Point:
        """From this kernel and noise to a local maximum of the evidence."""
        shapes = {name: np.shape(value) for name, value in kernel.tunable().items()}
        values = [np.atleast_1d(value) for value in kernel.tunable().values()]
        theta = np.log(np.concatenate([*values, [noise]]).astype(float).clip(1e-12))
        reach = math.log(PARAMETER_RANGE)
        bounds = [(t - reach, t + reach) for t in theta[:-1]] + [tuple(np.log(self.noise_bounds))]
        edges = np.cumsum([v.size for v in values])[:-1]

        def at(theta: np.ndarray) -> tuple[Kernel, float]:
            pieces = np.split(np.exp(theta[:-1]), edges) if values else []
            new = {name: p.reshape(shape) for (name, shape), p in zip(shapes.items(), pieces, strict=True)}
            return kernel.replaced({k: v.item() if v.ndim == 0 else v for k, v in new.items()}), math.exp(theta[-1])

        def negative(theta: np.ndarray) -> tuple[float, np.ndarray]:
            here, sigma2 = at(theta)
            self.n_evaluations += 1
            value, by_parameter, by_noise = log_evidence(here, sigma2, self.X, self.Y, self.weight)
            gradient = [by_parameter[name].reshape(-1).cpu().numpy() for name in shapes]
            return -value, -np.concatenate([*gradient, [by_noise]]) * np.exp(theta)  # d/dlogθ = θ d/dθ

        found = minimize_lbfgs(negative, theta, bounds, maxiter=self.max_iter, ftol=ftol)
        return Point(*at(found.x), value=-float(found.fun))

    def radial(self, families: Sequence[type[Stationary]]) -> dict[str, Point]:
        """The best point of each family, smoothest first; each family starts where the one before it ended.

        Once a rougher family has less evidence than a smoother one, still rougher ones are not tried.
        """
        at = self.isotropic(families[0])
        if self.ard is True or (self.ard == "auto" and self.X.shape[1] > 1):
            finer = self.onward(self.per_input(at), at, same=True)
            n, D = self.X.shape
            pays = finer.value - at.value > 0.5 * (D - 1) * math.log(n)
            at = finer if pays or self.ard is True else at
        found = {families[0].__name__: at}
        for family in families[1:]:
            moved = at.kernel.replaced({"left__kernel": family(length_scale=at.kernel.tunable()[LENGTH])})
            best, at = at.value, self.onward(moved, at)
            found[family.__name__] = at
            if at.value < best:
                break
        best_name = max(found, key=lambda name: found[name].value)
        if self.tol < ROUGH:
            found[best_name] = self.climb(found[best_name].kernel, found[best_name].noise, ftol=self.tol)
        return found

    def isotropic(self, family: type[Stationary]) -> Point:
        """One length-scale for all inputs, from the best of a few starting values."""
        typical = float(np.sqrt(np.mean(self.spread**2))) * family.typical_length(self.X.shape[1])
        starts = [Sum(Scaled(family(length_scale=typical * f)), Bias(0.01)) for f in (0.1, 0.3, 1.0, 3.0)]
        values = [log_evidence(kernel, 0.1, self.X, self.Y, self.weight)[0] for kernel in starts]
        self.n_evaluations += len(starts)
        rough = self.ard is not False  # what follows refines it
        return self.climb(starts[int(np.argmax(values))], 0.1, ftol=1e-4 if rough else 1e-8)

    def onward(self, kernel: Kernel, at: Point, same: bool = False) -> Point:
        """Climb on from `at` with another form of its kernel.

        A variance that the last climb left near zero has no slope on a log scale, so it starts anew. If the form
        is the `same`, only with more length-scales, and that ends lower, the search goes on from there after all.
        """
        lifted = {name: max(v, 1e-3) for name, v in kernel.tunable().items() if name.endswith("variance")}
        found = self.climb(kernel.replaced(lifted), max(at.noise, 1e-2), ftol=ROUGH)
        if not same or found.value >= at.value:
            return found
        return max(found, self.climb(kernel, at.noise), key=lambda point: point.value)

    def per_input(self, at: Point) -> Kernel:
        """The same kernel with one length-scale per input, in proportion to the inputs' spread."""
        typical = math.sqrt(float(np.mean(self.spread**2)))
        lengths = at.kernel.tunable()[LENGTH] * self.spread / typical
        return at.kernel.replaced({LENGTH: lengths})

    def perturbed(self, best: Point, rng: Any) -> Point:
        """Climb from a random point around the best one: each parameter within a factor of ten."""
        tunable = best.kernel.tunable()
        values = {name: value * 10 ** rng.uniform(-1, 1, np.shape(value)) for name, value in tunable.items()}
        noise = float(np.clip(best.noise * 10 ** rng.uniform(-1, 1), *self.noise_bounds))
        return self.climb(best.kernel.replaced(values), noise)
