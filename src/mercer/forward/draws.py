"""Tables too large to learn from whole: learners see some of the rows at a time, drawn again for every stage.

Error falls as a power of the rows that are learned from, while the time of a learner grows with them, and most rows say
what others said before. So a first stage learns from a part of the table, and every later one from another part. Of
classes those rows count most that the model does not yet tell apart with ease: a stage looks through many more rows
than it learns from and takes those that hold nearly all of the loss that is left, which lie along the border between
classes nearly as densely as in the whole table. Of the others it takes as many, with larger weights: what is right
already must stay so.
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
from mercer.losses import squared_hinge
from mercer.preprocessing.inputs import InputMap, device_blocks
from mercer.preprocessing.read import TableData
from mercer.progress import report_step

#: Rows learned from at a time, on a CPU and on a GPU.
LEARNED = {"cpu": 1_000_000, "cuda": 10_000_000}
#: Kernel values a second that learners are counted on to make, and those that a model of some size takes for each row
#: (two passes over forty learners); the share of a time budget for them, and rows that even the shortest one gets.
RATE, VALUES = {"cpu": 3e8, "cuda": 1e12}, {"cpu": 2 * 40 * 500, "cuda": 2 * 40 * 2000}
GROWING, FEWEST = 0.5, 10_000
#: Rows looked through for those that count, in units of the rows learned from at a time.
LOOKED_AT = {"cpu": 5, "cuda": 20}
#: The share of the loss that rows which count hold together.
HOLDING = 0.99
#: Rows of a class that are learned from at least, where there are so many.
RARE = 1000


def rows_at_a_time(wanted: int | str, n_columns: int, plan: Plan, seconds: float | None = None) -> int:
    """Rows learned from at a time: as many as were asked for, or as pay, fit into a quarter of the memory, and leave
    time for enough learners where `seconds` are all that there is."""
    if not isinstance(wanted, str):
        return wanted
    where = plan.device.type
    most = min(LEARNED[where], plan.memory_limit // (4 * plan.itemsize * n_columns))
    if seconds is not None:
        most = min(most, max(int(GROWING * seconds * RATE[where] / VALUES[where]), FEWEST))
    return most


def some_rows(given: TableData, n: int, rng: np.random.Generator, *, classes: bool) -> TableData:
    """About `n` rows at random. Of a rare class more than its share is taken, with weights that undo it."""
    numbers = bernoulli(len(given.weight), n, rng)
    numbers = numbers[given.weight[numbers] > 0]
    if not len(numbers):  # by chance, where few are wanted
        numbers = rng.permutation(np.flatnonzero(given.weight > 0))[:1]
    weight = given.weight[numbers]
    if classes:
        numbers, weight = _with_rare_classes(given, numbers, weight, rng)
    rows = ArrayRows(given.rows.fetch(numbers).cpu().numpy())
    means = None if given.means is None else given.means.take(numbers)
    return replace(
        given, rows=rows, y=given.y[numbers], weight=weight, row_indices=given.original_indices(numbers), means=means
    )


def bernoulli(n_rows: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """Rows that are each drawn with probability n / n_rows, in order; all of them where `n` is as large.

    >>> bernoulli(4, 9, np.random.default_rng(0))
    array([0, 1, 2, 3])
    """
    if n >= n_rows:
        return np.arange(n_rows)
    most = n + int(6 * n**0.5) + 10  # six standard deviations: more are not drawn
    places = np.cumsum(rng.geometric(n / n_rows, size=most)) - 1
    return places[places < n_rows]


def _with_rare_classes(
    given: TableData, numbers: np.ndarray, weight: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    seen, counts = np.unique(given.y[numbers], return_counts=True)
    count = dict(zip(seen.tolist(), counts.tolist(), strict=True))
    share = len(numbers) / len(given.weight)
    for label in np.unique(given.y):
        if count.get(label.item() if hasattr(label, "item") else label, 0) >= RARE:
            continue
        everyone = np.flatnonzero((given.y == label) & (given.weight > 0))
        own = everyone if len(everyone) <= RARE else rng.choice(everyone, RARE, replace=False)
        if len(own):
            others = given.y[numbers] != label
            heavier = given.weight[own] * (share * len(everyone) / len(own))
            numbers = np.concatenate([numbers[others], own])
            weight = np.concatenate([weight[others], heavier])
    order = np.argsort(numbers)
    return numbers[order], weight[order]


@dataclass(frozen=True)
class Seen:
    """Rows as a kernel sees them, coded targets, weights, and what the model so far says of them."""

    rows: Tensor
    y: Tensor
    weight: Tensor
    f: Tensor

    def part(self, index: Tensor) -> Seen:
        return Seen(self.rows[index], self.y[index], self.weight[index], self.f[index])

    def after(self, models: Sequence[FittedExpansion], plan: Plan) -> Seen:
        """With the values of further models added."""
        f = self.f.clone()
        for one in models:
            f += KernelMatrix(TensorRows(self.rows), one.kernel, one.basis, plan).product(one.weights)
        return replace(self, f=f)

    @classmethod
    def joined(cls, parts: Sequence[Seen]) -> Seen:
        return cls(*(torch.cat(each) for each in zip(*((p.rows, p.y, p.weight, p.f) for p in parts), strict=True)))


class Renewal:
    """Problems of further stages on rows drawn anew from the whole table.

    Rows held out stand at the end of each, in the same order and with weight zero, so that losses can be compared.
    """

    def __init__(
        self,
        whole: TableData,
        sample: TableData,
        targets: Any,
        inputs: InputMap,
        first: Problem,
        held_out: Tensor,
        size: int,
        rng: np.random.Generator,
        *,
        classes: bool,
    ) -> None:
        self.whole, self.targets, self.inputs, self.first = whole, targets, inputs, first
        self.size, self.classes = size, classes
        self.generator = torch.Generator(first.plan.device).manual_seed(int(rng.integers(2**63)))
        self.offset = torch.as_tensor(targets.offset if classes else 0.0).to(first.y)
        y = first.y[held_out]
        self.held_out = Seen(first.rows.take(held_out), y, torch.zeros_like(y[:, 0]), torch.zeros_like(y))
        self.watched = first.validation_weight(held_out).to(y)
        assert sample.row_indices is not None
        places = held_out.cpu().numpy()
        hidden = np.sort(sample.row_indices[places[places < len(sample.row_indices)]])
        # numbers, in the whole table, of rows that stay held out; its places are in ascending order
        self.hidden = hidden if whole.row_indices is None else np.searchsorted(whole.row_indices, hidden)
        self.n_known = 0  # parts of the model that rows held out have been asked about
        self.found: Seen | None = None  # rows that counted when the last stage was drawn

    def problem(
        self, model: Sequence[FittedExpansion], kernel: Any, values: float = np.inf
    ) -> tuple[Problem, Tensor] | None:
        """What a model, a sum of these parts, leaves to a kernel on other rows, and where rows to watch stand there.

        None where so few kernel `values` would not do to look at more rows than a stage learns from.
        """
        plan, new = self.first.plan, model[self.n_known :]
        known = self.found if self.classes else None
        n_rows, asked = (2 * self.size, model) if known is None else (len(known.f), new)
        if n_rows * sum(len(one.basis) for one in asked) > values:
            return None
        self.held_out, self.n_known = self.held_out.after(new, plan), len(model)
        widest = self._widest()
        if known is None:
            self.found = self._read(model, widest, values)
        else:
            self.found = self._thinned(known.after(new, plan), widest)
        drawn = self._learned(self.found, widest)
        seen = Seen.joined([drawn, self.held_out])
        watched = torch.cat([torch.zeros_like(drawn.weight), self.watched])
        left = self.first.with_sample(
            rows=TensorRows(seen.rows), Y=seen.y - seen.f, weight=seen.weight, watched=watched
        )
        problem = replace(left, kernel=kernel, codes=seen.y + self.offset)
        return problem, torch.arange(len(drawn.f), len(seen.f), device=plan.device)

    def _learned(self, found: Seen, widest: float) -> Seen:
        """About as many rows that count as a stage learns from, and the others, so that it does not spoil them."""
        counts = self._margins(found) < widest
        share = min(self.size / max(int(counts.sum()), 1), 1.0)
        return self._kept(found, torch.where(counts, share, 1.0), share)

    def _read(self, model: Sequence[FittedExpansion], widest: float, values: float) -> Seen:
        """Rows of the table that the model has been asked about; of classes those that count, and some others."""
        times = LOOKED_AT[self.first.plan.device.type] if self.classes else 1
        affordable = values / max(sum(len(one.basis) for one in model), 1)
        total = int(min(times * self.size, self.whole.rows.n_rows, affordable))
        others = total * float((self._margins(self.held_out) >= widest).double().mean())
        parts, done = [], 0
        report_step("rows looked through", total, step=done)
        for some in self._subsample(total):
            done += len(some.f)
            parts.append(self._thinned(some.after(model, self.first.plan), widest, others))
            report_step("rows looked through", total, step=min(done, total))
        return Seen.joined(parts)

    def _thinned(self, seen: Seen, widest: float, n_others: float | None = None) -> Seen:
        """All rows that count, and of the others so many, with larger weights, as a stage learns from."""
        others = self._margins(seen) >= widest
        n_others = float(others.sum()) if n_others is None else n_others
        return self._kept(seen, torch.where(others, min(self.size / max(n_others, 1.0), 1.0), 1.0))

    def _kept(self, seen: Seen, share: Tensor, unit: float = 1.0) -> Seen:
        """Rows at random, each with the probability `share`; weights undo it, up to a common factor `unit`."""
        chance = torch.rand(len(share), device=share.device, generator=self.generator)
        seen = replace(seen, weight=seen.weight * (unit / share).to(seen.weight.dtype))
        return seen.part((chance < share).nonzero()[:, 0])

    def _subsample(self, n: int) -> Iterator[Seen]:
        """About `n` rows at random, block by block, with nothing said of them yet."""
        given, plan, dtype = self.whole, self.first.plan, self.first.y.dtype
        share = n / given.rows.n_rows
        for start, block in device_blocks(given.rows, plan.chunk_rows(given.rows.n_columns), plan):
            stop = start + len(block)
            chosen = torch.rand(len(block), device=plan.device, generator=self.generator) < share
            chosen &= torch.as_tensor(given.weight[start:stop] > 0).to(plan.device)
            low, high = np.searchsorted(self.hidden, [start, stop])
            chosen[torch.as_tensor(self.hidden[low:high] - start, device=plan.device)] = False
            index = chosen.nonzero()[:, 0]
            places = start + index.cpu().numpy()
            y = torch.as_tensor(self.targets.encode(given.y[places])).to(plan.device, dtype)
            weight = torch.as_tensor(given.weight[places]).to(plan.device, dtype)
            rows = self.inputs.kernel_rows(block[index], plan)
            yield Seen(rows, y, weight, torch.zeros_like(y))

    def _margins(self, seen: Seen) -> Tensor:
        """The smallest margin of each row; of numbers, which have none, one that always counts."""
        if not self.classes:
            return torch.zeros_like(seen.weight)
        return self._products(seen).amin(1)

    def _products(self, seen: Seen) -> Tensor:
        """Those of codes and values, n × p."""
        return (seen.y + self.offset) * (seen.f + self.offset)

    def _widest(self) -> float:
        """The margin below which rows held out have nearly all of their squared hinge loss."""
        if not self.classes:
            return np.inf
        loss = squared_hinge(self._products(self.held_out)).sum(1).double()
        margins, order = self._margins(self.held_out).sort()
        held = loss[order].cumsum(0)
        return float(margins[torch.searchsorted(held, HOLDING * held[-1]).clamp(max=len(order) - 1)])
