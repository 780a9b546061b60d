"""One fit after reading: rows, prior, where inducing inputs start, random numbers and time, in one record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from mercer.clock import Clock
from mercer.engine.sample import Sample
from mercer.evidence.approximations import Approximation
from mercer.gp.inducing_rows import choose_rows, find_rows
from mercer.gp.model import FittedGP
from mercer.kernels import Kernel

#: Rows outside of subsets that judge them.
JUDGED_ROWS = 2000


@dataclass(frozen=True)
class GPTask:
    """What a model is looked for with. `inducing` chooses rows by name or criterion, or *is* the inputs (m × D).

    Inducing inputs given are in the units of the sample, on its device and in its precision.
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
        """Whether inducing inputs are chosen among the rows, in any number and again."""
        return not isinstance(self.inducing, Tensor)

    def start(self, kernel: Kernel, noise: float, m: int) -> tuple[np.ndarray, Tensor]:
        """The rows, none where inputs are given, and inducing inputs at which a search starts."""
        if not self.draws:
            return np.arange(0), self.inducing
        index = choose_rows(self.inducing, self.data, kernel, noise, m, self.rng)
        return index, self.data.rows.fetch(index).to(self.data.plan.device, self.data.plan.dtype)

    def best_subset(
        self, fitted: Callable[[np.ndarray], FittedGP], density: Callable[[FittedGP, Sample], float], plain: Kernel
    ) -> FittedGP:
        """The dense model of one subset, or of several the one under which other rows are most likely.

        Evidences of different rows say nothing about which rows serve best.
        """
        first = self._subset(plain)
        self.data.plan.require_square(len(first))
        rest = np.setdiff1d(self.data.alive, first)
        redrawn = self.approximation.short_name == "sd" and self.draws and len(rest) > 0
        if not (redrawn and self.n_restarts):
            return fitted(first)
        subsets = [first, *(self._subset(plain) for _ in range(self.n_restarts))]
        others = self.data.part(self.rng.choice(rest, min(len(rest), JUDGED_ROWS), replace=False))
        return max(map(fitted, subsets), key=lambda model: density(model, others))

    def _subset(self, plain: Kernel) -> np.ndarray:
        """The rows that a dense model sees: all, those given, or those that a plain kernel chooses."""
        if self.approximation.short_name == "full":
            return self.data.alive
        if not self.draws:
            return find_rows(self.inducing, self.data)
        return choose_rows(self.inducing, self.data, plain, 0.1, self.n_inducing, self.rng)
