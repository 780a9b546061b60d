"""Which rows of a table a process holds, and how rows are named across processes.

Rows have two numbers: a *place* among those that this process holds, and a *number* in the whole table, by which all
processes speak of them. On one process both are the same. Basis vectors, draws and samples are numbers; vectors as long
as the rows (targets, values, weights) stay where the rows are and are looked up by `pick`.

Every method that takes numbers is a collective: all processes must call it with the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.data.group import ALONE, Group


class Shard:
    """The whole table, on one process: places are numbers."""

    group: Group = ALONE

    @property
    def divided(self) -> bool:
        """Whether other processes hold other rows."""
        return False

    def length(self, n_rows: int) -> int:
        """How many rows all processes have where this one has `n_rows`."""
        return n_rows

    def numbers(self, places: Any) -> Any:
        """The numbers of rows of this process."""
        return places

    def held(self, numbers: Any) -> tuple[Any, Any]:
        """Which of these rows are here, as an index into `numbers`, and their places."""
        return slice(None), numbers

    def take(self, take: Callable[[Any], Tensor], numbers: Any) -> Tensor:
        """Rows by number; `take` gives them by place."""
        return take(numbers)

    def pick(self, values: Tensor, numbers: Any) -> Tensor:
        """Entries at these rows of a tensor whose last axis runs over the rows of this process."""
        return values[..., numbers]

    def count(self, mask: Tensor) -> int:
        """True entries of a mask over the rows, on all processes."""
        return int(mask.count_nonzero())  # a sum would make numbers of eight bytes first

    def nth(self, mask: Tensor, positions: np.ndarray) -> Tensor:
        """The numbers of some true rows of a mask: the first one of all is at position 0."""
        rows = mask.nonzero()[:, 0]
        return rows[torch.from_numpy(np.asarray(positions, dtype=np.int64)).to(rows.device)]

    def positions(self, mask: Tensor) -> np.ndarray:
        """Where the true rows of this process stand among those of all: `nth` the other way round."""
        return np.arange(int(mask.sum()))

    def best(self, score: Tensor, places: Tensor, n: int) -> Tensor:
        """The numbers of the `n` rows of largest score, among these of this process and those of the others."""
        return places[score.topk(n).indices]

    def smallest(self, values: Tensor, n: int) -> float:
        """The n-th smallest of all numbers (n × 1 of them on this process)."""
        return float(values.kthvalue(n).values)

    def part(self, places: Tensor) -> Shard:
        """Some rows (of this process these places, in order) as a table of their own, in the order they had."""
        return self

    def named(self, part: Shard, places: Tensor, numbers: Tensor) -> Tensor:
        """The numbers of rows that have other `numbers` in that `part` of the rows, which is of these `places`."""
        return places[numbers]

    def numbered(self, part: Shard, places: Tensor, numbers: Tensor) -> Tensor:
        """The numbers in a `part` of the rows, of these `places`, of rows that have these `numbers`: `named` undone."""
        return torch.searchsorted(places, numbers)

    def largest(self, score: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        """The largest score of all and the number of its row, the first one among equals (1 each)."""
        value, at = score.max(0)
        return value[None], places[at][None]

    # What all shards do alike

    def draw(self, mask: Tensor, n: int, rng: np.random.Generator) -> Tensor:
        """At most `n` true rows of a mask at random, in order; every process draws the same."""
        total = self.count(mask)
        return self.nth(mask, np.arange(total) if total <= n else np.sort(rng.choice(total, n, replace=False)))

    def spaced(self, mask: Tensor, n: int) -> Tensor:
        """At most `n` true rows of a mask, evenly spaced among them."""
        total = self.count(mask)
        return self.nth(mask, np.linspace(0, max(total - 1, 0), min(total, n)).astype(int))

    def total(self, number: float) -> float:
        """The sum of one number over all processes."""
        return float(self.group.sum(torch.tensor(number, dtype=torch.float64)))


WHOLE = Shard()


class Pieces(Shard):
    """Runs of consecutive rows of a table that others hold other runs of.

    `starts` and `lengths` are those of this process, in the order in which it holds them; a process may hold none. The
    order of all rows, and so every draw, does not depend on how they were dealt out.
    """

    def __init__(self, group: Group, starts: Sequence[int], lengths: Sequence[int]) -> None:
        own = [(int(s), int(n)) for s, n in zip(starts, lengths, strict=True) if n]
        everyone = group.gather(own)
        self.group, self.rank = group, group.rank
        #: All runs in the order of the table: start, length, the process that holds it.
        runs = sorted((s, n, rank) for rank, each in enumerate(everyone) for s, n in each)
        self._runs = np.array(runs, dtype=np.int64).reshape(-1, 3)
        self._starts = np.array([s for s, _ in own], dtype=np.int64)
        self._ends = np.cumsum([n for _, n in own], dtype=np.int64)
        self._first = self._ends - np.array([n for _, n in own], dtype=np.int64)
        self._order = np.argsort(self._starts)
        self.n_rows = int(self._ends[-1]) if len(own) else 0
        self.n_total = int(self._runs[:, 1].sum())

    @property
    def divided(self) -> bool:
        return True

    def length(self, n_rows: int) -> int:
        return self.n_total

    def longer(self, n: int) -> Pieces:
        """The same with `n` further rows, dealt out evenly, after the last."""
        start, stop = even_run(self.group, n)
        lengths = self._ends - self._first
        return Pieces(self.group, [*self._starts, self.n_total + start], [*lengths, stop - start])

    def numbers(self, places: Any) -> Any:
        run = np.searchsorted(self._ends, _host(places), side="right")
        return _like(self._starts[run] + _host(places) - self._first[run], places)

    def held(self, numbers: Any) -> tuple[Any, Any]:
        wanted = _host(numbers)
        if not len(self._starts):
            return _like(np.empty(0, np.int64), numbers), _like(np.empty(0, np.int64), numbers)
        run = self._order[(np.searchsorted(self._starts[self._order], wanted, side="right") - 1).clip(min=0)]
        inside = wanted - self._starts[run]
        here = np.flatnonzero((inside >= 0) & (inside < (self._ends - self._first)[run]))
        return _like(here, numbers), _like(self._first[run[here]] + inside[here], numbers)

    def take(self, take: Callable[[Any], Tensor], numbers: Any) -> Tensor:
        at, places = self.held(numbers)
        rows = take(places)
        out = rows.new_zeros(len(numbers), rows.shape[1])
        out[torch.as_tensor(at, device=out.device)] = rows
        return self.group.sum(out)

    def pick(self, values: Tensor, numbers: Any) -> Tensor:
        at, places = self.held(numbers)
        out = values.new_zeros(*values.shape[:-1], len(numbers))
        out[..., torch.as_tensor(at, device=out.device)] = values[..., torch.as_tensor(places, device=values.device)]
        return self.group.sum(out.to(torch.uint8)).bool() if out.dtype == torch.bool else self.group.sum(out)

    def count(self, mask: Tensor) -> int:
        return int(self.group.sum(mask.count_nonzero().cpu()))

    def best(self, score: Tensor, places: Tensor, n: int) -> Tensor:
        top = score.topk(min(n, len(score)))
        own = top.values.double().cpu().numpy(), self.numbers(places[top.indices].cpu().numpy())
        scores, numbers = (np.concatenate(each) for each in zip(*self.group.gather(own), strict=True))
        order = np.lexsort((numbers, -scores))[:n]  # among equals the smaller number
        return torch.from_numpy(numbers[order]).to(score.device)

    def largest(self, score: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        own = None
        if len(score):
            value, at = score.max(0)
            own = -float(value), int(self.numbers(np.array([int(places[at])]))[0])
        least, number = min(one for one in self.group.gather(own) if one is not None)
        return score.new_tensor([-least]), torch.tensor([number], device=score.device)

    def smallest(self, values: Tensor, n: int) -> float:
        bits = values.double().view(torch.int64)
        keys = torch.where(bits < 0, bits ^ (2**63 - 1), bits)  # integers in the order of the values
        low, high = -(2**63), 2**63 - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.count(keys <= middle) >= n else (middle + 1, high)
        return float(torch.tensor(low if low >= 0 else low ^ (2**63 - 1)).view(torch.float64))

    def part(self, places: Tensor) -> Shard:
        mask = torch.zeros(self.n_rows, dtype=torch.bool, device=places.device)
        mask[places] = True
        _, _, counts = self._true(mask)
        own = np.flatnonzero(self._runs[:, 2] == self.rank)[np.argsort(self._order)]  # in the order they are held
        return Pieces(self.group, (np.cumsum(counts) - counts)[own].tolist(), counts[own].tolist())

    def named(self, part: Shard, places: Tensor, numbers: Tensor) -> Tensor:
        at, here = part.held(numbers)
        found = torch.zeros_like(numbers)
        found[at] = self.numbers(places[here])
        return self.group.sum(found)

    def numbered(self, part: Shard, places: Tensor, numbers: Tensor) -> Tensor:
        at, here = self.held(numbers)
        found = torch.zeros_like(numbers)
        found[at] = part.numbers(torch.searchsorted(places, here))
        return self.group.sum(found)

    def nth(self, mask: Tensor, positions: np.ndarray) -> Tensor:
        places, first, counts = self._true(mask)
        ends, mine = np.cumsum(counts), self._runs[:, 2] == self.rank
        run = np.searchsorted(ends, positions, side="right")
        owned = mine[run]
        found = np.zeros(len(positions), dtype=np.int64)
        within = np.asarray(positions)[owned] - (ends - counts)[run[owned]]
        found[owned] = self.numbers(places[first[run[owned]] + within])
        return self.group.sum(torch.from_numpy(found)).to(mask.device)

    def positions(self, mask: Tensor) -> np.ndarray:
        places, first, counts = self._true(mask)
        before, found = np.cumsum(counts) - counts, np.empty(len(places), dtype=np.int64)
        for run in np.flatnonzero(self._runs[:, 2] == self.rank):
            here = np.arange(counts[run])
            found[first[run] + here] = before[run] + here
        return found

    def _true(self, mask: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Places of true rows; of each run of the table where they begin among those, if it is here, and how many."""
        places = mask.nonzero()[:, 0].cpu().numpy()
        bounds = np.searchsorted(places, np.append(self._first, self.n_rows))  # of each own run among the true rows
        mine = self._runs[:, 2] == self.rank
        counts, first = np.zeros((2, len(self._runs)), dtype=np.int64)
        counts[mine], first[mine] = np.diff(bounds)[self._order], bounds[:-1][self._order]
        return places, first, self.group.sum(torch.from_numpy(counts)).numpy()


def even_run(group: Group, n: int) -> tuple[int, int]:
    """The run of `n` rows that falls to this process where all get about as many."""
    return group.rank * n // group.size, (group.rank + 1) * n // group.size


def _host(values: Any) -> np.ndarray:
    return values.cpu().numpy() if isinstance(values, Tensor) else np.asarray(values, dtype=np.int64)


def _like(values: np.ndarray, model: Any) -> Any:
    return torch.from_numpy(values).to(model.device) if isinstance(model, Tensor) else values
