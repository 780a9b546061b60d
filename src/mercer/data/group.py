"""Interface of a group of processes that fit one model together, and the group of one process.

There are few collectives: a sum, objects of the first process, objects of all processes. `mercer.distributed.group`
implements them by torch.distributed. A single process is a group too, whose sum is its own value: no algorithm asks
how many processes there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from torch import Tensor

T = TypeVar("T")


class Group:
    """A group of one process.

    >>> from mercer.data.group import Group
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
