"""Samples of tables that have more rows than a stage is fitted to.

The error falls as a power of the number of rows, while the time of a learner grows with it. So the first stage is
fitted to a sample of the table, and every refinement stage to another sample. A classifier samples by margin: it scores
many more rows than it is fitted to, and keeps the rows that hold nearly all of the remaining loss. They lie along the
decision boundary nearly as densely as in the full table. As many of the other rows are kept with larger weights, so
that their predictions stay right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.data import ArrayRows, TensorRows
from mercer.engine import KernelMatrix, Plan
from mercer.forward.path import FittedExpansion
from mercer.forward.problem import Problem
from mercer.forward.task import FittedMember, Task
from mercer.losses import squared_hinge
from mercer.preprocessing.inputs import InputMap, device_blocks
from mercer.preprocessing.read import TableData
from mercer.progress import report_step

#: Rows that a classifier scores for a stage, in units of the rows that the stage is fitted to.
CANDIDATE_FACTOR = {"cpu": 5, "cuda": 20}
#: Share of the loss that the rows of small margin hold together.
LOSS_COVERAGE = 0.99
#: The fewest rows of a class in a sample, if the table has as many.
MIN_CLASS_ROWS = 1000


def draw_sample(data: TableData, n: int, rng: np.random.Generator, *, classes: bool) -> TableData:
    """Draw about `n` rows at random. Rare classes are oversampled, with weights that correct for it."""
    numbers = bernoulli(len(data.weight), n, rng)
    numbers = numbers[data.weight[numbers] > 0]
    if not len(numbers):  # possible if `n` is small
        numbers = rng.permutation(np.flatnonzero(data.weight > 0))[:1]
    weight = data.weight[numbers]
    if classes:
        numbers, weight = _with_rare_classes(data, numbers, weight, rng)
    rows = ArrayRows(data.rows.fetch(numbers).cpu().numpy())
    return data.with_rows(rows, numbers, weight)


def bernoulli(n_rows: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """Indices that are each drawn with probability n / n_rows, in ascending order; all of them if `n` ≥ `n_rows`."""
    if n >= n_rows:
        return np.arange(n_rows)
    most = n + int(6 * n**0.5) + 10  # six standard deviations above the mean
    places = np.cumsum(rng.geometric(n / n_rows, size=most)) - 1
    return places[places < n_rows]


def _with_rare_classes(
    data: TableData, numbers: np.ndarray, weight: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers and weights, with at least `MIN_CLASS_ROWS` rows of each class or all of its rows."""
    drawn_labels, counts = np.unique(data.y[numbers], return_counts=True)
    count = dict(zip(drawn_labels.tolist(), counts.tolist(), strict=True))
    share = len(numbers) / len(data.weight)
    for label in np.unique(data.y):
        if count.get(label.item() if hasattr(label, "item") else label, 0) >= MIN_CLASS_ROWS:
            continue
        available = np.flatnonzero((data.y == label) & (data.weight > 0))
        chosen = available
        if len(available) > MIN_CLASS_ROWS:
            chosen = rng.choice(available, MIN_CLASS_ROWS, replace=False)
        if len(chosen):
            others = data.y[numbers] != label
            corrected = data.weight[chosen] * (share * len(available) / len(chosen))
            numbers = np.concatenate([numbers[others], chosen])
            weight = np.concatenate([weight[others], corrected])
    order = np.argsort(numbers)
    return numbers[order], weight[order]


@dataclass(frozen=True)
class ScoredRows:
    """Rows in kernel coordinates with coded targets, weights and the values `f` of the current model."""

    rows: Tensor
    y: Tensor
    weight: Tensor
    f: Tensor

    def part(self, index: Tensor) -> ScoredRows:
        return ScoredRows(self.rows[index], self.y[index], self.weight[index], self.f[index])

    def plus(self, expansions: Sequence[FittedExpansion], plan: Plan) -> ScoredRows:
        """The same rows with the values of further expansions added."""
        f = self.f.clone()
        for part in expansions:
            f += KernelMatrix(TensorRows(self.rows), part.kernel, part.basis, plan).product(part.weights)
        return replace(self, f=f)

    @classmethod
    def joined(cls, parts: Sequence[ScoredRows]) -> ScoredRows:
        return cls(*(torch.cat(each) for each in zip(*((p.rows, p.y, p.weight, p.f) for p in parts), strict=True)))


@dataclass
class StageSampler:
    """Problems of refinement stages on rows drawn from the full table.

    The validation rows stand at the end of each problem, in the same order and with weight zero, so that losses can be
    compared. `first` is the problem of the first stage and `size` the number of rows that a stage is fitted to.
    """

    table: TableData
    sample: TableData
    targets: Any
    inputs: InputMap
    first: Problem
    validation: Tensor
    size: int
    rng: np.random.Generator
    classes: bool

    @classmethod
    def after(cls, first: FittedMember, task: Task, *, classes: bool) -> StageSampler:
        """The sampler of the stages after the first stage of a model."""
        fit, inputs = first.fit, first.member.inputs
        assert task.full_table is not None
        assert fit.validation is not None
        size = int(np.count_nonzero(task.data.weight))
        return cls(
            task.full_table, task.data, task.targets, inputs, fit.problem, fit.validation, size, fit.rng, classes
        )

    def __post_init__(self) -> None:
        first, validation = self.first, self.validation
        self.plan = first.plan
        self.generator = torch.Generator(self.plan.device).manual_seed(int(self.rng.integers(2**63)))
        self.offset = torch.as_tensor(self.targets.offset if self.classes else 0.0).to(first.y)
        y = first.y[validation]
        self.held_out = ScoredRows(first.rows.take(validation), y, torch.zeros_like(y[:, 0]), torch.zeros_like(y))
        self.validation_weight = first.validation_weight(validation).to(y)
        self.excluded = self._validation_numbers()
        self.n_scored = 0  # expansions of the model whose values `held_out` has
        self.candidates: ScoredRows | None = None  # rows of small margin, and some others, of the last stage

    def _validation_numbers(self) -> np.ndarray:
        """Row numbers, in the full table, of validation rows that come from it and of rows that stay with them."""
        assert self.sample.row_indices is not None
        places = self.validation.cpu().numpy()
        places = places[places < len(self.sample.row_indices)]
        if self.sample.row_groups is not None and self.table.row_groups is not None and len(places):
            return np.flatnonzero(self.table.row_groups.beside(self.sample.row_groups.key[places]))
        numbers = np.sort(self.sample.row_indices[places])
        return numbers if self.table.row_indices is None else np.searchsorted(self.table.row_indices, numbers)

    def problem(
        self, model: Sequence[FittedExpansion], kernel: Any, kernel_values: float = np.inf
    ) -> tuple[Problem, Tensor] | None:
        """The residuals of a model, a sum of expansions, on newly drawn rows, and the places of validation rows.

        None if `kernel_values` are too few to score more rows than a stage is fitted to.
        """
        new = model[self.n_scored :]
        known = self.candidates if self.classes else None
        n_rows, needed = (2 * self.size, model) if known is None else (len(known.f), new)
        if n_rows * _n_basis(needed) > kernel_values:
            return None
        self.held_out, self.n_scored = self.held_out.plus(new, self.plan), len(model)
        threshold = self.margin_threshold()
        if known is None:
            self.candidates = self._scored_candidates(model, threshold, kernel_values)
        else:
            self.candidates = self._thin_large_margins(known.plus(new, self.plan), threshold)
        drawn = self._training_rows(self.candidates, threshold)
        problem, places = self._residuals(drawn, self.held_out)
        return replace(problem, kernel=kernel), places

    def random_rows(self, model: Sequence[FittedExpansion], n: int) -> tuple[Problem, Tensor]:
        """The residuals of a model at about `n` random rows of the table, and the places of validation rows."""
        parts = [block.plus(model, self.plan) for block in self._random_rows(n)]
        held_out = replace(self.held_out, f=torch.zeros_like(self.held_out.f)).plus(model, self.plan)
        return self._residuals(ScoredRows.joined(parts), held_out)

    def _residuals(self, drawn: ScoredRows, held_out: ScoredRows) -> tuple[Problem, Tensor]:
        """The problem of the residuals of these rows, and the places of the validation rows behind them."""
        rows = ScoredRows.joined([drawn, held_out])
        validation_weight = torch.cat([torch.zeros_like(drawn.weight), self.validation_weight])
        residuals = self.first.with_sample(
            rows=TensorRows(rows.rows), Y=rows.y - rows.f, weight=rows.weight, validation_weight=validation_weight,
            row_groups=None,
        )  # fmt: skip
        places = torch.arange(len(drawn.f), len(rows.f), device=self.plan.device)
        return replace(residuals, codes=rows.y + self.offset), places

    def _training_rows(self, candidates: ScoredRows, threshold: float) -> ScoredRows:
        """About `size` rows of small margin, and all kept rows of large margin."""
        small = self._margins(candidates) < threshold
        share = min(self.size / max(int(small.sum()), 1), 1.0)
        return self._draw(candidates, torch.where(small, share, 1.0), share)

    def _scored_candidates(
        self, model: Sequence[FittedExpansion], threshold: float, kernel_values: float
    ) -> ScoredRows:
        """Read rows of the table and score them; rows of large margin are thinned."""
        factor = CANDIDATE_FACTOR[self.plan.device.type] if self.classes else 1
        affordable = kernel_values / max(_n_basis(model), 1)
        total = int(min(factor * self.size, self.table.rows.n_rows, affordable))
        n_large = total * float((self._margins(self.held_out) >= threshold).double().mean())
        parts, done = [], 0
        report_step("rows looked through", total, step=done)
        for block in self._random_rows(total):
            done += len(block.f)
            parts.append(self._thin_large_margins(block.plus(model, self.plan), threshold, n_large))
            report_step("rows looked through", total, step=min(done, total))
        return ScoredRows.joined(parts)

    def _thin_large_margins(self, rows: ScoredRows, threshold: float, n_large: float | None = None) -> ScoredRows:
        """All rows of small margin, and about `size` of the `n_large` others, with larger weights."""
        large = self._margins(rows) >= threshold
        n_large = float(large.sum()) if n_large is None else n_large
        return self._draw(rows, torch.where(large, min(self.size / max(n_large, 1.0), 1.0), 1.0))

    def _draw(self, rows: ScoredRows, share: Tensor, unit: float = 1.0) -> ScoredRows:
        """Draw each row with the probability `share`; weights correct for it, up to a common factor `unit`."""
        chance = torch.rand(len(share), device=share.device, generator=self.generator)
        rows = replace(rows, weight=rows.weight * (unit / share).to(rows.weight.dtype))
        return rows.part((chance < share).nonzero()[:, 0])

    def _random_rows(self, n: int) -> Iterator[ScoredRows]:
        """About `n` random rows of the table, block by block, with values zero; validation rows are excluded."""
        table, plan, dtype = self.table, self.plan, self.first.y.dtype
        share = n / table.rows.n_rows
        for start, block in device_blocks(table.rows, plan.chunk_rows(table.rows.n_columns), plan):
            stop = start + len(block)
            chosen = torch.rand(len(block), device=plan.device, generator=self.generator) < share
            chosen &= torch.as_tensor(table.weight[start:stop] > 0).to(plan.device)
            low, high = np.searchsorted(self.excluded, [start, stop])
            chosen[torch.as_tensor(self.excluded[low:high] - start, device=plan.device)] = False
            index = chosen.nonzero()[:, 0]
            numbers = start + index.cpu().numpy()
            y = torch.as_tensor(self.targets.encode(table.y[numbers])).to(plan.device, dtype)
            weight = torch.as_tensor(table.weight[numbers]).to(plan.device, dtype)
            rows = self.inputs.kernel_rows(block[index], plan)
            yield ScoredRows(rows, y, weight, torch.zeros_like(y))

    def _margins(self, rows: ScoredRows) -> Tensor:
        """The smallest margin of each row; zero for regression, below any threshold."""
        if not self.classes:
            return torch.zeros_like(rows.weight)
        return self._all_margins(rows).amin(1)

    def _all_margins(self, rows: ScoredRows) -> Tensor:
        """Products of codes and values, n × p."""
        return (rows.y + self.offset) * (rows.f + self.offset)

    def margin_threshold(self) -> float:
        """The margin below which validation rows have `LOSS_COVERAGE` of their squared hinge loss."""
        if not self.classes:
            return np.inf
        loss = squared_hinge(self._all_margins(self.held_out)).sum(1).double()
        margins, order = self._margins(self.held_out).sort()
        covered = loss[order].cumsum(0)
        return float(margins[torch.searchsorted(covered, LOSS_COVERAGE * covered[-1]).clamp(max=len(order) - 1)])


def _n_basis(expansions: Sequence[FittedExpansion]) -> int:
    return sum(len(expansion.basis) for expansion in expansions)
