"""Prefetch blocks: a thread reads the next blocks while the current one is processed.

Reading, decoding (pyarrow) and copying into pinned memory release Python's global lock. They take no extra time as long
as they are faster than the processing of a block.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator

from torch import Tensor

#: Largest number of prefetched blocks, besides the one being processed.
READY = 2


def read_ahead(blocks: Iterator[tuple[int, Tensor]], *, pinned: bool = False) -> Iterator[tuple[int, Tensor]]:
    """Yield the same blocks, prefetched by a thread; `pinned` copies them to pinned memory for a GPU.

    A block is a pair of its first row and the rows. An error of the thread is raised here, after the blocks before
    it. Leaving the loop early ends the thread.

    >>> import torch
    >>> from mercer.data import read_ahead
    >>> [(start, rows.tolist()) for start, rows in read_ahead(iter([(0, torch.ones(2)), (2, torch.zeros(1))]))]
    [(0, [1.0, 1.0]), (2, [0.0])]
    """
    reader = _Reader(blocks, pinned)
    try:
        while (block := reader.next()) is not None:
            yield block
            del block  # frees it before waiting for the next block
    finally:
        reader.close()


class _Reader(threading.Thread):
    """Reads blocks until `READY` of them wait, and continues when one is taken."""

    def __init__(self, blocks: Iterator[tuple[int, Tensor]], pinned: bool) -> None:
        super().__init__(name="mercer reads ahead", daemon=True)
        self._blocks = blocks
        self._pinned = pinned
        self._ready: deque[tuple[int, Tensor]] = deque()
        self._error: BaseException | None = None
        self._done = self._closed = False
        self._changed = threading.Condition()
        self.start()

    def run(self) -> None:
        try:
            for start, block in self._blocks:
                block = block.pin_memory() if self._pinned and not block.is_cuda else block
                with self._changed:
                    self._ready.append((start, block))
                    del block
                    self._changed.notify()
                    self._changed.wait_for(lambda: len(self._ready) < READY or self._closed)
                    if self._closed:
                        break
        except BaseException as error:
            self._error = error
        finally:
            if hasattr(self._blocks, "close"):  # the thread that opened a file closes it
                self._blocks.close()
            with self._changed:
                self._done = True
                self._changed.notify()

    def next(self) -> tuple[int, Tensor] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._done)
            if self._ready:
                self._changed.notify()
                return self._ready.popleft()
        if self._error is not None:
            raise self._error
        return None

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._ready.clear()
            self._changed.notify()
        self.join()
