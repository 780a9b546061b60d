"""A whole search for kernel, noise and inducing inputs: Adam on parts of the rows, then L-BFGS on all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.clock import Clock
from mercer.engine.sample import Sample
from mercer.evidence.adam import ascend
from mercer.evidence.approximations import Variational
from mercer.evidence.coordinates import EVERYTHING, LENGTH_SCALE_PRIOR, Evidence, Gradient, Point
from mercer.evidence.exact import log_evidence
from mercer.evidence.lbfgs import climb
from mercer.evidence.recorded import regression_evidence
from mercer.evidence.starts import PLAIN_NOISE
from mercer.kernels import Kernel

#: Rows up to which rough steps are made in the precision of the fine ones: they cost nothing there.
EXACT_ROUGH_ROWS = 1000
#: Evaluations on all rows for which time must be left, or they are not begun.
WORTHWHILE = 3


def exact_evidence(X: Tensor, Y: Tensor, weight: Tensor | None = None) -> Evidence:
    """The evidence of the full model on rows `X`, as searches want it: there are no inducing inputs to move."""

    def at(kernel: Kernel, noise: float, basis: None) -> Gradient:
        return Gradient(*log_evidence(kernel, noise, X, Y, weight))

    return at


def optimise(
    evidence: Callable[[Sample], Evidence],
    start: Point,
    data: Sample,
    *,
    rng: Any,
    free: Collection[str] = EVERYTHING,
    max_iter: int = 100,
    tol: float = 1e-7,
    length_scale_prior: float | None = LENGTH_SCALE_PRIOR,
    clock: Clock | None = None,
    callback: Callable[[Point], Any] | None = None,
) -> Point:
    """Uphill on the evidence: `max_iter` steps of Adam on random parts of the rows, then a quarter as many of L-BFGS on
    all; where inducing inputs stand still and rows are few, L-BFGS alone. `rng` draws the parts (`choice`).

    Where they move, the surface has many bumps, which Adam rolls over: on twelve tables of two classes it ends at lower
    errors (15.0 against 15.5 %) and losses than as many steps of L-BFGS, and with more evidence after 200 steps.
    """
    clock = Clock() if clock is None else clock
    shared: dict[str, Any] = {"free": free, "length_scale_prior": length_scale_prior, "clock": clock}
    shared["callback"] = callback
    n, few = data.n_total, _part_rows(data, start)
    if not free or max_iter == 0 or ("basis" not in free and n <= 2 * few):
        return climb(evidence(data), start, max_iter=max_iter, tol=tol, **shared)
    began = time.perf_counter()
    rough = explore(evidence, start, data, rng=rng, n_steps=max_iter, **shared)
    taken = data.rows.shard.group.first(lambda: time.perf_counter() - began)
    of_a_row = taken / (max(rough.n_iter, 1) * min(few, n))
    if clock.left() < WORTHWHILE * of_a_row * n:
        return rough
    fine = climb(evidence(data), rough, max_iter=max(max_iter // 4, 1), tol=tol, **shared)
    return replace(fine, n_iter=rough.n_iter + fine.n_iter)


def explore(
    evidence: Callable[[Sample], Evidence], start: Point, data: Sample, *, rng: Any, n_steps: int, **shared: Any
) -> Point:
    """The rough part alone: Adam on random parts of the rows, in float32 where they are many.

    The value of the point is the mean over the last parts.
    """
    n, few, plan = data.n_total, _part_rows(data, start), data.plan
    assert start.basis is not None
    if n > EXACT_ROUGH_ROWS:
        data = replace(data, plan=replace(plan, dtype=torch.float32))
    whole = evidence(data.part(np.arange(n))) if n <= few else None

    def of_a_part() -> Evidence:
        if whole is not None:
            return whole
        part = data.part(np.sort(rng.choice(n, few, replace=False)))
        return evidence(replace(part, weight=part.weight * (n / few)))

    begun = replace(start, basis=start.basis.to(data.plan.dtype))
    found = ascend(of_a_part, begun, n_steps=n_steps, **shared)
    found = data.rows.shard.group.first(lambda: found)
    assert found.basis is not None
    return replace(found, basis=found.basis.to(plan.dtype))


def _part_rows(data: Sample, start: Point) -> int:
    return data.plan.part_rows(1 if start.basis is None else len(start.basis))


def refine_basis(
    kernel: Kernel, noise: float, basis: Tensor, data: Sample, *, max_iter: int = 60, rng: Any
) -> tuple[Kernel, float, Tensor, float]:
    """Move kernel, noise and basis vectors together uphill on Titsias' bound (`sparse_evidence`).

    Returns the kernel, the noise variance, the basis vectors and the bound reached.
    """
    start = Point(kernel, max(noise, PLAIN_NOISE), basis)
    found = optimise(regression_evidence(Variational()), start, data, rng=rng, max_iter=max_iter, tol=1e-9)
    assert found.basis is not None
    return found.kernel, found.noise, found.basis, found.value
