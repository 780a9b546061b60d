"""Memory that tiles and their temporaries take in turn: on a CPU fresh pages cost as much as the arithmetic on them.

A tile of two megabytes that is freed goes back to the system, and the next one is given pages to be cleared again,
about 1 ns a value on an ARM Neoverse N1. So what is read once and dropped lies in one buffer of its thread.
"""

from __future__ import annotations

import math
import threading

import torch
from torch import Tensor

_local = threading.local()
#: Numbers of a buffer at most: what is larger is too rare to be held for good.
LARGEST = 1 << 22
#: Buffers by what they are for: two temporaries of a profile, and the tile itself.
FIRST, SECOND, TILE = 0, 1, 2


def scratch(like: Tensor, slot: int, shape: tuple[int, ...] | None = None) -> Tensor | None:
    """A buffer of `like`'s type and shape (or of another) that the next call overwrites; None where none is kept."""
    shape = tuple(like.shape) if shape is None else shape
    key, size = (slot, like.dtype), math.prod(shape)
    if like.device.type != "cpu" or size > LARGEST:
        return None
    buffers: dict[tuple[int, torch.dtype], Tensor] = _local.__dict__.setdefault("buffers", {})
    if key not in buffers or not size <= buffers[key].numel() <= 4 * size + 4096:
        buffers[key] = like.new_empty(size)
    return buffers[key][:size].view(shape)
