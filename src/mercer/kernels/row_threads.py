"""Parts of the rows in threads of their own, as many as torch takes: for functions that run without Python's lock."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Result = TypeVar("Result")
#: Threads beside the caller's, by their number; a process that was forked off has none of them.
_pools: dict[int, ThreadPoolExecutor] = {}
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_pools.clear)
#: Parts for each thread: one that is held up leaves its parts to the others.
PARTS = 4


def over_rows(n: int, multiple: int, work: Callable[[slice], Result]) -> list[Result]:
    """``work(where)`` for parts of n rows, each but the last a multiple of rows long; what they return, in order.

    >>> from mercer.kernels.row_threads import over_rows
    >>> sum(over_rows(10, 3, lambda where: where.stop - where.start))
    10
    """
    threads = torch.get_num_threads()
    each = -(-n // (PARTS * threads * multiple)) * multiple if threads > 1 else n
    parts = [slice(start, min(start + each, n)) for start in range(0, n, max(each, 1))]
    if threads == 1 or len(parts) < 2:
        return [work(where) for where in parts]
    waiting, found = deque(range(len(parts))), dict[int, Result]()

    def take() -> None:
        while waiting:
            try:
                index = waiting.popleft()
            except IndexError:  # another thread was faster
                return
            found[index] = work(parts[index])

    others = [_pool(threads - 1).submit(take) for _ in range(min(threads, len(parts)) - 1)]
    try:
        take()
    finally:
        waiting.clear()
        for one in others:
            one.result()
    return [found[index] for index in range(len(parts))]


def _pool(threads: int) -> ThreadPoolExecutor:
    if threads not in _pools:
        _pools[threads] = ThreadPoolExecutor(threads, thread_name_prefix="mercer-rows")
    return _pools[threads]
