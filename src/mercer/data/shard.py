"""Which rows of a table a process holds, and their indices in the whole table.

A row has a *local* index among the rows of its process and a *global* index in the whole table, by which all processes
name it. On one process both are the same. Basis vectors, draws and samples are global indices; vectors as long as the
rows (targets, values, weights) stay with the rows and are looked up by `pick`.

Every method that takes global indices is a collective: all processes must call it with the same ones.

Processes that fit one model together are a `Group` with few collectives: a sum, objects of the first process, objects
of all processes. `mercer.distributed.group` implements them by torch.distributed. A single process is a group too,
whose sum is its own value: no algorithm asks how many processes there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

T = TypeVar("T")


class Group:
    """A group of one process.

    >>> from mercer.data.shard import Group
    >>> Group().first(lambda: 3), Group().gather("mine"), Group().size
    (3, ['mine'], 1)
    >>> Group().share_work(3, lambda tasks: [10 * task for task in tasks])
    [0, 10, 20]
    """

    rank: int = 0
    size: int = 1

    def sum(self, value: Tensor) -> Tensor:
        """Sum `value` over all processes; the result is the same on each to the last bit."""
        return value

    def sums(self, *values: Tensor) -> list[Tensor]:
        """Sum several tensors of one dtype over all processes, in one message."""
        return list(values)

    def first(self, make: Callable[[], T]) -> T:
        """Call `make` on the first process alone and return its result on all, so that a choice is made once."""
        return make()

    def broadcast(self, value: Tensor) -> Tensor:
        """Return the small tensor of the first process on all: different machines round differently."""
        return value

    def gather(self, thing: T) -> list[T]:
        """Return small objects of all processes, in the order of their ranks."""
        return [thing]

    def share_work(self, n: int, make: Callable[[Sequence[int]], list[T]]) -> list[T]:
        """Divide `n` tasks among the processes and return all results, in order, on each process.

        `make` gets the numbers of the tasks of its process and returns one result each. An error of one process is
        raised on all. Inside `make` a process works by itself: collectives return its own value.
        """
        return make(range(n))

    def min(self, number: float) -> float:
        """Return the smallest of the processes' numbers."""
        return min(self.gather(number))

    def max(self, number: float) -> float:
        """Return the largest of the processes' numbers."""
        return max(self.gather(number))


ONE_PROCESS = Group()
_current: ContextVar[Group] = ContextVar("group", default=ONE_PROCESS)


def current_group() -> Group:
    """Return the processes among which tables are divided."""
    return _current.get()


def set_group(group: Group) -> None:
    """Divide tables among these processes from now on."""
    _current.set(group)


@contextmanager
def use_group(group: Group) -> Iterator[Group]:
    """Divide tables among these processes inside this context."""
    token = _current.set(group)
    try:
        yield group
    finally:
        _current.reset(token)


class Shard:
    """The whole table, on one process: local indices are global ones."""

    group: Group = ONE_PROCESS

    @property
    def divided(self) -> bool:
        """Whether other processes hold other rows."""
        return False

    def length(self, n_rows: int) -> int:
        """Return the number of rows of all processes, where this one has `n_rows`."""
        return n_rows

    def global_indices(self, local: Any) -> Any:
        """Return the global indices of rows of this process."""
        return local

    def local(self, indices: Any) -> tuple[Any, Any]:
        """Return which of these rows this process holds, as an index into `indices`, and their local indices."""
        return slice(None), indices

    def take(self, take: Callable[[Any], Tensor], indices: Any) -> Tensor:
        """Return rows by global index; `take` returns them by local index."""
        return take(indices)

    def pick(self, values: Tensor, indices: Any) -> Tensor:
        """Return the entries at these rows of a tensor whose last axis runs over the rows of this process."""
        return values[..., indices]

    def count(self, mask: Tensor) -> int:
        """Count the true entries of a mask over the rows, on all processes."""
        return int(mask.count_nonzero())  # a sum would convert to integers of eight bytes first

    def nth(self, mask: Tensor, positions: np.ndarray) -> Tensor:
        """Return the global indices of the true rows of a mask at these positions, counted over all processes."""
        rows = mask.nonzero()[:, 0]
        return rows[torch.from_numpy(np.asarray(positions, dtype=np.int64)).to(rows.device)]

    def positions(self, mask: Tensor) -> np.ndarray:
        """Return the positions of this process's true rows among those of all processes: the inverse of `nth`."""
        return np.arange(int(mask.sum()))

    def top_rows(self, score: Tensor, local: Tensor, n: int) -> Tensor:
        """Return the global indices of the `n` rows of largest score on all processes; `local` are those scored."""
        return local[score.topk(n).indices]

    def max(self, score: Tensor, local: Tensor) -> tuple[Tensor, Tensor]:
        """Return the largest score of all processes and the global index of its row, the first of equal ones."""
        value, at = score.max(0)
        return value[None], local[at][None]

    def kth_value(self, values: Tensor, k: int) -> float:
        """Return the k-th smallest number of all processes."""
        return float(values.kthvalue(k).values)

    def part(self, local: Tensor) -> Shard:
        """Return the shard of a table of fewer rows, in the same order; `local` are those of this process."""
        return self

    def from_part(self, part: Shard, local: Tensor, indices: Tensor) -> Tensor:
        """Convert global indices in `part`, whose rows here are `local`, to global indices in this table."""
        return local[indices]

    def to_part(self, part: Shard, local: Tensor, indices: Tensor) -> Tensor:
        """Convert global indices in this table to those in `part`, whose rows here are `local`."""
        return torch.searchsorted(local, indices)

    # The same for all shards

    def draw(self, mask: Tensor, n: int, rng: np.random.Generator) -> Tensor:
        """Draw at most `n` true rows of a mask at random, in order; every process draws the same."""
        total = self.count(mask)
        return self.nth(mask, np.arange(total) if total <= n else np.sort(rng.choice(total, n, replace=False)))

    def spaced(self, mask: Tensor, n: int) -> Tensor:
        """Return at most `n` true rows of a mask, evenly spaced among them."""
        total = self.count(mask)
        return self.nth(mask, np.linspace(0, max(total - 1, 0), min(total, n)).astype(int))

    def total(self, number: float) -> float:
        """Sum a number over all processes."""
        return float(self.group.sum(torch.tensor(number, dtype=torch.float64)))


UNDIVIDED = Shard()


class Runs(Shard):
    """Runs of consecutive rows of a table, of which other processes hold other runs.

    `starts` and `lengths` are those of this process, in the order in which it holds them; a process may hold none. The
    order of all rows, and so every draw, does not depend on which process holds them.
    """

    def __init__(self, group: Group, starts: Sequence[int], lengths: Sequence[int]) -> None:
        local = [(int(start), int(length)) for start, length in zip(starts, lengths, strict=True) if length]
        everyone = group.gather(local)
        self.group = group
        self.rank = group.rank
        #: All runs in the order of the table: start, length, the process that holds it.
        runs = sorted((start, length, rank) for rank, held in enumerate(everyone) for start, length in held)
        self._runs = np.array(runs, dtype=np.int64).reshape(-1, 3)
        self._starts = np.array([start for start, _ in local], dtype=np.int64)
        self._lengths = np.array([length for _, length in local], dtype=np.int64)
        self._ends = np.cumsum(self._lengths)  # local indices
        self._first = self._ends - self._lengths
        self._order = np.argsort(self._starts)
        self.n_rows = int(self._lengths.sum())
        self.n_total = int(self._runs[:, 1].sum())

    @property
    def divided(self) -> bool:
        return True

    def length(self, n_rows: int) -> int:
        return self.n_total

    def append(self, n: int) -> Runs:
        """Return a shard with `n` further rows, divided evenly, after the last."""
        start, stop = even_run(self.group, n)
        return Runs(self.group, [*self._starts, self.n_total + start], [*self._lengths, stop - start])

    def global_indices(self, local: Any) -> Any:
        places = _host(local)
        run = np.searchsorted(self._ends, places, side="right")
        return _like(self._starts[run] + places - self._first[run], local)

    def local(self, indices: Any) -> tuple[Any, Any]:
        wanted = _host(indices)
        if not len(self._starts):
            return _like(np.empty(0, np.int64), indices), _like(np.empty(0, np.int64), indices)
        run = self._order[(np.searchsorted(self._starts[self._order], wanted, side="right") - 1).clip(min=0)]
        offset = wanted - self._starts[run]
        here = np.flatnonzero((offset >= 0) & (offset < self._lengths[run]))
        return _like(here, indices), _like(self._first[run[here]] + offset[here], indices)

    def take(self, take: Callable[[Any], Tensor], indices: Any) -> Tensor:
        which, local = self.local(indices)
        rows = take(local)
        out = rows.new_zeros(len(indices), rows.shape[1])
        out[torch.as_tensor(which, device=out.device)] = rows
        return self.group.sum(out)

    def pick(self, values: Tensor, indices: Any) -> Tensor:
        which, local = self.local(indices)
        out = values.new_zeros(*values.shape[:-1], len(indices))
        out[..., torch.as_tensor(which, device=out.device)] = values[..., torch.as_tensor(local, device=values.device)]
        return self.group.sum(out.to(torch.uint8)).bool() if out.dtype == torch.bool else self.group.sum(out)

    def count(self, mask: Tensor) -> int:
        return int(self.group.sum(mask.count_nonzero().cpu()))

    def top_rows(self, score: Tensor, local: Tensor, n: int) -> Tensor:
        top = score.topk(min(n, len(score)))
        found = top.values.double().cpu().numpy(), self.global_indices(local[top.indices].cpu().numpy())
        scores, indices = (np.concatenate(each) for each in zip(*self.group.gather(found), strict=True))
        order = np.lexsort((indices, -scores))[:n]  # of equal scores the smaller index
        return torch.from_numpy(indices[order]).to(score.device)

    def max(self, score: Tensor, local: Tensor) -> tuple[Tensor, Tensor]:
        found = None
        if len(score):
            value, at = score.max(0)
            found = -float(value), int(self.global_indices(np.array([int(local[at])]))[0])
        negative, index = min(pair for pair in self.group.gather(found) if pair is not None)
        return score.new_tensor([-negative]), torch.tensor([index], device=score.device)

    def kth_value(self, values: Tensor, k: int) -> float:
        bits = values.double().view(torch.int64)
        keys = torch.where(bits < 0, bits ^ (2**63 - 1), bits)  # integers in the order of the values
        low, high = -(2**63), 2**63 - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.count(keys <= middle) >= k else (middle + 1, high)
        return float(torch.tensor(low if low >= 0 else low ^ (2**63 - 1)).view(torch.float64))

    def part(self, local: Tensor) -> Shard:
        mask = torch.zeros(self.n_rows, dtype=torch.bool, device=local.device)
        mask[local] = True
        _, _, counts = self._true(mask)
        here = np.flatnonzero(self._is_local())[np.argsort(self._order)]  # in the order they are held
        starts = np.cumsum(counts) - counts
        return Runs(self.group, starts[here].tolist(), counts[here].tolist())

    def from_part(self, part: Shard, local: Tensor, indices: Tensor) -> Tensor:
        which, here = part.local(indices)
        found = torch.zeros_like(indices)
        found[which] = self.global_indices(local[here])
        return self.group.sum(found)

    def to_part(self, part: Shard, local: Tensor, indices: Tensor) -> Tensor:
        which, here = self.local(indices)
        found = torch.zeros_like(indices)
        found[which] = part.global_indices(torch.searchsorted(local, here))
        return self.group.sum(found)

    def nth(self, mask: Tensor, positions: np.ndarray) -> Tensor:
        places, first, counts = self._true(mask)
        ends = np.cumsum(counts)
        run = np.searchsorted(ends, positions, side="right")
        here = self._is_local()[run]
        offset = np.asarray(positions)[here] - (ends - counts)[run[here]]
        found = np.zeros(len(positions), dtype=np.int64)
        found[here] = self.global_indices(places[first[run[here]] + offset])
        return self.group.sum(torch.from_numpy(found)).to(mask.device)

    def positions(self, mask: Tensor) -> np.ndarray:
        places, first, counts = self._true(mask)
        before = np.cumsum(counts) - counts
        found = np.empty(len(places), dtype=np.int64)
        for run in np.flatnonzero(self._is_local()):
            offset = np.arange(counts[run])
            found[first[run] + offset] = before[run] + offset
        return found

    def _is_local(self) -> np.ndarray:
        """Which runs of the table this process holds."""
        return self._runs[:, 2] == self.rank

    def _true(self, mask: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Local indices of true rows; for each run of the table where its true rows begin there, and how many."""
        places = mask.nonzero()[:, 0].cpu().numpy()
        bounds = np.searchsorted(places, np.append(self._first, self.n_rows))  # of each local run among the true rows
        here = self._is_local()
        counts, first = np.zeros((2, len(self._runs)), dtype=np.int64)
        counts[here] = np.diff(bounds)[self._order]
        first[here] = bounds[:-1][self._order]
        return places, first, self.group.sum(torch.from_numpy(counts)).numpy()


def even_run(group: Group, n: int) -> tuple[int, int]:
    """Return start and end of this process's run of `n` rows that are divided evenly."""
    return group.rank * n // group.size, (group.rank + 1) * n // group.size


def _host(values: Any) -> np.ndarray:
    return values.cpu().numpy() if isinstance(values, Tensor) else np.asarray(values, dtype=np.int64)


def _like(values: np.ndarray, model: Any) -> Any:
    return torch.from_numpy(values).to(model.device) if isinstance(model, Tensor) else values
