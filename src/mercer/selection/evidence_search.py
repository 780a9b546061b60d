"""Search for the kernel and the noise of largest exact evidence: starts, families, and a check of each maximum.

The model selection needs one proposal many times, from a few hundred rows: 1/ℓ of the length-scales of largest evidence
under a Matérn 3/2 process. `relevances` has it in closed form, with value and gradient from one factorisation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mercer.clock import Clock
from mercer.evidence.coordinates import Gradient, Point, length_scale_prior
from mercer.evidence.exact import left_out, log_evidence, radial_kernel
from mercer.evidence.lbfgs import climb
from mercer.kernels import Bias, Kernel, Scaled, Stationary, Sum
from mercer.linalg import minimize_lbfgs
from mercer.progress import report_step

#: Bounds of variance, bias and noise in units of the targets' variance, and the factor within which a length-scale
#: stays. The least noise of 1e-3 makes single precision sufficient, in half the time.
VARIANCES, BIASES, NOISES, REACH = (1e-5, 100.0), (1e-5, 10.0), (1e-3, 10.0), 1e3
#: Noise as a share of the kernel's variance from which rough searches are in single precision. With a tenth of it steps
#: go astray: ten inputs, five of which matter, have 1.08 times the error from 1000 rows.
SINGLE_PRECISION_NOISE = 1e-2
#: Prior standard deviation of the logarithms of length-scales around their mean. Without it a long step drops inputs
#: that matter, and the evidence is flat there: of 16 draws of 512 rows of pumadyn32nm, four of whose 32 inputs matter,
#: searches end 35 lower in the mean of the logarithm, and of 400 rows 72 lower.
PRIOR = 1.0
#: Length-scale at the start, in units of the inputs' norm, and steps at most.
START, ROUNDS = 0.5, 28
#: Least gain of a step, as a share of the evidence.
TOLERANCE = 1e-3
#: Share of the targets' variance above which noise is called noise, so that a fit cannot be white noise in disguise. A
#: search that ended in white noise starts again from this noise.
MOSTLY_NOISE = 0.5
#: Leave-one-out error, in units of the constant's, below which a fit predicts at all.
PREDICTS_BELOW = 0.999
#: Bounds of the noise as a share of the targets' variance. Less noise than this cannot be factored in float64.
NOISE_BOUNDS = (1e-8, 10.0)
#: Largest variance of the kernel in units of the targets' variance. A larger one, with long length-scales, is a
#: polynomial in effect: it gains next to nothing and costs digits of the kernel matrix.
LARGEST_VARIANCE = 1e3
#: Starts of the search: length-scales in typical distances, and noise. Targets that are mostly noise need a start with
#: much noise: with little noise, the shortest length-scale imitates the noise and wins.
STARTS = tuple(product((0.1, 0.3, 1.0, 3.0), (0.1, MOSTLY_NOISE)))
#: Least gain of a step, as a share of the evidence: in searches that compare families, and in those that others refine.
ROUGH, ROUGHER = 1e-6, 1e-4
#: Least gain of a step, in nats, in searches that start near their end. Smaller gains lead along ridges towards larger
#: variances and length-scales. Other searches need smaller steps to cross plateaus.
GAIN = 0.3
#: Least rise of eight evaluations, in nats, in rough searches: five times the rounding of single precision.
LEAST_RISE = 0.05
#: Rows of the subsample that provides starts, at least and for each input; a search needs twice as many rows for it.
SUBSAMPLED_ROWS, SUBSAMPLED_ROWS_PER_INPUT = 300, 16
#: Longest length-scale taken over from a subsample, in units of the shortest: longer ones have no gradient, so their
#: inputs would never come back. The bound holds for noise of this share of the kernel's variance, and grows where there
#: is less noise.
LONGEST, LONGEST_NOISE = 30.0, 0.1
#: Share of the constant's error above which a search from one length-scale has failed and is restarted.
FAILED_SHARE = 0.9
#: Difference in log evidence, in nats, that the end of a search does not explain.
DECISIVE_NATS = 30.0
#: Names of the variances that scale the whole kernel, in Scaled and in Sum(Scaled, Bias).
OUTER = ("variance", "left__variance", "right__variance")
#: Name of the length-scale in ``variance · radial + bias``.
LENGTH = "left__kernel__length_scale"


class Process(NamedTuple):
    """Centred targets `Y` of unit variance (n × p) at rows `X`, with weights and the group of each input.

    Inputs of one group share a length-scale.
    """

    X: Tensor
    Y: Tensor
    weight: Tensor
    group: Tensor

    def start(self, factor: float, noise: float) -> np.ndarray:
        """θ with equal length-scales of `factor` times the rows' norm."""
        norm = max(float(self.X.square().sum(1).mean().sqrt()), 1e-6)
        lengths = [math.log(factor * norm)] * (int(self.group.max()) + 1)
        return np.array([*lengths, 0.0, math.log(0.01), math.log(noise)])

    def evidence(self, theta: np.ndarray) -> tuple[float, np.ndarray, Tensor]:
        r"""−log p(Y) up to a constant, its gradient, and the leave-one-out residuals.

        θ holds logarithms of the length-scales, the variance v, the bias b and the noise σ². With
        :math:`C = v k + b + \sigma^2/w` and :math:`W = C^{-1}YY^T C^{-1} - p C^{-1}`, the derivative by a parameter is
        :math:`-\tfrac12 \sum W \circ \partial C`. For :math:`\ell_d` it is a sum of squared differences weighted by
        :math:`W \circ 3 v e^{-\sqrt3 r}`; two matrix products give it for all inputs.
        """
        at = torch.as_tensor(theta, dtype=self.X.dtype)
        A = self.X * (-at[:-3])[self.group].exp()
        v, b, noise = at[-3:].exp().tolist()
        norms = A.square().sum(1)
        r = torch.addmm(norms, A, A.T, alpha=-2).add_(norms[:, None]).clamp_(min=0).mul_(3)
        r.fill_diagonal_(0).sqrt_()
        decay = torch.exp(-r).mul_(v)
        K = r.add_(1).mul_(decay)  # v (1 + √3 r) exp(−√3 r)
        C = K + b
        C.diagonal().add_(noise / self.weight)
        L, info = torch.linalg.cholesky_ex(C)
        if int(info):
            return math.inf, np.zeros_like(theta), torch.full_like(self.Y, math.nan)
        p = self.Y.shape[1]
        inverse = torch.cholesky_inverse(L).mT  # LAPACK stores it by columns
        a, diagonal = inverse @ self.Y, inverse.diagonal().clone()
        value = 0.5 * float((a * self.Y).sum()) + p * float(L.diagonal().log().sum())
        W = inverse.mul_(-p).addmm_(a, a.T)
        S = decay.mul_(W)
        lengths = 6 * 0.5 * ((S.sum(1) @ A.square()) - (A * (S @ A)).sum(0))
        by_group = torch.zeros(len(at) - 3, dtype=A.dtype).index_add_(0, self.group, lengths)
        others = [K.flatten() @ W.flatten(), b * W.sum(), noise * (W.diagonal() / self.weight).sum()]
        gradient = -torch.cat([by_group, 0.5 * torch.stack(others)])
        return value, gradient.double().numpy(), a / diagonal[:, None]

    def objective(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """−log p(Y) less the logarithm of the prior on length-scales, and its gradient."""
        value, gradient, _ = self.evidence(theta)
        log_prior, slope = length_scale_prior(theta[:-3], PRIOR)
        gradient[:-3] -= slope
        return value - log_prior, gradient

    def maximise(self, theta: np.ndarray) -> np.ndarray:
        """A local maximum of evidence and prior from θ, after at most `ROUNDS` steps of L-BFGS."""
        reach = math.log(REACH)
        bounds = [(t - reach, t + reach) for t in theta[:-3]]
        bounds += [(math.log(low), math.log(high)) for low, high in (VARIANCES, BIASES, NOISES)]
        # `ROUNDS` was chosen for long first steps, which may go to the bounds
        found = minimize_lbfgs(
            self.objective, theta, bounds, short=False, maxiter=ROUNDS, maxfun=ROUNDS, ftol=TOLERANCE
        )
        return np.asarray(found.x)

    def is_not_white_noise(self, theta: np.ndarray) -> bool:
        """Whether θ calls its noise noise, or predicts left-out rows better than their mean does."""
        residual = self.evidence(theta)[2]
        error, constant = ((self.weight[:, None] * part.square()).sum() for part in (residual, self.Y))
        predicts = bool(error < PREDICTS_BELOW * constant) or not bool(constant)
        return bool(theta[-1] > math.log(MOSTLY_NOISE)) or predicts


def relevances(X: Tensor, Y: Tensor, weight: Tensor, group: Tensor | None = None) -> Tensor:
    """1/ℓ of each input, scaled to mean square one; inputs of one `group` (an index for each input) share it."""
    device = X.device
    X, Y, weight = (part.cpu() for part in (X, Y, weight))  # a CPU is faster for so few rows
    Y = Y - Y.mean(0)
    Y = Y / Y.square().mean().sqrt().clamp(min=1e-12)
    X, Y, weight = X.float(), Y.float(), weight.float()
    process = Process(X, Y, weight, torch.arange(X.shape[1]) if group is None else group.cpu())
    # short length-scales first: from long ones the search finds only some of the inputs that matter
    theta = process.maximise(process.start(START, 0.1))
    if not process.is_not_white_noise(theta):
        theta = process.maximise(process.start(10 * START, MOSTLY_NOISE))
    scale = torch.as_tensor(-theta[:-3]).exp()[process.group]
    return (scale * (len(scale) / scale.square().sum()).sqrt()).to(device)


class EvidenceSearch:
    """Search for the largest evidence of centred targets `Y` of unit variance on rows `X`."""

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
        self.X, self.Y, self.weight = X, Y, weight
        self.ard, self.max_iter, self.tol = ard, max_iter, tol
        self.n_evaluations, self.groups = 0, groups
        spread = X.std(0, correction=0).cpu().numpy()
        self.spread = np.where(spread > 0, spread, 1.0)

    def subsampled(self) -> EvidenceSearch | None:
        """The same search on a random subsample, with a rough tolerance; None if rows are too few for one."""
        n = min(max(SUBSAMPLED_ROWS, SUBSAMPLED_ROWS_PER_INPUT * self.X.shape[1]), len(self.X) // 2)
        if n < SUBSAMPLED_ROWS:
            return None
        index = torch.from_numpy(np.random.default_rng(0).permutation(len(self.X))[:n]).to(self.X.device)
        X, Y, weight = self.X[index], self.Y[index], self.weight[index]
        if not bool((Y.amax(0) > Y.amin(0)).all()):
            return None
        return EvidenceSearch(
            X, Y, weight / weight.mean(), self.ard, self.max_iter, ROUGH, self.noise_bounds[0], self.clock, self.groups
        )

    def maximise(
        self, kernel: Kernel, noise: float, ftol: float = 1e-8, gain: float = 0.0, beaten: float = -math.inf
    ) -> Point:
        """Maximise the evidence from this kernel and noise; a maximum that is white noise is not accepted.

        A kernel with length-scales below the distances between rows has the evidence of white noise: it calls most of
        the variance signal, but predicts left-out rows no better than their mean does. In this case the search is
        repeated from longer length-scales and more noise. If that fails too, the result is the constant.
        """
        found = self._local_maximum(kernel, noise, ftol, gain, beaten)
        if self._is_not_white_noise(found):
            return found
        longer = {name: self._longer(v) for name, v in kernel.tunable().items() if name.endswith("length_scale")}
        found = self._local_maximum(kernel.replaced(longer), MOSTLY_NOISE, ftol, gain, beaten)
        if self._is_not_white_noise(found):
            return found
        small = {name: 1e-3 for name in kernel.tunable() if name in ("variance", "left__variance")}
        constant = kernel.replaced(longer | small)
        return Point(constant, 1.0, value=self._value(constant, 1.0))

    def _longer(self, lengths: Any) -> Any:
        """Ten times these length-scales, but at least the typical distance between rows."""
        spread = self.spread if np.ndim(lengths) else math.sqrt(float(np.mean(self.spread**2)))
        return np.maximum(10 * np.asarray(lengths), spread * math.sqrt(self.X.shape[1]))

    def _is_not_white_noise(self, point: Point) -> bool:
        return point.noise > MOSTLY_NOISE or self._predicts(point, PREDICTS_BELOW)

    def _predicts(self, point: Point, share: float) -> bool:
        """Whether the leave-one-out error is below this share of the constant's."""
        self.n_evaluations += 1
        residual = left_out(point.kernel, point.noise, self.X, self.Y, self.weight) - self.Y
        error, constant = (float((self.weight[:, None] * r.square()).sum()) for r in (residual, self.Y))
        return error < share * constant or constant == 0

    def _local_maximum(
        self, kernel: Kernel, noise: float, ftol: float, gain: float, beaten: float = -math.inf
    ) -> Point:
        """A local maximum of the evidence; the search ends early if it cannot reach the value `beaten`."""
        found = climb(
            self._evidence, Point(kernel, noise, groups=self.groups), noise_bounds=self.noise_bounds,
            length_scale_prior=None, largest=dict.fromkeys(OUTER, LARGEST_VARIANCE),
            max_iter=self.max_iter, tol=ftol, gain=gain, beaten=beaten,
            least_rise=LEAST_RISE if self.tol >= ROUGH else 0.0, clock=self.clock,
            callback=lambda point: report_step("tuning", state=point),
        )  # fmt: skip
        if self.clock.interrupted:  # no model exists yet that could be kept
            raise KeyboardInterrupt
        if not math.isfinite(found.value):
            raise ValueError(f"the evidence of {kernel} must be a finite number somewhere near it")
        return found

    def _evidence(self, kernel: Kernel, noise: float, basis: None) -> Gradient:
        self.n_evaluations += 1
        radial = radial_kernel(kernel)
        if radial is None or self.tol < ROUGH or noise < SINGLE_PRECISION_NOISE * (radial[1] + radial[2]):
            return Gradient(*log_evidence(kernel, noise, self.X, self.Y, self.weight))
        return Gradient(*log_evidence(kernel, noise, *self._single_precision))

    @cached_property
    def _single_precision(self) -> tuple[Tensor, Tensor, Tensor]:
        return (self.X - self.X.mean(0)).float(), self.Y.float(), self.weight.float()

    def _value(self, kernel: Kernel, noise: float) -> float:
        return self._evidence(kernel, noise, None).value

    def radial(self, families: Sequence[type[Stationary]], near: dict[str, Point] | None = None) -> dict[str, Point]:
        """The best point of each family, smoothest first; each starts from the best point of the families before.

        If rows are many, a search on a subsample provides the starts, unless points `near` the best ones are known.
        Rougher families are skipped after two in a row have less evidence than a smoother one, or one has far less;
        the subsample alone may decide the latter.
        """
        subsampled = self.subsampled() if near is None else None
        near = {} if near is None else near
        decisive = DECISIVE_NATS
        if subsampled is not None:
            near = subsampled.radial(families)
            self.n_evaluations += subsampled.n_evaluations
            decisive *= len(subsampled.X) / len(self.X)  # log evidences grow with the rows
        first, *rougher = families
        best, best_name, n_worse = self._first(first, near.get(first.__name__)), first.__name__, 0
        found = {best_name: best}
        for family in rougher:
            name = family.__name__
            if name in near and near[name].value < max(point.value for point in near.values()) - decisive:
                break
            point = found[name] = self._next(family, best, near.get(best_name), near.get(name))
            if point.value > best.value:
                best, best_name, n_worse = point, name, 0
            else:
                n_worse += 1
            if n_worse == 2 or point.value < best.value - DECISIVE_NATS or self.clock.expired():
                break
        if (self.tol < ROUGH or (near and best_name != first.__name__)) and not self.clock.expired():
            gain = GAIN if self.tol >= ROUGH else 0.0
            found[best_name] = self.maximise(best.kernel, best.noise, min(self.tol, ROUGH), gain)
        return found

    def _first(self, family: type[Stationary], near: Point | None) -> Point:
        """The best point of the first family, with one length-scale per input if the evidence pays for them."""
        if near is not None and np.ndim(near.kernel.tunable()[LENGTH]):  # a subsample that pays for them is enough
            return self.maximise(bounded_lengths(near), near.noise, ROUGHER, GAIN)
        if near is None:
            at = self.isotropic(family)
        else:
            at = self.maximise(near.kernel, near.noise, ftol=self._isotropic_tolerance())
        wanted = self.ard is True or (self.ard == "auto" and self.X.shape[1] > 1)
        if not wanted or self.clock.expired():
            return at
        finer = self.continue_from(at, self.per_input(at), same_family=True)
        if not self._predicts(finer, FAILED_SHARE):
            finer = max(finer, self.restart(family), key=lambda point: point.value)
        n_scales = self.X.shape[1] if self.groups is None else len(np.unique(self.groups))
        # the evidence of every output pays for its length-scales
        price = 0.5 * self.Y.shape[1] * (n_scales - 1) * math.log(len(self.X))
        return finer if finer.value - at.value > price or self.ard is True else at

    def _next(self, family: type[Stationary], at: Point, near: Point | None, there: Point | None) -> Point:
        """The best point of another family, from `at`, the best so far.

        On a subsample the families of `at` and of this one ended in `near` and `there`. The start is `at`, changed by
        the ratio of their parameters.
        """
        kernel = at.kernel.replaced({"left__kernel": family(length_scale=at.kernel.tunable()[LENGTH])})
        shapes = {np.shape(point.kernel.tunable()[LENGTH]) for point in (at, near, there) if point is not None}
        if near is None or there is None or len(shapes) > 1:
            return self.continue_from(at, kernel)
        before, after = near.kernel.tunable(), there.kernel.tunable()
        values = {
            name: (np.asarray(value) * np.divide(after[name], before[name])).tolist()
            for name, value in at.kernel.tunable().items()
        }
        noise = float(np.clip(at.noise * there.noise / near.noise, *self.noise_bounds))
        return self.maximise(kernel.replaced(values), noise, ROUGHER, GAIN)

    def _isotropic_tolerance(self) -> float:
        """Tolerance of a search with one length-scale: rough if a search with one per input may follow."""
        return ROUGHER if self.ard is not False else 1e-8

    def isotropic(self, family: type[Stationary]) -> Point:
        """One length-scale for all inputs, from the best of a few starts."""
        typical = float(np.sqrt(np.mean(self.spread**2))) * family.typical_length(self.X.shape[1])
        starts = [(Sum(Scaled(family(length_scale=typical * f)), Bias(0.01)), noise) for f, noise in STARTS]
        values = [self._value(*start) for start in starts]
        return self.maximise(*starts[int(np.argmax(values))], ftol=self._isotropic_tolerance())

    def restart(self, family: type[Stationary]) -> Point:
        """One length-scale per input, from typical ones and much noise.

        If few of many inputs matter, one length-scale for all of them ends in noise, where nothing has a gradient.
        """
        lengths = self.spread * family.typical_length(self.X.shape[1])
        return self.maximise(Sum(Scaled(family(length_scale=lengths.tolist())), Bias(0.01)), MOSTLY_NOISE, ROUGH)

    def continue_from(self, at: Point, kernel: Kernel, same_family: bool = False) -> Point:
        """Maximise from `at` with another form of its kernel; another family that cannot come near is given up.

        A variance near zero has no gradient on a log scale, so it is raised first. A kernel of the `same_family`
        with more length-scales cannot be worse than `at`: if it ends lower, the search is repeated from `at` itself.
        """
        raised = {name: max(v, 1e-3) for name, v in kernel.tunable().items() if name.endswith("variance")}
        beaten = -math.inf if same_family else at.value - DECISIVE_NATS
        found = self.maximise(kernel.replaced(raised), max(at.noise, 1e-2), ROUGH, beaten=beaten)
        if not same_family or found.value >= at.value:
            return found
        return max(found, self.maximise(kernel, at.noise), key=lambda point: point.value)

    def per_input(self, at: Point) -> Kernel:
        """The same kernel with one length-scale per input, in proportion to the inputs' spread."""
        typical = math.sqrt(float(np.mean(self.spread**2)))
        lengths = at.kernel.tunable()[LENGTH] * self.spread / typical
        return at.kernel.replaced({LENGTH: lengths})

    def perturbed(self, best: Point, rng: np.random.Generator) -> Point:
        """Maximise from a random point near the best one, each parameter within a factor of ten."""
        tunable = best.kernel.tunable()
        values = {name: value * 10 ** rng.uniform(-1, 1, np.shape(value)) for name, value in tunable.items()}
        noise = float(np.clip(best.noise * 10 ** rng.uniform(-1, 1), *self.noise_bounds))
        return self.maximise(best.kernel.replaced(values), noise)


def bounded_lengths(point: Point) -> Kernel:
    """The kernel of a point, with length-scales bounded so that each keeps a gradient."""
    lengths, variance = (np.asarray(point.kernel.tunable()[name]) for name in (LENGTH, "left__variance"))
    longest = LONGEST * max(1.0, math.sqrt(LONGEST_NOISE * float(variance) / point.noise))
    return point.kernel.replaced({LENGTH: np.minimum(lengths, longest * lengths.min()).tolist()})
