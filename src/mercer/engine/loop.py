"""The block loop: every pass over rows in this package goes through `each_block`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mercer.data.source import RowSource
from mercer.engine.plan import Plan

#: The argument of a visitor, made from a block of a prepared chunk.
BlockView = Callable[[Tensor], Any]


def each_block(
    rows: RowSource,
    plan: Plan,
    size: int,
    visit: Callable[[slice, Any], object],
    prepare: Callable[[Tensor], tuple[Tensor, BlockView]] | None = None,
) -> None:
    """Call ``visit(where, block)`` on blocks of at most `size` rows, in order.

    `prepare` does once per chunk read from the source the work that is the same for all its blocks. It returns a
    tensor of as many rows, and a function that makes the argument of `visit` from a block of that tensor.

    If memory runs out, the block is halved and the loop goes on from the same row. So `visit` must change its result
    in one last step (an in-place add or an assignment).
    """
    for start, chunk in rows.blocks(plan.chunk_rows(rows.n_columns, size)):
        view: BlockView | None = None
        if prepare is not None:
            chunk, view = prepare(chunk)
        begin = 0
        while begin < chunk.shape[0]:
            block = chunk[begin : begin + size]
            where = slice(start + begin, start + begin + block.shape[0])
            try:
                visit(where, block if view is None else view(block))
            except (RuntimeError, MemoryError) as error:
                if size == 1 or not is_out_of_memory(error):
                    raise
                size = (block.shape[0] + 1) // 2
                if plan.device.type == "cuda":
                    torch.cuda.empty_cache()
            else:
                begin += block.shape[0]


def is_out_of_memory(error: Exception) -> bool:
    """Whether an allocation failed.

    Torch has a type for failed allocations on a GPU alone. Its CPU allocator raises a plain RuntimeError
    ("DefaultCPUAllocator: can't allocate memory"), so there the message decides.

    >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("shapes do not match"))
    (True, False)
    """
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "alloc" in str(error)
