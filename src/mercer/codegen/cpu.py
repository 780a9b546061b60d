r"""Fast paths of CPUs: the exponential, buffers of a thread, and threads that share rows.

**The exponential** costs more than the rest of a kernel's value. MKL's `exp` is several times as fast as any other;
without it torch uses Sleef, whose `exp2` is faster than its `exp`, since it needs no reduction of the argument. On an
ARM Neoverse N1 (one core, float32, eight inputs, 2048 basis vectors) the steps of a product with a Gaussian kernel take

    =============================  ==============
    the exponents, one product     0.95 ns a value
    `exp`                          3.7
    `exp2`                         2.4
    the tile times v               0.2
    clamping, zeroing (far rows)   0.25, 0.35
    =============================  ==============

The factor on the argument is part of the scaled inputs (`Radial.log_base_scale`), so it costs nothing. The choice
follows from how torch was built, not from a timing: two processes that share a model must round alike.

**Memory.** A freed tile of two megabytes goes back to the system, and the next one gets pages that are cleared first.
That takes about 1 ns a value there, as much as the arithmetic. So temporary arrays lie in a buffer of their thread.
"""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

LOG2E = math.log2(math.e)
#: The logarithm of e to the base of `fast_exp`: e^x = fast_exp(EXP_BASE_FACTOR · x).
EXP_BASE_FACTOR = 1.0 if torch.backends.mkl.is_available() else LOG2E
_local = threading.local()
#: Largest size of a buffer in numbers: larger arrays are too rare to be held.
LARGEST = 1 << 22
#: Slots of buffers: two temporaries of a profile, the tile itself, and the features of a mixture's block.
FIRST, SECOND, TILE, FEATURES = 0, 1, 2, 3
Result = TypeVar("Result")
#: Thread pools by their number of threads; a forked process starts without any.
_pools: dict[int, ThreadPoolExecutor] = {}


def fast_exp(x: Tensor, out: Tensor | None = None) -> Tensor:
    """The faster exponential: `exp`, or `exp2` without MKL.

    >>> fast_exp(EXP_BASE_FACTOR * torch.ones(1, dtype=torch.float64)).item()
    2.718...
    """
    return torch.exp(x, out=out) if EXP_BASE_FACTOR == 1.0 else torch.exp2(x, out=out)


def thread_buffer(like: Tensor, slot: int, shape: tuple[int, ...] | None = None) -> Tensor | None:
    """A buffer like `like` (or of `shape`) that the next call overwrites; None on a GPU or if too large."""
    shape = tuple(like.shape) if shape is None else shape
    key, size = (slot, like.dtype), math.prod(shape)
    if like.device.type != "cpu" or size > LARGEST:
        return None
    buffers: dict[tuple[int, torch.dtype], Tensor] = _local.__dict__.setdefault("buffers", {})
    if key not in buffers or not size <= buffers[key].numel() <= 4 * size + 4096:
        buffers[key] = like.new_empty(size)
    return buffers[key][:size].view(shape)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_pools.clear)
#: Parts per thread: the others take over the parts of a thread that is delayed.
PARTS = 4


def over_rows(n: int, multiple: int, work: Callable[[slice], Result], least: int = 1) -> list[Result]:
    """Run ``work(where)`` in threads on parts of n rows, and return the results in order.

    Each part but the last is a multiple of `multiple` rows long, and has at least `least` rows: smaller parts would
    cost more in waiting than they take to compute.

    >>> sum(over_rows(10, 3, lambda where: where.stop - where.start))
    10
    """
    threads = torch.get_num_threads()
    each = -(-max(-(-n // (PARTS * threads)), least) // multiple) * multiple if threads > 1 else n
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
        for other in others:
            other.result()
    return [found[index] for index in range(len(parts))]


def _pool(threads: int) -> ThreadPoolExecutor:
    if threads not in _pools:
        _pools[threads] = ThreadPoolExecutor(threads, thread_name_prefix="mercer-rows")
    return _pools[threads]
