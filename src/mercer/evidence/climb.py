"""Climbing an evidence: L-BFGS over the logarithms of kernel parameters and noise, and over the inducing inputs.

What is climbed is a function of (kernel, noise, basis) that returns a `Gradient`; this file knows no formula of it. It
adds a weak prior over length-scales, which many rows outweigh.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.engine import Plan
from mercer.evidence.inducing import Gradient
from mercer.kernels import Kernel
from mercer.linalg import minimize_lbfgs

#: What is climbed: kernel, noise and inducing inputs to a value and its gradient.
Evidence = Callable[[Kernel, float, Tensor], Gradient]
#: A kernel parameter stays within this factor of the value it starts from.
PARAMETER_RANGE = 1e3
#: Standard deviation, before any data, of the logarithms of length-scales around their mean. An evidence does not care
#: whether an input that is not needed has a length-scale of a hundred or a million, and of two copies of an input
#: drops either one: with this prior, noise comes last in ten of ten draws of Thesis09's table 5-3, else in two.
LENGTH_SPREAD = 2.0
#: Noise variance, of unit variance of the targets, that tiles of a precision can resolve.
LEAST_NOISE = {torch.float32: 1e-6, torch.float64: 1e-8}


@dataclass(frozen=True)
class Point:
    """Where a climb stands or ended."""

    kernel: Kernel
    noise: float
    basis: Tensor
    value: float = -math.inf
    n_iter: int = 0
    why: str = ""


class _OutOfTime(Exception):
    pass


class Coordinates:
    """The free parameters of a point as one vector: logarithms, then inducing inputs in units of √m times their spread.

    All rows bend the evidence along a logarithm, only an mth part of them along an inducing input; the factor makes
    the curvatures alike, which saves L-BFGS most of its steps.
    """

    def __init__(self, start: Point, plan: Plan, free: Iterable[str]) -> None:
        self.start, self.plan, self.free = start, plan, frozenset(free)
        tunable = start.kernel.tunable() if "kernel" in self.free else {}
        self.shapes = {name: np.shape(value) for name, value in tunable.items()}
        logs = [np.log(np.asarray(value, dtype=float).ravel().clip(1e-12)) for value in tunable.values()]
        self.edges = np.cumsum([v.size for v in logs]).astype(int)
        self.n_kernel = int(self.edges[-1]) if logs else 0
        floor = math.log(LEAST_NOISE[plan.dtype])
        self.bounds: list[tuple[float | None, float | None]] = []
        reach = math.log(PARAMETER_RANGE)
        for v in logs:
            self.bounds += [(t - reach, t + reach) for t in v]
        if "noise" in self.free:
            logs.append(np.array([max(math.log(start.noise), floor)]))
            self.bounds.append((floor, math.log(100.0)))
        self.n_log = sum(v.size for v in logs)
        basis = start.basis.double().cpu().numpy()
        spread = basis.std(0)
        self.spread = np.where(spread > 0, spread, 1.0) * math.sqrt(len(basis))
        if "basis" in self.free:
            logs.append((basis / self.spread).ravel())
            self.bounds += [(None, None)] * basis.size
        self.vector = np.concatenate(logs) if logs else np.empty(0)
        sizes = np.diff([0, *self.edges])
        self.scales = [  # the logarithms of the length-scales of one kernel, where every input has its own
            slice(end - size, end)
            for name, end, size in zip(self.shapes, self.edges, sizes, strict=True)
            if size > 1 and name.endswith("length_scale")
        ]

    def prior(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Log density, up to a constant, and slope of the prior: logarithms of length-scales N(their mean, spread²)."""
        value, slope = 0.0, np.zeros_like(x)
        for one in self.scales:
            apart = x[one] - x[one].mean()
            value -= 0.5 * float(apart @ apart) / LENGTH_SPREAD**2
            slope[one] = -apart / LENGTH_SPREAD**2
        return value, slope

    def point(self, x: np.ndarray) -> Point:
        pieces = np.split(np.exp(x[: self.n_kernel]), self.edges[:-1]) if self.shapes else []
        new = {name: v.reshape(shape) for (name, shape), v in zip(self.shapes.items(), pieces, strict=True)}
        kernel = self.start.kernel.replaced({k: v.item() if v.ndim == 0 else v.tolist() for k, v in new.items()})
        noise = math.exp(x[self.n_kernel]) if "noise" in self.free else self.start.noise
        basis = self.start.basis
        if "basis" in self.free:
            Z = x[self.n_log :].reshape(tuple(basis.shape)) * self.spread
            basis = torch.as_tensor(Z, device=self.plan.device, dtype=self.plan.dtype)
        return Point(kernel, noise, basis)

    def slope(self, x: np.ndarray, found: Gradient) -> np.ndarray:
        pieces = [found.by_parameter[name].reshape(-1).cpu().numpy() for name in self.shapes]
        if "noise" in self.free:
            pieces.append(np.array([found.by_noise]))
        logs = np.concatenate(pieces) * np.exp(x[: self.n_log]) if pieces else np.empty(0)  # d/dlogθ = θ d/dθ
        if "basis" not in self.free:
            return logs
        return np.concatenate([logs, (found.by_basis.cpu().numpy() * self.spread).ravel()])


def climb(
    evidence: Evidence,
    start: Point,
    plan: Plan,
    *,
    free: Iterable[str] = ("kernel", "noise", "basis"),
    max_iter: int = 50,
    tol: float = 1e-7,
    time_budget: float | None = None,
    callback: Callable[[Point], Any] | None = None,
) -> Point:
    """From `start` uphill on `evidence` by L-BFGS over the `free` parts of the point.

    Ends where a step gains less than `tol` of the value, after `max_iter` steps or `time_budget` seconds, and says
    which. The value of the point returned is its evidence, without the prior. A point at which the evidence is not
    finite, or its kernel matrix cannot be factored, counts as a wall.
    """
    at = Coordinates(start, plan, free)
    best: dict[str, Any] = {"x": at.vector, "value": -math.inf, "evidence": -math.inf}
    n_iter, began = 0, time.perf_counter()

    def negative(x: np.ndarray) -> tuple[float, np.ndarray]:
        if time_budget is not None and time.perf_counter() - began > time_budget and best["value"] > -math.inf:
            raise _OutOfTime
        here = at.point(x)
        try:
            found = evidence(here.kernel, here.noise, here.basis)
            prior, pull = at.prior(x)
            slope = at.slope(x, found) + pull
            finite = math.isfinite(found.value) and bool(np.isfinite(slope).all())
        except ValueError:
            finite = False
        if not finite:
            return 1e25, np.zeros_like(x)
        value = found.value + prior
        if value > best["value"]:
            best.update(x=x.copy(), value=value, evidence=found.value)
        return -value, -slope

    def seen(x: np.ndarray) -> None:
        nonlocal n_iter
        n_iter += 1
        if callback is not None:
            callback(at.point(x))

    if not at.vector.size or max_iter == 0:
        negative(at.vector)
        why = "nothing was left to optimise"
    else:
        try:
            done = minimize_lbfgs(negative, at.vector, at.bounds, seen, maxiter=max_iter, ftol=tol, maxcor=20)
            why = f"after the {max_iter} steps allowed" if done.status == 1 else _reason(done, tol, n_iter)
        except _OutOfTime:
            why = f"the time budget was spent after {n_iter} steps"
    found = at.point(best["x"])
    return Point(found.kernel, found.noise, found.basis, float(best["evidence"]), n_iter, why)


def _reason(done: Any, tol: float, n_iter: int) -> str:
    if "RELATIVE REDUCTION" in str(done.message).upper() or "NORM OF PROJECTED" in str(done.message).upper():
        return f"a step gained less than {tol:g} of the evidence after {n_iter} steps"
    return f"no step along the search direction raises the evidence any more after {n_iter} steps"
