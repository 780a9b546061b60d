"""The problem of one fit, and the rows at which its inducing inputs start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.clock import Clock
from mercer.engine import each_block
from mercer.engine.plan import Sample
from mercer.evidence.approximations import Approximation
from mercer.forward.nystroem import select_rows
from mercer.gp.model import FittedGP, inverse_length_scales
from mercer.kernels import Kernel
from mercer.linalg import exact_distances, pivoted_rows, spread_out
from mercer.parts import require

#: Rows outside of all subsets on which dense models of several subsets are compared.
SCORED_ROWS = 2000
#: Rows per inducing input among which "random", "k-means++" and "variance" choose.
POOL = 20


@dataclass(frozen=True)
class GPTask:
    """Rows, prior, inducing inputs, random numbers and time of one fit.

    `inducing` chooses rows by name or criterion, or holds the inducing inputs (m × D) in the units of the sample, on
    its device and in its precision.
    """

    data: Sample
    approximation: Approximation
    inducing: Any
    n_inducing: int
    n_restarts: int
    rng: np.random.Generator
    clock: Clock

    @property
    def draws(self) -> bool:
        """Whether inducing inputs are chosen among the rows, as many and as often as needed."""
        return not isinstance(self.inducing, Tensor)

    @property
    def has_many_rows(self) -> bool:
        """Whether the first steps of a search see random parts of the rows, not all of them."""
        return self.data.n_total > self.data.plan.part_rows(self.n_inducing)

    def start(self, kernel: Kernel, noise: float, m: int) -> tuple[np.ndarray, Tensor]:
        """Rows (none for given inputs) and inducing inputs at which a search starts."""
        if not self.draws:
            return np.arange(0), self.inducing
        index = choose_rows(self.inducing, self.data, kernel, noise, m, self.rng)
        return index, self.data.rows.fetch(index).to(self.data.plan.device, self.data.plan.dtype)

    def best_subset(
        self, fitted: Callable[[np.ndarray], FittedGP], density: Callable[[FittedGP, Sample], float], plain: Kernel
    ) -> FittedGP:
        """The dense model of one subset, or of several subsets the one under which other rows are most likely.

        Evidences of different rows cannot be compared.
        """
        first = self._subset(plain)
        self.data.plan.require_square(len(first))
        rest = np.setdiff1d(self.data.alive, first)
        redrawn = self.approximation.short_name == "sd" and self.draws and len(rest) > 0
        if not (redrawn and self.n_restarts):
            return fitted(first)
        subsets = [first, *(self._subset(plain) for _ in range(self.n_restarts))]
        others = self.data.part(self.rng.choice(rest, min(len(rest), SCORED_ROWS), replace=False))
        return max(map(fitted, subsets), key=lambda model: density(model, others))

    def _subset(self, plain: Kernel) -> np.ndarray:
        """The rows of a dense model: all, the given ones, or those that a plain kernel chooses."""
        if self.approximation.short_name == "full":
            return self.data.alive
        if not self.draws:
            return find_rows(self.inducing, self.data)
        return choose_rows(self.inducing, self.data, plain, 0.1, self.n_inducing, self.rng)


def choose_rows(
    choice: Any, data: Sample, kernel: Kernel, noise: float, m: int, rng: np.random.Generator
) -> np.ndarray:
    """Choose at most `m` rows of positive weight: "random", "k-means++" in units of length-scales, or a criterion.

    "variance" takes the rows of largest variance given those chosen before, and random ones where these explain all.
    """
    shard, alive, n = data.rows.shard, data.weight > 0, data.n_alive
    m = min(m, n)
    if m == n:
        return shard.nth(alive, np.arange(n)).cpu().numpy()
    drawn = np.arange(n) if n <= POOL * m else rng.choice(n, POOL * m, replace=False)
    pool = shard.nth(alive, drawn).cpu().numpy()
    if isinstance(choice, str) and choice == "random":
        return rng.choice(pool, m, replace=False)
    if isinstance(choice, str) and choice == "k-means++":
        scale = torch.as_tensor(inverse_length_scales(kernel, data.rows.n_columns), device=data.plan.device)
        return pool[spread_out(data.rows.fetch(pool).double() * scale, m, rng)]
    if isinstance(choice, str) and choice == "variance":
        X = data.rows.fetch(pool).to(data.plan.device, data.plan.dtype)
        chosen = pool[pivoted_rows(kernel, kernel.diag(X), X, m)]
    else:
        chosen = select_rows(data, kernel, max(noise, 1e-4), choice, m, rng)
    alive[shard.local(torch.as_tensor(chosen, device=alive.device))[1]] = False
    drawn = rng.choice(shard.count(alive), m - len(chosen), replace=False)
    return np.concatenate([chosen, shard.nth(alive, drawn).cpu().numpy()])


def find_rows(Z: Tensor, data: Sample) -> np.ndarray:
    """Find the rows of positive weight equal to `Z` (m × D, in the units of the sample), or raise an error."""
    Z = Z.to(data.plan.device, data.plan.dtype)
    nearest = torch.full((len(Z),), torch.inf, dtype=Z.dtype, device=Z.device)
    index = torch.zeros(len(Z), dtype=torch.long, device=Z.device)

    def visit(where: slice, block: Tensor) -> None:
        apart = exact_distances(Z, block).masked_fill_(data.weight[where] <= 0, torch.inf)
        distance, at = apart.min(1)
        closer = distance < nearest
        nearest[closer] = distance[closer]
        index[closer] = at[closer] + where.start

    each_block(data.rows, data.plan, data.plan.tile_rows(len(Z)), visit)
    room = 100 * torch.finfo(Z.dtype).eps * (1 + Z.norm(dim=1))  # standardising them rounds as often
    lost = int((nearest > room).sum())
    require(lost == 0, "inducing", "rows of X where the model sees those alone", f"{lost} of {len(Z)} that are none")
    return np.unique(index.cpu().numpy())
