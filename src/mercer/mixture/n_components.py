"""Select the number of components: the smallest within one standard error of the best cross-validated score.

A larger mixture starts from a smaller one whose worst component is split in two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import numpy as np
import torch

from mercer.base.out_of_fold import stratified_folds
from mercer.clock import Clock
from mercer.engine import Sample
from mercer.mixture.em import EMResult, Mixture
from mercer.mixture.fit import MixtureSettings
from mercer.mixture.gates import Gates, make_gates
from mercer.parts import require
from mercer.progress import report_step
from mercer.selection.one_standard_error import one_standard_error

#: Largest number of rows for cross-validation, and rows per second of a time budget.
CHOICE_ROWS, ROWS_A_SECOND = 10_000, 400
#: Share of a time budget after which the start of the final fit grows no further.
GROWN_SHARE = 0.75
#: Numbers that differ by less than this share are taken for equal.
ALIKE = 1e-9


def sizes_up_to(most: int) -> list[int]:
    """List the numbers of components to try: all up to 10, then steps of about a fifth.

    >>> sizes_up_to(20)
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 17, 20]
    """
    sizes = [1]
    while sizes[-1] < most:
        sizes.append(min(sizes[-1] + 1 if sizes[-1] < 10 else round(1.2 * sizes[-1]), most))
    return sizes


def grown(mixture: Mixture, n_components: int) -> Mixture:
    """Split components until there are `n_components`, the heaviest and worst fitted first."""
    while mixture.n_components < n_components:
        score = mixture.gates.weights * mixture.experts.badness()
        mixture = split(mixture, _first_of_largest(score))
    return mixture


def split(mixture: Mixture, j: int) -> Mixture:
    """Split component j in two along its longest axis; mean and covariance of both together stay the same."""
    k, gates = mixture.n_components, mixture.gates
    index = torch.cat([torch.arange(k), torch.tensor([j])]).to(gates.weights.device)
    weights, means, covariances = gates.weights[index], gates.means[index], gates.covariances[index].clone()
    weights[[j, k]] = gates.weights[j] / 2
    axis = _longest_axis(gates, j)
    means[j] = gates.means[j] + 0.75 * axis
    means[k] = gates.means[j] - 0.75 * axis
    shrunk = torch.outer(axis, axis) * 0.75**2
    for half in (j, k):
        covariances[half] -= shrunk if covariances.ndim == 3 else shrunk.diagonal()
    floor = mixture.floor.of(index)
    return replace(
        mixture,
        gates=make_gates(weights, means, covariances, floor),
        experts=mixture.experts.select(index),
        floor=floor,
    )


def _longest_axis(gates: Gates, j: int) -> torch.Tensor:
    """The direction of largest spread, as long as the deviation along it."""
    covariance = gates.covariances[j]
    if covariance.ndim == 2:
        values, V = torch.linalg.eigh(covariance)
        axis = V[:, -1] * values[-1].sqrt()
        return axis * axis[_first_of_largest(axis.abs())].sign()  # an eigenvector has no sign of its own
    largest = _first_of_largest(covariance)
    axis = torch.zeros_like(covariance)
    axis[largest] = covariance[largest].sqrt()
    return axis


def _first_of_largest(values: torch.Tensor) -> int:
    """Index of the largest number, the first of those equal up to rounding.

    Variances of standardised inputs are tied, and rounding differs between machines and numbers of processes.
    """
    return int((values >= values.max() * (1 - ALIKE)).nonzero()[0])


@dataclass(frozen=True)
class Trials:
    """Functions that fit a sample with k components and score the fit on another sample.

    If the model `grows`, a fit starts from the smaller one before it.
    """

    train: Callable[[Sample, int, MixtureSettings, np.random.Generator, Mixture | None], EMResult]
    score: Callable[[EMResult, Sample], float]
    setting: MixtureSettings
    grows: bool
    #: Gates that every fit takes as they are.
    located: Mixture | None = None

    def growing(self, sample: Sample, sizes: list[int], rng: np.random.Generator) -> Iterator[EMResult]:
        """Fit each size, from the one before it with its worst components split."""
        fitted: EMResult | None = None
        for k in sizes:
            start = None if fitted is None or not self.grows else grown(fitted.mixture, k)
            fitted = self.train(sample, k, self.setting, rng, start)
            yield fitted

    def start(self, sample: Sample, sizes: list[int], rng: np.random.Generator) -> Mixture | None:
        """Make the start of a fit of the last size by growing through the smaller sizes, as the scored ones did."""
        if self.located is not None:
            return self.located
        start = None
        if self.grows and len(sizes) > 1:
            clock = self.setting.clock
            for fitted in self.growing(choice_sample(sample, rng, clock), sizes[:-1], rng):
                start = grown(fitted.mixture, sizes[-1])
                if clock.expired(until=GROWN_SHARE):
                    break
        return start


@dataclass(frozen=True)
class ChosenSize:
    """The sizes up to the selected one, which is the last, and the mixture from which its fit starts.

    `results` are the scores of all folds, and `seconds` the time that the growth of `start` took. Gates and penalty
    that the selection has `located` are kept by the fit.
    """

    sizes: list[int]
    start: Mixture | None = None
    results: dict[str, Any] | None = None
    seconds: float = 0.0
    located: Mixture | None = None
    ridge: float | None = None


def chosen_size(sample: Sample, trials: Trials, largest: int, n_folds: int, rng: np.random.Generator) -> ChosenSize:
    """Select the size by the one-standard-error rule, and grow a start of that size as the scored ones did."""
    clock = trials.setting.clock
    part = choice_sample(sample, rng, clock)

    def select() -> tuple[ChosenSize, dict[str, Any]]:
        sizes, results = scored_sizes(part, trials, largest, n_folds, rng)
        before = clock.elapsed()
        start = trials.start(part, sizes, rng)
        return ChosenSize(sizes, start, results, clock.elapsed() - before), dict(rng.bit_generator.state)

    found, rng.bit_generator.state = sample.rows.shard.group.first(select)
    return found


def choice_sample(sample: Sample, rng: np.random.Generator, clock: Clock) -> Sample:
    """Draw the rows of cross-validation: all of positive weight, or a random part of many."""
    shard, alive = sample.rows.shard, sample.weight > 0
    budget = clock.seconds
    most = CHOICE_ROWS if budget is None else int(np.clip(ROWS_A_SECOND * budget, 200, CHOICE_ROWS))
    numbers = shard.draw(alive, most, rng)
    return sample if len(numbers) == sample.rows.n_rows and not shard.divided else sample.part(numbers)


def scored_sizes(
    sample: Sample, trials: Trials, largest: int, n_folds: int, rng: np.random.Generator
) -> tuple[list[int], dict[str, Any]]:
    """Score sizes by cross-validation; return those up to the best, and results named as in scikit-learn's searches.

    `sample` is that of `choice_sample`. All folds score a size before any continues with the next, so the results are
    complete when time is up. A share of the time is left for the fit to all rows.
    """
    n, clock = sample.rows.n_rows, trials.setting.clock
    n_folds = min(n_folds, n)
    require(n_folds >= 2, "the number of rows", "at least 2 for n_components='auto'", n)
    labels = sample.Y[:, 0].cpu().numpy() if trials.setting.n_classes else np.zeros(n)
    fold = stratified_folds(labels, n_folds, rng)
    sizes = sizes_up_to(min(largest, max(n * (n_folds - 1) // n_folds, 1)))
    number = torch.as_tensor(fold, device=sample.weight.device)
    parts = [tuple(sample.here(side.nonzero()[:, 0]) for side in (number != f, number == f)) for f in range(n_folds)]
    runs = [
        map(trials.score, trials.growing(train, sizes, fold_rng), repeat(test))
        for (train, test), fold_rng in zip(parts, rng.spawn(n_folds), strict=True)
    ]
    rows = []
    for row in zip(*runs, strict=True):
        if clock.interrupted:  # there is no fit to all rows yet
            raise KeyboardInterrupt
        rows.append(row)
        report_step("size", len(sizes))
        if clock.expired(until=(n_folds - 1) / (n_folds + 1)):
            break
    table, sizes = np.array(rows).T, sizes[: len(rows)]
    results: dict[str, Any] = {"param_n_components": np.array(sizes)}
    results |= {f"split{f}_test_score": table[f] for f in range(n_folds)}
    results |= {"mean_test_score": table.mean(0), "std_test_score": table.std(0)}
    return sizes[: one_standard_error(results, "n_components") + 1], results
