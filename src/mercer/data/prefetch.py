"""Prefetch blocks: a thread reads the next blocks while the current one is processed.

Reading, decoding (pyarrow) and copying into pinned memory release Python's global lock. They take no extra time as long
as they are faster than the processing of a block.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from torch import Tensor

Block = tuple[int, Tensor]
#: Largest number of prefetched blocks, besides the one being processed.
READY = 2


def read_ahead(blocks: Iterator[Block], *, pinned: bool = False) -> Iterator[Block]:
    """Yield the same blocks, prefetched by a thread; `pinned` copies them to pinned memory for a GPU.

    A block is a pair of its first row and the rows. An error of the thread is raised here, after the blocks before
    it. Leaving the loop early ends the thread.

    >>> import torch
    >>> from mercer.data import read_ahead
    >>> [(start, rows.tolist()) for start, rows in read_ahead(iter([(0, torch.ones(2)), (2, torch.zeros(1))]))]
    [(0, [1.0, 1.0]), (2, [0.0])]
    """

    def read() -> Block | None:
        found = next(blocks, None)
        if found is None or not pinned or found[1].is_cuda:
            return found
        return found[0], found[1].pin_memory()

    with ThreadPoolExecutor(1, "mercer reads ahead") as thread:
        ready: deque[Future[Block | None]] = deque(thread.submit(read) for _ in range(READY))
        try:
            while (block := ready.popleft().result()) is not None:
                ready.append(thread.submit(read))
                yield block
                del block  # frees it before waiting for the next block
        finally:
            for future in ready:
                future.cancel()
            if hasattr(blocks, "close"):  # the thread that opened a file closes it
                thread.submit(blocks.close).result()
