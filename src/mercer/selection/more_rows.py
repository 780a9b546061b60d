"""What few rows chose, looked at again on more: for tables so large that the race saw next to nothing of them.

Error against rows is a power law, and what is best on a thousand rows need not be on a hundred thousand. Length-scales
that matter only then are found by the evidence of some thousand rows; members of the race and kernels of these
length-scales are fitted to as many rows as an exact solution allows, and rows that were not fitted decide.
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
from mercer.data.column_maps import KINDS, ColumnMap, fit_column_map
from mercer.data.group import ALONE
from mercer.engine.plan import factored_rows
from mercer.kernels import Gaussian, Kernel, Matern32, Stationary
from mercer.linalg import cholesky
from mercer.selection.metric import farthest
from mercer.selection.race import RacedKernel
from mercer.selection.tune import tune_kernel

#: Rows of the evidence, and rows that candidates are fitted to, on a CPU and on a GPU; rows that judge.
EVIDENCE_ROWS, FITTED_ROWS, JUDGING_ROWS = (2000, 6000), (3000, 10_000), 3000
#: Seconds within which that is done; with more or fewer, the evidence has as many rows as their cubes allow.
SECONDS, MOST = (60.0, 10.0), 5.0
#: Square matrices of double precision that are held at once: a kernel, what is factored, its factor, what that takes.
SQUARES = 6
#: Rows that candidates are fitted to in any case.
FEWEST = 300
#: Share of the seconds for choosing that are spent when the evidence has spoken.
EVIDENCE_SHARE = 0.8
#: Steps of the evidence's climb, and the longest length-scale in standard deviations: longer ones say the same.
CLIMB, LONGEST = 60, 50.0
#: Factors on length-scales and on penalties that are tried for every candidate.
FACTORS, PENALTY_FACTORS = (1.0, 0.5), (0.1, 1.0, 10.0)

#: How much more a candidate may lose to count as nearly as good. Of COVTYPE a tenth more on 4300 rows became half as
#: much on all of them (`mercer.forward.trial_fits`).
NEARLY = 0.25


@dataclass(frozen=True)
class Again:
    """The member that more rows like best, those nearly as good, and every candidate with rows, loss and seconds."""

    best: RacedKernel
    nearly: list[RacedKernel]
    report: list[dict[str, Any]]


def on_more_rows(
    X: Tensor, Y: Tensor, weight: Tensor, candidates: Sequence[RacedKernel], *, device: Any, seed: int, clock: Clock,
    memory: int, group: Group = ALONE,
) -> Again:  # fmt: skip
    """The best of the race's members and those `by_evidence`, for raw columns `X` and targets `Y`.

    Each process of a `group` tries some of them.
    """
    on_gpu = torch.device(device).type == "cuda"
    n_fit = group.first(lambda: min(_fitted_rows(len(X), len(candidates), on_gpu, clock), held_rows(memory)))
    learned, judge = _parts(len(X), seed)
    fit = learned[:n_fit]
    parts = (X[fit], Y[fit], weight[fit], X[judge], Y[judge], weight[judge])

    def tried(one: RacedKernel) -> tuple[RacedKernel, dict[str, Any]]:
        started = time.perf_counter()
        best = min(_tried(one, [part.to(device) for part in parts]), key=lambda tried: tried.loss)
        line = {"candidate": f"{one.name}, on more rows", "rows": n_fit, "loss": best.loss}
        return best, line | {"seconds": time.perf_counter() - started}

    def some(places: Sequence[int]) -> list[tuple[RacedKernel, dict[str, Any]] | None]:
        return [None if k and clock.expired() else tried(candidates[k]) for k in places]

    found = [one for one in group.share_work(len(candidates), some) if one is not None]
    best, *others = sorted((replace(one, share=1.0) for one, _ in found), key=lambda one: one.loss)
    nearly = [one for one in others if one.loss <= (1 + NEARLY) * best.loss]
    return Again(best, nearly, [line for _, line in found])


def _fitted_rows(n_rows: int, n_candidates: int, on_gpu: bool, clock: Clock) -> int:
    """Rows that candidates are fitted to: as many as there is time for, where somebody counts it."""
    most = n_rows // 2
    if clock.seconds is None:
        return min(FITTED_ROWS[on_gpu], most)
    each = clock.remaining() / (n_candidates * len(FACTORS) * len(PENALTY_FACTORS))
    return min(most, max(factored_rows(each, on_gpu), FEWEST))


def held_rows(memory: int) -> int:
    """Rows whose kernel matrices fit into so many bytes.

    >>> held_rows(2**31), held_rows(2**36)
    (6688, 37837)
    """
    return math.isqrt(memory // (8 * SQUARES))


def _parts(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Rows that are learnt from, and rows that judge."""
    order = torch.from_numpy(np.random.default_rng(seed).permutation(n))
    n_judge = min(JUDGING_ROWS, n // 4)
    return order[:-n_judge], order[-n_judge:]


def by_evidence(
    X: Tensor, Y: Tensor, weight: Tensor, *, device: Any, seed: int, clock: Clock, memory: int,
    kept: Tensor | None = None, groups: Tensor | None = None,
) -> list[RacedKernel]:  # fmt: skip
    """Kernels on standardised columns, each divided by the length-scale that the evidence gives it.

    Columns that are `kept` are not scaled, those of one of the `groups` share a length-scale, as in the race.
    """
    learned, on_gpu = _parts(len(X), seed)[0], torch.device(device).type == "cuda"
    X, Y, weight = X[learned], Y[learned], weight[learned]
    columns: ColumnMap = fit_column_map(KINDS[0], X, weight, kept)
    Z = columns(X)
    if not bool((Y.std(0) > 0).all()):
        return []
    seconds = None if clock.seconds is None else clock.remaining(until=EVIDENCE_SHARE)
    if seconds == 0.0:
        return []
    share = 1.0 if seconds is None else min(seconds / SECONDS[on_gpu], MOST)
    n_rows = min(max(int(EVIDENCE_ROWS[on_gpu] * share ** (1 / 3)), 100), held_rows(memory))
    tuned = tune_kernel(
        Z, Y, "matern32", sample_weight=weight, n_rows=n_rows,
        ard=True, groups=None if groups is None else groups.cpu().numpy(), max_iter=CLIMB, tol=1e-6,
        time_budget=None if on_gpu else seconds,
        device="cuda" if on_gpu else "cpu", random_state=seed,
    )  # fmt: skip
    lengths = tuned.length_scale
    if lengths is None:
        return []
    transform = torch.as_tensor(1 / np.minimum(np.broadcast_to(lengths, Z.shape[1]), LONGEST).copy())
    transform = transform.minimum(farthest(Z).to(transform))
    kernels: list[Kernel] = [Gaussian(1.0), Matern32(1.0)]
    return [
        RacedKernel(
            columns, transform, kernel, 0.03, 1.0, np.inf, f"standard, evidence, {type(kernel).__name__.lower()}"
        )
        for kernel in kernels
    ]


def _tried(member: RacedKernel, table: list[Tensor]) -> list[RacedKernel]:
    """The member at some length-scales and penalties, with its loss on rows that were not fitted."""
    X, Y, w, X_judge, Y_judge, w_judge = (part.double() for part in table)
    Z, Z_judge = (_seen(member, rows) for rows in (X, X_judge))
    out = []
    for factor in FACTORS if isinstance(member.kernel, Stationary) else (1.0,):
        kernel = scaled(member.kernel, factor)
        K, K_judge = kernel(Z, Z), kernel(Z_judge, Z)
        for times in PENALTY_FACTORS:
            noisy = K.clone()
            noisy.diagonal().add_(times * member.penalty / w)
            f = K_judge @ torch.cholesky_solve(Y, cholesky(noisy)[0])
            error = (w_judge[:, None] * (Y_judge - f).square()).sum() / w_judge.sum()
            out.append(replace(member, kernel=kernel, penalty=times * member.penalty, loss=float(error)))
    return out


def _seen(member: RacedKernel, X: Tensor) -> Tensor:
    Z, turn = member.columns(X), member.transform.to(X)
    return Z * turn if turn.ndim == 1 else Z @ turn.T


def scaled(kernel: Any, factor: float) -> Any:
    """The kernel with its length-scales times `factor`; others as they are.

    >>> scaled(Gaussian([1.0, 2.0]), 0.5)
    Gaussian(length_scale=[0.5, 1.0])
    """
    if not isinstance(kernel, Stationary) or factor == 1.0:
        return kernel
    return replace(kernel, length_scale=(factor * np.asarray(kernel.length_scale)).tolist())
