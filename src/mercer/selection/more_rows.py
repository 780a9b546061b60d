"""A stage for large tables: score candidates again on as many rows as an exact solution allows.

Error against rows is a power law, and the best kernel for a thousand rows need not be the best for a hundred thousand.
Length-scales that matter only there are found by the evidence of some thousand rows. Candidates of successive halving
and kernels of these length-scales are fitted to more rows, and held-out rows score them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.clock import Clock
from mercer.data import Group
from mercer.data.column_maps import KINDS, fit_column_map
from mercer.data.row_groups import RowGroups
from mercer.engine import Plan
from mercer.engine.plan import factored_rows
from mercer.kernels import Gaussian, Matern32, Stationary
from mercer.selection.score import dual_coefficients
from mercer.selection.settings import DEFAULT_SETTINGS, SelectionSettings
from mercer.selection.tune import tune_kernel
from mercer.selection.view import SelectedKernel, apply_transform, largest_factors

#: Seconds that the evidence of these rows takes. With other time it has as many rows as their cubes allow, up to this
#: many times as long.
EVIDENCE_SECONDS, MOST_TIMES = (60.0, 10.0), 5.0
#: Share of the selection's time that is spent when the evidence ends.
EVIDENCE_SHARE = 0.8
#: Steps of the evidence's search, and the longest length-scale in standard deviations: longer ones change nothing.
EVIDENCE_STEPS, LONGEST = 60, 50.0
#: Rows that candidates are fitted to in any case.
FEWEST_ROWS = 300
#: Factors on length-scales and on penalties that are tried for every candidate.
LENGTH_FACTORS, PENALTY_FACTORS = (1.0, 0.5), (0.1, 1.0, 10.0)


@dataclass
class MoreRows:
    """Raw columns `X`, targets and weights of the rows drawn for the selection."""

    X: Tensor
    Y: Tensor
    weight: Tensor
    plan: Plan
    seed: int
    clock: Clock
    settings: SelectionSettings = DEFAULT_SETTINGS
    row_groups: RowGroups | None = None

    def __post_init__(self) -> None:
        self.on_gpu = self.plan.device.type == "cuda"
        order = torch.from_numpy(np.random.default_rng(self.seed).permutation(len(self.X)))
        n_score = min(self.settings.more_fit_rows[0], len(self.X) // 4)
        self.fit_rows, self.score_rows = order[:-n_score], order[-n_score:]
        if self.row_groups is not None:
            split = self.row_groups.splits(1, most=n_score, seed=self.seed)[0]
            self.score_rows = torch.as_tensor(split.scored)
            self.fit_rows = order[~torch.isin(order, torch.as_tensor(split.left_out))]

    def evidence_candidates(
        self, keeps_unit: Tensor | None = None, column_groups: Tensor | None = None
    ) -> list[SelectedKernel]:
        """Kernels on standardised columns, each divided by its length-scale of largest evidence."""
        X, Y, weight = (values[self.fit_rows] for values in (self.X, self.Y, self.weight))
        seconds = None if self.clock.seconds is None else self.clock.remaining(until=EVIDENCE_SHARE)
        if seconds == 0.0 or not bool((Y.std(0) > 0).all()):
            return []
        columns = fit_column_map(KINDS[0], X, weight, keeps_unit)
        Z = columns(X)
        times = 1.0 if seconds is None else min(seconds / EVIDENCE_SECONDS[self.on_gpu], MOST_TIMES)
        n_rows = max(int(self.settings.more_evidence_rows[self.on_gpu] * times ** (1 / 3)), 100)
        tuned = tune_kernel(
            Z, Y, "matern32", sample_weight=weight, n_rows=min(n_rows, self.plan.square_rows()),
            ard=True, groups=None if column_groups is None else column_groups.cpu().numpy(),
            max_iter=EVIDENCE_STEPS, tol=1e-6,
            time_budget=None if self.on_gpu else seconds,
            device="cuda" if self.on_gpu else "cpu", random_state=self.seed,
        )  # fmt: skip
        if tuned.length_scale is None:
            return []
        lengths = np.minimum(np.broadcast_to(tuned.length_scale, Z.shape[1]), LONGEST)
        transform = torch.as_tensor(1 / lengths)
        transform = transform.minimum(largest_factors(Z).to(transform))
        return [
            SelectedKernel(columns, transform, kernel, 0.03, 1.0, np.inf, f"standard, evidence, {family}")
            for family, kernel in (("gaussian", Gaussian(1.0)), ("matern32", Matern32(1.0)))
        ]

    def rescored(
        self, candidates: Sequence[SelectedKernel], group: Group
    ) -> tuple[list[SelectedKernel], list[dict[str, Any]]]:
        """The best candidate, then its runners-up, and a report line for each; processes of a `group` divide them."""
        n_fit = group.first(lambda: min(self._n_fit(len(candidates)), self.plan.square_rows()))

        def rescore(k: int) -> tuple[SelectedKernel, dict[str, Any]] | None:
            if k and self.clock.expired():
                return None
            started = time.perf_counter()
            best = min(self._trials(candidates[k], n_fit), key=lambda trial: trial.loss)
            line = {"candidate": candidates[k].name, "stage": "more rows", "rows": n_fit, "loss": best.loss}
            return best, line | {"seconds": time.perf_counter() - started}

        found = [pair for pair in group.share_work(len(candidates), lambda places: list(map(rescore, places))) if pair]
        ranked = sorted((replace(best, share=1.0) for best, _ in found), key=lambda best: best.loss)
        near = [candidate for candidate in ranked if candidate.loss <= self.settings.near_ratio * ranked[0].loss]
        return near, [line for _, line in found]

    def _n_fit(self, n_candidates: int) -> int:
        """Rows that candidates are fitted to: as many as there is time for."""
        most = len(self.X) // 2
        if self.clock.seconds is None:
            return min(self.settings.more_fit_rows[self.on_gpu], most)
        each = self.clock.remaining() / (n_candidates * len(LENGTH_FACTORS) * len(PENALTY_FACTORS))
        return min(most, max(factored_rows(each, self.on_gpu), FEWEST_ROWS))

    def _trials(self, candidate: SelectedKernel, n_fit: int) -> list[SelectedKernel]:
        """The candidate at some length-scales and penalties, with its loss on held-out rows."""
        fit, score = self.fit_rows[:n_fit], self.score_rows
        X, Y, w = (values[fit].double().to(self.plan.device) for values in (self.X, self.Y, self.weight))
        X_score, Y_score, w_score = (
            values[score].double().to(self.plan.device) for values in (self.X, self.Y, self.weight)
        )
        transform = candidate.transform.to(X)
        Z, Z_score = (apply_transform(candidate.columns(rows), transform) for rows in (X, X_score))
        trials = []
        for length_factor in LENGTH_FACTORS if isinstance(candidate.kernel, Stationary) else (1.0,):
            kernel = scaled(candidate.kernel, length_factor)
            K, K_score = kernel(Z, Z), kernel(Z_score, Z)
            for penalty_factor in PENALTY_FACTORS:
                penalty = penalty_factor * candidate.penalty
                alpha = dual_coefficients(K, Y, w, penalty)
                loss = math.inf
                if alpha is not None:
                    error = (Y_score - K_score @ alpha).square()
                    loss = float((w_score[:, None] * error).sum() / w_score.sum())
                trials.append(replace(candidate, kernel=kernel, penalty=penalty, loss=loss))
        return trials


def scaled(kernel: Any, factor: float) -> Any:
    """The kernel with its length-scales times `factor`; kernels without any stay as they are.

    >>> scaled(Gaussian([1.0, 2.0]), 0.5)
    Gaussian(length_scale=[0.5, 1.0])
    """
    if not isinstance(kernel, Stationary) or factor == 1.0:
        return kernel
    return replace(kernel, length_scale=(factor * np.asarray(kernel.length_scale)).tolist())
