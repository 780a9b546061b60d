"""How many components: the smallest number within one standard error of the best cross-validated score."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from mercer.data import TensorRows
from mercer.mixture.em import Sample
from mercer.mixture.growth import sizes_up_to
from mercer.parts import require
from mercer.tuning.selection import one_standard_error

#: Rows at most on which the number of components is cross-validated.
CHOICE_ROWS = 10_000

#: Scores of growing sizes, trained on one sample and judged on another.
Scores = Callable[[Sample, Sample, list[int]], list[float]]


def best_size(
    sample: Sample,
    labels: Callable[[np.ndarray], np.ndarray],
    scores: Scores,
    largest: int,
    n_folds: int,
    rng: np.random.Generator,
) -> tuple[int, dict[str, Any]]:
    """The number of components and the results of all folds, named as scikit-learn's searches name them.

    `labels` turns targets into what every fold gets an equal share of.
    """
    alive = (sample.weight > 0).nonzero()[:, 0].cpu().numpy()
    if len(alive) > CHOICE_ROWS:
        alive = np.sort(rng.choice(alive, CHOICE_ROWS, replace=False))
    n_folds = min(n_folds, len(alive))
    require(n_folds >= 2, "the number of rows", "at least 2 for n_components='auto'", len(alive))
    fold = _folds(labels(sample.y[0].cpu().numpy()[alive]), n_folds, rng)
    sizes = sizes_up_to(min(largest, max(len(alive) * (n_folds - 1) // n_folds, 1)))
    table = np.array(
        [scores(_rows_of(sample, alive[fold != f]), _rows_of(sample, alive[fold == f]), sizes) for f in range(n_folds)]
    )
    results: dict[str, Any] = {"param_n_components": np.array(sizes)}
    results |= {f"split{f}_test_score": table[f] for f in range(n_folds)}
    results |= {"mean_test_score": table.mean(0), "std_test_score": table.std(0)}
    return sizes[one_standard_error(results, "n_components")], results


def _folds(labels: np.ndarray, n_folds: int, rng: np.random.Generator) -> np.ndarray:
    """The fold of each row: random, with equal shares of every label."""
    order = np.lexsort((rng.uniform(size=len(labels)), labels))
    folds = np.empty(len(labels), dtype=int)
    folds[order] = np.arange(len(labels)) % n_folds
    return folds


def _rows_of(sample: Sample, index: np.ndarray) -> Sample:
    at = torch.as_tensor(index, device=sample.weight.device)
    return Sample(TensorRows(sample.rows.take(index)), sample.y[:, at], sample.weight[at], sample.plan)
