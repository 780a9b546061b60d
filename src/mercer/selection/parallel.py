"""Independent tasks in parallel threads, one core for each.

Matrices of a few hundred rows leave a second core idle most of the time; two tasks at once do not. Results come in the
order of the tasks and do not depend on the number of threads. Callbacks of the fit see the steps of all of them.
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


def run_parallel(tasks: Sequence[Callable[[], T]], device: Any = "cpu") -> list[T]:
    """Run tasks in parallel and return their results in order.

    >>> from mercer.selection.parallel import run_parallel
    >>> run_parallel([lambda: 1, lambda: 2])
    [1, 2]
    """
    threads = min(torch.get_num_threads(), len(tasks))
    if threads < 2 or torch.device(device).type != "cpu":  # one task keeps a GPU busy
        results = []
        for task in tasks:
            results.append(task())
        return results
    with _single_core_threads(threads) as pool:
        return [future.result() for future in [pool.submit(copy_context().run, task) for task in tasks]]


def run_on_one_core(task: Callable[[], T]) -> T:
    """Run a task of small matrices on one core: sixteen threads take thirty times as long for 200 rows.

    >>> from mercer.selection.parallel import run_on_one_core
    >>> run_on_one_core(torch.get_num_threads)
    1
    """
    with _single_core_threads(1) as pool:
        return pool.submit(copy_context().run, task).result()


@contextmanager
def in_background(task: Callable[[], object]) -> Iterator[None]:
    """Run a task on a CPU thread of its own beside the block; both have ended when the block ends.

    >>> from mercer.selection.parallel import in_background
    >>> done = []
    >>> with in_background(lambda: done.append("a")):
    ...     pass
    >>> done
    ['a']
    """
    threads = torch.get_num_threads()
    if threads < 2:
        yield
        task()
        return
    with _single_core_threads(1) as pool:
        torch.set_num_threads(threads)  # the limit may have changed this thread's number as well
        future = pool.submit(copy_context().run, task)
        yield
        future.result()


@contextmanager
def _single_core_threads(n: int) -> Iterator[ThreadPoolExecutor]:
    """A pool of `n` threads that use one core each; afterwards torch has the number of threads it had before."""
    before = torch.get_num_threads()
    try:
        with (
            libraries().limit(limits=1, user_api="blas"),
            ThreadPoolExecutor(n, initializer=torch.set_num_threads, initargs=(1,)) as pool,
        ):
            yield pool
    finally:
        torch.set_num_threads(before)  # new threads inherit what the last one set
