"""Reading ahead: a thread has the next blocks ready while those before them are worked on.

Reading and decoding (pyarrow), and copying into page-locked memory, release Python's lock, so they cost no time of
their own as long as they take less than the work on a block.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator

from torch import Tensor

#: Blocks that are ready at most, beside the one that is worked on.
READY = 2


def read_ahead(blocks: Iterator[tuple[int, Tensor]], *, pinned: bool = False) -> Iterator[tuple[int, Tensor]]:
    """The same blocks, made by a thread ahead of their use; `pinned` copies them where a GPU fetches them from itself.

    A block is a pair of its first row and the rows. What goes wrong in the thread is raised here, in its place; whoever
    leaves the loop early ends the thread.

    >>> import torch
    >>> from mercer.data import read_ahead
    >>> [(start, rows.tolist()) for start, rows in read_ahead(iter([(0, torch.ones(2)), (2, torch.zeros(1))]))]
    [(0, [1.0, 1.0]), (2, [0.0])]
    """
    reader = _Reader(blocks, pinned)
    try:
        while (block := reader.next()) is not None:
            yield block
            del block  # else it would be held while the next one is waited for
    finally:
        reader.close()


class _Reader(threading.Thread):
    """Makes blocks until `READY` of them wait, and goes on when one is taken."""

    def __init__(self, blocks: Iterator[tuple[int, Tensor]], pinned: bool) -> None:
        super().__init__(name="mercer reads ahead", daemon=True)
        self._blocks, self._pinned = blocks, pinned
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
            if hasattr(self._blocks, "close"):  # files are closed by the thread that opened them
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
