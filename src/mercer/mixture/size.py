"""How many components: the smallest number within one standard error of the best cross-validated score."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from mercer.border.clock import Clock
from mercer.border.folds import stratified_folds
from mercer.data import TensorRows
from mercer.mixture.em import Sample
from mercer.mixture.growth import sizes_up_to
from mercer.parts import require
from mercer.tuning.selection import one_standard_error

#: Rows at most on which the number of components is cross-validated; and those for each second of a time budget.
CHOICE_ROWS, ROWS_A_SECOND = 10_000, 400

#: Scores of growing sizes, trained on one sample and judged on another, one after the other.
Scores = Callable[[Sample, Sample, list[int], np.random.Generator], Iterator[float]]


def choice_sample(sample: Sample, rng: np.random.Generator, clock: Clock) -> Sample:
    """The rows on which sizes are tried: those that count, or a random part of them where they are many."""
    alive = (sample.weight > 0).nonzero()[:, 0].cpu().numpy()
    budget = clock.budget.seconds
    most = CHOICE_ROWS if budget is None else int(np.clip(ROWS_A_SECOND * budget, 200, CHOICE_ROWS))
    if len(alive) > most:
        alive = np.sort(rng.choice(alive, most, replace=False))
    return sample if len(alive) == sample.rows.n_rows else _rows_of(sample, alive)


def judged_sizes(
    sample: Sample,
    labels: Callable[[np.ndarray], np.ndarray],
    scores: Scores,
    largest: int,
    n_folds: int,
    rng: np.random.Generator,
    clock: Clock,
) -> tuple[list[int], dict[str, Any]]:
    """The sizes up to the best, and the results of all folds, named as scikit-learn's searches name them.

    `sample` is that of `choice_sample`; `labels` turns targets into what every fold gets an equal share of. All folds
    judge a size before any goes on to the next, so those judged count when time is up; a share of it is left for the
    fit to all rows.
    """
    n = sample.rows.n_rows
    n_folds = min(n_folds, n)
    require(n_folds >= 2, "the number of rows", "at least 2 for n_components='auto'", n)
    fold = stratified_folds(labels(sample.y[0].cpu().numpy()), n_folds, rng)
    sizes = sizes_up_to(min(largest, max(n * (n_folds - 1) // n_folds, 1)))
    runs = [
        scores(_rows_of(sample, np.flatnonzero(fold != f)), _rows_of(sample, np.flatnonzero(fold == f)), sizes, own)
        for f, own in enumerate(rng.spawn(n_folds))
    ]
    rows = []
    for row in zip(*runs, strict=True):
        if clock.interrupted:  # nothing was fitted to all rows yet
            raise KeyboardInterrupt
        rows.append(row)
        if clock.over(share=(n_folds - 1) / (n_folds + 1)):
            break
    table, sizes = np.array(rows).T, sizes[: len(rows)]
    results: dict[str, Any] = {"param_n_components": np.array(sizes)}
    results |= {f"split{f}_test_score": table[f] for f in range(n_folds)}
    results |= {"mean_test_score": table.mean(0), "std_test_score": table.std(0)}
    return sizes[: one_standard_error(results, "n_components") + 1], results


def _rows_of(sample: Sample, index: np.ndarray) -> Sample:
    at = torch.as_tensor(index, device=sample.weight.device)
    return Sample(TensorRows(sample.rows.take(index)), sample.y[:, at], sample.weight[at], sample.plan)
