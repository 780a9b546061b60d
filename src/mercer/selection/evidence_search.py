"""Which starts and families the exact evidence is climbed from, and what a climb must not end in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.clock import Clock
from mercer.evidence.coordinates import Gradient, Point
from mercer.evidence.exact import left_out, log_evidence
from mercer.evidence.lbfgs import climb
from mercer.kernels import Bias, Kernel, Scaled, Stationary, Sum
from mercer.progress import report_step

#: Noise variance as a share of the targets' variance: never below what float64 can factor.
NOISE_BOUNDS = (1e-8, 10.0)
#: The largest variance of the kernel, of unit variance of the targets. Length-scales of a hundred spreads and a
#: variance of a million are a polynomial by another name; a thousand is as good (one part in a thousand of the
#: evidence on friedman1, no digit of R²) and leaves three digits more to tiles.
LARGEST_VARIANCE = 1e3
#: Where searches start: length-scales, of the typical distance, and noise. At a single small noise the shortest
#: length-scale wins wherever the targets are mostly noise, because a diagonal kernel stands in for it.
STARTS = tuple(product((0.1, 0.3, 1.0, 3.0), (0.1, 0.6)))
#: The share of the evidence below which a step ends the climbs that compare families, and those that others go on from.
ROUGH, ROUGHER = 1e-6, 1e-4
#: What a step gains at least, in nats, in climbs that start near their end: elsewhere plateaus are crossed by smaller
#: steps. Less is no evidence of anything, and leads along ridges towards larger variances and length-scales: with 0.02
#: errors of noisy friedman1 were a tenth higher.
GAIN = 0.3
#: Rows that show where a search on twice as many or more starts, at least and for each input.
FEW_ROWS, FEW_ROWS_PER_INPUT = 300, 16
#: Of few rows a length-scale is at most this many times the shortest: without a slope its input would never come back.
#: It is meant for noise of this share of the kernel's variance: an input moves values by the variance times the square
#: of its share of the distance, so with less noise longer length-scales have as much of a slope.
LONGEST, LONGEST_NOISE = 30.0, 0.1
#: The share of a constant's error from which on what a shared length-scale led to has failed, and the search for one
#: of each input starts anew, with this much noise.
FAILED, MUCH_NOISE = 0.9, 0.6
#: A family of so much less log evidence than a smoother one is no accident of where its climb ended.
CLEARLY = 30.0
#: The variances that scale the whole kernel, of Scaled and of Sum(Scaled, Bias).
OUTER = ("variance", "left__variance", "right__variance")
#: Where the length-scale stands in the form ``variance · radial + bias`` that this file builds.
LENGTH = "left__kernel__length_scale"


class EvidenceSearch:
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
        clock: Clock | None = None,
        groups: np.ndarray | None = None,
    ) -> None:
        self.clock = Clock() if clock is None else clock
        self.noise_bounds = least_noise, NOISE_BOUNDS[1]
        self.X, self.Y, self.weight, self.ard, self.max_iter, self.tol = X, Y, weight, ard, max_iter, tol
        self.n_evaluations, self.groups = 0, groups
        spread = X.std(0, correction=0).cpu().numpy()
        self.spread = np.where(spread > 0, spread, 1.0)

    def few(self) -> EvidenceSearch | None:
        """The same search on some of the rows, roughly; None where they are few already."""
        n = min(max(FEW_ROWS, FEW_ROWS_PER_INPUT * self.X.shape[1]), len(self.X) // 2)
        if n < FEW_ROWS:
            return None
        some = torch.from_numpy(np.random.default_rng(0).permutation(len(self.X))[:n]).to(self.X.device)
        Y, weight = self.Y[some], self.weight[some]
        if not bool((Y.amax(0) > Y.amin(0)).all()):
            return None
        return EvidenceSearch(
            self.X[some], Y, weight / weight.mean(), self.ard, self.max_iter, ROUGH, self.noise_bounds[0], self.clock,
            self.groups,
        )  # fmt: skip

    def climb(
        self, kernel: Kernel, noise: float, ftol: float = 1e-8, gain: float = 0.0, beaten: float = -math.inf
    ) -> Point:
        """From this kernel and noise to a local maximum of the evidence that is no white noise in disguise.

        A kernel so short that rows know nothing of each other has the evidence of a constant: it is told by the rows
        left out, which it predicts no better than their mean although it calls most of their variance signal. Then
        the search starts again from longer length-scales and more noise, and ends as the constant if that fails too.
        """
        found = self._ascend(kernel, noise, ftol, gain, beaten)
        if self._honest(found):
            return found
        longer = {name: self._long(v) for name, v in kernel.tunable().items() if name.endswith("length_scale")}
        again = self._ascend(kernel.replaced(longer), MUCH_NOISE, ftol, gain, beaten)
        if self._honest(again):
            return again
        small = {name: 1e-3 for name in kernel.tunable() if name in ("variance", "left__variance")}
        constant = kernel.replaced(longer | small)
        return Point(constant, 1.0, value=self._value(constant, 1.0))

    def _long(self, lengths: Any) -> Any:
        """Ten times these length-scales, and at least the distances between rows."""
        spread = self.spread if np.ndim(lengths) else math.sqrt(float(np.mean(self.spread**2)))
        return np.maximum(10 * np.asarray(lengths), spread * math.sqrt(self.X.shape[1]))

    def _honest(self, point: Point) -> bool:
        return point.noise > 0.5 or self._predicts(point, 0.999)

    def _predicts(self, point: Point, share: float) -> bool:
        """Whether the rows, each left out in turn, are predicted with less than this share of the constant's error."""
        self.n_evaluations += 1
        error = left_out(point.kernel, point.noise, self.X, self.Y, self.weight) - self.Y
        mine, constant = (float((self.weight[:, None] * r.square()).sum()) for r in (error, self.Y))
        return mine < share * constant or constant == 0

    def _ascend(self, kernel: Kernel, noise: float, ftol: float, gain: float, beaten: float = -math.inf) -> Point:
        """A local maximum of the evidence, or a point on the way to one that would not reach `beaten`."""
        found = climb(
            self._evidence, Point(kernel, noise, groups=self.groups), noise_bounds=self.noise_bounds,
            length_scale_prior=None, largest=dict.fromkeys(OUTER, LARGEST_VARIANCE),
            max_iter=self.max_iter, tol=ftol, gain=gain, beaten=beaten, clock=self.clock,
            callback=lambda point: report_step("tuning", state=point),
        )  # fmt: skip
        if self.clock.interrupted:  # there is no model yet that could be kept
            raise KeyboardInterrupt
        if not math.isfinite(found.value):
            raise ValueError(f"the evidence of {kernel} must be a finite number somewhere near it")
        return found

    def _evidence(self, kernel: Kernel, noise: float, basis: None) -> Gradient:
        self.n_evaluations += 1
        return Gradient(*log_evidence(kernel, noise, self.X, self.Y, self.weight))

    def _value(self, kernel: Kernel, noise: float) -> float:
        return self._evidence(kernel, noise, None).value

    def radial(self, families: Sequence[type[Stationary]]) -> dict[str, Point]:
        """The best point of each family, smoothest first; each family starts where the best before it ended.

        Where there are many rows, few of them show where to start: with what they take for the best of each family.
        Once two rougher families in a row have less evidence than a smoother one, or one has far less (on few rows is
        enough), still rougher ones are not tried.
        """
        few = self.few()
        near = {} if few is None else few.radial(families)
        self.n_evaluations += 0 if few is None else few.n_evaluations
        first, *others = families
        at = self._first(first, near.get(first.__name__))
        found, worse, best_name = {first.__name__: at}, 0, first.__name__
        clearly = CLEARLY if few is None else CLEARLY * len(few.X) / len(self.X)  # evidences grow with their rows
        for family in others:
            name = family.__name__
            if name in near and near[name].value < max(point.value for point in near.values()) - clearly:
                break
            found[name] = here = self._next(family, at, near.get(best_name), near.get(name))
            (at, best_name, worse) = (here, name, 0) if here.value > at.value else (at, best_name, worse + 1)
            if worse == 2 or here.value < at.value - CLEARLY or self.clock.expired():
                break
        if (self.tol < ROUGH or (near and best_name != first.__name__)) and not self.clock.expired():
            found[best_name] = self.climb(at.kernel, at.noise, min(self.tol, ROUGH), GAIN if self.tol >= ROUGH else 0.0)
        return found

    def _first(self, family: type[Stationary], near: Point | None) -> Point:
        """The best point of the first family, with one length-scale for each input where that pays."""
        if near is not None and np.ndim(near.kernel.tunable()[LENGTH]):
            return self.climb(_sloping(near), near.noise, ROUGHER, GAIN)  # what pays on few rows pays on more
        at = self.isotropic(family) if near is None else self.climb(near.kernel, near.noise, ftol=self._before_more())
        if (self.ard is True or (self.ard == "auto" and self.X.shape[1] > 1)) and not self.clock.expired():
            finer = self.onward(self.per_input(at), at, same=True)
            if not self._predicts(finer, FAILED):
                finer = max(finer, self._anew(family), key=lambda point: point.value)
            (n, D), outputs = self.X.shape, self.Y.shape[1]
            scales = D if self.groups is None else len(np.unique(self.groups))
            # every output adds its evidence, so every one pays for the length-scales
            pays = finer.value - at.value > 0.5 * outputs * (scales - 1) * math.log(n)
            at = finer if pays or self.ard is True else at
        return at

    def _next(self, family: type[Stationary], at: Point, near: Point | None, there: Point | None) -> Point:
        """About the best point of another family: from the best so far, changed as few rows changed it, if they did."""
        lengths = at.kernel.tunable()[LENGTH]
        moved = at.kernel.replaced({"left__kernel": family(length_scale=lengths)})
        shapes = {np.shape(one.kernel.tunable()[LENGTH]) for one in (at, near, there) if one is not None}
        if near is None or there is None or len(shapes) > 1:
            return self.onward(moved, at)
        values = at.kernel.tunable().items()
        before, after = near.kernel.tunable(), there.kernel.tunable()
        changed = {name: np.asarray(v) * np.divide(after[name], before[name]) for name, v in values}
        noise = float(np.clip(at.noise * there.noise / near.noise, *self.noise_bounds))
        return self.climb(moved.replaced({k: v.tolist() for k, v in changed.items()}), noise, ROUGHER, GAIN)

    def _before_more(self) -> float:
        """How far one length-scale for all inputs is climbed: what may follow refines it."""
        return ROUGHER if self.ard is not False else 1e-8

    def isotropic(self, family: type[Stationary]) -> Point:
        """One length-scale for all inputs, from the best of a few starting values."""
        typical = float(np.sqrt(np.mean(self.spread**2))) * family.typical_length(self.X.shape[1])
        starts = [(Sum(Scaled(family(length_scale=typical * f)), Bias(0.01)), noise) for f, noise in STARTS]
        values = [self._value(*start) for start in starts]
        return self.climb(*starts[int(np.argmax(values))], ftol=self._before_more())

    def _anew(self, family: type[Stationary]) -> Point:
        """One length-scale for each input, from typical ones and much noise: where few of many inputs matter, one for
        all of them sees the others' noise alone, and ends where nothing has a slope."""
        lengths = self.spread * family.typical_length(self.X.shape[1])
        return self.climb(Sum(Scaled(family(length_scale=lengths.tolist())), Bias(0.01)), MUCH_NOISE, ROUGH)

    def onward(self, kernel: Kernel, at: Point, same: bool = False) -> Point:
        """Climb on from `at` with another form of its kernel; another family that cannot come near it is given up.

        A variance that the last climb left near zero has no slope on a log scale, so it starts anew. If the form
        is the `same`, only with more length-scales, and that ends lower, the search goes on from there after all.
        """
        lifted = {name: max(v, 1e-3) for name, v in kernel.tunable().items() if name.endswith("variance")}
        beaten = -math.inf if same else at.value - CLEARLY
        found = self.climb(kernel.replaced(lifted), max(at.noise, 1e-2), ROUGH, beaten=beaten)
        if not same or found.value >= at.value:
            return found
        return max(found, self.climb(kernel, at.noise), key=lambda point: point.value)

    def per_input(self, at: Point) -> Kernel:
        """The same kernel with one length-scale per input, in proportion to the inputs' spread."""
        typical = math.sqrt(float(np.mean(self.spread**2)))
        lengths = at.kernel.tunable()[LENGTH] * self.spread / typical
        return at.kernel.replaced({LENGTH: lengths})

    def perturbed(self, best: Point, rng: np.random.Generator) -> Point:
        """Climb from a random point around the best one: each parameter within a factor of ten."""
        tunable = best.kernel.tunable()
        values = {name: value * 10 ** rng.uniform(-1, 1, np.shape(value)) for name, value in tunable.items()}
        noise = float(np.clip(best.noise * 10 ** rng.uniform(-1, 1), *self.noise_bounds))
        return self.climb(best.kernel.replaced(values), noise)


def _sloping(point: Point) -> Kernel:
    """The kernel of a point with no length-scale so long that its input could not come back."""
    lengths, variance = (np.asarray(point.kernel.tunable()[name]) for name in (LENGTH, "left__variance"))
    longest = LONGEST * max(1.0, math.sqrt(LONGEST_NOISE * float(variance) / point.noise))
    return point.kernel.replaced({LENGTH: np.minimum(lengths, longest * lengths.min()).tolist()})
