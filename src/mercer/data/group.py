"""Processes that fit one model together, as algorithms see them; here the only one.

The collectives are few: a sum, things of the first process, things of all. What carries them over wires is
`mercer.distributed.group`, which alone knows torch.distributed. A process that is by itself is a group too, whose
sums are what it holds: no algorithm asks how many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from torch import Tensor

T = TypeVar("T")


class Group:
    """One process by itself.

    >>> from mercer.data.group import Group
    >>> Group().first(lambda: 3), Group().gather("mine"), Group().size
    (3, ['mine'], 1)
    >>> Group().dealt(3, lambda places: [10 * place for place in places])
    [0, 10, 20]
    """

    rank: int = 0
    size: int = 1

    def sum(self, value: Tensor) -> Tensor:
        """The sum of `value` over all processes, the same on each to the last bit."""
        return value

    def sums(self, *values: Tensor) -> list[Tensor]:
        """The sums of several tensors of one type over all processes, in one message."""
        return list(values)

    def first(self, make: Callable[[], T]) -> T:
        """What `make` gives on the first process, which alone calls it: how choices are made that must be one."""
        return make()

    def same(self, value: Tensor) -> Tensor:
        """A small tensor of the first process, in place of what others found: machines round differently."""
        return value

    def gather(self, thing: T) -> list[T]:
        """Small things of all processes, in the order of their ranks."""
        return [thing]

    def dealt(self, n: int, make: Callable[[Sequence[int]], list[T]]) -> list[T]:
        """What `make` gives for each of `n` pieces of work, in order: every process does some of them for all.

        `make` gets the places of its own and gives as many answers; an error of one process is everybody's. Meanwhile
        each works by itself: collectives asked for in a piece of work are its own affair.
        """
        return make(range(n))

    def least(self, number: float) -> float:
        """The smallest of the processes' numbers."""
        return min(self.gather(number))

    def largest(self, number: float) -> float:
        """The largest of the processes' numbers."""
        return max(self.gather(number))


ALONE = Group()

_current: ContextVar[Group] = ContextVar("group", default=ALONE)


def current_group() -> Group:
    """The processes among which tables are dealt out."""
    return _current.get()


def set_group(group: Group) -> None:
    """Deal out tables among these processes from now on."""
    _current.set(group)


@contextmanager
def within(group: Group) -> Iterator[Group]:
    """Deal out tables among these processes, for a while."""
    token = _current.set(group)
    try:
        yield group
    finally:
        _current.reset(token)
