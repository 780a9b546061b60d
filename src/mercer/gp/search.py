"""A whole search for kernel, noise and inducing inputs: from where it starts to where it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.engine import Plan
from mercer.gp.approximations import Variational
from mercer.gp.ascend import ascend
from mercer.gp.climb import Evidence, Point, climb
from mercer.gp.evidence import sparse_evidence
from mercer.kernels import Kernel
from mercer.sources import RowSource, TensorRows

#: Where a climb of Titsias' bound starts: share of the tuned variances, and noise of targets of unit variance.
EASED_VARIANCE, EASED_NOISE = 0.125, 0.3


@dataclass(frozen=True)
class Rows:
    """Training rows as algorithms see them."""

    rows: RowSource
    Y: Tensor
    weight: Tensor
    plan: Plan

    def part(self, index: np.ndarray) -> Rows:
        where = torch.as_tensor(index, device=self.plan.device)
        block = self.rows.take(index).to(self.plan.device, self.plan.dtype)
        return Rows(TensorRows(block), self.Y[where], self.weight[where], self.plan)


def eased(kernel: Kernel, noise: float) -> tuple[Kernel, float]:
    """A lower amplitude and more noise than the full model has: where a climb of the bound starts.

    The bound counts unexplained variance against the model. From the full model's own parameters it first flees to
    long length-scales and comes back slowly; from a low amplitude and much noise it does not.
    """
    variances = {name: v for name, v in kernel.tunable().items() if name.endswith("variance")}
    lower = {name: float(np.clip(v * EASED_VARIANCE, 1e-3, None)) for name, v in variances.items()}
    return kernel.replaced(lower), max(noise, EASED_NOISE)


def search(
    evidence: Callable[[Rows], Evidence],
    start: Point,
    data: Rows,
    *,
    rng: Any,
    free: Iterable[str] = ("kernel", "noise", "basis"),
    max_iter: int = 100,
    tol: float = 1e-7,
    time_budget: float | None = None,
    callback: Callable[[Point], Any] | None = None,
) -> Point:
    """Uphill on the evidence: `max_iter` steps on all rows; where those are many, on random parts of them and then a
    quarter as many on all. `rng` draws the parts (`choice`)."""
    n, few = data.rows.n_rows, max(16 * len(start.basis), 4000)
    climbed = partial(climb, evidence(data), plan=data.plan, free=free, tol=tol, time_budget=time_budget)
    if n <= 2 * few or not set(free):
        return climbed(start, max_iter=max_iter, callback=callback)

    def of_a_part() -> Evidence:
        part = data.part(np.sort(rng.choice(n, few, replace=False)))
        return evidence(replace(part, weight=part.weight * (n / few)))

    point = ascend(of_a_part, start, data.plan, free=free, n_steps=max_iter, callback=callback)
    return climbed(point, max_iter=max(max_iter // 4, 1), callback=callback)


def refine_basis(
    kernel: Kernel, noise: float, basis: Tensor, data: Rows, *, max_iter: int = 60, rng: Any
) -> tuple[Kernel, float, Tensor, float]:
    """Move kernel, noise and basis vectors together uphill on Titsias' bound (`sparse_evidence`).

    Returns the kernel, the noise variance, the basis vectors and the bound reached.
    """

    def evidence(some: Rows) -> Evidence:
        fixed: dict[str, Any] = {"rows": some.rows, "Y": some.Y, "plan": some.plan, "weight": some.weight}
        return partial(sparse_evidence, approximation=Variational(), **fixed)

    found = search(evidence, Point(*eased(kernel, noise), basis), data, rng=rng, max_iter=max_iter, tol=1e-9)
    return found.kernel, found.noise, found.basis, found.value
