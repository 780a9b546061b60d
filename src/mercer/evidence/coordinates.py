"""Points of a search, and their coordinates: logarithms of kernel parameters and noise, then inducing inputs.

`Point` and `Coordinates` serve every evidence: the full model has a kernel and a noise level, the model of classes a
kernel and inducing inputs, a sparse regression all three. The weak prior on length-scales belongs to the coordinates;
formulas of evidences are elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.clock import RUNNING, StopReason
from mercer.evidence.priors import ParameterPrior
from mercer.kernels import Kernel

#: A kernel parameter stays within this factor of the value it starts from.
PARAMETER_RANGE = 1e3
#: Prior standard deviation of the logarithms of length-scales around their mean. The evidence is flat in the
#: length-scale of an irrelevant input, and of two copies of an input it drops either. With this prior irrelevant inputs
#: rank last in ten of ten draws of Thesis09's table 5-3, without it in seven.
LENGTH_SCALE_PRIOR = 2.0
#: Least noise variance, for targets of unit variance, that tiles of a precision can resolve; and the largest one.
LEAST_NOISE = {torch.float32: 1e-6, torch.float64: 1e-8}
MOST_NOISE = 100.0
#: The parts of a point that a search may move.
EVERYTHING = frozenset({"kernel", "noise", "basis"})


@dataclass(frozen=True)
class Point:
    """A point of a search; `basis` is None for evidences without inducing inputs."""

    kernel: Kernel
    noise: float = 1.0
    basis: Tensor | None = None
    value: float = -math.inf
    n_iter: int = 0
    why: StopReason = RUNNING
    groups: np.ndarray | None = None  # of each input: those of one number share a length-scale
    priors: Mapping[str, ParameterPrior] = field(default_factory=dict)  # by parameter of the kernel, and "noise"


@dataclass(frozen=True)
class Gradient:
    """A value and its gradient in the kernel's parameters, the noise variance and the inducing inputs, if any."""

    value: Any
    by_parameter: dict[str, Tensor]
    by_noise: Any
    by_basis: Tensor | None = None

    def on_host(self) -> Gradient:
        """The same with value and noise as numbers and the rest on the CPU, in one transfer."""
        assert self.by_basis is not None  # evidences without inducing inputs are numbers on the host already
        parts = [self.value, self.by_noise, *self.by_parameter.values(), self.by_basis]
        flat = torch.cat([part.reshape(-1) for part in parts]).cpu()
        pieces = flat.split([part.numel() for part in parts])
        value, noise, *others, basis = (piece.view(part.shape) for piece, part in zip(pieces, parts, strict=True))
        return Gradient(float(value), dict(zip(self.by_parameter, others, strict=True)), float(noise), basis)


#: The objective of a search: a function of kernel, noise and inducing inputs.
Evidence = Callable[[Kernel, float, Any], Gradient]


def length_scale_prior(logarithms: np.ndarray, spread: float) -> tuple[float, np.ndarray]:
    """Log density, up to a constant, and its slope: logarithms of length-scales are N(their mean, spread²)."""
    apart = logarithms - logarithms.mean()
    return -0.5 * float(apart @ apart) / spread**2, -apart / spread**2


class Coordinates:
    """The free parameters of a point as one vector: logarithms, then inducing inputs in units of √m times their spread.

    All rows contribute to the curvature along a logarithm, only an mth part of them along an inducing input; the factor
    makes the curvatures alike, which saves L-BFGS most of its steps. `length_scale_prior` is the standard deviation of
    the logarithms of a kernel's length-scales around their mean (None: no prior). `largest` bounds parameters by name.
    """

    def __init__(
        self,
        start: Point,
        free: Collection[str] = EVERYTHING,
        noise_bounds: tuple[float, float] | None = None,
        length_scale_prior: float | None = LENGTH_SCALE_PRIOR,
        largest: Mapping[str, float] | None = None,
    ) -> None:
        self.start, self.free = start, frozenset(free) - (set() if start.basis is not None else {"basis"})
        tunable = start.kernel.tunable() if "kernel" in self.free else {}
        self.shapes = {name: np.shape(value) for name, value in tunable.items()}
        pieces = [np.log(np.asarray(value, dtype=float).ravel().clip(1e-12)) for value in tunable.values()]
        self.edges = np.cumsum([piece.size for piece in pieces]).astype(int)
        self.n_kernel = int(self.edges[-1]) if pieces else 0
        reach = math.log(PARAMETER_RANGE)
        low = [piece - reach for piece in pieces]
        ends = [math.log((largest or {}).get(name, math.inf)) for name in self.shapes]
        high = [np.minimum(least + 2 * reach, end).clip(least) for least, end in zip(low, ends, strict=True)]
        if "noise" in self.free:
            dtype = torch.float64 if start.basis is None else start.basis.dtype
            least, most = (LEAST_NOISE[dtype], MOST_NOISE) if noise_bounds is None else noise_bounds
            pieces.append(np.log([min(max(start.noise, least), most)]))
            low.append(np.log([least]))
            high.append(np.log([most]))
        self.n_log = sum(piece.size for piece in pieces)
        self.unit: Any = 1.0
        self.spread: np.ndarray | None = None
        if start.basis is not None:
            basis = start.basis.double().cpu().numpy()
            spread = basis.std(0)
            self.spread = np.where(spread > 0, spread, 1.0)
            if "basis" in self.free:
                self.unit = self.spread * math.sqrt(len(basis))
                pieces.append((basis / self.unit).ravel())
                low.append(np.full(basis.size, -np.inf))
                high.append(np.full(basis.size, np.inf))
        self.vector, self.low, self.high = (
            np.concatenate(side) if side else np.empty(0) for side in (pieces, low, high)
        )
        self.vector = self.vector.clip(self.low, self.high)
        self.prior_spread = length_scale_prior
        sizes = np.diff([0, *self.edges])
        self.places = {name: slice(end - n, end) for name, end, n in zip(self.shapes, self.edges, sizes, strict=True)}
        self.scales = [  # slices of the logarithms of length-scales of kernels with one per input
            where
            for name, where in self.places.items()
            if where.stop - where.start > 1 and name.endswith("length_scale")
        ]
        if "noise" in self.free:
            self.places["noise"] = slice(self.n_kernel, self.n_kernel + 1)
        for scales in self.scales:
            for side in (self.vector, self.low, self.high):
                side[scales] = self._shared(side[scales])

    def _shared(self, values: np.ndarray) -> np.ndarray:
        """Average numbers over the inputs that share a length-scale, so that equal ones stay equal."""
        groups = self.start.groups
        if groups is None or len(groups) != len(values):
            return values
        return (np.bincount(groups, weights=values) / np.maximum(np.bincount(groups), 1))[groups]

    @property
    def bounds(self) -> list[tuple[float, float]]:
        return list(zip(self.low.tolist(), self.high.tolist(), strict=True))

    def prior(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Log density, up to a constant, and slope of all priors.

        Logarithms of length-scales are N(their mean, spread²); parameters with a prior of their own have that as well.
        """
        value, slope = 0.0, np.zeros_like(x)
        if self.prior_spread is not None:
            for scales in self.scales:
                log_density, slope[scales] = length_scale_prior(x[scales], self.prior_spread)
                value += log_density
        for name, where in self.places.items():
            if name in self.start.priors:
                log_densities, slopes = self.start.priors[name].at(x[where])
                value += float(log_densities.sum())
                slope[where] += slopes
        return value, slope

    def shortened(self, x: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """Steps along the coordinates at `x`, made shorter where a length-scale exceeds the inducing inputs' spread.

        Its own step is then that of its logarithm at a length-scale as long as the spread.
        """
        steps = steps.copy()
        for scales in self.scales if self.spread is not None else ():
            steps[scales] *= np.minimum(self.spread / np.exp(x[scales]), 1.0)
        return steps

    def point(self, x: np.ndarray) -> Point:
        """The point at a vector."""
        pieces = np.split(np.exp(x[: self.n_kernel]), self.edges[:-1]) if self.shapes else []
        new = {name: v.reshape(shape) for (name, shape), v in zip(self.shapes.items(), pieces, strict=True)}
        kernel = self.start.kernel.replaced({k: v.item() if v.ndim == 0 else v.tolist() for k, v in new.items()})
        noise = math.exp(x[self.n_kernel]) if "noise" in self.free else self.start.noise
        basis = self.start.basis
        if "basis" in self.free and basis is not None:
            basis = torch.as_tensor(x[self.n_log :].reshape(tuple(basis.shape)) * self.unit).to(basis)
        return Point(kernel, noise, basis, groups=self.start.groups, priors=self.start.priors)

    def evaluated(self, evidence: Evidence, x: np.ndarray) -> tuple[float, float, np.ndarray] | None:
        """Evidence, the same with the prior, and the latter's slope at a vector.

        None where they are not finite, or a kernel matrix cannot be factored.
        """
        here = self.point(x)
        try:
            gradient = evidence(here.kernel, here.noise, here.basis)
        except ValueError:
            return None
        prior, pull = self.prior(x)
        slope = self._slope(x, gradient) + pull
        finite = math.isfinite(gradient.value) and bool(np.isfinite(slope).all())
        return (gradient.value, gradient.value + prior, slope) if finite else None

    def _slope(self, x: np.ndarray, gradient: Gradient) -> np.ndarray:
        pieces = [gradient.by_parameter[name].reshape(-1).cpu().numpy() for name in self.shapes]
        if "noise" in self.free:
            pieces.append(np.array([gradient.by_noise]))
        slope = np.concatenate(pieces) * np.exp(x[: self.n_log]) if pieces else np.empty(0)  # d/dlogθ = θ d/dθ
        for scales in self.scales:
            slope[scales] = self._shared(slope[scales])
        if "basis" not in self.free or gradient.by_basis is None:
            return slope
        return np.concatenate([slope, (gradient.by_basis.cpu().numpy() * self.unit).ravel()])
