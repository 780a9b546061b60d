"""Independent pieces of work side by side: one thread each, and one core for each thread.

Matrices of a few hundred rows leave a second core idle most of the time; two of them at once do not. The results are
those of one after the other, in that order, whatever the number of threads. Whoever listens to a fit hears all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, TypeVar

import torch

from mercer.linalg.minimise import libraries

T = TypeVar("T")


def side_by_side(tasks: Sequence[Callable[[], T]], device: Any = "cpu") -> list[T]:
    """What each task returns.

    >>> from mercer.selection.parallel import side_by_side
    >>> side_by_side([lambda: 1, lambda: 2])
    [1, 2]
    """
    threads = min(torch.get_num_threads(), len(tasks))
    if threads < 2 or torch.device(device).type != "cpu":  # a GPU is busy with one
        return [task() for task in tasks]
    before = torch.get_num_threads()
    try:
        with (
            libraries().limit(limits=1, user_api="blas"),  # one for each thread, whatever it calls
            ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool,
        ):
            return [future.result() for future in [pool.submit(copy_context().run, task) for task in tasks]]
    finally:
        torch.set_num_threads(before)  # what a thread sets is its own, and also the start of threads to come


@contextmanager
def beside(task: Callable[[], object]) -> Iterator[None]:
    """A piece of work on a CPU thread of its own, beside what the block does; when the block has ended, so has it.

    >>> from mercer.selection.parallel import beside
    >>> done = []
    >>> with beside(lambda: done.append("a")):
    ...     pass
    >>> done
    ['a']
    """
    threads = torch.get_num_threads()
    if threads < 2:
        yield
        task()
        return
    try:
        with (
            libraries().limit(limits=1, user_api="blas"),
            ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,)) as pool,
        ):
            torch.set_num_threads(threads)  # the limit may be one of this thread's own, for torch as well
            future = pool.submit(copy_context().run, task)
            yield
            future.result()
    finally:
        torch.set_num_threads(threads)
