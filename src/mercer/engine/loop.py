"""THE block loop: every pass over rows in this package goes through `each_block`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mercer.data.source import RowSource
from mercer.engine.plan import Plan

#: How a block of a prepared chunk is shown to its visitor.
Look = Callable[[Tensor], Any]


def each_block(
    rows: RowSource,
    plan: Plan,
    size: int,
    visit: Callable[[slice, Any], object],
    prepare: Callable[[Tensor], tuple[Tensor, Look]] | None = None,
) -> None:
    """Call ``visit(where, block)`` on blocks of at most `size` rows, in order.

    `prepare` maps each chunk read from the source, once, to another tensor of as many rows and a function
    through which blocks of that are seen: what need not be done block by block.

    Where memory runs out the block is halved and the loop goes on from the same row, so `visit` must
    change its result in one last step (an in-place add or an assignment).
    """
    for start, chunk in rows.blocks(plan.chunk_rows(rows.n_columns, size)):
        look: Look | None = None
        if prepare is not None:
            chunk, look = prepare(chunk)
        begin = 0
        while begin < chunk.shape[0]:
            block = chunk[begin : begin + size]
            where = slice(start + begin, start + begin + block.shape[0])
            try:
                visit(where, block if look is None else look(block))
            except (RuntimeError, MemoryError) as error:
                memory = isinstance(error, torch.OutOfMemoryError | MemoryError) or "alloc" in str(error)
                if size == 1 or not memory:
                    raise
                size = (block.shape[0] + 1) // 2
                if plan.device.type == "cuda":
                    torch.cuda.empty_cache()
            else:
                begin += block.shape[0]
